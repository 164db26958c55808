"""Linear algebra by the factorisations and products there are: solutions by factors, condition,
products of many, norms of vectors, systems of tensors.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import ShapeError
from tilegrad.base.origin import composed
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.composed.arranging import Arranging
from tilegrad.tensor.handle.core import describe
from tilegrad.tensor.handle.size_arguments import show_shape
from tilegrad.tensor.reductions.reduce import Axes
from tilegrad.tensor.reductions.spelling import takes_dim

__all__ = ["Algebra", "Factors"]


class Factors(NamedTuple):
    """Result of an elimination: L below the diagonal and U on and above it, and the row of the
    matrix, from 0 on, that each row was.
    """

    LU: Any
    pivots: Any


class Algebra(Arranging):
    """Linear algebra under PyTorch's names."""

    __slots__ = ()

    @property
    def mH(self) -> Self:
        """As `mT`: there are no complex numbers.

        Returns a view of shape (..., n, m) for shape (..., m, n), in this dtype.

        >>> Tensor([[1, 2]]).mH.tolist()
        [[1], [2]]
        """
        return self.mT

    @property
    def H(self) -> Self:
        """As `t`: there are no complex numbers.

        Returns a view of shape (n, m) for shape (m, n), in this dtype.

        >>> Tensor([[1, 2]]).H.tolist()
        [[1], [2]]
        """
        return self.t()

    def adjoint(self) -> Self:
        """As `mT`: there are no complex numbers.

        Returns a view of shape (..., n, m) for shape (..., m, n), in this dtype.

        >>> Tensor([[1, 2]]).adjoint().tolist()
        [[1], [2]]
        """
        return self.mT

    # systems by their factors

    @templated
    @composed
    def lu_factor(self) -> Factors:
        """Factors of each square matrix, packed into one, and the order of rows that elimination
        chose: what `lu_solve` takes.

        Returns (packed, order): float (..., n, n) with L below the diagonal and U above, and int32
        (..., n), for shape (..., n, n).

        Raises ShapeError unless the last two sizes are equal.

        >>> packed, order = Tensor([[1.0, 2.0], [2.0, 2.0]]).lu_factor()
        >>> packed.tolist(), order.tolist()
        ([[2.0, 2.0], [0.5, 1.0]], [1, 0])
        """
        size = self._square("lu_factor")
        made = self._matrices()._eliminated()
        order = made._slice(2, size, size + 1).detach().cast(dtypes.int32)
        both = made._slice(2, 0, size).cast(self._floating().dtype)
        return Factors(both.reshape(self.shape), order.reshape(self.shape[:-1]))

    @templated
    @composed
    def lu_solve(self, LU: Self, pivots: Self) -> Self:
        """Solve a @ x = self, for the factors of `a` that `lu_factor` gives.

        Args:
            LU: packed factors, (..., n, n).
            pivots: order of the rows, int32 (..., n).

        Returns x, float, of this shape (..., n, k).

        Raises ShapeError if the sizes do not fit.

        >>> a = Tensor([[2.0, 1.0], [4.0, 4.0]])
        >>> Tensor([[3.0], [8.0]]).lu_solve(*a.lu_factor()).tolist()
        [[1.0], [1.0]]
        """
        index = pivots.unsqueeze(-1).expand(*pivots.shape, self.shape[-1])
        rows = self.expand(*pivots.shape[:-1], *self.shape[-2:]).gather(-2, index)
        half = LU.solve_triangular(rows, upper=False, unitriangular=True)
        return LU.solve_triangular(half, upper=True)

    @templated
    @composed
    def cholesky_solve(self, L: Self, upper: bool = False) -> Self:
        """Solve a @ x = self for a = L @ L^T, or L^T @ L of an `upper` triangle.

        Args:
            L: triangular matrix, (..., n, n).
            upper: whether `L` is an upper triangle.

        Returns x, float, of this shape (..., n, k).

        Raises ShapeError if the sizes do not fit.

        >>> Tensor([[4.0]]).cholesky_solve(Tensor([[2.0]])).tolist()
        [[1.0]]
        """
        first, last = (L.mT, L) if upper else (L, L.mT)
        return last.solve_triangular(first.solve_triangular(self, upper=False), upper=True)

    @templated
    @composed
    def cholesky_inverse(self, upper: bool = False) -> Self:
        """Inverse of a = L @ L^T for this triangle L, or of L^T @ L for an `upper` one.

        Args:
            upper: whether this is the upper triangle.

        Returns a float tensor of this shape (..., n, n).

        Raises ShapeError unless the last two sizes are equal.

        >>> Tensor([[2.0]]).cholesky_inverse().tolist()
        [[0.25]]
        """
        size = self._square("cholesky_inverse")
        unit = type(self).eye(size, dtype=self._floating().dtype, device=self.device)
        return unit.expand(self.shape).cholesky_solve(self, upper)

    @templated
    @composed
    def householder_product(self, tau: Self) -> Self:
        """First columns of the product of the reflections I - tau v v^T, whose v stand below the
        diagonal of this matrix (..., m, n), under a 1 (LAPACK's orgqr).

        Args:
            tau: factors of the reflections, (..., k) with k <= n.

        Returns a float tensor of shape (..., m, n).

        Raises ShapeError unless there are at least as many rows as columns, and these as `tau`.

        >>> Tensor([[5.0], [1.0]]).householder_product(Tensor([1.0])).tolist()
        [[0.0], [-1.0]]
        """
        rows, columns = self._matrix("householder_product")
        count = tau._sizes[-1]
        if not count <= columns <= rows:
            raise ShapeError(
                f"householder_product: {count} reflections for a matrix of {rows} by {columns}",
                matrix=describe(self.uop),
            )
        x = self._floating()
        unit = type(self).eye(rows, columns, dtype=x.dtype, device=x.device)
        vectors = x.tril(-1) + unit
        q = unit.expand(self.shape)
        for k in reversed(range(count)):
            v = vectors._slice(self.ndim - 1, k, k + 1)
            scale = tau._slice(tau.ndim - 1, k, k + 1).unsqueeze(-1)
            q = (q - v @ (v.mT @ q) * scale).contiguous()
        return q

    orgqr = householder_product

    # products and norms

    @templated
    @composed
    def vecdot(self, other: Self, dim: int = -1) -> Self:
        """Sum the products with `other` along an axis: the dot products of vectors.

        Args:
            other: a tensor whose shape broadcasts with this one.
            dim: the axis; a negative one counts from the last.

        Returns a tensor of the broadcast shape without `dim`; integers and bool give int64, floats
        keep their dtype.

        Raises ShapeError unless the shapes broadcast, IndexBoundsError for an axis that is out of
        range.

        >>> Tensor([[1, 2], [3, 4]]).vecdot(Tensor([1, 1])).tolist()
        [3, 7]
        """
        return (self * other).sum(dim)

    @classmethod
    def multi_dot(cls, *tensors: Any) -> Self:
        """The product of matrices (the first and the last may be vectors), multiplied in the order
        that takes the fewest multiplications. Given one by one or as a list.

        Args:
            tensors: matrices of shapes (a, b), (b, c), (c, d), ...

        Returns a matrix (first rows, last columns), or a vector or number where an end is a vector,
        in the dtype to which all promote.

        Raises ShapeError if there are less than two, or sizes do not fit.

        >>> Tensor.multi_dot([Tensor([[1, 2]]), Tensor([[1], [1]]), Tensor([[3]])]).tolist()
        [[9]]
        """
        matrices: list[Any] = cls._each(tensors)
        if len(matrices) < 2:
            raise ShapeError("multi_dot: two matrices or more are needed")
        is_row, is_column = matrices[0].ndim == 1, matrices[-1].ndim == 1
        matrices[0] = matrices[0].unsqueeze(0) if is_row else matrices[0]
        matrices[-1] = matrices[-1].unsqueeze(1) if is_column else matrices[-1]
        sizes = [matrix._sizes[0] for matrix in matrices] + [matrices[-1]._sizes[1]]

        @functools.cache
        def best(first: int, last: int) -> tuple[int, int]:
            """The multiplications that matrices first..last take, and where they are split."""
            if first == last:
                return 0, first
            edges = sizes[first] * sizes[last + 1]
            return min(
                (best(first, at)[0] + best(at + 1, last)[0] + edges * sizes[at + 1], at)
                for at in range(first, last)
            )

        def product(first: int, last: int) -> Any:
            if first == last:
                return matrices[first]
            at = best(first, last)[1]
            return product(first, at) @ product(at + 1, last)

        made: Self = product(0, len(matrices) - 1)
        made = made.squeeze(-1) if is_column else made
        return made.squeeze(0) if is_row else made

    chain_matmul = multi_dot

    @templated
    @takes_dim
    @composed
    def vector_norm(
        self, ord: float = 2, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None
    ) -> Self:
        """Norm of the vectors along `axis`, by default of all elements as one vector.

        Args:
            ord: any order p of (sum |x|^p)^(1/p); inf and -inf for the largest and smallest
                magnitude; 0 counts what is not zero.
            axis: an axis, several of them, or None for all; negative ones count from the last.
                `dim` is another name for it.
            dim: the same as `axis`, by PyTorch's name.
            keepdim: keep each reduced axis, with size 1.

        Returns a float tensor without the reduced axes.

        Raises IndexBoundsError for an axis that is out of range, ShapeError for one that is named
        twice, DTypeError for one that is no integer.

        >>> Tensor([3.0, 0.0, -4.0]).vector_norm(0).item()
        2.0
        """
        x = self._floating()
        if ord == 0:
            return x.ne(0).sum(axis, keepdim).cast(x.dtype)
        if ord == -math.inf:
            return x.abs().amin(axis, keepdim)
        return x.norm(ord, axis, keepdim)

    @templated
    @composed
    def cond(self, p: float | str | None = None) -> Self:
        """Condition number of each matrix (..., n, n): how much more it can stretch one vector than
        another.

        Args:
            p: None or 2 for the largest singular value by the smallest, -2 for the inverse of that,
                else the order of `matrix_norm` of the matrix times that of its inverse.

        Returns a float tensor of shape (...).

        Raises ShapeError as `matrix_norm`.

        >>> Tensor([[4.0, 0.0], [0.0, 2.0]]).cond().item()
        2.0
        """
        self._matrix("cond")
        if p in (None, 2, -2):
            values = self._floating().svdvals()
            ratio = values.amax(-1) / values.amin(-1)
            return ratio.reciprocal() if p == -2 else ratio
        assert p is not None
        return self.matrix_norm(p) * self.inv().matrix_norm(p)

    # systems of tensors

    @templated
    @composed
    def tensorinv(self, ind: int = 2) -> Self:
        """Inverse with respect to `tensordot` over the first `ind` axes.

        Args:
            ind: number of leading axes of this tensor that the inverse has at its end.

        Returns a float tensor of shape (*shape[ind:], *shape[:ind]).

        Raises ShapeError unless the first axes have as many elements as the rest.

        >>> Tensor.eye(4).reshape(2, 2, 4).tensorinv().shape
        (4, 2, 2)
        """
        first, rest = self._sizes[:ind], self._sizes[ind:]
        size = math.prod(first)
        if size != math.prod(rest) or ind < 1:
            raise ShapeError(
                f"tensorinv: {show_shape(first)} and {show_shape(rest)} have no inverse",
                tensor=describe(self.uop),
            )
        return self.reshape(size, size).inv().reshape(*rest, *first)

    @templated
    @composed
    def tensorsolve(self, other: Self, dims: Sequence[int] | None = None) -> Self:
        """Solve tensordot(self, x, x.ndim) = other for x.

        Args:
            other: the right side, of the shape of the first axes of this tensor.
            dims: axes of this tensor that are moved to the end first.

        Returns x, float, of the shape of this tensor's last axes.

        Raises ShapeError if the sizes do not fit.

        >>> Tensor([[2.0, 0.0], [0.0, 4.0]]).tensorsolve(Tensor([2.0, 4.0])).tolist()
        [1.0, 1.0]
        """
        x = self
        if dims is not None:
            x = x.movedim(tuple(dims), tuple(range(x.ndim - len(dims), x.ndim)))
        unknown = x._sizes[other.ndim :]
        size = math.prod(unknown)
        if size != math.prod(other._sizes):
            raise ShapeError(
                f"tensorsolve: {size} unknowns and {math.prod(other._sizes)} equations",
                left=describe(self.uop),
                right=describe(other.uop),
            )
        return x.reshape(size, size).solve(other.flatten()).reshape(unknown)
