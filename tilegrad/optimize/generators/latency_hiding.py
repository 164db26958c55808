"""Reductions that wait for their own last step: results side by side, where the estimate says that
they hide it.

A step of a reduction takes the result of the one before. A heuristic that makes vectors along
memory may leave a single accumulator, and each step then waits out the latency of the last. Some
output axis unrolled gives independent accumulators. The model chooses which, and whether its cost
elsewhere (vectors that are no longer whole, loads that are apart) is less than that.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import reductions_of, stride_of, trips_of
from tilegrad.ir.uop import UOp, prod
from tilegrad.optimize.analysis.facts import stores
from tilegrad.optimize.generators.choice import CLEAR, choose
from tilegrad.optimize.generators.row_tiles import is_streamed, most_rows
from tilegrad.optimize.generators.shaper import Shaper
from tilegrad.optimize.model.model import estimate
from tilegrad.optimize.opts.opt import OptOps, axes_of

__all__ = ["hide_waits"]


def hide_waits(shaper: Shaper) -> None:
    """Unroll the output axis that shortens the estimate most, where a reduction waits."""
    timing = shaper.target.timing
    # A shorter kernel is not worth the estimate.
    is_short = shaper.work() < timing.launch
    if is_short or not shaper.target.has_vectors or not _may_wait(shaper):
        return
    is_row = _stores_row(shaper.ast)
    if is_row:
        # Steps that are combined first wait once. Sums are rounded alike in all shapes of a kernel.
        steps = [partial(_join_steps, shaper, count) for count in range(2, timing.latency + 1)]
        choose(shaper, [lambda: None, *steps], given=(), is_short=False)
        if _has_several(shaper.ast):
            # As many rows were taken as do not wait for memory.
            return
    # A chain that the next iteration overlaps with is no reason for rows read side by side.
    far = replace(shaper.target, timing=replace(timing, window=sys.maxsize))
    alone = estimate(shaper.ast, far)
    if not alone.latency:
        return
    if shaper.is_short and alone.latency <= alone.code * timing.first_code:
        # As many results again are as much text again.
        shaper.was_shortened = True
        return
    # A loop that threads are to share stays.
    room = trips_of(shaper.outputs()) // max(shaper.chunks(), 1)
    moves = list(_unrolled(shaper, timing.latency * timing.ports, room, is_row))
    first, others = (
        [partial(_overlap_or_apart, shaper, *move) for each in moves for move in each[chosen]]
        for chosen in (slice(1), slice(1, None))
    )
    # Work behind the reductions of one row already overlaps with them, and each further row takes
    # lines of the nearest cache.
    share = CLEAR if is_row else 1.0
    largest = partial(choose, shaper, [lambda: None, *first], share=share)
    # Fewer results, or a chunk that overlaps, only where that is clearly better.
    choose(shaper, [largest, *others])


def _join_steps(shaper: Shaper, count: int) -> None:
    """Unroll `count` steps of each reduction along memory whose loop they divide."""
    contiguous = (
        node
        for node in reductions_of(shaper.ast)
        if any(loop.axis is Axis.UNROLL for loop in node.src[1:])
    )
    loops = (loop for node in contiguous for loop in node.src[1:])
    for loop in dict.fromkeys(loops):
        if loop.axis is Axis.REDUCE and loop.extent.divisor % count == 0:
            shaper.move(OptOps.UNROLL, loop, count)


def _overlap_or_apart(shaper: Shaper, loop: UOp, count: int) -> None:
    """Unroll `count` results along `loop`: neighbours, or, of short rows that stream from memory,
    an equal share of the loop apart.
    """
    is_apart = is_streamed(shaper) and _moves_rows(shaper, loop)
    if not (is_apart and shaper.apart_to(loop, count)):
        shaper.overlap_to(loop, count)


def _moves_rows(shaper: Shaper, loop: UOp) -> bool:
    """Whether everything that is loaded lies along a reduction, in rows of more than a line and
    less than a page that `loop` moves: a longer one begins anew on each page.
    """
    nodes, target = shaper.ast.toposort(), shaper.target
    reduced = [each for node in nodes if node.op is Ops.REDUCE for each in node.src[1:]]
    for load in nodes:
        if load.op is Ops.LOAD and loop in load.index.ranges:
            row, *steps = (abs(stride_of(load.index, each) or 0) for each in (loop, *reduced))
            nbytes = row * load.dtype.itemsize
            is_outside = 1 in steps and row > max(steps)
            if not (is_outside and target.line_bytes < nbytes < target.page_bytes):
                return False
    return True


def _stores_row(ast: UOp) -> bool:
    """Whether a row is stored behind reductions, as in a softmax, and not their results alone."""
    nodes = ast.toposort()
    results = {loop for node in nodes if node.op is Ops.REDUCE for loop in node.ranges}
    return not stores(ast)[0].src[1].ranges <= results


def _has_several(ast: UOp) -> bool:
    return sum(node.op is Ops.REDUCE for node in ast.toposort()) > 1


def _may_wait(shaper: Shaper) -> bool:
    """Whether some reduction over a loop has fewer vectors of results than its latency."""
    target = shaper.target
    for node in shaper.ast.toposort():
        if node.op is not Ops.REDUCE or all(loop.axis is not Axis.REDUCE for loop in node.src[1:]):
            continue
        results = prod(loop.extent.vmax for loop in node.ranges if loop.axis is Axis.UPCAST)
        if results // target.lanes_of(node.dtype) < target.timing.latency * target.timing.ports:
            return True
    return False


def _vectors(shaper: Shaper, loop: UOp) -> int:
    """Vectors of results of a reduction in one iteration of `loop`."""
    found = 1
    for node in shaper.ast.toposort():
        if node.op is Ops.REDUCE and loop in node.ranges:
            results = prod(each.extent.vmax for each in node.ranges if each.axis is Axis.UPCAST)
            found = max(found, -(-int(results) // shaper.target.lanes_of(node.dtype)))
    return found


def _unrolled(
    shaper: Shaper, hiding: int, room: int, is_row: bool
) -> Iterator[list[tuple[UOp, int]]]:
    """For each output axis of a reduction how many results to unroll: all of a short one, else the
    largest divisor up to as many as are `hiding` the latency; and others, whose last chunk may
    overlap. More than `room` would leave threads no loop. Where rows are stored, no more than do
    not wait for memory.
    """
    most = min(hiding, room)
    nodes = shaper.ast.toposort()
    results = {loop for node in nodes if node.op is Ops.REDUCE for loop in node.ranges}
    for loop in axes_of(shaper.ast):
        extent = loop.extent
        if loop not in results or loop.axis is not Axis.LOOP or extent.op is not Ops.CONST:
            continue
        around = [each for each in shaper.outputs() if each in results]
        count = min(most, most_rows(shaper, loop, around)) if is_row else most
        if extent.arg <= count:
            yield [(loop, extent.arg)]
            continue
        # More than hide it, where registers hold all: the loop and its last chunk are gone.
        has_registers = extent.arg * _vectors(shaper, loop) <= shaper.target.accumulators
        if not is_row and has_registers and extent.arg <= room:
            yield [(loop, extent.arg)]
        divisors = (n for n in range(count, 1, -1) if extent.arg % n == 0)
        counts = [*itertools.islice(divisors, 1), count, count // 2, count // 4]
        yield [(loop, count) for count in dict.fromkeys(counts) if count > 1]
