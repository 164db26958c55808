"""`torch.mps`: Apple's GPU, which programs of PyTorch ask for; METAL is the device here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilegrad.torch.absent_gpus import or_refusing
from tilegrad.torch.random import manual_seed

__all__ = [
    "device_count", "empty_cache", "is_available", "manual_seed", "manual_seed_all",
    "max_memory_allocated", "memory_allocated", "memory_reserved", "synchronize",
]  # fmt: skip


def is_available() -> bool:
    """False: no tensor is on `mps`."""
    return False


def device_count() -> int:
    """None of them."""
    return 0


def manual_seed_all(seed: int) -> None:
    """As `manual_seed`."""
    manual_seed(seed)


def empty_cache() -> None:
    """Nothing: no memory is held."""


def memory_allocated(device: Any = None) -> int:
    """The bytes that tensors hold: 0."""
    return 0


max_memory_allocated = memory_reserved = memory_allocated


def synchronize(device: Any = None) -> None:
    """Nothing to wait for."""


if not TYPE_CHECKING:
    __getattr__ = or_refusing(__name__)
