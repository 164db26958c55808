"""Which values are written where they are used, instead of getting a name of their own.

A value with one use is written there, so that text reads as a person would write it. Two things
forbid it. MAX mentions its operands twice, so nesting it would double the text at each level. And
an expression that reads an accumulator must not move past an assignment to it, nor into or out of a
loop.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

__all__ = ["inlined", "real"]

_ALU = frozenset(op for op in Ops if op.is_alu)
_MOVABLE = (_ALU - {Ops.MAX}) | {Ops.CAST, Ops.BITCAST, Ops.VECTORIZE}
_ORDER_ONLY = frozenset({Ops.AFTER, Ops.BARRIER, Ops.SINK, Ops.END})
_LOOP = frozenset({Ops.RANGE, Ops.END})


def real(node: UOp) -> UOp:
    """The node whose text stands for `node`: AFTER and ASSIGN are their first source."""
    while node.op is Ops.AFTER or node.op is Ops.ASSIGN:
        node = node.src[0]
    return node


def _operands(node: UOp) -> tuple[UOp, ...]:
    """The sources whose values `node` reads; the others only say what comes first."""
    if node.op in _ORDER_ONLY:
        return ()
    if node.op is Ops.DEFINE_ACC or node.op is Ops.RANGE:
        return tuple(map(real, node.src[:1]))
    if node.op is Ops.ASSIGN:
        return (real(node.src[1]),)
    return () if node.op is Ops.DEFINE_LOCAL else tuple(map(real, node.src))


def inlined(program: Sequence[UOp], expand: bool = False) -> set[UOp]:
    """The nodes of `program` to write in place. With `expand` only picked lanes are: every value
    gets a name.
    """
    at = {node: position for position, node in enumerate(program)}
    users: dict[UOp, list[UOp]] = {node: [] for node in program}
    loops: list[int] = []
    assigned: dict[UOp, list[int]] = {}
    for position, node in enumerate(program):
        for source in _operands(node):
            users[source].append(node)
        if node.op in _LOOP:
            loops.append(position)
        elif node.op is Ops.ASSIGN:
            assigned.setdefault(real(node), []).append(position)

    found = {
        node
        for node in program
        if node.op is Ops.GEP or (not expand and node.op in _MOVABLE and len(users[node]) == 1)
    }
    # Where the text of a value stands in the end: at its last use, or where that use is written.
    place: dict[UOp, int] = {}
    for node in reversed(program):
        uses = (place[user] if user in found else at[user] for user in users[node])
        place[node] = max(uses, default=at[node])

    reads: dict[UOp, frozenset[UOp]] = {}
    for node in program:
        if node not in found:
            continue
        sources = _operands(node)
        direct = frozenset(source for source in sources if source.op is Ops.DEFINE_ACC)
        reads[node] = direct.union(*(reads.get(source, frozenset()) for source in sources))
        if reads[node]:
            events = [loops, *(assigned.get(accumulator, []) for accumulator in reads[node])]
            if any(_any_between(positions, at[node], place[node]) for positions in events):
                found.discard(node)
                del reads[node]
    return found


def _any_between(positions: list[int], low: int, high: int) -> bool:
    """Whether one of the ascending `positions` lies strictly between."""
    after = bisect_right(positions, low)
    return after < len(positions) and positions[after] < high
