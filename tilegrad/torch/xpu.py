"""`torch.xpu`: Intel's GPU, which programs of PyTorch ask for; OPENCL is the device here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilegrad.torch.absent import absent
from tilegrad.torch.random import manual_seed

__all__ = ["device_count", "is_available", "manual_seed"]


def is_available() -> bool:
    """False: no tensor is on `xpu`."""
    return False


def device_count() -> int:
    """None of them."""
    return 0


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        raise AttributeError(absent("torch.xpu", name, __all__), name=name)
