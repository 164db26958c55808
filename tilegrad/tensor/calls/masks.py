"""Small masks on the host: the positions where they are true, whose number is a size.

A mask that waits is computed first. The positions or ranks made from it are memory, as all that the
host computes (`tensor.calls.uploads`), so that another mask in the next step makes an equal graph
over other leaves.
"""

from __future__ import annotations

from types import CodeType, FrameType
from typing import Any

from tilegrad.base.dtype import dtypes
from tilegrad.base.origin import call_site, composing
from tilegrad.engine.realize import realize as engine
from tilegrad.ir.op import Ops
from tilegrad.tensor.calls.counted import small_values
from tilegrad.tensor.calls.uploads import are_few, uploaded
from tilegrad.tensor.handle.core import device_of
from tilegrad.tensor.handle.replaced import stands_on_memory
from tilegrad.tensor.handle.waiting import Moves, Value, this_thread
from tilegrad.tensor.storage.host_readable import known_elements
from tilegrad.tensor.storage.host_runs import elements_of, evaluated, may_compute
from tilegrad.tensor.storage.new_memory import new_memory

__all__ = ["mask_values", "picked_by_host", "picked_now", "ranks_of_true", "true_columns"]

_exclusive = engine.exclusive()

# Elements of a mask that the host looks through in the time of a kernel.
_MOST_ELEMENTS = 1 << 16


def mask_values(mask: Any) -> Any | None:
    """The values of a small mask as an array of bools, as `small_values`."""
    call = mask._call
    if call is not None and call.value is None and mask.dtype is dtypes.bool and mask.ndim:
        found = evaluated(mask)
        if found is not None:
            return found
    bits = small_values(mask, _MOST_ELEMENTS)
    return None if bits is None else bits != 0


def picked_now(tensor: Any, mask: Any) -> Any | None:
    """The elements of `tensor` where a mask of its first axes is true, in memory: elements known
    here are copied by the host in less time than it takes to say where they are. None where kernels
    pick them, or a gradient may be asked for.
    """
    if not tensor._at_once or tensor._requires_grad or tensor._symbols:
        return None
    values = mask_values(mask) if device_of(mask) == device_of(tensor) else None
    bits = None if values is None else known_elements(tensor)
    if bits is None:
        return None
    found = bits[values]
    if not found.size or not are_few(found.size, tensor.dtype):
        return None
    made = uploaded(tensor, found, tensor.dtype)
    if made is not None and tensor._requires_grad is False:
        made._requires_grad = False
    return made


def picked_by_host(tensor: Any, mask: Any, frame: FrameType, code: CodeType) -> Any | None:
    """As `picked_now`, of a few elements in memory or computed by the host, for `code` that `frame`
    calls. Anything else is None.
    """
    if tensor._requires_grad or mask._requires_grad or not tensor._at_once:
        return None
    if (mask._call or mask._node).dtype is not dtypes.bool:
        return None
    if this_thread.stand_ins or not may_compute():
        return None
    with _exclusive:
        values = elements_of(mask)
        if values is None or not values.shape:
            return None
        array = elements_of(tensor)
        if array is None or array.shape[: values.ndim] != values.shape:
            return None
        found = array[values]
        dtype = (tensor._call or tensor._node).dtype
        if not found.size or not are_few(found.size, dtype):
            return None
        buffer = new_memory(found, dtype, found.size)
    if buffer is None:
        return None
    made = object.__new__(tensor.__class__)
    made._device = tensor._device
    shape = found.shape
    moves: Moves = () if len(shape) == 1 else ((Ops.RESHAPE, shape, shape),)
    entry = composing.entry or call_site(frame, code)
    stands_on_memory(made, Value(buffer), moves, dtype, shape, (entry,))
    if tensor._requires_grad is False:
        made._requires_grad = False
    return made


def true_columns(mask: Any) -> list[Any] | None:
    """For each axis of a mask, where along it the true elements are, as int32; None where that is
    not known here, or nothing is true.
    """
    values = mask_values(mask) if mask.ndim and mask.dtype is dtypes.bool else None
    if values is None or not values.any():
        return None
    found = [uploaded(mask, each.astype("int32"), dtypes.int32) for each in values.nonzero()]
    return None if any(each is None for each in found) else found


def ranks_of_true(values: Any) -> Any:
    """For each element of a mask how many true ones are before it, as int32."""
    import numpy

    ranks: Any = numpy.cumsum(values.reshape(-1), dtype=numpy.int32)
    return (ranks - values.reshape(-1)).reshape(values.shape)
