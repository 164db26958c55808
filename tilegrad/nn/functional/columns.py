"""Windows of images as columns, and back, as functions."""

from __future__ import annotations

import math

from tilegrad.base.errors import ShapeError
from tilegrad.nn.functional.convolution import Sizes, with_batch_axis
from tilegrad.nn.layer_checks import tuple_of
from tilegrad.tensor.handle.core import check_tensors, describe
from tilegrad.tensor.handle.size_arguments import show_shape
from tilegrad.tensor.tensor import Tensor

__all__ = ["fold", "unfold"]


def unfold(
    input: Tensor,
    kernel_size: Sizes,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    stride: Sizes = 1,
) -> Tensor:
    """Slices of images as columns (im2col).

    Args:
        input: (N, C, H, W).
        kernel_size: size of the filter window, an int or one for each spatial axis.
        dilation: step between the elements of a window, an int or one for each spatial axis.
        padding: elements added on both sides, an int or one for each spatial axis.
        stride: step between windows, an int or one for each spatial axis.

    Returns a tensor of shape (N, C * elements of a slice, slices) in the dtype of `input`.

    Raises ShapeError for another number of axes, or a slice that is longer than its axis.

    >>> nn.functional.unfold(Tensor([[[[1.0, 2.0], [3.0, 4.0]]]]), (1, 2)).tolist()
    [[[1.0, 3.0], [2.0, 4.0]]]
    """
    batch = with_batch_axis("unfold", 2, input)
    kernel, spread, around, steps = _four("unfold", kernel_size, dilation, padding, stride)
    padded = batch.pad(((0, 0), (0, 0), *[(width, width) for width in around]))
    patches = padded._patches("unfold", kernel, steps, spread)
    count, channels = patches._sizes[:2]
    positions = math.prod(patches.shape[2:4])
    columns = patches.permute(0, 1, 4, 5, 2, 3).reshape(
        count, channels * math.prod(kernel), positions
    )
    return columns if batch is input else columns.squeeze(0)


def fold(
    input: Tensor,
    output_size: Sizes,
    kernel_size: Sizes,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    stride: Sizes = 1,
) -> Tensor:
    """Columns added up where `unfold` took them from (col2im).

    Args:
        input: (N, C * elements of a slice, slices).
        output_size: (H, W) of the result.
        kernel_size: size of the filter window, an int or one for each spatial axis.
        dilation: step between the elements of a window, an int or one for each spatial axis.
        padding: elements added on both sides, an int or one for each spatial axis.
        stride: step between windows, an int or one for each spatial axis.

    Returns a tensor of shape (N, C, *output_size) in the dtype of `input`.

    Raises ShapeError unless the number of slices, and of elements in them, fits.

    >>> columns = Tensor([[[1.0, 3.0], [2.0, 4.0]]])
    >>> nn.functional.fold(columns, (1, 3), (1, 2)).tolist()
    [[[[1.0, 5.0, 4.0]]]]
    """
    check_tensors("fold", input)
    batch = input if input.ndim == 3 else input.unsqueeze(0)
    size = tuple_of("fold", "output_size", output_size, 2, least=1)
    kernel, spread, around, steps = _four("fold", kernel_size, dilation, padding, stride)
    spans = [d * (k - 1) + 1 for d, k in zip(spread, kernel)]
    free = [length + 2 * width - span for length, width, span in zip(size, around, spans)]
    counts = [rest // step + 1 for rest, step in zip(free, steps)]
    elements = math.prod(kernel)
    wanted = math.prod(counts)
    if batch.ndim != 3 or batch._sizes[1] % elements or batch._sizes[2] != wanted:
        raise ShapeError(
            f"fold: {show_shape(input.shape)} are no columns of {size}",
            rule=f"(N, a multiple of {elements}, {wanted}) for windows of {kernel}",
            input=describe(input.uop),
        )
    channels = batch._sizes[1] // elements
    # Each element of a window is a channel that a transposed convolution puts at its place.
    units = Tensor.eye(elements, device=input.device, dtype=input.dtype)
    weight = units.reshape(1, elements, 1, *kernel).expand(channels, elements, 1, *kernel)
    left = tuple(rest % step for rest, step in zip(free, steps))
    result = batch.reshape(batch._sizes[0], channels * elements, *counts).conv_transpose2d(
        weight.reshape(channels * elements, 1, *kernel), None, channels, steps, spread, around, left
    )
    return result if batch is input else result.squeeze(0)


def _four(
    name: str, kernel_size: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes
) -> tuple[tuple[int, ...], ...]:
    return (
        tuple_of(name, "kernel_size", kernel_size, 2, least=1),
        tuple_of(name, "dilation", dilation, 2, least=1),
        tuple_of(name, "padding", padding, 2),
        tuple_of(name, "stride", stride, 2, least=1),
    )
