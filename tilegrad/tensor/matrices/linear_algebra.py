"""Linear algebra: systems, inverses, determinants, norms of matrices.

The last two axes are a matrix, those before count matrices.

Whether a matrix is singular is known only once it is computed, so nothing raises for it: a system
without a solution gives inf or NaN, as does the Cholesky factor of a matrix that is not positive
definite, in that matrix and no other. `det`, `slogdet`, `qr`, `svd`, `pinv` and `lstsq` are at ease
with singular matrices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import DTypeError, ShapeError
from tilegrad.base.origin import composed
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.handle.core import check_devices, describe
from tilegrad.tensor.handle.size_arguments import show_shape
from tilegrad.tensor.matrices.decompositions import Decompositions
from tilegrad.tensor.matrices.factorise import epsilon, take, unfit

__all__ = ["LinearAlgebra"]


class LinearAlgebra(Decompositions):
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

    @templated
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

    @templated
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
            raise DTypeError(f"matrix_power: n must be an integer, not {n!r}")
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

    @templated
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

    @templated
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
                )
        return self.roll(-1, dim) * other.roll(-2, dim) - self.roll(-2, dim) * other.roll(-1, dim)

    @templated
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
                f"matrix_norm: no norm {ord!r}: 'fro', 'nuc', 1, 2, inf, or one of these negative"
            )
        return result.unsqueeze(-1).unsqueeze(-1) if keepdim else result

    @templated
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


def _limit(x: Any, rcond: float | None) -> float:
    return max(x.shape[-1], x.shape[-2]) * epsilon(x) if rcond is None else rcond
