"""Slices of rows that a whole block hides, on targets with blocks: causal attention ends with the
slice of the block's last row, which saves half of the work over all blocks.

A block goes over the slices of its rows in one loop (optimize.shared_slices). Where every score of
a slice is minus infinity for all rows of the block, what the slice adds is nothing: its largest
score is minus infinity, its exponentials are zero, and so are their sums and products, whichever
way they take through shared memory, lanes and matrix units. All lanes of a block leave the loop
together.

    before   p: 0..32 { x = WHERE(b*64 + i < p*32 + j, -inf, ...); ... }       b: block, i: 0..64
    after    p: 0..(b*64 + 63)//32 + 1
"""

from __future__ import annotations

import math

from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import memory_of
from tilegrad.ir.ranges import replace_ranges
from tilegrad.ir.rules import simplify, terms_of
from tilegrad.ir.uop import UOp

__all__ = ["skip_slices"]

# Ops that combine values of several iterations.
_GATHERS = (Ops.REDUCE, Ops.PREFIX)
# Ops whose value is that of one source.
_SAME = (Ops.CAST, Ops.GEP, Ops.SHUFFLE)


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
    prover = _Prover(hidden)
    users = [node for node in nodes if loop in node.src[1:]]
    if not all(_adds_nothing(node, prover) for node in users if node.op in _GATHERS):
        return ast
    last = UOp.const(dtypes.index, 0)
    for end in dict.fromkeys(hidden.values()):
        last = last.maximum(end)
    short = loop.replace(src=(simplify(last.minimum(loop.extent)),))
    return replace_ranges(ast, {loop: (short, (short,))})


def _adds_nothing(node: UOp, prover: _Prover) -> bool:
    """Whether a reduction over slices, or a scan along them, is the same without hidden ones."""
    value = node.src[0]
    if node.op is Ops.PREFIX:
        return node.combine is Ops.MAX and prover.is_always(value, -math.inf)
    return value.op is Ops.RESCALED and prover.is_always(value.src[0], 0.0)


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


class _Prover:
    """What is always zero, or minus infinity, where all of `hidden` are minus infinity."""

    def __init__(self, hidden: dict[UOp, UOp]):
        self.hidden = hidden
        self.known: dict[tuple[UOp, float], bool] = {}

    def is_always(self, root: UOp, nothing: float) -> bool:
        """Whether `root` is `nothing` for any value of the other operands."""
        for node in root.toposort():
            for each in (0.0, -math.inf):
                if (node, each) not in self.known:
                    self.known[node, each] = self._is(node, each)
        return self.known[root, nothing]

    def _all(self, nodes: tuple[UOp, ...] | list[UOp], nothing: float) -> bool:
        return all(self.known[node, nothing] for node in nodes)

    def _is(self, node: UOp, nothing: float) -> bool:
        src = node.src
        if node in self.hidden:
            return nothing == -math.inf
        if node.op is Ops.CONST:
            return bool(node.dtype.is_float and node.arg == nothing)
        if node.op in _SAME or node.op is Ops.REDUCE:
            is_fit = node.op in _SAME or node.arg is (Ops.MAX if nothing else Ops.ADD)
            return is_fit and node.dtype.is_float and self.known[src[0], nothing]
        if node.op is Ops.VECTORIZE:
            return self._all(src, nothing)
        if node.op is Ops.WHERE:
            return self._all(src[1:], nothing)
        if node.op is Ops.LOAD and src[0].op is Ops.AFTER:
            return self._is_stored(src[0], nothing)
        if nothing == 0:
            if node.op in (Ops.EXP, Ops.EXP2, Ops.EXP2_APPROX):
                return self.known[src[0], -math.inf]
            if node.op is Ops.WMMA:
                return any(self.known[each, 0.0] for each in src[:2]) and self.known[src[2], 0.0]
            if node.op is Ops.MUL:
                return any(self.known[each, 0.0] for each in src)
            return node.op is Ops.ADD and self._all(src, 0.0)
        if node.op is Ops.MUL:
            return self.known[src[0], nothing] and src[1].op is Ops.CONST and src[1].arg > 0
        if node.op is Ops.MAX:
            return self._all(src, nothing)
        return node.op is Ops.ADD and any(self.known[each, nothing] for each in src)

    def _is_stored(self, pointer: UOp, nothing: float) -> bool:
        """Whether `nothing` is all that is stored to memory that no iteration reads before."""
        stores: list[UOp] = []
        effects = list(pointer.src[1:])
        while effects:
            effect = effects.pop()
            if effect.op in (Ops.BARRIER, Ops.END):
                effects += effect.src
            elif effect.op is Ops.STORE and memory_of(effect.src[0]) is memory_of(pointer):
                stores.append(effect)
        return bool(stores) and self._all([store.value for store in stores], nothing)
