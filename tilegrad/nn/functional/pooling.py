"""Functions of windows: convolution, pooling, windows as columns; and pixels.

An input may have a batch axis before its channels, or none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilegrad.base.errors import ShapeError
from tilegrad.nn import pooling, shapes
from tilegrad.nn.checks import tuple_of
from tilegrad.tensor.handle.core import check_tensors, describe
from tilegrad.tensor.handle.sizes import here, show_shape
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "channel_shuffle", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "fold", "lp_pool1d", "lp_pool2d", "lp_pool3d", "max_pool1d", "max_pool2d",
    "max_pool3d", "max_unpool1d", "max_unpool2d", "max_unpool3d", "pixel_shuffle",
    "pixel_unshuffle", "unfold",
]  # fmt: skip

Sizes = int | tuple[int, ...]


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution along one axis; see `conv2d`.

    Args:
        input: (N, in_channels, L).
        weight: (out_channels, in_channels / groups, kernel).
        bias: (out_channels,), or None.
        stride: step between windows, an int or one for each spatial axis.
        padding: zeros on both sides, "same" or "valid".
        dilation: step between the elements of a window, an int or one for each spatial axis.
        groups: number of groups of channels that do not mix.

    Returns a tensor of shape (N, out_channels, (L + 2 padding - dilation * (kernel - 1) - 1) //
    stride + 1).

    Raises ShapeError for shapes or sizes that do not fit, ConfigError for another text as
    `padding`.

    >>> nn.functional.conv1d(Tensor([[[1.0, 2.0, 4.0]]]), Tensor([[[1.0, 1.0]]])).tolist()
    [[[3.0, 6.0]]]
    """
    return _conv("conv1d", 1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation of images, which the field calls convolution.

    Args:
        input: (N, in_channels, H, W).
        weight: (out_channels, in_channels / groups, *kernel).
        bias: (out_channels,), or None.
        stride: step between windows, an int or one for each spatial axis.
        padding: zeros on both sides, "same" for an output of the input's size, or "valid" for none.
        dilation: step between the elements of a window, an int or one for each spatial axis.
        groups: number of groups of channels that do not mix.

    Returns a tensor of shape (N, out_channels, H', W') with H' = (H + 2 padding - dilation *
    (kernel - 1) - 1) // stride + 1, in the dtype to which all promote.

    Raises ShapeError for shapes or sizes that do not fit.

    >>> nn.functional.conv2d(Tensor.ones(1, 1, 2, 2), Tensor.ones(1, 1, 2, 2)).tolist()
    [[[[4.0]]]]
    """
    return _conv("conv2d", 2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution along three axes; see `conv2d`.

    Args:
        input: (N, in_channels, D, H, W).
        weight: (out_channels, in_channels / groups, *kernel).
        bias: (out_channels,), or None.
        stride: step between windows, an int or one for each spatial axis.
        padding: zeros on both sides, "same" or "valid".
        dilation: step between the elements of a window, an int or one for each spatial axis.
        groups: number of groups of channels that do not mix.

    Returns a tensor of shape (N, out_channels, D', H', W'), sizes as those of `conv2d`.

    Raises ShapeError for shapes or sizes that do not fit, ConfigError for another text as
    `padding`.

    >>> nn.functional.conv3d(Tensor.ones(1, 1, 3, 3, 3), Tensor.ones(2, 1, 2, 2, 2)).shape
    (1, 2, 2, 2, 2)
    """
    return _conv("conv3d", 3, input, weight, bias, stride, padding, dilation, groups)


def _conv(
    name: str,
    axes: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes | str,
    dilation: Sizes,
    groups: int,
) -> Tensor:
    batch = _batched(name, axes, input)
    steps = tuple_of(name, "stride", stride, axes, least=1)
    spread = tuple_of(name, "dilation", dilation, axes, least=1)
    around = sides(name, padding, weight._sizes[2:], steps, spread)
    padded = batch.pad(((0, 0), (0, 0), *around))
    result = padded.conv2d(weight, bias, groups, steps, spread)
    return result if batch is input else result.squeeze(0)


