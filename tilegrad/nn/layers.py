"""Layers that hold weights, with PyTorch's names, arguments, shapes and first values.

A layer is a plain object that is called; `nn.state` finds its tensors by walking its attributes.
The first weights and biases of linear layers and convolutions are uniform in (-b, b) with

    b = gain * sqrt(3 / fan_in),  gain = sqrt(2 / (1 + a^2)),  a = sqrt(5),

that is b = 1 / sqrt(fan_in), where `fan_in` is the number of inputs of one output: He et al.,
"Delving Deep into Rectifiers" (2015), with the slope `a` that PyTorch's layers choose.
"""

from __future__ import annotations

import math
from typing import ClassVar, Unpack

from tilegrad.base.errors import ConfigError, ShapeError, check_choice
from tilegrad.nn import functional
from tilegrad.nn.functional.convolution import sides
from tilegrad.nn.layer_checks import FactoryOptions, check_size, countable, positive, tuple_of
from tilegrad.nn.module import Module
from tilegrad.tensor.handle.core import describe
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "Bilinear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d",
    "ConvTranspose3d", "Linear",
]  # fmt: skip

Sizes = int | tuple[int, ...]

# Padding modes, by PyTorch's word and by that of `Tensor.pad`.
_MODES = {
    "zeros": "constant",
    "reflect": "reflect",
    "replicate": "replicate",
    "circular": "circular",
}


def _weight(*shape: int, fan_in: int) -> Tensor:
    """A parameter that is uniform in (-b, b), b = 1 / sqrt(fan_in)."""
    bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
    return Tensor.uniform(*shape, low=-bound, high=bound, requires_grad=True)


class Linear(Module):
    """Affine map of the last axis: y = x @ weight.T + bias.

    The first values are uniform in (-b, b), b = 1 / sqrt(in_features).

    Args:
        in_features: size of the last axis of the input.
        out_features: size of the last axis of the output.
        bias: whether there is a bias.
        options: `device` and `dtype` of the weights.

    Shape: (..., in_features) to (..., out_features); `weight` is (out_features, in_features),
    `bias` (out_features,).

    Raises ShapeError for an input of another size, DTypeError for what is no tensor.

    >>> nn.Linear(3, 2)(Tensor.ones(5, 3)).shape
    (5, 2)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        **options: Unpack[FactoryOptions],
    ):
        countable("Linear", in_features=in_features, out_features=out_features)
        self.in_features, self.out_features = in_features, out_features
        self.weight = _weight(out_features, in_features, fan_in=in_features)
        self.bias = _weight(out_features, fan_in=in_features) if bias else None
        self.to(**options)

    def __call__(self, x: Tensor) -> Tensor:
        check_size("Linear", "features", x, -1, self.in_features)
        return x.linear(self.weight.T, self.bias)


class Bilinear(Module):
    """Bilinear map of two last axes: y[k] = x1 @ weight[k] @ x2 + bias[k].

    The first values are uniform in (-b, b), b = 1 / sqrt(in1_features).

    Args:
        in1_features: size of the last axis of x1.
        in2_features: size of the last axis of x2.
        out_features: size of the last axis of the output.
        bias: whether there is a bias.
        options: `device` and `dtype` of the weights.

    Shape: (..., in1_features) and (..., in2_features) to (..., out_features); `weight` is
    (out_features, in1_features, in2_features).

    Raises ShapeError for inputs of other sizes.

    >>> nn.Bilinear(2, 3, 4)(Tensor.ones(5, 2), Tensor.ones(5, 3)).shape
    (5, 4)
    """

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        **options: Unpack[FactoryOptions],
    ):
        self.in1_features, self.in2_features = in1_features, in2_features
        self.out_features = out_features
        sizes = {"in1": in1_features, "in2": in2_features, "out": out_features}
        positive("Bilinear", **{f"{name}_features": size for name, size in sizes.items()})
        self.weight = _weight(out_features, in1_features, in2_features, fan_in=in1_features)
        self.bias = _weight(out_features, fan_in=in1_features) if bias else None
        self.to(**options)

    def __call__(self, x1: Tensor, x2: Tensor) -> Tensor:
        return functional.bilinear(x1, x2, self.weight, self.bias)


class Conv2d(Module):
    """Convolution of images (cross-correlation with trained filters).

    A `kernel_size` of another length than two convolves that many axes. The first values are
    uniform in (-b, b), b = 1 / sqrt(in_channels / groups * elements of the kernel).

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: size of the filter window, an int or one for each spatial axis.
        stride: step between windows, an int or one for each spatial axis.
        padding: what is added on both sides of each axis, "same" for an output of the input's size,
            or "valid" for nothing.
        dilation: step between the elements of a window, an int or one for each spatial axis.
        groups: number of groups of channels that do not mix.
        bias: whether there is a bias.
        padding_mode: "zeros", "reflect", "replicate" or "circular".
        options: `device` and `dtype` of the weights.

    Shape: (N, in_channels, H, W) or without N to (N, out_channels, H', W'), H' = (H + 2 padding -
    dilation * (kernel - 1) - 1) // stride + 1; `weight` is (out_channels, in_channels / groups,
    *kernel).

    Raises ShapeError for an input that does not fit, ConfigError for groups that do not divide the
    channels or another padding.

    >>> nn.Conv2d(3, 8, kernel_size=3, padding=1)(Tensor.ones(2, 3, 10, 10)).shape
    (2, 8, 10, 10)
    """

    axes: ClassVar[int] = 2

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        **options: Unpack[FactoryOptions],
    ):
        name = type(self).__name__
        check_channels(name, in_channels, out_channels, groups)
        axes = self.axes if isinstance(kernel_size, int) else len(kernel_size)
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = tuple_of(name, "kernel_size", kernel_size, axes, least=1)
        self.stride = tuple_of(name, "stride", stride, axes, least=1)
        self.dilation = tuple_of(name, "dilation", dilation, axes, least=1)
        self.padding = sides(name, padding, self.kernel_size, self.stride, self.dilation)
        check_choice(name, "padding_mode", padding_mode, _MODES)
        self.padding_mode = padding_mode
        fan_in = in_channels // groups * math.prod(self.kernel_size)
        self.weight = _weight(out_channels, in_channels // groups, *self.kernel_size, fan_in=fan_in)
        self.bias = _weight(out_channels, fan_in=fan_in) if bias else None
        self.to(**options)

    def __call__(self, x: Tensor) -> Tensor:
        return self._conv_forward(x, self.weight, self.bias)

    def _conv_forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The convolution with another weight and bias, for subclasses that change these."""
        axes = len(self.kernel_size)
        if x.ndim == axes + 1:
            return self._conv_forward(x.unsqueeze(0), weight, bias).squeeze(0)
        check_rank(type(self).__name__, x, axes)
        check_size(type(self).__name__, "channels", x, 1, self.in_channels)
        padded = x.pad(((0, 0), (0, 0), *self.padding), mode=_MODES[self.padding_mode])
        return padded.conv2d(weight, bias, self.groups, self.stride, self.dilation)


