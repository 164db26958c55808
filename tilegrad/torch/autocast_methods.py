"""Methods under `torch.autocast`: products in its dtype, and what stays in float32."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import DTypeError
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch import thread_modes

__all__ = ["from_float32", "one_dtype", "plain_product", "product_of_kind", "without_autocast"]


_state = thread_modes.state


# The dtypes of operands that autocast casts for a product.
AUTOCAST_FROM = (dtypes.float32, dtypes.float16, dtypes.bfloat16)


def product_of_kind(method: Callable[..., Any]) -> Any:
    def give(self: Any, *args: Any, **options: Any) -> Any:
        if _state.autocast is None:
            one_dtype(method.__name__, (self, *args))
            return method(self, *args, **options)
        wanted = _state.autocast
        first, *rest = [
            each.cast(wanted)
            if isinstance(each, OurTensor) and each.dtype in AUTOCAST_FROM
            else each
            for each in (self, *args)
        ]
        return method(first, *rest, **options)

    return give


def plain_product(method: Callable[..., Any]) -> Any:
    plain = without_autocast(method)

    def give(self: Any, *args: Any, **options: Any) -> Any:
        one_dtype(method.__name__, (self, *args))
        return plain(self, *args, **options)

    return give


def from_float32(function: Callable[..., Any]) -> Any:
    """`function`, which autocast computes in float32."""

    @functools.wraps(function)
    def give(*args: Any, **options: Any) -> Any:
        if _state.autocast is None:
            return function(*args, **options)
        with thread_modes.autocast("cpu", enabled=False):
            return function(*[in_float32(each) for each in args], **options)

    return give


def without_autocast(function: Callable[..., Any]) -> Any:
    """`function`, whose products inside autocast leaves in the dtype of the operands."""

    @functools.wraps(function)
    def give(*args: Any, **options: Any) -> Any:
        if _state.autocast is None:
            return function(*args, **options)
        with thread_modes.autocast("cpu", enabled=False):
            return function(*args, **options)

    return give


def in_float32(value: Any) -> Any:
    is_half = isinstance(value, OurTensor) and value.dtype.is_float and value.dtype.itemsize < 4
    return value.float() if is_half else value


def one_dtype(name: str, operands: Any) -> None:
    """Refuse a product of two dtypes, as PyTorch does; a mask of bools is no factor."""
    kinds = {x.dtype for x in operands if isinstance(x, OurTensor)} - {dtypes.bool}
    if len(kinds) > 1:
        shown = " and ".join(sorted(kind.name for kind in kinds))
        raise DTypeError(
            f"{name}: expected operands of one dtype, but got {shown}", remedy="x.to(dtype)"
        )
