"""Methods whose arguments PyTorch takes otherwise, or more of them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from tilegrad.base.dtype import dtypes
from tilegrad.base.dtype_promotion import promote
from tilegrad.base.errors import UnsupportedError
from tilegrad.torch.device_names import name_of
from tilegrad.torch.lu_factors import factors_of

__all__ = [
    "anywhere", "by_weights", "counting", "factors_in_one", "from_the_end", "in_one_mode",
    "is_called_within", "of_all_axes", "of_wide_positions", "wide_or_told",
]  # fmt: skip

# Modules whose functions stand around methods.
_AROUND = frozenset({
    "tilegrad.torch.complex_unbound", "tilegrad.torch.function_protocol",
    "tilegrad.torch.quick_calls", "tilegrad.torch.steps", "tilegrad.tensor.calls.templates",
})  # fmt: skip
# And those that hand on a program's arguments as they are.
_HANDING_ON = _AROUND | {
    f"tilegrad.torch.{name}"
    for name in (
        "argument_methods",
        "calling",
        "expecting",
        "functions",
        "methods",
        "reduction_methods",
    )
}

_SEVERAL = (tuple, list)


def is_called_within(frame: FrameType, around: frozenset[str] = _AROUND) -> bool:
    """Whether the caller of a method, whose `frame` this is, is tilegrad itself, modules `around`
    methods aside.
    """
    caller: FrameType | None = frame
    while caller is not None:
        name = str(caller.f_globals.get("__name__"))
        if name not in around:
            return name.startswith("tilegrad.")
        caller = caller.f_back
    return False


def by_weights(method: Callable[..., Any]) -> Any:
    """The covariance, with weights of the observations: how often each was made, and how much it
    counts.
    """

    def give(self: Any, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Any:
        if fweights is None and aweights is None:
            return method(self, correction=correction)
        often: Any = 1.0 if fweights is None else fweights
        counts: Any = 1.0 if aweights is None else aweights
        x = self._floating()
        x = x if aweights is None else x.to(promote(x.dtype, counts.dtype))
        x, share = x.reshape(-1, x.shape[-1]), (often * counts).to(x.dtype)
        total = share.sum()
        apart = x - (x * share).sum(-1, keepdim=True) / total
        free = total - correction * (share * counts).sum() / total
        found = (apart * share) @ apart.mT / free
        return found.reshape(()) if found.numel() == 1 else found

    return give


def in_one_mode(method: Callable[..., Any]) -> Any:
    """Distances, which are computed in one way whatever mode is named."""

    def give(self: Any, x2: Any, p: float = 2.0, compute_mode: Any = None) -> Any:
        return method(self, x2, p)

    return give


def wide_or_told(method: Callable[..., Any]) -> Any:
    """Positions in int64, or in int32 where `out_int32` says so; with a `sorter` among elements in
    its order.
    """

    def give(
        self: Any, *args: Any, out_int32: bool = False, sorter: Any = None, **options: Any
    ) -> Any:
        ordered = self if sorter is None else self.gather(-1, sorter)
        return method(ordered, *args, **options).cast(dtypes.int32 if out_int32 else dtypes.int64)

    return give


def of_wide_positions(method: Callable[..., Any]) -> Any:
    """Indices in int64, of positions in any integer dtype."""

    def give(self: Any, *args: Any, **options: Any) -> Any:
        return method(self.cast(dtypes.int64) if self.dtype.is_int else self, *args, **options)

    return give


def anywhere(method: Callable[..., Any]) -> Any:
    """A new tensor on a named device, which may require a gradient."""

    def give(
        self: Any,
        *args: Any,
        device: Any = None,
        requires_grad: bool = False,
        layout: Any = None,
        pin_memory: bool = False,
        **options: Any,
    ) -> Any:
        made = method(self, *args, **options)
        made = made if device is None else made.to(name_of(device))
        return made.requires_grad_() if requires_grad else made

    return give


def of_all_axes(method: Callable[..., Any]) -> Any:
    """A reduction of all axes where a program's tuple names none."""
    at = 1 if method.__name__ == "norm" else 0

    def give(self: Any, *args: Any, **options: Any) -> Any:
        if not args and not options:
            return method(self)
        axes = args[at] if len(args) > at else options.get("dim")
        if axes.__class__ not in _SEVERAL or axes:
            return method(self, *args, **options)
        if is_called_within(sys._getframe(1), _HANDING_ON):
            return method(self, *args, **options)
        if len(args) > at:
            return method(self, *args[:at], None, *args[at + 1 :], **options)
        return method(self, *args, **options | {"dim": None})

    return give


def factors_in_one(method: Callable[..., Any]) -> Any:
    """The factors of `lu` in one matrix, and with which row each was exchanged; with `get_infos`
    zeros as well, for each matrix one.
    """

    def give(self: Any, pivot: bool = True, get_infos: bool = False) -> Any:
        if not pivot:
            raise UnsupportedError("lu: rows are always exchanged", rule="pivot=True")
        found = factors_of("lu", self)
        return (*found, self.new_zeros(self.shape[:-2], dtype=dtypes.int32)) if get_infos else found

    return give


def counting(method: Callable[..., Any]) -> Any:
    """The square of truth values, or their power by an integer, in int64."""

    def give(self: Any, *args: Any) -> Any:
        if self.dtype is dtypes.bool and all(each.__class__ is int for each in args):
            self = self.cast(dtypes.int64)
        return method(self, *args)

    return give


def from_the_end(method: Callable[..., Any]) -> Any:
    """A negative index counts from the end, which `gather` refuses."""

    def give(self: Any, indices: Any, dim: int | None = None) -> Any:
        size = self.numel() if dim is None else self.shape[dim]
        return method(self, (indices < 0).where(indices + size, indices), dim)

    return give
