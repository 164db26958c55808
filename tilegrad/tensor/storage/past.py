"""Origins of memory whose graph was given back: so that a gradient that is asked for too late is an
error, and never None or a part of itself.

A value that requires no gradient loses its graph as it becomes memory. The *past* of the memory
remains: weak references to the nodes and the memory that tensors may still ask a gradient for. A
past links to those of older memory that still lives, and takes over what those of dead memory hold:
so a loop of many steps has a past of constant size, and one that keeps all of its states has a link
a step.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tilegrad.engine.run import leaf_memory as store
from tilegrad.grad.rules import NO_DERIVATIVE
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import base_of, below_reshapes
from tilegrad.ir.uop import UOp
from tilegrad.tensor.handle.waiting import Call, Input, Value, this_thread
from tilegrad.tensor.storage.memory import is_stored

__all__ = [
    "Past", "Reached", "has_past", "is_computed", "is_in_others", "lost", "note_run", "pasts",
]  # fmt: skip

# The number of runs of calls after which later pasts take over those of dead memory.
_MOST_DEPTH = 64
_blank = object.__new__


class Reached(NamedTuple):
    """Ends of a value's gradients: leaves, memory below them, and calls. Each is a set of numbers,
    bit by bit: those of a chain of n values would be n * n numbers.
    """

    leaves: int
    bases: int
    calls: int


def _numbers(bits: int) -> Iterator[int]:
    """The numbers in a set."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


class _Mark:
    """A weak reference to a value of a run of calls, and once it has a leaf, to that."""

    __slots__ = ("reference",)
    reference: weakref.ref[Any]

    def __call__(self) -> Value | UOp | None:
        return self.reference()


class _Origin:
    """The origin of a value that no run computed, such as an array of the host that became memory:
    its mark, by which the pasts of later values find it when it has a leaf.
    """

    __slots__ = ("memory",)

    def __init__(self, value: Value):
        self.memory = _blank(_Mark)
        self.memory.reference = weakref.ref(value)

    def stand_on(self, leaf: UOp) -> None:
        """Know the leaf that was made for the value."""
        self.memory.reference = weakref.ref(leaf)


class _Run:
    """Leaves of a run of calls (`tensor.storage.segments`), and where its values are, for their
    pasts: weak references to leaves, the memory below them, and calls whose results were alive,
    which have the first numbers. `names` has for leaves that are graphs all nodes of these,
    `memory` for each call that was computed its mark.
    """

    __slots__ = ("bases", "calls", "depth", "leaves", "links", "memory", "names")
    leaves: list[weakref.ref[Any]]
    names: dict[int, list[weakref.ref[Any]]]
    calls: list[weakref.ref[Call]]
    bases: list[Callable[[], Any]]
    links: list[Past | None]
    depth: int
    memory: dict[int, _Mark]


