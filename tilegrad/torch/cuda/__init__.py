"""`torch.cuda`: whether there is a GPU, and what is said where there is none."""

from __future__ import annotations

from typing import Any

from tilegrad.device.registry import Device
from tilegrad.torch.absent_gpus import refuse_others
from tilegrad.torch.configuration import OutOfMemoryError
from tilegrad.torch.cuda import amp
from tilegrad.torch.device_names import has_gpu
from tilegrad.torch.module_aliases import also_known
from tilegrad.torch.random import manual_seed

__all__ = [
    "OutOfMemoryError", "amp", "device_count", "empty_cache", "get_arch_list", "get_rng_state_all",
    "is_available", "is_bf16_supported", "is_initialized", "is_tf32_supported", "manual_seed",
    "manual_seed_all", "max_memory_allocated", "max_memory_reserved", "memory_allocated",
    "memory_reserved", "memory_stats", "synchronize",
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


def memory_allocated(device: Any = None) -> int:
    """The bytes of a GPU that tensors hold: 0, as PyTorch says where there is none."""
    return 0


max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated


def memory_stats(device: Any = None) -> dict[str, Any]:
    """PyTorch's counts of the memory of a GPU: none."""
    return {}


def get_arch_list() -> list[str]:
    """The kinds of GPU that PyTorch's kernels were compiled for: none."""
    return []


def get_rng_state_all() -> list[Any]:
    """The states of the generators of GPUs: none, as `manual_seed` has one for all devices."""
    return []


def is_initialized() -> bool:
    """Whether a GPU is used."""
    return has_gpu()


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether a GPU computes in bfloat16."""
    return has_gpu()


is_tf32_supported = is_bf16_supported


def synchronize(device: Any = None) -> None:
    """Wait until every launch has ended."""
    Device[Device.DEFAULT].runtime.synchronize()


also_known(__name__, ("memory", "random"))

refuse_others(__name__)
