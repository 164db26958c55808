"""Values rounded to what integers of a few bits can hold, in training: `fake_quantize_*`."""

from __future__ import annotations

from typing import Any

from tilegrad.base.errors import ShapeError
from tilegrad.torch.made_tensors import tensor
from tilegrad.torch.tensor import Tensor

__all__ = ["fake_quantize_per_channel_affine", "fake_quantize_per_tensor_affine"]


def fake_quantize_per_tensor_affine(
    input: Tensor, scale: Any, zero_point: Any, quant_min: int, quant_max: int
) -> Tensor:
    """`input` quantized and dequantized: q = round(input / scale) + zero_point, limited to
    `quant_min` and `quant_max`, stands for (q - zero_point) * scale. The gradient passes unchanged
    where q was not limited, and is 0 elsewhere.

    >>> import tilegrad.torch as torch
    >>> torch.fake_quantize_per_tensor_affine(torch.tensor([0.26, 9.0]), 0.5, 0, 0, 15).tolist()
    [0.5, 7.5]
    """
    steps = scale if isinstance(scale, Tensor) else tensor(float(scale), dtype=input.dtype)
    return _rounded(input, steps, zero_point, quant_min, quant_max)


def fake_quantize_per_channel_affine(
    input: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    """As `fake_quantize_per_tensor_affine`, with a scale and a zero for each index of an axis.

    Raises ShapeError unless there are as many.
    """
    sizes = [1] * input.ndim
    sizes[axis] = int(input.shape[axis])
    for name, given in (("scale", scale), ("zero_point", zero_point)):
        if tuple(given.shape) != (sizes[axis],):
            raise ShapeError(
                f"fake_quantize_per_channel_affine: {name} of shape {tuple(given.shape)} for "
                f"{sizes[axis]} indices of axis {axis}"
            )
    zero = zero_point.reshape(sizes)
    return _rounded(input, scale.reshape(sizes), zero, quant_min, quant_max)


def _rounded(input: Tensor, scale: Any, zero: Any, least: int, most: int) -> Tensor:
    scale = scale.detach().to(input.dtype)
    if isinstance(zero, Tensor):
        zero = zero.detach().to(input.dtype)
    integers = (input.detach() * scale.reciprocal()).round() + zero
    limited = integers.clamp(least, most)
    value = (limited - zero) * scale
    is_inside = integers.eq(limited)
    # The value itself, and the slope of the input where nothing was limited.
    slope: Any = is_inside.where(input, 0.0)
    found: Tensor = value + (slope - slope.detach())
    return found
