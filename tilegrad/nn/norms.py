"""Layers that normalise, with PyTorch's names, arguments and first values (weight 1, bias 0)."""

from __future__ import annotations

from typing import Unpack

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import ShapeError
from tilegrad.nn import functional
from tilegrad.nn.layer_checks import FactoryOptions, check_size, countable, positive
from tilegrad.nn.module import Module
from tilegrad.tensor.tensor import Tensor
from tilegrad.tensor.writing.at_once import become_memory

__all__ = [
    "BatchNorm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm", "InstanceNorm",
    "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LayerNorm", "LayerNorm2d",
    "LocalResponseNorm", "RMSNorm",
]  # fmt: skip


class BatchNorm(Module):
    """Batch normalisation: bring each channel (axis 1) to mean 0 and variance 1, then multiply by
    `weight` and add `bias`.

    While the module trains (until `eval()`), mean and variance are those of the batch, and the
    running ones move a share `momentum` toward them (toward the unbiased variance, as in PyTorch);
    with None they are the means of all batches so far. Otherwise the running ones are used. They
    are state: part of the state dict, never trained, and written by the optimizer's step along with
    the weights.

    Ioffe and Szegedy, "Batch Normalization" (2015).

    Args:
        num_features: number of channels C.
        eps: added to the variance.
        momentum: share of the new statistics in the running ones, or None for the mean of all
            batches.
        affine: whether there are `weight` and `bias`.
        track_running_stats: whether there are running statistics.
        options: `device` and `dtype` of the weights.

    Shape: input (N, C, ...), output of the same shape; `weight`, `bias`, `running_mean` and
    `running_var` are (C,).

    Raises ShapeError for an input of other channels, or one value per channel in training.

    >>> layer = nn.BatchNorm(2, eps=0.0).eval()
    >>> x = Tensor([[1.0, 5.0], [3.0, 9.0]])
    >>> layer(x).tolist()
    [[1.0, 5.0], [3.0, 9.0]]
    """

    buffer_names = ("running_mean", "running_var", "num_batches_tracked")

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        **options: Unpack[FactoryOptions],
    ):
        positive("BatchNorm", num_features=num_features)
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        self.weight = Tensor.ones(num_features, requires_grad=True) if affine else None
        self.bias = Tensor.zeros(num_features, requires_grad=True) if affine else None
        self.running_mean: Tensor | None = None
        self.running_var: Tensor | None = None
        self.num_batches_tracked: Tensor | None = None
        if track_running_stats:
            self.running_mean = Tensor.zeros(num_features, requires_grad=False)
            self.running_var = Tensor.ones(num_features, requires_grad=False)
            self.num_batches_tracked = Tensor.zeros(dtype=dtypes.int64, requires_grad=False)
        self.to(**options)

    def __call__(self, x: Tensor) -> Tensor:
        check_size("BatchNorm", "channels", x, 1, self.num_features)
        share: float | Tensor = 0.0
        is_tracking = self.training and self.num_batches_tracked is not None
        if is_tracking and self.num_batches_tracked is not None:
            become_memory(self.num_batches_tracked)
            count = self.num_batches_tracked + 1
            share = 1 / count.cast(dtypes.float32) if self.momentum is None else self.momentum
        result = functional.batch_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or self.running_mean is None,
            share,
            self.eps,
        )
        if is_tracking and self.num_batches_tracked is not None:
            self.num_batches_tracked.assign(count)
        return result

    def reset_running_stats(self) -> None:
        """Mean 0 and variance 1, as at first."""
        if self.running_mean is not None and self.running_var is not None:
            assert self.num_batches_tracked is not None
            for state, value in (
                (self.running_mean, 0),
                (self.running_var, 1),
                (self.num_batches_tracked, 0),
            ):
                state.assign(state.const_like(value))


# PyTorch's names by the number of axes; here one class serves all.
BatchNorm1d = BatchNorm2d = BatchNorm3d = BatchNorm


