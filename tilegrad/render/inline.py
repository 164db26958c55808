"""Questions about a program that renderers share. The main one: which values are written where
they are used, instead of getting a name of their own.

A value with one use is written there, so that text reads as a person would write it. Two things
forbid it. MAX mentions its operands twice, so nesting it would double the text at each level. And
an expression that reads an accumulator must not move past an assignment that changes it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

from tilegrad.base.errors import CompileError
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import below
from tilegrad.ir.uop import UOp, toposort

__all__ = ["block_lanes", "inlined", "loads_inside", "real", "refuse_shared", "value_of"]

_ALU = frozenset(op for op in Ops if op.is_alu)
_MOVABLE = (_ALU - {Ops.MAX}) | {Ops.CAST, Ops.BITCAST, Ops.VECTORIZE}
_ORDER_ONLY = frozenset({Ops.AFTER, Ops.BARRIER, Ops.SINK, Ops.END, Ops.DEFINE_LOCAL})


def real(node: UOp) -> UOp:
    """The memory or variable behind `node`: AFTER and ASSIGN are their first source."""
    return below(node, (Ops.AFTER, Ops.ASSIGN))


def value_of(node: UOp) -> UOp:
    """The node whose text stands for `node`: AFTER of an accumulator reads it where it stands."""
    source = real(node)
    return node if node.op is Ops.AFTER and source.op is Ops.DEFINE_ACC else source


def block_lanes(program: Sequence[UOp]) -> int:
    """The most lanes of a block of the launch."""
    return math.prod(
        node.vmax + 1 for node in program if node.op is Ops.SPECIAL and node.name.startswith("lidx")
    )


def refuse_shared(store: UOp, program: Sequence[UOp], who: str) -> None:
    """Raise CompileError if several lanes of `program` store by an operation at one address, which
    takes an atomic instruction; `who` cannot do that.
    """
    dtype = store.value.dtype.scalar
    own = toposort([store.index, *store.src[3:]])
    for node in program:
        if node.op is Ops.SPECIAL and node not in own and node.vmax > 0:
            raise CompileError(
                f"{who} cannot store by {store.arg.name} of {dtype.name}",
                dtype=dtype,
                lanes=f"all of {node.name} meet",
            )


def _operands(node: UOp) -> tuple[UOp, ...]:
    """The sources whose values `node` reads; the others only give an order."""
    if node.op is Ops.AFTER and value_of(node) is node:
        return (real(node),)
    if node.op in _ORDER_ONLY:
        return ()
    if node.op is Ops.DEFINE_ACC or node.op is Ops.RANGE:
        return tuple(map(value_of, node.src[:1]))
    if node.op is Ops.ASSIGN:
        return (value_of(node.src[1]),)
    return tuple(map(value_of, node.src))


def inlined(program: Sequence[UOp], expand: bool = False) -> set[UOp]:
    """The nodes of `program` to render inline.

    With `expand` only picked lanes and reads of accumulators are: every other value gets a name.
    """
    at = {node: position for position, node in enumerate(program)}
    users: dict[UOp, list[UOp]] = {node: [] for node in program}
    assigned: dict[UOp, list[int]] = {}
    for position, node in enumerate(program):
        for source in _operands(node):
            users[source].append(node)
        if node.op is Ops.ASSIGN:
            assigned.setdefault(real(node), []).append(position)

    found = {node for node in program if _may_move(node, len(users[node]), expand)}
    # Where the text of a value stands in the end: at its last use, or where that use is written.
    latest: dict[UOp, int] = {}
    for node in reversed(program):
        uses = (latest[user] if user in found else at[user] for user in users[node])
        latest[node] = max(uses, default=at[node])

    loops = _Loops(program)
    reads: dict[UOp, frozenset[UOp]] = {}
    for node in program:
        if node not in found:
            continue
        sources = _operands(node)
        direct = frozenset(source for source in sources if source.op is Ops.DEFINE_ACC)
        reads[node] = direct.union(*(reads.get(source, frozenset()) for source in sources))
        if reads[node]:
            last = loops.reached(at[node], latest[node])
            changes = (assigned.get(accumulator, []) for accumulator in reads[node])
            if any(_any_between(positions, at[node], last) for positions in changes):
                found.discard(node)
                del reads[node]
    return found


def _may_move(node: UOp, uses: int, expand: bool) -> bool:
    if node.op is Ops.GEP or (node.op is Ops.AFTER and value_of(node) is node):
        return True
    return not expand and node.op in _MOVABLE and uses == 1


class _Loops:
    """Which loops are open at each position of a program, and where each ends."""

    def __init__(self, program: Sequence[UOp]):
        self._open: list[tuple[int, ...]] = []
        self._end: dict[int, int] = {}
        now: tuple[int, ...] = ()
        for position, node in enumerate(program):
            if node.op is Ops.END:
                left = len(now) - len(node.src)
                self._end |= dict.fromkeys(now[left:], position)
                now = now[:left]
            self._open.append(now)
            if node.op is Ops.RANGE:
                now = (*now, position)

    def reached(self, start: int, latest: int) -> int:
        """The last position that may run between `start` and a visit of `latest`.

        That is `latest` itself, or the foot of a loop around it that `start` is outside of.
        """
        entered = next((head for head in self._open[latest] if head > start), None)
        return latest if entered is None else self._end.get(entered, len(self._open))


def _any_between(positions: list[int], low: int, high: int) -> bool:
    """Whether one of the ascending `positions` lies strictly between."""
    after = bisect_right(positions, low)
    return after < len(positions) and positions[after] < high


def loads_inside(program: Sequence[UOp]) -> set[UOp]:
    """Loads that only a FRAGMENT or COPY_ASYNC has, whose instruction does them."""
    operand_of = {Ops.FRAGMENT: 0, Ops.COPY_ASYNC: 2}
    inside = {node.src[operand_of[node.op]] for node in program if node.op in operand_of}
    return inside - {
        source
        for node in program
        for number, source in enumerate(node.src)
        if operand_of.get(node.op) != number
    }
