"""Cycles for memory: bytes from each level, pages, and crowded sets of the nearest cache.

Memory that the loops inside some depth touch stays in a cache that it fits. So the loop just
outside fetches the next elements, and each iteration of the loops outside that one fetches all of
it again. A kernel whose memory fits a level as a whole finds it there. Pages are found alike: the
first translation buffer is a cache of them. Stores to more lines than their set of the nearest
cache holds wait until a line before has left.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Mapping, Sequence

from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.uop import UOp
from tilegrad.ir.vector_lanes import is_transposed
from tilegrad.optimize.analysis.footprint import Footprint, Spans, chunks_of, distinct, footprint_of
from tilegrad.target import Target

__all__ = ["Traffic"]


class Traffic:
    """Bytes that the loads and stores among `nodes` fetch; `loops` run as such, outermost first,
    and axes of `lanes` as vectors; `around` has the loops around each access, by
    `facts.loops_around`. Loops of a copy run as a whole inside those that it depends on, as
    unrolled axes do.
    """

    def __init__(
        self,
        nodes: Collection[UOp],
        loops: Sequence[UOp],
        target: Target,
        around: Mapping[UOp, frozenset[UOp]],
        lanes: Collection[UOp] = (),
    ):
        self.lanes = lanes
        self.loops, self.target, self.threads = loops, target, max(target.threads, 1)
        # The level beyond the last cache.
        self.memory = len(target.timing.byte) - 1
        accesses = [node for node in nodes if node.op in (Ops.LOAD, Ops.STORE)]
        self.extents = {
            loop: max(
                (chunks_of(each.index, loop) for each in accesses if loop in each.index.ranges),
                default=float(loop.extent.vmax),
            )
            for loop in (node for node in nodes if node.op is Ops.RANGE)
        }
        self.inside = {loop: each for loop, each in self.extents.items() if loop not in loops}
        self.footprints = {node: footprint_of(node, self.extents) for node in accesses}
        closed = {loop for node in nodes if node.op is Ops.END for loop in node.src[1:]}
        # Loops around the whole kernel; accesses in a loop nest that fills scratch.
        self.outer = frozenset(
            loop for loop in loops if loop not in closed and loop.axis is not Axis.REDUCE
        )
        self.nested = frozenset(node for node in accesses if closed & node.ranges)
        # The loops in which an access runs.
        self.around: dict[UOp, frozenset[UOp]] = {}
        for node in accesses:
            bodies = [around[loop] for loop in node.ranges if loop in around] or [self.outer]
            self.around[node] = node.ranges.union(*bodies)
        # Each chunk of a launch fetches the data that does not depend on its number.
        self.chunk = next((loop for loop in loops if loop.axis is Axis.THREAD), None)
        # The number of loops inside which an access runs.
        self.depths = {
            node: max((n for n, loop in enumerate(loops, 1) if loop in node.ranges), default=0)
            if node in self.nested
            else len(loops)
            for node in accesses
        }
        self._touched: dict[tuple[int, int], dict[UOp, float]] = {}

    @functools.cached_property
    def levels(self) -> tuple[int, ...]:
        """Bytes from the second cache, the last, and memory."""
        caches, line = self.target.cache_bytes, self.target.line_bytes
        sizes = [caches[0], caches[min(1, len(caches) - 1)], caches[-1]] if caches else [0, 0, 0]
        farthest = self._farthest() if caches else len(sizes)
        return tuple(
            int(self._fetched(line, size // 2 // line, is_far=level > 0) * line)
            if level < farthest
            else 0
            for level, size in enumerate(sizes)
        )

    def pages(self) -> float:
        """Cycles for addresses of pages, for pages that are not fetched ahead, and sets."""
        timing, page = self.target.timing, self.target.page_bytes
        unknown = self._fetched(page, self.target.pages)
        cycles = unknown * timing.page
        # Fetches from memory also wait for pages that are not fetched ahead: where the address is
        # known, once for each line, as its other elements are in a cache when they are read.
        if self._farthest() == self.memory:
            lines = self.levels[-1] / self.target.line_bytes
            pages = self._fetched(page, self.target.prefetched_pages)
            cycles += max(unknown, min(pages, lines)) * timing.page_ahead
        return cycles + self._crowded()

    def _farthest(self) -> int:
        """The level that holds all that the kernel touches. Threads share the last cache, and each
        has nearer ones of its own.
        """
        nbytes = int(sum(self.touched(0, self.target.line_bytes).values()) * self.target.line_bytes)
        level = self.target.level_of(nbytes)
        return level if level == self.memory else self.target.level_of(nbytes // self.threads)

    def touched(self, depth: int, unit: int) -> dict[UOp, float]:
        """Units of `unit` bytes that each access touches in the loops from `depth` inward."""
        found = self._touched.get((depth, unit))
        if found is None:
            spans = {**self.inside, **dict.fromkeys(self.loops[:depth], 1)}
            spans |= {loop: self.extents[loop] for loop in self.loops[depth:]}
            found = {node: each.units(spans, unit) for node, each in self.footprints.items()}
            self._touched[depth, unit] = found
        return found

    def _inside(self, depth: int, unit: int) -> float:
        """Units that are touched inside an iteration of the loops up to `depth`."""
        touched = self.touched(depth, unit)
        return sum(units for node, units in touched.items() if depth <= self.depths[node])

    def _fetched(self, unit: int, room: int, *, is_far: bool = False) -> float:
        """The units of `unit` bytes fetched where `room` of them stay: with `is_far`, in a cache
        that loses the excess little by little, as panels of STAGE that take more than half of the
        second one.
        """
        fits = 0
        while fits < len(self.loops) and self._inside(fits, unit) > room:
            fits += 1
        found = self._fetched_outside(fits, unit, room)
        if fits > 1 and is_far:
            lost = 1 - room / self._inside(fits - 1, unit)
            found = lost * found + (1 - lost) * self._fetched_outside(fits - 1, unit, room)
        return found

    def _fetched_outside(self, fits: int, unit: int, room: int) -> float:
        """The units fetched where those stay that the loops from `fits` inward touch."""
        total = 0.0
        for node, footprint in self.footprints.items():
            depth = min(max(fits - 1, 0), self.depths[node])
            units = self.touched(depth, unit)[node]
            if not footprint.is_global and fits <= 1:
                continue
            times = self.target.timing.stored_line if footprint.is_store else 1
            outside = [loop for loop in self.loops[:depth] if loop in self.around[node]]
            # Memory that the loops just outside do not move is still cached in their next
            # iteration.
            while outside and outside[-1] not in node.ranges and units <= room // 2:
                outside.pop()
            if self.chunk is not None and self.chunk not in self.around[node]:
                outside.append(self.chunk)
            total += times * units * math.prod(self.extents[loop] for loop in outside)
        return total

    def _crowded(self) -> float:
        """Cycles of stores whose lines share few sets of the nearest cache. A line waits once, but
        where the lanes of a vector are lines apart, with each of its elements.
        """
        spans = {**self.inside, **{loop: self.extents[loop] for loop in self.loops[-1:]}}
        cycles = 0.0
        for node, each in self.footprints.items():
            if sets := _crowded_sets(each, spans, self.target):
                lines = each.units(self.extents, self.target.line_bytes)
                if any(
                    each.steps.get(axis, 0) >= self.target.line_bytes
                    and not is_transposed(node.index, axis)
                    for axis in self.lanes
                ):
                    lines = math.prod(self.extents[loop] for loop in each.steps)
                cycles += self.target.timing.crowded_line / sets * lines
        return cycles


def _crowded_sets(each: Footprint, spans: Spans, target: Target) -> int:
    """The sets that the lines stored in `spans` share, where these are more than fit; else 0."""
    line = target.line_bytes
    moves = distinct((step, spans[loop]) for loop, step in each.steps.items() if loop in spans)
    # Loops that go on where those inside end make one run, whose lines are in sets side by side.
    run = each.size + sum(step * (count - 1) for step, count in moves if step < line)
    apart = [(int(step), count) for step, count in moves if step >= line]
    if not each.is_store or not apart or any(step % line for step, _ in apart):
        return 0
    step = apart[0][0] // line
    lines = min(max(int(run) // line, 1), step)
    sets = target.cache_sets // math.gcd(step, target.cache_sets) * lines
    stored = lines * math.prod(count for _, count in apart)
    return sets if stored > sets * target.cache_ways else 0
