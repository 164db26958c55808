"""Assignments that wait, as calls do (`tensor.handle.waiting`).

A small tensor without views, but for aliases of all of it (`x.detach()`), takes a value that waits
by standing on other memory after the next run; the aliases are made anew. Its old memory is
released, or stays with those that look at it. So no reader has to come before the write, and a
segment (`tensor.storage.segments`) consists of values alone. Memory that others know by its address
is written in place, by nodes: that of a view, of a file or of a capture, and what was given away.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

from tilegrad.base.config import current_config
from tilegrad.base.dtype import DType
from tilegrad.base.errors import InternalError
from tilegrad.base.origin import Entry, call_site, composing
from tilegrad.base.recent import Recent
from tilegrad.device.disk import is_file
from tilegrad.engine.run import leaf_memory as store
from tilegrad.engine.run.run import record_of_thread
from tilegrad.ir.args import CustomArg
from tilegrad.ir.graph_templates import Template, record
from tilegrad.ir.op import Ops
from tilegrad.ir.placement import Group
from tilegrad.ir.uop import UOp
from tilegrad.tensor.handle.aliases import (
    aliases_of_all,
    is_alone,
    look,
    look_of_call,
    moves_to,
    times_detached,
)
from tilegrad.tensor.handle.core import Core
from tilegrad.tensor.handle.device import canonical
from tilegrad.tensor.handle.kinds import next_number
from tilegrad.tensor.handle.living import leave, older_leaves
from tilegrad.tensor.handle.replaced import exchange, postpone, stands_on_memory
from tilegrad.tensor.handle.size_arguments import NO_VARIABLES
from tilegrad.tensor.handle.threads import is_only_thread
from tilegrad.tensor.handle.tracing import transforms
from tilegrad.tensor.handle.waiting import Call, Input, Moves, Pool, Value, this_thread
from tilegrad.tensor.storage import running
from tilegrad.tensor.storage.failed_runs import has_failed
from tilegrad.tensor.storage.memory import (
    base_of,
    elements,
    has_assignment,
    is_stored,
    is_written,
    stored_below,
)
from tilegrad.tensor.storage.signatures import is_computed, waiting_calls

__all__ = [
    "are_waiting", "assignments_wait", "can_replace", "can_take_slice", "can_wait",
    "can_wait_for_results", "can_wait_for_slice", "earlier_leaf", "is_expanded",
    "is_memory_unknown", "is_ours", "is_put_off", "is_result", "is_worth_a_copy",
    "postpones_calls", "put_off", "realize_written", "run_with", "seen_by", "take", "take_memory",
    "take_over",
]  # fmt: skip

# A larger tensor is written in place: its memory counts twice else, and Python's time does not.
_MOST_BYTES = 1 << 20
# A write to a slice copies the whole tensor: beyond this number of bytes the copy takes longer than
# the Python that it saves, some 10 microseconds.
_MOST_BYTES_COPIED = 1 << 16
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
    return (
        tensor is not value
        and tensor.shape == value.shape
        and tensor.dtype is value.dtype
        and 0 < elements(value.shape) * value.dtype.itemsize <= _MOST_BYTES
        and is_ours(value)
        and tensor.device == value.device
        and _can_take(tensor, wants_grad=value._requires_grad)
    )


def can_wait_for_slice(tensor: Any, value: Any) -> bool:
    """Whether `tensor` can take a copy of itself with `value`, a number or a tensor, in a part of
    it after the next run.
    """
    if not is_worth_a_copy(tensor):
        return False
    wants_grad = False
    if isinstance(value, Core):
        if not is_ours(value) or tensor.device != value.device:
            return False
        wants_grad = bool(value._requires_grad)
    return _can_take(tensor, wants_grad=wants_grad)


def is_worth_a_copy(tensor: Any) -> bool:
    """Whether `tensor` is small enough to be copied as a part of it is written."""
    return bool(0 < elements(tensor.shape) * tensor.dtype.itemsize <= _MOST_BYTES_COPIED)


def is_result(tensor: Any) -> bool:
    """Whether `tensor` is the result of a call that waits, which is in no memory yet, and which no
    other tensor looks at: what is written to it makes another result of it.
    """
    call = tensor._call
    if call is None or call.value is not None or call.is_write or call.inputs is None:
        return False
    if call.pool is not this_thread.pool or tensor._requires_grad or tensor._symbols:
        return False
    if tensor._alias is not None:
        found = look_of_call(tensor)
        # The result of a method that ends with a reshape of its own is in order.
        if found is None or not found.is_in_order or not is_alone(tensor):
            return False
    return postpones_calls() and not is_file(tensor._device)


def can_take_slice(tensor: Any, value: Any) -> bool:
    """Whether `tensor`, which `is_result`, can take `value` in a part of it."""
    if not is_worth_a_copy(tensor):
        return False
    if not isinstance(value, Core):
        return True
    return is_ours(value) and tensor.device == value.device and not value._requires_grad


def can_wait_for_results(tensors: Sequence[Any]) -> bool:
    """Whether each of `tensors` can take a value of its shape that is no tensor's and requires no
    gradient after the next run.
    """
    for tensor in tensors:
        if not 0 < elements(tensor.shape) * tensor.dtype.itemsize <= _MOST_BYTES:
            return False
    pool = this_thread.pool
    if not _may_wait(pool):
        return False
    return all(_takes(tensor, pool, wants_grad=False) for tensor in tensors)


def is_ours(value: Any) -> bool:
    """Whether what a tensor is to take is no more than its graph, and no other thread's call."""
    call = value._call
    return not value._symbols and (call is None or call.pool is this_thread.pool)


