"""NumPy arrays become memory of the device when the tensor is made.

The array is copied in any case, as its owner may write to it. A small one is copied to where it is
needed, so the tensor is memory from the start: no node says that it has to be copied, and a loop
that makes a tensor of new data at each step has equal leaves at each step. Large arrays, files, and
whatever somebody wants to see (a capture, `DEBUG=2`, NOOPT) stay copies that a run makes.
"""

from __future__ import annotations

import time
from typing import Any

from tilegrad.base.config import current_config
from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.origin import call_site, composing
from tilegrad.device.disk import is_file
from tilegrad.device.registry import Device
from tilegrad.engine.run import report
from tilegrad.ir.op import Ops
from tilegrad.runtime.buffer import over, size_class
from tilegrad.tensor.handle.waiting import Value, stands_on_memory
from tilegrad.tensor.storage.writes import postpones_calls

__all__ = ["upload"]

# More takes longer to copy than the nodes of a copy take to make.
_MOST_BYTES = 1 << 16
# Elements of an integer array in memory that are checked where it is an index or a label
# (`tensor.storage.known`).
_MOST_INDICES = 1 << 10
# By NumPy's dtype.
_dtypes: dict[Any, DType] = {}


def upload(tensor: Any, array: Any, device: str) -> bool:
    """Let `tensor`, which is nothing yet, be memory of `device` with the values of a NumPy array;
    whether it is.
    """
    kind = array.dtype
    dtype = _dtypes.get(kind) or _plain(kind)
    size, shape = array.size, array.shape
    if dtype is None or not size or not shape or array.nbytes > _MOST_BYTES:
        return False
    if size > _MOST_INDICES and not dtype.is_float:
        return False
    if (
        device == "HOST"
        or not postpones_calls()
        or is_file(device)
        or not Device.is_built_in(device)
    ):
        return False
    switches = current_config()
    if switches.DEBUG >= 2 or switches.CHECK:
        return False
    start = time.perf_counter()
    allocator = Device[device].allocator
    nbytes = array.nbytes
    block = size_class(nbytes)
    handles = allocator.allocate_all([block])
    if handles is None:
        return False
    (buffer,) = over(allocator, [(size, dtype, nbytes, block)], handles)
    allocator.runtime.copy_in(handles[0], memoryview(array.tobytes()))
    report.count(0, nbytes, time.perf_counter() - start, kernels=0)
    moves = () if len(shape) == 1 else ((Ops.RESHAPE, shape, shape),)
    # Another thread may look at the tensor as soon as it stands on memory.
    tensor.device = device
    stands_on_memory(tensor, Value(buffer), moves, dtype, shape, (composing.entry or call_site(),))
    return True


def _plain(kind: Any) -> DType | None:
    """The dtype of a NumPy array in the machine's own order of bytes, if tensors have it."""
    found: DType | None = getattr(dtypes, kind.name, None) if kind.isnative else None
    if found not in dtypes.all or found is dtypes.bfloat16 or found in dtypes.fp8s:
        return None
    _dtypes[kind] = found
    return found
