"""Rows added by index: found in sums of chosen rows, and summed exactly where many meet."""

from __future__ import annotations

from typing import Any

from tilegrad.base.dtype import DType, dtypes
from tilegrad.ir.movement import (
    expand,
    fill,
    pad_with_identity,
    permute,
    reduce_axes,
    reshape,
    shrink,
)
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import below, device_of, is_const
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp
from tilegrad.schedule.collapse import collapse
from tilegrad.schedule.cost import WORTH_A_KERNEL, elements
from tilegrad.schedule.kernel_graphs import KernelBuilder
from tilegrad.schedule.scans import in_slices

__all__ = ["as_scatter", "with_exact_sums"]

# Tuning, worth shown by `bench/corpus.py`, family indexing.
# With fewer rows the product of matrices takes as little time.
_FEW_ROWS = 64
# For each axis of the summed value the axis of another that it runs along, or None for no axis.
Axes = tuple[int | None, ...]


def as_scatter(node: UOp) -> UOp | None:
    """The sum `node` as rows added by index, if it is a sum of rows that a one-hot chooses.

    The gradient of `index.one_hot(V).float() @ table` is such a sum.

    The table's gradient asks each of V rows about each of n indices, n * V * D products, nearly all
    zeros. As rows added by index they take n * D sums:

    before   REDUCE_AXIS(ADD, where index[n] == v: x[n, d], over n)
    after    SCATTER_ADD(zeros, index, x)
    """
    if node.op is not Ops.REDUCE_AXIS or node.combine is not Ops.ADD:
        return None
    value = node.src[0]
    while value.op is Ops.CAST and value.dtype.is_float:
        value = value.src[0]
    if value.op is Ops.WHERE and _is_zero(value.src[2]):
        pairs = [value.src[:2]]
    elif value.op is Ops.MUL:
        pairs = [value.src, value.src[::-1]]
    else:
        return None
    for flags, rows in pairs:
        found = _chosen(flags)
        if found is not None:
            index, index_axes, counted = found
            if _is_sum_of_rows(node, index_axes) and _axis_below(rows, counted) is None:
                return _scattered(node, index, index_axes, counted, rows)
    return None


def _is_zero(node: UOp) -> bool:
    node = below(node, (Ops.EXPAND, Ops.RESHAPE))
    return is_const(node, 0)


def _chosen(flags: UOp) -> tuple[UOp, Axes, int] | None:
    """For flags `index == count`: the index, its axes, and the axis along which the count 0, 1, 2,
    ... goes.
    """
    compared, axes = _below(flags, tuple(range(len(flags.shape))))
    if compared.op is not Ops.CMPEQ:
        return None
    for index, counted in (compared.src, compared.src[::-1]):
        if not counted.is_constant:
            continue
        count, count_axes = _below(counted, axes)
        named = [axis for axis, of in enumerate(count_axes) if of is not None]
        if len(named) == 1 and elements(count) >= _FEW_ROWS and _counts(count):
            index, index_axes = _below(index, axes)
            is_plain = index.dtype in dtypes.signed and index_axes[named[0]] is None
            return (index, index_axes, named[0]) if is_plain else None
    return None


def _below(node: UOp, axes: Axes) -> tuple[UOp, Axes]:
    """The value below the repeats, permutes and casts of `node`, and the axes of it along which
    `axes` run."""
    while True:
        source = node.src[0] if node.src else node
        if node.op is Ops.CAST and (node.dtype.is_float or source.dtype is dtypes.bool):
            pass
        elif node.op is Ops.EXPAND:
            axes = _renamed(axes, [
                axis if source.shape[axis] == size else None for axis, size in enumerate(node.shape)
            ])  # fmt: skip
        elif node.op is Ops.PERMUTE:
            axes = _renamed(axes, list(node.arg))
        elif node.op is Ops.RESHAPE and _long(source) == _long(node):
            long_axes = iter([axis for axis, size in enumerate(source.shape) if size != 1])
            axes = _renamed(axes, [next(long_axes) if size != 1 else None for size in node.shape])
        else:
            return node, axes
        node = source


def _renamed(axes: Axes, names: list[int | None]) -> Axes:
    return tuple(None if axis is None else names[axis] for axis in axes)


def _long(node: UOp) -> list[object]:
    return [size for size in node.shape if size != 1]


def _counts(vector: UOp) -> bool:
    """Whether a vector of constants is 0, 1, 2, ..."""
    if len(vector.shape) != 1:
        return False
    at = UOp.range(vector.shape[0], 0, Axis.LOOP)
    builder = KernelBuilder(lambda node: node, lambda node: False, number=1)
    return simplify(collapse(builder.value(vector, (at,)))) is simplify(at.cast(vector.dtype))


def _axis_below(node: UOp, axis: int) -> int | None:
    return _below(node, tuple(range(len(node.shape))))[1][axis]


def _is_sum_of_rows(node: UOp, index_axes: Axes) -> bool:
    """Whether the sum goes over the index, all of it, and over nothing else."""
    shape, summed = node.src[0].shape, node.axes
    over = {axis for axis in summed if shape[axis] != 1}
    return bool(over) and over == {axis for axis, of in enumerate(index_axes) if of is not None}


