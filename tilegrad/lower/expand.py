"""Unrolled axes that did not become vector lanes: a copy of each value for each iteration that it
depends on.

Each node is copied once per combination of the unrolled axes that it needs, so the work is
proportional to the size of the result. Copies of an index that is linear in those axes differ by a
constant: they are one sum and a constant each, in their simplest form, and only those are made that
an access or a condition needs.
"""

from __future__ import annotations

import itertools
from operator import mul

from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import UNROLLED, Ops
from tilegrad.ir.queries import loops_of, next_number, values_of
from tilegrad.ir.rules import moved_by, simplify, terms_of
from tilegrad.ir.uop import UOp

__all__ = ["unroll"]

# Ops that close unrolled axes, gather all copies, or define memory.
_SPECIAL = (Ops.BARRIER, Ops.SINK, Ops.REDUCE, Ops.END, Ops.DEFINE_LOCAL)
Point = tuple[int, ...]


def unroll(ast: UOp) -> UOp:
    """`ast` without UPCAST and UNROLL ranges.

    before   REDUCE(LOAD(a, k*2 + u), k, u)              u: unroll 0..2
    after    REDUCE(LOAD(a, k*2), LOAD(a, k*2 + 1), k)
    """
    nodes = ast.toposort()
    axes = sorted(
        (node for node in nodes if node.op is Ops.RANGE and node.axis in UNROLLED),
        key=lambda node: node.number,
    )
    if not axes:
        return ast
    rank = {axis: number for number, axis in enumerate(axes)}
    needs: dict[UOp, tuple[UOp, ...]] = {}
    made: dict[UOp, dict[Point, UOp]] = {}
    number = itertools.count(next_number(nodes, Ops.DEFINE_LOCAL))
    # Values that are read after an effect. An index among them stays as it is: its simplest form
    # would hold a second copy of the effect, and of the loops around it.
    ordered: set[UOp] = set()
    for node in nodes:
        if node in rank:
            needs[node] = (node,)
            made[node] = {
                (value,): UOp.const(dtypes.index, value) for value in range(node.src[0].arg)
            }
            continue
        own = _needed(node, needs, rank)
        needs[node] = own
        if node.op is Ops.AFTER or not ordered.isdisjoint(node.src):
            ordered.add(node)
        copies: dict[Point, UOp] = {}
        if own and node.op not in _SPECIAL:
            steps = None if node in ordered else _steps(node, own, needs)
            if steps is None:
                made[node] = _copies(node, own, needs, made)
            else:
                made[node] = _LinearCopies(node, own, steps)
            continue
        for point in itertools.product(*(range(axis.extent.arg) for axis in own)):
            copies[point] = _copy(node, dict(zip(own, point, strict=True)), needs, made, number)
        made[node] = copies
    return made[ast][()]


class _LinearCopies(dict[Point, UOp]):
    """The copies of an index by point, each made when it is asked for.

    Attributes:
        steps: by how much the index grows with each of its unrolled axes.
    """

    def __init__(self, index: UOp, axes: tuple[UOp, ...], steps: tuple[int, ...]):
        super().__init__()
        self.index, self.axes, self.steps = index, axes, steps
        self.first: UOp | None = None

    def __missing__(self, point: Point) -> UOp:
        if self.first is None:
            zero = UOp.const(dtypes.index, 0)
            self.first = simplify(self.index, dict.fromkeys(self.axes, zero))
        copy = moved_by(self.first, sum(map(mul, self.steps, point)))
        self[point] = copy
        return copy


def _steps(
    node: UOp, own: tuple[UOp, ...], needs: dict[UOp, tuple[UOp, ...]]
) -> tuple[int, ...] | None:
    """The steps of an index along its unrolled axes `own`; None where it is not linear in them."""
    found = terms_of(node) if node.dtype is dtypes.index else None
    if found is None or any(needs.get(term) != () for term in found[0] if term not in own):
        return None
    return tuple([found[0].get(axis, 0) for axis in own])


