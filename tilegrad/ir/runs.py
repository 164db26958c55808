"""Corresponding axes of two shapes with the same elements: the axes that a reshape mixes."""

from __future__ import annotations

from typing import Any

__all__ = ["runs_of"]


def runs_of(old: tuple[Any, ...], new: tuple[Any, ...]) -> list[tuple[list[int], list[int]]]:
    """Corresponding groups of axes of two shapes with the same elements, as short as their products
    allow.

    An index stays within its group, so a reshape of some axes leaves the others alone. Axes of size
    1 are in no group. A symbolic size that is in both shapes is a group; the axes between different
    symbolic sizes form one.
    """
    ours = [axis for axis, size in enumerate(old) if size != 1]
    theirs = [axis for axis, size in enumerate(new) if size != 1]
    if 0 in [size for size in (*old, *new) if isinstance(size, int)]:
        return [(ours, theirs)]
    runs = _runs(old, new, ours, theirs)
    if ours or theirs:
        ours.reverse()
        theirs.reverse()
        runs += [(left[::-1], right[::-1]) for left, right in _runs(old, new, ours, theirs)]
    if ours or theirs:
        runs.append((ours[::-1], theirs[::-1]))
    return runs


def _runs(
    old: tuple[Any, ...], new: tuple[Any, ...], ours: list[int], theirs: list[int]
) -> list[tuple[list[int], list[int]]]:
    """The shortest groups from the front of both lists of axes, which are removed from the lists;
    up to symbolic sizes that differ.
    """
    runs: list[tuple[list[int], list[int]]] = []
    while ours and theirs:
        left = right = 1
        inside, outside = old[ours[0]], new[theirs[0]]
        while inside is not outside and inside != outside:
            if not isinstance(inside, int) or not isinstance(outside, int):
                return runs
            if inside < outside:
                if left == len(ours):
                    return runs
                inside, left = _times(inside, old[ours[left]]), left + 1
            else:
                if right == len(theirs):
                    return runs
                outside, right = _times(outside, new[theirs[right]]), right + 1
        runs.append((ours[:left], theirs[:right]))
        del ours[:left], theirs[:right]
    return runs


def _times(size: int, other: Any) -> Any:
    """The product, or None for one that is not a number."""
    return size * other if isinstance(other, int) else None