class Past:
    """Nodes that `memory` was computed from by differentiable operations, and older pasts. That of
    a value of a `run` of calls is worked out when somebody asks, or after some runs: `depth` counts
    these.
    """

    __slots__ = ("_calls", "_links", "_marks", "_nodes", "_run", "depth", "memory")
    _run: tuple[_Run, Reached] | None
    # Attributes that follow from the run; set once they were worked out.
    _calls: dict[int, weakref.ref[Call]]
    # Values that had no leaf when this was worked out.
    _marks: dict[int, _Mark]
    _nodes: dict[int, weakref.ref[UOp]]
    _links: list[Past]

    def __init__(self, memory: weakref.ref[UOp] | _Mark):
        self.memory = memory
        self._begin()

    @staticmethod
    def over(root: UOp, memory: Sequence[UOp], base: UOp) -> Past:
        """The past of `root`, in `base`, that was computed from `memory` and views of it alone."""
        # As `add` to a new one, without the frames: most reads of graphs come by.
        ref = weakref.ref
        made = _blank(Past)
        made.memory = ref(base)
        made._run, made.depth = None, 0
        made._calls, made._marks = {}, {}
        made._nodes = nodes = {id(root): ref(root), id(base): made.memory}
        for each in memory:
            nodes[id(each)] = ref(each)
        made._links = links = []
        for each in memory:
            if each.op is Ops.BUFFER and (past := pasts.get(each.arg.slot)) is not None:
                links.append(past)
                if past._run is not None or past._links:
                    past.shorten()
        return made

    def _begin(self) -> None:
        self._run, self.depth = None, 0
        self._calls, self._marks, self._nodes, self._links = {}, {}, {}, []

    def stand_on(self, leaf: UOp) -> None:
        """Let this be the past of the leaf that was made for its value."""
        if isinstance(self.memory, _Mark):
            self.memory.reference = weakref.ref(leaf)
        pasts[leaf.arg.slot] = self

    def add(self, nodes: Collection[UOp], links: Iterable[Past]) -> None:
        """Add nodes, and older pasts."""
        self._nodes |= zip(map(id, nodes), map(weakref.ref, nodes), strict=True)
        self._links += links
        # Memory alone has a past of its own: to ask for that of each node would be a call each.
        for node in nodes:
            if node.op is Ops.BUFFER and (past := pasts.get(node.arg.slot)) is not None:
                if past not in self._links:
                    self._links.append(past)

    @property
    def links(self) -> list[Past]:
        """The older pasts."""
        self.work_out()
        return self._links

    @property
    def nodes(self) -> dict[int, weakref.ref[UOp]]:
        """The nodes, by identity."""
        self.work_out()
        return self._nodes

    def work_out(self) -> None:
        """Take from the run what the value has to do with, and from the runs before it, down to
        memory that is alive.
        """
        if self._run is None:
            return
        stack = [self._run]
        self._begin()
        seen = {id(each) for each in stack}
        links: dict[Past, None] = {}
        # The list grows while it is walked.
        for run, reached in stack:
            found: list[Callable[[], Any]] = []
            for number in _numbers(reached.leaves):
                found.append(run.leaves[number])
                found += run.names.get(number, ())
            calls = [*_numbers(reached.calls)]
            found += [run.calls[number] for number in calls if number < len(run.calls)]
            found += [run.memory[number] for number in calls if number in run.memory]
            for number in _numbers(reached.bases):
                found.append(run.bases[number])
                past = run.links[number]
                if past is None:
                    continue
                if past._run is None or past.memory() is not None:
                    links[past] = None
                elif id(past._run) not in seen:
                    seen.add(id(past._run))
                    stack.append(past._run)
            for reference in found:
                each = reference()
                if each is not None:
                    self._name(each, reference)
        self._links = [*links]
        self._take_over()

    def _name(self, each: UOp | Call | Value, reference: Callable[[], Any]) -> None:
        """Add what was computed from: a node, or what has no node yet."""
        if isinstance(each, UOp):
            self._nodes[id(each)] = weakref.ref(each)
        elif isinstance(each, Call):
            # Who asks for a gradient to one that has no node yet will have made it.
            self._calls[id(each)] = weakref.ref(each)
        elif isinstance(reference, _Mark):
            self._marks[id(reference)] = reference

    def shorten(self) -> None:
        """Take over what the pasts of dead memory hold, and forget what is dead."""
        self.work_out()
        self._take_over()

    def _take_over(self) -> None:
        alive = [link for link in self._links if link.memory() is not None]
        if len(alive) == len(self._links):
            return
        for link in self._links:
            if link.memory() is None:
                link.shorten()
                self._nodes |= link._nodes
                self._calls |= link._calls
                self._marks |= link._marks
                alive += [older for older in link._links if older not in alive]
        self._nodes = {key: ref for key, ref in self._nodes.items() if ref() is not None}
        self._calls = {key: ref for key, ref in self._calls.items() if ref() is not None}
        self._marks = {key: mark for key, mark in self._marks.items() if mark() is not None}
        self._links = alive

    def has(self, wanted: Collection[int]) -> bool:
        """Whether one of the nodes of the identities `wanted` is here and alive."""
        # A dead node's identity may be another's by now.
        if any(key in wanted and ref() is not None for key, ref in self.nodes.items()):
            return True
        if any(id(mark()) in wanted for mark in self._marks.values()):
            return True
        calls = [call for ref in self._calls.values() if (call := ref()) is not None]
        return any(call.node is not None and id(call.node) in wanted for call in calls)


# By reference to a leaf of runs that is a graph, the result of `_names_below`. A dictionary of weak
# keys has frames of its own, and nearly every read looks here.
_names: dict[weakref.ref[UOp], list[weakref.ref[Any]]] = {}


def _names_below(leaf: UOp) -> list[weakref.ref[Any]]:
    """For a leaf of a run that is a graph, the nodes below that its gradients go through or to, as
    a tensor may be any of them, and the graph itself may die before they do.
    """
    nodes = [leaf]
    # The list grows while it is walked.
    for node in nodes if not is_stored(leaf) else ():
        if node.op not in NO_DERIVATIVE and (node.dtype.is_float or node.op is Ops.LOOP):
            nodes += [source for source in node.src if source not in nodes]
    found = _names[weakref.ref(leaf, _names.pop)] = [*map(weakref.ref, nodes[1:])]
    return found


# By slot of the memory, a BUFFER.
pasts: dict[int, Past] = store.by_slot()


