"""Matrix units that go on while lanes come to the next tile.

Where the iterations over tiles are unrolled (lower.unroll_tiles), units that work beside their
lanes were waited for in each of them, and had nothing to do until all lanes had met and gone on.
Now those of the next tile begin first, and then the ones before are waited for, behind which their
tile is filled again. After the last tile all are waited for.

    before   WAIT_TILE(0); BARRIER; COPY_TILE; acc = WAIT(WMMA(.., acc))
             WAIT_TILE(1); BARRIER; COPY_TILE; acc = WAIT(WMMA(.., acc))
    after    WAIT_TILE(0); BARRIER; COPY_TILE; x = WAIT(WMMA(.., acc), 1)
             WAIT_TILE(1); y = WAIT(WMMA(.., x), 1); BARRIER; COPY_TILE; acc = WAIT(y)

WAIT_TILE tells a lane that it may read a tile; the barrier only tells that no lane reads any more
the tile that is filled behind it. So this pass handles tiles that one lane alone copies.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tilegrad.ir.op import Ops
from tilegrad.ir.queries import memory_of
from tilegrad.ir.uop import UOp
from tilegrad.target import Target

__all__ = ["wait_behind"]

# Ops that overwrite the tile before; they come behind the barrier.
_FILLS = (Ops.BARRIER, Ops.ARRIVE, Ops.COPY_TILE)
_PURE = frozenset(
    {Ops.CONST, Ops.AFTER, Ops.LOAD, Ops.VECTORIZE, Ops.GEP, Ops.CAST, Ops.BITCAST, Ops.DESCRIPTOR}
)


def wait_behind(program: Sequence[UOp], target: Target) -> list[UOp]:
    """`program` in which matrix units of a tile begin before those of the last one are waited
    for.
    """
    program = list(program)
    if all(node.op is not Ops.COPY_TILE for node in program):
        return program
    waits = [at for at, node in enumerate(program) if _is_of_units(node)]
    runs: list[list[int]] = []
    for at in waits:
        if runs and _follows(program, runs[-1][-1], at):
            runs[-1].append(at)
        else:
            runs.append([at])
    for run in reversed(runs):
        if len(run) > 1:
            program = _behind(program, run)
    return program


def _is_of_units(node: UOp) -> bool:
    return node.op is Ops.WAIT and node.arg is None and bool(node.src) and _is_late(node.src[0])


def _is_late(node: UOp) -> bool:
    return node.op is Ops.WMMA and not node.arg.synchronous


def _follows(program: Sequence[UOp], first: int, last: int) -> bool:
    """Whether the units of two waits add to one accumulator, and the nodes between them may come in
    the other order.
    """
    wait, assigned, *between = program[first:last]
    if assigned.op is not Ops.ASSIGN or assigned.src[1] is not wait:
        return False
    found = [node.op for node in between if not (node.op.is_alu or node.op in _PURE)]
    if found.count(Ops.BARRIER) != 1 or Ops.WAIT_TILE not in found:
        return False
    if not {*found} <= {*_FILLS, Ops.WAIT_TILE, Ops.WMMA}:
        return False
    units = [node for node in between if node.op is Ops.WMMA]
    chained = [node.src[2] for node in units] == [assigned.src[0], *units[:-1]]
    return chained and program[last].src[0] is units[-1] and _are_copied(program, units)


def _are_copied(program: Sequence[UOp], units: Sequence[UOp]) -> bool:
    """Whether one lane copies all that units read."""
    read = {
        memory_of(operand.src[1])
        for node in units
        for operand in node.src[:2]
        if operand.op is Ops.DESCRIPTOR
    }
    by_lanes = {
        memory_of(node.src[0]) for node in program if node.op in (Ops.STORE, Ops.COPY_ASYNC)
    }
    return bool(read) and read.isdisjoint(by_lanes)


def _behind(program: list[UOp], run: Sequence[int]) -> list[UOp]:
    """The program with the waits at these positions, which follow each other, one group behind."""
    barriers = {memory_of(node.src[0]) for node in program if node.op is Ops.ARRIVE}
    made: dict[UOp, UOp] = {}
    written = dict.fromkeys(program[: run[0]])

    def write(node: UOp) -> None:
        src = tuple([made.get(source, source) for source in node.src])
        made[node] = node.over(src)
        written.setdefault(made[node])

    accumulator = program[run[0] + 1].src[0]
    wait = program[run[0]]
    behind = UOp(Ops.WAIT, wait.dtype, wait.src, 1)
    written.setdefault(behind)
    for first, last in itertools.pairwise(run):
        fills: list[UOp] = []
        (tile,) = [node for node in program[first:last] if node.op is Ops.WAIT_TILE]
        (barrier,) = [node for node in program[first:last] if node.op is Ops.BARRIER]
        # The first unit adds to the result of the ones before it.
        made[accumulator] = behind
        for node in program[first + 2 : last]:
            if node.op in _FILLS or (node.op is Ops.AFTER and memory_of(node) in barriers):
                fills.append(node)
                continue
            if node.op is Ops.AFTER and barrier in node.src:
                made[barrier] = made[tile]
            write(node)
        made.pop(barrier, None)
        behind = UOp(Ops.WAIT, wait.dtype, (made[program[last].src[0]],), 1)
        written.setdefault(behind)
        made.pop(accumulator)
        for node in fills:
            write(node)
    final = UOp(Ops.WAIT, wait.dtype, (behind,))
    written.setdefault(final)
    made[program[run[-1]]] = final
    for at in run[:-1]:
        # Only the last unit reads the accumulators assigned on the way.
        made[program[at + 1]] = final
    for node in program[run[-1] + 1 :]:
        write(node)
    return list(written)
