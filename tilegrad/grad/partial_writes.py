"""Writes to a slice of memory as a select: the new values in the slice, else the old ones."""

from __future__ import annotations

from tilegrad.grad.rules import DERIVATIVES
from tilegrad.ir.movement import fill
from tilegrad.ir.uop import UOp

__all__ = ["partly_written", "spread", "where_written"]


def spread(x: UOp, view: UOp, memory: UOp) -> UOp:
    """`x`, which has the shape of a view of `memory`, at the elements of the view, and
    zeros around.
    """
    while view is not memory:
        (gathered,) = DERIVATIVES[view.op](view, x)
        assert gathered is not None
        x, view = gathered, view.src[0]
    return x


def where_written(view: UOp, memory: UOp) -> UOp:
    """A mask over `memory` of the elements of a view."""
    return spread(fill(view.shape, 1, memory.dtype), view, memory).ne(0)


def partly_written(after: UOp, old: UOp, new: UOp) -> UOp:
    """The AFTER node `after`, of the values `old` before and `new` where it writes."""
    memory, assign = after.src
    view = assign.src[0]
    return where_written(view, memory).where(spread(new, view, memory), old)
