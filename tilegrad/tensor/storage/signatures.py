"""Needs of a thread's waiting calls, and their signature.

Calls wait for a read (`tensor.handle.waiting`). The work for it follows from those calls, from
those of their results that are alive, and from the leaves they stand on. All of that is the
*signature*, in two halves:

* the *structure*: the calls as numbers, in one walk from the results alive down (`WaitingCalls`).
  It finds the segments that ran for the same structure before.
* of each leaf below, what kind of memory it is, and whether it is the memory of another one
  (`LeafKind`). The kinds that a segment was noted for are compared with the leaves at hand, so that
  nothing is built where they agree (`bases_of`).
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from struct import Struct
from typing import Any, NamedTuple

from tilegrad.base.dtype import DType
from tilegrad.engine.realize import realize as engine
from tilegrad.engine.run import leaf_memory as store
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.handle.waiting import Call, Input, Number, Pool
from tilegrad.tensor.storage.generations import generation_of
from tilegrad.tensor.storage.leaf_kinds import (
    DrawKind,
    Kind,
    LeafKind,
    NumberKind,
    SizedKind,
    SizedSliceKind,
    is_draw,
    takes_moves,
)
from tilegrad.tensor.storage.memory_below import Base, base_below, node_of, sliced, whole
from tilegrad.tensor.storage.unread_states import (
    asked_with,
    beside,
    lengthens,
    states_of,
    unread_of,
)

__all__ = [
    "Leaves", "WaitingCalls", "bases_of", "described", "is_computed", "waiting_calls",
]  # fmt: skip

# Ops of a graph that calls stand on and that is no memory: more are worth keeping, if a tensor has
# them, and a run of their nodes does so.
_MOST_OPS = 1
_AS_IS = frozenset({Ops.CONST, Ops.COPY, Ops.DETACH, Ops.BUFFER})
# Ops that have no value of their own, or another one each time.
_APART = frozenset({
    Ops.CUSTOM, Ops.ASSIGN, Ops.AFTER, Ops.LOOP, Ops.LOOP_OUTPUT, Ops.RAND, Ops.DEFINE_VAR,
    Ops.BIND,
})  # fmt: skip
_DOUBLE = Struct("<d")
_by_time = attrgetter("serial")


def waiting_calls(pool: Pool) -> list[Call]:
    """The calls that wait and whose results are alive, in the order in which they were made."""
    found: list[Call] = []
    for reference in list(pool.waiting):
        tensor = reference()
        if tensor is None:
            continue
        call = tensor._call
        if (
            call is None
            or call.handle is not reference
            or call.value is not None
            or (call.node is not None and is_computed(call))
        ):
            # It was computed, or given another value.
            pool.leave(reference)
        else:
            found.append(call)
    if len(found) > 1:
        found.sort(key=_by_time)
    return found


class WaitingCalls:
    """The calls that have to run for some results that are `alive`, and what these stand on.

    Attributes:
        calls: those of the results first, then what these need.
        leaves: the nodes and computed calls below.
        writes: the calls whose tensors take the value as an assignment. A read leaves none of them
            waiting: else a loop that never reads its counter holds each step.
        losses: of an assignment that was asked for, those that led to it: they are looked at next.
            A result that is asked for together with another is one of them.
        states: the results that go on from step to step and that the run does not need.
        key: the structure: how many results there are, which was asked for, the losses, the
            states, and for each call its number and those of its inputs, which are calls (from 0
            up) or leaves (from -1 down).
    """

    __slots__ = ("alive", "calls", "key", "leaves", "losses", "states", "writes")

    def __init__(self, alive: list[Call], asked: Call):
        self.alive = alive
        self.writes = [call for call in alive if call.is_write]
        calls = [*alive]
        leaves: list[Input] = []
        numbers: dict[Any, int] = dict(zip(calls, range(len(calls))))
        known = numbers.get
        self.losses = asked_with(alive, asked)
        since = asked.pool.since
        # Results of before, and leaves that are states, are of no matter where nothing is new.
        newest = alive[-2:] if alive[-1] is asked else alive[-1:]
        may_go_on = len(alive) > 1 and newest[0].serial >= since
        has_states = False
        key: list[int] = []
        add = key.append
        # The list grows while it is walked.
        for call in calls:
            add(call.number)
            if call.serial < since:
                has_states = True
            for each in call.inputs or ():
                number = known(each)
                if number is None:
                    if (
                        isinstance(each, Call)
                        and each.value is None
                        and (each.node is None or not is_computed(each))
                    ):
                        number = len(calls)
                        calls.append(each)
                    else:
                        leaves.append(each)
                        number = -len(leaves)
                        if each.__class__ is Call and each.is_state:
                            has_states = True
                    numbers[each] = number
                add(number)
        self.calls, self.leaves = calls, leaves
        self.states: list[Call] = []
        if has_states and may_go_on:
            self.states = states_of(alive, calls, self._needed(asked), since)
            self.states += unread_of(alive, [*self._needed(asked), *self.states], since)
        apart = [*self.losses, *self.states]
        sizes = len(alive), numbers.get(asked, -1), len(self.losses), len(self.states)
        self.key = (*sizes, *[numbers[call] for call in apart], *key)

    def concerned(self, asked: Call) -> tuple[int, ...]:
        """The numbers of the results that a run for `asked` concerns: those that it needs, those
        equal to one of them, and those computed from one.
        """
        calls = sorted(self.calls, key=_by_time)
        found: set[Any] = {asked, *self.writes, *self.losses, *self.states}
        for call in reversed(calls):
            if call in found:
                found.update(call.inputs or ())
        if found.issuperset(calls):
            return (*range(len(self.alive)),)
        first = _first_equals(calls)
        needed = {first[call] for call in calls if call in found}
        for call in calls:
            if call not in found:
                if first[call] in needed:
                    found.add(call)
                    continue
                for each in call.inputs or ():
                    if each.__class__ is Call and each in found:
                        found.add(call)
                        break
        return tuple([number for number, call in enumerate(self.alive) if call in found])

    def roots(self, asked: Call) -> list[Call]:
        """The calls that a run for `asked` computes in any case."""
        return [*self._needed(asked), *self.going_on(asked)]

    def going_on(self, asked: Call) -> list[Call]:
        """The calls that a run for `asked` computes because they go on in the next step: states,
        and what is lengthened and is not on the way.
        """
        return [*self.states, *beside(self.joins, [*self._needed(asked), *self.states])]

    def _needed(self, asked: Call) -> list[Call]:
        return [asked, *[call for call in self.writes if call is not asked], *self.losses]

    def note_states(self) -> None:
        """Note that a run has computed the states."""
        for call in self.states:
            call.is_state = True

    @property
    def joins(self) -> list[Call]:
        """The calls that lengthen what the same line made: unread they are longer at each step."""
        return [call for call in self.alive if lengthens(call)]

    @property
    def generation(self) -> int:
        """The largest generation of the leaves of the calls."""
        return max(map(generation_of, self.leaves), default=0)

    @property
    def by_time(self) -> list[Call]:
        """The calls, sources first."""
        return sorted(self.calls, key=_by_time)


def _first_equals(calls: list[Call]) -> dict[Call, Call]:
    """For each of `calls`, which are sorted by time, the first one that makes the same node."""
    first: dict[Any, Call] = {}
    by_signature: dict[Any, Call] = {}
    for call in calls:
        inputs = tuple(
            [
                (each.dtype, each.bits) if each.__class__ is Number else first.get(each, each)
                for each in call.inputs or ()
            ]
        )
        first[call] = by_signature.setdefault((call.number, inputs), call)
    return first


class Leaves(NamedTuple):
    """The leaves of waiting calls as nodes: their kinds, the memory below, each BUFFER once, and
    the nodes that copy memory of the host.
    """

    nodes: list[UOp]
    kinds: tuple[Kind, ...]
    bases: list[UOp]
    copies: list[UOp]


def described(leaves: Sequence[Input]) -> Leaves | None:
    """The leaves as nodes; None if they have no signature."""
    bases: dict[Any, int] = {}
    copies: dict[UOp, None] = {}
    kinds: list[Kind] = []
    nodes: list[UOp] = []
    for leaf in leaves:
        if isinstance(leaf, Number):
            nodes.append(leaf.node)
            kinds.append(NumberKind(leaf.dtype, leaf.bits))
            continue
        node = leaf if isinstance(leaf, UOp) else node_of(leaf)
        if node is None:
            return None
        nodes.append(node)
        if is_draw(node):
            kinds.append(DrawKind(node.arg.shape, node.arg.device))
            continue
        key = _key(node, bases, copies)
        if key is None:
            return None
        kinds.append(_kind(node, key, bases))
    if any(store.is_overwritten(base) for base in bases):
        # An ordinary run finds what was computed from it before.
        return None
    return Leaves(nodes, tuple(kinds), [*bases], [*copies])


def _kind(node: UOp, key: tuple[Any, ...], bases: dict[Any, int]) -> LeafKind:
    steps: list[tuple[Ops, DType, Any]] = []
    moves: list[tuple[Ops, Any, tuple[Any, ...]]] = []
    while node.op is not Ops.BUFFER:
        if node.stored is not None and (memory := engine.realized(node)) is not None:
            node = memory
            continue
        if len(node.src) != 1 or node.arg.__class__ is float:
            return LeafKind(None, None, None, 0, "", 0, key)
        steps.append((node.op, node.dtype, node.arg))
        moves.append((node.op, node.arg, node.shape))
        node = node.src[0]
    is_view = all(op.is_movement for op, _, _ in steps)
    _, device, size = node.arg
    return LeafKind(
        tuple(steps),
        tuple(moves[::-1]) if is_view else None,
        node.dtype,
        size,
        device,
        bases[node],
        key,
    )


def bases_of(
    leaves: Sequence[Input], kinds: Sequence[Kind]
) -> tuple[list[Base], list[UOp], dict[str, int]] | None:
    """The memory below `leaves`, by number, the nodes that copy memory of the host, and the values
    of variables that are numbers; None unless the leaves are of these `kinds`.
    """
    values: dict[str, int] = {}
    bases: dict[Any, int] = {}
    copies: dict[UOp, None] = {}
    for leaf, kind in zip(leaves, kinds):
        if isinstance(leaf, Number):
            if not isinstance(kind, NumberKind) or leaf.dtype is not kind.dtype:
                return None
            wanted = values.setdefault(kind.variable, leaf.bits) if kind.variable else kind.bits
            if wanted is not None and wanted != leaf.bits:
                return None
            continue
        if isinstance(kind, NumberKind):
            return None
        if isinstance(kind, DrawKind):
            if not is_draw(leaf) or (leaf.arg.shape, leaf.arg.device) != kind[:2]:
                return None
            values.update(kind.values_of(leaf))
            continue
        if isinstance(kind, (SizedKind, SizedSliceKind)):
            memory = _of_sizes(leaf, kind, copies)
            if memory is None or bases.setdefault(memory, len(bases)) != kind.base:
                return None
            continue
        base: Base | None
        node: UOp | None
        if isinstance(leaf, UOp):
            node = leaf
        elif leaf.value is not None:
            buffer, moves = leaf.value.buffer, leaf.moves
            if (
                not takes_moves(moves, kind, values)
                or buffer.dtype is not kind.dtype
                or buffer.size != kind.size
                or buffer.allocator.device != kind.device
            ):
                return None
            base = leaf.value.leaf or leaf.value
            if bases.setdefault(base, len(bases)) != kind.base:
                return None
            continue
        else:
            node = node_of(leaf)
            if node is None:
                return None
        if kind.steps is None:
            if _key(node, bases, copies) != kind.key:
                return None
            continue
        base = base_below(node, kind, copies, values)
        if base is None or bases.setdefault(base, len(bases)) != kind.base:
            return None
    return [*bases], [*copies], values


def _of_sizes(
    leaf: Input, kind: SizedKind | SizedSliceKind, copies: dict[UOp, None]
) -> Base | None:
    return whole(leaf, kind, copies) if isinstance(kind, SizedKind) else sliced(leaf, kind)


def _key(node: UOp, bases: dict[Any, int], copies: dict[UOp, None]) -> tuple[Any, ...] | None:
    """A key of the leaves, with memory by number; None if they have no signature."""
    key: list[Any] = []
    stack = [node]
    seen: dict[UOp, int] = {}
    computing = 0
    while stack:
        node = stack.pop()
        at = seen.get(node)
        if at is not None:
            key.append(at)
            continue
        seen[node] = len(seen)
        if node.stored is not None and (memory := engine.realized(node)) is not None:
            stack.append(memory)
            continue
        op = node.op
        if op is Ops.BUFFER:
            base = bases.setdefault(node, len(bases))
            key += op, base, node.dtype, node.arg.size, node.arg.device
            continue
        if not (op.is_movement or op in _AS_IS):
            computing += 1
            if op in _APART or computing > _MOST_OPS:
                return None
        if op is Ops.COPY:
            copies[node] = None
        arg = node.arg
        key += op, node.dtype, _DOUBLE.pack(arg) if arg.__class__ is float else arg
        key.append(len(node.src))
        stack += node.src
    return tuple(key)


def is_computed(call: Call) -> bool:
    """Whether the value is known. A view is made again, whatever it looks at."""
    if call.value is not None:
        return True
    node = call.node
    if node is None or (call.template.is_view and node.stored is None):
        return False
    return engine.realized(node) is not None
