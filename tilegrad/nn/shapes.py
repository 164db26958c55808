"""Modules that move elements: flattening, padding, shuffling pixels and channels."""

from __future__ import annotations

from typing import Any, ClassVar

from tilegrad.base.errors import ShapeError
from tilegrad.nn.layer_checks import positive, tuple_of
from tilegrad.nn.module import Module
from tilegrad.tensor.handle.core import describe
from tilegrad.tensor.handle.size_arguments import show_shape
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "ChannelShuffle", "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d",
    "ConstantPad2d", "ConstantPad3d", "Flatten", "PixelShuffle", "PixelUnshuffle",
    "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d",
    "ReplicationPad2d", "ReplicationPad3d", "Unflatten", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
]  # fmt: skip


class Flatten(Module):
    """Join axes `start_dim` to `end_dim` into one; by default all but the batch.

    Args:
        start_dim: first axis that is joined.
        end_dim: last axis that is joined.

    Shape: (N, ...) to (N, product of the others), in the same dtype.

    Raises IndexBoundsError for an axis that is out of range.

    >>> nn.Flatten()(Tensor.ones(2, 3, 4)).shape
    (2, 12)
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1):
        self.start_dim, self.end_dim = start_dim, end_dim

    def __call__(self, x: Tensor) -> Tensor:
        return x.flatten(self.start_dim, self.end_dim)


class Unflatten(Module):
    """Split an axis into several.

    Args:
        dim: the axis; a negative one counts from the last.
        unflattened_size: sizes of the new axes; one may be -1.

    Shape: (..., n, ...) to (..., *unflattened_size, ...), in the same dtype.

    Raises ShapeError if their product is not the size, IndexBoundsError for an axis that is out of
    range.

    >>> nn.Unflatten(1, (3, -1))(Tensor.ones(2, 12)).shape
    (2, 3, 4)
    """

    def __init__(self, dim: int, unflattened_size: tuple[int, ...]):
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def __call__(self, x: Tensor) -> Tensor:
        return x.unflatten(self.dim, self.unflattened_size)


class PixelShuffle(Module):
    """Rearrange channels to pixels (Shi et al. 2016, arXiv:1609.05158).

    Args:
        upscale_factor: r.

    Shape: (..., C * r^2, H, W) to (..., C, H * r, W * r), of any dtype, which stays.

    Raises ShapeError unless r^2 divides the channels.

    >>> nn.PixelShuffle(2)(Tensor.ones(1, 8, 3, 3)).shape
    (1, 2, 6, 6)
    """

    def __init__(self, upscale_factor: int):
        positive("PixelShuffle", upscale_factor=upscale_factor)
        self.upscale_factor = upscale_factor

    def __call__(self, x: Tensor) -> Tensor:
        r = self.upscale_factor
        *batch, channels, height, width = _image("PixelShuffle", x)
        if channels % (r * r):
            raise ShapeError(
                f"PixelShuffle: {channels} channels are no multiple of {r * r}",
                input=describe(x.uop),
            )
        n = len(batch)
        blocks = x.reshape(*batch, channels // (r * r), r, r, height, width)
        order = [*range(n + 1), n + 3, n + 1, n + 4, n + 2]
        made = blocks.permute(*order).reshape(*batch, channels // (r * r), height * r, width * r)
        return x._copy_of(made)


class PixelUnshuffle(Module):
    """Rearrange pixels to channels: the inverse of PixelShuffle.

    Args:
        downscale_factor: r.

    Shape: (..., C, H * r, W * r) to (..., C * r^2, H, W), of any dtype, which stays.

    Raises ShapeError unless r divides the sizes.

    >>> nn.PixelUnshuffle(2)(Tensor.ones(1, 1, 4, 4)).shape
    (1, 4, 2, 2)
    """

    def __init__(self, downscale_factor: int):
        positive("PixelUnshuffle", downscale_factor=downscale_factor)
        self.downscale_factor = downscale_factor

    def __call__(self, x: Tensor) -> Tensor:
        r = self.downscale_factor
        *batch, channels, height, width = _image("PixelUnshuffle", x)
        if height % r or width % r:
            raise ShapeError(
                f"PixelUnshuffle: {height} x {width} pixels are no multiple of {r}",
                input=describe(x.uop),
            )
        n = len(batch)
        blocks = x.reshape(*batch, channels, height // r, r, width // r, r)
        order = [*range(n + 1), n + 2, n + 4, n + 1, n + 3]
        made = blocks.permute(*order).reshape(*batch, channels * r * r, height // r, width // r)
        return x._copy_of(made)


class ChannelShuffle(Module):
    """Interleave groups of channels (axis 1): the first of each group, then the second, ... (Zhang
    et al. 2017, arXiv:1707.01083).

    Args:
        groups: number of groups, a divisor of C.

    Shape: (N, C, ...) to the same shape.

    Raises ShapeError unless the groups divide the channels.

    >>> nn.ChannelShuffle(2)(Tensor([[0, 1, 2, 3]])).tolist()
    [[0, 2, 1, 3]]
    """

    def __init__(self, groups: int):
        positive("ChannelShuffle", groups=groups)
        self.groups = groups

    def __call__(self, x: Tensor) -> Tensor:
        if x.ndim < 2 or x._sizes[1] % self.groups:
            raise ShapeError(
                f"ChannelShuffle: {show_shape(x.shape)} has no {self.groups} groups of channels",
                input=describe(x.uop),
            )
        each = x._sizes[1] // self.groups
        blocks = x.reshape(x.shape[0], self.groups, each, *x.shape[2:])
        return x._copy_of(blocks.transpose(1, 2).reshape(x.shape))


class _Pad(Module):
    """A border around the last axes; `padding` is one number, or (left, right, top, bottom, ...),
    which counts from the last axis. Negative amounts cut off.
    """

    axes: ClassVar[int] = 2
    mode: ClassVar[str] = "constant"

    def __init__(self, padding: int | tuple[int, ...]):
        amounts = padding if isinstance(padding, (tuple, list)) else (padding,) * (2 * self.axes)
        least = -(1 << 30) if self.mode == "constant" else 0
        self.padding = tuple_of(
            type(self).__name__, "padding", tuple(amounts), 2 * self.axes, least
        )

    def _value(self) -> float:
        return 0.0

    def __call__(self, x: Tensor) -> Tensor:
        return x.pad(self.padding, mode=self.mode, value=self._value())


def _image(name: str, x: Tensor) -> Any:
    if x.ndim < 3:
        raise ShapeError(
            f"{name}: no image (..., C, H, W): {show_shape(x.shape)}", input=describe(x.uop)
        )
    return x._sizes


class ConstantPad2d(_Pad):
    """Pad the last two axes with `value`.

    Args:
        padding: one number, or (left, right, top, bottom); negative amounts cut off.
        value: fills the padding.

    Shape: (..., H, W) to the sizes plus the amounts, in the same dtype.

    Raises ShapeError for an input of fewer axes.

    >>> nn.ConstantPad1d((1, 0), 5)(Tensor([[1, 2]])).tolist()
    [[5, 1, 2]]
    """

    def __init__(self, padding: int | tuple[int, ...], value: float):
        super().__init__(padding)
        self.value = value

    def _value(self) -> float:
        return self.value


class ConstantPad1d(ConstantPad2d):
    """Pad the last axis with `value`.

    Args:
        padding: one number, or (left, right); negative amounts cut off.
        value: fills the padding.

    Shape: (..., W) to the sizes plus the amounts, in the same dtype.

    Raises ShapeError for an input of fewer axes.

    >>> nn.ConstantPad1d(1, 0.5)(Tensor([[[1.0, 2.0]]])).tolist()
    [[[0.5, 1.0, 2.0, 0.5]]]
    """

    axes = 1


class ConstantPad3d(ConstantPad2d):
    """Pad the last three axes with `value`.

    Args:
        padding: one number, or (left, right, top, bottom, front, back); negative amounts cut off.
        value: fills the padding.

    Shape: (..., D, H, W) to the sizes plus the amounts, in the same dtype.

    Raises ShapeError for an input of fewer axes.

    >>> nn.ConstantPad3d(1, 0.5)(Tensor.ones(1, 1, 2, 2, 2)).shape
    (1, 1, 4, 4, 4)
    """

    axes = 3


class ZeroPad1d(_Pad):
    """Pad the last axis with zeros.

    Args:
        padding: one number, or (left, right); negative amounts cut off.

    Shape: (..., W) to the sizes plus the amounts, in the same dtype.

    Raises ShapeError for an input of fewer axes.

    >>> nn.ZeroPad1d(1)(Tensor([[1, 2, 3]])).tolist()
    [[0, 1, 2, 3, 0]]
    """

    axes = 1
    mode = "constant"


class ZeroPad2d(_Pad):
    """Pad the last two axes with zeros.

    Args:
        padding: one number, or (left, right, top, bottom); negative amounts cut off.

    Shape: (..., H, W) to the sizes plus the amounts, in the same dtype.

    Raises ShapeError for an input of fewer axes.

    >>> nn.ZeroPad2d((1, 1, 0, 0))(Tensor([[[[1.0, 2.0]]]])).tolist()
    [[[[0.0, 1.0, 2.0, 0.0]]]]
    """

    axes = 2
    mode = "constant"


class ZeroPad3d(_Pad):
    """Pad the last three axes with zeros.

    Args:
        padding: one number, or (left, right, top, bottom, front, back); negative amounts cut off.

    Shape: (..., D, H, W) to the sizes plus the amounts, in the same dtype.

    Raises ShapeError for an input of fewer axes.

    >>> nn.ZeroPad3d(1)(Tensor.ones(1, 1, 2, 2, 2)).shape
    (1, 1, 4, 4, 4)
    """

    axes = 3
    mode = "constant"


class ReflectionPad1d(_Pad):
    """Pad the last axis by mirroring, without the edge itself.

    Args:
        padding: one number, or (left, right).

    Shape: (..., W) to the sizes plus the amounts, in the same dtype.

    Raises ShapeError for a padding that is not smaller than its axis.

    >>> nn.ReflectionPad1d(2)(Tensor([[1, 2, 3]])).tolist()
    [[3, 2, 1, 2, 3, 2, 1]]
    """

    axes = 1
    mode = "reflect"


class ReflectionPad2d(_Pad):
    """Pad the last two axes by mirroring, without the edge itself.

    Args:
        padding: one number, or (left, right, top, bottom).

    Shape: (..., H, W) to the sizes plus the amounts, in the same dtype.

    Raises ShapeError for a padding that is not smaller than its axis.

    >>> nn.ReflectionPad2d((1, 1, 0, 0))(Tensor([[[[1.0, 2.0, 3.0]]]])).tolist()
    [[[[2.0, 1.0, 2.0, 3.0, 2.0]]]]
    """

    axes = 2
    mode = "reflect"


class ReflectionPad3d(_Pad):
    """Pad the last three axes by mirroring, without the edge itself.

    Args:
        padding: one number, or (left, right, top, bottom, front, back).

    Shape: (..., D, H, W) to the sizes plus the amounts, in the same dtype.

    Raises ShapeError for a padding that is not smaller than its axis.

    >>> nn.ReflectionPad3d(1)(Tensor.ones(1, 1, 2, 2, 2)).shape
    (1, 1, 4, 4, 4)
    """

    axes = 3
    mode = "reflect"


class ReplicationPad1d(_Pad):
    """Pad the last axis by repeating the edge.

    Args:
        padding: one number, or (left, right).

    Shape: (..., W) to the sizes plus the amounts, in the same dtype.

    Raises ShapeError for an input of fewer axes.

    >>> nn.ReplicationPad1d(1)(Tensor([[1, 2, 3]])).tolist()
    [[1, 1, 2, 3, 3]]
    """

    axes = 1
    mode = "replicate"


class ReplicationPad2d(_Pad):
    """Pad the last two axes by repeating the edge.

    Args:
        padding: one number, or (left, right, top, bottom).

    Shape: (..., H, W) to the sizes plus the amounts, in the same dtype.

    Raises ShapeError for an input of fewer axes.

    >>> nn.ReplicationPad2d((1, 1, 0, 0))(Tensor([[[[1.0, 2.0]]]])).tolist()
    [[[[1.0, 1.0, 2.0, 2.0]]]]
    """

    axes = 2
    mode = "replicate"


class ReplicationPad3d(_Pad):
    """Pad the last three axes by repeating the edge.

    Args:
        padding: one number, or (left, right, top, bottom, front, back).

    Shape: (..., D, H, W) to the sizes plus the amounts, in the same dtype.

    Raises ShapeError for an input of fewer axes.

    >>> nn.ReplicationPad3d(1)(Tensor.ones(1, 1, 2, 2, 2)).shape
    (1, 1, 4, 4, 4)
    """

    axes = 3
    mode = "replicate"


class CircularPad1d(_Pad):
    """Pad the last axis periodically: what leaves at one end enters at the other.

    Args:
        padding: one number, or (left, right).

    Shape: (..., W) to the sizes plus the amounts, in the same dtype.

    Raises ShapeError for a padding that is larger than its axis.

    >>> nn.CircularPad1d(1)(Tensor([[1, 2, 3]])).tolist()
    [[3, 1, 2, 3, 1]]
    """

    axes = 1
    mode = "circular"


class CircularPad2d(_Pad):
    """Pad the last two axes periodically: what leaves at one end enters at the other.

    Args:
        padding: one number, or (left, right, top, bottom).

    Shape: (..., H, W) to the sizes plus the amounts, in the same dtype.

    Raises ShapeError for a padding that is larger than its axis.

    >>> nn.CircularPad2d(1)(Tensor([[[[1.0, 2.0]]]])).tolist()
    [[[[2.0, 1.0, 2.0, 1.0], [2.0, 1.0, 2.0, 1.0], [2.0, 1.0, 2.0, 1.0]]]]
    """

    axes = 2
    mode = "circular"


class CircularPad3d(_Pad):
    """Pad the last three axes periodically: what leaves at one end enters at the other.

    Args:
        padding: one number, or (left, right, top, bottom, front, back).

    Shape: (..., D, H, W) to the sizes plus the amounts, in the same dtype.

    Raises ShapeError for a padding that is larger than its axis.

    >>> nn.CircularPad3d(1)(Tensor.ones(1, 1, 2, 2, 2)).shape
    (1, 1, 4, 4, 4)
    """

    axes = 3
    mode = "circular"
