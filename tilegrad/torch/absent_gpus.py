"""GPU functions of `torch.cuda`, `torch.xpu` and `torch.mps`: for programs that ask first whether
there is a GPU, and an error where they do not ask.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from tilegrad.base.errors import DeviceError
from tilegrad.torch.absent_hints import refusing
from tilegrad.torch.random import manual_seed

__all__ = [
    "Event", "NoGPUError", "Stream", "device_count", "empty_cache", "is_available",
    "manual_seed_all", "max_memory_allocated", "memory_allocated", "memory_reserved",
    "refuse_others", "synchronize",
]  # fmt: skip


class NoGPUError(DeviceError, AssertionError):
    """A GPU was asked for by a name of PyTorch's; AssertionError as PyTorch raises it."""


_FUNCTIONS = frozenset([
    "can_device_access_peer", "change_current_allocator", "current_allocated_memory",
    "current_blas_handle", "current_device", "current_stream", "default_stream",
    "driver_allocated_memory", "get_device_capability", "get_device_name",
    "get_device_properties", "get_rng_state", "graph", "ipc_collect", "is_current_stream_capturing",
    "list_gpu_processes", "make_graphed_callables", "mem_get_info", "memory_snapshot",
    "memory_summary", "recommended_max_memory", "reset_accumulated_memory_stats",
    "reset_max_memory_allocated", "reset_max_memory_reserved", "reset_peak_memory_stats", "seed",
    "seed_all", "set_device", "set_per_process_memory_fraction", "set_rng_state",
    "set_rng_state_all", "set_stream", "set_sync_debug_mode", "stream", "temperature",
    "utilization",
])  # fmt: skip
_CLASSES = frozenset([
    "CUDAGraph", "DoubleTensor", "Event", "ExternalStream", "FloatTensor", "HalfTensor",
    "IntTensor", "LongTensor", "Stream", "StreamContext", "device", "device_of",
])  # fmt: skip


def refuse_others(module: str) -> None:
    """Let `module`, of GPUs, answer the names that PyTorch's has by a function or class that raises
    NoGPUError when it is called; other names are refused.
    """
    otherwise = refusing(module)

    def find(name: str) -> Any:
        whole = f"{module.removeprefix('tilegrad.')}.{name}"
        if name in _FUNCTIONS:
            return _function(whole)
        if name in _CLASSES:
            return _class(whole)
        otherwise(name)

    vars(sys.modules[module])["__getattr__"] = find


def _refuse(name: str) -> NoReturn:
    raise NoGPUError(
        f"{name}: there is no GPU here so far",
        remedy="torch.cuda.is_available() says so beforehand",
    )


@functools.lru_cache(maxsize=256)
def _function(name: str) -> Callable[..., NoReturn]:
    def absent(*args: Any, **options: Any) -> NoReturn:
        _refuse(name)

    absent.__name__ = absent.__qualname__ = name.rpartition(".")[2]
    absent.__doc__ = "Raises NoGPUError."
    return absent


@functools.lru_cache(maxsize=256)
def _class(name: str) -> type:
    def make(self: object, *args: Any, **options: Any) -> None:
        _refuse(name)

    body = {"__init__": make, "__doc__": "Making one raises NoGPUError.", "__module__": __name__}
    return type(name.rpartition(".")[2], (), body)


# Events and streams of all kinds of GPU.
Event, Stream = _class("torch.Event"), _class("torch.Stream")


# The functions of `torch.mps` and `torch.xpu`, for GPUs that are never there.


def is_available() -> bool:
    """False: no tensor is on `mps` or `xpu`."""
    return False


def device_count() -> int:
    """Zero: there are no GPUs here."""
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
