"""How dtypes print in a program that uses PyTorch's names: `torch.float32`."""

from __future__ import annotations

from types import FrameType, ModuleType

from tilegrad.base.dtype import DType, dtypes

__all__ = ["spelled"]

_OWN_NAMES = {
    dtypes.fp8e4m3: "float8_e4m3fn", dtypes.fp8e5m2: "float8_e5m2",
    dtypes.fp8e4m3fnuz: "float8_e4m3fnuz", dtypes.fp8e5m2fnuz: "float8_e5m2fnuz",
}  # fmt: skip


def spelled(dtype: DType, frame: FrameType) -> str | None:
    """The dtype by PyTorch's name, if the module whose code asks for it uses a module of
    `tilegrad.torch`, and is none of tilegrad's own.
    """
    names = frame.f_globals
    if dtype.lanes != 1 or str(names.get("__name__", "")).startswith("tilegrad."):
        return None
    for value in names.values():
        if isinstance(value, ModuleType) and value.__name__.startswith("tilegrad.torch"):
            return f"torch.{_OWN_NAMES.get(dtype, dtype.name)}"
    return None
