"""`torch.mps`: Apple's GPU, which programs of PyTorch ask for; METAL is the device here."""

from __future__ import annotations

from tilegrad.torch.absent_gpus import (
    device_count,
    empty_cache,
    is_available,
    manual_seed_all,
    max_memory_allocated,
    memory_allocated,
    memory_reserved,
    refuse_others,
    synchronize,
)
from tilegrad.torch.random import manual_seed

__all__ = [
    "device_count", "empty_cache", "is_available", "manual_seed", "manual_seed_all",
    "max_memory_allocated", "memory_allocated", "memory_reserved", "synchronize",
]  # fmt: skip

refuse_others(__name__)
