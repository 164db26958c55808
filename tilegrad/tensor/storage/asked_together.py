"""Several tensors that are asked for at once: one run computes all whose calls wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilegrad.tensor.handle.waiting import this_thread
from tilegrad.tensor.storage.memory import is_stored
from tilegrad.tensor.storage.segments import may_run, settle

__all__ = ["settle_together"]


def settle_together(tensors: Sequence[Any], compute: Callable[[Sequence[Any]], None]) -> bool:
    """As `segments.settle`, of several tensors by one run; whether all of them wait or are memory.
    Tensors that the run has left, as the host has computed a part, have a run of their own.
    """
    pool = this_thread.pool
    waiting: list[Any] = []
    for tensor in tensors:
        call = tensor._call
        if call is None:
            if not is_stored(tensor._node) and tensor._has_elements():
                return False
        elif not may_run(tensor, call):
            return False
        elif call.value is None:
            waiting.append(tensor)
    pool.together = (*[each._call for each in waiting],)
    try:
        for tensor in waiting:
            if tensor._call is not None and not settle(tensor, compute):
                return False
    finally:
        pool.together = ()
    return True
