"""Several tensors as one, and one as several: cat, stack, split, repeat, roll.

Tensors to concatenate are padded to the size of the result, and each element of it selects one of
them: the result itself is written, once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, TypeVar, overload

from tilegrad.base.dtype import dtypes
from tilegrad.base.dtype_promotion import promote
from tilegrad.base.errors import ShapeError
from tilegrad.base.origin import composed
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, sint
from tilegrad.tensor.calls.joins import catted, stacked
from tilegrad.tensor.calls.templates import slicing, templated, templated_unless
from tilegrad.tensor.handle.core import check_devices, check_tensors, compute, describe
from tilegrad.tensor.handle.size_arguments import (
    NO_VARIABLES,
    as_axis,
    as_int,
    as_size,
    as_sizes,
    ceil_divide,
    flat_arguments,
    is_zero,
    merge,
    multiply,
    same,
    same_shape,
    show_shape,
    show_size,
    simple,
    sum_of,
)
from tilegrad.tensor.storage.memory import bound
from tilegrad.tensor.views.movement_methods import filled
from tilegrad.tensor.views.shrinking import Shrinking

__all__ = ["Joining"]

Joined = TypeVar("Joined")
Bounds = tuple[sint, sint]

# Parts that one kernel joins at most, and parts of a group where there are more.
_MOST_AT_ONCE = 32
_GROUP = 16


class Joining(Shrinking):
    """Concatenation, splitting and repetition."""

    __slots__ = ()

    # several tensors, one tensor

    @overload
    def cat(self, *others: Self, dim: int = 0) -> Self: ...

    @overload
    def cat(self: Joining | Sequence[Joined], rest: int = 0, /, *, dim: int = 0) -> Joined: ...

    @templated_unless(catted)
    @composed
    def cat(self, *others: Any, dim: int = 0) -> Any:
        """Concatenate this tensor and `others` along an axis. Called on the class it also takes one
        list of them, and `dim` after it.

        Args:
            others: tensors of equal sizes but for the axis.
            dim: the axis; a negative one counts from the last.

        Returns one tensor, in the dtype to which all promote; its size along the axis is the sum.

        Raises ShapeError if the other sizes differ, IndexBoundsError for an axis that is out of
        range.

        >>> Tensor([1, 2]).cat(Tensor([3])).tolist()
        [1, 2, 3]
        >>> Tensor.cat([Tensor([[1]]), Tensor([[2]])], dim=1).tolist()
        [[1, 2]]
        """
        if isinstance(self, (list, tuple)):
            return _joined_list("cat", Joining.cat, self, others, dim)
        check_tensors("cat", self, *others, are_several=True)
        axis = as_axis("cat", dim, self.ndim)
        for number, other in enumerate(others, 2):
            fits = other.ndim == self.ndim and all(
                number == axis or same(a, b)
                for number, (a, b) in enumerate(zip(self.shape, other.shape))
            )
            if not fits:
                raise ShapeError(
                    f"cat: shapes differ beside axis {axis}: {show_shape(self.shape)} and "
                    f"{show_shape(other.shape)}",
                    left=describe(self.uop),
                    right=f"{describe(other.uop)}  argument {number}",
                    rule=f"all sizes are equal but that of axis {axis}, dim= chooses another",
                )
        # An empty part adds nothing, but its dtype counts, and gradients flow to what made it.
        tensors = _of_one_dtype([self, *others])
        full: list[Self] = [
            each for each in tensors if each.requires_grad or not is_zero(each.shape[axis])
        ] or tensors[:1]
        while len(full) > _MOST_AT_ONCE:
            # An element of a kernel asks for each part whether it is there; groups of equal shapes
            # are one kernel, made once.
            groups: list[Any] = [
                _joined(full[at : at + _GROUP], axis) for at in range(0, len(full), _GROUP)
            ]
            full = [group.contiguous() for group in groups]
        whole: Any = _joined(full, axis)
        # The only one is copied in row-major order, as beside others.
        return whole if len(full) > 1 else whole.clone()

    def _beside_empty(self, values: Self) -> Self:
        """This tensor, where `values` without an element were written to it: zeros flow back to
        what these were computed from.
        """
        if not values.requires_grad or values._has_elements():
            return self
        return self.flatten().cat(values.flatten()).reshape(self.shape)

    def _followed_by(self, other: Self, axis: int) -> Self:
        check_devices("cat", [self, other])
        ours, theirs, ndim = self.shape[axis], other.shape[axis], self.ndim

        def shape_of(size: sint, rest: sint | None = None) -> tuple[sint, ...]:
            return tuple(
                size if number == axis else (1 if rest is None else self.shape[number])
                for number in range(ndim)
            )

        def around(before: sint, after: sint) -> tuple[Bounds, ...]:
            return tuple((before, after) if number == axis else (0, 0) for number in range(ndim))

        shape = tuple(
            simple(ours + theirs) if number == axis else size
            for number, size in enumerate(self.shape)
        )
        inside = UOp(
            Ops.PAD, dtypes.bool, (filled(True, dtypes.bool, shape_of(ours)),), around(0, theirs)
        )
        if not same_shape(inside.shape, shape):
            inside = UOp(Ops.EXPAND, dtypes.bool, (inside,), shape)
        first = UOp(Ops.PAD, self.dtype, (self.uop,), around(0, theirs))
        second = UOp(Ops.PAD, other.dtype, (other.uop,), around(ours, 0))
        return self._joined(compute(Ops.WHERE, self.dtype, (inside, first, second)), other)

    @overload
    def stack(self, *others: Self, dim: int = 0) -> Self: ...

    @overload
    def stack(self: Joining | Sequence[Joined], rest: int = 0, /, *, dim: int = 0) -> Joined: ...

    @templated_unless(stacked)
    def stack(self, *others: Any, dim: int = 0) -> Any:
        """Stack this tensor and `others` along a new axis. Called on the class it also takes one
        list of them, and `dim` after it.

        Args:
            others: tensors of this shape.
            dim: position of the new axis in the result.

        Returns one tensor with one axis more, in the dtype to which all promote.

        Raises ShapeError if shapes differ, IndexBoundsError for a position that is out of range.

        >>> Tensor.stack([Tensor([1, 2]), Tensor([3, 4])], dim=1).tolist()
        [[1, 3], [2, 4]]
        """
        if isinstance(self, (list, tuple)):
            return _joined_list("stack", Joining.stack, self, others, dim)
        check_tensors("stack", self, *others, are_several=True)
        for other in others:
            if not same_shape(self.shape, other.shape):
                raise ShapeError(
                    f"stack: shapes differ: {show_shape(self.shape)} and {show_shape(other.shape)}",
                    left=describe(self.uop),
                    right=describe(other.uop),
                    rule="all have one shape; cat joins along an axis that is there",
                )
        axis = as_axis("stack", dim, self.ndim + 1)
        return self.unsqueeze(axis).cat(*[other.unsqueeze(axis) for other in others], dim=axis)

    @slicing
    def split(self, sizes: sint | Sequence[sint], dim: int = 0) -> tuple[Self, ...]:
        """Split along an axis. For a symbolic size the number of slices is that of the bound
        values.

        Args:
            sizes: the size of each slice but the last, which may be smaller, or a list of sizes.
            dim: the axis; a negative one counts from the last.

        Returns a tuple of views in this dtype.

        Raises ShapeError if listed sizes do not add up to the axis, IndexBoundsError for an axis
        that is out of range.

        >>> [each.tolist() for each in Tensor([1, 2, 3]).split([1, 2])]
        [[1], [2, 3]]
        """
        axis = as_axis("split", dim, self.ndim)
        size = self.shape[axis]
        if not isinstance(sizes, (list, tuple)):
            given, variables = as_size("split", sizes)
            return self._holding(variables)._split_by(axis, given)
        lengths, variables = as_sizes("split", sizes)
        if not same(total := sum_of(lengths), size):
            raise ShapeError(
                f"split: {show_shape(lengths)} does not add up to the size {show_size(size)} of "
                f"axis {axis}: {show_size(total)}"
            )
        starts = [sum_of(lengths[:count]) for count in range(len(lengths))]
        x = self._holding(variables)
        return tuple(
            x._slice(axis, start, simple(start + length)) for start, length in zip(starts, lengths)
        )

    def _split_by(self, axis: int, step: sint) -> tuple[Self, ...]:
        """Slices of `step` elements; the last may be smaller. Bound values say how many."""
        size = self.shape[axis]
        length, whole = [bound(each, self._variables) for each in (step, size)]
        if length <= 0:
            raise ShapeError(
                f"split: slices of {length} elements of {show_shape(self.shape)}",
                tensor=describe(self.uop),
                rule="one element or more, or a list of sizes",
            )
        count = max(-(-whole // length), 1)
        ends = [simple(step * number) for number in range(count)]
        return tuple(self._slice(axis, start, end) for start, end in zip(ends, [*ends[1:], size]))

    @slicing
    def chunk(self, chunks: sint, dim: int = 0) -> tuple[Self, ...]:
        """Split along an axis into at most `chunks` slices of equal size; the last may be smaller.
        An axis without elements gives as many slices as asked for.

        Args:
            chunks: number of slices; of a symbolic one the bound value counts.
            dim: the axis; a negative one counts from the last.

        Returns a tuple of views in this dtype.

        Raises ShapeError for less than one chunk, IndexBoundsError for an axis that is out of
        range.

        >>> [each.tolist() for each in Tensor([1, 2, 3]).chunk(2)]
        [[1, 2], [3]]
        """
        axis = as_axis("chunk", dim, self.ndim)
        given, variables = as_size("chunk", chunks)
        x = self._holding(variables)
        if (count := bound(given, x._variables)) <= 0:
            raise ShapeError(
                f"chunk: {count} pieces of {show_shape(self.shape)}",
                tensor=describe(self.uop),
                rule="one slice or more",
            )
        step = ceil_divide(self.shape[axis], given)
        if is_zero(step):
            return tuple(x._slice(axis, 0, 0) for _ in range(count))
        return x._split_by(axis, step)

    @slicing
    def unbind(self, dim: int = 0) -> tuple[Self, ...]:
        """Slices along an axis, without it.

        Args:
            dim: the axis; a negative one counts from the last.

        Returns a tuple of views in this dtype, as many as the axis is long.

        Raises IndexBoundsError for an axis that is out of range.

        >>> [row.tolist() for row in Tensor([[1, 2], [3, 4]]).unbind()]
        [[1, 2], [3, 4]]
        """
        axis = as_axis("unbind", dim, self.ndim)
        rest = (*self.shape[:axis], *self.shape[axis + 1 :])
        return tuple(
            self._slice(axis, at, at + 1)._with_ones(rest) for at in range(self._length(axis))
        )

    # repetition

    def repeat(self, *counts: Any, repeats: Any = None) -> Self:
        """Repeat the whole tensor along each axis.

        Args:
            counts: how often, for each axis, one by one or as one tuple; new axes stand in front.
            repeats: the same by keyword.

        Returns a tensor of this dtype; the sizes are multiplied.

        Raises ShapeError for fewer counts than axes, or a negative one.

        >>> Tensor([1, 2]).repeat(2, 2).tolist()
        [[1, 2, 1, 2], [1, 2, 1, 2]]
        """
        given = flat_arguments(counts if repeats is None else (repeats,))
        times, variables = as_sizes("repeat", given)
        lead = len(times) - self.ndim
        if lead < 0:
            raise ShapeError(f"repeat: {len(times)} counts for {self.ndim} axes")
        ours = (1,) * lead + self.shape
        split = [each for size in ours for each in (1, size)]
        wide = [each for count, size in zip(times, ours) for each in (count, size)]
        whole = [multiply(pair) for pair in zip(times, ours)]
        made = self.reshape(split).expand(wide).reshape(whole)._holding(variables)
        return self._copy_of(made)

    def repeat_interleave(self, repeats: int, dim: int | None = None) -> Self:
        """Repeat each element, next to each other, along an axis.

        Args:
            repeats: how often.
            dim: the axis, or None for the flat tensor.

        Returns a tensor of this dtype; the size along the axis is multiplied.

        Raises IndexBoundsError for an axis that is out of range.

        >>> Tensor([1, 2]).repeat_interleave(2).tolist()
        [1, 1, 2, 2]
        """
        x = self.flatten() if dim is None else self
        axis = as_axis("repeat_interleave", 0 if dim is None else dim, x.ndim)
        before, size, after = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
        wide = x.reshape(*before, size, 1, *after).expand(*before, size, repeats, *after)
        return self._copy_of(wide.reshape(*before, multiply((size, repeats)), *after))

    @templated
    def roll(self, shifts: sint | Sequence[sint], dims: int | Sequence[int] | None = None) -> Self:
        """Rotate elements along axes: what leaves at the end enters in front.

        Args:
            shifts: number of positions, one for each axis.
            dims: the axes, or None for the flat tensor.

        Returns a tensor of this shape and dtype.

        Raises ShapeError for another number of shifts than axes, IndexBoundsError for an axis that
        is out of range.

        >>> Tensor([1, 2, 3]).roll(1, 0).tolist()
        [3, 1, 2]
        """
        if dims is None:
            return self.flatten().roll(shifts, 0).reshape(self.shape)
        given: Any = shifts if isinstance(shifts, (list, tuple)) else [shifts]
        steps: list[sint] = []
        variables = NO_VARIABLES
        for step in given:
            number, found = (
                as_size("roll", step)
                if isinstance(step, UOp)
                else (as_int("roll", "a shift", step), NO_VARIABLES)
            )
            steps.append(number)
            variables = merge(variables, found)
        axes = [
            as_axis("roll", dim, self.ndim) for dim in ([dims] if isinstance(dims, int) else dims)
        ]
        if len(steps) != len(axes):
            raise ShapeError(f"roll: {len(steps)} shifts for {len(axes)} axes")
        x = self._holding(variables)
        for step, axis in zip(steps, axes):
            size: Any = x.shape[axis]
            if isinstance(step, UOp) or isinstance(size, UOp):
                cut = simple(size - simple(step % size))
                x = x._slice(axis, cut, size)._followed_by(x._slice(axis, 0, cut), axis)
            elif size and step % size:
                cut = size - step % size
                if axis == x.ndim - 1:
                    # Neighbours of each part are neighbours in a vector.
                    x = x._slice(axis, cut, size)._followed_by(x._slice(axis, 0, cut), axis)
                else:
                    twice = x.repeat([2 if number == axis else 1 for number in range(x.ndim)])
                    x = twice._slice(axis, cut, size + cut)
        return self._copy_of(x)

    # diagonals


def _joined(tensors: list[Any], axis: int) -> Any:
    """Parts one after the other, as a tree of pairs."""
    while len(tensors) > 1:
        tensors = [
            tensors[at]._followed_by(tensors[at + 1], axis)
            if at + 1 < len(tensors)
            else tensors[at]
            for at in range(0, len(tensors), 2)
        ]
    return tensors[0]


def _of_one_dtype(tensors: list[Any]) -> list[Any]:
    dtype = tensors[0].dtype
    for each in tensors[1:]:
        dtype = promote(dtype, each.dtype)
    return [each.cast(dtype) for each in tensors]


def _joined_list(name: str, join: Any, tensors: Any, rest: tuple[Any, ...], dim: int) -> Any:
    """`join` of a list of tensors, behind which `dim` may stand."""
    check_tensors(name, *tensors)
    if not tensors:
        raise ShapeError(f"{name}: there is no tensor in the list")
    return join(*tensors, dim=rest[0] if rest else dim)