class LayerNorm(Module):
    """Layer normalisation: bring the last axes to mean 0 and variance 1, then multiply by `weight`
    and add `bias`.

    Ba, Kiros and Hinton, "Layer Normalization" (2016).

    Args:
        normalized_shape: sizes of the last axes.
        eps: added to the variance.
        elementwise_affine: whether there are `weight` and `bias`.
        bias: whether there is a bias.
        options: `device` and `dtype` of the weights.

    Shape: input (..., *normalized_shape), output of the same shape.

    Raises ShapeError for last axes of other sizes.

    >>> nn.LayerNorm(2, eps=0.0)(Tensor([[1.0, 3.0]])).tolist()
    [[-1.0, 1.0]]
    """

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        **options: Unpack[FactoryOptions],
    ):
        self.normalized_shape = sizes_of("LayerNorm", normalized_shape)
        self.axes = tuple(range(-len(self.normalized_shape), 0))
        self.eps = eps
        self.weight = (
            Tensor.ones(*self.normalized_shape, requires_grad=True) if elementwise_affine else None
        )
        has_bias = elementwise_affine and bias
        self.bias = Tensor.zeros(*self.normalized_shape, requires_grad=True) if has_bias else None
        self.to(**options)

    def __call__(self, x: Tensor) -> Tensor:
        for axis, size in zip(self.axes, self.normalized_shape, strict=True):
            check_size(type(self).__name__, "features", x, axis, size)
        shape = self.normalized_shape
        return functional.layer_norm(x, shape, self.weight, self.bias, self.eps)


class LayerNorm2d(LayerNorm):
    """Layer normalisation over the channels, axis 1, of images.

    Args:
        normalized_shape: number of channels C.
        eps: added to the variance.
        elementwise_affine: whether there are `weight` and `bias`.
        bias: whether there is a bias.
        options: `device` and `dtype` of the weights.

    Shape: input (N, C, H, W), output of the same shape.

    Raises ShapeError for other channels.

    >>> nn.LayerNorm2d(3)(Tensor.ones(2, 3, 4, 4)).shape
    (2, 3, 4, 4)
    """

    def __call__(self, x: Tensor) -> Tensor:
        check_size("LayerNorm2d", "channels", x, 1, self.normalized_shape[0])
        result: Tensor = super().forward(x.permute(0, 2, 3, 1))
        return result.permute(0, 3, 1, 2)


class RMSNorm(Module):
    """Root mean square normalisation of the last axes: x / sqrt(mean(x^2) + eps) * weight.

    Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019).

    Args:
        dim: sizes of the last axes.
        eps: added to the mean square; None takes the resolution of the dtype.
        elementwise_affine: whether there is a `weight`.
        options: `device` and `dtype` of the weights.

    Shape: input (..., *dim), output of the same shape; `weight` is (*dim).

    Raises ShapeError for last axes of other sizes.

    >>> nn.RMSNorm(2, eps=0.0)(Tensor([[3.0, 3.0]])).tolist()
    [[1.0, 1.0]]
    """

    def __init__(
        self,
        dim: int | tuple[int, ...],
        eps: float | None = 1e-6,
        elementwise_affine: bool = True,
        **options: Unpack[FactoryOptions],
    ):
        self.normalized_shape = sizes_of("RMSNorm", dim)
        self.axes = tuple(range(-len(self.normalized_shape), 0))
        self.eps = eps
        self.weight = (
            Tensor.ones(*self.normalized_shape, requires_grad=True) if elementwise_affine else None
        )
        self.to(**options)

    def __call__(self, x: Tensor) -> Tensor:
        for axis, size in zip(self.axes, self.normalized_shape, strict=True):
            check_size("RMSNorm", "features", x, axis, size)
        return functional.rms_norm(x, self.normalized_shape, self.weight, self.eps)


