"""Slices of rows that a whole block hides, on targets with blocks: causal attention ends with the
slice of the block's last row, which saves half of the work over all blocks.

A block goes over the slices of its rows in one loop (optimize.shared_slices). A slice whose scores
are minus infinity for all rows of the block adds nothing: its largest score is minus infinity, its
exponentials are zero, and so are their sums and products, whether they go through shared memory,
lanes or matrix units. All lanes of a block leave the loop together.

    before   p: 0..32 { x = WHERE(b*64 + i < p*32 + j, -inf, ...); ... }       b: block, i: 0..64
    after    p: 0..(b*64 + 63)//32 + 1
"""

from __future__ import annotations

import math

from tilegrad.base.dtype import dtypes
from tilegrad.ir.neutral import Neutral
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.ranges import replace_ranges
from tilegrad.ir.rules import simplify, terms_of
from tilegrad.ir.uop import UOp

__all__ = ["skip_slices"]

# Ops that combine values of several iterations.
_GATHERS = (Ops.REDUCE, Ops.PREFIX)


def skip_slices(ast: UOp) -> UOp:
    """`ast` with loops over slices that end where a condition hides the rest."""
    nodes = ast.toposort()
    sums = [
        node
        for node in nodes
        if node.op is Ops.REDUCE and any(each.op is Ops.RESCALED for each in node.src)
    ]
    loops = {axis for node in sums for axis in node.src[1:]}
    if len(loops) != 1:
        return ast
    (loop,) = loops
    hidden: dict[UOp, UOp] = {}
    for node in nodes:
        if node.op is Ops.WHERE and node.src[1].op is Ops.CONST and node.src[1].arg == -math.inf:
            if (end := _end(node.src[0], loop)) is not None:
                hidden[node] = end
    if not hidden or not _is_uniform(loop, hidden):
        return ast
    neutral = Neutral(hidden)
    users = [node for node in nodes if loop in node.src[1:]]
    if not all(_adds_nothing(node, neutral) for node in users if node.op in _GATHERS):
        return ast
    last = UOp.const(dtypes.index, 0)
    for end in dict.fromkeys(hidden.values()):
        last = last.maximum(end)
    short = loop.replace(src=(simplify(last.minimum(loop.extent)),))
    return replace_ranges(ast, {loop: (short, (short,))})


def _adds_nothing(node: UOp, neutral: Neutral) -> bool:
    """Whether a reduction over slices, or a scan along them, is the same without hidden ones."""
    value = node.src[0]
    if node.op is Ops.PREFIX:
        return node.combine is Ops.MAX and neutral.is_always(value, -math.inf)
    return value.op is Ops.RESCALED and neutral.is_always(value.src[0], 0.0)


def _is_uniform(loop: UOp, hidden: dict[UOp, UOp]) -> bool:
    return loop.extent.op is Ops.CONST and all(
        axis.axis is Axis.GLOBAL for end in hidden.values() for axis in end.ranges
    )


def _end(condition: UOp, loop: UOp) -> UOp | None:
    """One past the last iteration of `loop` in which `condition` is false for some lane of a block;
    None where that is not known.
    """
    if condition.op is not Ops.CMPLT or condition.src[0].dtype is not dtypes.index:
        return None
    terms = terms_of(simplify(condition.src[0] - condition.src[1]))
    if terms is None or terms[0].get(loop, 0) >= 0:
        return None
    most = UOp.const(dtypes.index, terms[1])
    for factor, scale in terms[0].items():
        if factor is loop:
            continue
        if any(axis.axis is not Axis.GLOBAL for axis in factor.ranges):
            # The lane, or the value of a lane, that sees longest.
            most = most + max(scale * factor.vmin, scale * factor.vmax)
        else:
            most = most + factor * scale
    return simplify((most // -terms[0][loop] + 1).maximum(1))
