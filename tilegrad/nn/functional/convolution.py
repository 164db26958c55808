"""Convolutions, and convolutions in reverse, as functions.

An input may have a batch axis before its channels, or none.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.base.errors import ShapeError
from tilegrad.nn.layer_checks import tuple_of
from tilegrad.tensor.handle.core import check_tensors, describe
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "Sizes", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "sides", "with_batch_axis",
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
    batch = with_batch_axis(name, axes, input)
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
        raise ShapeError(f"{name}: padding 'same' needs a stride of 1, not {tuple(stride)}")
    if padding == "same":
        widths = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        return tuple((width // 2, width - width // 2) for width in widths)
    if isinstance(padding, str) and padding != "valid":
        raise ShapeError(f"{name}: unknown padding {padding!r}", allowed="numbers, 'same', 'valid'")
    around = tuple_of(name, "padding", 0 if isinstance(padding, str) else padding, len(kernel))
    return tuple((width, width) for width in around)


def with_batch_axis(name: str, axes: int, input: Tensor) -> Tensor:
    """`input` with a batch axis. Raises ShapeError for another number of axes."""
    check_tensors(name, input)
    if input.ndim not in (axes + 1, axes + 2):
        raise ShapeError(
            f"{name}: the input has {input.ndim} axes, not {axes + 2} (or {axes + 1})",
            input=describe(input.uop),
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
    batch = with_batch_axis(name, axes, input)
    result = batch.conv_transpose2d(weight, bias, groups, stride, dilation, padding, output_padding)
    return result if batch is input else result.squeeze(0)
