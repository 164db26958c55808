"""Matrices as products of others: LU, Cholesky, QR, singular values and eigenvalues.

Each is one kernel (see factors.py), in the tensor's dtype, at least float32; integers become
floats.
"""

from __future__ import annotations

import functools
from typing import Any, Self

from tilegrad.base.errors import ShapeError
from tilegrad.base.origin import composed
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.matrices import elimination, factors
from tilegrad.tensor.matrices.determinant import Determinants
from tilegrad.tensor.matrices.factorise import epsilon

__all__ = ["Decompositions"]


def _eigen_pairs(made: Any, size: int) -> tuple[Any, Any]:
    """The eigenvectors, one a row, and the eigenvalues."""
    edge = size * size
    vectors = made._slice(1, 0, edge).reshape(made.shape[0], size, size)
    return vectors, made._slice(1, edge, edge + size)


class Decompositions(Determinants):
    """Decompositions of the matrices in the last two axes."""

    __slots__ = ()

    @composed
    def lu(self) -> tuple[Self, Self, Self]:
        """LU decomposition with pivots: self = P @ L @ U.

        Returns (P, L, U), float, each of this shape (..., n, n): a permutation, a lower triangle
        with ones on the diagonal, an upper triangle.

        Raises ShapeError unless the last two sizes are equal.

        >>> p, l, u = Tensor([[1.0, 2.0], [2.0, 2.0]]).lu()
        >>> p.tolist(), l.tolist(), u.tolist()
        ([[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [0.5, 1.0]], [[2.0, 2.0], [0.0, 1.0]])
        """
        size = self._square("lu")
        if not self._has_elements():
            return self._floating(), self._floating(), self._floating()
        packed = self._matrices()._eliminated()
        both = packed._slice(2, 0, size)
        lower = both.tril(-1) + both._identity()
        order = packed._slice(2, size, size + 1).detach()
        permutation = order.eq(self._iota(size)).transpose(1, 2)
        shape, dtype = self.shape, self._floating().dtype
        return (
            permutation.cast(dtype).reshape(shape),
            lower.cast(dtype).reshape(shape),
            both.triu().cast(dtype).reshape(shape),
        )

    @templated
    @composed
    def cholesky(self, upper: bool = False) -> Self:
        """Cholesky decomposition of symmetric positive definite matrices: L with L @ L^T = self.
        The lower triangle of this is read; the result is NaN where a matrix is not positive
        definite.

        Args:
            upper: give L^T, and read the upper triangle.

        Returns a float triangle of this shape (..., n, n).

        Raises ShapeError unless the last two sizes are equal.

        >>> Tensor([[4.0, 2.0], [2.0, 5.0]]).cholesky().tolist()
        [[2.0, 0.0], [1.0, 2.0]]
        """
        size = self._square("cholesky")
        if not self._has_elements():
            return self._floating()

        def factor(a: Self) -> Self:
            def rule(g: Self, u: Self, _: Self) -> list[Self]:
                lower, flow = u.transpose(1, 2), g.transpose(1, 2).tril()
                inner = (u @ flow).tril()
                inner = inner - inner * inner._identity() * 0.5
                left = lower._solved_triangle(
                    inner, is_upper=False, is_unit=False, is_transposed=True
                )
                both = lower._solved_triangle(
                    left.transpose(1, 2), is_upper=False, is_unit=False, is_transposed=True
                )
                return [(both + both.transpose(1, 2)) * 0.5]

            made = a._factored(elimination.CHOLESKY, (a._sizes[0], size), [a], rule)
            return made if upper else made.transpose(1, 2)

        read = self.transpose(-1, -2) if upper else self
        return read._each_matrix(factor, (size, size))

    @templated
    @composed
    def qr(self, mode: str = "complete") -> tuple[Self, Self]:
        """QR decomposition: self = Q @ R, Q orthogonal and R upper triangular, by Householder's
        reflections.

        Columns of Q beyond the k-th, k the smaller of m and n, are not determined by the matrix,
        and no gradient flows from them.

        Args:
            mode: "complete" or "reduced".

        Returns (Q, R), float, for shape (..., m, n): (..., m, m) and (..., m, n), or reduced (...,
        m, k) and (..., k, n).

        Raises ShapeError if there are no two axes, or for another mode.

        >>> q, r = Tensor([[3.0], [4.0]]).qr("reduced")
        >>> [round(x, 4) for x in q.flatten().tolist() + r.flatten().tolist()]
        [-0.6, -0.8, -5.0]
        """
        rows, columns = self._matrix("qr")
        if mode not in ("complete", "reduced"):
            raise ShapeError(f"qr: no mode {mode!r}: 'complete' or 'reduced'")
        vectors = rows if mode == "complete" else min(rows, columns)
        lead, dtype = self._sizes[:-2], self._floating().dtype
        if not self._has_elements():
            unit = type(self).eye(rows, vectors, dtype=dtype, device=self.device)
            return unit.expand(*lead, rows, vectors)._apart(), self._floating()._slice(
                -2, 0, vectors
            )
        q, r = self._matrices()._reflected(vectors)
        return (
            q.reshape(*lead, rows, vectors).cast(dtype),
            r.reshape(*lead, vectors, columns).cast(dtype),
        )

    @templated
    @composed
    def svd(self, full_matrices: bool = True) -> tuple[Self, Self, Self]:
        """Singular value decomposition: self = U @ diag(S) @ V^T, the largest value first, by
        Jacobi's rotations.

        Vectors beyond the k-th, k the smaller of m and n, have no gradient. Between equal singular
        values vectors are not determined; a gradient that depends on that choice has no meaning.

        Args:
            full_matrices: give square U and V^T.

        Returns (U, S, V^T), float, for shape (..., m, n): (..., m, m), (..., k), (..., n, n), or
        without `full_matrices` (..., m, k), (..., k), (..., k, n).

        Raises ShapeError if there are no two axes.

        >>> u, s, v = Tensor([[0.0, 2.0], [1.0, 0.0]]).svd()
        >>> s.tolist()
        [2.0, 1.0]
        """
        rows, columns = self._matrix("svd")
        if rows < columns:
            u, s, v = self.transpose(-1, -2).svd(full_matrices)
            return v.transpose(-1, -2), s, u.transpose(-1, -2)
        lead, dtype = self._sizes[:-2], self._floating().dtype
        width = rows if full_matrices else columns
        if not self._has_elements():
            made = self._floating()
            unit = type(self).eye(rows, width, dtype=dtype, device=self.device)
            none = made.sum(-2) if rows else made.reshape(*lead, columns)
            inner = type(self).eye(columns, dtype=dtype, device=self.device)
            return (
                unit.expand(*lead, rows, width)._apart(),
                none,
                inner.expand(*lead, columns, columns)._apart(),
            )
        u, s, v = self._matrices()._rotated()
        if full_matrices and rows > columns:
            rest = u.detach()._reflected(rows)[0]._slice(2, columns, rows).detach()
            u = u.cat(rest, dim=2)
        return (
            u.reshape(*lead, rows, width).cast(dtype),
            s.reshape(*lead, columns).cast(dtype),
            v.transpose(1, 2).reshape(*lead, columns, columns).cast(dtype),
        )

    @templated
    @composed
    def eigh(self) -> tuple[Self, Self]:
        """Eigenvalues and eigenvectors of symmetric matrices: self @ vectors = vectors * values,
        the smallest value first, by Jacobi's rotations. The lower triangle of this is read. Between
        equal values vectors are not determined.

        Returns (values, vectors), float, of shapes (..., n) and (..., n, n), the vectors
        orthonormal columns.

        Raises ShapeError unless the last two sizes are equal.

        >>> values, vectors = Tensor([[2.0, 0.0], [0.0, 1.0]]).eigh()
        >>> values.tolist()
        [1.0, 2.0]
        """
        size = self._square("eigh")
        lead, dtype = self._sizes[:-2], self._floating().dtype
        if not self._has_elements():
            return self._floating().sum(-1), self._floating()
        a = self._matrices()
        count = a._sizes[0]
        total = factors.eigen_size(size)

        def rule(g: Self, made: Self, _: Self) -> list[Self]:
            (vectors, values), (flow, flow_values) = _eigen_pairs(made, size), _eigen_pairs(g, size)
            transposed = vectors.transpose(1, 2)
            gaps = values.reshape(count, 1, size) - values.reshape(count, size, 1)
            # Not divided by 0 where that is not taken, as its own derivative would be NaN.
            is_equal = gaps.eq(0)
            apart = (vectors @ flow.transpose(1, 2)) / is_equal.where(1.0, gaps)
            inner = is_equal.where(0.0, apart)
            inner = inner + flow_values.reshape(count, size, 1) * inner._identity()
            both = transposed @ inner @ vectors
            return [(both + both.transpose(1, 2)) * 0.5]

        build = functools.partial(factors.eigen, count=count, size=size, epsilon=epsilon(a))
        made = a._by_rule("eigen", (count, total), build, [a], rule)
        vectors, values = _eigen_pairs(made, size)
        return (
            values.reshape(*lead, size).cast(dtype),
            vectors.transpose(1, 2).reshape(*lead, size, size).cast(dtype),
        )

    def eigvalsh(self) -> Self:
        """Eigenvalues of symmetric matrices, the smallest first; see `eigh`.

        Returns a float tensor of shape (..., n) for shape (..., n, n).

        Raises ShapeError unless the last two sizes are equal.

        >>> Tensor([[2.0, 0.0], [0.0, 1.0]]).eigvalsh().tolist()
        [1.0, 2.0]
        """
        return self.eigh()[0]

    def svdvals(self) -> Self:
        """Singular values of each matrix, the largest first; see `svd`.

        Returns a float tensor of shape (..., min(m, n)) for shape (..., m, n).

        Raises ShapeError for less than two axes.

        >>> Tensor([[3.0, 0.0], [0.0, 4.0]]).svdvals().tolist()
        [4.0, 3.0]
        """
        return self.svd(full_matrices=False)[1]
