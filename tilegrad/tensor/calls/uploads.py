"""NumPy arrays, and the lists of `tilegrad.torch`, become memory when the tensor is made.

An array is copied in any case, as its owner may write to it. It is copied to where it is needed, so
the tensor is memory from the start: no node says that it has to be copied, a loop that makes a
tensor of new data at each step has equal leaves at each step, and the first step of a loop over one
array is the graph of the others. Large arrays for devices with memory of their own, files, and
whatever somebody wants to see (a capture, `DEBUG=2`, NOOPT) stay copies that a run makes.
"""

from __future__ import annotations

import math
import sys
import time
from typing import Any

from tilegrad.base.config import current_config
from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.origin import call_site, composing
from tilegrad.device.disk import is_file
from tilegrad.device.registry import Device
from tilegrad.engine.run import report
from tilegrad.ir.op import Ops
from tilegrad.runtime.buffer import Buffer
from tilegrad.tensor.handle.core import device_of
from tilegrad.tensor.handle.replaced import stands_on_memory
from tilegrad.tensor.handle.waiting import Moves, Value
from tilegrad.tensor.storage import new_memory as memory
from tilegrad.tensor.storage.host_readable import note_uploaded
from tilegrad.tensor.storage.writes import postpones_calls

__all__ = [
    "are_few", "can_upload", "is_at_once", "moves_to", "new_memory", "upload", "upload_bytes",
    "uploaded", "uploaded_bytes",
]  # fmt: skip

# Bytes of an array that is copied at once to a device with memory of its own; a larger one may
# never be needed there as a whole, or on another device.
_MOST_BYTES = 1 << 16
# Integers that are checked in any memory where they are indices or labels
# (`tensor.storage.host_readable`).
_MOST_INDICES = 1 << 10
# By NumPy's dtype.
_dtypes: dict[Any, DType] = {}
# NumPy converts as a kernel does: exactly, or rounded to the nearest number once.
_WIDER = ("bool", "uint8", "int16", "int32", "int64", "float32", "float64")
_CONVERTED = frozenset({
    *((getattr(dtypes, one), getattr(dtypes, other))
      for at, one in enumerate(_WIDER) for other in _WIDER[at + 1 :]),
    (dtypes.float64, dtypes.float32),
})  # fmt: skip


def upload(tensor: Any, array: Any, device: str, wanted: DType | None = None) -> bool:
    """Let `tensor`, which is nothing yet, be memory of `device` with the values of a NumPy array,
    in the dtype `wanted` if one is; whether it is.
    """
    kind = array.dtype
    dtype = _dtypes.get(kind) or _plain(kind)
    if dtype is None or not array.shape or not array.size:
        return False
    if wanted is not None and wanted is not dtype:
        if (dtype, wanted) not in _CONVERTED or not is_at_once(device, array.size, dtype):
            return False
        with sys.modules["numpy"].errstate(over="ignore"):
            dtype, array = wanted, array.astype(wanted.name)
    if not is_at_once(device, array.size, dtype) or not can_upload(device):
        return False
    return upload_bytes(tensor, array, dtype, array.shape, device)


def upload_bytes(tensor: Any, data: Any, dtype: DType, shape: tuple[int, ...], device: str) -> bool:
    """As `upload`, where `can_upload`, of `data`: an array, or its bytes in row-major order."""
    buffer = new_memory(data, dtype, math.prod(shape), device)
    if buffer is None:
        return False
    if not dtype.is_float:
        note_uploaded(buffer)
    # Another thread may look at the tensor as soon as it stands on memory.
    tensor.device = device
    entry = composing.entry or call_site()
    stands_on_memory(tensor, Value(buffer), moves_to(shape), dtype, shape, (entry,))
    return True


def new_memory(data: Any, dtype: DType, size: int, device: str) -> Buffer | None:
    """Memory of `device`, where `can_upload`, with a copy of `data`, as for `upload_bytes`; None
    where there is no room. The copy is counted.
    """
    start = time.perf_counter()
    buffer = memory.new_memory(data, dtype, size, device)
    if buffer is not None:
        report.count(0, buffer.nbytes, time.perf_counter() - start, kernels=0)
    return buffer


def moves_to(shape: tuple[int, ...]) -> Moves:
    """The movement ops from flat memory to a tensor of `shape`."""
    return () if len(shape) == 1 else ((Ops.RESHAPE, shape, shape),)


def uploaded(like: Any, array: Any, dtype: DType) -> Any | None:
    """An array as a tensor in memory, on the device of the tensor `like`, of its class."""
    made = object.__new__(like.__class__)
    is_made = upload_bytes(made, array, dtype, array.shape, device_of(like))
    return made if is_made else None


def uploaded_bytes(like: Any, data: bytes, dtype: DType, shape: tuple[int, ...]) -> Any | None:
    """As `uploaded`, of the bytes of an array of `shape`, in row-major order; None where these may
    be no memory at once, too.
    """
    device = device_of(like)
    if not is_at_once(device, math.prod(shape), dtype) or not can_upload(device):
        return None
    made = object.__new__(like.__class__)
    return made if upload_bytes(made, data, dtype, shape, device) else None


def is_at_once(device: str, size: int, dtype: DType) -> bool:
    """Whether an array of `size` elements is copied to `device` when the tensor is made: of a
    processor any, as its memory is the host's and a copy is due anyway.
    """
    return device == "CPU" or are_few(size, dtype)


def are_few(size: int, dtype: DType) -> bool:
    """Whether `size` elements are copied in less time than nodes of a copy take to make, and can be
    looked at where they are checked.
    """
    return size * dtype.itemsize <= _MOST_BYTES and (size <= _MOST_INDICES or dtype.is_float)


def can_upload(device: str) -> bool:
    """Whether new memory of `device` may be written here and now, as no watcher is to see a run."""
    if (
        device == "HOST"
        or not postpones_calls()
        or is_file(device)
        or not Device.is_built_in(device)
    ):
        return False
    switches = current_config()
    return switches.DEBUG < 2 and not switches.CHECK


def _plain(kind: Any) -> DType | None:
    """The dtype of a NumPy array in the machine's own order of bytes, if tensors have it."""
    found: DType | None = getattr(dtypes, kind.name, None) if kind.isnative else None
    if found not in dtypes.all or found is dtypes.bfloat16 or found in dtypes.fp8s:
        return None
    _dtypes[kind] = found
    return found
