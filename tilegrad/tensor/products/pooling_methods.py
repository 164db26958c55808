"""Pooling over any number of axes: slices (views/patches.py), then a reduction of each."""

from __future__ import annotations

import math
from typing import Any, Literal, Self, overload

from tilegrad.base.dtype import dtypes
from tilegrad.base.dtype_promotion import sum_dtype
from tilegrad.base.errors import ShapeError
from tilegrad.base.origin import composed
from tilegrad.ir.args import Ties
from tilegrad.ir.op import Ops
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.handle.core import describe
from tilegrad.tensor.handle.size_arguments import index_dtype, same, show_shape
from tilegrad.tensor.products.convolution_methods import (
    Convolution,
    Sizes,
    by_axis,
    padding_by_axis,
)

__all__ = ["Pooling"]


def _count(kernel_size: Sizes) -> int:
    return len(kernel_size) if isinstance(kernel_size, (tuple, list)) else 2


def _missing(size: int, before: int, after: int, k: int, s: int, d: int) -> int:
    """Elements that the last window of ceil_mode lacks; it begins inside the axis or in front."""
    whole = size + before + after
    positions = math.ceil((whole - d * (k - 1) - 1) / s) + 1
    if (positions - 1) * s >= size + before:
        positions -= 1
    return max(0, (positions - 1) * s + d * (k - 1) + 1 - whole)


def _remaining(
    x: Any, kernel_size: Sizes, stride: Sizes | None, dilation: Sizes, padding: Sizes
) -> list[int]:
    """Elements that ceil_mode adds behind each axis."""
    count = _count(kernel_size)
    kernel = by_axis("avg_pool2d", "kernel", kernel_size, count)
    strides = kernel if stride is None else by_axis("avg_pool2d", "stride", stride, count)
    around = padding_by_axis("avg_pool2d", padding, count)
    dilations = by_axis("avg_pool2d", "dilation", dilation, count)
    return [
        _missing(size, before, after, k, s, d)
        for size, (before, after), k, s, d in zip(
            x._sizes[-count:], around, kernel, strides, dilations
        )
    ]


