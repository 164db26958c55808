"""Building loops: a step is written over stand-ins, leaves without memory, and closed over them.

The scan of the tensors and the gradient of a loop, which is a loop again, are both made here.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tilegrad.base.dtype import DType, dtypes
from tilegrad.ir.args import BufferArg, LoopArg
from tilegrad.ir.op import Ops
from tilegrad.ir.operands import read_across, turned
from tilegrad.ir.uop import UOp, prod, toposort

__all__ = ["Pair", "loop_of", "part_of", "shaped", "stand_in"]

Pair = tuple[UOp, UOp]
"""A stand-in, and the value that it stands for."""

# Below those of all bodies.
_slots = itertools.count(-(1 << 40), -1)


def stand_in(dtype: DType, shape: tuple[int, ...], device: str) -> UOp:
    """A leaf unlike any other, of as many elements as `shape` has."""
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
    """The LOOP whose step makes `values`, first the next ones of the carries, of what stands for
    these, for the rows of `stacks`, and for what all steps share. What no value needs is left out.
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
        # Something has to say on which device it is.
        sources = [_on(device, UOp.const(dtypes.bool, False))]
    arg = LoopArg(body, length, len(carries), len(stacks), is_reversed)
    return UOp(Ops.LOOP, dtypes.void, tuple(sources), arg)


def _laid_out(
    values: Sequence[UOp], shared: Sequence[Pair], device: str
) -> tuple[list[UOp], list[Pair]]:
    """The values, and what all steps share, with further leaves for what products read across."""
    known = dict(shared)
    pairs, mapping = list(shared), {}
    leaves: dict[tuple[UOp, tuple[int, ...]], UOp] = {}
    for factor, (leaf, order, moves) in read_across(
        values, {leaf: value.shape for leaf, value in shared}
    ).items():
        value = known[leaf]
        shape = tuple(value.shape[axis] for axis in order)
        if (leaf, order) not in leaves:
            leaves[leaf, order] = stand_in(value.dtype, shape, device)
            pairs.append((leaves[leaf, order], turned(value, order)))
        back = tuple(order.index(axis) for axis in range(len(order)))
        made = shaped(leaves[leaf, order], shape)
        made = UOp(Ops.PERMUTE, made.dtype, (made,), back)
        # The leaf is flat; its first reshape may be to the shape that this has.
        for move in moves[moves[0].op is Ops.RESHAPE and moves[0].arg == made.shape :]:
            made = UOp(move.op, move.dtype, (made,), move.arg)
        mapping[factor] = made
    return list(UOp.sink(*values).substitute(mapping).src), pairs


def part_of(loop: UOp, number: int) -> UOp:
    """What `loop` gives under `number`."""
    return UOp(Ops.PART, loop.arg.value(number).dtype, (loop,), number)


def shaped(node: UOp, shape: tuple[int, ...]) -> UOp:
    return node if node.shape == shape else UOp(Ops.RESHAPE, node.dtype, (node,), shape)


def _on(device: str, value: UOp) -> UOp:
    """`value`, on `device` if it is made of constants, which are on none."""
    return UOp(Ops.CONTIGUOUS, value.dtype, (value,), device) if value.is_constant else value
