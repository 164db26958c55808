"""Concatenations of equal slices, each computed by itself.

The gradient of a value that was cut into gates, heads or halves is a concatenation: each element is
that of one slice. One expression for all elements holds the work of all slices behind gates, and
lanes do all of it. Unrolled, an iteration makes one element of each slice: there are no gates, and
common values of slices are computed once. Slices that are only copied are stored the same way.

    before   STORE(a, i, (i < 64).where(f(x[i]), 0) + (i < 64).where(0, g(x[i - 64])))    i: 0..128
    after    STORE(a, j, f(x[j])), STORE(a, j + 64, g(x[j]))                              j: 0..64
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import next_number
from tilegrad.ir.ranges import replace_ranges
from tilegrad.ir.rules import terms_of
from tilegrad.ir.uop import UOp, toposort

__all__ = ["split_concatenation"]

# Ops with ranges that are not those of the store.
_NESTS = (Ops.REDUCE, Ops.PREFIX, Ops.END, Ops.DEFINE_LOCAL)
# Tuning, worth shown by `bench/rows.py`, concatenations.
# Arithmetic operations of all slices together, below which one store is enough.
_WORTH_SPLITTING = 16

# Limits of compile time.
# Stores of one iteration: more would need more registers than there are.
_MOST = 8


def split_concatenation(ast: UOp, order: Sequence[UOp]) -> tuple[UOp, list[UOp]]:
    """Split an elementwise kernel of a concatenation: one store for each of its equal slices. Done
    where that saves arithmetic or leaves no gated load; `order` has the output ranges.
    """
    if len(ast.src) != 1 or ast.src[0].op is not Ops.STORE or len(ast.src[0].src) != 3:
        return ast, list(order)
    nodes = ast.toposort()
    if any(node.op in _NESTS for node in nodes):
        return ast, list(order)
    work = _work([ast])
    is_gated = _has_gates([ast])
    if work < _WORTH_SPLITTING and not is_gated:
        return ast, list(order)
    for loop in order:
        edges = _edges(loop, nodes)
        size = math.gcd(*edges, int(loop.extent.vmax))
        if not edges or int(loop.extent.vmax) // size > _MOST:
            continue
        number = next_number(nodes)
        inner = UOp.range(size, number, loop.axis)
        count = int(loop.extent.arg) // size
        slices = [
            replace_ranges(ast, {loop: (inner + position * size, (inner,))}).src[0]
            for position in range(count)
        ]
        saves_work = work >= _WORTH_SPLITTING and _work(slices) * 2 <= work * count
        # Each edge lies between two slices: padding alone is no concatenation.
        is_even = is_gated and len(edges) == count - 1
        if saves_work or (is_even and not _has_gates(slices)):
            return UOp.sink(*slices, arg=ast.arg), [
                inner if each is loop else each for each in order
            ]
    return ast, list(order)


def _edges(loop: UOp, nodes: Iterable[UOp]) -> set[int]:
    """Positions at which comparisons of `loop` with numbers change."""
    edges: set[int] = set()
    if loop.extent.op is not Ops.CONST or loop.axis is not Axis.LOOP:
        return edges
    extent = int(loop.extent.arg)
    for node in nodes:
        if node.op is Ops.CMPLT and node.src[1].op is Ops.CONST and loop in node.src[0].ranges:
            found = terms_of(node.src[0])
            if found is None or list(found[0]) != [loop] or abs(found[0][loop]) != 1:
                continue
            scale, rest = found[0][loop], node.src[1].arg - found[1]
            edge = rest if scale == 1 else 1 - rest
            if 0 < edge < extent:
                edges.add(edge)
    return edges


def _has_gates(effects: Sequence[UOp]) -> bool:
    return any(node.op is Ops.LOAD and node.is_gated for node in toposort(effects))


def _work(effects: Sequence[UOp]) -> int:
    """Number of arithmetic nodes below the values; a node of several users counts once."""
    return sum(
        node.op.is_alu and node.dtype.scalar is not dtypes.index and node.dtype is not dtypes.bool
        for node in toposort(effects)
    )