class Conv1d(Conv2d):
    """Convolution along one axis; as Conv2d.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: size of the filter window, an int or one for each spatial axis.
        stride: step between windows, an int or one for each spatial axis.
        padding: what is added on both sides, "same" or "valid".
        dilation: step between the elements of a window, an int or one for each spatial axis.
        groups: number of groups of channels that do not mix.
        bias: whether there is a bias.
        padding_mode: "zeros", "reflect", "replicate" or "circular".
        options: `device` and `dtype` of the weights.

    Shape: (N, in_channels, L) to (N, out_channels, L').

    Raises ShapeError for an input that does not fit, ConfigError for groups that do not divide the
    channels or another padding.

    >>> nn.Conv1d(3, 8, kernel_size=3)(Tensor.ones(2, 3, 10)).shape
    (2, 8, 8)
    """

    axes = 1


class Conv3d(Conv2d):
    """Convolution along three axes; as Conv2d.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: size of the filter window, an int or one for each spatial axis.
        stride: step between windows, an int or one for each spatial axis.
        padding: what is added on both sides of each axis, "same" or "valid".
        dilation: step between the elements of a window, an int or one for each spatial axis.
        groups: number of groups of channels that do not mix.
        bias: whether there is a bias.
        padding_mode: "zeros", "reflect", "replicate" or "circular".
        options: `device` and `dtype` of the weights.

    Shape: (N, in_channels, D, H, W) to (N, out_channels, D', H', W').

    Raises ShapeError for an input that does not fit, ConfigError for groups that do not divide the
    channels or another padding.

    >>> nn.Conv3d(3, 8, kernel_size=3)(Tensor.ones(2, 3, 5, 5, 5)).shape
    (2, 8, 3, 3, 3)
    """

    axes = 3


