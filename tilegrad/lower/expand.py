"""Written-out axes that did not become lanes are written out: a copy of each value for each
iteration it depends on.

Each node is made once per combination of the written-out axes that it needs, never for others, so
the work equals the size of the result.
"""

from __future__ import annotations

import itertools

from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.uop import UOp

__all__ = ["write_out"]

_WRITTEN = (Axis.UPCAST, Axis.UNROLL)
# What closes written-out axes, gathers all copies, or is memory.
_SPECIAL = (Ops.BARRIER, Ops.SINK, Ops.REDUCE, Ops.END, Ops.DEFINE_LOCAL)
Place = tuple[int, ...]


def write_out(ast: UOp) -> UOp:
    """`ast` without UPCAST and UNROLL ranges.

    before   REDUCE(LOAD(a, k*2 + u), k, u)              u: unroll 0..2
    after    REDUCE(LOAD(a, k*2), LOAD(a, k*2 + 1), k)
    """
    nodes = ast.toposort()
    axes = sorted(
        (node for node in nodes if node.op is Ops.RANGE and node.arg[1] in _WRITTEN),
        key=lambda node: node.arg[0],
    )
    if not axes:
        return ast
    rank = {axis: number for number, axis in enumerate(axes)}
    needs: dict[UOp, tuple[UOp, ...]] = {}
    made: dict[UOp, dict[Place, UOp]] = {}
    number = itertools.count(
        1 + max((node.arg for node in nodes if node.op is Ops.DEFINE_LOCAL), default=-1)
    )
    for node in nodes:
        if node in rank:
            needs[node] = (node,)
            made[node] = {
                (value,): UOp.const(dtypes.index, value) for value in range(node.src[0].arg)
            }
            continue
        own = _needed(node, needs, rank)
        needs[node] = own
        copies: dict[Place, UOp] = {}
        if own and node.op not in _SPECIAL:
            made[node] = _copies(node, own, needs, made)
            continue
        for place in itertools.product(*(range(axis.src[0].arg) for axis in own)):
            copies[place] = _copy(node, dict(zip(own, place, strict=True)), needs, made, number)
        made[node] = copies
    return made[ast][()]


def _copies(
    node: UOp,
    own: tuple[UOp, ...],
    needs: dict[UOp, tuple[UOp, ...]],
    made: dict[UOp, dict[Place, UOp]],
) -> dict[Place, UOp]:
    """A copy of `node`, which is a value of its sources alone, for each place."""
    rank = {axis: number for number, axis in enumerate(own)}
    # Per source: its copies, and where in a place theirs is.
    sources = [(made[source], tuple([rank[axis] for axis in needs[source]])) for source in node.src]
    op, dtype, arg = node.op, node.dtype, node.arg
    if op is Ops.PREFIX and not set(own).isdisjoint(node.src):
        return _prefixes(node, own, needs, made)
    return {
        place: UOp(
            op,
            dtype,
            tuple([copies[tuple([place[i] for i in numbers])] for copies, numbers in sources]),
            arg,
        )
        for place in itertools.product(*(range(axis.src[0].arg) for axis in own))
    }


def _prefixes(
    node: UOp,
    own: tuple[UOp, ...],
    needs: dict[UOp, tuple[UOp, ...]],
    made: dict[UOp, dict[Place, UOp]],
) -> dict[Place, UOp]:
    """The copies of a prefix over written-out axes: each names the values of all, and how many of
    them it folds.
    """
    function, count = node.arg
    along = [axis for axis in node.src if axis in own and axis.op is Ops.RANGE]
    values = [source for source in node.src if source.op is not Ops.RANGE]
    loops = [axis for axis in node.src if axis.op is Ops.RANGE and axis not in along]
    free = [axis for axis in own if axis not in along]
    turns = list(itertools.product(*(range(axis.src[0].arg) for axis in along)))
    copies: dict[Place, UOp] = {}
    for place in itertools.product(*(range(axis.src[0].arg) for axis in free)):
        where = dict(zip(free, place, strict=True))
        found: list[UOp] = []
        for turn in turns:
            at = where | dict(zip(along, turn, strict=True))
            found += [made[value][tuple(at[axis] for axis in needs[value])] for value in values]
        for number, turn in enumerate(turns):
            at = where | dict(zip(along, turn, strict=True))
            arg = (function, number * len(values) + count)
            copies[tuple(at[axis] for axis in own)] = UOp(
                Ops.PREFIX, node.dtype, (*found, *loops), arg
            )
    return copies


def _needed(node: UOp, needs: dict[UOp, tuple[UOp, ...]], rank: dict[UOp, int]) -> tuple[UOp, ...]:
    """The written-out axes on which the node's value depends."""
    found = {axis for source in node.src for axis in needs[source]}
    if node.op is Ops.SINK and not node.dtype.lanes > 1:
        found = set() if node.arg is not None else found
    if node.op in (Ops.REDUCE, Ops.END):
        found -= set(node.src)
    if node.op is Ops.BARRIER:
        # All copies of what comes before it: lanes meet once.
        found = set()
    return tuple(sorted(found, key=rank.__getitem__))


def _copy(
    node: UOp,
    place: dict[UOp, int],
    needs: dict[UOp, tuple[UOp, ...]],
    made: dict[UOp, dict[Place, UOp]],
    number: itertools.count[int],
) -> UOp:
    def at(source: UOp, extra: dict[UOp, int] | None = None) -> UOp:
        where = place if extra is None else {**place, **extra}
        return made[source][tuple(where[axis] for axis in needs[source])]

    op = node.op
    if op is Ops.BARRIER or (op is Ops.SINK and node.arg is not None):
        return node.replace(
            src=tuple(made[source][p] for source in node.src for p in sorted(made[source]))
        )
    if op in (Ops.REDUCE, Ops.END):
        folded = [axis for axis in node.src if axis.op is Ops.RANGE and axis.arg[1] in _WRITTEN]
        kept = tuple(
            at(source) for source in node.src[1:] if source.op is Ops.RANGE and source not in folded
        )
        values = [source for source in node.src if source.op is not Ops.RANGE]
        combos = [
            dict(zip(folded, combo, strict=True))
            for combo in itertools.product(*(range(axis.src[0].arg) for axis in folded))
        ]
        return node.replace(
            src=(*(at(value, combo) for value in values for combo in combos), *kept)
        )
    if op is Ops.DEFINE_LOCAL and needs[node]:
        first = all(value == 0 for value in place.values())
        return node.replace(
            src=tuple(part for part in node.src if part not in place),
            arg=node.arg if first else next(number),
        )
    src = tuple(at(source) for source in node.src)
    return node if src == node.src else UOp(op, node.dtype, src, node.arg)
