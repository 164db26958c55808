"""Layers that hold weights, with PyTorch's names, arguments, shapes and first values.

A layer is a plain object that is called; `nn.state` finds its tensors by walking its attributes.
The first weights and biases of linear layers and convolutions are uniform in (-b, b) with

    b = gain * sqrt(3 / fan_in),  gain = sqrt(2 / (1 + a^2)),  a = sqrt(5),

that is b = 1 / sqrt(fan_in), where `fan_in` is the number of inputs of one output: He et al.,
"Delving Deep into Rectifiers" (2015), with the slope `a` that PyTorch's layers choose.
"""

from __future__ import annotations

import math
from typing import ClassVar

from tilegrad.base.errors import ConfigError, DTypeError, ShapeError
from tilegrad.nn.checks import check_size, positive, tuple_of
from tilegrad.nn.module import Module
from tilegrad.tensor.core import check_tensors, describe
from tilegrad.tensor.sizes import here
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d",
    "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "Embedding", "Linear",
]  # fmt: skip

Sizes = int | tuple[int, ...]


def _weight(*shape: int, fan_in: int) -> Tensor:
    """A parameter that is uniform in (-b, b), b = 1 / sqrt(fan_in)."""
    bound = 1 / math.sqrt(fan_in)
    return Tensor.uniform(*shape, low=-bound, high=bound, requires_grad=True)


