"""Operand layouts of loops: a matrix that every step multiplies with is transposed once if that
makes its reads contiguous.

A product reads an operand best where consecutive elements belong to consecutive results: they form
a vector, and so do the results. Where the last axis is summed instead, a step reads the operand
with a stride. The loop then transposes the operand once, before its first step.

    before   SUM(h[n, k] * w[j, k], k)       in every step
    after    SUM(h[n, k] * t[k, j], k)       t = w transposed, in memory

The gradient of that step by h sums over j, and so reads w in its own layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilegrad.ir.op import Ops
from tilegrad.ir.queries import below
from tilegrad.ir.runs import runs_of
from tilegrad.ir.uop import UOp, toposort

__all__ = ["strided_operands", "transposed"]

# The least number of consecutive results that is worth a vector.
_LEAST = 4

Order = tuple[int, ...]


def strided_operands(
    values: Sequence[UOp], shapes: Mapping[UOp, tuple[int, ...]]
) -> dict[UOp, tuple[UOp, Order, list[UOp]]]:
    """The factors of sums of products in `values` that read a leaf of `shapes` with a stride: each
    with the leaf, the order of its axes that makes the reads contiguous, and the movement ops above
    the leaf, innermost first.
    """
    found: dict[UOp, tuple[UOp, Order, list[UOp]]] = {}
    for reduce in toposort(values):
        if reduce.op is not Ops.REDUCE_AXIS or reduce.combine is not Ops.ADD:
            continue
        product = below(reduce.src[0], (Ops.CAST,))
        for factor in product.src if product.op is Ops.MUL else ():
            leaf, moves = _below(factor)
            if leaf not in shapes:
                continue
            axes = _axes_of(shapes[leaf], moves)
            order = None if axes is None else _order(shapes[leaf], axes, reduce.axes)
            if order is not None:
                found[factor] = leaf, order, moves
    return found


def _below(node: UOp) -> tuple[UOp, list[UOp]]:
    """The leaf below movement ops and casts, and these ops, innermost first."""
    moves: list[UOp] = []
    while node.op in (Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.CAST):
        moves.append(node)
        node = node.src[0]
    return node, moves[::-1]


def _axes_of(shape: tuple[int, ...], moves: Sequence[UOp]) -> list[int | None] | None:
    """The axis of `shape` that each axis is after `moves`, None for a new axis; None as a whole if
    axes are mixed.
    """
    axes: list[int | None] = list(range(len(shape)))
    for move in moves:
        if move.op is Ops.PERMUTE:
            axes = [axes[axis] for axis in move.arg]
        elif move.op is Ops.RESHAPE:
            # The leaf is flat, and its first reshape gives it the shape.
            runs = [] if move is moves[0] else runs_of(move.src[0].shape, move.arg)
            if move is moves[0] and move.arg != shape:
                runs = runs_of(shape, move.arg)
            elif move is moves[0]:
                continue
            if any(len(before) != 1 or len(after) != 1 for before, after in runs):
                return None
            moved: list[int | None] = [None] * len(move.arg)
            for (before,), (after,) in runs:
                moved[after] = axes[before]
            axes = moved
    return axes


def _order(
    shape: tuple[int, ...], axes: Sequence[int | None], summed: Sequence[int]
) -> Order | None:
    """The axes of `shape` with the summed ones first, if the last axis is summed."""
    inner = {axes[axis] for axis in summed}
    others = [axis for axis in range(len(shape)) if axis not in inner]
    large = [axis for axis in range(len(shape)) if shape[axis] > 1]
    if not large or large[-1] not in inner or not any(shape[axis] >= _LEAST for axis in others):
        return None
    return (*[axis for axis in range(len(shape)) if axis in inner], *others)


def transposed(value: UOp, order: Order) -> UOp:
    """`value` in memory with its axes in `order`; its source, if `value` is the opposite
    transpose.
    """
    moved = value
    if moved.op is Ops.CONTIGUOUS and moved.arg is None:
        moved = moved.src[0]
    if moved.op is Ops.PERMUTE and tuple(moved.arg[axis] for axis in order) == tuple(
        range(len(order))
    ):
        return moved.src[0]
    made = UOp(Ops.PERMUTE, value.dtype, (value,), order)
    return UOp(Ops.CONTIGUOUS, value.dtype, (made,))
