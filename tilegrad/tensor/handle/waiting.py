"""Calls whose nodes are made only when somebody asks for them.

Unless `SEGMENTS=0`, a method that has a template (`tensor.calls.templates`) gives a tensor that
knows its *call*: the template, and for each operand its node or the call that made it. Its slot for
    a node is empty, so that a reader comes to `expand`, which makes the nodes. A loop whose
steps are equal never asks for them: `tensor.storage.segments` knows what to run by the calls.

The calls of a thread are its *pool*. Code that looks at the tensors alive (`tensor.handle.living`)
expands all pools first, so that it finds each tensor with its node.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from tilegrad.base.dtype import DType
from tilegrad.base.errors import TransformError
from tilegrad.base.origin import Entry
from tilegrad.engine.realize.launch_numbers import changing_bits
from tilegrad.engine.realize.realize import exclusive, remember
from tilegrad.engine.run import leaf_memory as store
from tilegrad.engine.run.in_use import lines_of_others
from tilegrad.ir.graph_templates import Template
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import base_of
from tilegrad.ir.uop import UOp, remade
from tilegrad.runtime.buffer import Buffer
from tilegrad.tensor.handle.aliases import Away, is_alone, same_storage, shows
from tilegrad.tensor.handle.leaf_copies import of_leaf
from tilegrad.tensor.handle.leaf_hooks import attach
from tilegrad.tensor.handle.living import (
    Handle,
    Owner,
    Some,
    ends,
    enter,
    generations,
    older_leaves,
    owners,
    pools,
)
from tilegrad.tensor.handle.stops import Stop, node_of_stop

__all__ = [
    "Call", "Input", "Moves", "Number", "Pool", "StandInError", "Value", "become_memory", "expand",
    "next_serial", "settle_alias", "this_thread",
]  # fmt: skip

# Movement ops with their arguments and shapes, from memory up.
Moves = tuple[tuple[Ops, Any, tuple[Any, ...]], ...]

# Unread calls that stand for more nodes have them made: their graph runs by itself (`pending`).
MOST_NODES = 1 << 15
# After this many reads in a row that had to make the nodes, a pool takes no calls for a while, and
# each time four times as many: a program whose calls never recur is not planned in two ways.
_PATIENCE, _PAUSE, _LONGEST_PAUSE = 64, 1 << 10, 1 << 14
# References to results that a run computed, before the dead among them are looked for.
_MANY = 32
next_serial = itertools.count().__next__


class Value:
    """Memory that a run of calls left, in `buffer`. Its `leaf` is made when somebody asks for a
    node: most values go from one run to the next and never are one. `past` is what it was computed
    from, if anything (`tensor.storage.past`); who made the value keeps it.
    """

    __slots__ = ("__weakref__", "buffer", "leaf", "past")

    def __init__(self, buffer: Buffer, leaf: UOp | None = None):
        self.buffer = buffer
        self.leaf = leaf
        self.past: Any = None

    def node(self, moves: Moves = ()) -> UOp:
        """The leaf of the memory, under `moves`."""
        node = self.leaf
        if node is None:
            node = self.leaf = store.leaf(self.buffer)
            if self.past is not None:
                self.past.stand_on(node)
        for op, arg, shape in moves:
            node = remade((op.serial, node.dtype, (node,), arg, arg.__class__), op, shape)
        return node


class Number:
    """A Python number that a call takes, and that is another one from call to call: the constant
    of `dtype` that has its `value`. Each is a leaf of its own, as two that are equal may differ in
    the next step.
    """

    __slots__ = ("__weakref__", "bits", "dtype", "value")
    shape = ()

    def __init__(self, value: float, dtype: DType, bits: int):
        self.value, self.dtype, self.bits = value, dtype, bits

    @staticmethod
    def of(value: float, dtype: DType) -> Number | None:
        """The number; None if a constant of this value shapes the code that it is part of."""
        bits = changing_bits(value, dtype)
        return None if bits is None else Number(value, dtype, bits)

    @property
    def node(self) -> UOp:
        """The constant."""
        return UOp.const(self.dtype, self.value)


class Call:
    """The call of a method with a template.

    Attributes:
        template, slot: the graph, and the slot of the result in it.
        number: one for each template and kind of result.
        pattern: of a template for all sizes, the pattern of its sizes (`tensor.calls.sized`).
        kind: the number of the result's dtype and shape (`kind_of`).
        inputs: for each operand its node, or the call that made it, then the numbers that change;
            None once the value is memory and the graph is given back.
        entry: the user's line.
        serial: the position among all calls, by time.
        handle: a weak reference to the tensor that has the result.
        node: the node of the result, once it was made.
        value, moves: the memory that holds the result, once it was computed, and how it looks at
            that.
        generation: the number of runs between the value and memory that has no graph.
        requires_grad: whether a gradient may be asked for, so that what the value was computed from
            is kept for as long as the call.
        is_loss: whether gradients of the result were asked for.
        is_state: whether it was computed as a state (`tensor.storage.unread_states`).
        is_write: whether the tensor takes the value as an assignment (`tensor.storage.writes`).
        stop: what a gradient meets here on its way down, if anything (`tensor.handle.stops`).
        siblings: the calls of all results of the same template over the same inputs.
    """

    __slots__ = (
        "__weakref__", "dtype", "entry", "generation", "handle", "inputs", "is_loss", "is_state",
        "is_write", "kind", "moves", "node", "number", "pattern", "pool", "requires_grad", "serial",
        "shape", "siblings", "slot", "stop", "template", "value",
    )  # fmt: skip
    template: Template
    slot: int
    number: int
    pattern: Any
    kind: int
    inputs: tuple[Input, ...] | None
    entry: tuple[Any, ...]
    serial: int
    pool: Pool
    handle: Handle
    dtype: DType
    shape: tuple[Any, ...]
    node: UOp | None
    value: Value | None
    moves: Moves
    generation: int
    requires_grad: bool | None
    is_loss: bool
    is_state: bool
    is_write: bool
    siblings: Sequence[weakref.ref[Call]]
    stop: Stop | None

    @property
    def memory(self) -> UOp | None:
        """[Movement of] the BUFFER that holds the result, once it was computed."""
        return None if self.value is None else self.value.node(self.moves)

    def expanded(self) -> UOp:
        """The node of the result, which is made with the nodes below it if it has not been asked
        for before.
        """
        node = self.node
        return expand(self) if node is None else node

    def of_memory(self) -> Call:
        """The call of a tensor that stands on the memory alone, and not on what it was computed
        from.
        """
        return self.standing_on(self.value, self.moves)

    def standing_on(self, value: Value | None, moves: Moves) -> Call:
        """As `of_memory`, of other memory."""
        made: Call = object.__new__(Call)
        made.template, made.slot, made.number = self.template, self.slot, self.number
        made.entry, made.serial, made.pool = self.entry, self.serial, self.pool
        made.handle, made.dtype, made.shape = self.handle, self.dtype, self.shape
        made.kind = self.kind
        made.value, made.moves = value, moves
        made.inputs = made.node = made.pattern = made.stop = None
        made.generation = 0
        made.requires_grad, made.siblings = self.requires_grad, ()
        made.is_loss = made.is_write = False
        made.is_state = self.is_state
        return made

    def away(self, count: int) -> Away:
        """How the result looks at its storage, where that is `count` movement ops below."""
        found: list[tuple[Ops, Any]] = []
        each: Input = self
        shape = self.shape
        while len(found) < count:
            if isinstance(each, UOp):
                found.append((each.op, each.arg))
                each = each.src[0]
                shape = each.shape
                continue
            assert isinstance(each, Call)
            if each.inputs is None:
                # A view of memory.
                assert each.value is not None
                below = [(each.value.buffer.size,), *[inside for _, _, inside in each.moves]]
                most = min(count - len(found), len(each.moves))
                found += [(op, arg) for op, arg, _ in reversed(each.moves[-most:])]
                shape = below[-1 - most]
                break
            moves, slot = each.template.moves(each.slot, count - len(found))
            found += moves
            inside = each.template.shape_of(slot)
            if inside is not None:
                shape = inside
                break
            each = each.inputs[slot]
            shape = each.shape
        return Away(shape, tuple(reversed(found)))


# Inputs of a call.
Input = UOp | Call | Number


class Pool:
    """The calls of a thread whose results are alive: those `waiting` to be part of a run, and those
    `computed` by one, by their handles; a handle whose result dies is forgotten (`forget`).
    `has_new` if some of them have no nodes; `losses` are the tensors whose gradient was asked for,
    `together` the calls that one run computes; `reads` counts those of values, `runs` what ran;
    `last` is the last call that had come before (`calls.recent_calls`), `since` and `after` the
    first serials after the last two runs; `making` counts methods that make nodes now, one inside
    the other, and `indices` are results of these that the host may compute at the next read. Unless
    it `trains`, what requires a gradient has nodes: assignments do not wait then, and make all.
    """

    __slots__ = (
        "__weakref__", "after", "computed", "count", "expander", "forget", "has_new", "indices",
        "is_full", "last", "losses", "making", "many", "next_pause", "patience", "pause", "reads",
        "runs", "since", "thread", "together", "trains", "waiting",
    )  # fmt: skip

    def __init__(self) -> None:
        self.thread = threading.current_thread()
        self.trains = True
        self.waiting: set[Handle] = set()
        self.forget = self.waiting.discard
        self.computed: list[Handle] = []
        self.losses = Some()
        self.indices: list[weakref.ref[Any]] = []
        self.together: tuple[Call, ...] = ()
        # The number of these from which the dead among them are looked for.
        self.many = _MANY
        self.has_new = self.is_full = False
        # The thread that makes nodes of all results just now.
        self.expander: int | None = None
        self.count = self.reads = self.runs = self.since = self.after = self.making = 0
        self.last: Any = None
        self.patience = _PATIENCE
        self.pause, self.next_pause = 0, _PAUSE

    def takes_calls(self) -> bool:
        """Whether the next call is postponed: not for a while after many that were in vain."""
        if self.pause:
            self.pause -= 1
            return False
        if self.count >= MOST_NODES:
            self.end()
        self.is_full = False
        return True

    def count_miss(self) -> None:
        """Count a read for which nodes had to be made."""
        self.count = 0
        self.runs += 1
        self.patience -= 1
        if self.patience <= 0:
            self.end()
            self.patience, self.pause = _PATIENCE // 4, self.next_pause
            self.next_pause = min(4 * self.pause, _LONGEST_PAUSE)
            self.is_full = True

    def has_run(self) -> None:
        """Note that calls made from now on are newer than a run."""
        self.since, self.after = self.after, next_serial()

    def count_hit(self) -> None:
        """Count a read that found its run by the calls."""
        self.runs += 1
        self.patience, self.next_pause = _PATIENCE, _PAUSE
        self.count = self.pause = 0
        self.is_full = False

    def leave(self, reference: Handle) -> None:
        """Let a tensor whose call was computed be no part of the segments that follow."""
        if reference in self.waiting:
            self.waiting.discard(reference)
            self.computed.append(reference)
            self.forget_dead()

    def forget_dead(self) -> None:
        """Forget the results that died after a run computed them, once there are many."""
        computed = self.computed
        if len(computed) >= self.many:
            # A tensor that is assigned to comes again and again.
            alive = {id(tensor): each for each in computed if (tensor := each()) is not None}
            computed[:] = alive.values()
            self.many = max(_MANY, 2 * len(computed))

    def expand(self) -> None:
        """Make the nodes of all results. While another thread makes them, this waits for it."""
        if not self.has_new and self.expander in (None, threading.get_ident()):
            return
        with exclusive():
            before, self.expander = self.expander, threading.get_ident()
            self.has_new = False
            try:
                for reference in [*self.waiting, *self.computed]:
                    tensor = reference()
                    if tensor is not None and tensor._call is not None:
                        expand(tensor._call)
            finally:
                self.expander = before

    def end(self) -> None:
        """Let all results be ordinary tensors, but for those that take a value by the next run."""
        self.expand()
        for reference in list(self.waiting):
            tensor = reference()
            if tensor is not None and not (tensor._call is not None and tensor._call.is_write):
                tensor._call = None
                self.waiting.discard(reference)
        for reference in self.computed:
            tensor = reference()
            if tensor is not None:
                tensor._call = None
        self.computed.clear()
        self.many = _MANY
        self.count = 0


class StandInError(TransformError):
    """A method that is recorded asks for values of a stand-in, which has none."""


class _Thread(threading.local):
    """The calls of a thread that wait, and the stand-ins for operands of the methods that it
    records (`tensor.calls.recorded`).
    """

    stand_ins: frozenset[UOp] = frozenset()

    def __init__(self) -> None:
        self.pool = Pool()
        pools.add(self.pool)


this_thread = _Thread()


def _lines_of_values() -> Iterator[tuple[Buffer, tuple[Entry, ...]]]:
    """The memory that results of calls hold, each with the user's line."""
    for pool in pools:
        for reference in [*pool.waiting, *pool.computed]:
            tensor = reference()
            call = None if tensor is None else tensor._call
            if call is not None and call.value is not None:
                buffer = call.value.buffer
                yield buffer.base or buffer, call.entry


