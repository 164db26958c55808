"""Placement of a value on several devices: which device has which of its elements.

A *group* is a tuple of device names. A value of a group is either replicated, whole on each device,
or split: each device has a range of one axis. A device whose range is empty computes nothing for
the value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

__all__ = ["Group", "GroupBufferArg", "Placement", "Range", "even_ranges", "reshaped", "use"]

Range = tuple[int, int]


class Group(tuple[str, ...]):
    """Names of devices, each once, in the order of their shards; equal to the plain tuple."""

    __slots__ = ()

    def startswith(self, prefix: str) -> bool:
        """As of a device's name: a group is of no kind."""
        return False


class Placement(NamedTuple):
    """The devices of a value, the axis that is split, and the range of it that each has; all of the
    value on each of them where the axis is None.
    """

    devices: Group
    axis: int | None = None
    bounds: tuple[Range, ...] = ()

    def has(self, number: int) -> bool:
        """Whether device `number` has any element."""
        return self.axis is None or self.bounds[number][0] < self.bounds[number][1]

    def shape(self, shape: Sequence[Any], number: int) -> tuple[Any, ...]:
        """The shape of the shard of device `number`, of a value of `shape`."""
        if self.axis is None:
            return tuple(shape)
        start, end = self.bounds[number]
        return (*shape[: self.axis], end - start, *shape[self.axis + 1 :])

    def split_at(self, axis: int | None, bounds: Sequence[Range] | None = None) -> Placement:
        """The same with the split at another axis; replicated without one."""
        if axis is None:
            return Placement(self.devices)
        ranges = self.bounds if bounds is None else bounds
        # An empty range is at no position.
        at = tuple([(start, end) if start < end else (0, 0) for start, end in ranges])
        return Placement(self.devices, axis, at)


class GroupBufferArg(NamedTuple):
    """A leaf of the tensor graph in the memory of several devices: as BufferArg, and the range of
    elements that each has, or None for each if all have all.
    """

    slot: int
    device: Group
    size: int
    bounds: tuple[Range, ...]


class _Use:
    """Whether this process has had a value on several devices: before, no walk looks for one."""

    __slots__ = ("is_used",)

    def __init__(self) -> None:
        self.is_used = False


use = _Use()


def even_ranges(size: int, count: int) -> tuple[Range, ...]:
    """`size` elements in `count` ranges, the first of them one longer where they do not divide."""
    each, more = divmod(size, count)
    starts = [number * each + min(number, more) for number in range(count + 1)]
    return tuple(pairwise(starts))


def reshaped(
    old: Sequence[Any], new: Sequence[Any], axis: int, bounds: Sequence[Range]
) -> tuple[int, tuple[Range, ...]] | None:
    """The axis of the shape `new` at whose ranges the elements are that `bounds` have of an axis of
    the shape `old`; None where they are no ranges of one axis.
    """
    if not all(isinstance(size, int) for size in (*old, *new)):
        return None
    outer = math.prod(old[:axis])
    inner = math.prod(old[axis + 1 :])
    for candidate in range(len(new)):
        if math.prod(new[:candidate]) != outer:
            continue
        unit = math.prod(new[candidate + 1 :])
        ends = [end * inner for pair in bounds for end in pair]
        if unit and all(end % unit == 0 for end in ends):
            return candidate, tuple(
                [(start * inner // unit, end * inner // unit) for start, end in bounds]
            )
    return None
