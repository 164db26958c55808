"""Values below movement ops and casts, and which of their axes the axes of a value above are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, prod

__all__ = ["AlignedView", "contiguous_axis", "views_below"]


class AlignedView(NamedTuple):
    """A node below movement ops, and the axes of it that axes of the value above run along, each
    whole and in order.
    """

    memory: UOp
    axes: Mapping[int, int]

    @property
    def innermost(self) -> list[int]:
        """The axes above that run along the last one here."""
        return [axis for axis, at in self.axes.items() if at == len(self.memory.shape) - 1]


def views_below(value: UOp, axes: Mapping[int, int] | None = None) -> list[AlignedView]:
    """`value` and the nodes below it as long as they move or cast values, the lowest last; `axes`
    are those of `value`, all of them by default.
    """
    if axes is None:
        axes = {axis: axis for axis, size in enumerate(value.shape) if size != 1}
    views = [AlignedView(value, axes)]
    while value.op.is_movement or (value.op is Ops.CAST and value.dtype.is_float):
        found = {axis: axis_below(value, at) for axis, at in views[-1].axes.items()}
        value = value.src[0]
        views.append(AlignedView(value, {axis: at for axis, at in found.items() if at is not None}))
    return views


def contiguous_axis(value: UOp) -> int:
    """The axis of `value` along which neighbours are neighbours in memory; of a product, those of
    the larger factor. The last one that is
    longer than 1 where that is not known.
    """
    above = views_below(value)
    views = [above]
    if above[-1].memory.op is Ops.MUL:
        views = [views_below(source, above[-1].axes) for source in above[-1].memory.src]
        views.sort(key=lambda each: -prod(each[-1].memory.shape))
    found = [axis for view in reversed(views[0]) for axis in view.innermost]
    long = [axis for axis, size in enumerate(value.shape) if size != 1]
    return next(iter(found), long[-1] if long else 0)


def axis_below(node: UOp, axis: int) -> int | None:
    """The axis of a movement op's or cast's source that `axis` is, whole and in order, or None."""
    source, size = node.src[0], node.shape[axis]
    if node.op is Ops.CAST:
        return axis
    if node.op is Ops.PERMUTE:
        return int(node.arg[axis])
    if node.op is Ops.RESHAPE:
        before = prod(node.shape[:axis])
        for at, other in enumerate(source.shape):
            if other == size and prod(source.shape[:at]) == before:
                return at
        return None
    if node.op is Ops.FLIP and node.arg[axis]:
        return None
    return axis if source.shape[axis] == size else None
