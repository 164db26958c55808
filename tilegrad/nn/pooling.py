"""Pooling as modules, under PyTorch's names and arguments: windows over the last axes of
(..., *sizes), reduced to one element each. Any axes may stand before them.

The positions along an axis of size L are

    (L + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1,

rounded up with `ceil_mode`. `stride` is `kernel_size` unless it is given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from tilegrad.base.errors import ConfigError, ShapeError
from tilegrad.nn.layer_checks import tuple_of
from tilegrad.nn.module import Module
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "LPPool1d",
    "LPPool2d", "LPPool3d", "MaxPool1d", "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d",
    "MaxUnpool3d",
]  # fmt: skip

Sizes = int | tuple[int, ...]


class _Pooling(Module):
    """Windows over `axes` axes at the end."""

    axes: ClassVar[int] = 2

    def __init__(self, kernel_size: Sizes, stride: Sizes | None, padding: Sizes):
        name = type(self).__name__
        self.kernel_size = tuple_of(name, "kernel_size", kernel_size, self.axes, least=1)
        self.stride = (
            self.kernel_size
            if stride is None
            else tuple_of(name, "stride", stride, self.axes, least=1)
        )
        self.padding = tuple_of(name, "padding", padding, self.axes)


class _Pool(_Pooling):
    """Pooling that reduces each window to one element."""

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
    ):
        super().__init__(kernel_size, stride, padding)
        if any(2 * width > size for width, size in zip(self.padding, self.kernel_size)):
            text = f"padding {self.padding} is more than half of {self.kernel_size}"
            raise ShapeError(f"{type(self).__name__}: {text}")
        self.ceil_mode = ceil_mode


class MaxPool2d(_Pool):
    """Largest element of each window over the last two axes.

    Args:
        kernel_size: size of the filter window, an int or one for each spatial axis.
        stride: step between windows, by default `kernel_size`.
        padding: minus infinity added on both sides.
        dilation: step between the elements of a window, an int or one for each spatial axis.
        return_indices: also give the int32 position of each value in the last axes, read as one, as
            `MaxUnpool2d` takes it.
        ceil_mode: round sizes up.

    Shape: (..., H, W) to (..., H', W') with H' = (H + 2 padding - dilation * (kernel - 1) - 1) //
    stride + 1, in the same dtype.

    Raises ShapeError for a window that is longer than its axis.

    >>> nn.MaxPool2d(2)(Tensor([[[1, 2], [3, 4]]])).tolist()
    [[[4]]]
    """

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ):
        super().__init__(kernel_size, stride, padding, ceil_mode)
        self.dilation = tuple_of(type(self).__name__, "dilation", dilation, self.axes, least=1)
        self.return_indices = return_indices

    def __call__(self, x: Tensor) -> Any:
        options = (self.kernel_size, self.stride, self.dilation, self.padding, self.ceil_mode)
        if self.return_indices:
            return x.max_pool2d(*options, return_indices=True)
        return x.max_pool2d(*options)


class MaxPool1d(MaxPool2d):
    """Largest element of each window over the last axis; arguments as `MaxPool2d`.

    Shape: (..., L) to (..., L'), in the same dtype.

    Raises ShapeError for a window that is longer than its axis.

    >>> nn.MaxPool1d(2)(Tensor([[[1.0, 3.0]]])).tolist()
    [[[3.0]]]
    """

    axes = 1


class MaxPool3d(MaxPool2d):
    """Largest element of each window over the last three axes; arguments as `MaxPool2d`.

    Shape: (..., D, H, W) to (..., D', H', W'), in the same dtype.

    Raises ShapeError for a window that is longer than its axis.

    >>> nn.MaxPool3d(2)(Tensor.ones(1, 2, 4, 4, 4)).shape
    (1, 2, 2, 2, 2)
    """

    axes = 3


class AvgPool2d(_Pool):
    """Mean of each window over the last two axes.

    Args:
        kernel_size: size of the filter window, an int or one for each spatial axis.
        stride: step between windows, by default `kernel_size`.
        padding: zeros added on both sides.
        ceil_mode: round sizes up.
        count_include_pad: count the padding as zeros; else the mean is of the elements inside.
        divisor_override: divide by this number.

    Shape: (..., H, W) to (..., H', W') with H' = (H + 2 padding - kernel) // stride + 1; float.

    Raises ShapeError for a window that is longer than its axis, ConfigError for a divisor of 0.

    >>> nn.AvgPool2d(2)(Tensor([[[1.0, 2.0], [3.0, 6.0]]])).tolist()
    [[[3.0]]]
    """

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ):
        super().__init__(kernel_size, stride, padding, ceil_mode)
        self.count_include_pad, self.divisor_override = count_include_pad, divisor_override
        if divisor_override == 0:
            raise ConfigError(f"{type(self).__name__}: divisor_override is 0")

    def __call__(self, x: Tensor) -> Tensor:
        if self.divisor_override is not None:
            patches, axes = x._pooled(
                "avg_pool2d", self.kernel_size, self.stride, 1, self.padding, self.ceil_mode, 0
            )
            return patches.sum(axes) / self.divisor_override
        return x.avg_pool2d(
            self.kernel_size,
            self.stride,
            padding=self.padding,
            ceil_mode=self.ceil_mode,
            count_include_pad=self.count_include_pad,
        )


class AvgPool1d(AvgPool2d):
    """Mean of each window over the last axis; arguments as `AvgPool2d`.

    Shape: (..., L) to (..., L'); float.

    Raises ShapeError for a window that is longer than its axis.

    >>> nn.AvgPool1d(2)(Tensor([[[1.0, 3.0]]])).tolist()
    [[[2.0]]]
    """

    axes = 1


class AvgPool3d(AvgPool2d):
    """Mean of each window over the last three axes; arguments as `AvgPool2d`.

    Shape: (..., D, H, W) to (..., D', H', W'); float.

    Raises ShapeError for a window that is longer than its axis.

    >>> nn.AvgPool3d(2)(Tensor.ones(1, 2, 4, 4, 4)).shape
    (1, 2, 2, 2, 2)
    """

    axes = 3


class LPPool2d(_Pool):
    """Norm of each window over the last two axes: (sum of x^p)^(1/p). For a negative sum s it is
    -(|s|^(1/p)), where PyTorch gives NaN.

    Args:
        norm_type: p.
        kernel_size: size of the filter window, an int or one for each spatial axis.
        stride: step between windows, by default `kernel_size`.
        ceil_mode: round sizes up.

    Shape: (..., H, W) to (..., H', W') with H' = (H - kernel) // stride + 1; float.

    Raises ShapeError for a window that is longer than its axis.

    >>> nn.LPPool1d(2, kernel_size=2)(Tensor([[3.0, 4.0]])).tolist()
    [[5.0]]
    """

    def __init__(
        self,
        norm_type: float,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        ceil_mode: bool = False,
    ):
        super().__init__(kernel_size, stride, 0, ceil_mode)
        self.norm_type = norm_type

    def __call__(self, x: Tensor) -> Tensor:
        powers = x.pow(self.norm_type)
        mean = powers.avg_pool2d(self.kernel_size, self.stride, ceil_mode=self.ceil_mode)
        total = mean * math.prod(self.kernel_size)
        return total.detach().sign() * total.abs()._power_of_sum(1 / self.norm_type)


class LPPool1d(LPPool2d):
    """Norm of each window over the last axis; arguments as `LPPool2d`.

    Shape: (..., L) to (..., L'); float.

    Raises ShapeError for a window that is longer than its axis.

    >>> nn.LPPool1d(2, 2)(Tensor([[[3.0, 4.0]]])).tolist()
    [[[5.0]]]
    """

    axes = 1


class LPPool3d(LPPool2d):
    """Norm of each window over the last three axes; arguments as `LPPool2d`.

    Shape: (..., D, H, W) to (..., D', H', W'); float.

    Raises ShapeError for a window that is longer than its axis.

    >>> nn.LPPool3d(2, 2)(Tensor.ones(1, 1, 2, 2, 2)).shape
    (1, 1, 1, 1, 1)
    """

    axes = 3


class MaxUnpool2d(_Pooling):
    """Put the values of `MaxPool2d(..., return_indices=True)` back at their positions, and zeros
    elsewhere. A call takes the values, the indices, and `output_size` where several sizes were
    pooled to one.

    Args:
        kernel_size: size of the filter window, an int or one for each spatial axis.
        stride: step between windows, by default `kernel_size`.
        padding: as of the pooling.

    Shape: (..., H', W') and int32 indices of that shape to (..., H, W), in the same dtype.

    Raises ShapeError for indices of another shape.

    >>> values, places = nn.MaxPool2d(2, return_indices=True)(Tensor([[[1.0, 2.0], [4.0, 3.0]]]))
    >>> nn.MaxUnpool2d(2)(values, places).tolist()
    [[[0.0, 0.0], [4.0, 0.0]]]
    """

    def __init__(self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0):
        super().__init__(kernel_size, stride, padding)

    def __call__(
        self, x: Tensor, indices: Tensor, output_size: Sequence[int] | None = None
    ) -> Tensor:
        size = None if output_size is None else tuple(output_size)[-self.axes :]
        return x.max_unpool2d(
            indices, self.kernel_size, self.stride, padding=self.padding, output_size=size
        )


class MaxUnpool1d(MaxUnpool2d):
    """Inverse of `MaxPool1d`; arguments as `MaxUnpool2d`.

    Shape: (..., L') and int32 indices of that shape to (..., L).

    Raises ShapeError for indices of another shape.

    >>> values, places = nn.MaxPool1d(2, return_indices=True)(Tensor([[[1.0, 3.0]]]))
    >>> nn.MaxUnpool1d(2)(values, places).tolist()
    [[[0.0, 3.0]]]
    """

    axes = 1


class MaxUnpool3d(MaxUnpool2d):
    """Inverse of `MaxPool3d`; arguments as `MaxUnpool2d`.

    Shape: (..., D', H', W') and int32 indices of that shape to (..., D, H, W).

    Raises ShapeError for indices of another shape.

    >>> values, places = nn.MaxPool3d(2, return_indices=True)(Tensor.ones(1, 1, 2, 2, 2))
    >>> nn.MaxUnpool3d(2)(values, places).shape
    (1, 1, 2, 2, 2)
    """

    axes = 3


class AdaptiveAvgPool2d(Module):
    """Mean of windows over the last two axes, placed so that there are `output_size` of them.

    Window i of n along an axis of size L is from floor(i * L / n) to ceil((i + 1) * L / n), as in
    PyTorch.

    Args:
        output_size: number of windows, an int or one for each axis; None keeps an axis.

    Shape: (..., H, W) to (..., *output_size); float.

    Raises ShapeError for another number of sizes, or one below 1.

    >>> nn.AdaptiveAvgPool1d(2)(Tensor([[1.0, 2.0, 3.0]])).tolist()
    [[1.5, 2.5]]
    """

    axes: ClassVar[int] = 2

    def __init__(self, output_size: int | Sequence[int | None] | None):
        given: tuple[int | None, ...]
        if output_size is None or isinstance(output_size, int):
            given = (output_size,) * self.axes
        else:
            given = tuple(output_size)
        name = type(self).__name__
        tuple_of(name, "output_size", tuple(size or 1 for size in given), self.axes, least=1)
        self.output_size = given

    def __call__(self, x: Tensor) -> Any:
        return x._adaptive_pool(type(self).__name__, tuple(self.output_size), is_max=False)


class AdaptiveAvgPool1d(AdaptiveAvgPool2d):
    """Mean of windows over the last axis; arguments as `AdaptiveAvgPool2d`.

    Shape: (..., L) to (..., output_size); float.

    Raises ShapeError for another number of sizes, or one below 1.

    >>> nn.AdaptiveAvgPool1d(1)(Tensor([[[1.0, 3.0]]])).tolist()
    [[[2.0]]]
    """

    axes = 1


class AdaptiveAvgPool3d(AdaptiveAvgPool2d):
    """Mean of windows over the last three axes; arguments as `AdaptiveAvgPool2d`.

    Shape: (..., D, H, W) to (..., *output_size); float.

    Raises ShapeError for another number of sizes, or one below 1.

    >>> nn.AdaptiveAvgPool3d(1)(Tensor.ones(1, 2, 2, 2, 2)).shape
    (1, 2, 1, 1, 1)
    """

    axes = 3


class AdaptiveMaxPool2d(AdaptiveAvgPool2d):
    """Largest element of windows over the last two axes, placed as by `AdaptiveAvgPool2d`.

    Args:
        output_size: number of windows, an int or one for each axis; None keeps an axis.
        return_indices: also give the int32 position of each value in the last axes, read as one.

    Shape: (..., H, W) to (..., *output_size); the dtype of the input.

    Raises ShapeError for another number of sizes, or one below 1.

    >>> nn.AdaptiveMaxPool2d(1)(Tensor([[[[1.0, 3.0]]]])).tolist()
    [[[[3.0]]]]
    """

    def __init__(
        self, output_size: int | Sequence[int | None] | None, return_indices: bool = False
    ):
        super().__init__(output_size)
        self.return_indices = return_indices

    def __call__(self, x: Tensor) -> Any:
        name = type(self).__name__
        if self.return_indices:
            return x._adaptive_max_positions(name, tuple(self.output_size))
        return x._adaptive_pool(name, tuple(self.output_size), is_max=True)


class AdaptiveMaxPool1d(AdaptiveMaxPool2d):
    """Largest element of windows over the last axis; arguments as `AdaptiveAvgPool2d`.

    Shape: (..., L) to (..., output_size), in the same dtype.

    Raises ShapeError for another number of sizes, or one below 1.

    >>> nn.AdaptiveMaxPool1d(1)(Tensor([[[1.0, 3.0]]])).tolist()
    [[[3.0]]]

    Args:
        return_indices: give the positions of the maxima too.
    """

    axes = 1


class AdaptiveMaxPool3d(AdaptiveMaxPool2d):
    """Largest element of windows over the last three axes; arguments as `AdaptiveAvgPool2d`.

    Shape: (..., D, H, W) to (..., *output_size), in the same dtype.

    Raises ShapeError for another number of sizes, or one below 1.

    >>> nn.AdaptiveMaxPool3d(1)(Tensor.ones(1, 2, 2, 2, 2)).shape
    (1, 2, 1, 1, 1)

    Args:
        return_indices: give the positions of the maxima too.
    """

    axes = 3
