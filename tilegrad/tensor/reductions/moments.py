"""Means, variances and deviations, and norms, over axes."""

from __future__ import annotations

import math
from typing import Any, Self

from tilegrad.base.dtype_promotion import sum_dtype
from tilegrad.base.errors import DTypeError
from tilegrad.base.origin import composed
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, prod
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.handle.size_arguments import as_axes, as_number
from tilegrad.tensor.reductions.reduce import Axes, Reduce
from tilegrad.tensor.reductions.spelling import takes_dim

__all__ = ["Moments"]


class Moments(Reduce):
    """Moments and norms. `axis` is one axis, several, or None for all, as of `Reduce`."""

    __slots__ = ()

    def _count(self, axes: tuple[int, ...]) -> Any:
        """How many elements a reduction over `axes` combines: a number, or a symbolic integer as a
        tensor.
        """
        count = prod(self.shape[each] for each in axes)
        if isinstance(count, int):
            return count
        return self._of(
            UOp(Ops.CAST, sum_dtype(self._floating().dtype), (count,)), self.device, self._variables
        )

    @templated
    @takes_dim
    @composed
    def mean(self, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None) -> Self:
        """Arithmetic mean over axes; NaN over no elements.

        Args:
            axis: an axis, several of them, or None for all; negative ones count from the last.
                `dim` is another name for it.
            dim: the same as `axis`, by PyTorch's name.
            keepdim: keep each reduced axis, with size 1.

        Returns a tensor without the reduced axes; floats keep their dtype, bool and integers give
        the default float (float32).

        Raises IndexBoundsError for an axis that is out of range, ShapeError for one that is named
        twice, DTypeError for one that is no integer.

        >>> Tensor([[1.0, 3.0], [5.0, 7.0]]).mean(0).tolist()
        [3.0, 5.0]
        """
        axes = as_axes("mean", axis, self.ndim)
        x = self._floating()
        total = x.cast(sum_dtype(x.dtype)).sum(axes, keepdim)
        count = self._count(axes)
        mean = (
            total * (1 / count if count else math.nan) if isinstance(count, int) else total / count
        )
        return mean.cast(x.dtype)

    @templated
    @takes_dim
    def var(
        self,
        axis: Axes = None,
        keepdim: bool = False,
        correction: int = 1,
        unbiased: bool | None = None,
        *,
        dim: Axes = None,
    ) -> Self:
        """Variance over axes: squared distances from the mean, divided by their number less
        `correction`.

        Args:
            axis: an axis, several of them, or None for all; negative ones count from the last.
                `dim` is another name for it.
            dim: the same as `axis`, by PyTorch's name.
            keepdim: keep each reduced axis, with size 1.
            correction: what is taken off the number; 1 gives the unbiased estimate of Bessel.
            unbiased: PyTorch's older name of a correction of 1, or of 0 if false.

        Returns a tensor without the reduced axes; floats keep their dtype, bool and integers give
        the default float (float32).

        Raises IndexBoundsError for an axis that is out of range, ShapeError for one that is named
        twice, DTypeError for one that is no integer.

        >>> Tensor([1.0, 3.0]).var().item(), Tensor([1.0, 3.0]).var(correction=0).item()
        (2.0, 1.0)
        """
        return self.var_mean(axis, keepdim, correction, unbiased)[0]

    @templated
    @takes_dim
    @composed
    def var_mean(
        self,
        axis: Axes = None,
        keepdim: bool = False,
        correction: int = 1,
        unbiased: bool | None = None,
        *,
        dim: Axes = None,
    ) -> tuple[Self, Self]:
        """Variance and mean over axes.

        Args:
            axis: an axis, several of them, or None for all; negative ones count from the last.
                `dim` is another name for it.
            dim: the same as `axis`, by PyTorch's name.
            keepdim: keep each reduced axis, with size 1.
            correction: as of `var`.
            unbiased: as of `var`.

        Returns a pair (variance, mean), each float without the reduced axes.

        Raises IndexBoundsError for an axis that is out of range, ShapeError for one that is named
        twice, DTypeError for one that is no integer.

        >>> variance, mean = Tensor([1.0, 3.0]).var_mean(correction=0)
        >>> variance.item(), mean.item()
        (1.0, 2.0)
        """
        dtype = self._floating().dtype
        correction = correction if unbiased is None else int(unbiased)
        variance, mean = self._wide_var_mean(axis, keepdim, correction)
        return variance.cast(dtype), mean.cast(dtype)

    def _wide_var_mean(self, axis: Axes, keepdim: bool, correction: float) -> tuple[Self, Self]:
        """The same in the dtype of sums."""
        axes, correction = (
            as_axes("var", axis, self.ndim),
            as_number("var", "correction", correction),
        )
        x = self._floating()
        shift, apart, rest = x.cast(sum_dtype(x.dtype))._deviations(axes)
        variance = self._squares(apart, rest, axes)
        count = self._count(axes)
        if isinstance(count, int):
            scale = 1 / (count - correction) if count > correction else math.inf
            variance = variance * scale
        else:
            variance = variance / (count - correction).maximum(0)
        mean = shift + rest
        return (variance, mean) if keepdim else (variance._without(axes), mean._without(axes))

    def _deviations(self, axes: tuple[int, ...]) -> tuple[Self, Self, Self]:
        """The mean over `axes` as a sum gives it, how far each value is from it, and the mean of
        that: what the first mean was rounded by. Values less both are deviations that a large mean
        does not blur.

        The rounded mean is a shift as any other: nothing that is made of the deviations and their
        mean depends on it, so it has no derivative.
        """
        shift = self.mean(axes, keepdim=True).detach()
        apart = self - shift
        return shift, apart, apart.mean(axes, keepdim=True)

    def _squares(self, apart: Self, rest: Self, axes: tuple[int, ...]) -> Self:
        """The sum over `axes` of the squares of `apart - rest`, in the pass that finds `rest`."""
        squares = apart.square().sum(axes, keepdim=True) - rest.square() * self._count(axes)
        # For equal values, rounding may leave less than nothing.
        positive: Self = (squares < 0).where(0, squares)
        return positive

    @templated
    @takes_dim
    def std(
        self,
        axis: Axes = None,
        keepdim: bool = False,
        correction: int = 1,
        unbiased: bool | None = None,
        *,
        dim: Axes = None,
    ) -> Self:
        """Standard deviation over axes: the square root of `var`.

        Args:
            axis: an axis, several of them, or None for all; negative ones count from the last.
                `dim` is another name for it.
            dim: the same as `axis`, by PyTorch's name.
            keepdim: keep each reduced axis, with size 1.
            correction: as of `var`.
            unbiased: as of `var`.

        Returns a float tensor without the reduced axes.

        Raises IndexBoundsError for an axis that is out of range, ShapeError for one that is named
        twice, DTypeError for one that is no integer.

        >>> Tensor([1.0, 3.0]).std(correction=0).item()
        1.0
        """
        return self.std_mean(axis, keepdim, correction, unbiased)[0]

    @templated
    @takes_dim
    @composed
    def std_mean(
        self,
        axis: Axes = None,
        keepdim: bool = False,
        correction: int = 1,
        unbiased: bool | None = None,
        *,
        dim: Axes = None,
    ) -> tuple[Self, Self]:
        """Standard deviation and mean over axes.

        Args:
            axis: an axis, several of them, or None for all; negative ones count from the last.
                `dim` is another name for it.
            dim: the same as `axis`, by PyTorch's name.
            keepdim: keep each reduced axis, with size 1.
            correction: as of `var`.
            unbiased: as of `var`.

        Returns a pair (deviation, mean), each float without the reduced axes.

        Raises IndexBoundsError for an axis that is out of range, ShapeError for one that is named
        twice, DTypeError for one that is no integer.

        >>> deviation, mean = Tensor([1.0, 3.0]).std_mean(correction=0)
        >>> deviation.item(), mean.item()
        (1.0, 2.0)
        """
        dtype = self._floating().dtype
        correction = correction if unbiased is None else int(unbiased)
        variance, mean = self._wide_var_mean(axis, keepdim, correction)
        return variance._root_of_sum().cast(dtype), mean.cast(dtype)

    @templated
    @takes_dim
    @composed
    def norm(
        self, p: float | str = 2.0, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None
    ) -> Self:
        """Norm over axes: (sum |x|^p)^(1/p).

        Args:
            p: the order: 2 or "fro" is Euclid's, 1 the sum of magnitudes, inf the largest, -inf the
                smallest, 0 counts what is not zero.
            axis: an axis, several of them, or None for all; negative ones count from the last.
                `dim` is another name for it.
            dim: the same as `axis`, by PyTorch's name.
            keepdim: keep each reduced axis, with size 1.

        Returns a float tensor without the reduced axes.

        Raises DTypeError for another text as `p`, IndexBoundsError for an axis that is out of
        range, ShapeError for one that is named twice.

        >>> Tensor([3.0, 4.0]).norm().item()
        5.0
        """
        if isinstance(p, str) and p != "fro":
            raise DTypeError(f"norm: unknown p {p!r}", allowed="a number, 'fro'")
        p = 2.0 if isinstance(p, str) else as_number("norm", "p", p)
        x = self._floating()
        if p == math.inf:
            return x.abs().amax(axis, keepdim)
        if p == -math.inf:
            return x.abs().amin(axis, keepdim)
        if p == 0:
            return x.ne(0).cast(x.dtype).sum(axis, keepdim)
        if p == 2:
            return x._in_float(lambda wide: wide.square().sum(axis, keepdim)._root_of_sum())
        if p == 1:
            return x.abs().sum(axis, keepdim)
        return x._in_float(lambda wide: wide._p_norm(p, axis, keepdim))

    def _p_norm(self, p: float, axis: Axes, keepdim: bool) -> Self:
        size = self.abs()
        # A power below 1 would have an infinite gradient at 0; a negative one is infinite itself.
        is_plain = p < 0 or float(p).is_integer()
        powers = size.pow(p) if is_plain else size._power_of_sum(p)
        total = powers.sum(axis, keepdim)
        # The norm of no elements is infinite.
        return total._power_of_sum(1 / p) if p > 0 else total.pow(1 / p)
