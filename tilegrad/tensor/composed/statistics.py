"""Reductions that count and compare: extremes, histograms, covariances, areas, distances."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import ConfigError, ShapeError
from tilegrad.base.origin import composed
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.composed.ranks import Ranks
from tilegrad.tensor.handle.core import describe
from tilegrad.tensor.handle.pairs import Extremes
from tilegrad.tensor.handle.size_arguments import as_axes, as_axis, as_int, as_number, show_shape
from tilegrad.tensor.reductions.reduce import Axes
from tilegrad.tensor.reductions.spelling import takes_dim

__all__ = ["Statistics"]


class Statistics(Ranks):
    """Reductions that count and compare."""

    __slots__ = ()

    # extremes and sums under PyTorch's names

    @takes_dim
    def aminmax(
        self, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None
    ) -> Extremes[Self]:
        """Smallest and largest value over axes.

        Args:
            axis: an axis, several of them, or None for all; negative ones count from the last.
                `dim` is another name for it.
            dim: the same as `axis`, by PyTorch's name.
            keepdim: keep each reduced axis, with size 1.

        Returns a pair (min, max), each of this dtype without the reduced axes.

        Raises ShapeError if there is no value or an axis is named twice, IndexBoundsError for an
        axis that is out of range.

        >>> [each.item() for each in Tensor([3, 1, 2]).aminmax()]
        [1, 3]
        """
        return Extremes(self.amin(axis, keepdim), self.amax(axis, keepdim))

    @takes_dim
    def nansum(
        self,
        axis: Axes = None,
        keepdim: bool = False,
        *,
        dtype: DType | str | None = None,
        dim: Axes = None,
    ) -> Self:
        """Sum over axes of the elements that are not NaN.

        Args:
            axis: an axis, several of them, or None for all; negative ones count from the last.
                `dim` is another name for it.
            dim: the same as `axis`, by PyTorch's name.
            keepdim: keep each reduced axis, with size 1.
            dtype: the dtype in which the sum is taken, and that of the result.

        Returns a tensor without the reduced axes: floats keep their dtype, integers and bool give
        int64, unless `dtype` says another.

        Raises IndexBoundsError for an axis that is out of range, ShapeError for one that is named
        twice, DTypeError for one that is no integer.

        >>> Tensor([1.0, float("nan")]).nansum().item()
        1.0
        """
        return self.isnan().where(0, self).sum(axis, keepdim, dtype=dtype)

    @takes_dim
    def nanmean(
        self,
        axis: Axes = None,
        keepdim: bool = False,
        *,
        dtype: DType | str | None = None,
        dim: Axes = None,
    ) -> Self:
        """Mean over axes of the elements that are not NaN; NaN if there are no others.

        Args:
            axis: an axis, several of them, or None for all; negative ones count from the last.
                `dim` is another name for it.
            dim: the same as `axis`, by PyTorch's name.
            keepdim: keep each reduced axis, with size 1.
            dtype: the dtype in which the mean is taken, and that of the result.

        Returns a float tensor without the reduced axes.

        Raises IndexBoundsError for an axis that is out of range, ShapeError for one that is named
        twice, DTypeError for one that is no integer.

        >>> Tensor([1.0, float("nan"), 2.0]).nanmean().item()
        1.5
        """
        count = (~self.isnan()).sum(axis, keepdim)
        return self.nansum(axis, keepdim, dtype=dtype) / count

    @takes_dim
    def count_nonzero(self, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None) -> Self:
        """Number of values over axes that are not zero.

        Args:
            axis: an axis, several of them, or None for all; negative ones count from the last.
                `dim` is another name for it.
            dim: the same as `axis`, by PyTorch's name.
            keepdim: keep each reduced axis, with size 1.

        Returns an int64 tensor without the reduced axes.

        Raises IndexBoundsError for an axis that is out of range, ShapeError for one that is named
        twice, DTypeError for one that is no integer.

        >>> Tensor([0, 3, 0, 5]).count_nonzero().item()
        2
        """
        return self.cast(dtypes.bool).sum(axis, keepdim)

    # ranks

    def histc(self, bins: int = 100, min: float = 0, max: float = 0) -> Self:
        """Count the elements in each of `bins` equal intervals of min..max, both ends included.

        Args:
            bins: number of intervals.
            min: lowest edge.
            max: highest edge; if both are 0, the smallest and the largest element, which are
                computed now.

        Returns a vector of shape (bins,) in this dtype.

        Raises ShapeError for less than one interval, and if max < min.

        >>> Tensor([0.5, 1.5, 1.6]).histc(2, 0, 2).tolist()
        [1.0, 2.0]
        """
        bins, low, high = as_int("histc", "bins", bins), float(min), float(max)
        if bins < 1 or high < low:
            raise ShapeError(f"histc: {bins} bins from {low} to {high}", rule="1 or more, upward")
        if low < high:
            return self._histogram(bins, low, high)
        if not self._has_elements():
            return self._histogram(bins, 0.0, 1.0)
        low, high = float(self.min().item()), float(self.max().item())
        low, high = (low - 1, high + 1) if low == high else (low, high)
        # There is no template for edges that are other ones in each call.
        return self._counted_between(bins, low, high)

    @templated
    @composed
    def _histogram(self, bins: int, low: float, high: float) -> Self:
        return self._counted_between(bins, low, high)

    def _counted_between(self, bins: int, low: float, high: float) -> Self:
        x = self._floating().flatten()
        is_inside = (x >= low) & (x <= high)
        bucket = ((x - low) * (bins / (high - low))).floor().clip(0, bins - 1)
        bucket = is_inside.where(bucket, bins).cast(dtypes.int32)
        return bucket.bincount(size=bins).cast(self.dtype)

    # covariance

    @templated
    @composed
    def cov(self, *, correction: int = 1) -> Self:
        """Covariance matrix of the rows, each a variable, with the columns as observations.

        Args:
            correction: what is taken off the number of observations.

        Returns a float tensor of shape (n, n) for shape (n, observations), a number for a vector
        and for one row.

        Raises ShapeError for more than two axes.

        >>> Tensor([[0.0, 2.0], [2.0, 0.0]]).cov().tolist()
        [[2.0, -2.0], [-2.0, 2.0]]
        """
        x = self._floating()
        if x.ndim > 2:
            raise ShapeError(
                f"cov: a matrix is needed, not {show_shape(x.shape)}", tensor=describe(self.uop)
            )
        rows = x if x.ndim == 2 else x.reshape(1, x._length(0) if x.ndim else 1)
        _, apart, rest = rows._deviations((1,))
        centred = apart - rest
        count = rows._sizes[1] - correction
        scale = 1 / count if count > 0 else math.nan
        product = centred @ centred.transpose(0, 1) * scale
        return product.reshape(()) if rows._length(0) == 1 else product

    @templated
    @composed
    def corrcoef(self) -> Self:
        """Correlation coefficients of the rows (Pearson), in -1..1.

        Returns a float tensor of shape (n, n) for shape (n, observations), a number for a vector
        and for one row.

        Raises ShapeError for more than two axes.

        >>> Tensor([[0.0, 1.0], [1.0, 0.0]]).corrcoef().round().tolist()
        [[1.0, -1.0], [-1.0, 1.0]]
        """
        found = self.cov()
        if not found.ndim:
            return found / found
        deviation = found.diagonal().sqrt()
        return (found / deviation.unsqueeze(0) / deviation.unsqueeze(1)).clip(-1, 1)

    # differences and distances

    @templated
    @composed
    def diff(
        self, n: int = 1, dim: int = -1, prepend: Self | None = None, append: Self | None = None
    ) -> Self:
        """Differences of neighbours along an axis.

        Args:
            n: how many times over.
            dim: the axis; a negative one counts from the last.
            prepend: values in front, of equal other sizes.
            append: values at the end.

        Returns a tensor of this dtype, shorter by `n` along the axis.

        Raises ShapeError if the sizes do not fit or `n` is negative, IndexBoundsError for an axis
        that is out of range.

        >>> Tensor([1, 4, 9]).diff().tolist()
        [3, 5]
        """
        axis, n = as_axis("diff", dim, self.ndim), as_int("diff", "n", n)
        if n < 0:
            raise ShapeError(f"diff: n must be 0 or more, not {n}")
        if not n:
            return self._copy_of(self)
        joined: list[Self] = [each for each in (prepend, self, append) if each is not None]
        x = joined[0].cat(*joined[1:], dim=axis) if len(joined) > 1 else self
        for _ in range(n):
            size = x._length(axis)
            if size < 2:
                return x.narrow(axis, 0, 0)
            after, before = x.narrow(axis, 1, size - 1), x.narrow(axis, 0, size - 1)
            x = after.ne(before) if x.dtype is dtypes.bool else after - before
        return self._copy_of(x)

    @templated
    @composed
    def trapezoid(self, x: Self | None = None, *, dx: float = 1.0, dim: int = -1) -> Self:
        """Integrate along an axis by the trapezoid rule.

        Args:
            x: coordinates of the values, one for each position along `dim` or of this shape; by
                default steps of `dx`.
            dx: distance of neighbours without `x`.
            dim: the axis; a negative one counts from the last.

        Returns a float tensor without the axis.

        Raises ShapeError if the sizes of `x` do not fit, IndexBoundsError for an axis that is out
        of range.

        >>> Tensor([1.0, 2.0, 3.0]).trapezoid().item()
        4.0
        """
        axis = as_axis("trapezoid", dim, self.ndim)
        return self._trapezoids(x, axis).sum(axis) * (dx / 2 if x is None else 0.5)

    def _trapezoids(self, x: Self | None, axis: int) -> Self:
        """Twice the area of each trapezoid along `axis`, at the positions `x` or in steps of 1."""
        size = self._length(axis)
        y = self._floating()
        count = max(size - 1, 0)
        both = y.narrow(axis, size - count, count) + y.narrow(axis, 0, count)
        if x is None:
            return both
        if x.ndim == 1 and self.ndim > 1:
            x = x.reshape([size if other == axis else 1 for other in range(self.ndim)])
        return both * x.diff(dim=axis)

    def dist(self, other: Self, p: float = 2.0) -> Self:
        """Norm of the difference: (sum |self - other|^p)^(1/p).

        Args:
            other: a tensor whose shape broadcasts with this one.
            p: order of the norm.

        Returns a float number.

        Raises ShapeError unless the shapes broadcast.

        >>> Tensor([3.0, 0.0]).dist(Tensor([0.0, 4.0])).item()
        5.0
        """
        return (self - other).norm(p)

    @templated
    @composed
    def cdist(self, other: Self, p: float = 2.0) -> Self:
        """Distances of the rows of two tensors: (sum |x - y|^p)^(1/p).

        Args:
            other: (..., n, k), for this shape (..., m, k).
            p: order of the norm.

        Returns a float tensor of shape (..., m, n).

        Raises ShapeError if the sizes do not fit.

        >>> Tensor([[0.0, 0.0]]).cdist(Tensor([[3.0, 4.0]])).tolist()
        [[5.0]]
        """
        if min(self.ndim, other.ndim) < 2 or self.shape[-1] != other.shape[-1]:
            raise ShapeError(
                f"cdist: rows of {show_shape(self.shape)} and {show_shape(other.shape)} differ",
                left=describe(self.uop),
                right=describe(other.uop),
                rule="(..., m, k) and (..., n, k)",
            )
        return (self.unsqueeze(-2) - other.unsqueeze(-3)).norm(p, -1)

    @templated
    @composed
    def renorm(self, p: float, dim: int, maxnorm: float) -> Self:
        """Scale down the slices along an axis whose norm exceeds `maxnorm`.

        Args:
            p: order of the norm.
            dim: the axis; a negative one counts from the last.
            maxnorm: the largest norm that stays.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        Raises IndexBoundsError for an axis that is out of range, ConfigError unless `p` is above 0
        and `maxnorm` is not below.

        >>> Tensor([[3.0, 4.0]]).renorm(2, 0, 1.0).norm().round().item()
        1.0
        """
        axis = as_axis("renorm", dim, self.ndim)
        if as_number("renorm", "p", p) <= 0 or as_number("renorm", "maxnorm", maxnorm) < 0:
            raise ConfigError(f"renorm: no norm of order {p} has a limit of {maxnorm}")
        others = tuple(other for other in range(self.ndim) if other != axis)
        size = self.norm(p, others, keepdim=True)
        return self * (size > maxnorm).where(maxnorm / (size + 1e-7), 1.0)

    def sum_to_size(self, *size: Any) -> Self:
        """Sum over what broadcasting from `size` to this shape repeated.

        Args:
            size: the sizes, one by one or as one tuple.

        Returns a tensor of shape `size`; floats keep their dtype, integers and bool give int64.

        Raises ShapeError if `size` does not broadcast to this shape.

        >>> Tensor([[1, 2], [3, 4]]).sum_to_size(2).tolist()
        [4, 6]
        """
        wanted: Sequence[int] = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
        offset = self.ndim - len(wanted)
        fits = offset >= 0 and all(
            mine in (theirs, mine if theirs == 1 else theirs)
            for mine, theirs in zip(self._sizes[max(offset, 0) :], wanted)
        )
        if not fits:
            raise ShapeError(
                f"sum_to_size: {show_shape(tuple(wanted))} does not broadcast to "
                f"{show_shape(self.shape)}",
                tensor=describe(self.uop),
            )
        axes = [
            other for other in range(self.ndim) if other < offset or wanted[other - offset] == 1
        ]
        if tuple(wanted) == self.shape:
            return self
        total = self.sum(as_axes("sum_to_size", axes, self.ndim), keepdim=True)
        return self._copy_of(total.reshape(tuple(wanted)))
