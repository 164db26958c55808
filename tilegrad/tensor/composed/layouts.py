"""Axes of tensors, repeated, mirrored and joined elements, under PyTorch's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import ShapeError
from tilegrad.base.origin import composed
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.composed.statistics import Statistics
from tilegrad.tensor.handle.broadcasting import broadcast_shape, describe
from tilegrad.tensor.handle.size_arguments import as_axis, flat_arguments, show_shape

__all__ = ["Layouts"]


class Layouts(Statistics):
    """Order of axes and elements, and joining."""

    __slots__ = ()

    # axes

    def t(self) -> Self:
        """Transpose a matrix; a vector or a number stays as it is.

        Returns a view of shape (n, m) for shape (m, n), in this dtype.

        Raises ShapeError for more than two axes.

        >>> Tensor([[1, 2]]).t().tolist()
        [[1], [2]]
        """
        if self.ndim > 2:
            raise ShapeError(
                f"t: a matrix is needed, not {show_shape(self.shape)}",
                tensor=describe(self.uop),
                remedy="transpose(-1, -2)",
            )
        return self.transpose(0, 1) if self.ndim == 2 else self

    @property
    def mT(self) -> Self:
        """Exchange the last two axes.

        Returns a view of shape (..., n, m) for shape (..., m, n), in this dtype.

        >>> Tensor([[1, 2]]).mT.tolist()
        [[1], [2]]
        """
        return self.transpose(-1, -2)

    swapaxes = Statistics.transpose
    swapdims = Statistics.transpose
    moveaxis = Statistics.movedim
    broadcast_to = Statistics.expand
    nelement = Statistics.numel
    ndimension = Statistics.dim

    def tile(self, *counts: Any, dims: Any = None) -> Self:
        """Repeat the whole tensor along each axis, as `repeat`.

        Args:
            counts: how often, for each axis, one by one or as one tuple; fewer are those of the
                last axes.
            dims: the same by keyword.

        Returns a tensor of this dtype; the sizes are multiplied.

        Raises ShapeError for a negative count.

        >>> Tensor([[1], [2]]).tile(2).tolist()
        [[1, 1], [2, 2]]
        """
        given = flat_arguments(counts if dims is None else (dims,))
        return self.repeat(*[1] * (self.ndim - len(given)), *given)

    def repeat_interleave(self, repeats: Any, dim: int | None = None) -> Self:
        """Repeat each element, next to each other, along an axis.

        Args:
            repeats: how often; or how often each, as a list or a tensor, whose values are waited
                for.
            dim: the axis, or None for the flat tensor.

        Returns a tensor of this dtype.

        Raises IndexBoundsError for an axis that is out of range, ShapeError for another number of
        counts than elements along it.

        >>> Tensor([1, 2]).repeat_interleave(2).tolist()
        [1, 1, 2, 2]
        >>> Tensor([1, 2]).repeat_interleave(Tensor([2, 1])).tolist()
        [1, 1, 2]
        """
        if not isinstance(repeats, (list, tuple, Statistics)):
            return super().repeat_interleave(repeats, dim)
        x = self.flatten() if dim is None else self
        axis = as_axis("repeat_interleave", 0 if dim is None else dim, x.ndim)
        size = x.shape[axis]
        counts = [int(n) for n in (Statistics.flatten(repeats).tolist()
                                   if isinstance(repeats, Statistics) else repeats)]  # fmt: skip
        if len(counts) == 1:
            return super().repeat_interleave(counts[0], dim)
        if len(counts) != size:
            raise ShapeError(
                f"repeat_interleave: {len(counts)} counts for {size} elements along axis {axis}"
            )
        index = [at for at, count in enumerate(counts) for _ in range(count)]
        picked = type(self)(index, dtype=dtypes.int32, device=self.device)
        return x.index_select(axis, picked)

    def ravel(self) -> Self:
        """Flatten all axes into one.

        Returns a tensor of shape (numel,) in this dtype.

        >>> Tensor([[1, 2]]).ravel().tolist()
        [1, 2]
        """
        return self.flatten()

    def view_as(self, other: Self) -> Self:
        """Reshape to the shape of `other`.

        Args:
            other: a tensor with as many elements; only its shape is used.

        Returns a tensor of the shape of `other` in this dtype.

        Raises ShapeError if the number of elements differs.

        >>> Tensor([1, 2]).view_as(Tensor([[0, 0]])).tolist()
        [[1, 2]]
        """
        return self.reshape(other.shape)

    def reshape_as(self, other: Self) -> Self:
        """Reshape to the shape of `other`.

        Args:
            other: a tensor with as many elements; only its shape is used.

        Returns a tensor of the shape of `other` in this dtype.

        Raises ShapeError if the number of elements differs.

        >>> Tensor([1, 2]).reshape_as(Tensor([[0, 0]])).tolist()
        [[1, 2]]
        """
        return self.reshape(other.shape)

    def fliplr(self) -> Self:
        """Reverse the columns, axis 1.

        Returns a tensor of this shape and dtype.

        Raises IndexBoundsError for less than two axes.

        >>> Tensor([[1, 2]]).fliplr().tolist()
        [[2, 1]]
        """
        return self.flip(1)

    def flipud(self) -> Self:
        """Reverse the rows, axis 0.

        Returns a tensor of this shape and dtype.

        Raises IndexBoundsError for no axes.

        >>> Tensor([[1], [2]]).flipud().tolist()
        [[2], [1]]
        """
        return self.flip(0)

    @templated
    @composed
    def rot90(self, k: int = 1, dims: Sequence[int] = (0, 1)) -> Self:
        """Rotate by right angles in the plane of two axes, from the first to the second.

        Args:
            k: number of right angles.
            dims: the two axes.

        Returns a tensor of this dtype; the sizes of the two axes are exchanged for odd `k`.

        Raises IndexBoundsError for an axis that is out of range, ShapeError unless there are two.

        >>> Tensor([[1, 2], [3, 4]]).rot90().tolist()
        [[2, 4], [1, 3]]
        """
        axes = [as_axis("rot90", axis, self.ndim) for axis in dims]
        if len(set(axes)) != 2 or len(axes) != 2:
            raise ShapeError(f"rot90: a plane has two axes, not {tuple(dims)}")
        first, second = axes
        if k % 4 == 0:
            return self._copy_of(self)
        if k % 4 == 2:
            return self.flip(first, second)
        if k % 4 == 1:
            return self.flip(second).transpose(first, second)
        return self.transpose(first, second).flip(second)

    @templated
    @composed
    def diag_embed(self, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Self:
        """Put the last axis on the diagonals of new matrices of zeros.

        Args:
            offset: number of diagonals above the main one.
            dim1: axis of the rows in the result.
            dim2: axis of the columns in the result.

        Returns a tensor of this dtype and shape (..., n + |offset|, n + |offset|) for shape (...,
        n).

        Raises ShapeError if the two axes are one.

        >>> Tensor([1, 2]).diag_embed().tolist()
        [[1, 0], [0, 2]]
        """
        before, after = max(-offset, 0), max(offset, 0)
        size = self._length(-1) + before + after
        number = self._iota(size)
        is_there = (number.reshape(1, size) - number.reshape(size, 1)).eq(offset)
        rows = self.pad((before, after)).unsqueeze(-1)
        made = is_there.where(rows, rows.const_like(0))
        return made.movedim((-2, -1), (dim1, dim2))

    def diagflat(self, offset: int = 0) -> Self:
        """Put all elements on the diagonal of a matrix of zeros.

        Args:
            offset: number of diagonals above the main one.

        Returns a matrix of this dtype with numel + |offset| rows and columns.

        >>> Tensor([[1], [2]]).diagflat().tolist()
        [[1, 0], [0, 2]]
        """
        return self.flatten().diag_embed(offset)

    # joined

    @staticmethod
    def _each(tensors: Any) -> list[Any]:
        return list(tensors[0]) if len(tensors) == 1 and type(tensors[0]) in (list, tuple) else [
            *tensors
        ]  # fmt: skip

    @classmethod
    def hstack(cls, *tensors: Any) -> Self:
        """Join side by side: along axis 1, vectors along axis 0.

        Args:
            tensors: one by one or as a list, of equal other sizes.

        Returns one tensor, in the dtype to which all promote.

        Raises ShapeError if the other sizes differ.

        >>> Tensor.hstack([Tensor([1]), Tensor([2, 3])]).tolist()
        [1, 2, 3]
        """
        arrays = [each if each.ndim else each.reshape(1) for each in cls._each(tensors)]
        joined: Self = arrays[0].cat(*arrays[1:], dim=0 if arrays[0].ndim == 1 else 1)
        return joined

    @classmethod
    def vstack(cls, *tensors: Any) -> Self:
        """Join one below the other: along axis 0; a vector (n,) counts as a row (1, n).

        Args:
            tensors: one by one or as a list, of equal other sizes.

        Returns one tensor, in the dtype to which all promote.

        Raises ShapeError if the other sizes differ.

        >>> Tensor.vstack([Tensor([1, 2]), Tensor([3, 4])]).tolist()
        [[1, 2], [3, 4]]
        """
        arrays = [p if p.ndim > 1 else p.reshape(1, -1) for p in cls._each(tensors)]
        joined: Self = arrays[0].cat(*arrays[1:], dim=0)
        return joined

    @classmethod
    def block_diag(cls, *tensors: Any) -> Self:
        """Block diagonal matrix: the matrices along the diagonal, zeros elsewhere.

        Args:
            tensors: matrices; vectors count as rows, numbers as (1, 1).

        Returns a matrix with the sum of the rows and the sum of the columns, in the dtype to which
        all promote.

        Raises ShapeError for more than two axes.

        >>> Tensor.block_diag(Tensor([[1]]), Tensor([[2, 3]])).tolist()
        [[1, 0, 0], [0, 2, 3]]
        """
        arrays = [p if p.ndim > 1 else p.reshape(1, -1) for p in cls._each(tensors)]
        width, before = sum(each._sizes[1] for each in arrays), 0
        rows = []
        for each in arrays:
            after = width - before - each._sizes[1]
            rows.append(each.pad(((0, 0), (before, after))))
            before += each._sizes[1]
        joined: Self = rows[0].cat(*rows[1:], dim=0)
        return joined

    @classmethod
    def cartesian_prod(cls, *tensors: Self) -> Self:
        """All ways to choose one element of each vector, a row for each.

        Args:
            tensors: vectors.

        Returns a tensor of shape (product of the sizes, number of vectors), in the dtype to which
        all promote; of one vector the vector.

        Raises ShapeError for what is no vector.

        >>> Tensor.cartesian_prod(Tensor([1, 2]), Tensor([3])).tolist()
        [[1, 3], [2, 3]]
        """
        if len(tensors) == 1:
            return tensors[0]
        grids: Any = tensors[0].meshgrid(*tensors[1:], indexing="ij")
        flat = [grid.flatten() for grid in grids]
        joined: Self = flat[0].stack(*flat[1:], dim=1)
        return joined

    @classmethod
    def broadcast_tensors(cls, *tensors: Self) -> tuple[Self, ...]:
        """Expand all tensors to the shape to which they broadcast.

        Args:
            tensors: any number of tensors.

        Returns a tuple of views of one shape, each in its own dtype.

        Raises ShapeError if there is none.

        >>> [each.shape for each in Tensor.broadcast_tensors(Tensor([[1], [2]]), Tensor([3, 4]))]
        [(2, 2), (2, 2)]
        """
        shape = broadcast_shape("broadcast_tensors", tensors)
        return tuple(tensor.expand(shape) for tensor in tensors)
