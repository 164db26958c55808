"""Folding axes: sums, products, extremes, moments, and the normalisations made of them.

A reduction keeps its axes with size 1 in the graph; `keepdim=False` reshapes them away. Sums and
products of bool and integers are int64, sums of half and bfloat16 are kept in float32 and rounded
once at the end. A product rounds once per factor, in whatever order, so it is kept in float64 where
the device has it.
"""

from __future__ import annotations

import math
from typing import Any, Self

from tilegrad.base.dtype import DType, as_const, dtypes, sum_dtype, total_dtype
from tilegrad.base.errors import DTypeError, ShapeError
from tilegrad.base.origin import composed
from tilegrad.device.registry import Device
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, prod
from tilegrad.tensor.activations import Activations
from tilegrad.tensor.core import as_dtype, compute, describe
from tilegrad.tensor.sizes import (
    as_axes,
    as_axis,
    as_number,
    here,
    index_dtype,
    is_of_number,
    is_one,
    is_zero,
)
from tilegrad.tensor.spelling import takes_dim
from tilegrad.tensor.templates import templated

__all__ = ["Reduce"]

Axes = int | tuple[int, ...] | None

# 0, 1, 2, ... by its length: a graph of a dozen nodes that indexing asks for again and again.
_places_of: dict[int, UOp] = {}
_MOST_KEPT = 256


