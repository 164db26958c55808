"""Slices of axes with a step of 1: shrink and narrow, and whether symbolic bounds are inside."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Self

from tilegrad.base.errors import ShapeError
from tilegrad.engine.run.run import current_recording
from tilegrad.ir.op import Ops
from tilegrad.ir.sizes import highest, number_at
from tilegrad.ir.uop import UOp, sint
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.handle.core import describe
from tilegrad.tensor.handle.size_arguments import (
    NO_VARIABLES,
    Variables,
    are_plain,
    as_axis,
    as_size,
    is_zero,
    merge,
    same,
    show_shape,
    simple,
)  # fmt: skip
from tilegrad.tensor.views.changing_picks import viewed_at
from tilegrad.tensor.views.movement_methods import Movement

__all__ = ["Shrinking", "is_inside"]


Bounds = tuple[sint, sint]


class Shrinking(Movement):
    """Slices of axes."""

    __slots__ = ()

    @templated
    def shrink(self, arg: Sequence[tuple[sint, sint] | None]) -> Self:
        """Take a rectangular slice.

        Args:
            arg: (start, end) for each axis, or None for all of it.

        Returns a view in this dtype of shape (end - start, ...).

        Raises ShapeError if the slice reaches outside, or for another number of axes.

        >>> Tensor([[1, 2], [3, 4]]).shrink(((0, 2), (1, 2))).tolist()
        [[2], [4]]
        """
        if len(arg) != self.ndim:
            raise ShapeError(f"shrink: {len(arg)} windows for {self.ndim} axes")
        bounds: list[Bounds] = []
        variables = NO_VARIABLES
        for axis, (span, size) in enumerate(zip(arg, self.shape)):
            if span is None:
                bounds.append((0, size))
                continue
            start, first = as_size("shrink", span[0])
            end, second = as_size("shrink", span[1])
            variables = merge(merge(variables, first), second)
            if (
                highest(start) < 0
                or highest(simple(end - start)) < 0
                or highest(simple(size - end)) < 0
            ):
                raise ShapeError(
                    f"shrink: slice ({_show(start)}, {_show(end)}) of axis {axis} is not "
                    f"inside its size {_show(size)}",
                    tensor=describe(self.uop),
                    rule="0 <= start <= end <= size",
                )
            if variables or self._variables:
                self._check_slice(axis, start, end, merge(self._variables, variables))
            bounds.append((start, end))
        is_whole = all(
            is_zero(start) and same(end, size) for (start, end), size in zip(bounds, self.shape)
        )
        return (self if is_whole else self._moved(Ops.SHRINK, tuple(bounds)))._holding(variables)

    def _check_slice(self, axis: int, start: sint, end: sint, values: Variables) -> None:
        """Raise ShapeError if a slice lies outside for the `values` of its variables. One that
        would for other values is written down in a capture, which is replayed with others.
        """
        spanned = start, end, self.shape[axis]
        symbolic = [each for each in spanned if isinstance(each, UOp)]
        involved = {
            node for each in symbolic for node in each.toposort() if node.op is Ops.DEFINE_VAR
        }
        if not involved:
            return
        if involved <= values.keys() and not is_inside(spanned, values):
            where = ", ".join(f"{each.name} = {values[each]}" for each in involved)
            raise ShapeError(
                f"shrink: slice ({_show(start)}, {_show(end)}) of axis {axis} is not "
                f"inside its size {_show(self.shape[axis])} where {where}",
                tensor=describe(self.uop),
                rule="0 <= start <= end <= size, for the bound value of a variable",
                remedy="bind a value that fits, or give the tensor more memory",
            )
        record = current_recording()
        if record is not None and not _is_always_inside(spanned, involved):
            record.slices.append(spanned)

    def _slice(self, axis: int, start: sint, end: sint) -> Self:
        shape = self.shape
        if are_plain((start, end, *shape)) and start <= end <= shape[axis]:
            if end - start == shape[axis]:
                return self
            bounds: list[Bounds] = [(0, size) for size in shape]
            bounds[axis] = start, end
            return self._moved(Ops.SHRINK, tuple(bounds))
        return self.shrink([(start, end) if other == axis else None for other in range(self.ndim)])

    def narrow(self, dim: int, start: sint, length: sint) -> Self:
        """Take `length` elements along an axis.

        Args:
            dim: the axis; a negative one counts from the last.
            start: the first one.
            length: how many.

        Returns a view in this dtype with size `length` along the axis.

        Raises IndexBoundsError for an axis that is out of range, ShapeError if the slice reaches
        outside.

        >>> Tensor([1, 2, 3, 4]).narrow(0, 1, 2).tolist()
        [2, 3]
        """
        axis = as_axis("narrow", dim, self.ndim)
        if start.__class__ is int and length.__class__ is int and start >= 0:
            key = (*[slice(None)] * axis, slice(start, start + length))
            view: Self | None = viewed_at(self, key)
            if view is not None and view.shape[axis] == length:
                return view
            size = self.shape[axis]
            if self._call is not None and size.__class__ is int and 0 < length <= size - start:
                waiting: Any = self
                cut: Self = waiting[key]
                return cut
        return self._slice(axis, start, start + length)


def is_inside(spanned: tuple[sint, sint, sint], values: Variables) -> bool:
    """Whether a slice, as its start, its end and the size of its axis, lies inside where variables
    have `values`.
    """
    first, last, most = [number_at(each, values) for each in spanned]
    return 0 <= first <= last <= most


def _is_always_inside(spanned: tuple[sint, sint, sint], variables: Collection[UOp]) -> bool:
    """Whether a slice is known to lie inside for all values of its variables."""
    if len(variables) == 1:
        # An index that is linear in one variable is inside between two values where it is.
        (variable,) = variables
        return all(is_inside(spanned, {variable: value}) for value in variable.arg[1:])
    start, end, size = spanned
    distances: list[Any] = [start, simple(end - start), simple(size - end)]
    return all((each if isinstance(each, int) else each.vmin) >= 0 for each in distances)


def _show(size: sint) -> str:
    return show_shape((size,))[1:-2]
