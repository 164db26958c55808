"""Normalisation as functions: over batches, features, groups of channels, single items."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilegrad.base.dtype import dtypes
from tilegrad.base.dtype_promotion import sum_dtype
from tilegrad.base.errors import ConfigError, ShapeError
from tilegrad.tensor.handle.core import check_tensors, describe
from tilegrad.tensor.handle.size_arguments import same_shape, show_shape
from tilegrad.tensor.tensor import Tensor
from tilegrad.tensor.writing.at_once import become_memory

__all__ = [
    "batch_norm", "group_norm", "instance_norm", "layer_norm", "local_response_norm", "normalize",
    "rms_norm",
]  # fmt: skip


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Batch normalisation: bring each channel (axis 1) to mean 0 and variance 1, then multiply by
    `weight` and add `bias` (Ioffe and Szegedy 2015, arXiv:1502.03167).

    Args:
        input: (N, C, ...).
        running_mean: (C,); in training it moves toward the mean of the batch, else it is what is
            taken off.
        running_var: (C,), likewise, toward the unbiased variance.
        weight: (C,), or None.
        bias: (C,), or None.
        training: use the statistics of the batch.
        momentum: share of the new statistics in the running ones.
        eps: added to the variance.

    Returns a tensor of the shape of `input`; floats keep their dtype, bool and integers give the
    default float (float32).

    Raises ShapeError in training for one value per channel, ConfigError without running statistics
    otherwise.

    >>> nn.functional.batch_norm(Tensor([[1.0], [3.0]]), training=True, eps=0.0).tolist()
    [[-1.0], [1.0]]
    """
    check_tensors("batch_norm", input)
    wide = input.cast(sum_dtype(input.dtype))
    if training:
        _refuse_one("BatchNorm", "channel", input, input.shape[1:2])
        axes = tuple(axis for axis in range(input.ndim) if axis != 1)
        variance, mean = wide.var_mean(axes, correction=0)
        if running_mean is not None and running_var is not None:
            move(running_mean, mean, momentum)
            move(running_var, wide.var(axes), momentum)
    elif running_mean is None or running_var is None:
        raise ConfigError(
            "batch_norm: without training there must be running_mean and running_var",
            remedy="training=True takes the statistics of the batch",
        )
    else:
        mean, variance = running_mean, running_var
    return wide.batchnorm(weight, bias, mean, (variance + eps).rsqrt()).cast(input.dtype)


def _refuse_one(name: str, group: str, input: Tensor, counts: Sequence[Any]) -> None:
    """Raise ShapeError where the groups, a product of `counts`, have one value each: its mean."""
    if input.numel() == math.prod(counts) != 0:
        raise ShapeError(
            f"{name}: one value per {group} has no variance",
            input=describe(input.uop),
            remedy="train with a larger batch, or call model.eval() for inference",
        )


def move(running: Tensor, new: Tensor, share: float | Tensor) -> None:
    """Write running + (new - running) * share."""
    # The first step reads memory as all later ones do, and so is their graph.
    become_memory(running)
    weight = share if not isinstance(share, Tensor) else share.cast(running.dtype)
    running.assign(running * (1 - weight) + new.detach().cast(running.dtype) * weight)


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Instance normalisation: bring each channel (axis 1) of each item to mean 0 and variance 1,
    then multiply by `weight` and add `bias` (Ulyanov et al. 2016, arXiv:1607.08022).

    Args:
        input: (N, C, ...).
        running_mean: (C,), or None; it moves toward the mean over the items.
        running_var: (C,), likewise.
        weight: (C,), or None.
        bias: (C,), or None.
        use_input_stats: else the running statistics are used.
        momentum: share of the new statistics in the running ones.
        eps: added to the variance.

    Returns a tensor of the shape of `input`; floats keep their dtype, bool and integers give the
    default float (float32).

    Raises ShapeError for one value per channel, or other sizes.

    >>> nn.functional.instance_norm(Tensor([[[1.0, 3.0]]]), eps=0.0).tolist()
    [[[-1.0, 1.0]]]
    """
    check_tensors("instance_norm", input)
    if not use_input_stats and running_mean is not None and running_var is not None:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    _refuse_one("InstanceNorm", "channel of an item", input, input.shape[:2])
    if running_mean is not None and running_var is not None:
        wide, axes = input.cast(sum_dtype(input.dtype)), tuple(range(2, input.ndim))
        move(running_mean, wide.mean(axes).mean(0), momentum)
        move(running_var, wide.var(axes).mean(0), momentum)
    return group_norm(input, input._length(1), weight, bias, eps)


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Group normalisation: bring each group of channels (axis 1) of each item to mean 0 and
    variance 1, then multiply each channel by `weight` and add `bias` (Wu and He 2018,
    arXiv:1803.08494).

    Args:
        input: (N, C, ...).
        num_groups: number of groups, a divisor of C.
        weight: (C,), or None.
        bias: (C,), or None.
        eps: added to the variance.

    Returns a tensor of the shape of `input`; floats keep their dtype, bool and integers give the
    default float (float32).

    Raises ShapeError unless the groups divide the channels, and for one item with one value per
    group.

    >>> nn.functional.group_norm(Tensor.ones(3, 4, 5), 2).shape
    (3, 4, 5)
    """
    check_tensors("group_norm", input)
    if input.ndim < 2 or num_groups < 1 or input._length(1) % num_groups:
        raise ShapeError(
            f"group_norm: {show_shape(input.shape)} has no {num_groups} groups of channels",
            input=describe(input.uop),
        )
    _refuse_one("group_norm", "group of the only item", input, (num_groups,))
    size = math.prod(input._length(axis) for axis in range(1, input.ndim)) // num_groups
    grouped = input.reshape(input.shape[0], num_groups, size).layernorm(-1, eps)
    result, rest = grouped.reshape(input.shape), (1, -1, *[1] * (input.ndim - 2))
    dtype = result.dtype
    result = result if weight is None else result * weight.reshape(rest)
    return (result if bias is None else result + bias.reshape(rest)).cast(dtype)