class Linear(Module):
    """y = x @ weight.T + bias over the last axis; `weight` is (out_features, in_features)."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True):
        positive("Linear", in_features=in_features, out_features=out_features)
        self.in_features, self.out_features = in_features, out_features
        self.weight = _weight(out_features, in_features, fan_in=in_features)
        self.bias = _weight(out_features, fan_in=in_features) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        check_size("Linear", "features", x, -1, self.in_features)
        return x.linear(self.weight.T, self.bias)


class Conv2d(Module):
    """Images (N, in_channels, H, W) by `weight`, (out_channels, in_channels / groups, *kernel).

    A `kernel_size` of another length than two convolves that many axes. `padding` is zeros on both
    sides of each axis, or "same" for an output of the input's size, or "valid" for none.
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
    ):
        name = type(self).__name__
        check_channels(name, in_channels, out_channels, groups)
        axes = self.axes if isinstance(kernel_size, int) else len(kernel_size)
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = tuple_of(name, "kernel_size", kernel_size, axes, least=1)
        self.stride = tuple_of(name, "stride", stride, axes, least=1)
        self.dilation = tuple_of(name, "dilation", dilation, axes, least=1)
        self.padding = self._pairs(padding)
        fan_in = in_channels // groups * math.prod(self.kernel_size)
        self.weight = _weight(out_channels, in_channels // groups, *self.kernel_size, fan_in=fan_in)
        self.bias = _weight(out_channels, fan_in=fan_in) if bias else None

    def _pairs(self, padding: Sizes | str) -> tuple[tuple[int, int], ...]:
        """The zeros before and after each axis."""
        name, axes = type(self).__name__, len(self.kernel_size)
        if padding == "same" and any(step != 1 for step in self.stride):
            raise ShapeError(
                f"{name}: padding 'same' needs a stride of 1, not {self.stride}", line=here()
            )
        if padding == "same":
            widths = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size, strict=True)]
            return tuple((width // 2, width - width // 2) for width in widths)
        if isinstance(padding, str) and padding != "valid":
            raise ShapeError(
                f"{name}: unknown padding {padding!r}",
                allowed="numbers, 'same', 'valid'",
                line=here(),
            )
        around = tuple_of(name, "padding", 0 if isinstance(padding, str) else padding, axes)
        return tuple((width, width) for width in around)

    def __call__(self, x: Tensor) -> Tensor:
        check_rank(type(self).__name__, x, len(self.kernel_size))
        check_size(type(self).__name__, "channels", x, 1, self.in_channels)
        padded = x.pad(((0, 0), (0, 0), *self.padding))
        return padded.conv2d(self.weight, self.bias, self.groups, self.stride, self.dilation)


class Conv1d(Conv2d):
    """As Conv2d, along one axis: (N, in_channels, L)."""

    axes = 1


class Conv3d(Conv2d):
    """As Conv2d, along three axes: (N, in_channels, D, H, W)."""

    axes = 3


class ConvTranspose2d(Module):
    """The transpose of Conv2d's map; `weight` is (in_channels, out_channels / groups, *kernel).

    `padding` takes as many elements off each side of the output, `output_padding` adds some at the
    end.
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
        # PyTorch takes the second axis of any weight for the inputs of one output.
        fan_in = out_channels // groups * math.prod(self.kernel_size)
        self.weight = _weight(in_channels, out_channels // groups, *self.kernel_size, fan_in=fan_in)
        self.bias = _weight(out_channels, fan_in=fan_in) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
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
    """As ConvTranspose2d, along one axis."""

    axes = 1


class ConvTranspose3d(ConvTranspose2d):
    """As ConvTranspose2d, along three axes."""

    axes = 3


class Embedding(Module):
    """Row `index` of `weight`, (num_embeddings, embedding_dim), for each index.

    Only the rows asked for are read, and the gradient costs no more than they do. The first values
    are normal(0, 1).
    """

    def __init__(self, num_embeddings: int, embedding_dim: int):
        positive("Embedding", num_embeddings=num_embeddings, embedding_dim=embedding_dim)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.weight = Tensor.randn(num_embeddings, embedding_dim, requires_grad=True)

    def __call__(self, index: Tensor) -> Tensor:
        check_tensors("Embedding", index)
        if not index.dtype.is_int:
            raise DTypeError(
                f"Embedding: indices must be integers, not {index.dtype.name}",
                input=describe(index.uop),
                line=here(),
            )
        return self.weight[index]


class Dropout(Module):
    """In training, a share `p` of the elements is 0, the rest over 1 - p; otherwise the input.

    >>> nn.Dropout(0.5).eval()(Tensor([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """

    def __init__(self, p: float = 0.5, inplace: bool = False):
        if not 0 <= p <= 1:
            raise ConfigError(
                f"{type(self).__name__}: p must be between 0 and 1, not {p!r}", line=here()
            )
        self.p = p

    def _drop(self, x: Tensor) -> Tensor:
        with Tensor.train():
            return x.dropout(self.p)

    def __call__(self, x: Tensor) -> Tensor:
        check_tensors(type(self).__name__, x)
        return self._drop(x) if self.training and self.p else x


class Dropout2d(Dropout):
    """As Dropout, of whole channels of (N, C, ...): one draw for each item and channel."""

    def _drop(self, x: Tensor) -> Tensor:
        shape = (*x.shape[:2], *[1] * (x.ndim - 2))
        with Tensor.train():
            return x * Tensor.ones(*shape, device=x.device, dtype=x.dtype).dropout(self.p)


# One class serves any number of axes behind the channels.
Dropout1d = Dropout3d = Dropout2d


def check_channels(layer: str, in_channels: int, out_channels: int, groups: int) -> None:
    """Raise ShapeError unless `groups` divides both numbers of channels."""
    positive(layer, in_channels=in_channels, out_channels=out_channels, groups=groups)
    if in_channels % groups or out_channels % groups:
        raise ShapeError(
            f"{layer}: {groups} groups do not divide {in_channels} channels into {out_channels}",
            line=here(),
        )


def check_rank(layer: str, x: Tensor, axes: int) -> None:
    """Raise ShapeError unless `x` has a batch axis, a channel axis and `axes` more."""
    if x.ndim != axes + 2:
        raise ShapeError(
            f"{layer}: the input has {x.ndim} axes, the layer was made for {axes + 2}",
            input=describe(x.uop),
            rule=f"(N, channels) and {axes} more",
            line=here(),
        )
