"""`torch.cpu`: the CPU under the names that `torch.cuda` has."""

from __future__ import annotations

from typing import Any

from tilegrad.torch import amp
from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.module_aliases import also_known

__all__ = [
    "amp", "current_device", "device_count", "is_available", "is_initialized", "set_device",
    "synchronize",
]  # fmt: skip


def is_available() -> bool:
    """True."""
    return True


is_initialized = is_available


def device_count() -> int:
    """One."""
    return 1


def current_device() -> str:
    """`cpu`."""
    return "cpu"


def set_device(device: Any) -> None:
    """Nothing: there is one."""


def synchronize(device: Any = None) -> None:
    """Nothing: what is read has been computed."""


also_known(__name__, ("amp",), amp)

refuse_others(__name__)