class Reduce(Activations):
    """Reductions. `axis`, which may be called `dim`, is one axis, several, or None for all; with
    `keepdim` they stay, with size 1.
    """

    __slots__ = ()

    def _folded(self, name: str, op: Ops, axis: Axes, keepdim: bool) -> Self:
        node = self.uop
        shape = node.shape
        axes = as_axes(name, axis, len(shape))
        kept = tuple([1 if place in axes else size for place, size in enumerate(shape)])
        # What requires a gradient stays below its fold, so that it gets one.
        is_apart = node.is_constant and not self._requires_grad
        if is_apart and any(is_zero(size) for size in shape):
            assert op.definition.identity is not None
            identity = as_const(op.definition.identity(node.dtype), node.dtype)
            result = self._like(UOp.const(node.dtype, identity)).expand(kept)
        else:
            wide = tuple([place for place in axes if not is_one(shape[place])])
            result = (
                self._like(compute(Ops.REDUCE_AXIS, node.dtype, (node,), (op, wide)))
                if wide
                else self._copy_of(self)
            )
        if keepdim:
            return result
        return result.reshape([size for place, size in enumerate(kept) if place not in axes])

    @templated
    @takes_dim
    def sum(
        self,
        axis: Axes = None,
        keepdim: bool = False,
        dtype: DType | str | None = None,
        *,
        dim: Axes = None,
    ) -> Self:
        """The sum over `axis`; `dtype` is that of the result, in which it is also accumulated. Of
        integers and bool it is int64.

        >>> Tensor([[1, 2], [3, 4]]).sum(0).tolist()
        [4, 6]
        """
        if dtype is not None:
            return self.cast(as_dtype(dtype))._folded("sum", Ops.ADD, axis, keepdim)
        wide = total_dtype(self.dtype)
        total = self.cast(wide)._folded("sum", Ops.ADD, axis, keepdim)
        return total.cast(self.dtype) if self.dtype.is_float else total

    @takes_dim
    def prod(
        self,
        axis: Axes = None,
        keepdim: bool = False,
        dtype: DType | str | None = None,
        *,
        dim: Axes = None,
    ) -> Self:
        """The product over `axis`, in dtypes as `sum`.

        >>> Tensor([[1, 2], [3, 4]]).prod(1).tolist()
        [2, 12]
        """
        if dtype is not None:
            return self.cast(as_dtype(dtype))._folded("prod", Ops.MUL, axis, keepdim)
        total = self.cast(self._product_dtype())._folded("prod", Ops.MUL, axis, keepdim)
        return total.cast(self.dtype) if self.dtype.is_float else total

    def _sum_of_products(self, axis: Axes, is_wide: bool = False) -> Self:
        """The sum over `axis` in this dtype, or in that it is kept in if it `is_wide`. Integers
        are not widened to the int64 of `sum`, which has half the lanes of int32 and no dot units.
        """
        own = None if self.dtype.is_float and not is_wide else sum_dtype(self.dtype)
        total = self.sum(axis, dtype=own)
        return total if is_wide else total.cast(self.dtype)

    def _product_dtype(self) -> DType:
        """The dtype in which many elements are multiplied."""
        return self._widest_float() if self.dtype.is_float else dtypes.int64

    def _widest_float(self) -> DType:
        """float64 where this tensor's device has it, else float32."""
        is_known = Device[self.device].target.supports(dtypes.float64)
        return dtypes.float64 if is_known else dtypes.float32

    @templated
    @takes_dim
    def max(self, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None) -> Self:
        """The largest value over `axis`; NaN if there is one. Of one axis the result has `values`,
        which it is itself, and `indices`.

        Raises ShapeError if there is no value.

        >>> Tensor([[1, 5], [3, 2]]).max(1).tolist()
        [5, 3]
        """
        self._some("max", axis)
        made = self._folded("max", Ops.MAX, axis, keepdim)
        return self._values_alone("max", axis, keepdim, made) if type(axis) is int else made

    @templated
    @takes_dim
    def min(self, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None) -> Self:
        """The smallest value over `axis`; NaN if there is one. Of one axis the result has `values`,
        which it is itself, and `indices`.

        Raises ShapeError if there is no value.

        >>> Tensor([[1, 5], [3, 2]]).min(1).tolist()
        [1, 2]
        """
        self._some("min", axis)
        made = self._mirrored()._folded("min", Ops.MAX, axis, keepdim)._mirrored()
        return self._values_alone("min", axis, keepdim, made) if type(axis) is int else made

    @templated
    @takes_dim
    def amax(self, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None) -> Self:
        """As `max`, of which some classes of tensors give pairs: methods ask for this one.

        >>> Tensor([[1, 5], [7, 2]]).amax(1).tolist()
        [5, 7]
        """
        self._some("amax", axis)
        return self._folded("amax", Ops.MAX, axis, keepdim)

    @templated
    @takes_dim
    def amin(self, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None) -> Self:
        """As `min`.

        >>> Tensor([[1, 5], [7, 2]]).amin(1).tolist()
        [1, 2]
        """
        self._some("amin", axis)
        return self._mirrored()._folded("amin", Ops.MAX, axis, keepdim)._mirrored()

    def _some(self, name: str, axis: Axes) -> None:
        if any(is_zero(self.shape[place]) for place in as_axes(name, axis, self.ndim)):
            raise ShapeError(
                f"{name}: there is no element to choose from",
                tensor=describe(self.uop),
                line=here(),
                remedy="ask for its size first, or pad it with a value that is to be chosen then",
            )

    @templated
    @takes_dim
    def any(self, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None) -> Self:
        """Whether any value is not zero.

        >>> Tensor([[True, False], [False, False]]).any(1).tolist()
        [True, False]
        """
        return self.cast(dtypes.bool)._folded("any", Ops.MAX, axis, keepdim)

    @templated
    @takes_dim
    @composed
    def all(self, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None) -> Self:
        """Whether all values are not zero.

        >>> Tensor([[True, False], [True, True]]).all(1).tolist()
        [False, True]
        """
        return self.logical_not()._folded("all", Ops.MAX, axis, keepdim).logical_not()

    # moments

    def _count(self, axes: tuple[int, ...]) -> Any:
        """How many elements a reduction over `axes` folds: a number, or a symbolic integer as a
        tensor.
        """
        count = prod(self.shape[place] for place in axes)
        if isinstance(count, int):
            return count
        return self._of(
            UOp(Ops.CAST, sum_dtype(self._floating().dtype), (count,)), self.device, self._variables
        )

    @templated
    @takes_dim
    @composed
    def mean(self, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None) -> Self:
        """The mean over `axis`, as a float.

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
        """The variance over `axis`: squared distances from the mean, divided by their number less
        `correction`. `unbiased` is PyTorch's older name of a correction of 1, or of 0 if false.

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
        """The variance and the mean over `axis`, with arguments as `var`.

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
        # Of equal values, rounding may leave less than nothing.
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
        """The square root of `var`, with the same arguments.

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
        """The standard deviation and the mean over `axis`, with arguments as `var`.

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
        """The p-norm over `axis`: 2 or "fro" is Euclid's, 1 the sum of magnitudes, inf the largest,
        -inf the smallest, and 0 counts what is not zero.

        Raises DTypeError for another text.

        >>> Tensor([3.0, 4.0]).norm().item()
        5.0
        """
        if isinstance(p, str) and p != "fro":
            raise DTypeError(f"norm: unknown p {p!r}", allowed="a number, 'fro'", line=here())
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
        powers = size.pow(p) if float(p).is_integer() else size._power_of_sum(p)
        return powers.sum(axis, keepdim)._power_of_sum(1 / p)

    # positions

    @templated
    @takes_dim
    @composed
    def argmax(
        self, axis: int | None = None, keepdim: bool = False, *, dim: int | None = None
    ) -> Self:
        """The index of the largest value along `axis` (of the flat tensor, if None) as int32, of
        more than 2**31 - 1 elements as int64: the first of several, or of a NaN.

        >>> Tensor([3, 9, 9]).argmax().item()
        1
        """
        if axis is None:
            flat = self.flatten().argmax(0)
            return flat.reshape((1,) * self.ndim) if keepdim else flat
        if is_of_number(axis, self.ndim):
            return self._as_row(lambda row: row.argmax(0))
        place = as_axis("argmax", axis, self.ndim)
        self._some("argmax", place)
        size = self.shape[place]
        is_largest = self.eq(self.amax(place, keepdim=True))
        if self.dtype.is_float:
            is_largest = is_largest | self.isnan()
        # Places counted from the end: the first of several has the largest count.
        counted = self._places(size).reshape(
            [size if other == place else 1 for other in range(self.ndim)]
        )
        from_end = counted.neg().add(self._size_number(size)).mul(is_largest.cast(counted.dtype))
        return from_end.amax(place, keepdim).neg().add(self._size_number(size))

    @templated
    @takes_dim
    def argmin(
        self, axis: int | None = None, keepdim: bool = False, *, dim: int | None = None
    ) -> Self:
        """The index of the smallest value along `axis`, as `argmax`.

        >>> Tensor([3, 1, 2]).argmin().item()
        1
        """
        return self._mirrored().argmax(axis, keepdim)

    def _size_number(self, size: Any) -> Any:
        """A size as an operand of tensors of its positions."""
        if isinstance(size, int):
            return size
        return self._of(UOp(Ops.CAST, index_dtype((size,)), (size,)), self.device, self._variables)

    def _places(self, size: Any) -> Self:
        """0, 1, 2, ... up to `size`, as int32, or int64 if they do not fit; a closed form in every
        kernel that uses it.
        """
        if isinstance(size, int) and size in _places_of:
            return self._of(_places_of[size], self.device, self._variables)
        most = size if isinstance(size, int) else size.vmax
        ones = self._of(UOp.const(index_dtype((size,)), 1), self.device, self._variables).expand(
            most
        )
        places = (ones._running(0, Ops.ADD) - 1).shrink([(0, size)])
        if isinstance(size, int):
            if len(_places_of) >= _MOST_KEPT:
                _places_of.clear()
            for node in places.uop.toposort():
                # What is kept for all bears no one's line.
                node.origin = ()
            _places_of[size] = places.uop
        return places

    # normalisations

    @templated
    @takes_dim
    def logsumexp(self, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None) -> Self:
        """log(sum(exp(self))) over `axis`, without overflow; -inf over no elements.

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
            return self._folded("max", Ops.ADD, axes, True).detach()
        return self.amax(axes, keepdim=True).detach()

    def _without(self, axes: tuple[int, ...]) -> Self:
        return self.reshape(
            tuple(size for place, size in enumerate(self.shape) if place not in axes)
        )

    @takes_dim
    def softmin(
        self, axis: int = -1, dtype: DType | str | None = None, *, dim: int | None = None
    ) -> Self:
        """The softmax of the negated values: the smallest has the largest share.

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
        """exp(self) over its sum along `axis`, without overflow; half types are computed in
        float32.

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
        """The logarithm of `softmax`, accurate where that is nearly 0.

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
        """This tensor over its p-norm along `dim`, which counts as at least `eps`.

        >>> Tensor([[3.0, 4.0]]).normalize().numpy().round(3).tolist()
        [[0.6000000238418579, 0.800000011920929]]
        """
        return self / self.norm(p, dim, keepdim=True).maximum(eps)

    @templated
    @takes_dim
    def layernorm(self, axis: Axes = -1, eps: float = 1e-5, *, dim: Axes = None) -> Self:
        """Shifted and scaled to mean 0 and variance 1 over `axis`.

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
            # What (apart - rest) * scale is, in one instruction for each element.
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
        """(self - mean) * invstd * weight + bias, each given per element of `axis`.

        Raises ShapeError if their sizes differ from those of `axis`.

        >>> x = Tensor([[1.0, 2.0], [3.0, 6.0]])
        >>> x.batchnorm(None, None, Tensor([2.0, 4.0]), Tensor([1.0, 0.5])).tolist()
        [[-1.0, -1.0], [1.0, 1.0]]
        """
        axes = as_axes("batchnorm", axis, self.ndim)
        shape = tuple(size if place in axes else 1 for place, size in enumerate(self.shape))
        x = self - mean.reshape(shape)
        if weight is not None:
            x = x * weight.reshape(shape)
        whole = invstd.reshape(shape) if invstd.ndim <= len(axes) else invstd
        result = x * whole
        return result if bias is None else result + bias.reshape(shape)

    def allclose(
        self, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
    ) -> bool:
        """Whether all elements are close (see `isclose`); this computes.

        >>> Tensor([1.0]).allclose(Tensor([1.0000001]))
        True
        """
        return bool(self.isclose(other, rtol, atol, equal_nan).all())
