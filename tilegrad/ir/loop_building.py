"""Building loops: the body is written over stand-ins, leaves without memory, and closed over them.

Tensor scans and the gradients of loops, which are loops again, are both built here.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tilegrad.base.dtype import DType, dtypes
from tilegrad.ir.args import BufferArg, LoopArg
from tilegrad.ir.movement import shaped
from tilegrad.ir.op import Ops
from tilegrad.ir.operands import strided_operands, transposed
from tilegrad.ir.uop import UOp, prod, toposort

__all__ = ["Pair", "loop_of", "output_of", "stand_in"]

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
