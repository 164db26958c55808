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
from tilegrad.tensor import factors
from tilegrad.tensor.core import check_devices, describe
from tilegrad.tensor.determinant import Determinants
from tilegrad.tensor.factorise import epsilon, take, unfit
from tilegrad.tensor.sizes import here, show_shape

__all__ = ["LinearAlgebra"]


class LinearAlgebra(Determinants):
    """Linear algebra on the last two axes."""

    __slots__ = ()

    # systems

    @composed
    def solve(self, other: Self) -> Self:
        """x with self @ x = other, by elimination with pivots. A vector `other` (one axis) gives a
        vector for each matrix; axes before the matrices broadcast.

        Raises ShapeError unless this is square and the sizes fit, DeviceError for two devices.
        Where a matrix is singular the result is inf or NaN.

        >>> Tensor([[2.0, 0.0], [0.0, 4.0]]).solve(Tensor([2.0, 2.0])).tolist()
        [1.0, 0.5]
        """
        return self._system("solve", other, lambda a, b: a._solved(b))

    @composed
    def solve_triangular(
        self, other: Self, *, upper: bool, left: bool = True, unitriangular: bool = False
    ) -> Self:
        """x with self @ x = other (or x @ self = other, if not `left`), where this is triangular;
        the other triangle is not read, nor the diagonal of a `unitriangular` one.

        Raises as `solve`.

        >>> a = Tensor([[2.0, 0.0], [1.0, 1.0]])
        >>> a.solve_triangular(Tensor([[2.0], [3.0]]), upper=False).tolist()
        [[1.0], [2.0]]
        """
        if not left:
            turned = self.transpose(-1, -2).solve_triangular(
                other.transpose(-1, -2), upper=not upper, unitriangular=unitriangular
            )
            return turned.transpose(-1, -2)
        return self._system(
            "solve_triangular",
            other,
            lambda a, b: a._solved_triangle(b, is_upper=upper, is_unit=unitriangular),
        )

    @composed
    def inv(self) -> Self:
        """The inverse of each matrix; inf or NaN where there is none.

        Raises ShapeError unless this is square.

        >>> Tensor([[2.0, 0.0], [0.0, 4.0]]).inv().tolist()
        [[0.5, 0.0], [0.0, 0.25]]
        """
        self._square("inv")
        if not self._has_elements():
            return self._floating()
        return self._each_matrix(lambda a: a._solved(a._identity()), self.shape[-2:])

    @composed
    def matrix_power(self, n: int) -> Self:
        """This matrix multiplied `n` times, by repeated squaring; of the inverse for n < 0.

        Raises ShapeError unless this is square.

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

    @composed
    def det(self) -> Self:
        """The determinant of each matrix.

        Raises ShapeError unless this is square.

        >>> Tensor([[2.0, 1.0], [0.0, 4.0]]).det().item()
        8.0
        """
        self._square("det")
        if not self._has_elements():
            return self._floating().sum((-1, -2)) + (1.0 if self.shape[-1] == 0 else 0.0)
        found = self._matrices()._determinants()
        return found.reshape(self.shape[:-2]).cast(self._floating().dtype)

    @composed
    def slogdet(self) -> tuple[Self, Self]:
        """The sign of the determinant (0 if it is 0), and the logarithm of its magnitude, which
        neither overflows nor underflows.

        Raises ShapeError unless this is square.

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
        """(P, L, U) with self = P @ L @ U for each square matrix: a permutation, a lower triangle
        with ones on the diagonal, an upper triangle.

        Raises ShapeError unless this is square.

        >>> p, l, u = Tensor([[1.0, 2.0], [2.0, 2.0]]).lu()
        >>> p.tolist(), l.tolist(), u.tolist()
        ([[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [0.5, 1.0]], [[2.0, 2.0], [0.0, 1.0]])
        """
        size = self._square("lu")
        if not self._has_elements():
            return self._floating(), self._floating(), self._floating()
        packed = self._matrices()._eliminated()
        both = packed._window(2, 0, size)
        lower = both.tril(-1) + both._identity()
        order = packed._window(2, size, size + 1).detach()
        permutation = order.eq(self._places(size)).transpose(1, 2)
        shape, dtype = self.shape, self._floating().dtype
        return (
            permutation.cast(dtype).reshape(shape),
            lower.cast(dtype).reshape(shape),
            both.triu().cast(dtype).reshape(shape),
        )

    # factorisations

    @composed
    def cholesky(self, upper: bool = False) -> Self:
        """The lower triangle L with L @ L^T = self for symmetric positive definite matrices (or the
        upper one, L^T). The lower triangle of this is read. NaN where a matrix is not positive
        definite.

        Raises ShapeError unless this is square.

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

    @composed
    def qr(self, mode: str = "complete") -> tuple[Self, Self]:
        """(Q, R) with self = Q @ R, Q orthogonal and R upper triangular, by Householder's
        reflections.

        A matrix (m, n) gives (m, m) and (m, n); in mode "reduced" (m, k) and (k, n), where k is the
        smaller of m and n. Columns of Q beyond the k-th are not determined by the matrix, and no
        gradient flows from them.

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
            return unit.expand(*lead, rows, vectors)._apart(), self._floating()._window(
                -2, 0, vectors
            )
        q, r = self._matrices()._reflected(vectors)
        return (
            q.reshape(*lead, rows, vectors).cast(dtype),
            r.reshape(*lead, vectors, columns).cast(dtype),
        )

    @composed
    def svd(self, full_matrices: bool = True) -> tuple[Self, Self, Self]:
        """(U, S, V^T) with self = U @ diag(S) @ V^T: orthonormal vectors and singular values, the
        largest first, by Jacobi's rotations.

        A matrix (m, n) gives (m, m), (k,), (n, n), where k is the smaller of m and n; without
        `full_matrices` (m, k), (k,), (k, n). Vectors beyond the k-th have no gradient; between
        equal singular values vectors are not determined, and what a gradient depends on that does
        not count.

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
            rest = u.detach()._reflected(rows)[0]._window(2, columns, rows).detach()
            u = u.cat(rest, dim=2)
        return (
            u.reshape(*lead, rows, width).cast(dtype),
            s.reshape(*lead, columns).cast(dtype),
            v.transpose(1, 2).reshape(*lead, columns, columns).cast(dtype),
        )

    @composed
    def eigh(self) -> tuple[Self, Self]:
        """(values, vectors) of symmetric matrices: self @ vectors = vectors * values, the smallest
        first, the vectors being orthonormal columns, by Jacobi's rotations. The lower triangle of
        this is read. Of equal values as in `svd`.

        Raises ShapeError unless this is square.

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
            (vectors, values), (flow, along) = _eigen_parts(made, size), _eigen_parts(g, size)
            turned = vectors.transpose(1, 2)
            gaps = values.reshape(count, 1, size) - values.reshape(count, size, 1)
            # Not divided by 0 where that is not taken, as its own derivative would be NaN.
            is_equal = gaps.eq(0)
            apart = (vectors @ flow.transpose(1, 2)) / is_equal.where(1.0, gaps)
            inner = is_equal.where(0.0, apart)
            inner = inner + along.reshape(count, size, 1) * inner._identity()
            both = turned @ inner @ vectors
            return [(both + both.transpose(1, 2)) * 0.5]

        build = functools.partial(factors.eigen, count=count, size=size, epsilon=epsilon(a))
        made = a._by_rule("eigen", (count, total), build, [a], rule)
        vectors, values = _eigen_parts(made, size)
        return (
            values.reshape(*lead, size).cast(dtype),
            vectors.transpose(1, 2).reshape(*lead, size, size).cast(dtype),
        )

    def eigvalsh(self) -> Self:
        """The eigenvalues of symmetric matrices, the smallest first; see `eigh`.

        >>> Tensor([[2.0, 0.0], [0.0, 1.0]]).eigvalsh().tolist()
        [1.0, 2.0]
        """
        return self.eigh()[0]

    def svdvals(self) -> Self:
        """The singular values, the largest first; see `svd`.

        >>> Tensor([[3.0, 0.0], [0.0, 4.0]]).svdvals().tolist()
        [4.0, 3.0]
        """
        return self.svd(full_matrices=False)[1]

    # what singular matrices have instead of an inverse

    @composed
    def pinv(self, rcond: float | None = None) -> Self:
        """The pseudo-inverse (Moore, Penrose) of each matrix. Singular values up to `rcond` times
        the largest count as zero; by default `rcond` is the larger size times the dtype's epsilon.

        Raises ShapeError if there are no two axes.

        >>> Tensor([[2.0, 0.0], [0.0, 0.0]]).pinv().tolist()
        [[0.5, 0.0], [0.0, 0.0]]
        """
        rows, columns = self._matrix("pinv")
        if not self._has_elements():
            return self._floating().transpose(-1, -2)
        return self._each_matrix(lambda a: a._pseudo_inverse(rcond), (columns, rows))

    @composed
    def lstsq(self, other: Self, rcond: float | None = None) -> tuple[Self, Self, Self, Self]:
        """(x, residuals, rank, singular values): the shortest x among those that make the length of
        self @ x - other smallest; the squares of these lengths, one for each column of `other`; the
        rank of each matrix by `rcond`, as in `pinv`; its singular values.

        Raises as `solve`, but for any matrix.

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
        """How many singular values are larger than `rcond` times the largest (see `pinv`), as
        int32.

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

    @composed
    def trace(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Self:
        """The sum of the diagonal over two axes, by default the first two.

        >>> Tensor([[1, 2], [3, 4]]).trace().item()
        5
        """
        return self.diagonal(offset, dim1, dim2).sum(-1)

    @composed
    def kron(self, other: Self) -> Self:
        """Kronecker's product: each element of this, times all of `other`, in its place.

        >>> Tensor([[1, 2]]).kron(Tensor([[1], [1]])).tolist()
        [[1, 2], [1, 2]]
        """
        check_devices("kron", [self, other])
        length = max(self.ndim, other.ndim)
        ours = (1,) * (length - self.ndim) + self._sizes
        theirs = (1,) * (length - other.ndim) + other._sizes
        left = self.reshape([part for size in ours for part in (size, 1)])
        right = other.reshape([part for size in theirs for part in (1, size)])
        return (left * right).reshape([a * b for a, b in zip(ours, theirs)])

    @composed
    def cross(self, other: Self, dim: int = -1) -> Self:
        """The vector at right angles to both, along an axis of size 3.

        Raises ShapeError for another size.

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
        """A norm of each matrix: "fro" (the root of the sum of squares), "nuc" (the sum of the
        singular values), 2 and -2 (the largest, the smallest), 1 and -1 (of the columns' sums of
        magnitudes), inf and -inf (of the rows').

        Raises ShapeError for another `ord`, or if there are no two axes.

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
        """The matrix X = self / (norm + eps) after `steps` times X = p0 X + p1 (X X^T) X + p2 (X
        X^T)^2 X + ...: with the right `params`, all singular values come near 1.

        Raises ShapeError if there are no two axes.

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
            turned = p.transpose(1, 2)
            flow = g.transpose(1, 2)
            part = -(turned @ g @ turned)
            outer = flow - ((a @ p) @ flow).contiguous()
            inner = flow - (flow @ (p @ a)).contiguous()
            return [None, part + outer @ p @ turned + turned @ p @ inner]

        return self._by_rule("take", made._sizes, take, [made, self], rule)


def _eigen_parts(made: Any, size: int) -> tuple[Any, Any]:
    """The eigenvectors, one a row, and the eigenvalues."""
    edge = size * size
    vectors = made._window(1, 0, edge).reshape(made.shape[0], size, size)
    return vectors, made._window(1, edge, edge + size)


def _limit(x: Any, rcond: float | None) -> float:
    return max(x.shape[-1], x.shape[-2]) * epsilon(x) if rcond is None else rcond
