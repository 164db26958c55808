"""Pooling as modules, under PyTorch's names and arguments: windows over the last axes of
(..., *sizes), folded to one element each. Any axes may stand before them.

The positions along an axis of size L are

    (L + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1,

rounded up with `ceil_mode`. `stride` is `kernel_size` unless it is given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from tilegrad.base.errors import ConfigError, ShapeError
from tilegrad.nn.checks import tuple_of
from tilegrad.nn.module import Module
from tilegrad.tensor.sizes import here
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "LPPool1d",
    "LPPool2d", "LPPool3d", "MaxPool1d", "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d",
    "MaxUnpool3d",
]  # fmt: skip

Sizes = int | tuple[int, ...]


class _Windows(Module):
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


class _Pool(_Windows):
    """What folds each window to one element."""

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
            raise ShapeError(f"{type(self).__name__}: {text}", line=here())
        self.ceil_mode = ceil_mode


class MaxPool2d(_Pool):
    """The largest element of each window of (..., H, W); the border counts as the least number.

    With `return_indices` also where it is: its place in the last axes read as one, as `MaxUnpool2d`
    takes it.

    Raises ShapeError if a window is longer than its axis.

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
    """As MaxPool2d, over the last axis.

    >>> nn.MaxPool1d(2)(Tensor([[[1.0, 3.0]]])).tolist()
    [[[3.0]]]
    """

    axes = 1


class MaxPool3d(MaxPool2d):
    """As MaxPool2d, over the last three axes.

    >>> nn.MaxPool3d(2)(Tensor.ones(1, 2, 4, 4, 4)).shape
    (1, 2, 2, 2, 2)
    """

    axes = 3


class AvgPool2d(_Pool):
    """The mean of each window of (..., H, W); the border counts as zeros, or not at all without
    `count_include_pad`.

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
            raise ConfigError(f"{type(self).__name__}: divisor_override is 0", line=here())

    def __call__(self, x: Tensor) -> Tensor:
        if self.divisor_override is not None:
            windows, axes = x._pooled(
                "avg_pool2d", self.kernel_size, self.stride, 1, self.padding, self.ceil_mode, 0
            )
            return windows.sum(axes) / self.divisor_override
        return x.avg_pool2d(
            self.kernel_size,
            self.stride,
            padding=self.padding,
            ceil_mode=self.ceil_mode,
            count_include_pad=self.count_include_pad,
        )


class AvgPool1d(AvgPool2d):
    """As AvgPool2d, over the last axis.

    >>> nn.AvgPool1d(2)(Tensor([[[1.0, 3.0]]])).tolist()
    [[[2.0]]]
    """

    axes = 1


class AvgPool3d(AvgPool2d):
    """As AvgPool2d, over the last three axes.

    >>> nn.AvgPool3d(2)(Tensor.ones(1, 2, 4, 4, 4)).shape
    (1, 2, 2, 2, 2)
    """

    axes = 3


class LPPool2d(_Pool):
    """(sum of x^p)^(1/p) over each window of (..., H, W). Of a negative sum s it is -(|s|^(1/p)),
    where PyTorch gives NaN.

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
        return total.sign() * total.abs()._power_of_sum(1 / self.norm_type)


class LPPool1d(LPPool2d):
    """As LPPool2d, over the last axis.

    >>> nn.LPPool1d(2, 2)(Tensor([[[3.0, 4.0]]])).tolist()
    [[[5.0]]]
    """

    axes = 1


class LPPool3d(LPPool2d):
    """As LPPool2d, over the last three axes.

    >>> nn.LPPool3d(2, 2)(Tensor.ones(1, 1, 2, 2, 2)).shape
    (1, 1, 1, 1, 1)
    """

    axes = 3


class MaxUnpool2d(_Windows):
    """The values of `MaxPool2d(..., return_indices=True)` back at their places in (..., H, W), and
    zeros around them. `output_size` says how large that is where several sizes were pooled to one.

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
    """As MaxUnpool2d, over the last axis.

    >>> values, places = nn.MaxPool1d(2, return_indices=True)(Tensor([[[1.0, 3.0]]]))
    >>> nn.MaxUnpool1d(2)(values, places).tolist()
    [[[0.0, 3.0]]]
    """

    axes = 1


class MaxUnpool3d(MaxUnpool2d):
    """As MaxUnpool2d, over the last three axes.

    >>> values, places = nn.MaxPool3d(2, return_indices=True)(Tensor.ones(1, 1, 2, 2, 2))
    >>> nn.MaxUnpool3d(2)(values, places).shape
    (1, 1, 2, 2, 2)
    """

    axes = 3


class AdaptiveAvgPool2d(Module):
    """The mean of windows of (..., H, W), as many along each axis as `output_size` says; None
    keeps an axis.

    Window i of n along an axis of size L is from floor(i * L / n) to ceil((i + 1) * L / n), as in
    PyTorch: windows are of equal size where n divides L, else they overlap.

    >>> nn.AdaptiveAvgPool1d(2)(Tensor([[1.0, 2.0, 3.0]])).tolist()
    [[1.5, 2.5]]
    """

    axes: ClassVar[int] = 2
    _is_max: ClassVar[bool] = False

    def __init__(self, output_size: int | tuple[int | None, ...] | None):
        given = output_size if isinstance(output_size, tuple) else (output_size,) * self.axes
        name = type(self).__name__
        tuple_of(name, "output_size", tuple(size or 1 for size in given), self.axes, least=1)
        self.output_size = given

    def __call__(self, x: Tensor) -> Tensor:
        return x._adaptive_pool(type(self).__name__, self.output_size, is_max=self._is_max)


class AdaptiveAvgPool1d(AdaptiveAvgPool2d):
    """As AdaptiveAvgPool2d, over the last axis.

    >>> nn.AdaptiveAvgPool1d(1)(Tensor([[[1.0, 3.0]]])).tolist()
    [[[2.0]]]
    """

    axes = 1


class AdaptiveAvgPool3d(AdaptiveAvgPool2d):
    """As AdaptiveAvgPool2d, over the last three axes.

    >>> nn.AdaptiveAvgPool3d(1)(Tensor.ones(1, 2, 2, 2, 2)).shape
    (1, 2, 1, 1, 1)
    """

    axes = 3


class AdaptiveMaxPool2d(AdaptiveAvgPool2d):
    """The largest element of windows of (..., H, W), chosen as those of AdaptiveAvgPool2d.

    >>> nn.AdaptiveMaxPool2d(1)(Tensor([[[[1.0, 3.0]]]])).tolist()
    [[[[3.0]]]]
    """

    _is_max = True


class AdaptiveMaxPool1d(AdaptiveMaxPool2d):
    """As AdaptiveMaxPool2d, over the last axis.

    >>> nn.AdaptiveMaxPool1d(1)(Tensor([[[1.0, 3.0]]])).tolist()
    [[[3.0]]]
    """

    axes = 1


class AdaptiveMaxPool3d(AdaptiveMaxPool2d):
    """As AdaptiveMaxPool2d, over the last three axes.

    >>> nn.AdaptiveMaxPool3d(1)(Tensor.ones(1, 2, 2, 2, 2)).shape
    (1, 2, 1, 1, 1)
    """

    axes = 3
