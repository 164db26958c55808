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
from tilegrad.base.errors import DTypeError, IndexShapeError
from tilegrad.base.origin import composed
from tilegrad.device.registry import Device
from tilegrad.ir.op import Ops, Ties
from tilegrad.ir.uop import UOp, prod
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.elementwise.activations import Activations
from tilegrad.tensor.handle.core import as_dtype, compute, describe
from tilegrad.tensor.handle.sizes import (
    as_axes,
    as_axis,
    as_number,
    here,
    index_dtype,
    is_of_number,
    is_one,
    is_zero,
)
from tilegrad.tensor.reductions.spelling import takes_dim

__all__ = ["Reduce"]

Axes = int | tuple[int, ...] | None

# 0, 1, 2, ... by its length: a graph of a dozen nodes that indexing asks for again and again.
_iotas: dict[int, UOp] = {}
_MOST_IOTAS = 256


class Reduce(Activations):
    """Reductions. `axis`, which may be called `dim`, is one axis, several, or None for all; with
    `keepdim` they stay, with size 1.
    """

    __slots__ = ()

    def _reduction(
        self, name: str, op: Ops, axis: Axes, keepdim: bool, ties: Ties | None = None
    ) -> Self:
        node = self.uop
        shape = node.shape
        axes = as_axes(name, axis, len(shape))
        with_ones = tuple([1 if number in axes else size for number, size in enumerate(shape)])
        # What requires a gradient stays below its fold, so that it gets one.
        is_apart = node.is_constant and not self._requires_grad
        if is_apart and any(is_zero(size) for size in shape):
            assert op.definition.identity is not None
            identity = as_const(op.definition.identity(node.dtype), node.dtype)
            result = self._like(UOp.const(node.dtype, identity)).expand(with_ones)
        else:
            wide = tuple([number for number in axes if not is_one(shape[number])])
            arg = (op, wide) if ties is None else (op, wide, ties)
            result = (
                self._like(compute(Ops.REDUCE_AXIS, node.dtype, (node,), arg))
                if wide
                else self._copy_of(self)
            )
        if keepdim:
            return result
        return result.reshape([size for number, size in enumerate(with_ones) if number not in axes])

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
        """Sum over axes.

        Args:
            axis: an axis, several of them, or None for all; negative ones count from the last.
                `dim` is another name for it.
            keepdim: keep each reduced axis, with size 1.
            dtype: dtype in which to add, and of the result.

        Returns a tensor without the reduced axes: floats keep their dtype (float16 and bfloat16 are
        added in float32), integers and bool give int64.

        Raises IndexBoundsError for an axis that is out of range, ShapeError for one that is named
        twice, DTypeError for one that is no integer.

        >>> Tensor([[1, 2], [3, 4]]).sum(0).tolist()
        [4, 6]
        """
        if dtype is not None:
            return self.cast(as_dtype(dtype))._reduction("sum", Ops.ADD, axis, keepdim)
        wide = total_dtype(self.dtype)
        total = self.cast(wide)._reduction("sum", Ops.ADD, axis, keepdim)
        return total.cast(self.dtype) if self.dtype.is_float else total

    @templated
    @takes_dim
    def prod(
        self,
        axis: Axes = None,
        keepdim: bool = False,
        dtype: DType | str | None = None,
        *,
        dim: Axes = None,
    ) -> Self:
        """Multiply over axes.

        Args:
            axis: an axis, several of them, or None for all; negative ones count from the last.
                `dim` is another name for it.
            keepdim: keep each reduced axis, with size 1.
            dtype: dtype in which to multiply, and of the result.

        Returns a tensor without the reduced axes: floats keep their dtype, integers and bool give
        int64.

        Raises IndexBoundsError for an axis that is out of range, ShapeError for one that is named
        twice, DTypeError for one that is no integer.

        >>> Tensor([[1, 2], [3, 4]]).prod(1).tolist()
        [2, 12]
        """
        if dtype is not None:
            return self.cast(as_dtype(dtype))._reduction("prod", Ops.MUL, axis, keepdim)
        total = self.cast(self._product_dtype())._reduction("prod", Ops.MUL, axis, keepdim)
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

    @takes_dim
    def max(self, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None) -> Self:
        """Largest value over axes; NaN if there is one.

        Args:
            axis: an axis, several of them, or None for all; negative ones count from the last.
                `dim` is another name for it.
            keepdim: keep each reduced axis, with size 1.

        Returns a tensor of this dtype without the reduced axes. Of one axis it has `values`, which
        is itself, and `indices`; and of several equal elements the first has the gradient, which
        all of them share otherwise.

        Raises ShapeError if there is no value or an axis is named twice, IndexBoundsError for an
        axis that is out of range.

        >>> Tensor([[1, 5], [3, 2]]).max(1).tolist()
        [5, 3]
        """
        made = self._greatest(axis, keepdim)
        return self._values_alone("max", axis, keepdim, made) if type(axis) is int else made

    @templated
    def _greatest(self, axis: Axes, keepdim: bool) -> Self:
        """As `max`, one tensor that stands for no pair."""
        self._some("max", axis)
        ties = Ties.FIRST if type(axis) is int else Ties.EVEN
        return self._reduction("max", Ops.MAX, axis, keepdim, ties)

    @takes_dim
    def min(self, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None) -> Self:
        """Smallest value over axes; NaN if there is one.

        Args:
            axis: an axis, several of them, or None for all; negative ones count from the last.
                `dim` is another name for it.
            keepdim: keep each reduced axis, with size 1.

        Returns a tensor of this dtype without the reduced axes. Of one axis it has `values`, which
        is itself, and `indices`; and of several equal elements the first has the gradient, which
        all of them share otherwise.

        Raises ShapeError if there is no value or an axis is named twice, IndexBoundsError for an
        axis that is out of range.

        >>> Tensor([[1, 5], [3, 2]]).min(1).tolist()
        [1, 2]
        """
        made = self._least(axis, keepdim)
        return self._values_alone("min", axis, keepdim, made) if type(axis) is int else made

    @templated
    def _least(self, axis: Axes, keepdim: bool) -> Self:
        """As `min`, one tensor that stands for no pair."""
        self._some("min", axis)
        ties = Ties.FIRST if type(axis) is int else Ties.EVEN
        return self._mirrored()._reduction("min", Ops.MAX, axis, keepdim, ties)._mirrored()

    @templated
    @takes_dim
    def amax(self, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None) -> Self:
        """Largest value over axes, always one tensor; see `max`.

        Args:
            axis: an axis, several of them, or None for all; negative ones count from the last.
                `dim` is another name for it.
            keepdim: keep each reduced axis, with size 1.

        Returns a tensor of this dtype without the reduced axes.

        Raises ShapeError if there is no value or an axis is named twice, IndexBoundsError for an
        axis that is out of range.

        >>> Tensor([[1, 5], [7, 2]]).amax(1).tolist()
        [5, 7]
        """
        self._some("amax", axis)
        return self._reduction("amax", Ops.MAX, axis, keepdim)

    @templated
    @takes_dim
    def amin(self, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None) -> Self:
        """Smallest value over axes, always one tensor; see `min`.

        Args:
            axis: an axis, several of them, or None for all; negative ones count from the last.
                `dim` is another name for it.
            keepdim: keep each reduced axis, with size 1.

        Returns a tensor of this dtype without the reduced axes.

        Raises ShapeError if there is no value or an axis is named twice, IndexBoundsError for an
        axis that is out of range.

        >>> Tensor([[1, 5], [7, 2]]).amin(1).tolist()
        [1, 2]
        """
        self._some("amin", axis)
        return self._mirrored()._reduction("amin", Ops.MAX, axis, keepdim)._mirrored()

    def _some(self, name: str, axis: Axes) -> None:
        if any(is_zero(self.shape[each]) for each in as_axes(name, axis, self.ndim)):
            raise IndexShapeError(
                f"{name}: there is no element to choose from",
                tensor=describe(self.uop),
                line=here(),
                remedy="ask for its size first, or pad it with a value that is to be chosen then",
            )

    @templated
    @takes_dim
    def any(self, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None) -> Self:
        """Whether any value over axes is not zero; false over no elements.

        Args:
            axis: an axis, several of them, or None for all; negative ones count from the last.
                `dim` is another name for it.
            keepdim: keep each reduced axis, with size 1.

        Returns a bool tensor without the reduced axes.

        Raises IndexBoundsError for an axis that is out of range, ShapeError for one that is named
        twice, DTypeError for one that is no integer.

        >>> Tensor([[True, False], [False, False]]).any(1).tolist()
        [True, False]
        """
        return self.cast(dtypes.bool)._reduction("any", Ops.MAX, axis, keepdim)

    @templated
    @takes_dim
    @composed
    def all(self, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None) -> Self:
        """Whether all values over axes are not zero; true over no elements.

        Args:
            axis: an axis, several of them, or None for all; negative ones count from the last.
                `dim` is another name for it.
            keepdim: keep each reduced axis, with size 1.

        Returns a bool tensor without the reduced axes.

        Raises IndexBoundsError for an axis that is out of range, ShapeError for one that is named
        twice, DTypeError for one that is no integer.

        >>> Tensor([[True, False], [True, True]]).all(1).tolist()
        [False, True]
        """
        return self.logical_not()._reduction("all", Ops.MAX, axis, keepdim).logical_not()

    # moments

    def _count(self, axes: tuple[int, ...]) -> Any:
        """How many elements a reduction over `axes` folds: a number, or a symbolic integer as a
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
        """Standard deviation over axes: the square root of `var`.

        Args:
            axis: an axis, several of them, or None for all; negative ones count from the last.
                `dim` is another name for it.
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
            keepdim: keep each reduced axis, with size 1.

        Returns a float tensor without the reduced axes.

        Raises DTypeError for another text as `p`, IndexBoundsError for an axis that is out of
        range, ShapeError for one that is named twice.

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
        total = powers.sum(axis, keepdim)
        # Of no elements it is infinite.
        return total._power_of_sum(1 / p) if p > 0 else total.pow(1 / p)

    # positions

    @templated
    @takes_dim
    @composed
    def argmax(
        self, axis: int | None = None, keepdim: bool = False, *, dim: int | None = None
    ) -> Self:
        """Position of the largest value along an axis: the first of several, or of a NaN.

        Args:
            axis: the axis, or None for the flat tensor. `dim` is another name for it.
            keepdim: keep each reduced axis, with size 1.

        Returns int32 positions without the axis; int64 where there are more than 2**31 - 1
        elements.

        Raises ShapeError if there is no element, IndexBoundsError for an axis that is out of range.

        >>> Tensor([3, 9, 9]).argmax().item()
        1
        """
        if axis is None:
            flat = self.flatten().argmax(0)
            return flat.reshape((1,) * self.ndim) if keepdim else flat
        if is_of_number(axis, self.ndim):
            return self._as_row(lambda row: row.argmax(0))
        dim = as_axis("argmax", axis, self.ndim)
        self._some("argmax", dim)
        size = self.shape[dim]
        is_largest = self.eq(self.amax(dim, keepdim=True))
        if self.dtype.is_float:
            is_largest = is_largest | self.isnan()
        # Places counted from the end: the first of several has the largest count.
        counted = self._iota(size).reshape(
            [size if other == dim else 1 for other in range(self.ndim)]
        )
        from_end = counted.neg().add(self._size_number(size)).mul(is_largest.cast(counted.dtype))
        return from_end.amax(dim, keepdim).neg().add(self._size_number(size))

    @templated
    @takes_dim
    def argmin(
        self, axis: int | None = None, keepdim: bool = False, *, dim: int | None = None
    ) -> Self:
        """Position of the smallest value along an axis: the first of several, or of a NaN.

        Args:
            axis: the axis, or None for the flat tensor. `dim` is another name for it.
            keepdim: keep each reduced axis, with size 1.

        Returns int32 positions without the axis; int64 where there are more than 2**31 - 1
        elements.

        Raises ShapeError if there is no element, IndexBoundsError for an axis that is out of range.

        >>> Tensor([3, 1, 2]).argmin().item()
        1
        """
        return self._mirrored().argmax(axis, keepdim)

    def _size_number(self, size: Any) -> Any:
        """A size as an operand of tensors of its positions."""
        if isinstance(size, int):
            return size
        return self._of(UOp(Ops.CAST, index_dtype((size,)), (size,)), self.device, self._variables)

    def _iota(self, size: Any) -> Self:
        """0, 1, 2, ... up to `size`, as int32, or int64 if they do not fit; a closed form in every
        kernel that uses it.
        """
        if isinstance(size, int) and size in _iotas:
            return self._of(_iotas[size], self.device, self._variables)
        most = size if isinstance(size, int) else size.vmax
        ones = self._of(UOp.const(index_dtype((size,)), 1), self.device, self._variables).expand(
            most
        )
        counted = (ones._running(0, Ops.ADD) - 1).shrink([(0, size)])
        if isinstance(size, int):
            if len(_iotas) >= _MOST_IOTAS:
                _iotas.clear()
            for node in counted.uop.toposort():
                # What is kept for all bears no one's line.
                node.origin = ()
            _iotas[size] = counted.uop
        return counted

    # normalisations

    @templated
    @takes_dim
    def logsumexp(self, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None) -> Self:
        """log(sum(exp(self))) over axes, without overflow; -inf over no elements.

        Args:
            axis: an axis, several of them, or None for all; negative ones count from the last.
                `dim` is another name for it.
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

    def _without(self, axes: tuple[int, ...]) -> Self:
        return self.reshape(tuple(size for each, size in enumerate(self.shape) if each not in axes))

    @takes_dim
    def softmin(
        self, axis: int = -1, dtype: DType | str | None = None, *, dim: int | None = None
    ) -> Self:
        """Softmax of the negated values: the smallest has the largest share.

        Args:
            axis: the axis; `dim` is another name for it.
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

    def allclose(
        self, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
    ) -> bool:
        """Whether all elements are close (see `isclose`); this computes.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.
            rtol: tolerance relative to `other`.
            atol: absolute tolerance.
            equal_nan: whether two NaN are close.

        Returns a bool.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([1.0]).allclose(Tensor([1.0000001]))
        True
        """
        return bool(self.isclose(other, rtol, atol, equal_nan).all())