class Pooling(Convolution):
    """Pooling."""

    __slots__ = ()

    def _pooled(
        self,
        name: str,
        kernel_size: Sizes,
        stride: Sizes | None,
        dilation: Sizes,
        padding: Sizes,
        ceil_mode: bool,
        value: Any,
    ) -> tuple[Self, tuple[int, ...]]:
        """The slices of the last axes, with `value` as padding, and the axes to reduce."""
        count = len(kernel_size) if isinstance(kernel_size, (tuple, list)) else 2
        if self.ndim < count:
            raise ShapeError(
                f"{name}: a window over {count} axes of a tensor with {self.ndim}",
                tensor=describe(self.uop),
                rule="(batch, channels, *sizes), or a kernel_size with a value per axis",
            )
        kernel = by_axis(name, "kernel", kernel_size, count)
        strides = kernel if stride is None else by_axis(name, "stride", stride, count)
        dilations = by_axis(name, "dilation", dilation, count)
        around = padding_by_axis(name, padding, count)
        if ceil_mode:
            around = [
                (before, after + _missing(size, before, after, k, s, d))
                for size, (before, after), k, s, d in zip(
                    self._sizes[-count:], around, kernel, strides, dilations
                )
            ]
        padded = self.pad([(0, 0)] * (self.ndim - count) + around, value=value)
        return padded._patches(name, kernel, strides, dilations), tuple(range(-count, 0))

    @overload
    def max_pool2d(
        self,
        kernel_size: Sizes = (2, 2),
        stride: Sizes | None = None,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        return_indices: Literal[False] = False,
    ) -> Self: ...

    @overload
    def max_pool2d(
        self,
        kernel_size: Sizes = (2, 2),
        stride: Sizes | None = None,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        *,
        return_indices: Literal[True],
    ) -> tuple[Self, Self]: ...

    @templated
    @composed
    def max_pool2d(
        self,
        kernel_size: Sizes = (2, 2),
        stride: Sizes | None = None,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Self | tuple[Self, Self]:
        """Largest value of each window over the last axes; windows do not overlap unless `stride`
        says so.

        Args:
            kernel_size: size of the window; a tuple names the number of axes.
            stride: step between windows, by default `kernel_size`.
            dilation: step between the elements of a window, an int or one for each spatial axis.
            padding: minus infinity added around.
            ceil_mode: round sizes up, so that windows may begin inside and end outside.
            return_indices: also give where each value is.

        Returns (..., *out) in this dtype with out = (size + padding - dilation * (kernel - 1) - 1)
        // stride + 1; with `return_indices` a pair, with int32 positions in the flattened spatial
        axes, the first of several equal ones or the last NaN, as `max_unpool2d` takes them.

        Raises ShapeError for a window that is longer than its axis.

        >>> x = Tensor([[1.0, 5.0], [2.0, 3.0]])
        >>> values, positions = x.max_pool2d(2, return_indices=True)
        >>> values.tolist(), positions.tolist()
        ([[5.0]], [[1]])
        """
        patches, axes = self._pooled(
            "max_pool2d", kernel_size, stride, dilation, padding, ceil_mode, self.dtype.min
        )
        largest = patches._largest_pooled("max_pool2d", axes)
        if not return_indices:
            return largest
        sizes = self._sizes[-len(axes) :]
        # Positions are counted from the end, so that the first of several has the largest count,
        # and padding has 0.
        total = math.prod(sizes)
        counted = self._iota(total)
        if 2 * total >= dtypes.int32.max:
            counted = counted.cast(dtypes.int64)
        around, _ = (
            (total - counted)
            .reshape(sizes)
            ._pooled("max_pool2d", kernel_size, stride, dilation, padding, ceil_mode, 0)
        )
        most = largest.reshape(*largest.shape, *[1] * len(axes))
        positions = patches._pooled_positions(most, around, total, axes)
        return largest, positions.cast(index_dtype((total,)))

    def _largest_pooled(self, name: str, axes: tuple[int, ...]) -> Self:
        return self._reduction(name, Ops.MAX, axes, False, Ties.POOL)

    def _pooled_positions(self, most: Self, from_end: Self, total: int, axes: Any) -> Self:
        """For each window over `axes`, with the largest value `most`, the position of the element
        that this value is: of the first one of several, or of the last NaN. `from_end` has the
        number of positions up to the end, `total` for the first, and 0 where there is no element.
        """
        rank = self.eq(most).where(from_end, 0)
        if not self.dtype.is_float:
            return total - rank.amax(axes)
        best = self.isnan().where(2 * total + 1 - from_end, rank).amax(axes)
        return (best > total).where(best - (total + 1), total - best)

    @templated
    @composed
    def avg_pool2d(
        self,
        kernel_size: Sizes = (2, 2),
        stride: Sizes | None = None,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> Self:
        """Mean of each window over the last axes.

        Args:
            kernel_size: size of the window; a tuple names the number of axes.
            stride: step between windows, by default `kernel_size`.
            dilation: step between the elements of a window, an int or one for each spatial axis.
            padding: zeros added around.
            ceil_mode: round sizes up, so that windows may begin inside and end outside.
            count_include_pad: count the padding as zeros; else the mean is of the elements inside.

        Returns (..., *out), float, with out = (size + padding - dilation * (kernel - 1) - 1) //
        stride + 1.

        Raises ShapeError for a window that is longer than its axis.

        >>> Tensor([[[[1.0, 2.0], [3.0, 6.0]]]]).avg_pool2d(2).tolist()
        [[[[3.0]]]]
        """
        x = self._floating()
        is_plain = not ceil_mode and (
            count_include_pad
            or not any(map(any, padding_by_axis("avg_pool2d", padding, _count(kernel_size))))
        )
        patches, axes = x._pooled(
            "avg_pool2d", kernel_size, stride, dilation, padding, ceil_mode, 0
        )
        if is_plain:
            return patches.mean(axes)
        ones = x._like(x._operand("avg_pool2d", 1).uop).expand(x.shape)
        if count_include_pad:
            # The padding that was asked for counts; what ceil_mode adds does not.
            amounts = padding_by_axis("avg_pool2d", padding, _count(kernel_size))
            ones = ones.pad([(0, 0)] * (x.ndim - len(amounts)) + amounts, value=1)
            rest = _remaining(x, kernel_size, stride, dilation, padding)
            ones = ones.pad([(0, 0)] * (x.ndim - len(rest)) + [(0, more) for more in rest])
            counted, _ = ones._pooled("avg_pool2d", kernel_size, stride, dilation, 0, False, 0)
        else:
            counted, _ = ones._pooled(
                "avg_pool2d", kernel_size, stride, dilation, padding, ceil_mode, 0
            )
        return patches.sum(axes) / counted.sum(axes)

    def adaptive_avg_pool2d(self, output_size: Sizes) -> Self:
        """Mean of windows over the last two axes of (..., H, W), placed so that there are
        `output_size` of them.

        Args:
            output_size: number of windows, an int or one for each of the two axes.

        Returns a float tensor of shape (..., *output_size).

        Raises ShapeError for another number of sizes, or one below 1.

        >>> Tensor([[[[1.0, 2.0], [3.0, 6.0]]]]).adaptive_avg_pool2d(1).tolist()
        [[[[3.0]]]]
        >>> Tensor([[[1.0, 2.0, 3.0]]]).adaptive_avg_pool2d((1, 2)).tolist()
        [[[1.5, 2.5]]]
        """
        wanted = by_axis("adaptive_avg_pool2d", "size", output_size, 2)
        return self._adaptive_pool("adaptive_avg_pool2d", tuple(wanted), is_max=False)

    @templated
    @composed
    def _adaptive_pool(self, name: str, wanted: tuple[int | None, ...], *, is_max: bool) -> Self:
        """`wanted` windows along each of the last axes, or an axis as it is for None."""
        if self.ndim < len(wanted):
            raise ShapeError(
                f"{name}: {len(wanted)} spatial axes in {show_shape(self.shape)}",
                input=describe(self.uop),
            )
        x = self
        sizes = [*zip(range(-len(wanted), 0), wanted)]
        # The largest element is the first of equal ones in row-major order if the last axis is
        # reduced first.
        for axis, count in reversed(sizes) if is_max else sizes:
            if count is not None and count < 1:
                raise ShapeError(
                    f"{name}: {count} windows are asked for",
                    sizes=tuple(wanted),
                    rule="at least 1 along each axis",
                )
            if count is not None and not same(count, x.shape[axis]):
                x = x._adaptive_of_axis(name, axis, count, is_max=is_max)
        return x if x is not self else self._copy_of(self)

    def _adaptive_of_axis(self, name: str, axis: int, count: int, *, is_max: bool) -> Self:
        patches, is_inside = self._adaptive_patches(name, axis, count)
        if is_inside is None:
            reduced = patches._largest_pooled(name, (-1,)) if is_max else patches.mean(-1)
            return reduced.movedim(-1, axis)
        if is_max:
            inside = is_inside.where(patches, self.dtype.min)
            return inside._largest_pooled(name, (-1,)).movedim(-1, axis)
        wide = sum_dtype(self._floating().dtype)
        total = is_inside.where(patches.cast(wide), 0).sum(-1)
        means = total / is_inside.cast(wide).sum(-1)
        return means.cast(self._floating().dtype).movedim(-1, axis)

    def _adaptive_patches(self, name: str, axis: int, count: int) -> tuple[Self, Self | None]:
        """The elements of `count` windows along an axis, (..., count, longest); and which of them
        are in their window, (count, longest), unless all are.
        """
        size = self._length(axis)
        if not size:
            raise ShapeError(
                f"{name}: windows of an axis without elements", input=describe(self.uop)
            )
        x = self.movedim(axis, -1)
        if size % count == 0:
            return x.reshape(*x.shape[:-1], count, size // count), None
        starts = [number * size // count for number in range(count)]
        ends = [-(-(number + 1) * size // count) for number in range(count)]
        longest = max(end - start for start, end in zip(starts, ends))
        number = self._iota(count)
        if (count + 1) * size > dtypes.int32.max:
            number = number.cast(dtypes.int64)
        first = number * size // count
        last = ((number + 1) * size + count - 1) // count
        positions = first.unsqueeze(1) + self._iota(longest)
        return x[..., positions.minimum(size - 1)], positions < last.unsqueeze(1)

    @templated
    @composed
    def _adaptive_max_positions(
        self, name: str, wanted: tuple[int | None, ...]
    ) -> tuple[Self, Self]:
        """The largest elements of `wanted` windows, and the int32 positions of the first of each in
        the last axes, read as one.
        """
        # Shapes and sizes are checked there.
        self._adaptive_pool(name, wanted, is_max=True)
        count = len(wanted)
        spatial = self.shape[self.ndim - count :]
        values = self
        positions = self._iota(math.prod(spatial)).reshape(spatial).expand(self.shape)
        # From the last axis to the first: so the first of equals in row-major order is found.
        for axis in range(-1, -count - 1, -1):
            slices = wanted[axis] or self._length(axis)
            patches, is_inside = values._adaptive_patches(name, axis, slices)
            if is_inside is not None:
                patches = is_inside.where(patches, self.dtype.min)
            longest = patches._length(patches.ndim - 1)
            most = patches.amax(-1, keepdim=True)
            from_end = longest - self._iota(longest)
            chosen = patches._pooled_positions(most, from_end, longest, -1).unsqueeze(-1)
            values = patches.gather(-1, chosen).squeeze(-1).movedim(-1, axis)
            patches, _ = positions._adaptive_patches(name, axis, slices)
            positions = patches.gather(-1, chosen).squeeze(-1).movedim(-1, axis)
        return values, positions
