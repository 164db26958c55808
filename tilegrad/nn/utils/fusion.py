"""A layer and the normalisation behind it as one layer, for evaluation."""

from __future__ import annotations

import copy
from typing import Any

from tilegrad.base.errors import ConfigError
from tilegrad.tensor.tensor import Tensor

__all__ = ["fuse_conv_bn_eval", "fuse_linear_bn_eval", "fused_weights"]


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """Convolution that computes what `bn`, by its running statistics, makes of the result of
    `conv`.

    Args:
        conv: a convolution.
        bn: a batch normalisation of its output channels.
        transpose: whether `conv` is a transposed convolution.

    Returns a new layer, with weights of the shapes and dtypes of those of `conv`.

    Raises ConfigError for a normalisation without running statistics.

    >>> conv, bn = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2).eval()
    >>> type(nn.utils.fuse_conv_bn_eval(conv, bn)).__name__
    'Conv2d'
    """
    return _fused("fuse_conv_bn_eval", conv, bn, 1 if transpose else 0)


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """Linear layer that computes what `bn`, by its running statistics, makes of the result of
    `linear`.

    Args:
        linear: a linear layer.
        bn: a batch normalisation of its outputs.

    Returns a new layer, with weights of the shapes of those of `linear`.

    Raises ConfigError for a normalisation without running statistics.

    >>> layer, norm = nn.Linear(2, 3), nn.BatchNorm1d(3).eval()
    >>> nn.utils.fuse_linear_bn_eval(layer.eval(), norm)
    Linear(in_features=2, out_features=3, bias=True)
    """
    return _fused("fuse_linear_bn_eval", linear, bn, 0)


def _fused(name: str, layer: Any, bn: Any, axis: int) -> Any:
    if bn.running_mean is None:
        raise ConfigError(f"{name}: the normalisation has no running statistics")
    norm = (bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
    weight, bias = fused_weights(layer.weight, layer.bias, *norm, axis)
    fused = copy.copy(layer)
    for attribute, value in (("weight", weight), ("bias", bias)):
        setattr(fused, attribute, fused._as_parameter(value.detach().clone()))
    return fused


def fused_weights(
    weight: Tensor,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    eps: float,
    scale: Tensor | None,
    shift: Tensor | None,
    axis: int,
) -> tuple[Tensor, Tensor]:
    """The weight and the bias of a layer and the normalisation of its outputs as one layer, in the
    dtype of `weight`, whose outputs lie along `axis`.
    """
    factor = (var + eps).rsqrt()
    factor = factor if scale is None else factor * scale
    around = [-1 if at == axis else 1 for at in range(weight.ndim)]
    moved = -mean * factor if bias is None else (bias - mean) * factor
    moved = moved if shift is None else moved + shift
    return (weight * factor.reshape(around)).cast(weight.dtype), moved.cast(weight.dtype)
