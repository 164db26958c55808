"""Boxes: the slice of memory that a view reads, as the first position and the one behind the last
of each axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tilegrad.ir.op import Ops

__all__ = ["Box", "Move", "box_of"]

Move = tuple[Ops, Any]
"""The op and the argument of a movement node."""

Box = tuple[tuple[int, int], ...]


def box_of(moves: Iterable[Move], sizes: Sequence[int]) -> Box:
    """A box in memory of shape `sizes` that holds all that is seen through `moves`, the lowest
    first. Where they do more than shift, reverse and cut axes, it may be larger than needed.
    """
    box = [(0, size) for size in sizes]
    # For each axis of the view: the axis of the memory that it runs along (None for size 1), and
    # whether it runs from the end.
    axes: list[int | None] = list(range(len(sizes)))
    flipped = [False] * len(sizes)
    shape = list(sizes)
    for op, arg in moves:
        if op is Ops.SHRINK:
            if not all(isinstance(end, int) for ends in arg for end in ends):
                break
            for axis, (start, end), size in zip(axes, arg, shape, strict=True):
                if axis is not None:
                    first = box[axis][0]
                    box[axis] = (
                        (first + size - end, first + size - start)
                        if flipped[axis]
                        else (first + start, first + end)
                    )
            shape = [end - start for start, end in arg]
        elif op is Ops.PERMUTE:
            axes, shape = [axes[at] for at in arg], [shape[at] for at in arg]
        elif op is Ops.FLIP:
            for axis, is_flipped in zip(axes, arg, strict=True):
                if axis is not None and is_flipped:
                    flipped[axis] = not flipped[axis]
        elif op is Ops.RESHAPE and (same := _same_axes(shape, arg)) is not None:
            axes, shape = [None if at is None else axes[at] for at in same], list(arg)
        elif op is not Ops.DETACH:
            break
    return tuple(box)


def _same_axes(before: Sequence[int], after: Sequence[int]) -> list[int | None] | None:
    """For each axis of the shape `after` the one of `before` that it is, or None for a new one of
    size 1; None where a reshape does more than to add and take away axes of size 1.
    """
    same = [axis for axis, size in enumerate(before) if size != 1]
    if [before[axis] for axis in same] != [size for size in after if size != 1]:
        return None
    rest = iter(same)
    return [None if size == 1 else next(rest) for size in after]
