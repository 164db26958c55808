"""Matrix products and inverses under PyTorch's names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.dtype_promotion import promote
from tilegrad.base.errors import ShapeError
from tilegrad.base.origin import composed
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.composed.creating import Creating
from tilegrad.tensor.composed.layouts import Layouts
from tilegrad.tensor.handle.core import describe
from tilegrad.tensor.handle.size_arguments import as_axis, show_shape

__all__ = ["Products"]

# Terms of the series of a matrix's exponential that are enough for float64 where its 1-norm is at
# most 1/2: 0.5^18 / 18! is 6e-22.
_EXPONENTIAL_TERMS = 18


class Products(Creating):
    """Products of vectors and matrices, and what is added to them."""

    __slots__ = ()

    def _matrices_of(
        self, name: str, other: Self, ours: int, theirs: int, dtype: DType | None = None
    ) -> Self:
        """self @ other, with a check of the number of axes of each.

        Raises ShapeError for others.
        """
        if (self.ndim, other.ndim) != (ours, theirs):
            raise ShapeError(
                f"{name}: {show_shape(self.shape)} and {show_shape(other.shape)} have not "
                f"{ours} and {theirs} axes",
                left=describe(self.uop),
                right=describe(other.uop),
                remedy="matmul takes any number of axes",
            )
        return self.matmul(other, dtype)

    def mm(self, other: Self) -> Self:
        """Product of two matrices.

        Args:
            other: (k, m), for this shape (n, k).

        Returns a tensor of shape (n, m), in the dtype to which both promote.

        Raises ShapeError for other numbers of axes, or sizes that do not fit.

        >>> Tensor([[1, 2]]).mm(Tensor([[3], [4]])).tolist()
        [[11]]
        """
        return self._matrices_of("mm", other, 2, 2)

    def bmm(self, other: Self) -> Self:
        """Product of each pair of matrices.

        Args:
            other: (b, k, m), for this shape (b, n, k).

        Returns a tensor of shape (b, n, m), in the dtype to which both promote.

        Raises ShapeError for other numbers of axes, or sizes that do not fit.

        >>> Tensor([[[1, 2]]]).bmm(Tensor([[[3], [4]]])).tolist()
        [[[11]]]
        """
        return self._matrices_of("bmm", other, 3, 3)

    def mv(self, vector: Self) -> Self:
        """Product of a matrix and a vector.

        Args:
            vector: (k,), for this shape (n, k).

        Returns a tensor of shape (n,), in the dtype to which both promote.

        Raises ShapeError for other numbers of axes, or sizes that do not fit.

        >>> Tensor([[1, 2]]).mv(Tensor([3, 4])).tolist()
        [11]
        """
        return self._matrices_of("mv", vector, 2, 1)

    def inner(self, other: Self) -> Self:
        """Sum the products along the last axes of both.

        Args:
            other: (*others, k), for this shape (..., k).

        Returns a tensor of shape (..., *others), in the dtype to which both promote.

        Raises ShapeError if the last sizes differ.

        >>> Tensor([1, 2]).inner(Tensor([3, 4])).item()
        11
        """
        if not self.ndim or not other.ndim:
            return self * other
        return self.tensordot(other, ([-1], [-1]))

    def vdot(self, other: Self) -> Self:
        """Dot product of two vectors.

        Args:
            other: (n,), as this shape.

        Returns a number, in the dtype to which both promote.

        Raises ShapeError for other numbers of axes, or sizes that do not fit.

        >>> Tensor([1, 2]).vdot(Tensor([3, 4])).item()
        11
        """
        return self._matrices_of("vdot", other, 1, 1)

    ger = Layouts.outer

    @templated
    @composed
    def tensordot(self, other: Self, dims: int | Sequence[Sequence[int]] = 2) -> Self:
        """Sum products over several axes of both.

        Args:
            other: a tensor.
            dims: a number k for the last k axes of this tensor and the first of `other`, or two
                lists of axes.

        Returns a tensor of the other axes, those of this tensor first, in the dtype to which both
        promote.

        Raises ShapeError unless the sizes of the axes are equal, IndexBoundsError for an axis that
        is out of range.

        >>> Tensor.ones(2, 3, 4).tensordot(Tensor.ones(3, 4, 5)).shape
        (2, 5)
        """
        if isinstance(dims, int):
            dims = [list(range(self.ndim - dims, self.ndim)), list(range(dims))]
        mine, theirs = (
            [as_axis("tensordot", axis, x.ndim) for axis in axes]
            for x, axes in zip((self, other), dims)
        )
        sizes = [self.shape[axis] for axis in mine], [other.shape[axis] for axis in theirs]
        if sizes[0] != sizes[1]:
            raise ShapeError(
                f"tensordot: axes {mine} of {show_shape(self.shape)} and {theirs} of "
                f"{show_shape(other.shape)} have different sizes",
                left=describe(self.uop),
                right=describe(other.uop),
            )
        rest = [axis for axis in range(self.ndim) if axis not in mine]
        others = [axis for axis in range(other.ndim) if axis not in theirs]
        # No size is left to be found: of no elements none can be.
        folded = math.prod(self._sizes[axis] for axis in mine)
        rows = math.prod(self._sizes[axis] for axis in rest)
        columns = math.prod(other._sizes[axis] for axis in others)
        left = self.permute(*rest, *mine).reshape(rows, folded) if self.ndim else self.reshape(1, 1)
        right = (
            other.permute(*theirs, *others).reshape(folded, columns)
            if other.ndim
            else other.reshape(1, 1)
        )
        shape = [self.shape[axis] for axis in rest] + [other.shape[axis] for axis in others]
        return (left @ right).reshape(tuple(shape))

    # with an addend

    def _added(self, product: Self, dtype: DType, beta: float, alpha: float) -> Self:
        """`product` may be wider than `dtype`, that of its factors: the result is rounded once."""
        scaled = product if alpha == 1 else product * alpha
        # Nothing of an addend times 0 is left, not even NaN.
        if beta == 0:
            return scaled.cast(dtype)
        dtype = promote(self.dtype, dtype)
        return ((self if beta == 1 else self.cast(product.dtype) * beta) + scaled).cast(dtype)

    def _wide_product(self, name: str, other: Self, dims: tuple[int, int]) -> tuple[Self, DType]:
        """The product of matrices, of half types as the float32 it is summed in, and the dtype
        that it would have.
        """
        dtype = promote(self.dtype, other.dtype)
        is_short = dtype.is_float and dtype.itemsize < 4
        wide = dtypes.float32 if is_short else None
        return self._matrices_of(name, other, *dims, dtype=wide), dtype

    def addmm(self, left: Self, right: Self, *, beta: float = 1, alpha: float = 1) -> Self:
        """Add a product of matrices: beta * self + alpha * (left @ right).

        Args:
            left: (n, k).
            right: (k, m).
            beta: factor of this tensor, which broadcasts to (n, m).
            alpha: factor of the product.

        Returns a tensor of shape (n, m), in the dtype to which all promote.

        Raises ShapeError for other numbers of axes, or sizes that do not fit.

        >>> Tensor([1]).addmm(Tensor([[2]]), Tensor([[3]])).tolist()
        [[7]]
        """
        return self._added(*left._wide_product("mm", right, (2, 2)), beta, alpha)

    def addmv(self, left: Self, right: Self, *, beta: float = 1, alpha: float = 1) -> Self:
        """Add a product of a matrix and a vector: beta * self + alpha * (left @ right).

        Args:
            left: (n, k).
            right: (k,).
            beta: factor of this tensor, which broadcasts to (n,).
            alpha: factor of the product.

        Returns a tensor of shape (n,), in the dtype to which all promote.

        Raises ShapeError for other numbers of axes, or sizes that do not fit.

        >>> Tensor([1]).addmv(Tensor([[2]]), Tensor([3])).tolist()
        [7]
        """
        return self._added(*left._wide_product("mv", right, (2, 1)), beta, alpha)

    def baddbmm(self, left: Self, right: Self, *, beta: float = 1, alpha: float = 1) -> Self:
        """Add products of pairs of matrices: beta * self + alpha * (left @ right).

        Args:
            left: (b, n, k).
            right: (b, k, m).
            beta: factor of this tensor, which broadcasts to (b, n, m).
            alpha: factor of the products.

        Returns a tensor of shape (b, n, m), in the dtype to which all promote.

        Raises ShapeError for other numbers of axes, or sizes that do not fit.

        >>> Tensor([[[1]]]).baddbmm(Tensor([[[2]]]), Tensor([[[3]]])).tolist()
        [[[7]]]
        """
        return self._added(*left._wide_product("bmm", right, (3, 3)), beta, alpha)

    def addbmm(self, left: Self, right: Self, *, beta: float = 1, alpha: float = 1) -> Self:
        """Add the sum of the products of pairs of matrices: beta * self + alpha * sum(left @
        right).

        Args:
            left: (b, n, k).
            right: (b, k, m).
            beta: factor of this tensor, which broadcasts to (n, m).
            alpha: factor of the sum.

        Returns a tensor of shape (n, m), in the dtype to which all promote.

        Raises ShapeError for other numbers of axes, or sizes that do not fit.

        >>> Tensor([[1]]).addbmm(Tensor([[[2]]]), Tensor([[[3]]])).tolist()
        [[7]]
        """
        products, dtype = left._wide_product("bmm", right, (3, 3))
        return self._added(products.sum(0), dtype, beta, alpha)

    def addr(self, left: Self, right: Self, *, beta: float = 1, alpha: float = 1) -> Self:
        """Add an outer product of vectors: beta * self + alpha * outer(left, right).

        Args:
            left: (n,).
            right: (m,).
            beta: factor of this tensor, which broadcasts to (n, m).
            alpha: factor of the product.

        Returns a tensor of shape (n, m), in the dtype to which all promote.

        Raises ShapeError unless the shapes broadcast.

        >>> Tensor([[1, 1]]).addr(Tensor([2]), Tensor([3, 4])).tolist()
        [[7, 9]]
        """
        return self._wide_with(
            lambda x, a, b: x._added(a.outer(b), promote(a.dtype, b.dtype), beta, alpha),
            left,
            right,
        )

    # functions of matrices

    inverse = Layouts.inv
    pinverse = Layouts.pinv

    def logdet(self) -> Self:
        """Logarithm of the determinant of each matrix (..., n, n); NaN where that is negative.

        Returns a float tensor of shape (...).

        Raises ShapeError unless the last two sizes are equal.

        >>> Tensor([[1.0, 0.0], [0.0, 1.0]]).logdet().item()
        0.0
        """
        sign, size = self.slogdet()
        return (sign < 0).where(float("nan"), size)

    @templated
    @composed
    def matrix_exp(self) -> Self:
        """Exponential of each matrix: its Taylor series at a multiple of 1 to 2^-16 of the matrix,
        by the 1-norm, squared back (scaling and squaring).

        Returns a float tensor of this shape (..., n, n).

        Raises ShapeError unless the last two sizes are equal.

        >>> Tensor([[0.0, 1.0], [0.0, 0.0]]).matrix_exp().tolist()
        [[1.0, 1.0], [0.0, 1.0]]
        """
        size = self._square("matrix_exp")
        x = self._floating()
        if not x._has_elements():
            return x
        norm = x.abs().sum(-2, keepdim=True).amax(-1, keepdim=True).detach()
        steps = (norm * 2).maximum(1.0).log2().ceil().clip(0, 16)
        small = x * (-steps).exp2()
        unit = type(self).eye(size, dtype=x.dtype, device=x.device).expand(x.shape)
        total = unit
        for n in range(_EXPONENTIAL_TERMS - 1, 0, -1):
            total = unit + small @ total * (1 / n)
        total = total.contiguous()
        for step in range(16):
            total = (steps > step).where(total @ total, total).contiguous()
        return total
