"""Values put together from equal pieces side by side, each computed by itself.

The gradient of what was cut into gates, heads or halves is one value, every element of which is
that of one piece. As one expression it holds the work of all of them behind gates, and lanes do all
of it. Written out, a turn makes one element of each piece: the gates are gone, and what the pieces
have in common is computed once. So are the parts of a concatenation copied.

    before   STORE(a, i, (i < 64).where(f(x[i]), 0) + (i < 64).where(0, g(x[i - 64])))    i: 0..128
    after    STORE(a, j, f(x[j])), STORE(a, j + 64, g(x[j]))                              j: 0..64
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.ranges import replace_ranges
from tilegrad.ir.rules import terms_of
from tilegrad.ir.uop import UOp, toposort

__all__ = ["split_pieces"]

# What runs over ranges that are not those of the store.
_NESTS = (Ops.REDUCE, Ops.PREFIX, Ops.END, Ops.DEFINE_LOCAL)
# A turn of more stores would ask for more registers than there are.
_MOST = 8
# Pieces of less arithmetic together are not worth more stores than one.
_WORTH_SPLITTING = 16


def split_pieces(ast: UOp, order: Sequence[UOp]) -> tuple[UOp, list[UOp]]:
    """An elementwise kernel that writes equal pieces with one store for each, where that saves
    arithmetic or leaves no load behind a gate; `order` are the output ranges.
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
        borders = _borders(loop, nodes)
        size = math.gcd(*borders, int(loop.src[0].vmax))
        if not borders or int(loop.src[0].vmax) // size > _MOST:
            continue
        number = 1 + max(node.arg[0] for node in nodes if node.op is Ops.RANGE)
        inner = UOp.range(size, number, loop.arg[1])
        count = int(loop.src[0].arg) // size
        pieces = [
            replace_ranges(ast, {loop: (inner + place * size, (inner,))}).src[0]
            for place in range(count)
        ]
        saves_work = work >= _WORTH_SPLITTING and _work(pieces) * 2 <= work * count
        # Each border parts two pieces: what is only padded is no piece of several.
        is_even = is_gated and len(borders) == count - 1
        if saves_work or (is_even and not _has_gates(pieces)):
            return UOp.sink(*pieces, arg=ast.arg), [
                inner if part is loop else part for part in order
            ]
    return ast, list(order)


def _borders(loop: UOp, nodes: Iterable[UOp]) -> set[int]:
    """Where comparisons of `loop` with numbers change."""
    borders: set[int] = set()
    if loop.src[0].op is not Ops.CONST or loop.arg[1] is not Axis.LOOP:
        return borders
    extent = int(loop.src[0].arg)
    for node in nodes:
        if node.op is Ops.CMPLT and node.src[1].op is Ops.CONST and loop in node.src[0].ranges:
            found = terms_of(node.src[0])
            if found is None or list(found[0]) != [loop] or abs(found[0][loop]) != 1:
                continue
            scale, rest = found[0][loop], node.src[1].arg - found[1]
            border = rest if scale == 1 else 1 - rest
            if 0 < border < extent:
                borders.add(border)
    return borders


def _has_gates(effects: Sequence[UOp]) -> bool:
    return any(node.op is Ops.LOAD and len(node.src) == 4 for node in toposort(effects))


def _work(effects: Sequence[UOp]) -> int:
    """How much arithmetic on values there is, a node of several uses once."""
    return sum(
        node.op.is_alu and node.dtype.scalar is not dtypes.index and node.dtype is not dtypes.bool
        for node in toposort(effects)
    )
