"""Slices of values on their way between devices: cut, copied, and joined."""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.base.dtype import dtypes
from tilegrad.ir.movement import fill, shrink
from tilegrad.ir.op import Ops
from tilegrad.ir.placement import Placement, Range
from tilegrad.ir.queries import device_of
from tilegrad.ir.uop import UOp

__all__ = ["copied", "cut", "joined", "present", "shrunk"]


def present(shard: UOp | None) -> UOp:
    assert shard is not None
    return shard


def copied(value: UOp, device: str) -> UOp:
    """`value` on a device: a constant is on all of them."""
    own = device_of(value)
    if own is None or own == device:
        return value
    return UOp(Ops.COPY, value.dtype, (value,), device)


def shrunk(value: UOp, axis: int, bounds: Range) -> UOp:
    if bounds == (0, value.shape[axis]):
        return value
    arg = [(0, size) for size in value.shape]
    arg[axis] = bounds
    return shrink(value, arg)


def cut(value: UOp, placement: Placement, number: int) -> UOp:
    """The slice of the whole `value` that device `number` has."""
    if placement.axis is None or not value.shape:
        return value
    return shrunk(value, placement.axis, placement.bounds[number])


def joined(slices: Sequence[tuple[Range, UOp]], axis: int, size: int) -> UOp:
    """Values at ranges of an axis as one value: each padded to all of it, and chosen from by the
    position, as zeros that are added would lose the sign of a zero.
    """
    whole: UOp | None = None
    for (start, end), each in sorted(slices, key=lambda each: each[0]):
        around = [(0, 0)] * len(each.shape)
        around[axis] = start, size - end
        padded = each
        if around[axis] != (0, 0):
            padded = UOp(Ops.PAD, each.dtype, (each,), tuple(around))
        if whole is None:
            whole = padded
            continue
        is_before = UOp(
            Ops.PAD,
            dtypes.bool,
            (fill((*whole.shape[:axis], start, *whole.shape[axis + 1 :]), True, dtypes.bool),),
            tuple((0, size - start) if at == axis else (0, 0) for at in range(len(around))),
        )
        whole = UOp(Ops.WHERE, each.dtype, (is_before, whole, padded))
    assert whole is not None
    return whole
