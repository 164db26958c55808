"""Functions of windows that are placed at random."""

from __future__ import annotations

import math
from typing import Any

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import ConfigError, ShapeError
from tilegrad.nn.layer_checks import tuple_of
from tilegrad.tensor.handle.core import check_tensors, describe
from tilegrad.tensor.tensor import Tensor

__all__ = ["fractional_max_pool2d", "fractional_max_pool3d"]

Sizes = int | tuple[int, ...]


def fractional_max_pool2d(
    input: Tensor,
    kernel_size: Sizes,
    output_size: Sizes | None = None,
    output_ratio: float | tuple[float, ...] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """Largest element of windows that are placed at random, as `nn.FractionalMaxPool2d`.

    Args:
        input: (N, C, H, W) or (C, H, W).
        kernel_size: size of the windows, an int or one for each axis.
        output_size: number of windows, an int or one for each axis.
        output_ratio: instead, the share of the input's size.
        return_indices: also give the int32 position of each value in the last axes, read as one.
        _random_samples: the draws, (N, C, 2), from 0 to 1.

    Returns a tensor of shape (N, C, *sizes) in the dtype of `input`, or it and the positions.

    Raises ConfigError without a size, ShapeError where the windows do not fit.

    >>> x = Tensor.arange(16.0).reshape(1, 4, 4)
    >>> positions = Tensor([[[0.0, 0.0]]])
    >>> nn.functional.fractional_max_pool2d(x, 2, 2, _random_samples=positions).tolist()
    [[[5.0, 7.0], [13.0, 15.0]]]
    """
    where = (kernel_size, output_size, output_ratio, return_indices)
    return _pooled("fractional_max_pool2d", 2, input, *where, _random_samples)


def fractional_max_pool3d(
    input: Tensor,
    kernel_size: Sizes,
    output_size: Sizes | None = None,
    output_ratio: float | tuple[float, ...] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """Largest element of windows that are placed at random, as `nn.FractionalMaxPool3d`.

    Args:
        input: (N, C, D, H, W) or (C, D, H, W).
        kernel_size: size of the windows, an int or one for each axis.
        output_size: number of windows, an int or one for each axis.
        output_ratio: instead, the share of the input's size.
        return_indices: also give the int32 position of each value in the last axes, read as one.
        _random_samples: the draws, (N, C, 3), from 0 to 1.

    Returns a tensor of shape (N, C, *sizes) in the dtype of `input`, or it and the positions.

    Raises ConfigError without a size, ShapeError where the windows do not fit.

    >>> nn.functional.fractional_max_pool3d(Tensor.ones(2, 4, 4, 4), 2, output_ratio=0.5).shape
    (2, 2, 2, 2)
    """
    where = (kernel_size, output_size, output_ratio, return_indices)
    return _pooled("fractional_max_pool3d", 3, input, *where, _random_samples)


def _pooled(
    name: str,
    axes: int,
    input: Tensor,
    kernel_size: Sizes,
    output_size: Sizes | None,
    output_ratio: float | tuple[float, ...] | None,
    return_indices: bool,
    samples: Tensor | None,
) -> Any:
    check_tensors(name, input)
    x = input.unsqueeze(0) if input.ndim == axes + 1 else input
    kernel = tuple_of(name, "kernel_size", kernel_size, axes, least=1)
    sizes = x._sizes[2:]
    counts = _counts(name, sizes, output_size, output_ratio)
    for size, length, count in zip(sizes, kernel, counts):
        if x.ndim != axes + 2 or length + count - 1 > size:
            raise ShapeError(
                f"{name}: {count} windows of {length} do not fit {size} elements",
                input=describe(input.uop),
            )
    if samples is None:
        samples = Tensor.rand(*x._sizes[:2], axes, device=x.device)
    # As in PyTorch the first draw is that of the last axis in images, and of the first in volumes.
    order = [1, 0] if axes == 2 else [0, 1, 2]
    picked = [
        _elements(samples[..., order[axis]], sizes[axis], kernel[axis], counts[axis])
        for axis in range(axes)
    ]
    largest, position = _largest(x, picked, kernel, counts)
    if x is not input:
        largest, position = largest.squeeze(0), position.squeeze(0)
    return (largest, position) if return_indices else largest


def _counts(name: str, sizes: Any, output_size: Any, output_ratio: Any) -> tuple[int, ...]:
    if output_size is not None:
        return tuple_of(name, "output_size", output_size, len(sizes), least=1)
    if output_ratio is None:
        raise ConfigError(f"{name}: neither output_size nor output_ratio given")
    is_one = not isinstance(output_ratio, (tuple, list))
    ratios = (output_ratio,) * len(sizes) if is_one else output_ratio
    return tuple(int(size * ratio) for size, ratio in zip(sizes, ratios, strict=True))


def _elements(sample: Tensor, size: int, length: int, count: int) -> Tensor:
    """Which elements of an axis the windows hold, (N, C, count * length): window number i begins at
    floor(a (i + u)) - floor(a u), the last one at the end.
    """
    last = size - length
    step = Tensor.arange(count, device=sample.device)
    ratio = last / max(count - 1, 1)
    drawn = sample.unsqueeze(-1)
    begins = ((step + drawn) * ratio).floor() - (drawn * ratio).floor()
    begins = step.eq(count - 1).where(float(last), begins).cast(dtypes.int32)
    elements = begins.unsqueeze(-1) + Tensor.arange(length, device=sample.device)
    return elements.flatten(-2)


def _largest(
    x: Tensor, picked: list[Tensor], kernel: tuple[int, ...], counts: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    """The largest element of each window, and its position in the spatial axes, read as one."""
    axes, sizes = len(kernel), x._sizes[2:]
    position: Any = 0
    for axis, index in enumerate(picked):
        around = [1] * axes
        around[axis] = index._sizes[-1]
        index = index.reshape(*index._sizes[:2], *around)
        shape = list(x._sizes)
        shape[2 + axis] = index._sizes[2 + axis]
        x = x.gather(2 + axis, index.expand(*shape))
        position = position + index * math.prod(sizes[axis + 1 :])
    apart = [size for pair in zip(counts, kernel) for size in pair]
    order = (0, 1, *range(2, 2 + 2 * axes, 2), *range(3, 3 + 2 * axes, 2))
    values, positions = (
        each.reshape(*x._sizes[:2], *apart).permute(*order).flatten(2 + axes)
        for each in (x, position.expand(*x._sizes))
    )
    first = values.detach().argmax(-1, keepdim=True)
    return values.gather(-1, first).squeeze(-1), positions.gather(-1, first).squeeze(-1)
