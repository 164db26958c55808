"""Nodes of the tensor graph that move or repeat values, made in one call each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilegrad.base.dtype import DType, dtypes
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

__all__ = [
    "expand", "fill", "pad_with_identity", "permute", "reduce_axes", "reshape", "shaped", "shrink",
    "stretched",
]  # fmt: skip


def reshape(x: UOp, shape: tuple[Any, ...]) -> UOp:
    return UOp(Ops.RESHAPE, x.dtype, (x,), shape)


def expand(x: UOp, shape: tuple[Any, ...]) -> UOp:
    return UOp(Ops.EXPAND, x.dtype, (x,), shape)


def shaped(x: UOp, shape: tuple[Any, ...]) -> UOp:
    """`x` in this shape; itself where it has it."""
    return x if x.shape == shape else reshape(x, shape)


def stretched(x: UOp, shape: tuple[Any, ...]) -> UOp:
    """`x` repeated to this shape; itself where it has it."""
    return x if x.shape == shape else expand(x, shape)


def permute(x: UOp, order: Sequence[int]) -> UOp:
    return UOp(Ops.PERMUTE, x.dtype, (x,), tuple(order))


def shrink(x: UOp, bounds: Sequence[tuple[Any, Any]]) -> UOp:
    return UOp(Ops.SHRINK, x.dtype, (x,), tuple(bounds))


def reduce_axes(x: UOp, function: Ops, axes: tuple[int, ...]) -> UOp:
    return UOp(Ops.REDUCE_AXIS, x.dtype, (x,), (function, axes))


def fill(shape: tuple[Any, ...], value: Any, dtype: DType) -> UOp:
    """A constant in each element of `shape`."""
    return stretched(shaped(UOp.const(dtype, value), (1,) * len(shape)), shape)


def pad_with_identity(x: UOp, axis: int, padding: tuple[int, int], function: Ops) -> UOp:
    """`x` with elements before and behind it along an axis that change no reduction by
    `function`.
    """
    if padding == (0, 0):
        return x
    pairs = tuple(padding if each == axis else (0, 0) for each in range(len(x.shape)))
    padded = UOp(Ops.PAD, x.dtype, (x,), pairs)
    assert function.definition.identity is not None
    identity = function.definition.identity(x.dtype)
    if identity == 0:
        return padded
    inside = UOp(Ops.PAD, dtypes.bool, (fill(x.shape, True, dtypes.bool),), pairs)
    return inside.where(padded, UOp.const(x.dtype, identity))
