"""Normalisations along axes: softmax and its logarithm, norms, layers, batches.

A softmax takes off the largest value first, so that no exponential overflows.
"""

from __future__ import annotations

from typing import Self

from tilegrad.base.dtype import DType
from tilegrad.base.origin import composed
from tilegrad.ir.op import Ops
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.handle.size_arguments import as_axes, as_axis, is_of_number, is_zero
from tilegrad.tensor.reductions.moments import Moments
from tilegrad.tensor.reductions.reduce import Axes
from tilegrad.tensor.reductions.spelling import takes_dim

__all__ = ["Normalised"]


class Normalised(Moments):
    """Normalisations, and `logsumexp`."""

    __slots__ = ()

    @templated
    @takes_dim
    def logsumexp(self, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None) -> Self:
        """log(sum(exp(self))) over axes, without overflow; -inf over no elements.

        Args:
            axis: an axis, several of them, or None for all; negative ones count from the last.
                `dim` is another name for it.
            dim: the same as `axis`, by PyTorch's name.
            keepdim: keep each reduced axis, with size 1.

        Returns a float tensor without the reduced axes.

        Raises IndexBoundsError for an axis that is out of range, ShapeError for one that is named
        twice, DTypeError for one that is no integer.

        >>> Tensor([0.0, 1000.0]).logsumexp().item()
        1000.0
        """

        axes = as_axes("logsumexp", axis, self.ndim)

        def function(x: Self) -> Self:
            largest = x._largest(axes)
            limit = largest.isfinite().where(largest, 0)
            total = (x - limit).exp().sum(axes, keepdim=True).log() + limit
            return total if keepdim else total._without(axes)

        return self._in_float(function)

    def _largest(self, axes: tuple[int, ...]) -> Self:
        """The largest value over `axes`, which keep size 1, as a number to subtract; 0 if there is
        none.
        """
        if any(is_zero(self.shape[axis]) for axis in axes):
            return self._reduction("max", Ops.ADD, axes, True).detach()
        return self.amax(axes, keepdim=True).detach()

    @takes_dim
    def softmin(
        self, axis: int = -1, dtype: DType | str | None = None, *, dim: int | None = None
    ) -> Self:
        """Softmax of the negated values: the smallest has the largest share.

        Args:
            axis: the axis; `dim` is another name for it.
            dim: the same as `axis`, by PyTorch's name.
            dtype: dtype in which to compute, and of the result.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        Raises IndexBoundsError for an axis that is out of range.

        >>> Tensor([0.0, 0.0]).softmin().tolist()
        [0.5, 0.5]
        """
        x = self if dtype is None else self.cast(dtype)
        return x._in_float(lambda x: (-x).softmax(axis))

    @templated
    @takes_dim
    def softmax(
        self, axis: int = -1, dtype: DType | str | None = None, *, dim: int | None = None
    ) -> Self:
        """exp(self) divided by its sum along an axis, without overflow; float16 and bfloat16 are
        computed in float32.

        Args:
            axis: the axis; `dim` is another name for it.
            dim: the same as `axis`, by PyTorch's name.
            dtype: dtype in which to compute, and of the result.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        Raises IndexBoundsError for an axis that is out of range.

        >>> Tensor([0.0, 0.0]).softmax().tolist()
        [0.5, 0.5]
        """

        if is_of_number(axis, self.ndim):
            return self._as_row(lambda row: row.softmax(0, dtype))
        axis = as_axis("softmax", axis, self.ndim)

        def function(x: Self) -> Self:
            exponentials = (x - x._largest((axis,))).exp()
            return exponentials * exponentials.sum(axis, keepdim=True).reciprocal()

        x = self if dtype is None else self.cast(dtype)
        return x._in_float(function)

    @templated
    @takes_dim
    def log_softmax(
        self, axis: int = -1, dtype: DType | str | None = None, *, dim: int | None = None
    ) -> Self:
        """Logarithm of `softmax`, accurate where that is nearly 0.

        Args:
            axis: the axis; `dim` is another name for it.
            dim: the same as `axis`, by PyTorch's name.
            dtype: dtype in which to compute, and of the result.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        Raises IndexBoundsError for an axis that is out of range.

        >>> Tensor([0.0, 1000.0]).log_softmax().tolist()
        [-1000.0, 0.0]
        """

        if is_of_number(axis, self.ndim):
            return self._as_row(lambda row: row.log_softmax(0, dtype))
        axis = as_axis("log_softmax", axis, self.ndim)

        def function(x: Self) -> Self:
            below = x - x._largest((axis,))
            return below - below.exp().sum(axis, keepdim=True).log()

        x = self if dtype is None else self.cast(dtype)
        return x._in_float(function)

    def normalize(self, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Self:
        """Divide by the norm along an axis.

        Args:
            p: order of the norm.
            dim: the axis; a negative one counts from the last.
            eps: least divisor.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        Raises IndexBoundsError for an axis that is out of range.

        >>> Tensor([[3.0, 4.0]]).normalize().numpy().round(3).tolist()
        [[0.6000000238418579, 0.800000011920929]]
        """
        return self / self.norm(p, dim, keepdim=True).maximum(eps)

    @templated
    @takes_dim
    def layernorm(self, axis: Axes = -1, eps: float = 1e-5, *, dim: Axes = None) -> Self:
        """Shift and scale to mean 0 and variance 1 over axes (Ba et al. 2016, arXiv:1607.06450):
        (self - mean) / sqrt(variance + eps).

        Args:
            axis: the axes; `dim` is another name for it.
            dim: the same as `axis`, by PyTorch's name.
            eps: added to the variance.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        Raises IndexBoundsError for an axis that is out of range, ShapeError for one that is named
        twice, DTypeError for one that is no integer.

        >>> Tensor([[1.0, 3.0]]).layernorm(eps=0.0).tolist()
        [[-1.0, 1.0]]
        """

        def function(x: Self) -> Self:
            axes = as_axes("layernorm", axis, x.ndim)
            _, apart, rest = x._deviations(axes)
            count = x._count(axes)
            squares = x._squares(apart, rest, axes)
            variance = squares * (1 / max(count, 1)) if isinstance(count, int) else squares / count
            scale = (variance + eps).rsqrt()
            # (apart - rest) * scale, in one instruction for each element.
            return apart._times_plus(scale.expand(x.shape), (rest * -scale).expand(x.shape))

        return self._in_float(function)

    @templated
    @composed
    def batchnorm(
        self,
        weight: Self | None,
        bias: Self | None,
        mean: Self,
        invstd: Self,
        axis: int | tuple[int, ...] = 1,
    ) -> Self:
        """Normalise by given statistics: (self - mean) * invstd * weight + bias (Ioffe and Szegedy
        2015, arXiv:1502.03167).

        Args:
            weight: factors, a vector over `axis`, or None.
            bias: likewise, added.
            mean: likewise, taken off.
            invstd: likewise, inverse of the standard deviation.
            axis: the axes that the four vectors are indexed by.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        Raises ShapeError if their sizes differ from those of `axis`.

        >>> x = Tensor([[1.0, 2.0], [3.0, 6.0]])
        >>> x.batchnorm(None, None, Tensor([2.0, 4.0]), Tensor([1.0, 0.5])).tolist()
        [[-1.0, -1.0], [1.0, 1.0]]
        """
        axes = as_axes("batchnorm", axis, self.ndim)
        shape = tuple(size if each in axes else 1 for each, size in enumerate(self.shape))
        x = self - mean.reshape(shape)
        if weight is not None:
            x = x * weight.reshape(shape)
        whole = invstd.reshape(shape) if invstd.ndim <= len(axes) else invstd
        result = x * whole
        return result if bias is None else result + bias.reshape(shape)
