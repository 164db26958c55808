"""`torch.FloatTensor([...])` and the like, from before tensors had a `dtype=`."""

from __future__ import annotations

from typing import Any

from tilegrad.base.dtype import DType, dtypes
from tilegrad.torch.creation import empty, tensor
from tilegrad.torch.tensor import Tensor

__all__ = [
    "BoolTensor", "ByteTensor", "DoubleTensor", "FloatTensor", "HalfTensor", "IntTensor",
    "LongTensor",
]  # fmt: skip


def _made(dtype: DType, data: tuple[Any, ...]) -> Tensor:
    if not data or all(isinstance(size, int) for size in data):
        return empty(*(data or (0,)), dtype=dtype)
    return tensor(data[0], dtype=dtype)


def FloatTensor(*data: Any) -> Tensor:
    """A float32 tensor of a list, or memory of a shape."""
    return _made(dtypes.float32, data)


def DoubleTensor(*data: Any) -> Tensor:
    """A float64 tensor of a list, or memory of a shape."""
    return _made(dtypes.float64, data)


def HalfTensor(*data: Any) -> Tensor:
    """A float16 tensor of a list, or memory of a shape."""
    return _made(dtypes.float16, data)


def LongTensor(*data: Any) -> Tensor:
    """An int64 tensor of a list, or memory of a shape."""
    return _made(dtypes.int64, data)


def IntTensor(*data: Any) -> Tensor:
    """An int32 tensor of a list, or memory of a shape."""
    return _made(dtypes.int32, data)


def ByteTensor(*data: Any) -> Tensor:
    """A uint8 tensor of a list, or memory of a shape."""
    return _made(dtypes.uint8, data)


def BoolTensor(*data: Any) -> Tensor:
    """A bool tensor of a list, or memory of a shape."""
    return _made(dtypes.bool, data)