def _can_take(tensor: Any, *, wants_grad: bool | None) -> bool:
    """Whether `tensor` can take a value after the next run, one that `wants_grad` perhaps."""
    pool = this_thread.pool
    return _may_wait(pool) and _takes(tensor, pool, wants_grad=wants_grad)


def assignments_wait() -> bool:
    """Whether assignments of this thread wait for the next run."""
    return _may_wait(this_thread.pool)


def _may_wait(pool: Pool) -> bool:
    """Whether assignments of a thread wait: another one that has tensors may assign to the same
    one, and sees it in memory.
    """
    pool.trains = is_only_thread()
    return pool.trains and postpones_calls()


def _takes(tensor: Any, pool: Pool, *, wants_grad: bool | None) -> bool:
    """Whether `tensor`, of a thread whose assignments wait, can take such a value."""
    call = tensor._call
    if tensor._alias is None and call is not None and (call.is_write or call.value is not None):
        # As a rule: memory of its own, which has no address yet.
        is_fit = tensor._is_leaf if tensor._requires_grad else not wants_grad
        return (
            bool(is_fit) and call.pool is pool and not (tensor._symbols or is_file(tensor._device))
        )
    handles = _handles(tensor)
    if handles is None or (wants_grad and len(handles) > 1):
        return False
    for each in handles:
        own = each._call
        if each._symbols or (own is not None and own.pool is not pool):
            return False
    first = handles[0]
    if not (first._is_leaf if first._requires_grad else not wants_grad):
        return False
    return is_memory_unknown(first) and _is_memory(first)


class Seen(NamedTuple):
    """An alias that sees what a tensor takes; whether one of the two is detached from the other."""

    alias: Any
    is_detached: bool


def _handles(tensor: Any) -> list[Any] | None:
    """The tensors that see a write to `tensor`, where each looks at all of its storage: the first
    is to take the value, the others are aliases of that one. None where one is a view.
    """
    if tensor._alias is None or (tensor._alias[1] == 0 and is_alone(tensor)):
        return [tensor]
    found = aliases_of_all(tensor)
    if found is None:
        return None
    trained = [each for each in found if each._requires_grad]
    if len(trained) > 1:
        return None
    (first,) = trained or (tensor,)
    return [first, *[each for each in found if each is not first]]


