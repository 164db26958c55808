"""Cycles for pages, lines fetched twice and crowded sets: costs of accesses beyond their bytes.

Runs that begin within a line of the nearest cache fetch it twice, unless the loop that goes on in
the line comes before the line is lost. The innermost loops whose pages the first translation buffer
knows cost nothing when they come again; each iteration of the loops outside them finds its pages
anew. Stores to more lines than their set of the nearest cache holds wait until a line before has
left.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tilegrad.ir.op import Ops
from tilegrad.ir.queries import memory_of, stride_of
from tilegrad.ir.rules import terms_of
from tilegrad.ir.uop import UOp, element_of, prod
from tilegrad.target import Target

__all__ = ["page_cycles", "step_of"]


def step_of(index: UOp, loop: UOp) -> int | None:
    """As `stride_of`, where the last chunk of a loop begins earlier (OVERLAP) as of the others."""
    found = terms_of(index)
    if found is None:
        return None
    step = found[0].get(loop, 0)
    for factor, times in found[0].items():
        if factor is loop or loop not in factor.ranges:
            continue
        if factor.op is not Ops.MAX or factor.src[1].op is not Ops.CONST:
            return None
        inner = stride_of(factor.src[0], loop)
        if inner is None:
            return None
        step += times * inner
    return step


@dataclass(frozen=True)
class _Access:
    """Bytes per step of each range, bytes of an element."""

    steps: Mapping[UOp, int]
    size: int
    is_store: bool

    def units(self, spans: Mapping[UOp, int], unit: int) -> float:
        """The lines or pages of `unit` bytes that the iterations `spans` of each range touch."""
        count, length = 1, self.size
        for loop in sorted(spans, key=lambda each: self.steps[each]):
            step = self.steps[loop]
            if step <= max(length, unit):
                length += step * (spans[loop] - 1)
            else:
                count *= spans[loop]
        begins_units = length % unit == 0 and all(
            step % unit == 0 for step in self.steps.values() if step > length
        )
        return count * (length if begins_units else length + unit - self.size) / unit

    def crowded_sets(self, spans: Mapping[UOp, int], target: Target) -> int:
        """The sets that the lines in `spans` share, where these are more than fit; else 0."""
        line = target.line_bytes
        apart = [loop for loop in spans if self.steps[loop] >= line and spans[loop] > 1]
        if not self.is_store or any(self.steps[loop] % line for loop in apart):
            return 0
        step = min((self.steps[loop] // line for loop in apart), default=0)
        sets = target.cache_sets // math.gcd(step, target.cache_sets)
        return sets if prod(spans[loop] for loop in apart) > sets * target.cache_ways else 0


def page_cycles(
    accesses: Iterable[UOp], loops: Sequence[UOp], unrolled: Iterable[UOp], target: Target
) -> float:
    """Cycles of loads and stores for pages and crowded sets, in the order `loops`, outermost first.

    0 where some address is no sum of strides, as in a gather.
    """
    extents = {loop: int(loop.src[0].vmax) for loop in (*loops, *unrolled)}
    found: list[_Access] = []
    for node in accesses:
        if memory_of(node.src[0]).op is not Ops.DEFINE_GLOBAL:
            continue
        size = element_of(memory_of(node.src[0])).itemsize
        steps = {loop: step_of(node.src[1], loop) for loop in extents}
        if None in steps.values():
            return 0.0
        nbytes = {loop: abs(step or 0) * size for loop, step in steps.items()}
        found.append(_Access(nbytes, size, node.op is Ops.STORE))
    timing = target.timing
    inside = {loop: extents[loop] for loop in unrolled}
    crowded = {**inside, **{loop: extents[loop] for loop in loops[-1:]}}
    cycles = 0.0
    for each in found:
        if sets := each.crowded_sets(crowded, target):
            cycles += timing.crowded_line / sets * each.units(extents, target.line_bytes)
    fetched = _Fetched(found, loops, inside, extents)
    line, lines = target.line_bytes, target.cache_bytes[0] // 2 // target.line_bytes
    again = fetched.units(line, lines, timing.stored_line) * line - fetched.once(
        1, timing.stored_line
    )
    cycles += max(again, 0.0) * timing.byte[1]
    cycles += fetched.units(target.page_bytes, target.pages) * timing.page
    # What comes from memory also waits for pages that are not fetched ahead.
    if target.level_of(int(fetched.once(1))) == len(timing.byte) - 1:
        cycles += fetched.units(target.page_bytes, target.prefetched_pages) * timing.page_ahead
    return cycles


@dataclass(frozen=True)
class _Fetched:
    """What accesses fetch: loops outermost first, iterations inside them, extents of all ranges."""

    accesses: Sequence[_Access]
    loops: Sequence[UOp]
    inside: Mapping[UOp, int]
    extents: Mapping[UOp, int]

    def once(self, unit: int, stored: int = 1, spans: Mapping[UOp, int] | None = None) -> float:
        """The units that the iterations `spans`, or all, touch; each stored one counts `stored`."""
        return sum(
            each.units(spans or self.extents, unit) * (stored if each.is_store else 1)
            for each in self.accesses
        )

    def units(self, unit: int, room: int, stored: int = 1) -> float:
        """The units fetched in all, where `room` of them are kept."""
        spans, depth = {**self.inside, **dict.fromkeys(self.loops, 1)}, len(self.loops)
        while depth and self.once(unit, spans=spans) <= room:
            depth -= 1
            spans[self.loops[depth]] = self.extents[self.loops[depth]]
        times = prod(self.extents[loop] for loop in self.loops[:depth])
        return self.once(unit, stored, spans) * int(times)
