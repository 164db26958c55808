"""`torch.Tensor` in another dtype or on another device, by PyTorch's names of both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from tilegrad.base.absent import nearest
from tilegrad.base.dtype import DType, dtypes
from tilegrad.tensor.handle.core import as_dtype, device_of
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.device_names import is_meta, name_of

__all__ = ["Converting", "LegacyKind"]

# PyTorch's names of the classes that its tensors once had.
_CLASSES = {
    dtypes.float32: "FloatTensor", dtypes.float64: "DoubleTensor", dtypes.float16: "HalfTensor",
    dtypes.bfloat16: "BFloat16Tensor", dtypes.uint8: "ByteTensor", dtypes.int8: "CharTensor",
    dtypes.int16: "ShortTensor", dtypes.int32: "IntTensor", dtypes.int64: "LongTensor",
    dtypes.bool: "BoolTensor",
}  # fmt: skip


class LegacyKind(type):
    """The classes that PyTorch once had, one for each dtype (legacy.py)."""

    dtype: DType


class Converting(OurTensor):
    """A tensor with PyTorch's conversions."""

    # A tensor of tilegrad's as one of the class below.
    _adopt: Callable[[OurTensor], Any]

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """As `cast`; without a dtype the name of this tensor's."""
        if dtype is None:
            return f"torch.{_CLASSES[self.dtype]}" if self.dtype in _CLASSES else self.dtype.name
        if isinstance(dtype, LegacyKind):
            dtype = dtype.dtype
        elif isinstance(dtype, str) and dtype.endswith("Tensor"):
            names = {name: kind for kind, name in _CLASSES.items()}
            name = dtype.removeprefix("torch.")
            if name not in names:
                meant = nearest(name, names)
                raise ValueError(
                    f"invalid type: {dtype!r}" + (f"; did you mean torch.{meant}?" * bool(meant))
                )
            dtype = names[name]
        return self.cast(dtype)

    def to(self, *args: Any, **options: Any) -> Self:
        """The same values on another device, in another dtype, or both, or as another tensor is.

        >>> import tilegrad.torch as torch
        >>> torch.ones(2).to("cpu", torch.float64, non_blocking=True).dtype.name
        'float64'
        """
        target, kind = options.get("device"), options.get("dtype")
        for given in args[:2]:
            if isinstance(given, DType):
                kind = given
            elif isinstance(given, OurTensor):
                target, kind = given.device, given.dtype
            elif given in (float, int, bool):
                kind = {float: dtypes.float64, int: dtypes.int64, bool: dtypes.bool}[given]
            elif isinstance(given, (str, int)) and not isinstance(given, bool):
                target = given
        other = options.get("other")
        if other is not None:
            target, kind = other.device, other.dtype
        moved: Any = self if target is None else self._on_device(name_of(target))
        if kind is not None:
            moved = moved.cast(as_dtype(kind))
        is_copy = options.get("copy", False) or (len(args) > 3 and args[3])
        return moved.clone() if is_copy and moved is self else moved

    def _on_device(self, name: str) -> Any:
        if is_meta(name):
            made = self if is_meta(device_of(self)) else OurTensor.empty_like(self, device=name)
            return self._adopt(made)
        if is_meta(device_of(self)):
            raise NotImplementedError("Cannot copy out of meta tensor; no data!")
        return OurTensor.to(self, name)

    def cpu(self, memory_format: Any = None) -> Self:
        """The same values on the CPU."""
        return self.to("cpu")

    def cuda(self, device: Any = None, non_blocking: bool = False) -> Self:
        """The same values on a GPU.

        Raises DeviceError where there is none.
        """
        return self.to("cuda" if device is None else device)