def _is_memory(tensor: Any) -> bool:
    """Whether `tensor` stands on memory, or takes other memory by the next run. Arrays of the host
    and leaves that require a gradient, as a program begins with, become memory here, so that the
    graph of the first step is that of all steps.
    """
    call = tensor._call
    if call is not None and (call.is_write or call.value is not None):
        return True
    if call is not None and call.node is None:
        return False
    node = tensor.uop
    if isinstance(tensor.device, Group):
        # Each device is written in place.
        return False
    if is_stored(node):
        return True
    is_first = node.op is Ops.COPY or (tensor._requires_grad and tensor._is_leaf)
    if not is_first or node.is_constant or has_assignment(node):
        return False
    root = stored_below(node, tensor.device)
    (stored,) = running.run([root], tensor._variables, [tensor])
    running.become_memory(tensor, root, stored)
    return True


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


def take_over(tensor: Any, value: Any) -> bool:
    """Let `tensor`, which is in no memory yet, have the value of `value`, a tensor without other
    holders, as if it was written to. False, and nothing happens, where somebody would see a
    difference.
    """
    if tensor is value:
        return False
    calls = [each._call for each in (tensor, value) if each._call is not None]
    if any(call.pool is not this_thread.pool or call.is_write or call.value for call in calls):
        return False
    if tensor.dtype is not value.dtype or tensor.shape != value.shape or tensor._symbols:
        return False
    if tensor.device != value.device or value._symbols or is_file(tensor.device):
        return False
    if tensor._requires_grad and (tensor._is_leaf or not value._requires_grad):
        return False
    if not (is_alone(tensor) and is_alone(value)) or is_expanded(tensor):
        return False
    for each in (tensor, value):
        if each._call is None and (is_stored(each._node) or is_written(each._node)):
            return False
    exchange(tensor, value)
    if tensor._requires_grad:
        tensor._is_leaf = False
    return True


def is_expanded(tensor: Any) -> bool:
    """Whether a tensor may be an expanded view, which is refused as a target."""
    if tensor._alias is None or tensor._alias[1] == 0:
        return False
    found = look_of_call(tensor) or look(tensor)
    return any(op is Ops.EXPAND for op, _ in found.moves)


def _is_unknown_to_others(tensor: Any) -> bool:
    """Whether no view, and no holder of its address, has the memory of `tensor`."""
    if tensor._alias is not None and (tensor._alias[1] != 0 or not is_alone(tensor)):
        return False
    return is_memory_unknown(tensor)


def is_memory_unknown(tensor: Any) -> bool:
    """Whether no holder of its address looks for the memory of `tensor`, which is no file."""
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
    number, template = _copy(value.shape, value.dtype, value.device, bool(value._requires_grad))
    take(tensor, number, template, (value._call or value._node,))


def take(
    tensor: Any,
    number: int,
    template: Template,
    inputs: tuple[Input, ...],
    slot: int | None = None,
    entry: Entry | None = None,
) -> None:
    """Let `tensor`, which can, take the result of a template after the next run, or of several that
    in `slot`; `number` is that of the template and the result, `entry` the user's line if that is
    known. Aliases of all of it see the new value.
    """
    entry = entry or composing.entry or call_site()
    tensor, others, storage, previous = _freed(tensor)
    written = postpone(
        tensor,
        template,
        template.results[0] if slot is None else slot,
        number,
        inputs,
        (entry,),
        template.size,
    )
    written.is_write = True
    _has_taken(tensor, others, storage, previous)


def take_memory(tensor: Any, value: Value, moves: Moves) -> None:
    """Let `tensor`, which `can_wait` for one of this shape and dtype, take a value that is there:
    `moves` of memory without other holders.
    """
    entry = composing.entry or call_site()
    tensor, others, storage, previous = _freed(tensor)
    was = tensor._requires_grad, tensor._is_leaf, tensor._gradient
    dtype, shape = value.buffer.dtype, moves[-1][2] if moves else (value.buffer.size,)
    if tensor._call is not None:
        this_thread.pool.forget(tensor._call.handle)
    stands_on_memory(tensor, value, moves, dtype, shape, (entry,))
    tensor._call.is_write = True
    tensor._requires_grad, tensor._is_leaf, tensor._gradient = was
    _has_taken(tensor, others, storage, previous)


