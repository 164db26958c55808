"""Replacing a tensor's value: by a call that waits, by memory, by that of another tensor."""

from __future__ import annotations

from typing import Any

from tilegrad.base.dtype import DType
from tilegrad.device.disk import is_file
from tilegrad.ir.graph_templates import Template
from tilegrad.ir.uop import UOp
from tilegrad.tensor.handle.kinds import kind_of
from tilegrad.tensor.handle.living import Handle, Some, enter, leave
from tilegrad.tensor.handle.size_arguments import NO_VARIABLES
from tilegrad.tensor.handle.waiting import (
    MOST_NODES,
    Call,
    Input,
    Moves,
    Pool,
    Value,
    next_serial,
    this_thread,
)

__all__ = ["become", "exchange", "postpone", "stands_on_memory", "take_result"]


# For a tensor that is memory and was computed by no call.
_MEMORY = Template([], [], (0,), 1, is_view=False)
# The handle of a call whose tensor has another value by now, as if the tensor were gone.
_NOBODYS = Handle(Some())


def exchange(first: Any, second: Any) -> None:
    """Let two tensors of this thread, whose storages no other tensor shares, exchange what they
    are: the calls or the nodes, whether they require gradients, and how they look at storages.
    """
    states = [_taken_out(each) for each in (first, second)]
    for tensor, (call, node, is_waiting, rest) in zip((second, first), states):
        tensor._call = call
        if node is not None:
            tensor._node = node
            enter(tensor, node)
        if is_waiting:
            _wait(tensor, call, this_thread.pool)
        elif call is not None:
            call.handle = Handle(tensor, this_thread.pool.forget)
            this_thread.pool.computed.append(call.handle)
        tensor._symbols, tensor._requires_grad, tensor._is_shared, tensor._alias = rest
        tensor._previous = ()


def take_result(tensor: Any, other: Any) -> bool:
    """Let `tensor` be what `other` is, which is not used from now on: both are results of calls
    that wait, of one shape and dtype, without aliases, nodes and gradients, as most in a chain of
    updates. False, and nothing happens, for others.
    """
    before, call, pool = tensor._call, other._call, this_thread.pool
    if before is None or call is None or before is call or before.kind != call.kind:
        return False
    if before.pool is not pool or before.value is not None or before.node is not None:
        return False
    if call.node is not None or call.handle not in pool.waiting or before.is_write or call.is_write:
        return False
    if tensor._alias is not None or other._alias is not None:
        return False
    if tensor._requires_grad or other._requires_grad or tensor._symbols or other._symbols:
        return False
    if tensor._device != other._device or is_file(tensor._device):
        return False
    pool.forget(before.handle)
    pool.forget(call.handle)
    before.handle = _NOBODYS
    other._call = None
    tensor._call = call
    tensor._is_shared, tensor._previous = False, ()
    call.handle = Handle(tensor, pool.forget)
    pool.waiting.add(call.handle)
    return True


def become(tensor: Any, other: Any) -> bool:
    """Let `tensor` be what `other` is, whose call waits and which is not used from now on;
    False, and nothing is done, where its nodes have to be made. Whether it requires a gradient is
    as before.
    """
    call, before, pool = other._call, tensor._call, this_thread.pool
    if call is None or call.handle not in pool.waiting or call.is_write:
        return False
    if before is not None and (before.pool is not pool or before.is_write):
        return False
    requires_grad = tensor._requires_grad
    _taken_out(tensor)
    if before is not None:
        # No gradient goes to this tensor by way of its earlier value.
        before.handle = _NOBODYS
    _, _, _, (_, _, is_shared, alias) = _taken_out(other)
    tensor.device = other.device
    _wait(tensor, call, pool)
    tensor._symbols, tensor._requires_grad = NO_VARIABLES, requires_grad
    tensor._is_shared, tensor._alias, tensor._previous = is_shared, alias, ()
    return True


def _taken_out(tensor: Any) -> tuple[Any, UOp | None, bool, tuple[Any, ...]]:
    """The call and the node of a tensor, which has none from now on; whether the call waits; and
    what else the tensor is.
    """
    call = tensor._call
    node = tensor._node if call is None else call.node
    is_waiting = call is not None and call.handle in this_thread.pool.waiting
    if is_waiting:
        this_thread.pool.forget(call.handle)
    if node is not None:
        leave(tensor, node)
        del tensor._node
    rest = tensor._symbols, tensor._requires_grad, tensor._is_shared, tensor._alias
    tensor._call = None
    return call, node, is_waiting, rest


def _wait(tensor: Any, call: Call, pool: Pool) -> None:
    """Let `tensor` have the result of a call that waits."""
    before = getattr(tensor, "_call", None)
    if before is not None:
        pool.forget(before.handle)
    tensor._call = call
    call.handle = Handle(tensor, pool.forget)
    pool.waiting.add(call.handle)


def stands_on_memory(
    tensor: Any,
    value: Value,
    moves: Moves,
    dtype: DType,
    shape: tuple[int, ...],
    entry: tuple[Any, ...],
    kind: int | None = None,
) -> None:
    """Let `tensor`, which is nothing yet, be `moves` of the memory `value`, as if a call had been
    computed to it: a leaf that has no node before somebody asks.
    """
    call: Call = object.__new__(Call)
    call.template, call.slot, call.number = _MEMORY, 0, -1
    call.inputs = call.node = call.pattern = call.stop = None
    call.entry, call.serial = entry, next_serial()
    call.dtype, call.shape, call.value, call.moves = dtype, shape, value, moves
    call.kind = kind_of(dtype, shape) if kind is None else kind
    call.pool = pool = this_thread.pool
    call.generation = 0
    call.requires_grad = None
    call.is_loss = call.is_write = call.is_state = False
    call.siblings = ()
    tensor._call = call
    tensor._symbols, tensor._requires_grad, tensor._previous = NO_VARIABLES, None, ()
    tensor._is_leaf, tensor._is_shared = True, False
    tensor._gradient = tensor._alias = None
    call.handle = Handle(tensor, pool.forget)
    pool.computed.append(call.handle)
    if len(pool.computed) >= pool.many:
        pool.forget_dead()
    pool.has_new = True


def postpone(
    tensor: Any,
    template: Template,
    slot: int,
    number: int,
    inputs: tuple[Input, ...],
    entry: tuple[Any, ...],
    size: int,
) -> Call:
    """Let `tensor`, which has no node, be result `slot` of a template over `inputs`, which adds
    `size` nodes to those that wait.
    """
    call: Call = object.__new__(Call)
    call.template, call.slot, call.number = template, slot, number
    call.inputs, call.entry, call.serial = inputs, entry, next_serial()
    call.dtype, call.shape = template.dtype_of(slot), template.shape_of(slot) or ()
    call.kind = kind_of(call.dtype, call.shape)
    call.pool = pool = this_thread.pool
    call.node = call.value = call.requires_grad = call.pattern = call.stop = None
    call.generation = 0
    call.is_loss = call.is_write = call.is_state = False
    call.siblings = ()
    _wait(tensor, call, pool)
    pool.has_new = True
    pool.count += size
    if pool.count >= MOST_NODES:
        pool.is_full = True
    return call
