"""Layers that normalise, with PyTorch's names, arguments and first values (weight 1, bias 0)."""

from __future__ import annotations

from tilegrad.base.dtype import dtypes, sum_dtype
from tilegrad.base.errors import ShapeError
from tilegrad.nn.checks import check_size, positive
from tilegrad.nn.module import Module
from tilegrad.tensor.core import describe
from tilegrad.tensor.sizes import here
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "BatchNorm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm", "InstanceNorm",
    "LayerNorm", "LayerNorm2d", "RMSNorm",
]  # fmt: skip


class BatchNorm(Module):
    """Each channel (axis 1) brought to mean 0 and variance 1, then times `weight`, plus `bias`.

    While `Tensor.training` is on, mean and variance are those of the batch, and the running ones
    move a share `momentum` toward them (toward the unbiased variance, as in PyTorch). Otherwise the
    running ones are used. They are state: part of the state dict, never trained, and written by the
    optimizer's step along with the weights.

    Ioffe and Szegedy, "Batch Normalization" (2015).
    """

    buffer_names = ("running_mean", "running_var", "num_batches_tracked")

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ):
        positive("BatchNorm", num_features=num_features)
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.weight = Tensor.ones(num_features, requires_grad=True) if affine else None
        self.bias = Tensor.zeros(num_features, requires_grad=True) if affine else None
        self.running_mean: Tensor | None = None
        self.running_var: Tensor | None = None
        self.num_batches_tracked: Tensor | None = None
        if track_running_stats:
            self.running_mean = Tensor.zeros(num_features, requires_grad=False)
            self.running_var = Tensor.ones(num_features, requires_grad=False)
            self.num_batches_tracked = Tensor.zeros(dtype=dtypes.int64, requires_grad=False)

    def __call__(self, x: Tensor) -> Tensor:
        check_size("BatchNorm", "channels", x, 1, self.num_features)
        wide = x.cast(sum_dtype(x.dtype))
        mean, variance = self._statistics(wide)
        invstd = (variance + self.eps).rsqrt()
        return wide.batchnorm(self.weight, self.bias, mean, invstd).cast(x.dtype)

    def _statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The mean and the variance of each channel to normalise by."""
        if self.running_mean is not None and self.running_var is not None and not self.training:
            return self.running_mean, self.running_var
        axes = tuple(axis for axis in range(x.ndim) if axis != 1)
        variance, mean = x.var_mean(axes, correction=0)
        if self.training and self.running_mean is not None:
            self._track(x, mean.detach(), x.var(axes).detach())
        return mean, variance

    def _track(self, x: Tensor, mean: Tensor, variance: Tensor) -> None:
        """Move the running statistics toward the mean and the unbiased variance of this batch."""
        if x.numel() == self.num_features:
            raise ShapeError(
                "BatchNorm: one value per channel has no variance to track",
                input=describe(x.uop),
                fix="train with a larger batch, or turn Tensor.training off",
                line=here(),
            )
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        for running, new in ((self.running_mean, mean), (self.running_var, variance)):
            new = new.cast(running.dtype)
            running.assign(running * (1 - self.momentum) + new * self.momentum)
        self.num_batches_tracked.assign(self.num_batches_tracked + 1)


# PyTorch's names by the number of axes; here one class serves all.
BatchNorm1d = BatchNorm2d = BatchNorm3d = BatchNorm


class LayerNorm(Module):
    """The last axes brought to mean 0 and variance 1, then times `weight`, plus `bias`.

    Ba, Kiros and Hinton, "Layer Normalization" (2016).
    """

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
    ):
        self.normalized_shape = sizes_of("LayerNorm", normalized_shape)
        self.axes = tuple(range(-len(self.normalized_shape), 0))
        self.eps = eps
        self.weight = (
            Tensor.ones(*self.normalized_shape, requires_grad=True) if elementwise_affine else None
        )
        has_bias = elementwise_affine and bias
        self.bias = Tensor.zeros(*self.normalized_shape, requires_grad=True) if has_bias else None

    def __call__(self, x: Tensor) -> Tensor:
        for axis, size in zip(self.axes, self.normalized_shape, strict=True):
            check_size(type(self).__name__, "features", x, axis, size)
        x = x.layernorm(self.axes, self.eps)
        if self.weight is not None:
            x = x * self.weight
        return x if self.bias is None else x + self.bias


class LayerNorm2d(LayerNorm):
    """LayerNorm over the channels, axis 1, of images (N, C, H, W)."""

    def __call__(self, x: Tensor) -> Tensor:
        check_size("LayerNorm2d", "channels", x, 1, self.normalized_shape[0])
        result: Tensor = super().forward(x.permute(0, 2, 3, 1))
        return result.permute(0, 3, 1, 2)


class RMSNorm(Module):
    """The last axes brought to a mean square of 1: x / sqrt(mean(x^2) + eps) * weight.

    Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019).
    """

    def __init__(
        self, dim: int | tuple[int, ...], eps: float = 1e-6, elementwise_affine: bool = True
    ):
        self.normalized_shape = sizes_of("RMSNorm", dim)
        self.axes = tuple(range(-len(self.normalized_shape), 0))
        self.eps = eps
        self.weight = (
            Tensor.ones(*self.normalized_shape, requires_grad=True) if elementwise_affine else None
        )

    def __call__(self, x: Tensor) -> Tensor:
        for axis, size in zip(self.axes, self.normalized_shape, strict=True):
            check_size("RMSNorm", "features", x, axis, size)
        wide = x.cast(sum_dtype(x.dtype))
        scaled = wide * (wide.square().mean(self.axes, keepdim=True) + self.eps).rsqrt()
        return scaled.cast(x.dtype) if self.weight is None else scaled.cast(x.dtype) * self.weight


class GroupNorm(Module):
    """Each of `num_groups` groups of channels (axis 1) brought to mean 0 and variance 1.

    Wu and He, "Group Normalization" (2018).
    """

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True):
        name = type(self).__name__
        positive(name, num_groups=num_groups, num_channels=num_channels)
        if num_channels % num_groups:
            raise ShapeError(
                f"{name}: {num_channels} channels do not split into {num_groups} groups",
                line=here(),
            )
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.weight = Tensor.ones(num_channels, requires_grad=True) if affine else None
        self.bias = Tensor.zeros(num_channels, requires_grad=True) if affine else None

    def __call__(self, x: Tensor) -> Tensor:
        check_size(type(self).__name__, "channels", x, 1, self.num_channels)
        grouped = x.reshape(x.shape[0], self.num_groups, -1).layernorm(-1, self.eps)
        result = grouped.reshape(x.shape)
        per_channel = (1, self.num_channels, *[1] * (x.ndim - 2))
        if self.weight is not None:
            result = result * self.weight.reshape(per_channel)
        return result if self.bias is None else result + self.bias.reshape(per_channel)


class InstanceNorm(GroupNorm):
    """Each channel (axis 1) of each item brought to mean 0 and variance 1.

    Ulyanov, Vedaldi and Lempitsky, "Instance Normalization" (2016).
    """

    def __init__(self, num_features: int, eps: float = 1e-5, affine: bool = True):
        super().__init__(num_features, num_features, eps, affine)


def sizes_of(layer: str, sizes: int | tuple[int, ...] | list[int]) -> tuple[int, ...]:
    """Sizes given as one number or several."""
    found = tuple(sizes) if isinstance(sizes, (tuple, list)) else (sizes,)
    if not found:
        raise ShapeError(f"{layer}: there are no axes to normalise over", line=here())
    positive(layer, **{f"normalized_shape[{place}]": size for place, size in enumerate(found)})
    return found