def _scattered(node: UOp, index: UOp, index_axes: Axes, counted: int, rows: UOp) -> UOp:
    shape = rows.shape
    over = [axis for axis, of in enumerate(index_axes) if of is not None]
    beside = [axis for axis in range(len(shape)) if axis not in over and axis != counted]
    # An index that is permuted like the axes of the sum, without its axes of length 1.
    order = [of for of in index_axes if of is not None]
    order += [axis for axis in range(len(index.shape)) if axis not in order]
    which = reshape(permute(index, order), tuple(shape[axis] for axis in over))
    one = shrink(rows, [(0, 1 if axis == counted else size) for axis, size in enumerate(shape)])
    rest = tuple(shape[axis] for axis in beside)
    added = reshape(permute(one, (*over, *beside, counted)), (*which.shape, *rest))
    zeros = fill((shape[counted], *rest), 0, node.dtype)
    memory = UOp(Ops.CONTIGUOUS, node.dtype, (zeros,), device_of(node))
    total = UOp(Ops.SCATTER_ADD, node.dtype, (memory, which, added.cast(node.dtype)))
    order = [counted, *beside]
    return reshape(permute(total, [order.index(axis) for axis in sorted(order)]), node.shape)


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


def with_exact_sums(node: UOp, *, has_blocks: bool = False, warps: int = 0) -> UOp | None:
    """The value of a crowded `node`, with sums that are rounded once; None for another.

    Rows are added one after the other, so the error of a position's sum grows with the number of
    rows that meet there. A row that may take many is summed in float64 instead and rounded once:
    all rows if the table is small beside the rows, else those alone that are named often. `warps`
    keep a target busy that `has_blocks` of lanes.
    """
    if not _is_crowded(node):
        return None
    table, rows = elements(node), elements(node.src[2])
    # A kernel of its own would count how often each position is named.
    is_small = rows >= _CROWDED * table or table < WORTH_A_KERNEL
    positions = node.shape[0]
    if is_small or not isinstance(positions, int) or table < _CROWDED * positions:
        return _in_double(node)
    return _frequent_in_double(node, has_blocks=has_blocks, warps=warps)


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


def _frequent_in_double(node: UOp, *, has_blocks: bool, warps: int) -> UOp:
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

    each = _numbers(positions) if has_blocks else _counted(fill((positions,), 1, dtypes.int32))
    if has_blocks:
        named = _summed_where(each - 1, reshape(index, (elements(index),)), None)
    else:
        one = fill(index.shape, 1, dtypes.int32)
        named = added(memory((positions,), 0, dtypes.int32), index, one)
    is_often = named > _MANY_ROWS
    # 1, 2, 3, ... for the rows that are named often, 0 for the others.
    running = _counted(is_often.cast(dtypes.int32))
    if has_blocks:
        running = in_slices(running, has_lanes=True, warps=warps) or running
    numbers = is_often.where(running, 0)
    number = UOp(Ops.GATHER, dtypes.int32, (numbers, index))
    apart = number.ne(0)
    column = reshape(apart, apart.shape + (1,) * (len(node.shape) - 1))
    chosen = expand(column, rows.shape).where(rows, 0.0)
    wide = memory((most, *node.shape[1:]), 0, dtypes.float64)
    sums = added(wide, number - 1, chosen.cast(dtypes.float64)).cast(node.dtype)
    others = added(base, apart.where(-1, index), rows)
    # The position of each number; -1, which is outside, for numbers that no position has.
    if has_blocks:
        home = _summed_where(_numbers(most), numbers, each) - 1
        # Stored, as each element of a row asks for it.
        home = UOp(Ops.CONTIGUOUS, home.dtype, (home,), device)
    else:
        home = added(memory((most,), -1, dtypes.int32), numbers - 1, each)
    return added(others, home, sums)


def _summed_where(wanted: UOp, numbers: UOp, values: UOp | None) -> UOp:
    """For each of the `wanted` numbers the sum of the `values` where `numbers` are equal to it, or
    their count. Lanes compare all pairs sooner than one of them adds number after number.
    """
    shape = *wanted.shape, *numbers.shape
    column = expand(reshape(wanted.cast(numbers.dtype), (*wanted.shape, 1)), shape)
    is_equal = column.eq(expand(reshape(numbers, (1, *numbers.shape)), shape))
    row = fill(numbers.shape, 1, dtypes.int32) if values is None else values
    summed = is_equal.where(expand(reshape(row, (1, *numbers.shape)), shape), 0)
    return reshape(reduce_axes(summed, Ops.ADD, (1,)), wanted.shape)


def _numbers(count: int) -> UOp:
    """1, 2, 3, ... as sums of ones behind zeros, which need no loop and no memory."""
    width = 2 * count - 1
    ones = pad_with_identity(fill((count,), 1, dtypes.int32), 0, (count - 1, 0), Ops.ADD)
    again = reshape(expand(reshape(ones, (1, width)), (count + 1, width)), ((count + 1) * width,))
    # Each row begins one element later.
    rows = reshape(shrink(again, [(0, count * (width + 1))]), (count, width + 1))
    sums = reduce_axes(shrink(rows, [(0, count), (0, count)]), Ops.ADD, (1,))
    return reshape(sums, (count,))


def _counted(flags: UOp) -> UOp:
    """The running sum of a vector."""
    return UOp(Ops.PREFIX_AXIS, flags.dtype, (flags,), (Ops.ADD, 0))
