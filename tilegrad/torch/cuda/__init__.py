"""`torch.cuda`: whether there is a GPU, and what is said where there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilegrad.device.registry import Device
from tilegrad.torch.absent import refusing
from tilegrad.torch.cuda import amp
from tilegrad.torch.devices import has_gpu
from tilegrad.torch.random import manual_seed

__all__ = [
    "amp", "device_count", "empty_cache", "is_available", "manual_seed", "manual_seed_all",
    "synchronize",
]  # fmt: skip


def is_available() -> bool:
    """Whether there is a GPU that can be used."""
    return has_gpu()


def device_count() -> int:
    """The number of GPUs."""
    return int(is_available())


def manual_seed_all(seed: int) -> None:
    """As `manual_seed`."""
    manual_seed(seed)


def empty_cache() -> None:
    """Nothing: memory that is not used is given back when it is short."""


def synchronize(device: Any = None) -> None:
    """Wait until every launch has ended."""
    Device[Device.DEFAULT].runtime.synchronize()


if not TYPE_CHECKING:
    __getattr__ = refusing(__name__)
