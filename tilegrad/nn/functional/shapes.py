"""Functions that move elements: padding, and pixels and channels exchanged."""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.nn import shapes
from tilegrad.tensor.tensor import Tensor

__all__ = ["channel_shuffle", "pad", "pixel_shuffle", "pixel_unshuffle"]


def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    """Add elements around.

    Args:
        input: a tensor of any shape.
        pad: (left, right, top, bottom, ...), counted from the last axis; negative amounts cut off.
        mode: "constant", "reflect", "replicate" or "circular".
        value: fills the padding of "constant", by default 0.

    Returns a tensor of the dtype of `input`, larger by the amounts.

    Raises ShapeError if a reflected or circular padding is wider than its axis, DTypeError for
    another mode.

    >>> nn.functional.pad(Tensor([[1, 2]]), (1, 0)).tolist()
    [[0, 1, 2]]
    """
    return input.pad(tuple(pad), mode=mode, value=0.0 if value is None else value)


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """Rearrange channels to pixels, as `nn.PixelShuffle` (Shi et al. 2016, arXiv:1609.05158).

    Args:
        input: (..., C * r^2, H, W).
        upscale_factor: r.

    Returns a tensor of shape (..., C, H * r, W * r) and the same dtype.

    Raises ShapeError unless r^2 divides the channels.

    >>> nn.functional.pixel_shuffle(Tensor.ones(1, 4, 2, 2), 2).shape
    (1, 1, 4, 4)
    """
    return shapes.PixelShuffle(upscale_factor)(input)


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """Rearrange pixels to channels, as `nn.PixelUnshuffle`.

    Args:
        input: (..., C, H * r, W * r).
        downscale_factor: r.

    Returns a tensor of shape (..., C * r^2, H, W) and the same dtype.

    Raises ShapeError unless r divides the sizes.

    >>> nn.functional.pixel_unshuffle(Tensor.ones(1, 1, 4, 4), 2).shape
    (1, 4, 2, 2)
    """
    return shapes.PixelUnshuffle(downscale_factor)(input)


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
    return shapes.ChannelShuffle(groups)(input)
