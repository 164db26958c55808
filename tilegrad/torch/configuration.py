"""Defaults and limits: `torch.set_default_dtype`, `torch.finfo` and the like."""

from __future__ import annotations

import math
import warnings
from typing import Any

from tilegrad.base.config import config, set_switches
from tilegrad.base.dtype import DType, dtypes, nearest_dtype
from tilegrad.base.errors import ConfigError, DTypeError
from tilegrad.device.cpu_native import set_threads, thread_count
from tilegrad.device.registry import Device
from tilegrad.torch.device_names import as_device, device, name_of
from tilegrad.torch.thread_modes import state

__all__ = [
    "OutOfMemoryError", "are_deterministic_algorithms_enabled", "finfo", "get_autocast_dtype",
    "get_default_device", "get_default_dtype", "get_float32_matmul_precision",
    "get_num_interop_threads", "get_num_threads", "iinfo", "is_autocast_enabled",
    "set_default_device", "set_default_dtype", "set_float32_matmul_precision",
    "set_flush_denormal", "set_num_interop_threads", "set_num_threads", "set_warn_always",
    "use_deterministic_algorithms",
]  # fmt: skip


def _checked(function: str, dtype: Any) -> DType:
    """`dtype`, if it is one; else DTypeError is raised."""
    if isinstance(dtype, DType):
        return dtype
    meant = nearest_dtype(str(dtype))
    raise DTypeError(
        f"{function}: {dtype!r} is no dtype",
        remedy=f"torch.{meant}" if meant else "a dtype, as torch.float32",
    )


class OutOfMemoryError(RuntimeError):
    """PyTorch's error where a GPU has no more memory."""


def set_flush_denormal(mode: bool) -> bool:
    """Whether numbers below the smallest normal one may become 0: they never do."""
    return False


def set_warn_always(mode: bool) -> None:
    """Nothing: a warning comes as often as Python's filters let it."""


def get_num_interop_threads() -> int:
    """As `get_num_threads`: operations that run side by side share those threads."""
    return get_num_threads()


def set_num_interop_threads(num: int) -> None:
    """Nothing: `set_num_threads` sets the threads of all operations."""


def get_default_dtype() -> DType:
    """The dtype of floats without one of their own."""
    return dtypes.default_float


def set_default_dtype(d: DType) -> None:
    """Let floats without a dtype of their own have this one.

    Raises DTypeError for a dtype that is no float.
    """
    if not _checked("set_default_dtype", d).is_float:
        raise DTypeError(f"set_default_dtype: {d.name} is no float")
    setattr(dtypes, "default_float", d)  # noqa: B010


def get_default_device() -> device:
    """The device of tensors without one of their own."""
    return as_device(Device.DEFAULT)


def set_default_device(device: Any) -> None:
    """Let tensors without a device of their own be on this one."""
    Device.DEFAULT = name_of(device)


class finfo:
    """The limits of a dtype of floats.

    >>> import tilegrad.torch as torch
    >>> torch.finfo(torch.float32).eps
    1.1920928955078125e-07
    """

    def __init__(self, type: DType | None = None):
        # Complex numbers have the facts of their components, as in PyTorch.
        component = getattr(type, "component", type)
        kind = dtypes.default_float if type is None else _checked("finfo", component)
        exponent, digits = dtypes.finfo(kind)
        self.dtype, self.bits = kind.name, kind.bits
        self.max = float(kind.largest)
        self.min = -self.max
        self.eps = self.resolution = math.ldexp(1.0, -digits)
        self.tiny = self.smallest_normal = math.ldexp(1.0, 2 - (1 << (exponent - 1)))
        self.resolution = 10.0 ** -int(digits * math.log10(2))

    def __repr__(self) -> str:
        names = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")
        shown = ", ".join(f"{name}={getattr(self, name):.6g}" for name in names)
        return f"finfo({shown}, dtype={self.dtype})"


class iinfo:
    """The limits of a dtype of integers.

    Raises DTypeError for another, as bool.
    """

    def __init__(self, type: DType):
        if not _checked("iinfo", type).is_int:
            raise DTypeError(
                f"iinfo: {type.name} is no integer",
                remedy=f"finfo({type.name})" if type.is_float else "iinfo(uint8)",
            )
        self.dtype, self.bits = type.name, type.bits
        self.min, self.max = int(type.min), int(type.max)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Whether products are computed in a dtype of their own here."""
    return state.autocast is not None


def get_autocast_dtype(device_type: str = "cpu") -> DType:
    """The dtype in which `autocast` computes products: bfloat16 unless the block says another."""
    return state.autocast or dtypes.bfloat16


# Settings of programs, to be read again.
_asked: dict[str, Any] = {"deterministic": False, "precision": ""}
_PRECISIONS = ("highest", "high", "medium")


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Nothing but what `are_deterministic_algorithms_enabled` says: results are the same in every
    run.
    """
    _asked["deterministic"] = mode


def are_deterministic_algorithms_enabled() -> bool:
    """Whether a program has asked for them."""
    return bool(_asked["deterministic"])


def set_float32_matmul_precision(precision: str) -> None:
    """Let products of float32 round their factors ("high", "medium") or not ("highest"), where a
    matrix unit multiplies them: the switch TF32, in this thread. Another name draws a warning and
    changes nothing.
    """
    if precision not in _PRECISIONS:
        warnings.warn(
            f"set_float32_matmul_precision: {precision!r} is none of {', '.join(_PRECISIONS)}; "
            "nothing changes",
            UserWarning,
            stacklevel=2,
        )
        return
    _asked["precision"] = precision
    set_switches(TF32=int(precision != "highest"))


def get_float32_matmul_precision() -> str:
    """The precision that was asked for: "highest" unless products may round their factors."""
    if not config.TF32:
        return "highest"
    asked = _asked["precision"]
    return asked if asked in _PRECISIONS[1:] else "high"


def set_num_threads(int: int) -> None:
    """Let kernels of the CPU run on `int` threads from now on, in the whole process.

    Raises ConfigError if that is less than one, or more than the pool holds.
    """
    if int < 1:
        raise ConfigError(f"set_num_threads: {int} is no number of threads", allowed="1 or more")
    set_threads(int)


def get_num_threads() -> int:
    """The number of threads that kernels of the CPU run on."""
    return thread_count()
