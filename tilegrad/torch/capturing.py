"""Calls that are captured and replayed where no gradient flows out of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tilegrad.capture.jit import Jit
from tilegrad.func.argument_trees import flatten
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch import thread_modes
from tilegrad.torch.tensor import with_ours

__all__ = ["compiled"]


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, captured where its results require no gradient."""
    captured = Jit(function, is_strict=False)
    # Whether a call's results require a gradient, by whether gradients are recorded.
    flows: dict[bool, bool] = {}

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        mode = thread_modes.is_grad_enabled()
        is_traced = any(
            isinstance(each, OurTensor) and each._requires_grad
            for each in (*args, *options.values())
        )
        if mode and (is_traced or flows.get(mode, True)):
            found = function(*args, **options)
            if not is_traced:
                leaves, _ = flatten(found)
                flows[mode] = any(
                    isinstance(each, OurTensor) and bool(each._requires_grad) for each in leaves
                )
            return found
        return with_ours(captured(*args, **options))

    return call