lines_of_others.append(_lines_of_values)


def expand(call: Call) -> UOp:
    """The node of a call's result; the nodes of its inputs are made with it."""
    with exclusive():
        stack = [call]
        while stack:
            top = stack[-1]
            if top.node is not None:
                stack.pop()
                continue
            if top.inputs is None:
                assert top.value is not None
                top.node = top.value.node(top.moves)
                store.note_origin(top.node, top.entry)
                tensor = top.handle()
                if tensor is not None and tensor._call is top:
                    become_memory(tensor, top, top.node)
                elif tensor is not None:
                    _was(tensor, top.node)
                continue
            lacking = [each for each in top.inputs if isinstance(each, Call) and each.node is None]
            if lacking:
                stack += lacking
                continue
            inputs: Any = [each if isinstance(each, UOp) else each.node for each in top.inputs]
            nodes = top.template.make(inputs, top.entry)
            node = nodes[top.slot]
            if top.is_write:
                taker = top.handle()
                if taker is None or (taker._requires_grad and taker._is_leaf):
                    node = of_leaf(taker, node)
            _has_node(top, node)
            for reference in top.siblings:
                sibling = reference()
                if sibling is not None and sibling.node is None:
                    _has_node(sibling, nodes[sibling.slot])
            stack.pop()
    assert call.node is not None
    return call.node


