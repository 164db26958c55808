"""What a write to a part of a small tensor begins and ends with: a constant becomes memory, and
`x[i] += 1`, which Python carries out as an update of a view and a write of it, is one write.
"""

from __future__ import annotations

import math
from typing import Any

from tilegrad.tensor.calls.uploads import can_upload, uploaded
from tilegrad.tensor.handle.aliases import is_alone, same_storage
from tilegrad.tensor.handle.core import Core, device_of
from tilegrad.tensor.handle.replaced import exchange
from tilegrad.tensor.handle.threads import is_only_thread
from tilegrad.tensor.handle.waiting import this_thread
from tilegrad.tensor.storage import host_memory, writes
from tilegrad.tensor.storage.host_evaluators import DTYPES
from tilegrad.tensor.storage.host_readable import known_elements
from tilegrad.tensor.views.in_memory import view_moves

__all__ = ["become_memory", "has_written"]

# Larger tensors, in bytes, are written to by kernels.
_MOST_BYTES = 1 << 14


def become_memory(tensor: Any) -> None:
    """Let a small constant be memory before it is first written to: from then on it is written to
    as any tensor is (`rows = torch.zeros(8, 3); rows[i] = row`).
    """
    if tensor._call is not None or not tensor._node.is_constant:
        return
    if (tensor._alias is None or tensor._alias[1] == 0) and is_alone(tensor) and _may_take(tensor):
        array = _copied(tensor)
        if array is not None:
            _take(tensor, array)


def has_written(tensor: Any, key: Any, value: Any) -> bool:
    """Whether `value` is a view of the part of `tensor` that `key` picks, as after `x[key] += 1`,
    which has updated the view before it sets the part to it.
    """
    if not isinstance(value, Core) or value is tensor or not same_storage(tensor, value):
        return False
    own, call = tensor._call, value._call
    if own is None or call is None or own.value is None or call.value is not own.value:
        return False
    if tensor._alias[1] != 0 or call.inputs is not None:
        return False
    count = len(own.moves)
    moves = view_moves(key, own.shape)
    if moves is not None:
        return call.moves == (*own.moves, *moves)
    if math.prod(own.shape) * tensor.dtype.itemsize > _MOST_BYTES:
        return False
    import numpy

    indices: Any = numpy.arange(math.prod(own.shape)).reshape(own.shape)
    seen = indices
    for op, arg, _ in call.moves[count:]:
        seen = host_memory.moved(seen, op, arg)
    try:
        return call.moves[:count] == own.moves and numpy.array_equal(indices[key], seen)
    except (IndexError, TypeError):
        return False


def _may_take(tensor: Any) -> bool:
    """Whether nobody would see that a tensor stands on other memory."""
    call = tensor._call
    return (call is None or call.value is not None) and _is_fit(tensor)


def _is_fit(tensor: Any) -> bool:
    """As `_may_take`, of a tensor whose elements are known or may be computed now."""
    call = tensor._call
    if tensor._requires_grad or tensor._symbols or tensor.dtype not in DTYPES:
        return False
    if call is not None and call.pool is not this_thread.pool:
        return False
    if not all(size.__class__ is int for size in tensor.shape) or not can_upload(device_of(tensor)):
        return False
    nbytes = math.prod(tensor.shape) * tensor.dtype.itemsize
    return 0 < nbytes <= _MOST_BYTES and is_only_thread() and writes.is_memory_unknown(tensor)


def _copied(tensor: Any) -> Any | None:
    """The elements of a tensor, if they are known, as an array that nobody else has."""
    found = known_elements(tensor)
    return None if found is None else found.copy().view(tensor.dtype.name)


def _take(tensor: Any, array: Any) -> bool:
    """Let a tensor stand on memory with the values of `array`."""
    made = uploaded(tensor, array, tensor.dtype)
    if made is None:
        return False
    alias, requires_grad = tensor._alias, tensor._requires_grad
    exchange(tensor, made)
    tensor._alias, tensor._requires_grad = alias, requires_grad
    made._alias = None
    return True
