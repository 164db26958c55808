"""Several rows at once, where reductions of a row follow one another: softmax, normalisation.

A row waits until the lanes of each of its reductions are combined, and for values computed from
that. Other rows beside it fill the time: every loop nest works on a vector of each of them, or on
all of a short row. They are neighbours where the second cache has all of them. From memory, they
are an equal share of the rows apart: lines that are fetched ahead of one are those of its next.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import bytes_of, loads_of, nodes_of, stride_of
from tilegrad.ir.uop import UOp
from tilegrad.optimize.analysis.facts import (
    FEW_ROWS,
    ROWS,
    is_peeled,
    packed_bytes,
    padded_to,
    stores,
)
from tilegrad.optimize.generators.shaper import Shaper
from tilegrad.optimize.opts.opt import OptOps, loop_order

__all__ = ["is_streamed", "most_rows", "tiled_rows"]


def tiled_rows(shaper: Shaper, reductions: Sequence[UOp], width: int) -> list[UOp]:
    """The kernel of `shaper` with some rows at once, the best guess first; nothing where the
    reductions have no rows in common, run across memory, or would read padding lane by lane. The
    kernel of `shaper` stays as it is.
    """
    # One pass over a row, and another that stores it, are a stream of memory.
    if len(reductions) < 2:
        return []
    row, splits = _row_of(shaper, reductions), _contiguous_loops(shaper, reductions)
    if row is None or {loop for loop, _ in splits}.isdisjoint(reductions[0].src):
        return []
    splits = [each for each in splits if each[0] is not row]
    longest = max(padded_to(int(loop.vmax) + 1, width) for loop, _ in splits)
    contiguous = {loop for loop, _ in splits}
    around = [loop for loop in shaper.outputs() if loop not in contiguous]
    most = most_rows(shaper, row, around)
    found = []
    counts = (FEW_ROWS, FEW_ROWS // 2) if is_streamed(shaper) else (FEW_ROWS, ROWS[0])
    for count in (count for count in counts if count <= most):
        is_short = count * longest <= shaper.target.registers // 4 * width
        for amount in dict.fromkeys([width, longest] if is_short else [width]):
            shaped = _tiled(shaper, row, splits, count, amount)
            found += [] if shaped is None else [shaped]
    return found


def is_streamed(shaper: Shaper) -> bool:
    """Whether the second cache does not hold all that the kernel reads and stores."""
    memories = (node for node in shaper.ast.toposort() if node.op is Ops.DEFINE_GLOBAL)
    return sum(map(bytes_of, memories)) > shaper.target.second_bytes


def most_rows(shaper: Shaper, row: UOp, around: Sequence[UOp]) -> int:
    """How many rows at once do not wait for memory: those that half the nearest cache holds, where
    the second one has all that the kernel reads and stores; else those on two pages, each less than
    a page, as lines are fetched ahead along a page. `around` are the loops outside of a row, `row`
    the innermost.
    """
    target, nodes = shaper.target, shaper.ast.toposort()
    loads = [node for node in nodes if node.op is Ops.LOAD and row in node.ranges]
    longest = max((packed_bytes(load, list(around)) for load in loads), default=1)
    room = 2 * (target.page_bytes - 1) if is_streamed(shaper) else target.cache_bytes[0] // 2
    return room // longest


def _tiled(
    shaper: Shaper, row: UOp, splits: Sequence[tuple[UOp, OptOps]], count: int, amount: int
) -> UOp | None:
    """The kernel with `count` rows, and `amount` elements of each in every nest."""
    is_known = shaper.target.has_mask or all(
        loop.extent.divisor % amount == 0 or is_peeled(int(loop.vmax) + 1, amount)
        for loop, _ in splits
    )
    if row.vmax < count or not is_known:
        return None
    before = shaper.ast
    is_legal = all(shaper.split_to(loop, op, amount, is_shared=False) for loop, op in splits)
    together = shaper.apart_to if is_streamed(shaper) else shaper.overlap_to
    shaped = shaper.ast if is_legal and together(row, count) else None
    shaper.ast = before
    return shaped


def _row_of(shaper: Shaper, reductions: Sequence[UOp]) -> UOp | None:
    """The innermost loop around everything in which each reduction runs as a whole."""
    nests = {axis for node in nodes_of(shaper.ast, Ops.END) for axis in node.src[1:]}
    rows = [
        loop
        for loop in shaper.outputs()
        if loop not in nests and all(loop in reduction.ranges for reduction in reductions)
    ]
    return rows[-1] if rows else None


def _contiguous_loops(shaper: Shaper, reductions: Sequence[UOp]) -> list[tuple[UOp, OptOps]]:
    """The loops along memory of all reductions, nests and stores; none where some reduction has
    another loop.
    """
    loops = list(dict.fromkeys(loop for reduction in reductions for loop in reduction.src[1:]))
    if not all(
        _is_contiguous(loop, reduction) for reduction in reductions for loop in reduction.src[1:]
    ):
        return []
    nests = [node.src[0] for node in nodes_of(shaper.ast, Ops.END)]
    stored = [*(each for each in nests if each.op is Ops.STORE), *stores(shaper.ast)]
    rows = [
        loop
        for store in stored
        for loop in store.index.ranges
        if loop.axis is Axis.LOOP and loop.extent.op is Ops.CONST
        if loop in loop_order(shaper.ast) and stride_of(store.index, loop) == 1
    ]
    return [(loop, OptOps.UNROLL) for loop in loops] + [(loop, OptOps.UPCAST) for loop in rows]


def _is_contiguous(loop: UOp, reduction: UOp) -> bool:
    """Whether all that a reduction loads along `loop` lies beside each other."""
    steps = [
        stride_of(node.index, loop)
        for node in loads_of(reduction.src[0])
        if loop in node.index.ranges
    ]
    is_known = loop.op is Ops.RANGE and loop.extent.op is Ops.CONST
    return is_known and bool(steps) and all(step == 1 for step in steps)
