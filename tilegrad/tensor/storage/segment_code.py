"""Straight-line code for segments that come again and again.

A segment is found by its structure, which takes a walk over its calls, and by the kinds of its
leaves (`tensor.storage.signatures`). Both are known for one that has run a few times, so they are
compared by a function that is written for it and has no loop:

    c0, c1 = alive
    if c1 is not asked or c0.number != 21 or c1.number != 17: return None
    l0, c2 = c0.inputs
    ...

Where anything differs it gives None, and the walk looks, so the code decides nothing that the walk
would not. Where nothing does, it runs the segment as well (`segment_take`), or gives what the walk
would have found.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from tilegrad.base.flat_code import FlatCode, row_of
from tilegrad.engine.run import leaf_memory as store
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.handle.waiting import Call, Input, Number
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
from tilegrad.tensor.storage.noted_runs import Segment
from tilegrad.tensor.storage.segment_take import guards_of, is_plain, take_lines
from tilegrad.tensor.storage.signatures import WaitingCalls, is_computed
from tilegrad.tensor.storage.unread_states import goes_on

__all__ = ["Found", "Match", "written"]

# The calls, the memory below their leaves, the copies from the host, the values of variables.
Found = tuple[WaitingCalls, list[Base], list[UOp], dict[str, int]]
# The walk's result; True if the segment has run by that; None or False otherwise.
Match = Callable[[list[Call], Call], Found | bool | None]
Values = Callable[[Sequence[Input]], dict[str, int] | None]


class _Memory:
    """The memory of a leaf that is a node, and that is mostly the node of the run before."""

    __slots__ = ("_base", "_is_fixed", "_kind", "_leaf", "_stored")

    def __init__(self, kind: LeafKind):
        self._kind = kind
        # Whether the node decides the memory alone: it gives no offset and asks for no copy.
        steps = kind.steps or ()
        self._is_fixed = not kind.offsets and all(op is not Ops.COPY for op, _, _ in steps)
        # Weak references: to the leaf, what is stored of it, and the memory.
        self._leaf: Any = None
        self._stored: Any = None
        self._base: Any = None

    def below(self, leaf: UOp | Call, copies: dict[UOp, None], values: dict[str, int]) -> Any:
        """The memory; None if the leaf is of another kind."""
        if self._leaf is not None and self._leaf() is leaf:
            base, stored = self._base(), leaf.stored
            is_same = stored is None if self._stored is None else self._stored() is stored
            if is_same and base is not None and not store.is_overwritten(base):
                return base
        node = node_of(leaf) if leaf.__class__ is Call else leaf
        if node.__class__ is not UOp:
            return None
        base = base_below(node, self._kind, copies, values)
        if base is not None and self._is_fixed and node is leaf:
            stored = leaf.stored
            self._leaf, self._base = weakref.ref(leaf), weakref.ref(base)
            self._stored = None if stored is None else weakref.ref(stored)
        return base


def written(
    segment: Segment, found: WaitingCalls, asked: Call, values_of: Values | None = None
) -> Match | None:
    """The function for calls that are equal to those of `found`, over leaves of the segment's
    kinds; None for leaves with no more than a key. Where sizes may be others, `values_of` gives the
    variables that follow from those of leaves, and None for leaves of another segment. It runs the
    segment if that takes its plan alone.
    """
    kinds = segment.kinds
    if any(isinstance(kind, LeafKind) and kind.steps is None for kind in kinds):
        return None
    writer = FlatCode(
        Call=Call, Number=Number, WaitingCalls=WaitingCalls, blank=object.__new__,
        is_computed=is_computed,
    )  # fmt: skip
    count = len(found.alive)
    calls, leaves = found.calls, found.leaves
    names: dict[Any, str] = {call: f"c{number}" for number, call in enumerate(calls)}
    names |= {leaf: f"l{number}" for number, leaf in enumerate(leaves)}
    writer.lines.append(f"{row_of([names[call] for call in calls[:count]])} = alive")
    for number, call in enumerate(calls[:count]):
        writer.unless(
            f"c{number}.number != {call.number}",
            *([f"c{number} is not asked"] if call is asked else []),
            f"{'not ' if call.is_write else ''}c{number}.is_write",
        )
        if asked.is_write:
            writer.unless(f"{'not ' if call.is_loss else ''}c{number}.is_loss")
    _check_inputs(writer, found, names)
    runs = is_plain(segment, found, asked)
    if runs:
        writer.unless(*guards_of(segment, found))
    given = _check_leaves(writer, kinds)
    if values_of is not None:
        every = ", ".join(map(names.__getitem__, leaves))
        writer.lines.append(f"more = {writer.name(values_of)}([{every}])")
        writer.unless("more is None")
        writer.lines.append("values.update(more)")
    if runs:
        take_lines(writer, segment, found)
    else:
        _give(writer, found, names, given)
    match: Match = writer.function("match(alive, asked)", "calls")
    return match


def _give(writer: FlatCode, found: WaitingCalls, names: Mapping[Any, str], given: str) -> None:
    """Give the calls, and what `given` has expressions of."""
    calls, leaves = found.calls, found.leaves
    writer.lines += [
        "found = blank(WaitingCalls)",
        "found.alive = alive",
        f"found.calls = [{', '.join(map(names.__getitem__, calls))}]",
        f"found.leaves = [{', '.join(map(names.__getitem__, leaves))}]",
        f"found.writes = [{', '.join(map(names.__getitem__, found.writes))}]",
        f"found.losses = [{', '.join(map(names.__getitem__, found.losses))}]",
        f"found.states = [{', '.join(map(names.__getitem__, found.states))}]",
        f"found.key = {writer.name(found.key)}",
        f"return found, {given}",
    ]


def _check_inputs(writer: FlatCode, found: WaitingCalls, names: Mapping[Any, str]) -> None:
    """Compare the inputs of all calls with those of `found`, and name each where it comes first."""
    met, leaves = set(found.alive), set(found.leaves)
    for call in found.calls:
        inputs = call.inputs or ()
        if not inputs:
            continue
        # An input that comes for the first time has its name at once.
        targets: list[str] = []
        first: dict[Any, None] = {}
        for position, each in enumerate(inputs):
            if each in met or each in first:
                targets.append(f"i{position}")
            else:
                targets.append(names[each])
                first[each] = None
        writer.lines.append(f"{row_of(targets)} = {names[call]}.inputs")
        known = [
            f"i{position} is not {names[each]}"
            for position, each in enumerate(inputs)
            if targets[position] == f"i{position}"
        ]
        writer.unless(*known)
        for each in first:
            name = names[each]
            if each in leaves:
                waits = f"{name}.value is None and ({name}.node is None or not is_computed({name}))"
                is_state = "not " if goes_on(each) else ""
                differs = f"{waits} or {is_state}{name}.is_state"
                writer.unless(f"{name}.__class__ is Call and ({differs})")
            else:
                equal = [other for other in met if _is_call_of(other, each.number)]
                writer.unless(
                    f"{name}.__class__ is not Call",
                    f"{name}.number != {each.number}",
                    f"{name}.value is not None",
                    f"{name}.node is not None and is_computed({name})",
                    *[f"{name} is {names[other]}" for other in equal],
                )
            met.add(each)


def _check_leaves(writer: FlatCode, kinds: Sequence[Kind]) -> str:
    """Compare the leaves with their kinds; the expressions for what they stand on, the copies from
    the host, and the values of variables.
    """
    writer.lines += ["copies = {}", "values = {}"]
    variables: dict[str, str] = {}
    bases: set[int] = set()
    for number, kind in enumerate(kinds):
        leaf = f"l{number}"
        if isinstance(kind, NumberKind):
            _check_number(writer, leaf, kind, variables)
            continue
        if isinstance(kind, DrawKind):
            _check_draw(writer, leaf, kind)
            continue
        _find_base(writer, leaf, kind)
        if kind.base in bases:
            writer.unless(f"base is not b{kind.base}")
        else:
            bases.add(kind.base)
            writer.unless("base is None")
            writer.lines.append(f"b{kind.base} = base")
    every = [f"b{number}" for number in sorted(bases)]
    if len(every) > 1:
        writer.unless(f"len({{{', '.join(every)}}}) != {len(every)}")
    return f"[{', '.join(every)}], [*copies], values"


def _check_number(writer: FlatCode, leaf: str, kind: NumberKind, variables: dict[str, str]) -> None:
    """Compare a number; `variables` are the leaves that have their values."""
    dtype = writer.name(kind.dtype)
    writer.unless(f"{leaf}.__class__ is not Number", f"{leaf}.dtype is not {dtype}")
    if kind.variable is None:
        if kind.bits is not None:
            writer.unless(f"{leaf}.bits != {kind.bits}")
    elif kind.variable in variables:
        writer.unless(f"{leaf}.bits != {variables[kind.variable]}.bits")
    else:
        variables[kind.variable] = leaf
        writer.lines.append(f"values[{kind.variable!r}] = {leaf}.bits")


def _check_draw(writer: FlatCode, leaf: str, kind: DrawKind) -> None:
    """Compare random words, and take the variables that tell them apart."""
    writer.unless(f"not {writer.name(is_draw)}({leaf})")
    writer.unless(f"{leaf}.arg.shape != {kind.shape}", f"{leaf}.arg.device != {kind.device!r}")
    writer.lines.append(f"values.update({writer.name(kind.values_of)}({leaf}))")


def _find_base(writer: FlatCode, leaf: str, kind: LeafKind | SizedKind | SizedSliceKind) -> None:
    """Let `base` be the memory below a leaf, None unless the leaf is of this `kind`."""
    if isinstance(kind, SizedSliceKind):
        writer.unless(f"{leaf}.__class__ is Number")
        writer.lines.append(f"base = {writer.name(sliced)}({leaf}, {writer.name(kind)})")
        return
    if isinstance(kind, SizedKind):
        memory = f"{writer.name(whole)}({leaf}, {writer.name(kind)}, copies)"
        # Memory that a call was computed to, or that came from the host.
        may_be_computed = not kind.ops
        moves = f"any(move[0] is not {writer.name(Ops.RESHAPE)} for move in {leaf}.moves)"
        size = f"{writer.name(prod)}({leaf}.shape)"
    else:
        memory = f"{writer.name(_Memory(kind).below)}({leaf}, copies, values)"
        may_be_computed = True
        noted = writer.name(kind.moves)
        moves = f"{leaf}.moves is not {noted} and {leaf}.moves != {noted}"
        if kind.offsets:
            takes = writer.name(takes_moves)
            moves = f"not {takes}({leaf}.moves, {writer.name(kind)}, values)"
        size = str(kind.size)
    computed = f"{leaf}.__class__ is Call and {leaf}.value is not None"
    if not may_be_computed:
        writer.unless(computed, f"{leaf}.__class__ is Number")
        writer.lines.append(f"base = {memory}")
        return
    dtype = writer.name(kind.dtype)
    writer.lines += [
        f"if {computed}:",
        f"    buffer = {leaf}.value.buffer",
        f"    if {moves}: return None",
        f"    if buffer.dtype is not {dtype} or buffer.size != {size}: return None",
        f"    if buffer.allocator.device != {kind.device!r}: return None",
        f"    base = {leaf}.value.leaf or {leaf}.value",
        f"elif {leaf}.__class__ is Number: return None",
        "else:",
        f"    base = {memory}",
    ]


def _is_call_of(each: Any, number: int) -> bool:
    return isinstance(each, Call) and each.number == number
