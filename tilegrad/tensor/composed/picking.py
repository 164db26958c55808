"""Writing to positions that tensors name, and picking runs, modes and windows, as new tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import DTypeError, IndexBoundsError, ShapeError
from tilegrad.base.origin import composed
from tilegrad.ir.op import Ops
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.composed.integers_and_floats import Numbers
from tilegrad.tensor.handle.aliases import valued
from tilegrad.tensor.handle.core import describe
from tilegrad.tensor.handle.pairs import Ranked
from tilegrad.tensor.handle.size_arguments import as_axis, index_dtype, is_of_number, show_shape

__all__ = ["Picking"]


class Picking(Numbers):
    """Places named by tensors."""

    __slots__ = ()

    # writing

    @composed
    def index_put(self, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Self:
        """Put `values` at the positions `self[indices]`, as `x[indices] = values` writes them.

        Args:
            indices: a tuple of indices, as in brackets.
            values: a number, or a tensor that broadcasts to what `indices` pick.
            accumulate: add to what is there, and to each other.

        Returns a tensor of this shape and dtype.

        Raises IndexBoundsError for an index that is out of range, DTypeError for one that is no
        integer or bool, ShapeError if `values` do not broadcast to what `indices` pick.

        >>> x = Tensor([1, 2, 3])
        >>> x.index_put((Tensor([0, 0]),), Tensor([10, 5]), accumulate=True).tolist()
        [16, 2, 3]
        """
        key = tuple(indices)
        if not accumulate:
            return self._written(key, values)
        return self._added_where((*self._completed(key),), self._as_tensor(values))

    @templated
    @valued
    @composed
    def _added_where(self, keys: tuple[Any, ...], values: Self) -> Self:
        """`values` added to the elements that complete `keys` pick."""
        positions, inside = self._positions_named(keys)
        if not positions._has_elements():
            return self._copy_of(self)
        target = inside.where(positions, -1).flatten()
        added = values.cast(self.dtype).expand(positions.shape).flatten()
        return self.flatten()._added_at(target, added).reshape(self.shape)

    @composed
    def put(self, index: Self, source: Self, accumulate: bool = False) -> Self:
        """Put the elements of `source` at positions of the flat tensor.

        Args:
            index: integers of any shape.
            source: as many elements.
            accumulate: add to what is there, and to each other.

        Returns a tensor of this shape and dtype.

        Raises DTypeError unless `index` is integer, ShapeError if `source` does not fit.

        >>> Tensor([[1, 2], [3, 4]]).put(Tensor([3]), Tensor([9])).tolist()
        [[1, 2], [3, 9]]
        """
        flat = self.flatten().index_put((index.flatten(),), source.flatten(), accumulate)
        return flat.reshape(self.shape)

    @composed
    def index_reduce(
        self, dim: int, index: Self, source: Self, reduce: str, *, include_self: bool = True
    ) -> Self:
        """Combine slices of `source` with those at the positions `index` along an axis.

        Args:
            dim: the axis; a negative one counts from the last.
            index: vector of integers.
            source: a slice for each index.
            reduce: "prod", "mean", "amax" or "amin".
            include_self: whether the values of this tensor count.

        Returns a tensor of this shape and dtype.

        Raises DTypeError for another `reduce` or an index that is no integer, ShapeError unless
        there is one index for each slice, IndexBoundsError for an axis that is out of range.

        >>> Tensor([1, 2]).index_reduce(0, Tensor([0, 0]), Tensor([5, 3]), "amax").tolist()
        [5, 2]
        """
        if is_of_number(dim, self.ndim):
            one, at = source.reshape(1), index.reshape(1)
            return self._as_row(
                lambda row: row.index_reduce(0, at, one, reduce, include_self=include_self)
            )
        axis, positions = self._index_of_axis("index_reduce", dim, index, source._sizes)
        return self.scatter_reduce(axis, positions, source, reduce, include_self)

    @composed
    def masked_scatter(self, mask: Self, source: Self) -> Self:
        """Put the elements of `source`, in order, where `mask` is true. The number of true elements
        is not counted; where `source` has no more, its last element is used.

        Args:
            mask: a bool tensor whose shape broadcasts with this one.
            source: the elements.

        Returns a tensor of the broadcast shape and this dtype.

        Raises ShapeError unless the shapes broadcast, or if `source` has no element and the mask is
        true somewhere.

        >>> Tensor([1, 2, 3]).masked_scatter(Tensor([True, False, True]), Tensor([7, 8])).tolist()
        [7, 2, 8]
        """
        values = source.cast(self.dtype).flatten()
        x, test = type(self).broadcast_tensors(self, mask.cast(dtypes.bool))
        if values._has_elements():
            return x._scattered_where(test, values)
        if test.any().item():
            raise ShapeError("masked_scatter: the source has no element", tensor=describe(self.uop))
        return x._copy_of(x)._beside_empty(values)

    @templated
    def _scattered_where(self, test: Self, values: Self) -> Self:
        """This tensor with `values`, in order, where a mask of its shape is true."""
        rank = (test.flatten().cumsum(0, dtype=index_dtype(self.shape)) - 1).clip(
            0, values._sizes[0] - 1
        )
        return test.where(values._rows(rank).reshape(self.shape), self)

    @templated
    @valued
    @composed
    def diagonal_scatter(self, src: Self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Self:
        """Put `src` as the diagonal over two axes.

        Args:
            src: the shape of `diagonal`.
            offset: number of diagonals above the main one.
            dim1: axis of the rows.
            dim2: axis of the columns.

        Returns a tensor of this shape and dtype.

        Raises ShapeError unless `src` has the shape of that diagonal.

        >>> Tensor([[1, 2], [3, 4]]).diagonal_scatter(Tensor([8, 9])).tolist()
        [[8, 2], [3, 9]]
        """
        wanted = self.diagonal(offset, dim1, dim2).shape
        if src.shape != wanted:
            raise ShapeError(
                f"diagonal_scatter: a source of {show_shape(src.shape)}, a diagonal of "
                f"{show_shape(wanted)}",
                tensor=describe(self.uop),
            )
        x = self.movedim((dim1, dim2), (-2, -1))
        height, width = x._sizes[-2:]
        column = self._iota(width).reshape(1, width)
        is_there = (column - self._iota(height).reshape(height, 1)).eq(offset)
        above = max(-offset, 0)
        rows = src.pad((above, height - above - src._sizes[-1])).unsqueeze(-1)
        return is_there.where(rows.cast(self.dtype), x).movedim((-2, -1), (dim1, dim2))

    # picking

    def nonzero_static(self, *, size: int, fill_value: int = -1) -> Self:
        """As `nonzero` with `size`.

        Args:
            size: number of rows.
            fill_value: fills the rows beyond the count.

        Returns int32 indices of shape (size, ndim).

        >>> Tensor([0, 7]).nonzero_static(size=2).tolist()
        [[1], [-1]]
        """
        found: Self = self.nonzero(size=size, fill_value=fill_value)
        return found

    @composed
    def unique_consecutive(
        self, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
    ) -> Any:
        """First element of each run of equal ones, or slice along `dim`. The runs are counted now.

        Args:
            return_inverse: also give the number of the run of each element.
            return_counts: also give the lengths of the runs.
            dim: the axis, or None for the flat tensor.

        Returns a vector of this dtype, or slices along `dim`; with options a tuple of it and int32
        tensors.

        Raises IndexBoundsError for an axis that is out of range.

        >>> values, counts = Tensor([3, 3, 1, 3]).unique_consecutive(return_counts=True)
        >>> values.tolist(), counts.tolist()
        ([3, 1, 3], [2, 1, 1])
        """
        axis = 0 if dim is None else as_axis("unique_consecutive", dim, self.ndim)
        slices = self.flatten() if dim is None else self.movedim(axis, 0)
        number = slices._sizes[0]
        rows = slices.detach().reshape(number, -1)
        is_first = rows.ne(rows.roll(1, 0)).any(1) | self._iota(number).eq(0)
        run = is_first.cumsum(0, dtype=index_dtype((number,))) - 1
        starts = is_first.nonzero().reshape(-1)
        found = slices[starts]
        made = [found if dim is None else found.movedim(0, axis)]
        if return_inverse:
            made.append(run.reshape(self.shape) if dim is None else run)
        if return_counts:
            ends = starts._slice(0, min(1, starts._sizes[0]), starts._sizes[0])
            made.append(ends.cat(starts.const_like(number)._slice(0, 0, 1)) - starts
                        if starts._sizes[0] else starts)  # fmt: skip
        return tuple(made) if len(made) > 1 else made[0]

    @templated
    @composed
    def mode(self, dim: int = -1, keepdim: bool = False) -> Ranked[Self]:
        """Most frequent value along an axis, of several the smallest, and the last of its
        positions.

        Args:
            dim: the axis; a negative one counts from the last.
            keepdim: keep the reduced axis, with size 1.

        Returns a pair (values, indices) without the axis, in this dtype and int32.

        Raises ShapeError if there is no element, IndexBoundsError for an axis that is out of range.

        >>> made = Tensor([3, 1, 3, 1, 2]).mode()
        >>> made.values.item(), made.indices.item()
        (1, 3)
        """
        if is_of_number(dim, self.ndim):
            return self._as_row(lambda row: row.mode(0))
        axis = as_axis("mode", dim, self.ndim)
        size = self._length(axis)
        if not size:
            raise ShapeError("mode: there is no element", tensor=describe(self.uop))
        values, positions = self.sort(axis)
        at = self._iota(size).reshape([-1 if n == axis else 1 for n in range(self.ndim)])
        is_first = values.ne(values.roll(1, axis)) | at.eq(0)
        # How far each element is in its run: farthest at the end of the longest.
        start = is_first.where(at, 0)._scanned("mode", axis, Ops.MAX)
        longest = (at - start).argmax(axis, keepdim=True)
        picked = [each.gather(axis, longest) for each in (values, positions)]
        return Ranked(*(each if keepdim else each.squeeze(axis) for each in picked))

    @composed
    def unravel_index(self, shape: int | Sequence[int]) -> tuple[Self, ...]:
        """Indices along each axis of `shape` for these positions in its row-major order.

        Args:
            shape: an int or a tuple of ints.

        Returns a tuple of tensors of this shape and dtype, one for each axis.

        Raises DTypeError unless this tensor is integer.

        >>> [each.tolist() for each in Tensor([1, 5]).unravel_index((2, 3))]
        [[0, 1], [1, 2]]
        """
        if not self.dtype.is_int:
            raise DTypeError(
                f"unravel_index: integers are needed, not {self.dtype.name}",
                tensor=describe(self.uop),
            )
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        steps = [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
        return tuple(self // step % extent for step, extent in zip(steps, sizes))

    @composed
    def as_strided(
        self, size: Sequence[int], stride: Sequence[int], storage_offset: int = 0
    ) -> Self:
        """View of the elements whose positions in this tensor's row-major order are
        `storage_offset` plus the sum of each index times its stride.

        Args:
            size: shape of the result.
            stride: step in elements along each axis.
            storage_offset: position of the first element.

        Returns a view of shape `size` in this dtype.

        Raises IndexBoundsError if a position is outside, ShapeError unless there is a stride for
        each size.

        >>> Tensor([1, 2, 3, 4]).as_strided((3, 2), (1, 1)).tolist()
        [[1, 2], [2, 3], [3, 4]]
        """
        if len(size) != len(stride):
            raise ShapeError(f"as_strided: {len(size)} sizes and {len(stride)} strides")
        flat, count = self.flatten(), math.prod(self._sizes)
        last = storage_offset + sum((n - 1) * step for n, step in zip(size, stride))
        if 0 not in size and not (storage_offset >= 0 and last < count):
            raise IndexBoundsError(
                f"as_strided: places {storage_offset} to {last} of {count} elements",
                tensor=describe(self.uop),
            )
        if 0 in size:
            return flat._slice(0, 0, 0).reshape(*size)
        view = flat._slice(0, storage_offset, last + 1)
        # The largest steps first: windows of all that the smaller ones reach.
        order = sorted(range(len(size)), key=lambda axis: -stride[axis])
        reach = last + 1 - storage_offset
        for axis in order:
            step = stride[axis]
            reach -= (size[axis] - 1) * step
            if step and size[axis] > 1:
                view = view.unfold(-1, reach, step)
            else:
                view = view.unsqueeze(-2).expand(*view.shape[:-1], size[axis], reach)
        return view.squeeze(-1).permute([order.index(axis) for axis in range(len(size))])

    def split_with_sizes(self, split_sizes: Sequence[int], dim: int = 0) -> tuple[Self, ...]:
        """Split along an axis into slices of given sizes.

        Args:
            split_sizes: the size of each slice.
            dim: the axis; a negative one counts from the last.

        Returns a tuple of views in this dtype.

        Raises ShapeError if the sizes do not add up to the axis, IndexBoundsError for an axis that
        is out of range.

        >>> [each.tolist() for each in Tensor([1, 2, 3]).split_with_sizes([1, 2])]
        [[1], [2, 3]]
        """
        return self.split(list(split_sizes), dim)