class GroupNorm(Module):
    """Group normalisation: bring each of `num_groups` groups of channels (axis 1) of each item to
    mean 0 and variance 1.

    Wu and He, "Group Normalization" (2018).

    Args:
        num_groups: number of groups, a divisor of `num_channels`.
        num_channels: number of channels C.
        eps: added to the variance.
        affine: whether there are `weight` and `bias`, (C,).
        options: `device` and `dtype` of the weights.

    Shape: input (N, C, ...), output of the same shape.

    Raises ShapeError for other channels, or groups that do not divide them.

    >>> nn.GroupNorm(2, 4)(Tensor.ones(3, 4, 5)).shape
    (3, 4, 5)
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        **options: Unpack[FactoryOptions],
    ):
        name = type(self).__name__
        positive(name, num_groups=num_groups, num_channels=num_channels)
        if num_channels % num_groups:
            raise ShapeError(
                f"{name}: {num_channels} channels do not split into {num_groups} groups"
            )
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.weight = Tensor.ones(num_channels, requires_grad=True) if affine else None
        self.bias = Tensor.zeros(num_channels, requires_grad=True) if affine else None
        self.to(**options)

    def __call__(self, x: Tensor) -> Tensor:
        check_size(type(self).__name__, "channels", x, 1, self.num_channels)
        return functional.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)


class InstanceNorm(GroupNorm):
    """Instance normalisation: bring each channel (axis 1) of each item to mean 0 and variance 1.

    Ulyanov, Vedaldi and Lempitsky, "Instance Normalization" (2016).

    Args:
        num_features: number of channels C.
        eps: added to the variance.
        affine: whether there are `weight` and `bias`, (C,).

    Shape: input (N, C, ...), output of the same shape.

    Raises ShapeError for other channels.

    >>> nn.InstanceNorm(4)(Tensor.ones(3, 4, 5)).shape
    (3, 4, 5)
    """

    def __init__(self, num_features: int, eps: float = 1e-5, affine: bool = True):
        super().__init__(num_features, num_features, eps, affine)


class InstanceNorm2d(BatchNorm):
    """Instance normalisation with PyTorch's arguments: without weights unless `affine`, and by
    running statistics in evaluation if it has tracked some.

    Args:
        num_features: number of channels C.
        eps: added to the variance.
        momentum: share of the new statistics in the running ones; with None these stay.
        affine: whether there are `weight` and `bias`, (C,).
        track_running_stats: whether there are running statistics.
        options: `device` and `dtype` of the weights.

    Shape: input (N, C, ...), output of the same shape.

    Raises ShapeError for other channels.

    >>> nn.InstanceNorm1d(1, eps=0.0)(Tensor([[[1.0, 3.0]]])).tolist()
    [[[-1.0, 1.0]]]
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        **options: Unpack[FactoryOptions],
    ):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, **options)

    def __call__(self, x: Tensor) -> Tensor:
        check_size(type(self).__name__, "channels", x, 1, self.num_features)
        uses_input = self.training or self.running_mean is None
        tracked = (self.running_mean, self.running_var)
        share = 0.0 if self.momentum is None else self.momentum
        return functional.instance_norm(
            x, *tracked, self.weight, self.bias, uses_input, share, self.eps
        )


# One class serves any number of axes behind the channels.
InstanceNorm1d = InstanceNorm3d = InstanceNorm2d


class LocalResponseNorm(Module):
    """Local response normalisation: x / (k + alpha * m)^beta, m the mean of the squares of `size`
    channels (axis 1) around each.

    Krizhevsky, Sutskever and Hinton, "ImageNet Classification with Deep Convolutional Neural
    Networks" (2012).

    Args:
        size: number of channels.
        alpha: factor of the mean.
        beta: the exponent.
        k: the constant.

    Shape: input (N, C, ...), output of the same shape.

    Raises ShapeError for an input without channels and positions.

    >>> nn.LocalResponseNorm(2)(Tensor.ones(1, 3, 2)).shape
    (1, 3, 2)
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0):
        positive("LocalResponseNorm", size=size)
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def __call__(self, x: Tensor) -> Tensor:
        return functional.local_response_norm(x, self.size, self.alpha, self.beta, self.k)


def sizes_of(layer: str, sizes: int | tuple[int, ...] | list[int]) -> tuple[int, ...]:
    """Sizes given as one number or several."""
    found = tuple(sizes) if isinstance(sizes, (tuple, list)) else (sizes,)
    if not found:
        raise ShapeError(f"{layer}: there are no axes to normalise over")
    countable(layer, **{f"normalized_shape[{number}]": size for number, size in enumerate(found)})
    return found
