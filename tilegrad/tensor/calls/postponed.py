"""Tensors of calls that wait: their nodes are made only when somebody asks for them
(`tensor.handle.waiting`).
"""

from __future__ import annotations

import sys
from typing import Any
from weakref import ref

from tilegrad.base.config import current_config
from tilegrad.base.origin import call_site, composing
from tilegrad.base.recent import Bounded
from tilegrad.engine.run.run import record_of_thread
from tilegrad.ir.graph_templates import Template
from tilegrad.ir.placement import Group
from tilegrad.tensor.calls.recorded import Result, WaitingKind
from tilegrad.tensor.handle import waiting
from tilegrad.tensor.handle.aliases import Storage, deeper, shared
from tilegrad.tensor.handle.kinds import next_number
from tilegrad.tensor.handle.living import Handle
from tilegrad.tensor.handle.size_arguments import NO_VARIABLES
from tilegrad.tensor.handle.tracing import transforms
from tilegrad.tensor.handle.waiting import Call, Pool, next_serial, this_thread

__all__ = ["alias", "can_postpone", "passed", "postponed", "postponed_siblings", "share_storage"]

blank = object.__new__
# By dtype, shape and whether a gradient is required: another tensor of the same value. The first
# one of each dtype is also known without its shape.
_aliases: Bounded[tuple[Any, ...], WaitingKind] = Bounded(4096)
_SAME = Template([], [], (0,), 1, is_view=True)


def can_postpone(pool: Pool, config: Any, requires_grad: Any) -> bool:
    """Whether calls wait now, and results that require a gradient, if this one does. Who records
    sees what runs, and a transformed function makes a graph.
    """
    return (
        config.TEMPLATES == 1
        and config.SEGMENTS
        and not config.NOOPT
        and (pool.trains or not requires_grad)
        and not transforms.depth
        and record_of_thread() is None
        and (not pool.is_full or pool.takes_calls())
    )


def postponed(
    pool: Pool,
    kind: WaitingKind,
    first: Any,
    inputs: tuple[Any, ...],
    entry: Any,
    operands: list[Any] | None,
) -> Any:
    """The tensor of a call whose nodes were not asked for, of the class and device of `first`; a
    view of one of `operands`, if they are given. Written out: no function is called more often.
    """
    call: Call = blank(Call)
    call.template, call.slot = kind.template, kind.slot
    call.number, call.pattern, call.kind = kind.number, kind.pattern, kind.kind
    call.inputs, call.entry, call.serial = inputs, (entry,), next_serial()
    call.shape, call.dtype, call.pool = kind.shape, kind.dtype, pool
    call.node = call.value = call.stop = None
    call.generation = 0
    made = blank(type(first))
    call.requires_grad = made._requires_grad = kind.requires_grad
    call.is_loss = call.is_write = call.is_state = False
    call.siblings = ()
    made._device, made._call = first._device, call
    made._symbols = NO_VARIABLES
    made._previous = ()
    made._is_leaf = made._is_shared = False
    made._gradient = made._alias = None
    depth = kind.depth
    if depth is not None:
        if kind.view_of is None:
            made._alias = Storage(), depth
        elif operands is not None:
            share_storage(made, kind, operands)
    call.handle = reference = Handle(made, pool.forget)
    pool.waiting.add(reference)
    pool.has_new = True
    pool.count += kind.size
    if pool.count >= waiting.MOST_NODES:
        pool.is_full = True
    return made


def postponed_siblings(
    pool: Pool,
    kinds: tuple[WaitingKind, ...],
    first: Any,
    inputs: tuple[Any, ...],
    entry: Any,
    operands: list[Any],
) -> list[Any]:
    """The tensors of a call that has several results."""
    made = [postponed(pool, kind, first, inputs, entry, operands) for kind in kinds]
    pool.count -= kinds[0].size * (len(kinds) - 1)
    siblings = [ref(each._call) for each in made]
    for each in made:
        each._call.siblings = siblings
    return made


def share_storage(made: Any, result: WaitingKind, operands: list[Any]) -> None:
    """Let a view share the storage of its operand."""
    base = operands[result.view_of or 0]
    found: Any = base._alias or shared(base)
    # The whole of a value that was computed by itself is an alias that looks as it does.
    path = found[1]
    if result.depth:
        is_count = path.__class__ is int
        moves = () if is_count else result.template.moves(result.slot, result.depth)[0]
        path = path + result.depth if is_count else deeper(path, moves)
    made._alias = found[0], path
    made._is_shared = base._is_shared
    if result.is_all:
        found[0].note(made)


def alias(tensor: Any) -> Any:
    """Another tensor of all of the storage of one whose call waits; None if none waits."""
    call, pool = tensor._call, this_thread.pool
    requires_grad = tensor._requires_grad
    if call is None or call.pool is not pool:
        return None
    if not can_postpone(pool, current_config(), requires_grad):
        return None
    key = call.dtype, call.shape, requires_grad
    kind = _aliases.get(key)
    if kind is None:
        same = Result(0, requires_grad, 0, 0, call.shape, call.dtype)
        # One number for all shapes: that of an alias follows from its input.
        first = _aliases.get((call.dtype, requires_grad))
        number = next_number() if first is None else first.number
        kind = _aliases.put(key, WaitingKind(_SAME, same, number))
        _aliases.setdefault((call.dtype, requires_grad), kind)
    entry = composing.entry or call_site(sys._getframe(1))
    return postponed(pool, kind, tensor, (call,), entry, [tensor])


def passed(tensor: Any, *, requires_grad: bool = False) -> Any:
    """A tensor with a storage of its own and the value that `tensor` has now, through which its
    gradient passes, as a call that waits; None if calls do not wait. It requires a gradient if
    `tensor` does, or if asked to.
    """
    call, pool = tensor._call, this_thread.pool
    requires_grad = requires_grad or tensor._requires_grad
    if (call is not None and call.pool is not pool) or tensor._symbols:
        return None
    if call is None and (tensor._node.is_constant or isinstance(tensor._device, Group)):
        return None
    if not can_postpone(pool, current_config(), requires_grad):
        return None
    dtype, shape = tensor.dtype, tensor.shape
    key = "passed", dtype, shape, requires_grad
    kind = _aliases.get(key)
    if kind is None:
        same = Result(0, requires_grad, None, None, shape, dtype)
        first = _aliases.get(key[:2])
        number = next_number() if first is None else first.number
        kind = _aliases.put(key, WaitingKind(_SAME, same, number))
        _aliases.setdefault(key[:2], kind)
    entry = composing.entry or call_site(sys._getframe(1))
    return postponed(pool, kind, tensor, (tensor._node if call is None else call,), entry, None)
