"""Values in memory that many tensors take at once: the weights of a file, those of another model.

As assignments they would be nodes or calls, found again and run by a plan, for bytes that only
have to be copied. Each tensor stands on new memory with a copy of its value, as after a run; who
looks at what it was keeps that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilegrad.engine.realize.realize import exclusive
from tilegrad.tensor.calls.uploads import can_upload, moves_to, new_memory
from tilegrad.tensor.handle.core import device_of
from tilegrad.tensor.handle.waiting import Value
from tilegrad.tensor.storage import writes
from tilegrad.tensor.storage.host_readable import known_elements
from tilegrad.tensor.writing.undo import note

__all__ = ["copy_at_once"]


def copy_at_once(pairs: Sequence[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Let tensors take values, where that needs no run; the pairs (tensor, value) that are left.

    All values are copied before a tensor takes one, as a value may be another one of the tensors.
    """
    left: list[tuple[Any, Any]] = []
    copies: list[tuple[Any, Any]] = []
    for tensor, value in pairs:
        device, buffer = device_of(tensor), None
        if can_upload(device) and writes.can_wait(tensor, value):
            array = known_elements(value)
            if array is not None:
                buffer = new_memory(array, tensor.dtype, array.size, device)
        if buffer is None:
            left.append((tensor, value))
        else:
            copies.append((tensor, buffer))
    written = {id(tensor._alias[0]) for tensor, _ in copies if tensor._alias is not None}
    if any(value._alias is not None and id(value._alias[0]) in written for _, value in left):
        # It would see what is written.
        return list(pairs)
    with exclusive():
        for tensor, buffer in copies:
            for each in writes.seen_by(tensor):
                note(each)
            writes.take_memory(tensor, Value(buffer), moves_to(tensor.shape))
    return left
