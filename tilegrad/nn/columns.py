"""Windows of images as columns, and back."""

from __future__ import annotations

from tilegrad.nn import functional
from tilegrad.nn.layers import Sizes
from tilegrad.nn.module import Module
from tilegrad.tensor.tensor import Tensor

__all__ = ["Fold", "Unfold"]


class Unfold(Module):
    """Slices of images as columns, as `functional.unfold` (im2col).

    Args:
        kernel_size: size of the filter window, an int or one for each spatial axis.
        dilation: step between the elements of a window, an int or one for each spatial axis.
        padding: elements added on both sides, an int or one for each spatial axis.
        stride: step between windows, an int or one for each spatial axis.

    Shape: (N, C, H, W) to (N, C * elements of a slice, slices).

    Raises ShapeError for another number of axes, or a slice that is longer than its axis.

    >>> nn.Unfold(2)(Tensor.ones(1, 3, 4, 4)).shape
    (1, 12, 9)
    """

    def __init__(
        self,
        kernel_size: Sizes,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        stride: Sizes = 1,
    ):
        self.kernel_size, self.dilation = kernel_size, dilation
        self.padding, self.stride = padding, stride

    def __call__(self, x: Tensor) -> Tensor:
        return functional.unfold(x, self.kernel_size, self.dilation, self.padding, self.stride)


class Fold(Module):
    """Columns added up where `Unfold` took them from, as `functional.fold` (col2im).

    Args:
        output_size: (H, W) of the result.
        kernel_size: size of the filter window, an int or one for each spatial axis.
        dilation: step between the elements of a window, an int or one for each spatial axis.
        padding: elements added on both sides, an int or one for each spatial axis.
        stride: step between windows, an int or one for each spatial axis.

    Shape: (N, C * elements of a slice, slices) to (N, C, *output_size).

    Raises ShapeError unless the number of slices fits.

    >>> nn.Fold((4, 4), 2)(Tensor.ones(1, 12, 9)).shape
    (1, 3, 4, 4)
    """

    def __init__(
        self,
        output_size: Sizes,
        kernel_size: Sizes,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        stride: Sizes = 1,
    ):
        self.output_size, self.kernel_size, self.dilation = output_size, kernel_size, dilation
        self.padding, self.stride = padding, stride

    def __call__(self, x: Tensor) -> Tensor:
        return functional.fold(
            x, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride
        )
