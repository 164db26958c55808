"""Diagonals: of a matrix as a vector, and of a vector as a matrix."""

from __future__ import annotations

from typing import Self

from tilegrad.base.errors import ShapeError
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.handle.size_arguments import as_axis, as_int, multiply, show_shape
from tilegrad.tensor.views.padding import Padding

__all__ = ["Diagonals"]


class Diagonals(Padding):
    """Diagonals of matrices."""

    __slots__ = ()

    def diag(self, diagonal: int = 0) -> Self:
        """Matrix with this vector on its diagonal, or the diagonal of this matrix.

        Args:
            diagonal: number of diagonals above the main one.

        Returns a tensor of this dtype: (n + |diagonal|, n + |diagonal|) for (n,), a vector for a
        matrix.

        Raises ShapeError for more than two axes.

        >>> Tensor([1, 2]).diag().tolist()
        [[1, 0], [0, 2]]
        >>> Tensor([[1, 2], [3, 4]]).diag(1).tolist()
        [2]
        """
        if self.ndim == 2:
            return self._copy_of(self.diagonal(diagonal))
        if self.ndim != 1:
            raise ShapeError(f"diag: a vector or a matrix is needed, not {show_shape(self.shape)}")
        if diagonal:
            extra = abs(diagonal)
            return self.pad(((extra, 0),)).diag().roll(-extra, 0 if diagonal > 0 else 1)
        (size,) = self.shape
        rows = self.reshape(size, 1).pad(((0, 0), (0, size)))
        return rows.flatten()._slice(0, 0, multiply((size, size))).reshape(size, size)

    @templated
    def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Self:
        """Diagonal over two axes, as a new last axis.

        Args:
            offset: index along `dim2` less that along `dim1`.
            dim1: axis of the rows.
            dim2: axis of the columns.

        Returns a view in this dtype without the two axes, with one of the length of the diagonal at
        the end.

        Raises IndexBoundsError for an axis that is out of range, ShapeError if the two are one.

        >>> Tensor([[1, 2], [3, 4]]).diagonal().tolist()
        [1, 4]
        """
        offset = as_int("diagonal", "an offset", offset)
        rows, columns = as_axis("diagonal", dim1, self.ndim), as_axis("diagonal", dim2, self.ndim)
        if rows == columns:
            raise ShapeError(f"diagonal: dim1 and dim2 are both axis {rows}")
        rest = [axis for axis in range(self.ndim) if axis not in (rows, columns)]
        x = self.permute(*rest, rows, columns)
        first, second = x.ndim - 2, x.ndim - 1
        height, width = x._length(first), x._length(second)
        x = (
            x._slice(second, min(offset, width), width)
            if offset > 0
            else x._slice(first, min(-offset, height), height)
        )
        length = min(x._length(first), x._length(second))
        x = x._slice(first, 0, length)._slice(second, 0, length)
        lead = x.shape[:first]
        # Rows one longer than the matrix is wide: the diagonal is then a column.
        flat = x.reshape(*lead, length * length).pad((0, length))
        column = flat.reshape(*lead, length, length + 1)._slice(second, 0, 1)
        return self._as_view(column.reshape(*lead, length))