def sides(
    name: str,
    padding: Sizes | str,
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> tuple[tuple[int, int], ...]:
    """The elements to add before and after each axis.

    Raises ShapeError for padding="same" with a stride, or for another word.
    """
    if padding == "same" and any(step != 1 for step in stride):
        raise ShapeError(
            f"{name}: padding 'same' needs a stride of 1, not {tuple(stride)}", line=here()
        )
    if padding == "same":
        widths = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        return tuple((width // 2, width - width // 2) for width in widths)
    if isinstance(padding, str) and padding != "valid":
        raise ShapeError(
            f"{name}: unknown padding {padding!r}", allowed="numbers, 'same', 'valid'", line=here()
        )
    around = tuple_of(name, "padding", 0 if isinstance(padding, str) else padding, len(kernel))
    return tuple((width, width) for width in around)


def _batched(name: str, axes: int, input: Tensor) -> Tensor:
    """`input` with a batch axis. Raises ShapeError for another number of axes."""
    check_tensors(name, input)
    if input.ndim not in (axes + 1, axes + 2):
        raise ShapeError(
            f"{name}: the input has {input.ndim} axes, not {axes + 2} (or {axes + 1})",
            input=describe(input.uop),
            line=here(),
        )
    return input if input.ndim == axes + 2 else input.unsqueeze(0)


def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:
    """Transpose of `conv1d` as a linear map; see `conv_transpose2d`.

    Args:
        input: (N, in_channels, L).
        weight: (in_channels, out_channels / groups, kernel).
        bias: (out_channels,), or None.
        stride: step of the convolution that this transposes.
        padding: amount cut off on both sides.
        output_padding: elements added at the end.
        groups: number of groups of channels that do not mix.
        dilation: step between the elements of a window, an int or one for each spatial axis.

    Returns a tensor of shape (N, out_channels, (L - 1) * stride - 2 padding + dilation * (kernel -
    1) + output_padding + 1).

    Raises ShapeError for shapes or sizes that do not fit.

    >>> nn.functional.conv_transpose1d(Tensor.ones(1, 1, 2), Tensor.ones(1, 1, 2)).tolist()
    [[[1.0, 2.0, 1.0]]]
    """
    options = (stride, padding, output_padding, groups, dilation)
    return _transposed("conv_transpose1d", 1, input, weight, bias, *options)


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:
    """Transpose of `conv2d` as a linear map.

    Args:
        input: (N, in_channels, H, W).
        weight: (in_channels, out_channels / groups, *kernel).
        bias: (out_channels,), or None.
        stride: step of the convolution that this transposes.
        padding: amount cut off on both sides.
        output_padding: elements added at the end of each axis.
        groups: number of groups of channels that do not mix.
        dilation: step between the elements of a window, an int or one for each spatial axis.

    Returns a tensor of shape (N, out_channels, H', W') with H' = (H - 1) * stride - 2 padding +
    dilation * (kernel - 1) + output_padding + 1.

    Raises ShapeError for shapes or sizes that do not fit.

    >>> nn.functional.conv_transpose2d(Tensor.ones(1, 1, 2, 2), Tensor.ones(1, 1, 2, 2)).shape
    (1, 1, 3, 3)
    """
    options = (stride, padding, output_padding, groups, dilation)
    return _transposed("conv_transpose2d", 2, input, weight, bias, *options)


def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:
    """Transpose of `conv3d` as a linear map; see `conv_transpose2d`.

    Args:
        input: (N, in_channels, D, H, W).
        weight: (in_channels, out_channels / groups, *kernel).
        bias: (out_channels,), or None.
        stride: step of the convolution that this transposes.
        padding: amount cut off on both sides.
        output_padding: elements added at the end of each axis.
        groups: number of groups of channels that do not mix.
        dilation: step between the elements of a window, an int or one for each spatial axis.

    Returns a tensor of shape (N, out_channels, D', H', W'), sizes as those of `conv_transpose2d`.

    Raises ShapeError for shapes or sizes that do not fit.

    >>> nn.functional.conv_transpose3d(Tensor.ones(1, 1, 2, 2, 2), Tensor.ones(1, 1, 2, 2, 2)).shape
    (1, 1, 3, 3, 3)
    """
    options = (stride, padding, output_padding, groups, dilation)
    return _transposed("conv_transpose3d", 3, input, weight, bias, *options)


def _transposed(
    name: str,
    axes: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes,
    output_padding: Sizes,
    groups: int,
    dilation: Sizes,
) -> Tensor:
    batch = _batched(name, axes, input)
    result = batch.conv_transpose2d(weight, bias, groups, stride, dilation, padding, output_padding)
    return result if batch is input else result.squeeze(0)


# pooling


def _max_pool(axes: int) -> Any:
    def max_pool(
        input: Tensor,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        made = getattr(pooling, f"MaxPool{axes}d")
        return made(kernel_size, stride, padding, dilation, return_indices, ceil_mode)(input)

    return _named(max_pool, f"max_pool{axes}d", f"MaxPool{axes}d", "Largest element of each window")


def _avg_pool(axes: int) -> Any:
    def avg_pool(
        input: Tensor,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        made = getattr(pooling, f"AvgPool{axes}d")
        options = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
        pooled: Tensor = made(*options)(input)
        return pooled

    return _named(avg_pool, f"avg_pool{axes}d", f"AvgPool{axes}d", "Mean of each window")


def _lp_pool(axes: int) -> Any:
    def lp_pool(
        input: Tensor,
        norm_type: float,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        ceil_mode: bool = False,
    ) -> Tensor:
        made = getattr(pooling, f"LPPool{axes}d")
        pooled: Tensor = made(norm_type, kernel_size, stride, ceil_mode)(input)
        return pooled

    return _named(lp_pool, f"lp_pool{axes}d", f"LPPool{axes}d", "Norm of each window")


def _adaptive_avg_pool(axes: int) -> Any:
    def adaptive(input: Tensor, output_size: int | Sequence[int | None] | None) -> Tensor:
        pooled: Tensor = getattr(pooling, f"AdaptiveAvgPool{axes}d")(output_size)(input)
        return pooled

    name, module = f"adaptive_avg_pool{axes}d", f"AdaptiveAvgPool{axes}d"
    return _named(adaptive, name, module, "Mean of `output_size` windows")


def _adaptive_max_pool(axes: int) -> Any:
    def adaptive(
        input: Tensor,
        output_size: int | Sequence[int | None] | None,
        return_indices: bool = False,
    ) -> Any:
        made = getattr(pooling, f"AdaptiveMaxPool{axes}d")
        return made(output_size, return_indices)(input)

    name, module = f"adaptive_max_pool{axes}d", f"AdaptiveMaxPool{axes}d"
    return _named(adaptive, name, module, "Largest element of `output_size` windows")


def _max_unpool(axes: int) -> Any:
    def max_unpool(
        input: Tensor,
        indices: Tensor,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        output_size: Sequence[int] | None = None,
    ) -> Tensor:
        made = getattr(pooling, f"MaxUnpool{axes}d")
        back: Tensor = made(kernel_size, stride, padding)(input, indices, output_size)
        return back

    name = f"max_unpool{axes}d"
    summary = f"Values back at the positions where `max_pool{axes}d` found them"
    return _named(max_unpool, name, f"MaxUnpool{axes}d", summary)


def _named(function: Any, name: str, module: str, summary: str) -> Any:
    """`function` under its public name, with the docstring of what the `module` does."""
    function.__name__ = function.__qualname__ = name
    function.__code__ = function.__code__.replace(co_name=name, co_qualname=name)
    sizes = {"1": "L", "2": "H, W", "3": "D, H, W"}[name[-2]]
    unpools = name.startswith("max_unpool")
    extra = (
        "    indices: int32 positions of that shape, as the pooling gives them.\n"
        "    output_size: sizes of the result, where several sizes were pooled to one.\n"
    )
    positions = "    return_indices: give the positions of the maxima too.\n"
    function.__doc__ = (
        f"{summary}; other arguments as `nn.{module}`.\n\nArgs:\n"
        f"    input: (N, C, {sizes}), or without N.\n{extra if unpools else ''}"
        f"{positions if name.startswith('adaptive_max') else ''}\n"
        f"Returns what `nn.{module}` gives, of shape (N, C, *sizes).\n\n"
        "Raises ShapeError for shapes or sizes that do not fit.\n"
    )
    return function


max_pool1d, max_pool2d, max_pool3d = (_max_pool(axes) for axes in (1, 2, 3))
avg_pool1d, avg_pool2d, avg_pool3d = (_avg_pool(axes) for axes in (1, 2, 3))
lp_pool1d, lp_pool2d, lp_pool3d = (_lp_pool(axes) for axes in (1, 2, 3))
max_unpool1d, max_unpool2d, max_unpool3d = (_max_unpool(axes) for axes in (1, 2, 3))
adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = (
    _adaptive_avg_pool(axes) for axes in (1, 2, 3)
)
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = (
    _adaptive_max_pool(axes) for axes in (1, 2, 3)
)


# windows as columns


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
    batch = _batched("unfold", 2, input)
    kernel, spread, around, steps = _four("unfold", kernel_size, dilation, padding, stride)
    padded = batch.pad(((0, 0), (0, 0), *[(width, width) for width in around]))
    patches = padded._patches("unfold", kernel, steps, spread)
    count, channels = patches._sizes[:2]
    columns = patches.permute(0, 1, 4, 5, 2, 3).reshape(count, channels * math.prod(kernel), -1)
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
            line=here(),
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


# pixels


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """Rearrange channels to pixels, as `nn.PixelShuffle` (Shi et al. 2016, arXiv:1609.05158).

    Args:
        input: (..., C * r^2, H, W).
        upscale_factor: r.

    Returns a tensor of shape (..., C, H * r, W * r).

    Raises ShapeError unless r^2 divides the channels.

    >>> nn.functional.pixel_shuffle(Tensor.ones(1, 4, 2, 2), 2).shape
    (1, 1, 4, 4)
    """
    shuffled: Tensor = shapes.PixelShuffle(upscale_factor)(input)
    return shuffled


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """Rearrange pixels to channels, as `nn.PixelUnshuffle`.

    Args:
        input: (..., C, H * r, W * r).
        downscale_factor: r.

    Returns a tensor of shape (..., C * r^2, H, W).

    Raises ShapeError unless r divides the sizes.

    >>> nn.functional.pixel_unshuffle(Tensor.ones(1, 1, 4, 4), 2).shape
    (1, 4, 2, 2)
    """
    shuffled: Tensor = shapes.PixelUnshuffle(downscale_factor)(input)
    return shuffled


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Interleave groups of channels, as `nn.ChannelShuffle` (Zhang et al. 2017, arXiv:1707.01083).

    Args:
        input: (N, C, ...).
        groups: number of groups, a divisor of C.

    Returns a tensor of the shape and dtype of `input`.

    Raises ShapeError unless the groups divide the channels.

    >>> nn.functional.channel_shuffle(Tensor([[[1], [2], [3], [4]]]), 2).tolist()
    [[[1], [3], [2], [4]]]
    """
    shuffled: Tensor = shapes.ChannelShuffle(groups)(input)
    return shuffled
