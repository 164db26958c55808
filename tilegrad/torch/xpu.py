"""`torch.xpu`: Intel's GPU, which programs of PyTorch ask for; OPENCL is the device here.

It has the names of `torch.mps`.
"""

from __future__ import annotations

from tilegrad.torch.absent_gpus import refuse_others
from tilegrad.torch.mps import *

__all__ = [
    "device_count", "empty_cache", "is_available", "manual_seed", "manual_seed_all",
    "max_memory_allocated", "memory_allocated", "memory_reserved", "synchronize",
]  # fmt: skip

refuse_others(__name__)
