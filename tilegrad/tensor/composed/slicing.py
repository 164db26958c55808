"""Slices of tensors, taken, and written as a new tensor, under PyTorch's names."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, Self, cast

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import ShapeError
from tilegrad.base.origin import composed
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.composed.layouts import Layouts
from tilegrad.tensor.handle.aliases import valued
from tilegrad.tensor.handle.core import Core, describe
from tilegrad.tensor.handle.size_arguments import as_axis, as_int, is_of_number, show_shape

__all__ = ["Slicing"]


class Slicing(Layouts):
    """Cutting and picking, and writing to a slice."""

    __slots__ = ()

    def select(self, dim: int, index: int) -> Self:
        """Take the slice at `index` along an axis, without that axis.

        Args:
            dim: the axis; a negative one counts from the last.
            index: position along it; a negative one counts from the end.

        Returns a view in this dtype with one axis less.

        Raises IndexBoundsError for an axis or an index that is out of range.

        >>> Tensor([[1, 2], [3, 4]]).select(1, 0).tolist()
        [1, 3]
        """
        axis = as_axis("select", dim, self.ndim)
        return self[(*[slice(None)] * axis, index)]

    def tensor_split(
        self, indices_or_sections: int | Sequence[int], dim: int = 0
    ) -> tuple[Self, ...]:
        """Split along an axis into slices of nearly equal size, or at given positions.

        Args:
            indices_or_sections: a number of slices, the first ones larger by one; or the positions
                where to cut.
            dim: the axis; a negative one counts from the last.

        Returns a tuple of tensors of this dtype.

        Raises ShapeError for less than one slice, IndexBoundsError for an axis that is out of
        range.

        >>> [each.shape[0] for each in Tensor.zeros(7).tensor_split(3)]
        [3, 2, 2]
        """
        axis = as_axis("tensor_split", dim, self.ndim)
        size = self._length(axis)
        # A tensor without axes holds a number of slices.
        is_number = getattr(indices_or_sections, "ndim", None) == 0
        if isinstance(indices_or_sections, Iterable) and not is_number:
            given = [as_int("tensor_split", "a position", cut) for cut in indices_or_sections]
            cuts = [0, *(min(cut + size * (cut < 0), size) for cut in given), size]
            return tuple(
                self.narrow(axis, start, max(end - start, 0))
                for start, end in itertools.pairwise(cuts)
            )
        count = as_int("tensor_split", "indices_or_sections", indices_or_sections)
        if count < 1:
            raise ShapeError(f"tensor_split: {count} pieces", allowed="1 or more")
        return self.split([size // count + (at < size % count) for at in range(count)], axis)

    def hsplit(self, indices_or_sections: int | Sequence[int]) -> tuple[Self, ...]:
        """Split the columns (axis 1; a vector along axis 0) as `tensor_split` does.

        Args:
            indices_or_sections: a number of slices, or the positions where to cut.

        Returns a tuple of tensors of this dtype.

        Raises ShapeError for less than one slice, IndexBoundsError for a number without axes.

        >>> [each.tolist() for each in Tensor([1, 2, 3]).hsplit(2)]
        [[1, 2], [3]]
        """
        return self.tensor_split(indices_or_sections, 1 if self.ndim > 1 else 0)

    def vsplit(self, indices_or_sections: int | Sequence[int]) -> tuple[Self, ...]:
        """Split the rows (axis 0) as `tensor_split` does.

        Args:
            indices_or_sections: a number of slices, or the positions where to cut.

        Returns a tuple of tensors of this dtype.

        Raises ShapeError for less than one slice, IndexBoundsError for no axes.

        >>> [each.tolist() for each in Tensor([[1], [2]]).vsplit(2)]
        [[[1]], [[2]]]
        """
        return self.tensor_split(indices_or_sections, 0)

    def dsplit(self, indices_or_sections: int | Sequence[int]) -> tuple[Self, ...]:
        """Split the third axis as `tensor_split` does.

        Args:
            indices_or_sections: a number of slices, or the positions where to cut.

        Returns a tuple of tensors of this dtype.

        Raises ShapeError for less than one slice, IndexBoundsError for less than three axes.

        >>> [each.shape for each in Tensor.zeros(1, 1, 5).dsplit([2])]
        [(1, 1, 2), (1, 1, 3)]
        """
        return self.tensor_split(indices_or_sections, 2)

    @templated
    @composed
    def take_along_dim(self, indices: Self, dim: int | None = None) -> Self:
        """Take elements by index along an axis, as `gather`, with indices that broadcast beside it.

        Args:
            indices: integers with as many axes as this tensor.
            dim: the axis, or None for the flat tensor.

        Returns a tensor of this dtype, of the broadcast shape with the size of `indices` along
        `dim`.

        Raises DTypeError unless `indices` is integer, ShapeError unless the other sizes broadcast,
        IndexBoundsError for an axis that is out of range.

        >>> x = Tensor([[3, 1], [2, 5]])
        >>> x.take_along_dim(x.argsort(1), 1).tolist()
        [[1, 3], [2, 5]]
        """
        if dim is None:
            return self.flatten().gather(0, indices.flatten())
        axis = as_axis("take_along_dim", dim, self.ndim)
        shape = [
            max(mine, theirs) if number != axis else theirs
            for number, (mine, theirs) in enumerate(zip(self._sizes, indices._sizes))
        ]
        whole = [n if number != axis else self._length(axis) for number, n in enumerate(shape)]
        return self.expand(whole).gather(axis, indices.expand(shape))

    def argwhere(self) -> Self:
        """As `nonzero`.

        Returns int32 indices of shape (count, ndim); the count is computed now.

        >>> Tensor([0, 7]).argwhere().tolist()
        [[1]]
        """
        found: Self = self.nonzero()
        return found

    def msort(self) -> Self:
        """Sort along the first axis, the smallest first.

        Returns a tensor of this shape and dtype.

        >>> Tensor([3, 1, 2]).msort().tolist()
        [1, 2, 3]
        """
        return self.sort(0).values

    def _index_of_axis(
        self, name: str, dim: int, index: Self, shape: Sequence[int]
    ) -> tuple[int, Self]:
        """The axis, and the vector `index` along it as one index for each element of `shape`."""
        axis = as_axis(name, dim, self.ndim)
        if index.ndim > 1 or len(shape) != self.ndim or index.numel() != shape[axis]:
            raise ShapeError(
                f"{name}: an index of {show_shape(index.shape)} along axis {axis} does not go with "
                f"a source of {show_shape(tuple(shape))}",
                tensor=describe(self.uop),
                rule="an index for each slice of the source",
            )
        sides = [shape[axis] if number == axis else 1 for number in range(self.ndim)]
        return axis, index.reshape(sides).expand(tuple(shape))

    @valued
    @composed
    def index_add(self, dim: int, index: Self, source: Self, *, alpha: float = 1) -> Self:
        """Add slices of `alpha * source` at the positions `index` along an axis; a position that
        occurs twice takes both.

        Args:
            dim: the axis; a negative one counts from the last.
            index: vector of integers.
            source: slices to add, one for each index, in this tensor's other sizes.
            alpha: factor of `source`.

        Returns a tensor of this shape and dtype.

        Raises ShapeError unless there is one index for each slice, DTypeError unless `index` is
        integer, IndexBoundsError for an axis that is out of range.

        >>> Tensor([1, 2, 3]).index_add(0, Tensor([0, 0]), Tensor([10, 5])).tolist()
        [16, 2, 3]
        """
        if is_of_number(dim, self.ndim):
            one, at = source.reshape(1), index.reshape(1)
            return self._as_row(lambda row: row.index_add(0, at, one, alpha=alpha))
        axis, positions = self._index_of_axis("index_add", dim, index, source._sizes)
        source = source if alpha == 1 else source * alpha
        if not axis:
            return self.scatter_add(0, positions, source)
        # Whole rows, as neighbours of a row are added together.
        rows = source.transpose(0, axis).contiguous()
        return self.transpose(0, axis).index_add(0, index, rows).transpose(0, axis)

    @composed
    def index_copy(self, dim: int, index: Self, source: Self) -> Self:
        """Put the slices of `source` at the positions `index` along an axis.

        Args:
            dim: the axis; a negative one counts from the last.
            index: vector of integers.
            source: slices to write, one for each index.

        Returns a tensor of this shape and dtype.

        Raises ShapeError unless there is one index for each slice, DTypeError unless `index` is
        integer, IndexBoundsError for an axis that is out of range.

        >>> Tensor([1, 2, 3]).index_copy(0, Tensor([2]), Tensor([9])).tolist()
        [1, 2, 9]
        """
        if is_of_number(dim, self.ndim):
            one, at = source.reshape(1), index.reshape(1)
            return self._as_row(lambda row: row.index_copy(0, at, one))
        axis, positions = self._index_of_axis("index_copy", dim, index, source._sizes)
        return self.scatter(axis, positions, source)

    @composed
    def index_fill(self, dim: int, index: Self, value: Any) -> Self:
        """Put `value` into the slices at `index` along an axis.

        Args:
            dim: the axis; a negative one counts from the last.
            index: vector of integers.
            value: a number, or a tensor without axes.

        Returns a tensor of this shape and dtype.

        Raises DTypeError unless `index` is integer, ShapeError unless it is a vector,
        IndexBoundsError for an axis that is out of range.

        >>> Tensor([1, 2, 3]).index_fill(0, Tensor([0, 2]), 9).tolist()
        [9, 2, 9]
        """
        if is_of_number(dim, self.ndim):
            return self._as_row(lambda row: row.index_fill(0, index, value))
        axis = as_axis("index_fill", dim, self.ndim)
        shape: list[Any] = list(self._sizes)
        shape[axis] = index.numel()
        axis, positions = self._index_of_axis("index_fill", dim, index, shape)
        if isinstance(value, Core):
            value = cast("Self", value).expand(positions.shape)
        return self.scatter(axis, positions, value)

    @composed
    def select_scatter(self, src: Self, dim: int, index: int) -> Self:
        """Put `src` as the slice at `index` along an axis.

        Args:
            src: this tensor's shape without the axis.
            dim: the axis; a negative one counts from the last.
            index: position along it.

        Returns a tensor of this shape and dtype.

        Raises IndexBoundsError for an axis or an index that is out of range, ShapeError if `src`
        has another shape.

        >>> Tensor([[1, 2], [3, 4]]).select_scatter(Tensor([8, 9]), 1, 0).tolist()
        [[8, 2], [9, 4]]
        """
        axis = as_axis("select_scatter", dim, self.ndim)
        start = self.select(axis, index) is not None and index % self._length(axis)
        return self.slice_scatter(src.unsqueeze(axis), axis, start, start + 1)

    @composed
    def slice_scatter(
        self, src: Self, dim: int = 0, start: int | None = None, end: int | None = None,
        step: int = 1,
    ) -> Self:  # fmt: skip
        """Put `src` at the positions start:end:step along an axis.

        Args:
            src: this tensor's shape, with the number of positions along the axis.
            dim: the axis; a negative one counts from the last.
            start: first position, by default 0.
            end: end, not included, by default the size.
            step: difference of neighbours.

        Returns a tensor of this shape and dtype.

        Raises IndexBoundsError for an axis that is out of range, ShapeError if `src` has another
        shape.

        >>> Tensor([1, 2, 3]).slice_scatter(Tensor([8, 9]), 0, 1).tolist()
        [1, 8, 9]
        """
        axis = as_axis("slice_scatter", dim, self.ndim)
        positions = range(self._length(axis))[start:end:step]
        index = type(self)(list(positions), device=self.device, dtype=dtypes.int32)
        return self.index_copy(axis, index, src)
