"""Building loops: the body is written over stand-ins, leaves without memory, and closed over them.

Tensor scans and the gradients of loops, which are loops again, are both built here.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from tilegrad.base.dtype import DType, dtypes
from tilegrad.ir.args import BufferArg, LoopArg
from tilegrad.ir.movement import shaped
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import below
from tilegrad.ir.runs import runs_of
from tilegrad.ir.uop import UOp, prod, toposort

__all__ = ["Pair", "loop_of", "output_of", "stand_in", "strided_operands", "transposed"]

Pair = tuple[UOp, UOp]
"""A stand-in and its value."""

# Below the slots of all bodies.
_slots = itertools.count(-(1 << 40), -1)


def stand_in(dtype: DType, shape: tuple[int, ...], device: str) -> UOp:
    """A new leaf with the elements of `shape`."""
    return UOp(Ops.BUFFER, dtype, (), BufferArg(next(_slots), device, int(prod(shape))))


def loop_of(
    values: Sequence[UOp],
    carries: Sequence[Pair],
    stacks: Sequence[Pair],
    shared: Sequence[Pair],
    length: int,
    device: str,
    *,
    is_reversed: bool = False,
) -> UOp:
    """The LOOP whose body computes `values`, the next values of the carries first, from the
    stand-ins of the carries, of the rows of `stacks`, and of the values shared by all steps. Unused
    stacks and shared values are left out.
    """
    values, shared = _laid_out(values, shared, device)
    leaves = {node for node in toposort(values) if node.op is Ops.BUFFER}
    stacks = [pair for pair in stacks if pair[0] in leaves]
    shared = [pair for pair in shared if pair[0] in leaves]
    pairs = [*carries, *stacks, *shared]
    numbered = {
        leaf: leaf.replace(arg=BufferArg(-1 - number, device, leaf.arg.size))
        for number, (leaf, _) in enumerate(pairs)
    }
    body = UOp.sink(*values).substitute(numbered)
    sources = [_on(device, value) for _, value in (*carries, *stacks, *shared)]
    if not sources:
        # A loop needs a source to have a device.
        sources = [_on(device, UOp.const(dtypes.bool, False))]
    arg = LoopArg(body, length, len(carries), len(stacks), is_reversed)
    return UOp(Ops.LOOP, dtypes.void, tuple(sources), arg)


def _laid_out(
    values: Sequence[UOp], shared: Sequence[Pair], device: str
) -> tuple[list[UOp], list[Pair]]:
    """The values and the shared pairs, with new leaves for transposed operands of products."""
    known = dict(shared)
    pairs, mapping = list(shared), {}
    leaves: dict[tuple[UOp, tuple[int, ...]], UOp] = {}
    for factor, (leaf, order, moves) in strided_operands(
        values, {leaf: value.shape for leaf, value in shared}
    ).items():
        value = known[leaf]
        shape = tuple(value.shape[axis] for axis in order)
        if (leaf, order) not in leaves:
            leaves[leaf, order] = stand_in(value.dtype, shape, device)
            pairs.append((leaves[leaf, order], transposed(value, order)))
        back = tuple(order.index(axis) for axis in range(len(order)))
        made = shaped(leaves[leaf, order], shape)
        made = UOp(Ops.PERMUTE, made.dtype, (made,), back)
        # The leaf is flat; its first reshape may already give this shape.
        for move in moves[moves[0].op is Ops.RESHAPE and moves[0].arg == made.shape :]:
            made = UOp(move.op, move.dtype, (made,), move.arg)
        mapping[factor] = made
    return list(UOp.sink(*values).substitute(mapping).src), pairs


def output_of(loop: UOp, number: int) -> UOp:
    """Output `number` of `loop`."""
    return UOp(Ops.LOOP_OUTPUT, loop.arg.value(number).dtype, (loop,), number)


def _on(device: str, value: UOp) -> UOp:
    """`value`, on `device` if it is constant, as constants have no device."""
    return UOp(Ops.CONTIGUOUS, value.dtype, (value,), device) if value.is_constant else value


# The least number of consecutive results that is worth a vector.
_LEAST = 4

Order = tuple[int, ...]


def strided_operands(
    values: Sequence[UOp], shapes: Mapping[UOp, tuple[int, ...]]
) -> dict[UOp, tuple[UOp, Order, list[UOp]]]:
    """The factors of sums of products in `values` that read a leaf of `shapes` with a stride: each
    with the leaf, the order of its axes that makes the reads contiguous, and the movement ops above
    the leaf, innermost first.

    A loop transposes such a matrix once, before its first step.

    A product reads an operand best where consecutive elements belong to consecutive results: they
    form a vector, and so do the results. Where the last axis is summed instead, a step reads the
    operand with a stride. The loop then transposes the operand once, before its first step.

        before   SUM(h[n, k] * w[j, k], k)       in every step
        after    SUM(h[n, k] * t[k, j], k)       t = w transposed, in memory

    The gradient of that step by h sums over j, and so reads w in its own layout.
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