def note_run(
    values: Sequence[tuple[int, Value, Reached]],
    leaves: Sequence[Input],
    bases: Iterable[UOp | Value],
    calls: Iterable[Call],
) -> None:
    """Note what a run over `leaves`, and the memory `bases` below them, made its values from: for
    each the number of its call, the memory that holds it, and what it reached. The first of its
    calls are `calls`, whose results are alive: a gradient to another one cannot be asked for.
    """
    # Nearly every read comes by: what the classes could do themselves would be frames.
    ref = weakref.ref
    run = _blank(_Run)
    run.leaves, run.calls = [*map(ref, leaves)], [*map(ref, calls)]
    run.names = names = {}
    for number, leaf in enumerate(leaves):
        if leaf.__class__ is UOp and leaf.src:
            below = _names.get(ref(leaf))
            names[number] = _names_below(leaf) if below is None else below
    run.bases, run.links = [], []
    depth = 1
    for base in bases:
        if isinstance(base, Value):
            past = base.past
            if past is None:
                past = base.past = _Origin(base)
            if past.__class__ is _Origin:
                run.links.append(None)
                run.bases.append(past.memory)
                continue
        else:
            past = pasts.get(base.arg.slot)
            if past is None:
                run.links.append(None)
                run.bases.append(ref(base))
                continue
        run.links.append(past)
        run.bases.append(past.memory)
        if past.depth >= depth:
            depth = past.depth + 1
    run.depth = depth
    run.memory = memory = {}
    for number, value, reached in values:
        past = value.past
        if past is None or past.__class__ is _Origin:
            past = value.past = _blank(Past)
            past._run, past.depth = (run, reached), depth
            mark = past.memory = _blank(_Mark)
            mark.reference = ref(value)
            if value.leaf is not None:
                past.stand_on(value.leaf)
        # Calls that are equal share a value.
        memory[number] = past.memory
    if depth > _MOST_DEPTH:
        _work_out_below(run)
        for _, value, _ in values:
            value.past.work_out()


def _work_out_below(run: _Run) -> None:
    """Work out the pasts below a run whose memory is alive, the oldest first: each would keep all
    runs before its own.
    """
    alive: dict[Past, int] = {}
    stack = [run]
    seen = {id(run)}
    # The list grows while it is walked.
    for each in stack:
        for past in each.links:
            if past is None or past._run is None:
                continue
            if past.memory() is not None:
                alive[past] = past.depth
            below = past._run[0]
            if id(below) not in seen:
                seen.add(id(below))
                stack.append(below)
    for past in sorted(alive, key=alive.__getitem__):
        past.work_out()


def is_computed(value: Value) -> bool:
    """Whether it is known what a run made a value from."""
    return value.past is not None and value.past.__class__ is not _Origin


def has_past(memory: UOp) -> bool:
    """Whether it is known what `memory`, a BUFFER, was computed from."""
    return memory.arg.slot in pasts


def lost(
    roots: Iterable[UOp],
    graphs: Mapping[UOp, UOp],
    names: Iterable[Iterable[UOp]],
    *,
    are_leaves: bool = False,
) -> UOp | None:
    """Memory below `roots` whose graph was given back, though a target is in its past: `names` has
    for each target the nodes that are its value. `graphs` has those that were kept. Below targets
    that `are_leaves` no gradient goes on, whatever their memory was computed from.
    """
    if not pasts:
        return None
    targets = [
        {id(each) for name in several for each in (name, below_reshapes(name))} for several in names
    ]
    everyone: set[int] = set().union(*targets)
    stack = [*roots]
    seen = set(stack)
    while stack:
        node = stack.pop()
        if are_leaves and id(node) in everyone:
            continue
        is_memory = node.op is Ops.BUFFER
        if is_memory and node in graphs:
            sources: tuple[UOp, ...] = (graphs[node],)
        else:
            past = pasts.get(node.arg.slot) if is_memory else None
            if past is not None:
                wanted = everyone
                if id(node) in everyone:
                    # A target whose value this is may be in its past by an earlier name.
                    wanted = set().union(*[each for each in targets if id(node) not in each])
                if _have([past], wanted):
                    return node
            is_over = node.op in NO_DERIVATIVE or not (node.dtype.is_float or node.op is Ops.LOOP)
            sources = () if is_over else node.src
        for source in sources:
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return None


def is_in_others(node: UOp) -> bool:
    """Whether memory that was computed from a node, and lives, has lost its graph."""
    own = base_of(node)
    slot = own.arg.slot if own.op is Ops.BUFFER else None
    names = {id(each) for each in (node, below_reshapes(node), own)}
    others = [past for at, past in list(pasts.items()) if at != slot]
    return _have([*others, *_pasts_without_leaf()], names)


def _pasts_without_leaf() -> Iterator[Past]:
    """The pasts of results of runs of this thread that have no node yet."""
    for reference in [*this_thread.pool.computed]:
        tensor = reference()
        call: Call | None = None if tensor is None else tensor._call
        value = None if call is None else call.value
        if value is not None and value.leaf is None and is_computed(value):
            yield value.past


def _have(several: Sequence[Past], wanted: Collection[int]) -> bool:
    """Whether some pasts, or those that they link to, have one of the nodes `wanted`."""
    stack, seen = [*several], set(map(id, several))
    while stack:
        past = stack.pop()
        past.shorten()
        if past.has(wanted):
            return True
        for link in past.links:
            if id(link) not in seen:
                seen.add(id(link))
                stack.append(link)
    return False
