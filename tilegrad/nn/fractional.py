"""Pooling over windows that are placed at random, so that sizes shrink by any ratio."""

from __future__ import annotations

from typing import Any, ClassVar

from tilegrad.base.errors import ConfigError
from tilegrad.nn import functional
from tilegrad.nn.module import Module
from tilegrad.tensor.tensor import Tensor

__all__ = ["FractionalMaxPool2d", "FractionalMaxPool3d"]

Sizes = int | tuple[int, ...]


class FractionalMaxPool2d(Module):
    """Largest element of windows over the last two axes, whose first elements are drawn so that
    they are nearly evenly spread (Graham, "Fractional Max-Pooling", 2014, arXiv:1412.6071).

    Args:
        kernel_size: size of the windows, an int or one for each axis.
        output_size: number of windows, an int or one for each axis.
        output_ratio: instead, the share of the input's size, a number between 0 and 1 or one for
            each axis.
        return_indices: also give the int32 position of each value in the last axes, read as one.
        _random_samples: the draws, (N, C, 2), from 0 to 1.

    Shape: (N, C, H, W) or (C, H, W) to (N, C, H', W') or (C, H', W'), in the same dtype.

    Raises ConfigError unless one of `output_size` and `output_ratio` is given, ShapeError where the
    windows do not fit.

    >>> nn.FractionalMaxPool2d(2, output_ratio=0.7)(Tensor.ones(1, 3, 10, 20)).shape
    (1, 3, 7, 14)
    """

    axes: ClassVar[int] = 2

    def __init__(
        self,
        kernel_size: Sizes,
        output_size: Sizes | None = None,
        output_ratio: float | tuple[float, ...] | None = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ):
        name = type(self).__name__
        if (output_size is None) == (output_ratio is None):
            count = "neither" if output_size is None else "both"
            raise ConfigError(f"{name}: {count} of output_size and output_ratio given")
        if output_ratio is not None:
            ratios = output_ratio if isinstance(output_ratio, (tuple, list)) else (output_ratio,)
            if not all(0 < ratio < 1 for ratio in ratios):
                raise ConfigError(
                    f"{name}: output_ratio must be between 0 and 1, not {output_ratio}"
                )
        self.kernel_size, self.output_size = kernel_size, output_size
        self.output_ratio, self.return_indices = output_ratio, return_indices
        self._random_samples = _random_samples

    def __call__(self, x: Tensor) -> Any:
        pool = getattr(functional, f"fractional_max_pool{self.axes}d")
        where = (self.output_size, self.output_ratio, self.return_indices, self._random_samples)
        return pool(x, self.kernel_size, *where)


class FractionalMaxPool3d(FractionalMaxPool2d):
    """Largest element of windows over the last three axes, placed at random; arguments as
    `FractionalMaxPool2d`.

    Shape: (N, C, D, H, W) or (C, D, H, W) to (N, C, D', H', W') or (C, D', H', W').

    Raises ConfigError unless one of `output_size` and `output_ratio` is given, ShapeError where the
    windows do not fit.

    >>> nn.FractionalMaxPool3d(2, output_size=3)(Tensor.ones(1, 2, 6, 6, 8)).shape
    (1, 2, 3, 3, 3)
    """

    axes = 3
