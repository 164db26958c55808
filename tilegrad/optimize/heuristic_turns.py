"""Tiles that are turned in registers: what is stored along one axis is loaded along another.

The order of the loops over tiles decides what memory sees. A row of a tile is a part of a line of
the cache, and each row may lie on a page of its own. What a loop returns to before the caches have
lost it costs nothing, so of several orders that one is taken which fetches fewest lines and pages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilegrad.base.dtype import Pointer
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, prod
from tilegrad.optimize.facts import padded_to, power_in, stride
from tilegrad.optimize.shaper import Shaper
from tilegrad.target import Target

__all__ = ["turn"]

# The least side of a tile.
_LEAST = 4
# What an element costs in tiles that are half as wide as a vector, or a quarter.
_HALF, _QUARTER = 1.1, 1.8
# The share of the nearest cache that its lines may take beside what else is there.
_OWN = 2 / 3
# What takes this share of the last cache or more comes from memory in part: there also pages count
# whose next lines are fetched ahead; each costs so many cycles.
_FAR, _NOT_AHEAD = 1 / 4, 3.0
# Cycles, over the sets of the nearest cache, to store in turn to more lines than a set holds.
_CROWDED = 20.0


def turn(shaper: Shaper, loop: UOp, width: int) -> bool:
    """A tile of vectors along `loop`, the axis that is stored, and along one that is loaded; False
    where there is none.
    """
    loads = [node for node in shaper.ast.toposort() if node.op is Ops.LOAD]
    for other in shaper.outputs():
        if other is loop or not any(
            abs(stride(load.src[1], other) or 0) == 1 and stride(load.src[1], loop) not in (0, 1)
            for load in loads
        ):
            continue
        sides = {part: _side(part, width) for part in (other, loop)}
        before = shaper.ast
        if all(sides.values()):
            shaper.put_first(_best_order(shaper, sides))
            if all(shaper.overlap_to(part, side) for part, side in sides.items()):
                return True
        shaper.ast = before
    return False


def _side(loop: UOp, width: int) -> int:
    """How much of `loop` one side of a tile has; 0 where that would be too little."""
    extent = loop.src[0]
    if extent.op is not Ops.CONST:
        divisor = power_in(extent, width)
        return divisor if divisor >= _LEAST else 0
    costs = {
        side: padded_to(extent.arg, side) * cost
        for side, cost in ((width, 1.0), (width // 2, _HALF), (width // 4, _QUARTER))
        if _LEAST <= side <= extent.arg
    }
    return min(costs, key=costs.__getitem__, default=0)


@dataclass(frozen=True)
class _Access:
    """What a load or store touches: bytes per step of each loop, the bytes of an element."""

    steps: Mapping[UOp, int]
    size: int
    is_store: bool

    def units(self, spans: Mapping[UOp, int], unit: int) -> float:
        """How many lines or pages of `unit` bytes it touches over so many steps of each loop."""
        count, length = 1, self.size
        for part in sorted(spans, key=lambda part: self.steps[part]):
            step = self.steps[part]
            if step <= max(length, unit):
                length += step * (spans[part] - 1)
            else:
                count *= spans[part]
        aligned = length % unit == 0 and all(
            step % unit == 0 for step in self.steps.values() if step > length
        )
        return count * (length / unit if aligned else (length + unit - self.size) / unit)

    def crowding(self, loop: UOp, target: Target) -> float:
        """What it costs a line to be stored to in turns of `loop`, of which more share a set of the
        nearest cache than that has room for: each waits until one before has left.
        """
        step = self.steps[loop]
        if not self.is_store or step % target.line_bytes or not step:
            return 0.0
        sets = target.cache_sets // math.gcd(step // target.line_bytes, target.cache_sets)
        return _CROWDED / sets if int(loop.vmax) + 1 > sets * target.cache_ways else 0.0


def _best_order(shaper: Shaper, sides: Mapping[UOp, int]) -> list[UOp]:
    """The order of the output loops, outermost first, in which tiles of `sides` fetch least."""
    loops = shaper.outputs()
    accesses: list[_Access] = []
    for node in shaper.ast.toposort():
        if node.op not in (Ops.LOAD, Ops.STORE) or not isinstance(node.src[0].dtype, Pointer):
            continue
        size = node.src[0].dtype.base.itemsize
        steps = {part: stride(node.src[1], part) for part in loops}
        if None in steps.values():
            return loops
        sizes = {part: abs(step or 0) * size for part, step in steps.items()}
        accesses.append(_Access(sizes, size, node.op is Ops.STORE))
    far = {part: max(each.steps[part] for each in accesses) * sides.get(part, 1) for part in loops}
    outer = sorted(loops, key=lambda part: -far[part])
    orders = [loops, *([*(each for each in outer if each is not last), last] for last in loops)]
    whole = {part: int(part.vmax) + 1 for part in loops}
    nbytes = sum(each.units(whole, 1) for each in accesses)
    is_far = nbytes > shaper.target.cache_bytes[-1] * _FAR
    return min(orders, key=lambda order: _fetched(order, accesses, sides, shaper.target, is_far))


def _kept(target: Target, is_far: bool) -> list[tuple[int, int, float]]:
    """Bytes and number of what is kept, and the cycles to fetch another: lines of the nearest
    cache, and pages whose addresses are known.
    """
    line, timing = target.line_bytes, target.timing
    lines = int(target.cache_bytes[0] * _OWN) // line
    found = [
        (line, lines, line * timing.byte[1]),
        (target.page_bytes, target.pages, timing.page),
    ]
    return [*found, (target.page_bytes, target.prefetched_pages, _NOT_AHEAD)] if is_far else found


def _fetched(
    order: Sequence[UOp],
    accesses: Sequence[_Access],
    sides: Mapping[UOp, int],
    target: Target,
    is_far: bool,
) -> float:
    """The cycles that fetching takes if loops run in `order`."""
    tile = {part: max(sides.get(part, 1), 1) for part in order}
    whole = {part: int(part.vmax) + 1 for part in order}
    cycles = sum(
        each.crowding(order[-1], target) * each.units(whole, target.line_bytes) for each in accesses
    )
    for unit, room, each in _kept(target, is_far):
        spans = dict(tile)
        depth = len(order)
        while depth:
            depth -= 1
            is_kept = sum(access.units(spans, unit) for access in accesses) <= room
            if not is_kept:
                depth += 1
                break
            spans[order[depth]] = int(order[depth].vmax) + 1
        times = prod(-(-(int(part.vmax) + 1) // tile[part]) for part in order[:depth])
        cycles += each * int(times) * sum(access.units(spans, unit) for access in accesses)
    return cycles
