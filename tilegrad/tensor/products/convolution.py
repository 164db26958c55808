"""Convolution and pooling over any number of axes: windows, then a sum of products or another fold.

The windows are movement (windows.py), so no copy of the input is ever laid out, and the derivative
is movement too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, Self, overload

from tilegrad.base.dtype import DType, dtypes, promote, sum_dtype
from tilegrad.base.errors import ShapeError
from tilegrad.base.origin import composed
from tilegrad.ir.op import Ops, Ties
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.handle.core import Core, check_devices, check_tensors, describe
from tilegrad.tensor.handle.sizes import as_int, here, index_dtype, same, show_shape
from tilegrad.tensor.products.linear import Linear

__all__ = ["Convolution"]

Sizes = int | Sequence[int]


def _each(name: str, what: str, value: Sizes, count: int) -> tuple[int, ...]:
    """One value for each spatial axis."""
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,) * count
    if len(values) != count:
        raise ShapeError(f"{name}: {what} has {len(values)} values for {count} axes", line=here())
    return tuple(as_int(name, f"a {what}", each) for each in values)


def _padding(name: str, padding: Sizes, count: int) -> list[tuple[int, int]]:
    """(before, after) of each spatial axis; a flat list counts from the last."""
    if isinstance(padding, (tuple, list)) and len(padding) == 2 * count:
        return [(padding[at], padding[at + 1]) for at in range(2 * count - 2, -1, -2)]
    return [(amount, amount) for amount in _each(name, "padding", padding, count)]


# What the axes of a weight are, for errors.
_SHAPE = "(outputs, channels / groups, *kernel)"
_TRANSPOSED = "(channels, outputs / groups, *kernel)"


class Convolution(Linear):
    """Convolution and pooling."""

    __slots__ = ()

    @templated
    @composed
    def conv2d(
        self,
        weight: Self,
        bias: Self | None = None,
        groups: int = 1,
        stride: Sizes = 1,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        dtype: DType | str | None = None,
    ) -> Self:
        """Cross-correlate (batch, channels, *sizes) with `weight`, over any number of spatial axes.

        Args:
            weight: (outputs, channels / groups, *kernel).
            bias: (outputs,), added to each output channel.
            groups: number of groups of channels that do not mix.
            stride: step between windows, an int or one for each spatial axis.
            dilation: step between the elements of a window, an int or one for each spatial axis.
            padding: zeros added: one amount, one for each axis, or (left, right, top, bottom, ...)
                from the last axis.
            dtype: dtype in which sums are accumulated.

        Returns (batch, outputs, *out) with out = (size + padding - dilation * (kernel - 1) - 1) //
        stride + 1 along each axis, padding counted on both sides, in the dtype to which both
        promote.

        Raises ShapeError if channels, groups or kernel do not fit; DeviceError for two devices.

        >>> Tensor.ones(1, 1, 3, 3).conv2d(Tensor.ones(1, 1, 2, 2)).tolist()
        [[[[4.0, 4.0], [4.0, 4.0]]]]
        """
        name = self._check_convolution(weight, bias, groups)
        batch, (outputs, inputs, *kernel) = self.shape[0], weight._sizes
        count = len(kernel)
        padded = self.pad([(0, 0), (0, 0), *_padding(name, padding, count)])
        patches = padded._patches(
            name,
            kernel,
            _each(name, "stride", stride, count),
            _each(name, "dilation", dilation, count),
        )
        positions = patches.shape[2 : 2 + count]
        # (batch, group, 1, *positions, inputs, *kernel) times (1, group, outputs of it, *1s,
        # inputs, *kernel)
        x = patches.reshape(batch, groups, inputs, 1, *patches.shape[2:])
        x = x.permute(0, 1, 3, *range(4, 4 + count), 2, *range(4 + count, 4 + 2 * count))
        each = outputs // groups
        w = weight.reshape(1, groups, each, *[1] * count, inputs, *kernel)
        folded = tuple(range(3 + count, 4 + 2 * count))
        if dtype is not None:
            total = (x.cast(dtype) * w.cast(dtype)).sum(folded, dtype=dtype)
            return total._with_bias(bias, batch, outputs, positions)
        products = x * w
        if bias is None or not products.dtype.is_float or products.dtype.itemsize >= 4:
            total = products._sum_of_products(folded)
            return total._with_bias(bias, batch, outputs, positions)
        # Of half types the sum takes the bias as it is kept, and is rounded once.
        total = products._sum_of_products(folded, is_wide=True)
        result = promote(products.dtype, bias.dtype)
        return total._with_bias(bias, batch, outputs, positions).cast(result)

    def _with_bias(
        self, bias: Self | None, batch: Any, outputs: int, positions: tuple[Any, ...]
    ) -> Self:
        total = self.reshape(batch, outputs, *positions)
        return total if bias is None else total + bias.reshape(1, outputs, *[1] * len(positions))

    def _check_convolution(self, weight: Self, bias: Self | None, groups: int) -> str:
        """The name for messages, of as many axes as `weight` has."""
        check_tensors("conv2d", weight)
        name = f"conv{weight.ndim - 2}d"
        check_devices(name, [self, weight])
        if weight.ndim < 3:
            raise self._unfit("conv2d", f"the weight has {weight.ndim} axes", weight)
        if self.ndim != weight.ndim:
            raise self._unfit(name, "the input needs as many axes as the weight", weight)
        outputs, inputs = weight._sizes[:2]
        if self._length(1) != groups * inputs:
            raise self._unfit(
                name,
                f"the input has {self._length(1)} channels, the weight takes {groups * inputs} "
                f"({groups} groups of {inputs})",
                weight,
            )
        if outputs % groups:
            raise self._unfit(name, f"{outputs} outputs do not divide into {groups} groups", weight)
        if bias is not None and (not isinstance(bias, Core) or not same(bias.numel(), outputs)):
            check_tensors(name, bias)
            raise ShapeError(
                f"{name}: the bias has {bias.numel()} values for {outputs} outputs",
                weight=describe(weight.uop),
                bias=describe(bias.uop),
                line=here(),
            )
        return name

    def _unfit(self, name: str, fact: str, weight: Self, shape_rule: str = _SHAPE) -> ShapeError:
        return ShapeError(
            f"{name}: {fact}", input=describe(self.uop), weight=describe(weight.uop), line=here(),
            rule=f"input (batch, channels, *sizes), weight {shape_rule}",
        )  # fmt: skip

    @templated
    @composed
    def conv_transpose2d(
        self,
        weight: Self,
        bias: Self | None = None,
        groups: int = 1,
        stride: Sizes = 1,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
    ) -> Self:
        """Transpose of `conv2d` as a linear map, over any number of spatial axes.

        Args:
            weight: (channels, outputs / groups, *kernel).
            bias: (outputs,), added to each output channel.
            groups: number of groups of channels that do not mix.
            stride: step between windows of the convolution that this transposes.
            dilation: step between the elements of a window, an int or one for each spatial axis.
            padding: amount that the convolution pads, cut off here.
            output_padding: elements added at the end of each axis.

        Returns (batch, outputs, *out) with out = (size - 1) * stride - padding + dilation * (kernel
        - 1) + output_padding + 1 along each axis, padding counted on both sides.

        Raises as `conv2d`.

        >>> Tensor.ones(1, 1, 1, 2).conv_transpose2d(Tensor.ones(1, 1, 1, 2)).tolist()
        [[[[1.0, 2.0, 1.0]]]]
        """
        check_tensors("conv_transpose2d", weight)
        name = f"conv_transpose{weight.ndim - 2}d"
        channels, each, *kernel = weight._sizes
        count = len(kernel)
        if self.ndim != weight.ndim or count < 1:
            raise self._unfit(
                name, "the input needs as many axes as the weight", weight, _TRANSPOSED
            )
        if self._length(1) != channels or groups < 1 or channels % groups:
            fact = f"{self.shape[1]} channels, the weight takes {channels}, in {groups} groups"
            raise self._unfit(name, f"the input has {fact}", weight, _TRANSPOSED)
        strides, dilations = (
            _each(name, "stride", stride, count),
            _each(name, "dilation", dilation, count),
        )
        extra = _each(name, "output_padding", output_padding, count)
        # Turned around, and outputs exchanged with inputs within each group.
        w = weight.reshape(groups, channels // groups, each, *kernel).transpose(1, 2)
        w = w.flip(*range(3, 3 + count)).reshape(groups * each, channels // groups, *kernel)
        x = self
        for axis, step in enumerate(strides, start=2):
            x = x._spread(axis, step)
        around = [
            (d * (k - 1) - before, d * (k - 1) - after + more)
            for k, d, (before, after), more in zip(
                kernel, dilations, _padding(name, padding, count), extra
            )
        ]
        x = x.pad([(0, 0), (0, 0), *around])
        return x.conv2d(w, bias, groups=groups, dilation=dilations)

    def _spread(self, axis: int, step: int) -> Self:
        """step - 1 zeros after each element of an axis but the last."""
        if step <= 1:
            return self
        lead, size, after = self.shape[:axis], self._length(axis), self.shape[axis + 1 :]
        spread = self.reshape(*lead, size, 1, *after).pad(
            [(0, step - 1) if at == axis + 1 else (0, 0) for at in range(self.ndim + 1)]
        )
        return spread.reshape(*lead, size * step, *after)._slice(axis, 0, size * step - step + 1)

    # pooling

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
        """The windows of the last axes, with `value` in the border, and the axes to fold."""
        count = len(kernel_size) if isinstance(kernel_size, (tuple, list)) else 2
        if self.ndim < count:
            raise ShapeError(
                f"{name}: a window over {count} axes of a tensor with {self.ndim}",
                tensor=describe(self.uop),
                line=here(),
                rule="(batch, channels, *sizes), or a kernel_size with a value per axis",
            )
        kernel = _each(name, "kernel", kernel_size, count)
        strides = kernel if stride is None else _each(name, "stride", stride, count)
        dilations = _each(name, "dilation", dilation, count)
        around = _padding(name, padding, count)
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
        >>> values, places = x.max_pool2d(2, return_indices=True)
        >>> values.tolist(), places.tolist()
        ([[5.0]], [[1]])
        """
        patches, axes = self._pooled(
            "max_pool2d", kernel_size, stride, dilation, padding, ceil_mode, self.dtype.min
        )
        largest = patches._largest_pooled("max_pool2d", axes)
        if not return_indices:
            return largest
        sizes = self._sizes[-len(axes) :]
        # Places are counted from the end, so that the first of several has the largest count, and
        # the border has 0.
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
            or not any(map(any, _padding("avg_pool2d", padding, _count(kernel_size))))
        )
        patches, axes = x._pooled(
            "avg_pool2d", kernel_size, stride, dilation, padding, ceil_mode, 0
        )
        if is_plain:
            return patches.mean(axes)
        ones = x._like(x._operand("avg_pool2d", 1).uop).expand(x.shape)
        if count_include_pad:
            # The border that was asked for counts; what ceil_mode adds does not.
            amounts = _padding("avg_pool2d", padding, _count(kernel_size))
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
        wanted = _each("adaptive_avg_pool2d", "size", output_size, 2)
        return self._adaptive_pool("adaptive_avg_pool2d", wanted, is_max=False)

    def _adaptive_pool(self, name: str, wanted: Sequence[int | None], *, is_max: bool) -> Self:
        """`wanted` windows along each of the last axes, or an axis as it is for None."""
        if self.ndim < len(wanted):
            raise ShapeError(
                f"{name}: {len(wanted)} spatial axes in {show_shape(self.shape)}",
                input=describe(self.uop),
                line=here(),
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
                    line=here(),
                )
            if count is not None and not same(count, x.shape[axis]):
                x = x._adaptive_of_axis(name, axis, count, is_max=is_max)
        return x if x is not self else self._copy_of(self)

    def _adaptive_of_axis(self, name: str, axis: int, count: int, *, is_max: bool) -> Self:
        patches, is_inside = self._adaptive_patches(name, axis, count)
        if is_inside is None:
            folded = patches._largest_pooled(name, (-1,)) if is_max else patches.mean(-1)
            return folded.movedim(-1, axis)
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
                f"{name}: windows of an axis without elements",
                input=describe(self.uop),
                line=here(),
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

    def _adaptive_max_positions(self, name: str, wanted: Sequence[int | None]) -> tuple[Self, Self]:
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


def _count(kernel_size: Sizes) -> int:
    return len(kernel_size) if isinstance(kernel_size, (tuple, list)) else 2


def _missing(size: int, before: int, after: int, k: int, s: int, d: int) -> int:
    """What the last window of ceil_mode lacks; it begins inside the axis or in front."""
    whole = size + before + after
    positions = math.ceil((whole - d * (k - 1) - 1) / s) + 1
    if (positions - 1) * s >= size + before:
        positions -= 1
    return max(0, (positions - 1) * s + d * (k - 1) + 1 - whole)


def _remaining(
    x: Any, kernel_size: Sizes, stride: Sizes | None, dilation: Sizes, padding: Sizes
) -> list[int]:
    """What ceil_mode adds behind each axis."""
    count = _count(kernel_size)
    kernel = _each("avg_pool2d", "kernel", kernel_size, count)
    strides = kernel if stride is None else _each("avg_pool2d", "stride", stride, count)
    around = _padding("avg_pool2d", padding, count)
    dilations = _each("avg_pool2d", "dilation", dilation, count)
    return [
        _missing(size, before, after, k, s, d)
        for size, (before, after), k, s, d in zip(
            x._sizes[-count:], around, kernel, strides, dilations
        )
    ]
