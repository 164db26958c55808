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
from tilegrad.tensor.core import check_tensors, describe
from tilegrad.tensor.sizes import here, show_shape
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
    """(N, in_channels, L) by `weight`, (out_channels, in_channels / groups, kernel), see `conv2d`.

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
    """(N, in_channels, H, W) by `weight`, (out_channels, in_channels / groups, *kernel). `padding`
    is zeros on both sides, or "same" for an output of the input's size, or "valid" for none.

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
    """(N, in_channels, D, H, W) by `weight`, see `conv2d`.

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
    """The transpose of the map of `conv1d`, see `conv_transpose2d`.

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
    """The transpose of the map of `conv2d`; `weight` is (in_channels, out_channels / groups,
    *kernel).

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
    """The transpose of the map of `conv3d`, see `conv_transpose2d`.

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

    return _named(max_pool, f"max_pool{axes}d", f"The largest of windows: `nn.MaxPool{axes}d`.")


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

    return _named(avg_pool, f"avg_pool{axes}d", f"The mean of windows: `nn.AvgPool{axes}d`.")


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

    return _named(lp_pool, f"lp_pool{axes}d", f"The norm of windows: `nn.LPPool{axes}d`.")


def _adaptive(kind: str, axes: int) -> Any:
    def adaptive(input: Tensor, output_size: int | tuple[int | None, ...] | None) -> Tensor:
        pooled: Tensor = getattr(pooling, f"Adaptive{kind}Pool{axes}d")(output_size)(input)
        return pooled

    text = f"So many windows along each axis: `nn.Adaptive{kind}Pool{axes}d`."
    return _named(adaptive, f"adaptive_{kind.lower()}_pool{axes}d", text)


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

    text = f"Values back where `max_pool{axes}d` found them: `nn.MaxUnpool{axes}d`."
    return _named(max_unpool, f"max_unpool{axes}d", text)


def _named(function: Any, name: str, text: str) -> Any:
    function.__name__ = function.__qualname__ = name
    function.__code__ = function.__code__.replace(co_name=name, co_qualname=name)
    function.__doc__ = text
    return function


max_pool1d, max_pool2d, max_pool3d = (_max_pool(axes) for axes in (1, 2, 3))
avg_pool1d, avg_pool2d, avg_pool3d = (_avg_pool(axes) for axes in (1, 2, 3))
lp_pool1d, lp_pool2d, lp_pool3d = (_lp_pool(axes) for axes in (1, 2, 3))
max_unpool1d, max_unpool2d, max_unpool3d = (_max_unpool(axes) for axes in (1, 2, 3))
adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = (
    _adaptive("Avg", axes) for axes in (1, 2, 3)
)
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = (
    _adaptive("Max", axes) for axes in (1, 2, 3)
)


# windows as columns


def unfold(
    input: Tensor,
    kernel_size: Sizes,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    stride: Sizes = 1,
) -> Tensor:
    """The windows of images (N, C, H, W) as columns: (N, C * the elements of a window, windows).

    Raises ShapeError for another number of axes, or a window that is longer than its axis.

    >>> nn.functional.unfold(Tensor([[[[1.0, 2.0], [3.0, 4.0]]]]), (1, 2)).tolist()
    [[[1.0, 3.0], [2.0, 4.0]]]
    """
    batch = _batched("unfold", 2, input)
    kernel, spread, around, steps = _four("unfold", kernel_size, dilation, padding, stride)
    padded = batch.pad(((0, 0), (0, 0), *[(width, width) for width in around]))
    windows = padded._windows("unfold", kernel, steps, spread)
    count, channels = windows._sizes[:2]
    columns = windows.permute(0, 1, 4, 5, 2, 3).reshape(count, channels * math.prod(kernel), -1)
    return columns if batch is input else columns.squeeze(0)


def fold(
    input: Tensor,
    output_size: Sizes,
    kernel_size: Sizes,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    stride: Sizes = 1,
) -> Tensor:
    """Columns (N, C * the elements of a window, windows) added up where `unfold` took them from:
    (N, C, *output_size).

    Raises ShapeError unless there are as many windows, and elements in them, as that says.

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
    places = Tensor.eye(elements, device=input.device, dtype=input.dtype)
    weight = places.reshape(1, elements, 1, *kernel).expand(channels, elements, 1, *kernel)
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
    """(..., C * r^2, H, W) to (..., C, H * r, W * r), as `nn.PixelShuffle`.

    >>> nn.functional.pixel_shuffle(Tensor.ones(1, 4, 2, 2), 2).shape
    (1, 1, 4, 4)
    """
    shuffled: Tensor = shapes.PixelShuffle(upscale_factor)(input)
    return shuffled


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """(..., C, H * r, W * r) to (..., C * r^2, H, W), as `nn.PixelUnshuffle`.

    >>> nn.functional.pixel_unshuffle(Tensor.ones(1, 1, 4, 4), 2).shape
    (1, 4, 2, 2)
    """
    shuffled: Tensor = shapes.PixelUnshuffle(downscale_factor)(input)
    return shuffled


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Channels dealt out, as `nn.ChannelShuffle`.

    >>> nn.functional.channel_shuffle(Tensor([[[1], [2], [3], [4]]]), 2).tolist()
    [[[1], [3], [2], [4]]]
    """
    shuffled: Tensor = shapes.ChannelShuffle(groups)(input)
    return shuffled
