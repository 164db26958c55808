"""Begin and end of a write to a part of a small tensor: a constant becomes memory, and `x[i] += 1`,
which Python carries out as an update of a view and a write of it, is one write.
"""

from __future__ import annotations

import math
from typing import Any

from tilegrad.tensor.handle.aliases import same_storage
from tilegrad.tensor.handle.core import Core
from tilegrad.tensor.storage import host_memory
from tilegrad.tensor.storage.host_evaluators import DTYPES
from tilegrad.tensor.views.in_memory import view_moves
from tilegrad.tensor.writing.memory_writes import may_write, own_memory

__all__ = ["become_memory", "has_written"]

# Larger tensors, in bytes, are written to by kernels.
_MOST_BYTES = 1 << 14


def become_memory(tensor: Any) -> None:
    """Let a small constant be memory before it is first written to: from then on it is written to
    as any tensor is (`rows = torch.zeros(8, 3); rows[i] = row`).
    """
    is_constant = tensor._call is None and tensor._node.is_constant
    if is_constant and _is_small(tensor) and may_write(tensor):
        own_memory(tensor, _MOST_BYTES)


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


def _is_small(tensor: Any) -> bool:
    """Whether the host writes to a tensor."""
    is_plain = tensor.dtype in DTYPES and all(size.__class__ is int for size in tensor.shape)
    return is_plain and math.prod(tensor.shape) * tensor.dtype.itemsize <= _MOST_BYTES