def _copies(
    node: UOp,
    own: tuple[UOp, ...],
    needs: dict[UOp, tuple[UOp, ...]],
    made: dict[UOp, dict[Point, UOp]],
) -> dict[Point, UOp]:
    """The copies of `node`, which depends on its sources alone, by point."""
    rank = {axis: number for number, axis in enumerate(own)}
    # Per source: its copies, and the components of a point that select one of them.
    sources = [(made[source], tuple([rank[axis] for axis in needs[source]])) for source in node.src]
    op, dtype, arg = node.op, node.dtype, node.arg
    if op is Ops.PREFIX and not set(own).isdisjoint(node.src):
        return _prefixes(node, own, needs, made)
    return {
        point: UOp(
            op,
            dtype,
            tuple([copies[tuple([point[i] for i in numbers])] for copies, numbers in sources]),
            arg,
        )
        for point in itertools.product(*(range(axis.extent.arg) for axis in own))
    }


def _prefixes(
    node: UOp,
    own: tuple[UOp, ...],
    needs: dict[UOp, tuple[UOp, ...]],
    made: dict[UOp, dict[Point, UOp]],
) -> dict[Point, UOp]:
    """The copies of a prefix over unrolled axes: each has the values of all iterations as sources,
    and the number of those that it includes.
    """
    function, count = node.arg
    scanned = [axis for axis in node.src if axis in own and axis.op is Ops.RANGE]
    values = values_of(node)
    loops = [axis for axis in node.src if axis.op is Ops.RANGE and axis not in scanned]
    free = [axis for axis in own if axis not in scanned]
    steps = list(itertools.product(*(range(axis.extent.arg) for axis in scanned)))
    copies: dict[Point, UOp] = {}
    for point in itertools.product(*(range(axis.extent.arg) for axis in free)):
        fixed = dict(zip(free, point, strict=True))
        found: list[UOp] = []
        for step in steps:
            where = fixed | dict(zip(scanned, step, strict=True))
            found += [made[value][tuple(where[axis] for axis in needs[value])] for value in values]
        for number, step in enumerate(steps):
            where = fixed | dict(zip(scanned, step, strict=True))
            arg = (function, number * len(values) + count)
            copies[tuple(where[axis] for axis in own)] = UOp(
                Ops.PREFIX, node.dtype, (*found, *loops), arg
            )
    return copies


def _needed(node: UOp, needs: dict[UOp, tuple[UOp, ...]], rank: dict[UOp, int]) -> tuple[UOp, ...]:
    """The unrolled axes on which the node's value depends."""
    found = {axis for source in node.src for axis in needs[source]}
    if node.op is Ops.SINK and not node.dtype.lanes > 1:
        found = set() if node.arg is not None else found
    if node.op in (Ops.REDUCE, Ops.END):
        found -= set(node.src)
    if node.op is Ops.BARRIER:
        # A barrier waits for all copies of the effects before it: lanes meet once.
        found = set()
    return tuple(sorted(found, key=rank.__getitem__))


def _copy(
    node: UOp,
    point: dict[UOp, int],
    needs: dict[UOp, tuple[UOp, ...]],
    made: dict[UOp, dict[Point, UOp]],
    number: itertools.count[int],
) -> UOp:
    def at(source: UOp, extra: dict[UOp, int] | None = None) -> UOp:
        where = point if extra is None else {**point, **extra}
        return made[source][tuple(where[axis] for axis in needs[source])]

    op = node.op
    if op is Ops.BARRIER or (op is Ops.SINK and node.arg is not None):
        return node.replace(
            src=tuple(made[source][p] for source in node.src for p in sorted(made[source]))
        )
    if op in (Ops.REDUCE, Ops.END):
        unrolled = [loop for loop in loops_of(node) if loop.axis in UNROLLED]
        loops = tuple(
            at(source)
            for source in node.src[1:]
            if source.op is Ops.RANGE and source not in unrolled
        )
        values = values_of(node)
        combos = [
            dict(zip(unrolled, combo, strict=True))
            for combo in itertools.product(*(range(axis.extent.arg) for axis in unrolled))
        ]
        return node.replace(
            src=(*(at(value, combo) for value in values for combo in combos), *loops)
        )
    if op is Ops.DEFINE_LOCAL and needs[node]:
        first = all(value == 0 for value in point.values())
        return node.replace(
            src=tuple(source for source in node.src if source not in point),
            arg=node.arg if first else next(number),
        )
    src = tuple(at(source) for source in node.src)
    return node.over(src)
