"""Ranges that move over the same slice of an operand: `x` and `k` of `a[x + k]` need one dimension
of packed memory, as long as the slice they span, not one each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import loads_of
from tilegrad.ir.rules import terms_of
from tilegrad.ir.uop import UOp, prod

__all__ = ["Dimension", "dimensions", "join"]


@dataclass(frozen=True)
class Dimension:
    """A dimension of packed memory: how far each range moves along it. One range moves by one."""

    times: Mapping[UOp, int]

    @property
    def first(self) -> int:
        """The lowest sum of the ranges, each times its step."""
        return sum(min(times, 0) * int(loop.vmax) for loop, times in self.times.items())

    @property
    def extent(self) -> int:
        return 1 + sum(abs(times) * int(loop.vmax) for loop, times in self.times.items())

    @property
    def is_overlapping(self) -> bool:
        """Whether different iterations of the ranges read the same element."""
        return bool(self.extent < prod(int(loop.vmax) + 1 for loop in self.times))

    def is_contiguous(self, value: UOp) -> bool:
        """Whether positions next to each other are neighbours in the memory that `value` reads; not
        where a value that is loaded for each position is the index.
        """
        lead = next(loop for loop, times in self.times.items() if abs(times) == 1)
        loads = loads_of(value)
        if any(lead in inner.ranges for load in loads for inner in loads_of(load.index)):
            return False
        found = (terms_of(load.index) for load in loads)
        return any(each is not None and each[0].get(lead) == self.times[lead] for each in found)

    @property
    def position(self) -> UOp:
        """Where along the dimension an iteration of the ranges reads."""
        total = UOp.const(dtypes.index, -self.first)
        for loop, times in self.times.items():
            total = loop * times + total
        return total

    def ranges_at(self, position: UOp) -> dict[UOp, UOp]:
        """Values of the ranges with which the operand is read at `position`."""
        lead = next(loop for loop, times in self.times.items() if abs(times) == 1)
        found = dict.fromkeys(self.times, UOp.const(dtypes.index, 0))
        found[lead] = (position + self.first) * self.times[lead]
        return found


def dimensions(load: UOp, ranges: Sequence[UOp]) -> list[Dimension]:
    """The packed dimensions of a copy of `load` over `ranges`, in their order: ranges that overlap
    share one dimension, at the position of the last of them.
    """
    alike: dict[tuple[int, ...], dict[UOp, int]] = {}
    sums = _sums(load)
    for loop in ranges:
        if (moves := _moves(sums, loop)) is not None:
            scale = math.gcd(*moves)
            scale = scale if next(move for move in moves if move) > 0 else -scale
            alike.setdefault(tuple(move // scale for move in moves), {})[loop] = scale
    overlapping = [dimension for times in alike.values() for dimension in _overlapping(times)]
    shared = {axis: dimension for dimension in overlapping for axis in dimension.times}
    found: list[Dimension] = []
    for position, loop in enumerate(ranges):
        if loop not in shared:
            found.append(Dimension({loop: 1}))
            if len(found) > 1 and (joined := _joined(sums, *found[-2:])) is not None:
                found[-2:] = [joined]
        elif not any(later in shared[loop].times for later in ranges[position + 1 :]):
            found.append(shared[loop])
    return found


def _joined(sums: Sequence[Sum], outer: Dimension, inner: Dimension) -> Dimension | None:
    """Both as one dimension, if they are loops and the outer goes on where the inner ends."""
    loops = [*outer.times, *inner.times]
    if any(loop.axis in (Axis.UPCAST, Axis.UNROLL) for loop in loops):
        return None
    return _join(sums, outer, inner)


def join(load: UOp, outer: Dimension, inner: Dimension) -> Dimension | None:
    """Both as one dimension, if the outer goes on where the inner ends."""
    return _join(_sums(load), outer, inner)


def _join(sums: Sequence[Sum], outer: Dimension, inner: Dimension) -> Dimension | None:
    steps = [
        next((loop for loop, times in each.times.items() if times == 1), None)
        for each in (outer, inner)
    ]
    if outer.is_overlapping or steps[0] is None or steps[1] is None:
        return None
    far, near = _moves(sums, steps[0]), _moves(sums, steps[1])
    if far is None or near is None or far != tuple(move * inner.extent for move in near):
        return None
    return Dimension(
        {**{loop: times * inner.extent for loop, times in outer.times.items()}, **inner.times}
    )


def _overlapping(times: Mapping[UOp, int]) -> Iterator[Dimension]:
    """The dimensions of ranges that overlap: each moves by less than those before it span."""
    found: list[dict[UOp, int]] = []
    for loop in sorted(times, key=lambda axis: abs(times[axis])):
        span = (
            1 + sum(abs(each) * int(other.vmax) for other, each in found[-1].items())
            if found
            else 0
        )
        if abs(times[loop]) < span:
            found[-1][loop] = times[loop]
        else:
            found.append({loop: times[loop]})
    for each in found:
        scale = math.gcd(*each.values())
        # Upwards rather than downwards: as memory goes.
        scale = scale if sum(each.values()) > 0 else -scale
        dimension = Dimension({axis: move // scale for axis, move in each.items()})
        if dimension.is_overlapping and any(abs(move) == 1 for move in dimension.times.values()):
            yield dimension


# The terms of a position and its constant, as `terms_of` gives them.
Sum = tuple[Mapping[UOp, int], int] | None


def _sums(load: UOp) -> list[Sum]:
    """The positions on which `load` depends, each once."""
    return [terms_of(expression) for expression in dict.fromkeys(_expressions(load))]


def _moves(sums: Sequence[Sum], loop: UOp) -> tuple[int, ...] | None:
    """By how much `loop` moves each of the positions `sums`; None where that is not a number, or
    where it moves nothing.
    """
    found = []
    for terms in sums:
        if terms is None or any(loop in each.ranges for each in terms[0] if each is not loop):
            return None
        found.append(terms[0].get(loop, 0))
    return tuple(found) if any(found) else None


def _expressions(value: UOp) -> Iterable[UOp]:
    """The positions on which `value` depends, and both sides of the comparisons of positions."""
    for node in value.toposort():
        if node.op is Ops.LOAD:
            yield node.src[1]
        elif node.dtype is not dtypes.index:
            yield from (
                each for each in node.src if each.dtype is dtypes.index and node.op is not Ops.RANGE
            )
