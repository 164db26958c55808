"""`torch.FloatTensor([...])` and the like, from before tensors had a `dtype=`."""

from __future__ import annotations

from typing import Any

from tilegrad.base.dtype import DType, dtypes
from tilegrad.torch.converting import LegacyKind
from tilegrad.torch.made_tensors import empty, tensor
from tilegrad.torch.tensor import Tensor

__all__ = [
    "BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor",
    "HalfTensor", "IntTensor", "LongTensor", "ShortTensor",
]  # fmt: skip


class _Kind(LegacyKind):
    """Tensors of one dtype on the CPU. A call gives one: of a list, or memory of a shape."""

    def __call__(self, *data: Any) -> Tensor:
        if not data or all(isinstance(size, int) for size in data):
            return empty(*(data or (0,)), dtype=self.dtype)
        return tensor(data[0], dtype=self.dtype)

    def __instancecheck__(self, value: object) -> bool:
        return isinstance(value, Tensor) and value.dtype is self.dtype


def _made(name: str, dtype: DType) -> _Kind:
    return _Kind(name, (), {"dtype": dtype, "__module__": "torch"})


FloatTensor = _made("FloatTensor", dtypes.float32)
DoubleTensor = _made("DoubleTensor", dtypes.float64)
HalfTensor = _made("HalfTensor", dtypes.float16)
LongTensor = _made("LongTensor", dtypes.int64)
IntTensor = _made("IntTensor", dtypes.int32)
ByteTensor = _made("ByteTensor", dtypes.uint8)
BoolTensor = _made("BoolTensor", dtypes.bool)
CharTensor = _made("CharTensor", dtypes.int8)
ShortTensor = _made("ShortTensor", dtypes.int16)
BFloat16Tensor = _made("BFloat16Tensor", dtypes.bfloat16)