def _freed(tensor: Any) -> tuple[Any, list[Seen], Any, tuple[weakref.ref[UOp], ...]]:
    """The tensor that takes a value for `tensor`, which has no node from now on; the aliases that
    see it, the storage that they share, and what the tensor was, for gradients.
    """
    handles = _handles(tensor)
    assert handles is not None
    tensor, *rest = handles
    others: list[Seen] = []
    if rest:
        is_detached = bool(tensor._requires_grad or times_detached(moves_to(tensor)))
        others = [Seen(each, is_detached or times_detached(moves_to(each)) > 0) for each in rest]
    own = tensor._call
    node = tensor._node if own is None else own.node
    previous = earlier_leaf(tensor, node)
    if node is not None:
        leave(tensor, node)
        del tensor._node
    return tensor, others, tensor._alias[0] if others else None, previous


def _has_taken(tensor: Any, others: list[Seen], storage: Any, previous: Any) -> None:
    tensor._symbols = NO_VARIABLES
    tensor._previous, tensor._is_shared, tensor._alias = previous, False, None
    if storage is not None:
        tensor._alias = storage, 0
        for each in others:
            # A tensor that was not detached takes part in the gradients of later writes.
            same = tensor.detach() if each.is_detached else tensor._alike()
            exchange(each.alias, same)


def seen_by(tensor: Any) -> list[Any]:
    """The tensors that change as `tensor`, which can wait, takes a value."""
    return _handles(tensor) or [tensor]


def earlier_leaf(tensor: Any, node: UOp | None) -> tuple[weakref.ref[UOp], ...]:
    """References to nodes of a leaf from before it takes another value, `node` the last: gradients
    of values computed from it still go to the leaf. None for other tensors.
    """
    if not (tensor._requires_grad and tensor._is_leaf):
        return ()
    if node is None:
        return tensor._earlier_references()  # type: ignore[no-any-return]
    older_leaves.add(node)
    return (*tensor._earlier_references(), weakref.ref(node))


def are_waiting(tensor: Any, many: int) -> bool:
    """Whether `many` assignments to `tensor`, each over the one before, wait for the next run."""
    call = tensor._call
    for _ in range(many):
        if not (isinstance(call, Call) and call.is_write and call.value is None and call.inputs):
            return False
        call = call.inputs[0]
    return True


def run_with(asked: Sequence[Any]) -> list[Any]:
    """The tensors that a run for those `asked` computes as well: all that take a value by the next
    run of this thread, and of these the loss that led to them, which is looked at next.
    """
    if not postpones_calls():
        return []
    calls = [call for call in waiting_calls(this_thread.pool) if call.is_write]
    found = [each for call in calls if (each := call.handle()) is not None and not has_failed(call)]
    writes = set(map(id, found))
    if any(id(each) in writes for each in asked):
        for each in this_thread.pool.losses:
            if is_stored(each.uop):
                this_thread.pool.losses.discard(each)
            else:
                found.append(each)
    return found


def is_put_off(tensor: Any) -> bool:
    """Whether `tensor` takes its value after the next run."""
    call = tensor._call
    return call is not None and call.is_write and not is_computed(call)


def realize_written(tensors: Sequence[Any]) -> None:
    """Realize tensors that were assigned to. Those that an earlier read has computed, as it may
    have what a layer writes in its forward pass, need no node.
    """
    this_thread.pool.reads += 1
    left = [each for each in tensors if each._call is None or each._call.value is None]
    if not left:
        return
    if all(map(is_put_off, left)):
        # A read takes all that is assigned with it.
        left[0].realize()
    else:
        left[0].realize(*left[1:])


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
        template = record([UOp(Ops.CONTIGUOUS, dtype, (source,), canonical(device))], [value])
        assert template is not None
        found = _copies.put(key, (next_number(), template))
    return found


def _no_call(data: Any) -> memoryview:
    raise InternalError("a stand-in of a value was run")
