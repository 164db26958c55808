"""Convolution over any number of axes: slices, then a sum of products.

The slices are movement (views/patches.py), so no copy of the input is ever laid out, and the
derivative is movement too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from tilegrad.base.dtype import DType
from tilegrad.base.dtype_promotion import promote
from tilegrad.base.errors import ShapeError
from tilegrad.base.origin import composed
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.handle.core import Core, check_devices, check_tensors, describe
from tilegrad.tensor.handle.size_arguments import as_int, same
from tilegrad.tensor.products.linear import Linear

__all__ = ["Convolution", "Sizes", "by_axis", "padding_by_axis"]

Sizes = int | Sequence[int]


def by_axis(name: str, what: str, value: Sizes, count: int) -> tuple[int, ...]:
    """One value for each spatial axis."""
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,) * count
    if len(values) != count:
        raise ShapeError(f"{name}: {what} has {len(values)} values for {count} axes")
    return tuple(as_int(name, f"a {what}", each) for each in values)


def padding_by_axis(name: str, padding: Sizes, count: int) -> list[tuple[int, int]]:
    """(before, after) of each spatial axis; a flat list counts from the last."""
    if isinstance(padding, (tuple, list)) and len(padding) == 2 * count:
        return [(padding[at], padding[at + 1]) for at in range(2 * count - 2, -1, -2)]
    return [(amount, amount) for amount in by_axis(name, "padding", padding, count)]


# Axes of a weight, for errors.
_SHAPE = "(outputs, channels / groups, *kernel)"
_TRANSPOSED = "(channels, outputs / groups, *kernel)"


class Convolution(Linear):
    """Convolution."""

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
        padded = self.pad([(0, 0), (0, 0), *padding_by_axis(name, padding, count)])
        patches = padded._patches(
            name,
            kernel,
            by_axis(name, "stride", stride, count),
            by_axis(name, "dilation", dilation, count),
        )
        positions = patches.shape[2 : 2 + count]
        # (batch, group, 1, *positions, inputs, *kernel) times (1, group, outputs of it, *1s,
        # inputs, *kernel)
        x = patches.reshape(batch, groups, inputs, 1, *patches.shape[2:])
        x = x.permute(0, 1, 3, *range(4, 4 + count), 2, *range(4 + count, 4 + 2 * count))
        each = outputs // groups
        w = weight.reshape(1, groups, each, *[1] * count, inputs, *kernel)
        reduced = tuple(range(3 + count, 4 + 2 * count))
        if dtype is not None:
            total = (x.cast(dtype) * w.cast(dtype)).sum(reduced, dtype=dtype)
            return total._with_bias(bias, batch, outputs, positions)
        products = x * w
        if bias is None or not products.dtype.is_float or products.dtype.itemsize >= 4:
            total = products._sum_of_products(reduced)
            return total._with_bias(bias, batch, outputs, positions)
        # The sum of half types takes the bias in its own dtype, and is rounded once.
        total = products._sum_of_products(reduced, is_wide=True)
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
            )
        return name

    def _unfit(self, name: str, fact: str, weight: Self, shape_rule: str = _SHAPE) -> ShapeError:
        return ShapeError(
            f"{name}: {fact}", input=describe(self.uop), weight=describe(weight.uop),
            rule=f"input (batch, channels, *sizes), weight {shape_rule}"
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
            by_axis(name, "stride", stride, count),
            by_axis(name, "dilation", dilation, count),
        )
        extra = by_axis(name, "output_padding", output_padding, count)
        # Turned around, and outputs exchanged with inputs within each group.
        w = weight.reshape(groups, channels // groups, each, *kernel).transpose(1, 2)
        w = w.flip(*range(3, 3 + count)).reshape(groups * each, channels // groups, *kernel)
        x = self
        for axis, step in enumerate(strides, start=2):
            x = x._spread(axis, step)
        around = [
            (d * (k - 1) - before, d * (k - 1) - after + more)
            for k, d, (before, after), more in zip(
                kernel, dilations, padding_by_axis(name, padding, count), extra
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