def _has_node(call: Call, node: UOp) -> None:
    if call.stop is not None:
        node = node_of_stop(call, node)
        tensor = call.handle()
        if tensor is not None:
            # Memory has its graph made anew once this node is gone, and that is not watched.
            attach(tensor, node)
    if call.value is not None:
        remember(node, call.value.node(call.moves))
        if not call.requires_grad:
            generations[node] = call.generation
    call.node = node
    _adopt(call, node)


def _adopt(call: Call, node: UOp) -> None:
    """Let the tensor of a call have the node that was made for it. One that is memory already knows
    it as the graph that it was.
    """
    tensor = call.handle()
    if tensor is None:
        if call.is_write:
            # A leaf that takes an equal value later is another one.
            ends.add(node)
        return
    if tensor._call is call:
        tensor._node = node
        enter(tensor, node)
        if call.is_write and tensor._requires_grad:
            ends.add(node)
    else:
        _was(tensor, node)


def _was(tensor: Any, node: UOp) -> None:
    """Note that a tensor, which has another value by now, was `node`: gradients go to it."""
    tensor._previous = (*tensor._earlier_references(), weakref.ref(node))
    if tensor._requires_grad and tensor._is_leaf:
        older_leaves.add(node)


def become_memory(tensor: Any, call: Call, memory: UOp) -> None:
    """Let the tensor of a call, whose node is not made, stand on the memory that it was computed
    to.
    """
    settle_alias(tensor, call, memory)
    base = base_of(memory)
    reference = owners.get(base)
    if reference is not None:
        owner = reference()
        if owner is None or not same_storage(owner, tensor):
            tensor._is_shared = True
    elif tensor._alias is None or not tensor._alias[1]:
        owners[base] = Owner(tensor)
    tensor._node = memory
    tensor._call = None
    enter(tensor, memory)


def settle_alias(tensor: Any, call: Call, memory: UOp | None = None) -> None:
    """Note how the tensor of a call looks at its storage, before the graph that says it goes; the
    node `memory`, which it stands on from now on, may show that too.
    """
    alias = tensor._alias
    if alias is None or alias[1].__class__ is not int or not alias[1]:
        return
    # A view of memory looks there as before, with other views or without.
    is_view = call.inputs is None and call.value is not None
    if is_alone(tensor) and not is_view:
        tensor._alias = None
        return
    away = call.away(alias[1])
    if memory is None or not shows(tensor, memory, away.moves):
        tensor._alias = alias[0], away