class ConvTranspose2d(Module):
    """Transpose of the linear map of Conv2d (fractionally strided convolution).

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: size of the filter window, an int or one for each spatial axis.
        stride: step of the convolution that this transposes.
        padding: elements taken off each side of the output.
        output_padding: elements added at the end.
        groups: number of groups of channels that do not mix.
        bias: whether there is a bias.
        dilation: step between the elements of a window, an int or one for each spatial axis.
        padding_mode: "zeros" only.
        options: `device` and `dtype` of the weights.

    Shape: (N, in_channels, H, W) to (N, out_channels, H', W'), H' = (H - 1) * stride - 2 padding +
    dilation * (kernel - 1) + output_padding + 1; `weight` is (in_channels, out_channels / groups,
    *kernel).

    Raises ShapeError for an input that does not fit, ConfigError for groups that do not divide the
    channels or another padding mode.

    >>> nn.ConvTranspose2d(3, 8, kernel_size=2, stride=2)(Tensor.ones(2, 3, 5, 5)).shape
    (2, 8, 10, 10)
    """

    axes: ClassVar[int] = 2

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        padding_mode: str = "zeros",
        **options: Unpack[FactoryOptions],
    ):
        name = type(self).__name__
        check_channels(name, in_channels, out_channels, groups)
        axes = self.axes if isinstance(kernel_size, int) else len(kernel_size)
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = tuple_of(name, "kernel_size", kernel_size, axes, least=1)
        self.stride = tuple_of(name, "stride", stride, axes, least=1)
        self.dilation = tuple_of(name, "dilation", dilation, axes, least=1)
        self.padding = tuple_of(name, "padding", padding, axes)
        self.output_padding = tuple_of(name, "output_padding", output_padding, axes)
        if padding_mode != "zeros":
            raise ConfigError(f"{name}: unknown padding_mode {padding_mode!r}", allowed="'zeros'")
        # PyTorch takes the second axis of any weight for the inputs of one output.
        fan_in = out_channels // groups * math.prod(self.kernel_size)
        self.weight = _weight(in_channels, out_channels // groups, *self.kernel_size, fan_in=fan_in)
        self.bias = _weight(out_channels, fan_in=fan_in) if bias else None
        self.to(**options)

    def __call__(self, x: Tensor) -> Tensor:
        if x.ndim == len(self.kernel_size) + 1:
            one: Tensor = self.forward(x.unsqueeze(0))
            return one.squeeze(0)
        check_rank(type(self).__name__, x, len(self.kernel_size))
        check_size(type(self).__name__, "channels", x, 1, self.in_channels)
        return x.conv_transpose2d(
            self.weight,
            self.bias,
            self.groups,
            self.stride,
            self.dilation,
            self.padding,
            self.output_padding,
        )


class ConvTranspose1d(ConvTranspose2d):
    """Transpose of the linear map of Conv1d; as ConvTranspose2d.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: size of the filter window, an int or one for each spatial axis.
        stride: step of the convolution that this transposes.
        padding: elements taken off each side of the output.
        output_padding: elements added at the end.
        groups: number of groups of channels that do not mix.
        bias: whether there is a bias.
        dilation: step between the elements of a window, an int or one for each spatial axis.
        padding_mode: "zeros" only.
        options: `device` and `dtype` of the weights.

    Shape: (N, in_channels, L) to (N, out_channels, L').

    Raises ShapeError for an input that does not fit, ConfigError for groups that do not divide the
    channels or another padding mode.

    >>> nn.ConvTranspose1d(3, 8, kernel_size=2, stride=2)(Tensor.ones(2, 3, 5)).shape
    (2, 8, 10)
    """

    axes = 1


class ConvTranspose3d(ConvTranspose2d):
    """Transpose of the linear map of Conv3d; as ConvTranspose2d.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: size of the filter window, an int or one for each spatial axis.
        stride: step of the convolution that this transposes.
        padding: elements taken off each side of the output.
        output_padding: elements added at the end.
        groups: number of groups of channels that do not mix.
        bias: whether there is a bias.
        dilation: step between the elements of a window, an int or one for each spatial axis.
        padding_mode: "zeros" only.
        options: `device` and `dtype` of the weights.

    Shape: (N, in_channels, D, H, W) to (N, out_channels, D', H', W').

    Raises ShapeError for an input that does not fit, ConfigError for groups that do not divide the
    channels or another padding mode.

    >>> nn.ConvTranspose3d(3, 8, kernel_size=2, stride=2)(Tensor.ones(2, 3, 2, 2, 2)).shape
    (2, 8, 4, 4, 4)
    """

    axes = 3


def check_channels(layer: str, in_channels: int, out_channels: int, groups: int) -> None:
    """Raise ShapeError unless `groups` divides both numbers of channels."""
    positive(layer, in_channels=in_channels, out_channels=out_channels, groups=groups)
    if in_channels % groups or out_channels % groups:
        raise ShapeError(
            f"{layer}: {groups} groups do not divide {in_channels} channels into {out_channels}"
        )


def check_rank(layer: str, x: Tensor, axes: int) -> None:
    """Raise ShapeError unless `x` has a batch axis, a channel axis and `axes` more."""
    if x.ndim != axes + 2:
        raise ShapeError(
            f"{layer}: the input has {x.ndim} axes, the layer was made for {axes + 2}",
            input=describe(x.uop),
            rule=f"(N, channels) and {axes} more",
        )
