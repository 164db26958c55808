"""Sums of rows chosen by a comparison: the gradient of `index.one_hot(V).float() @ table`.

The table's gradient asks each of V rows about each of n indices, n * V * D products, nearly all
zeros. As rows added by index they take n * D sums:

before   REDUCE_AXIS(ADD, where index[n] == v: x[n, d], over n)
after    SCATTER_ADD(zeros, index, x)
"""

from __future__ import annotations

from tilegrad.base.dtype import dtypes
from tilegrad.ir.movement import fill, permute, reshape, shrink
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import below, device_of, is_const
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp
from tilegrad.schedule.collapse import collapse
from tilegrad.schedule.cost import elements
from tilegrad.schedule.kernel_graphs import KernelBuilder

__all__ = ["as_scatter"]

# Tuning, worth shown by `bench/corpus.py`, family indexing.
# With fewer rows the product of matrices takes as little time.
_FEW_ROWS = 64
# For each axis of the summed value the axis of another that it runs along, or None for no axis.
Axes = tuple[int | None, ...]


def as_scatter(node: UOp) -> UOp | None:
    """The sum `node` as rows added by index, if it is a sum of rows that a one-hot chooses."""
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
