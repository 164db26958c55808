"""Linear algebra: systems, inverses, determinants, factorisations, norms of matrices.

The last two axes are a matrix, those before count matrices. A factorisation is one kernel (see
factors.py), in the tensor's dtype, at least float32; integers become floats.

Whether a matrix is singular is known only once it is computed, so nothing raises for it: a system
without a solution gives inf or NaN, as does the Cholesky factor of what is not positive definite,
in that matrix and no other. `det`, `slogdet`, `qr`, `svd`, `pinv` and `lstsq` are at ease with
singular matrices.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, Self

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import DTypeError, ShapeError
from tilegrad.base.origin import composed
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.handle.core import check_devices, describe
from tilegrad.tensor.handle.sizes import here, show_shape
from tilegrad.tensor.matrices import factors
from tilegrad.tensor.matrices.determinant import Determinants
from tilegrad.tensor.matrices.factorise import epsilon, take, unfit

__all__ = ["LinearAlgebra"]


class LinearAlgebra(Determinants):
    """Linear algebra on the last two axes."""

    __slots__ = ()

    # systems

    @templated
    @composed
    def solve(self, other: Self) -> Self:
        """Solve self @ x = other by elimination with pivots (LU); axes before the matrices
        broadcast.

        Where a matrix is singular the result is inf or NaN.

        Args:
            other: right sides, (..., n, k), or one vector (n,) for each matrix.

        Returns x, float, of shape (..., n, k) for this shape (..., n, n), or (..., n).

        Raises ShapeError unless this is square and the sizes fit, DeviceError for tensors of two
        devices.

        >>> Tensor([[2.0, 0.0], [0.0, 4.0]]).solve(Tensor([2.0, 2.0])).tolist()
        [1.0, 0.5]
        """
        return self._system("solve", other, lambda a, b: a._solved(b))

    @composed
    def solve_triangular(
        self, other: Self, *, upper: bool, left: bool = True, unitriangular: bool = False
    ) -> Self:
        """Solve self @ x = other for a triangular matrix; its other triangle is not read.

        Args:
            other: right sides, (..., n, k).
            upper: which triangle counts.
            left: whether the matrix stands on the left of x; else x @ self = other.
            unitriangular: take ones as the diagonal, which is not read.

        Returns x, float, of the shape of `other`.

        Raises ShapeError unless this is square and the sizes fit, DeviceError for tensors of two
        devices.

        >>> a = Tensor([[2.0, 0.0], [1.0, 1.0]])
        >>> a.solve_triangular(Tensor([[2.0], [3.0]]), upper=False).tolist()
        [[1.0], [2.0]]
        """
        if not left:
            solved = self.transpose(-1, -2).solve_triangular(
                other.transpose(-1, -2), upper=not upper, unitriangular=unitriangular
            )
            return solved.transpose(-1, -2)
        return self._system(
            "solve_triangular",
            other,
            lambda a, b: a._solved_triangle(b, is_upper=upper, is_unit=unitriangular),
        )

    @templated
    @composed
    def inv(self) -> Self:
        """Invert each matrix; inf or NaN where there is no inverse.

        Returns a float tensor of this shape (..., n, n).

        Raises ShapeError unless the last two sizes are equal.

        >>> Tensor([[2.0, 0.0], [0.0, 4.0]]).inv().tolist()
        [[0.5, 0.0], [0.0, 0.25]]
        """
        self._square("inv")
        if not self._has_elements():
            return self._floating()
        return self._each_matrix(lambda a: a._solved(a._identity()), self.shape[-2:])

    @composed
    def matrix_power(self, n: int) -> Self:
        """Multiply each matrix with itself, by repeated squaring.

        Args:
            n: the exponent; a negative one takes the inverse.

        Returns a tensor of this shape (..., n, n) and dtype; float for a negative exponent.

        Raises ShapeError unless the last two sizes are equal, DTypeError for an exponent that is no
        integer.

        >>> Tensor([[1, 1], [0, 1]]).matrix_power(5).tolist()
        [[1, 5], [0, 1]]
        """
        self._square("matrix_power")
        if not isinstance(n, int):
            raise DTypeError(f"matrix_power: n must be an integer, not {n!r}", line=here())
        if n == 0:
            unit = type(self).eye(self._sizes[-1], dtype=self.dtype, device=self.device)
            return unit.expand(self.shape)._apart()
        power = self if n > 0 else self.inv()
        result: Self | None = None
        for bit in reversed(bin(abs(n))[2:]):
            if bit == "1":
                result = power if result is None else result @ power
            power = power @ power
        assert result is not None
        return self._copy_of(result) if result is self else result

    # determinants

    @templated
    @composed
    def det(self) -> Self:
        """Determinant of each matrix (..., n, n).

        Returns a float tensor of shape (...).

        Raises ShapeError unless the last two sizes are equal.

        >>> Tensor([[2.0, 1.0], [0.0, 4.0]]).det().item()
        8.0
        """
        self._square("det")
        if not self._has_elements():
            return self._floating().sum((-1, -2)) + (1.0 if self.shape[-1] == 0 else 0.0)
        found = self._matrices()._determinants()
        return found.reshape(self.shape[:-2]).cast(self._floating().dtype)

    @templated
    @composed
    def slogdet(self) -> tuple[Self, Self]:
        """Sign of the determinant of each matrix (..., n, n), 0 if it is 0, and the logarithm of
        its magnitude, which neither overflows nor underflows.

        Returns (sign, logarithm), two float tensors of shape (...).

        Raises ShapeError unless the last two sizes are equal.

        >>> sign, log = Tensor([[0.0, 1.0], [1.0, 0.0]]).slogdet()
        >>> sign.item(), log.item()
        (-1.0, 0.0)
        """
        self._square("slogdet")
        lead, dtype = self.shape[:-2], self._floating().dtype
        if not self._has_elements():
            nothing = self._floating().sum((-1, -2))
            return nothing + 1.0, nothing
        sign, pivots = self._matrices()._pivots()
        signs = (sign * pivots.detach().sign().prod(-1)).reshape(lead).cast(dtype)
        return signs, pivots.abs().log().sum(-1).reshape(lead).cast(dtype)

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

    # factorisations

    @templated
    @composed
    def cholesky(self, upper: bool = False) -> Self:
        """Cholesky decomposition of symmetric positive definite matrices: L with L @ L^T = self.
        The lower triangle of this is read; the result is NaN where a matrix is not positive
        definite.

        Args:
            upper: give L^T.

        Returns a float triangle of this shape (..., n, n).

        Raises ShapeError unless the last two sizes are equal.

        >>> Tensor([[4.0, 2.0], [2.0, 5.0]]).cholesky().tolist()
        [[2.0, 0.0], [1.0, 2.0]]
        """
        size = self._square("cholesky")
        if not self._has_elements():
            return self._floating()

        def factor(a: Self) -> Self:
            count = a._sizes[0]

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

            build = functools.partial(factors.cholesky, count=count, size=size)
            made = a._by_rule("cholesky", (count, size, size), build, [a], rule)
            return made if upper else made.transpose(1, 2)

        return self._each_matrix(factor, (size, size))

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
            raise ShapeError(f"qr: no mode {mode!r}: 'complete' or 'reduced'", line=here())
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

    # what singular matrices have instead of an inverse

    @templated
    @composed
    def pinv(self, rcond: float | None = None) -> Self:
        """Pseudo-inverse (Moore, Penrose) of each matrix.

        Args:
            rcond: singular values up to this times the largest count as zero; by default the larger
                size times the dtype's epsilon.

        Returns a float tensor of shape (..., n, m) for shape (..., m, n).

        Raises ShapeError for less than two axes.

        >>> Tensor([[2.0, 0.0], [0.0, 0.0]]).pinv().tolist()
        [[0.5, 0.0], [0.0, 0.0]]
        """
        rows, columns = self._matrix("pinv")
        if not self._has_elements():
            return self._floating().transpose(-1, -2)
        return self._each_matrix(lambda a: a._pseudo_inverse(rcond), (columns, rows))

    @templated
    @composed
    def lstsq(self, other: Self, rcond: float | None = None) -> tuple[Self, Self, Self, Self]:
        """Least squares: the shortest x among those that make the length of self @ x - other
        smallest.

        Args:
            other: (..., m, k), or (m,), for this shape (..., m, n).
            rcond: singular values up to this times the largest count as zero; by default as in
                `pinv`.

        Returns (x, residuals, rank, singular values): float (..., n, k), the squared lengths (...,
        k), int32 (...), float (..., min(m, n)).

        Raises ShapeError unless the sizes fit, DeviceError for tensors of two devices.

        >>> x = Tensor([[1.0], [1.0]]).lstsq(Tensor([1.0, 3.0]))[0]
        >>> round(x.item(), 5)
        2.0
        """
        rows, _ = self._matrix("lstsq")
        values = self.detach().svdvals()
        limit = _limit(self, rcond) * values.amax(-1, keepdim=True) if values.shape[-1] else values
        rank = (values > limit).sum(-1, dtype=dtypes.int32)
        is_vector = other.ndim == 1
        right = other.reshape(-1, 1) if is_vector else other
        if right.ndim < 2 or right.shape[-2] != rows:
            raise unfit("lstsq", self, other)
        x = self.pinv(rcond) @ right
        residuals = (self @ x - right).square().sum(-2)
        return (x.squeeze(-1), residuals.squeeze(-1), rank, values) if is_vector else (
            x, residuals, rank, values
        )  # fmt: skip

    @composed
    def matrix_rank(self, rcond: float | None = None) -> Self:
        """Rank of each matrix: the number of singular values above `rcond` times the largest.

        Args:
            rcond: relative threshold; by default as in `pinv`.

        Returns an int32 tensor of shape (...) for shape (..., m, n).

        Raises ShapeError for less than two axes.

        >>> Tensor([[1.0, 1.0], [1.0, 1.0]]).matrix_rank().item()
        1
        """
        self._matrix("matrix_rank")
        values = self.detach().svdvals()
        if not values.shape[-1]:
            return values.sum(-1).cast(dtypes.int32)
        limit = values.amax(-1, keepdim=True) * _limit(self, rcond)
        return (values > limit).sum(-1, dtype=dtypes.int32)

    # sums and products

    @templated
    @composed
    def trace(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Self:
        """Sum the diagonal over two axes.

        Args:
            offset: number of diagonals above the main one.
            dim1: axis of the rows.
            dim2: axis of the columns.

        Returns a tensor without the two axes; integers and bool give int64, floats keep their
        dtype.

        Raises IndexBoundsError for an axis that is out of range, ShapeError if the two are one.

        >>> Tensor([[1, 2], [3, 4]]).trace().item()
        5
        """
        return self.diagonal(offset, dim1, dim2).sum(-1)

    @composed
    def kron(self, other: Self) -> Self:
        """Kronecker product: each element of this tensor times all of `other`, in its position.

        Args:
            other: a tensor; missing axes count as size 1.

        Returns a tensor whose sizes are the products of the sizes, in the dtype to which both
        promote.

        >>> Tensor([[1, 2]]).kron(Tensor([[1], [1]])).tolist()
        [[1, 2], [1, 2]]
        """
        check_devices("kron", [self, other])
        length = max(self.ndim, other.ndim)
        ours = (1,) * (length - self.ndim) + self._sizes
        theirs = (1,) * (length - other.ndim) + other._sizes
        left = self.reshape([each for size in ours for each in (size, 1)])
        right = other.reshape([each for size in theirs for each in (1, size)])
        return (left * right).reshape([a * b for a, b in zip(ours, theirs)])

    @composed
    def cross(self, other: Self, dim: int = -1) -> Self:
        """Cross product: the vector at right angles to both, along an axis of size 3.

        Args:
            other: a tensor whose shape broadcasts with this one.
            dim: the axis; a negative one counts from the last.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote; two bools
        give int32.

        Raises ShapeError unless both sizes along `dim` are 3 and the others broadcast.

        >>> Tensor([1, 0, 0]).cross(Tensor([0, 1, 0])).tolist()
        [0, 0, 1]
        """
        for tensor in (self, other):
            if not tensor.ndim or tensor.size(dim) != 3:
                raise ShapeError(
                    f"cross: axis {dim} of {show_shape(tensor.shape)} has no size 3",
                    left=describe(self.uop),
                    right=describe(other.uop),
                    line=here(),
                )
        return self.roll(-1, dim) * other.roll(-2, dim) - self.roll(-2, dim) * other.roll(-1, dim)

    @composed
    def matrix_norm(self, ord: str | float = "fro", keepdim: bool = False) -> Self:
        """Norm of each matrix (..., m, n).

        Args:
            ord: "fro" (root of the sum of squares), "nuc" (sum of the singular values), 2 and -2
                (the largest, the smallest of these), 1 and -1 (of the columns' sums of magnitudes),
                inf and -inf (of the rows').
            keepdim: keep the two axes, with size 1.

        Returns a float tensor of shape (...).

        Raises ShapeError for another `ord`, or less than two axes.

        >>> Tensor([[1.0, -2.0], [3.0, 4.0]]).matrix_norm(1).item()
        6.0
        """
        self._matrix("matrix_norm")
        x = self._floating()
        if ord == "fro":
            result = x.norm(2, (-2, -1))
        elif ord in ("nuc", 2, -2):
            values = x.svdvals()
            result = (
                values.sum(-1) if ord == "nuc" else values.amax(-1) if ord == 2 else values.amin(-1)
            )
        elif ord in (1, -1, math.inf, -math.inf):
            sums = x.abs().sum(-2 if ord in (1, -1) else -1)
            result = sums.amax(-1) if float(ord) > 0 else sums.amin(-1)
        else:
            raise ShapeError(
                f"matrix_norm: no norm {ord!r}: 'fro', 'nuc', 1, 2, inf, or one of these negative",
                line=here(),
            )
        return result.unsqueeze(-1).unsqueeze(-1) if keepdim else result

    @composed
    def newton_schulz(self, steps: int, params: Sequence[float], eps: float = 1e-7) -> Self:
        """Bring all singular values of a matrix near 1 by an odd polynomial of it (Newton and
        Schulz): X = self / (norm + eps), then `steps` times X = p0 X + p1 (X X^T) X + p2 (X X^T)^2
        X + ...

        Args:
            steps: number of iterations.
            params: p0, p1, p2, ...
            eps: added to the norm.

        Returns a float tensor of this shape (..., m, n).

        Raises ShapeError for less than two axes.

        >>> Tensor([[2.0, 0.0], [0.0, 1.0]]).newton_schulz(10, (1.5, -0.5)).round().tolist()
        [[1.0, 0.0], [0.0, 1.0]]
        """
        rows, columns = self._matrix("newton_schulz")
        x = self / (self.norm(2, (-2, -1), keepdim=True) + eps)
        if rows > columns:
            x = x.transpose(-1, -2)
        for _ in range(steps):
            x = x.contiguous()
            square = (x @ x.transpose(-1, -2)).contiguous()
            total = x * params[-1]
            for param in reversed(params[:-1]):
                total = square @ total.contiguous() + x * param
            x = total
        return x.transpose(-1, -2) if rows > columns else x

    def _pseudo_inverse(self, rcond: float | None) -> Self:
        u, s, v = self.detach().svd(full_matrices=False)
        limit = s.amax(-1, keepdim=True) * _limit(self, rcond)
        inverse = (s > limit).where(1 / s, 0.0)
        made = (v.transpose(1, 2) * inverse.unsqueeze(1)) @ u.transpose(1, 2)

        def rule(g: Self, p: Self, _: Self, a: Self) -> list[Self | None]:
            # p = p a p, and a p and p a are symmetric (Golub, Pereyra).
            transposed = p.transpose(1, 2)
            flow = g.transpose(1, 2)
            gradient = -(transposed @ g @ transposed)
            outer = flow - ((a @ p) @ flow).contiguous()
            inner = flow - (flow @ (p @ a)).contiguous()
            return [None, gradient + outer @ p @ transposed + transposed @ p @ inner]

        return self._by_rule("take", made._sizes, take, [made, self], rule)


def _eigen_pairs(made: Any, size: int) -> tuple[Any, Any]:
    """The eigenvectors, one a row, and the eigenvalues."""
    edge = size * size
    vectors = made._slice(1, 0, edge).reshape(made.shape[0], size, size)
    return vectors, made._slice(1, edge, edge + size)


def _limit(x: Any, rcond: float | None) -> float:
    return max(x.shape[-1], x.shape[-2]) * epsilon(x) if rcond is None else rcond
