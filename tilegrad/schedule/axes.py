"""A kernel's ranges put in order: equal reductions share loops, a loop that an index takes apart
becomes two, and neighbours that are one loop become one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import next_number, reductions_of
from tilegrad.ir.ranges import replace_ranges
from tilegrad.ir.rules import simplify, terms_of
from tilegrad.ir.uop import UOp

__all__ = ["merge_neighbours", "share_loops", "split_divided"]

# Tuning, worth shown by `bench/corpus.py`, family movement.
# Elements of a slice from which on a loop over neighbours in memory is worth splitting.
_WORTH_CUTTING = 16


def share_loops(ast: UOp) -> UOp:
    """Reductions over equal extents share one loop where they run in the same loop nest and are
    independent of one another.

    before   REDUCE(x, r1), REDUCE(x * x, r2)
    after    REDUCE(x, r1), REDUCE(x * x, r1)
    """
    reductions = reductions_of(ast)
    if len(reductions) < 2:
        return ast
    groups: dict[Any, list[UOp]] = {}
    for reduce in reductions:
        extents = tuple(loop.extent for loop in reduce.src[1:])
        groups.setdefault((extents, reduce.ranges), []).append(reduce)
    needs = {reduce: reductions_of(reduce) for reduce in reductions}
    loop_of = {reduce: reduce for reduce in reductions}
    for group in groups.values():
        for position, reduce in enumerate(group):
            for leader in group[:position]:
                shared = {**loop_of, reduce: loop_of[leader]}
                if not _has_cycle(shared, needs):
                    loop_of = shared
                    break
    mapping = {
        own: theirs
        for reduce, leader in loop_of.items()
        for own, theirs in zip(reduce.src[1:], leader.src[1:], strict=True)
        if own is not theirs
    }
    return simplify(ast, mapping) if mapping else ast


def _has_cycle(loop_of: dict[UOp, UOp], needs: dict[UOp, list[UOp]]) -> bool:
    """Whether some loop would have to run before itself, perhaps by way of others."""
    before: dict[UOp, set[UOp]] = {loop: set() for loop in loop_of.values()}
    for reduce, others in needs.items():
        for other in others:
            if other is reduce:
                continue
            if loop_of[other] is loop_of[reduce]:
                return True
            before[loop_of[reduce]].add(loop_of[other])
    ready = [loop for loop, needed in before.items() if not needed]
    while ready:
        done = ready.pop()
        del before[done]
        for loop, needed in before.items():
            if done in needed:
                needed.discard(done)
                if not needed:
                    ready.append(loop)
    return bool(before)


def split_divided(ast: UOp, order: Sequence[UOp]) -> tuple[UOp, list[UOp]]:
    """Split each range whose quotient or remainder an index uses into two ranges, so that every
    index is a sum again. `order` has the output ranges.

    before   STORE(a, r, LOAD(b, r//64))                   r: 0..4096
    after    STORE(a, p*64 + q, LOAD(b, p))                p: 0..64, q: 0..64
    """
    ranges = list(order)
    number = next_number(ast.toposort())
    while (found := _divided(ast)) is not None:
        loop, divisor = found
        outer = UOp.range(loop.extent.arg // divisor, number, loop.axis)
        inner = UOp.range(divisor, number + 1, loop.axis)
        number += 2
        ast = replace_ranges(ast, {loop: (outer * divisor + inner, (outer, inner))})
        if loop in ranges:
            position = ranges.index(loop)
            ranges[position : position + 1] = [outer, inner]
    return ast, ranges


def _divided(ast: UOp) -> tuple[UOp, int] | None:
    """A range to split, and the size of the inner range."""
    nodes = ast.toposort()
    for node in nodes:
        if node.op not in (Ops.FLOORDIV, Ops.FLOORMOD) or node.src[1].op is not Ops.CONST:
            continue
        loop, divisor = node.src[0], int(node.src[1].arg)
        if loop.op is not Ops.RANGE or loop.extent.op is not Ops.CONST:
            continue
        if not 1 < divisor < loop.extent.arg or loop.extent.arg % divisor:
            continue
        if divisor >= _WORTH_CUTTING or not any(_is_contiguous(each, loop) for each in nodes):
            return loop, divisor
    return None


def _is_contiguous(access: UOp, loop: UOp) -> bool:
    """Whether `access` moves to the next element with `loop`."""
    if access.op not in (Ops.LOAD, Ops.STORE):
        return False
    found = terms_of(access.index)
    return found is not None and found[0].get(loop) == 1


def merge_neighbours(ast: UOp, order: Sequence[UOp]) -> tuple[UOp, list[UOp]]:
    """Two ranges that follow one another and are only used as one position become one range.

    before   a: 0..4, b: 0..4, index a*4 + b
    after    c: 0..16, index c
    """
    ranges = list(order)
    position = 0
    while position + 1 < len(ranges):
        outer, inner = ranges[position], ranges[position + 1]
        merged = _merge(ast, outer, inner)
        if merged is None:
            position += 1
            continue
        ast, joined = merged
        ranges[position : position + 2] = [joined]
        position = max(position - 1, 0)
    return ast, ranges


def _merge(ast: UOp, outer: UOp, inner: UOp) -> tuple[UOp, UOp] | None:
    sizes = (outer.src[0], inner.src[0])
    if outer.axis is not inner.axis or any(size.op is not Ops.CONST for size in sizes):
        return None
    nodes = ast.toposort()
    if outer.axis is Axis.REDUCE:
        reductions = [
            node
            for node in nodes
            if node.op is Ops.REDUCE and (outer in node.src or inner in node.src)
        ]
        if any(not (outer in reduce.src and inner in reduce.src) for reduce in reductions):
            return None
    if any(_are_apart(node, outer, inner) for node in nodes):
        return None
    # Every index must hold both as one position: outer times the inner extent plus inner.
    for node in nodes:
        if node.op in (Ops.RANGE, Ops.REDUCE, Ops.END, Ops.DEFINE_LOCAL) or (
            outer not in node.src and inner not in node.src
        ):
            continue
        if not _is_term(node):
            return None
    joined = UOp.range(sizes[0].arg * sizes[1].arg, outer.number, outer.axis)
    replaced = {
        outer: (joined // sizes[1].arg, (joined,)),
        inner: (joined % sizes[1].arg, (joined,)),
    }
    changed = replace_ranges(ast, replaced)
    for node in changed.toposort():
        if (
            node.op in (Ops.FLOORDIV, Ops.FLOORMOD)
            and joined in node.ranges
            and _is_direct(node, joined)
        ):
            return None
    return changed, joined


def _are_apart(access: UOp, outer: UOp, inner: UOp) -> bool:
    """Whether an access has the two ranges as terms of its index and not as one position: a merged
    range would have to be divided there. Most pairs are told by this, with far less work than it
    takes to merge them.
    """
    if access.op not in (Ops.LOAD, Ops.STORE) or access.index.ranges.isdisjoint((outer, inner)):
        return False
    found = terms_of(access.index)
    if found is None or outer.vmax == 0 or inner.vmax == 0:
        return False
    terms = found[0]
    if any(
        term.op is not Ops.RANGE and not term.ranges.isdisjoint((outer, inner)) for term in terms
    ):
        return False
    return bool(terms.get(outer, 0) != terms.get(inner, 0) * (inner.vmax + 1))


def _is_term(node: UOp) -> bool:
    return (node.dtype is dtypes.index and node.op in (Ops.ADD, Ops.MUL)) or node.op in (
        Ops.LOAD,
        Ops.STORE,
        Ops.CAST,
    )


def _is_direct(node: UOp, loop: UOp) -> bool:
    return loop in node.src[0].toposort()
