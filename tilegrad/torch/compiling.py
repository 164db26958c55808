"""`torch.compile`: tilegrad's `jit`, where no gradient is to flow out of the call.

The results of a captured call have no graph behind them. So a call whose result can be
differentiated runs as it is: lazy graphs are compiled whole in any case. Calls under `no_grad`, and
calls whose results require no gradient, are captured and replayed.
"""

from __future__ import annotations

from typing import Any

from tilegrad.torch.capturing import compiled
from tilegrad.torch.nn.module import Module

__all__ = ["compile"]


def compile(model: Any = None, **options: Any) -> Any:
    """A function, or a module, that is captured and replayed; also as a decorator with options.

    `fullgraph`, `dynamic`, `backend`, `mode` and `options` choose how PyTorch compiles, and have no
    effect.

    >>> import tilegrad.torch as torch
    >>> @torch.compile
    ... def double(x):
    ...     return x * 2
    >>> double(torch.tensor([1.0])).tolist()
    [2.0]
    """
    if model is None:
        return lambda given: compile(given, **options)
    if options.get("disable"):
        return model
    if isinstance(model, Module):
        return Compiled(model)
    return compiled(model)


class Compiled(Module):
    """A module whose calls are captured where no gradient flows out of them."""

    def __init__(self, module: Module):
        self._orig_mod = module
        self._call = compiled(module)

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._call(*args, **options)

    def __getattr__(self, name: str) -> Any:
        inside = self.__dict__.get("_orig_mod")
        if inside is None:
            raise AttributeError(name)
        return getattr(inside, name)