def layer_norm(
    input: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Layer normalisation: bring the last axes to mean 0 and variance 1, then multiply by `weight`
    and add `bias` (Ba et al. 2016, arXiv:1607.06450).

    Args:
        input: (..., *normalized_shape).
        normalized_shape: sizes of the last axes.
        weight: of that shape, or None.
        bias: of that shape, or None.
        eps: added to the variance.

    Returns a tensor of the shape of `input`; floats keep their dtype, bool and integers give the
    default float (float32).

    Raises ShapeError for axes of other sizes.

    >>> nn.functional.layer_norm(Tensor([[1.0, 3.0]]), (2,), eps=0.0).tolist()
    [[-1.0, 1.0]]
    """
    result = input.layernorm(_last("layer_norm", input, normalized_shape), eps)
    dtype = result.dtype
    result = result if weight is None else result * weight
    return (result if bias is None else result + bias).cast(dtype)


def rms_norm(
    input: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """Root mean square normalisation: bring the last axes to a mean square of 1, then multiply by
    `weight` (Zhang and Sennrich 2019, arXiv:1910.07467).

    Args:
        input: (..., *normalized_shape).
        normalized_shape: sizes of the last axes.
        weight: of that shape, or None.
        eps: added to the mean square, by default the resolution of the dtype.

    Returns a tensor of the shape of `input`; floats keep their dtype, bool and integers give the
    default float (float32).

    Raises ShapeError for axes of other sizes.

    >>> nn.functional.rms_norm(Tensor([[3.0, 3.0]]), (2,), eps=0.0).tolist()
    [[1.0, 1.0]]
    """
    axes = _last("rms_norm", input, normalized_shape)
    wide = input.cast(sum_dtype(input.dtype))
    # Complex numbers, whose classes are above this one, have the precision of their components.
    component = getattr(wide.dtype, "component", wide.dtype)
    least = 2.0 ** -dtypes.finfo(component)[1] if eps is None else eps
    scaled = (wide * (wide.square().mean(axes, keepdim=True) + least).rsqrt()).cast(input.dtype)
    return scaled if weight is None else (scaled * weight).cast(scaled.dtype)


def _last(name: str, input: Tensor, sizes: int | Sequence[int]) -> tuple[int, ...]:
    check_tensors(name, input)
    wanted = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    if not wanted or not same_shape(input.shape[-len(wanted) :], wanted):
        raise ShapeError(
            f"{name}: {show_shape(input.shape)} does not end in {show_shape(wanted)}",
            input=describe(input.uop),
        )
    return tuple(range(-len(wanted), 0))


def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """Local response normalisation: x / (k + alpha * m)^beta, m the mean of the squares of `size`
    channels (axis 1) around each, with zeros beyond the ends (Krizhevsky, Sutskever and Hinton
    2012).

    Args:
        input: (N, C, ...).
        size: number of channels.
        alpha: factor of the mean.
        beta: the exponent.
        k: the constant.

    Returns a tensor of the shape of `input`; floats keep their dtype, bool and integers give the
    default float (float32).

    Raises ShapeError for an input without channels and positions.

    >>> nn.functional.local_response_norm(Tensor([[[2.0]]]), 1, alpha=1.0, beta=1.0, k=0.0).tolist()
    [[[0.5]]]
    """
    check_tensors("local_response_norm", input)
    if input.ndim < 3 or size < 1:
        raise ShapeError(
            f"local_response_norm: {size} channels of {show_shape(input.shape)}",
            rule="size is at least 1, the input (N, C, ...) with more axes",
            input=describe(input.uop),
        )
    squares = input.square().movedim(1, -1).pad((size // 2, (size - 1) // 2))
    mean = squares.unfold(-1, size, 1).mean(-1).movedim(-1, 1)
    return input / (mean * alpha + k).pow(beta)


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """Divide by the p-norm along an axis.

    Args:
        input: a tensor of any shape.
        p: order of the norm.
        dim: the axis; a negative one counts from the last.
        eps: least divisor.

    Returns a tensor of the shape of `input`; floats keep their dtype, bool and integers give the
    default float (float32).

    Raises IndexBoundsError for an axis that is out of range.

    >>> nn.functional.normalize(Tensor([[0.0, 4.0]])).tolist()
    [[0.0, 1.0]]
    """
    return input.normalize(p, dim, eps)
