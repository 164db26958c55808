"""New memory of a device with a copy of data of the host."""

from __future__ import annotations

from typing import Any

from tilegrad.base.dtype import DType
from tilegrad.device.registry import Device
from tilegrad.runtime.allocator import size_class
from tilegrad.runtime.buffer import Buffer, over

__all__ = ["new_memory"]


def new_memory(data: Any, dtype: DType, size: int, device: str = "CPU") -> Buffer | None:
    """Memory of `size` elements with a copy of `data`, an array or its bytes in row-major order;
    None where there is no room, or the data are no such elements.
    """
    nbytes = size * dtype.itemsize
    raw = memoryview(data if isinstance(data, (bytes, memoryview)) else _bytes_of(data))
    if not size or raw.nbytes != nbytes:
        return None
    allocator = (Device.at_hand(device) or Device[device]).allocator
    block = size_class(nbytes)
    handles = allocator.allocate_all([block])
    if handles is None:
        return None
    (buffer,) = over(allocator, [(size, dtype, nbytes, block)], handles)
    allocator.runtime.copy_in(handles[0], raw)
    return buffer


def _bytes_of(array: Any) -> Any:
    """The bytes of an array in row-major order; a copy only where they lie in another one."""
    if not array.flags.c_contiguous:
        return array.tobytes()
    return array.reshape(-1).view("uint8").data
