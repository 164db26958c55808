"""Assignments that wait, as calls do (`tensor.handle.waiting`).

A small tensor that shares its storage with no other takes a value that waits by standing on other
memory after the next run. What it had goes back, or stays with whoever looks at it. So no reader
has to come before the write, and a segment (`tensor.storage.segments`) consists of values alone.
Memory that others know by its address is written in place, by nodes: that of a view, of a file or
of a capture, and what was given away.
"""

from __future__ import annotations

import weakref
from types import MethodType
from typing import Any

from tilegrad.base.config import current_config
from tilegrad.base.dtype import DType
from tilegrad.base.errors import InternalError
from tilegrad.base.origin import call_site, composing
from tilegrad.base.recent import Recent
from tilegrad.device.disk import is_file
from tilegrad.engine.run import memory as store
from tilegrad.engine.run.run import record_of_thread
from tilegrad.ir.args import CustomArg
from tilegrad.ir.op import Ops
from tilegrad.ir.templates import Template, record
from tilegrad.ir.uop import UOp
from tilegrad.tensor.handle.aliases import is_alone
from tilegrad.tensor.handle.living import leave
from tilegrad.tensor.handle.sizes import NO_VARIABLES
from tilegrad.tensor.handle.tracing import transforms
from tilegrad.tensor.handle.waiting import is_only_thread, next_number, postpone, this_thread
from tilegrad.tensor.storage.memory import base_of, elements

__all__ = ["can_replace", "can_wait", "is_hot", "is_put_off", "postpones_calls", "put_off"]

# A larger tensor is written in place: its memory counts twice else, and Python's time does not.
_MOST_BYTES = 1 << 20
# The first assignments to a tensor, this many, are made in place.
_COLD = 4
# Operands of calls since the last read that are graphs of nodes.
_MOST_GRAPHS = 1
# By the identity of a tensor that is alive, how often it was assigned to so far.
_times: dict[int, tuple[weakref.ref[Any], int]] = {}
_copies: Recent[tuple[Any, ...], tuple[int, Template]] = Recent(lambda: 1024)


def postpones_calls() -> bool:
    """Whether calls of this thread wait for a read: who records sees what runs, and a transformed
    function makes a graph.
    """
    config = current_config()
    return bool(
        config.SEGMENTS
        and config.TEMPLATES == 1
        and not config.NOOPT
        and not transforms.depth
        and record_of_thread() is None
    )


def can_wait(tensor: Any, value: Any) -> bool:
    """Whether `tensor` can take `value` after the next run, without its memory being written to."""
    call, own = value._call, tensor._call
    pool = this_thread.pool
    if not pool.trains:
        pool.trains = is_only_thread()
    if call is None or call.pool is not pool or not postpones_calls():
        return False
    if pool.graphs > _MOST_GRAPHS:
        # The read will need nodes. Then a plan that writes in place is the one that is known.
        return False
    if not is_only_thread():
        # Another thread that has tensors may assign to the same one, and sees it in memory.
        pool.trains = False
        return False
    if tensor is value or tensor.device != value.device or tensor._symbols:
        return False
    if tensor.shape != call.shape or tensor.dtype is not call.dtype:
        return False
    if elements(call.shape) * call.dtype.itemsize > _MOST_BYTES:
        return False
    if not (tensor._is_leaf if tensor._requires_grad else not value._requires_grad):
        return False
    if own is not None and own.pool is not pool:
        return False
    return _is_unknown_to_others(tensor) and (is_hot(tensor) or _count(tensor))


def is_hot(tensor: Any) -> bool:
    """Whether a tensor was assigned to so often that a loop is at work. The first steps of a loop
    write in place, as a program of few steps does: nothing is compiled for its second step.
    """
    return _times.get(id(tensor), (None, 0))[1] >= _COLD


def _count(tensor: Any) -> bool:
    """Count an assignment to a tensor; False."""
    number = id(tensor)
    known = _times.get(number)
    if known is None:
        known = weakref.ref(tensor, MethodType(_times.pop, number)), 0
    _times[number] = known[0], known[1] + 1
    return False


def can_replace(tensor: Any, value: Any) -> bool:
    """Whether `tensor` may stand on the node of `value` instead of taking its values in place."""
    return (
        postpones_calls()
        and tensor.device == value.device
        and tensor.dtype is value.dtype
        and tensor.shape == value.shape
        and not tensor._requires_grad
        and not tensor._symbols
        and _is_unknown_to_others(tensor)
    )


def _is_unknown_to_others(tensor: Any) -> bool:
    """Whether no view, and nobody who looks for it by its address, has the memory of `tensor`."""
    if tensor._alias is not None and (tensor._alias[1] != 0 or not is_alone(tensor)):
        return False
    if is_file(tensor.device):
        return False
    if tensor._call is not None:
        return True
    base = base_of(tensor._node)
    if base.op is not Ops.BUFFER:
        return True
    if store.is_overwritten(base):
        return False
    buffer = store.buffer_of(base)
    return buffer.is_private and not (buffer.base or buffer).is_watched


def put_off(tensor: Any, value: Any) -> None:
    """Let `tensor` take `value`, which `can_wait` allows, after the next run."""
    own, call = tensor._call, value._call
    node = tensor._node if own is None else own.node
    number, template = _copy(call.shape, call.dtype, value.device, bool(value._requires_grad))
    entry = composing.entry or call_site()
    if node is not None:
        leave(tensor, node)
        del tensor._node
    written = postpone(tensor, template, template.results[0], number, (call,), (entry,))
    written.is_write = True
    tensor._symbols = NO_VARIABLES
    tensor._previous, tensor._is_shared, tensor._alias = (), False, None


def is_put_off(tensor: Any) -> bool:
    """Whether `tensor` takes its value after the next run."""
    call = tensor._call
    return call is not None and call.is_write and call.node is None and call.value is None


def _copy(
    shape: tuple[int, ...], dtype: DType, device: str, is_detached: bool
) -> tuple[int, Template]:
    """The number and the template of a copy in memory of its own. It names its device, as an
    assignment does by its memory: the schedule joins such kernels (`schedule.order`).
    """
    key = shape, dtype, device, is_detached
    found = _copies.get(key)
    if found is None:
        value = UOp(Ops.CUSTOM, dtype, (), CustomArg("value", shape, _no_call))
        source = UOp(Ops.DETACH, dtype, (value,)) if is_detached else value
        template = record([UOp(Ops.CONTIGUOUS, dtype, (source,), device)], [value])
        assert template is not None
        found = _copies.put(key, (next_number(), template))
    return found


def _no_call(data: Any) -> memoryview:
    raise InternalError("a stand-in of a value was run")
