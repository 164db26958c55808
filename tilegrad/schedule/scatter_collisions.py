"""Rows added by index, where many may meet in one row of the table.

Rows are added one after the other, so the error of a position's sum grows with the number of rows
that meet there. A row that may take many is summed in float64 instead and rounded once: all rows if
the table is small beside the rows, else those alone that are named often.
"""

from __future__ import annotations

from typing import Any

from tilegrad.base.dtype import DType, dtypes
from tilegrad.ir.movement import expand, fill, reshape
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import device_of
from tilegrad.ir.uop import UOp
from tilegrad.schedule.cost import WORTH_A_KERNEL, elements

__all__ = ["with_exact_sums"]

# Tuning, worth shown by `bench/accuracy.py`, sums by index.
# Rows per row of the table, and in all, from which on a table in float64 is small beside them; as
# often is a position named at least to be summed apart. With both factors together, all rows may be
# of one position without float64: their sum is off by as many roundings at worst, in practice by
# some hundreds. Rows with fewer elements than _CROWDED are added in float64: that takes less time
# than to count how often each position is named.
_CROWDED, _MANY_ROWS = 8, 512


def _is_crowded(node: UOp) -> bool:
    """Whether `node` adds enough rows of float32 for their order to count."""
    if node.op is not Ops.SCATTER_ADD or node.dtype is not dtypes.float32:
        return False
    rows = elements(node.src[1])
    if rows > _MANY_ROWS and elements(node.src[2]) >= _CROWDED * elements(node):
        return True
    return rows > _CROWDED * _MANY_ROWS


def with_exact_sums(node: UOp) -> UOp | None:
    """The value of a crowded `node`, with sums that are rounded once; None for another."""
    if not _is_crowded(node):
        return None
    table, rows = elements(node), elements(node.src[2])
    # A kernel of its own would count how often each position is named.
    is_small = rows >= _CROWDED * table or table < WORTH_A_KERNEL
    positions = node.shape[0]
    if is_small or not isinstance(positions, int) or table < _CROWDED * positions:
        return _in_double(node)
    return _frequent_in_double(node)


def _in_double(node: UOp) -> UOp:
    """All rows added in float64, and each position rounded once."""
    base, index, rows = node.src
    if base.op is Ops.CONTIGUOUS and base.src[0].is_constant:
        base = base.replace(dtype=dtypes.float64, src=(base.src[0].cast(dtypes.float64),))
    else:
        base = base.cast(dtypes.float64)
    return node.replace(dtype=dtypes.float64, src=(base, index, rows.cast(dtypes.float64))).cast(
        node.dtype
    )


def _frequent_in_double(node: UOp) -> UOp:
    """Frequent rows of the table are summed in float64, in a table of their own, which is small:
    of n rows, fewer than n / 512 can have more than 512. The others are added as ever.

    before   SCATTER_ADD(base, index, rows)
    after    SCATTER_ADD(SCATTER_ADD(base, index of the others, rows), home, sums)
    """
    base, index, rows = node.src
    if index.dtype not in dtypes.signed:
        index = index.cast(dtypes.int64)
    positions, device = node.shape[0], device_of(node)
    most = elements(index) // (_MANY_ROWS + 1)

    def memory(shape: tuple[Any, ...], value: int, dtype: DType) -> UOp:
        return UOp(Ops.CONTIGUOUS, dtype, (fill(shape, value, dtype),), device)

    def added(base: UOp, index: UOp, rows: UOp) -> UOp:
        return UOp(Ops.SCATTER_ADD, base.dtype, (base, index, rows))

    one = fill(index.shape, 1, dtypes.int32)
    is_often = added(memory((positions,), 0, dtypes.int32), index, one) > _MANY_ROWS
    # 1, 2, 3, ... for the rows that are named often, 0 for the others.
    numbers = is_often.where(_counted(is_often.cast(dtypes.int32)), 0)
    number = UOp(Ops.GATHER, dtypes.int32, (numbers, index))
    apart = number.ne(0)
    column = reshape(apart, apart.shape + (1,) * (len(node.shape) - 1))
    chosen = expand(column, rows.shape).where(rows, 0.0)
    wide = memory((most, *node.shape[1:]), 0, dtypes.float64)
    sums = added(wide, number - 1, chosen.cast(dtypes.float64)).cast(node.dtype)
    others = added(base, apart.where(-1, index), rows)
    # The position of each number; -1, which is outside, for numbers that no position has.
    each = _counted(fill((positions,), 1, dtypes.int32))
    home = added(memory((most,), -1, dtypes.int32), numbers - 1, each)
    return added(others, home, sums)


def _counted(flags: UOp) -> UOp:
    """The running sum of a vector."""
    return UOp(Ops.PREFIX_AXIS, flags.dtype, (flags,), (Ops.ADD, 0))
