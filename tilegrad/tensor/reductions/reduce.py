"""Reductions of axes: sums, products, extremes and their positions, truth.

A reduction keeps its axes with size 1 in the graph; `keepdim=False` reshapes them away. Sums and
products of bool and integers are int64, sums of half and bfloat16 are kept in float32 and rounded
once at the end. A product rounds once per factor, in whatever order, so it is kept in float64 where
the device has it.
"""

from __future__ import annotations

from typing import Any, Self

from tilegrad.base.dtype import DType, as_const, dtypes
from tilegrad.base.dtype_promotion import sum_dtype, total_dtype
from tilegrad.base.errors import IndexShapeError
from tilegrad.base.origin import composed
from tilegrad.base.recent import Bounded
from tilegrad.device.registry import Device
from tilegrad.ir.args import Ties
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.elementwise.activation_methods import Activations
from tilegrad.tensor.handle.core import as_dtype, compute, describe
from tilegrad.tensor.handle.size_arguments import (
    as_axes,
    as_axis,
    index_dtype,
    is_of_number,
    is_one,
    is_zero,
)
from tilegrad.tensor.reductions.spelling import takes_dim

__all__ = ["Reduce"]

Axes = int | tuple[int, ...] | None

# 0, 1, 2, ... by its length: a graph of a dozen nodes that indexing asks for again and again.
_iotas: Bounded[int, UOp] = Bounded(256)


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
        # A value that requires a gradient stays below its reduction, so that it gets one.
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
        if keepdim or not axes:
            return result
        return result.reshape([size for number, size in enumerate(with_ones) if number not in axes])

    def _without(self, axes: tuple[int, ...]) -> Self:
        """This tensor without `axes`, whose size is 1."""
        return self.reshape(tuple(size for each, size in enumerate(self.shape) if each not in axes))

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
            dim: the same as `axis`, by PyTorch's name.
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
            dim: the same as `axis`, by PyTorch's name.
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
        is_known = Device.target(self.device).supports(dtypes.float64)
        return dtypes.float64 if is_known else dtypes.float32

    @takes_dim
    def max(self, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None) -> Self:
        """Largest value over axes; NaN if there is one.

        Args:
            axis: an axis, several of them, or None for all; negative ones count from the last.
                `dim` is another name for it.
            dim: the same as `axis`, by PyTorch's name.
            keepdim: keep each reduced axis, with size 1.

        Returns a tensor of this dtype without the reduced axes. For one axis it has `values`, which
        is itself, and `indices`; the first of several equal elements then has the gradient, which
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
            dim: the same as `axis`, by PyTorch's name.
            keepdim: keep each reduced axis, with size 1.

        Returns a tensor of this dtype without the reduced axes. For one axis it has `values`, which
        is itself, and `indices`; the first of several equal elements then has the gradient, which
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
            dim: the same as `axis`, by PyTorch's name.
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
            dim: the same as `axis`, by PyTorch's name.
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
                remedy="ask for its size first, or pad it with a value that is to be chosen then",
            )

    @templated
    @takes_dim
    def any(self, axis: Axes = None, keepdim: bool = False, *, dim: Axes = None) -> Self:
        """Whether any value over axes is not zero; false over no elements.

        Args:
            axis: an axis, several of them, or None for all; negative ones count from the last.
                `dim` is another name for it.
            dim: the same as `axis`, by PyTorch's name.
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
            dim: the same as `axis`, by PyTorch's name.
            keepdim: keep each reduced axis, with size 1.

        Returns a bool tensor without the reduced axes.

        Raises IndexBoundsError for an axis that is out of range, ShapeError for one that is named
        twice, DTypeError for one that is no integer.

        >>> Tensor([[True, False], [True, True]]).all(1).tolist()
        [False, True]
        """
        return self.logical_not()._reduction("all", Ops.MAX, axis, keepdim).logical_not()

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
            dim: the same as `axis`, by PyTorch's name.
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
        positions = self._iota(size).reshape(
            [size if other == dim else 1 for other in range(self.ndim)]
        )
        # The first of several; behind all positions where a value is not the largest.
        found = is_largest.where(positions, self._size_number(size))
        return found.amin(dim, keepdim)

    @templated
    @takes_dim
    def argmin(
        self, axis: int | None = None, keepdim: bool = False, *, dim: int | None = None
    ) -> Self:
        """Position of the smallest value along an axis: the first of several, or of a NaN.

        Args:
            axis: the axis, or None for the flat tensor. `dim` is another name for it.
            dim: the same as `axis`, by PyTorch's name.
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
            for node in counted.uop.toposort():
                # A node that all share bears no one's line.
                node.origin = ()
            _iotas.put(size, counted.uop)
        return counted
