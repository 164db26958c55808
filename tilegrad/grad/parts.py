"""Writes to a part of memory, as a choice: the new values where they lie, else the old ones."""

from __future__ import annotations

from tilegrad.grad.rules import DERIVATIVES, filled
from tilegrad.ir.uop import UOp

__all__ = ["spread", "where_written", "with_part"]


def spread(x: UOp, place: UOp, memory: UOp) -> UOp:
    """`x`, in the shape of the view `place` of `memory`, where the view has its elements from, and
    zeros around.
    """
    while place is not memory:
        (part,) = DERIVATIVES[place.op](place, x)
        assert part is not None
        x, place = part, place.src[0]
    return x


def where_written(place: UOp, memory: UOp) -> UOp:
    """Where in `memory` the view `place` lies."""
    return spread(filled(place.shape, 1, memory.dtype), place, memory).ne(0)


def with_part(after: UOp, old: UOp, new: UOp) -> UOp:
    """The AFTER node `after`, of the values `old` before and `new` where it writes."""
    memory, assign = after.src
    place = assign.src[0]
    found: UOp = where_written(place, memory).where(spread(new, place, memory), old)
    return found
