"""`torch.mps`: Apple's GPU, which programs of PyTorch ask for; METAL is the device here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilegrad.torch.absent_hints import refusing
from tilegrad.torch.random import manual_seed

__all__ = ["device_count", "is_available", "manual_seed"]


def is_available() -> bool:
    """False: no tensor is on `mps`."""
    return False


def device_count() -> int:
    """None of them."""
    return 0


if not TYPE_CHECKING:
    __getattr__ = refusing(__name__)
