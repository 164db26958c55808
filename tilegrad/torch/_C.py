"""`torch._C`: what libraries ask PyTorch's machine code that there is an answer to here."""

from __future__ import annotations

import enum
from contextlib import nullcontext
from typing import Any

from tilegrad.tensor.handle.tracing import is_transforming
from tilegrad.torch.absent_hints import absent, refuse_others
from tilegrad.torch.function_protocol import DisableTorchFunctionSubclass
from tilegrad.torch.random import Generator as Generator

__all__ = [
    "DisableTorchFunction", "DisableTorchFunctionSubclass", "DispatchKey", "DispatchKeySet",
    "Generator", "Graph", "Value", "_ExcludeDispatchKeyGuard",
    "_are_functorch_transforms_active", "_get_tracing_state", "_log_api_usage_once",
]  # fmt: skip


class _Traced:
    """A class of objects that only a tracer makes: none runs."""

    def __init__(self, *args: Any):
        raise NotImplementedError(absent("torch._C", type(self).__name__, ()))


class Graph(_Traced):
    """The graph that a tracer writes: there are none. Making one raises NotImplementedError."""


class Value(_Traced):
    """A value of a `Graph`: there are none. Making one raises NotImplementedError."""


class DispatchKey(enum.Enum):
    """Kinds of kernels that PyTorch chooses among; here the compiler makes one."""

    Autocast = enum.auto()
    AutocastCPU = enum.auto()
    AutocastCUDA = enum.auto()
    AutocastXPU = enum.auto()
    Autograd = enum.auto()
    CPU = enum.auto()
    CUDA = enum.auto()
    Meta = enum.auto()


class DispatchKeySet:
    """A set of keys."""

    def __init__(self, *keys: DispatchKey):
        self._keys = frozenset(keys)

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(*self._keys, *other._keys)

    def has(self, key: DispatchKey) -> bool:
        """Whether a key is in the set."""
        return key in self._keys


class _ExcludeDispatchKeyGuard(nullcontext[None]):
    """A block without some kinds of kernels: nothing is chosen in any case."""


DisableTorchFunction = DisableTorchFunctionSubclass


def _get_tracing_state() -> None:
    """None: no tracer runs."""


def _log_api_usage_once(event: str) -> None:
    """Nothing: what a program uses is not counted."""


def _are_functorch_transforms_active() -> bool:
    """Whether a function of `torch.func` runs."""
    return is_transforming()


refuse_others(__name__)
