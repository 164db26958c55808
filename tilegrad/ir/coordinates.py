"""Row-major positions as coordinates: which axes a walk through positions carries between.

A view gives a position that is linear in its index. Divided by the sizes of axes it becomes a
coordinate on each of them, which is linear too unless a sum of steps carries from an axis into the
next. The first element and its neighbour on each axis of the view determine all changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

__all__ = ["CoordinateSteps", "coordinate_steps", "groups_without_carry"]

Box = Sequence[tuple[int, int]]


class CoordinateSteps(NamedTuple):
    """Coordinates on axes of some sizes, over the elements of a `box`: those of its first element,
    and for each axis of the box the change of each coordinate per step.
    """

    box: Box
    origin: list[int]
    changes: list[list[int]]

    def reach(self, axis: int) -> list[int]:
        """How far each axis of the box moves the coordinate on `axis`."""
        return [
            change[axis] * (high - low - 1)
            for change, (low, high) in zip(self.changes, self.box, strict=True)
        ]

    def bounds(self, axis: int) -> tuple[int, int]:
        """The least and the greatest coordinate on `axis`."""
        reach, first = self.reach(axis), self.origin[axis]
        return first + sum(min(step, 0) for step in reach), first + sum(
            max(step, 0) for step in reach
        )

    def carries(self, sizes: Sequence[int]) -> list[int]:
        """The axes that the sums of steps leave: their coordinates are not what the steps say."""
        found = [(axis, self.bounds(axis)) for axis in range(len(sizes))]
        return [axis for axis, (least, most) in found if least < 0 or most >= sizes[axis]]


def coordinate_steps(
    sizes: Sequence[int], offset: int, strides: Sequence[int], box: Box
) -> CoordinateSteps:
    """The coordinates on axes of `sizes` of the positions offset + sum(strides * index)."""
    corner = offset + sum(low * step for (low, _), step in zip(box, strides, strict=True))
    origin = _coordinates(corner, sizes)
    changes: list[list[int]] = []
    for (low, high), step in zip(box, strides, strict=True):
        beside = _coordinates(corner + step, sizes) if high - low > 1 else origin
        changes.append([b - a for a, b in zip(origin, beside, strict=True)])
    return CoordinateSteps(box, origin, changes)


def groups_without_carry(
    sizes: Sequence[int], offset: int, strides: Sequence[int], box: Box
) -> tuple[list[list[int]], CoordinateSteps] | None:
    """Consecutive axes of `sizes` in groups, as many as there can be so that no position carries
    from one into the next, and the coordinates on axes of the groups' sizes. None where a position
    is outside of them all.
    """
    groups = [[axis] for axis in range(len(sizes))]
    while groups:
        of_groups = [prod(sizes[axis] for axis in group) for group in groups]
        steps = coordinate_steps(of_groups, offset, strides, box)
        carries = steps.carries(of_groups)
        if not carries:
            return groups, steps
        # From the fast end: a carry there changes the coordinate before it.
        last = carries[-1]
        if last == 0:
            return None
        groups[last - 1 : last + 1] = [groups[last - 1] + groups[last]]
    return None


def _coordinates(position: int, sizes: Sequence[int]) -> list[int]:
    """The row-major `position` as a coordinate on each axis; the first one has the overflow."""
    found: list[int] = []
    for size in reversed(sizes[1:]):
        position, coordinate = divmod(position, size)
        found.append(coordinate)
    return [position, *reversed(found)] if sizes else []
