"""Views in a chain: movement that a single `View` cannot express.

The positions that each view gives are the row-major elements of the one before. A movement op
changes the last view; a second one is added only where that cannot be, and merged as soon as it
can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilegrad.base.dtype import dtypes
from tilegrad.ir.coordinates import CoordinateSteps, groups_without_carry
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.rules import simplify, simplify_under, terms_of
from tilegrad.ir.sizes import Sizes, as_node, tidy
from tilegrad.ir.text import render
from tilegrad.ir.uop import UOp, sint
from tilegrad.ir.view import View, fit_axes

__all__ = ["ShapeTracker"]

_TRUE = UOp.const(dtypes.bool, True)


@dataclass(frozen=True)
class ShapeTracker:
    """A chain of views, the one nearest to memory first; shape and size are those of the last."""

    views: tuple[View, ...]

    @staticmethod
    def from_shape(shape: Sequence[sint]) -> ShapeTracker:
        """All elements of memory of `shape`, in order."""
        return ShapeTracker((View.create(tuple(shape)),))

    @property
    def shape(self) -> Sizes:
        return self.views[-1].shape

    @property
    def size(self) -> sint:
        """The number of elements."""
        return self.views[-1].size

    @property
    def contiguous(self) -> bool:
        """Whether there is one view, and it is contiguous."""
        return len(self.views) == 1 and self.views[0].contiguous

    def _moved(self, view: View) -> ShapeTracker:
        """With another last view; the others are in their simplest form."""
        views = list(self.views[:-1])
        while views and (merged := views[-1].merge(view)) is not None:
            view = merged
            views.pop()
        return ShapeTracker((*views, view))

    def permute(self, axes: Sequence[int]) -> ShapeTracker:
        """Axis i of the result is axis `axes[i]`."""
        return self._moved(self.views[-1].permute(axes))

    def expand(self, shape: Sequence[sint]) -> ShapeTracker:
        """Axes of size 1 repeated up to `shape`."""
        return self._moved(self.views[-1].expand(shape))

    def pad(self, padding: Sequence[tuple[sint, sint]]) -> ShapeTracker:
        """`padding[i]` is the number of elements (before, after) on axis i."""
        return self._moved(self.views[-1].pad(padding))

    def shrink(self, bounds: Sequence[tuple[sint, sint]]) -> ShapeTracker:
        """`bounds[i]` is (first, past the last) on axis i."""
        return self._moved(self.views[-1].shrink(bounds))

    def flip(self, axes: Sequence[bool]) -> ShapeTracker:
        """Axes reversed where `axes[i]` is true."""
        return self._moved(self.views[-1].flip(axes))

    def reshape(self, shape: Sequence[sint]) -> ShapeTracker:
        """The same elements in the same order under another shape."""
        view = self.views[-1].reshape(shape)
        if view is not None:
            return self._moved(view)
        return ShapeTracker((*self.views, View.create(tuple(shape))))

    def __add__(self, other: ShapeTracker) -> ShapeTracker:
        """`other`, whose positions are the elements of this one."""
        return ShapeTracker(self.views + other.views).simplify()

    def simplify(self) -> ShapeTracker:
        """The same with consecutive views merged wherever one is enough."""
        views = list(self.views)
        at = len(views) - 2
        while at >= 0:
            merged = views[at].merge(views[at + 1])
            if merged is None:
                at -= 1
                continue
            views[at : at + 2] = [merged]
            at = min(at, len(views) - 2)
        return self if len(views) == len(self.views) else ShapeTracker(tuple(views))

    def to_indexed_uops(self, idxs: Sequence[UOp] | None = None) -> tuple[UOp, UOp]:
        """The memory position of the element at `idxs`, and whether it is valid.

        `idxs` None makes a range per axis, which prints as `ridx0`, `ridx1`... The position has no
        meaning where the second node is false.

        Raises ShapeError if `idxs` are not one per axis.
        """
        if idxs is None:
            idxs = [UOp.range(size, axis, Axis.LOOP) for axis, size in enumerate(self.shape)]
        index = [simplify(coordinate) for coordinate in fit_axes("index", self.shape, idxs)]
        above = self.views[-1]
        position, valid = above.to_indexed_uops(index, _TRUE)
        for view in reversed(self.views[:-1]):
            below, index = _index_below(view, above, position, index)
            # Inner axes first: a flat position is decomposed from its fast end.
            backward = View(
                below.shape[::-1],
                below.strides[::-1],
                below.offset,
                below.mask and below.mask[::-1],
            )
            position, inside = backward.to_indexed_uops(index[::-1], _TRUE)
            valid = simplify(valid & (inside if valid is _TRUE else simplify_under(inside, valid)))
            above = below
        return (position if valid.op is Ops.CONST else simplify_under(position, valid)), valid

    def real_strides(self) -> tuple[sint | None, ...]:
        """The stride of each axis in memory; None where it varies."""
        if len(self.views) == 1:
            return self.views[0].strides
        ranges = [UOp.range(size, axis, Axis.LOOP) for axis, size in enumerate(self.shape)]
        found = terms_of(self.to_indexed_uops(ranges)[0])
        if found is None:
            return (None,) * len(ranges)
        tangled = {
            node for factor in found[0] if factor.op is not Ops.RANGE for node in factor.toposort()
        }
        sizes = zip(ranges, self.shape)
        return tuple(
            None if loop in tangled else 0 if size == 1 else found[0].get(loop, 0)
            for loop, size in sizes
        )

    @property
    def expr(self) -> str:
        """The position as text, with its condition."""
        position, valid = self.to_indexed_uops()
        return render(position) if valid is _TRUE else f"{render(position)} if {render(valid)}"


def _index_below(
    view: View, above: View, position: UOp, index: Sequence[UOp]
) -> tuple[View, list[UOp]]:
    """`view`, perhaps on fewer axes, and the index in it of the element of `above` at `index`; its
    `position` there numbers the elements of `view`. Right where `above` is valid.

    A position is divided by sizes only where it carries from one axis into another: the bounds of
    what is valid say so, which a division of the whole position would not know of.
    """
    whole = view.minify()
    found = [_grouped(each, above) for each in (view, whole)]
    if found[0] is None or found[1] is None:
        return whole, _divided(position, whole.shape)
    below, (groups, steps) = (view, found[0])
    if len(view.shape) - len(groups) > len(whole.shape) - len(found[1][0]):
        below, (groups, steps) = whole, found[1]
    inner: list[UOp] = []
    for number, group in enumerate(groups):
        at = as_node(steps.origin[number])
        for coordinate, change, (low, _) in zip(index, steps.changes, steps.box, strict=True):
            if change[number]:
                at = at + (coordinate - low) * change[number]
        inner += _divided(simplify(at), [below.shape[axis] for axis in group])
    return below, inner


def _grouped(view: View, above: View) -> tuple[list[list[int]], CoordinateSteps] | None:
    """The axes of `view` that positions of `above` carry between, in groups."""
    bounds = (value for pair in above.box for value in pair)
    numbers: Any = (above.offset, *above.strides, *bounds, *view.shape)
    if not all(isinstance(value, int) for value in numbers) or 0 in view.shape:
        return None
    return groups_without_carry(view.shape, above.offset, above.strides, above.box)  # type: ignore[arg-type]


def _divided(position: UOp, shape: Sequence[sint]) -> list[UOp]:
    """The index in `shape` of the row-major `position`."""
    index: list[UOp] = []
    step: Any = 1
    for axis, size in reversed(list(enumerate(shape))):
        coordinate = position // as_node(step)
        index.append(simplify(coordinate if axis == 0 else coordinate % as_node(size)))
        step = tidy(step * size)
    return index[::-1]
