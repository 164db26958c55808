"""Outcomes of the first run of equal calls, noted so that later ones need no nodes.

The first time, the nodes of a segment (`tensor.storage.segments`) run over other leaves of the same
memory. So nothing that was computed elsewhere is found on the way, and what is noted follows from
the signature alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from tilegrad.base.config import config
from tilegrad.engine.realize import realize as engine
from tilegrad.engine.realize.bindings import Binding
from tilegrad.engine.realize.launch_numbers import variable_name
from tilegrad.engine.realize.request import Request
from tilegrad.engine.run import leaf_memory as store
from tilegrad.engine.run.run import ready_plan
from tilegrad.grad.rules import NO_DERIVATIVE
from tilegrad.ir.args import RandArg
from tilegrad.ir.op import Ops
from tilegrad.ir.slices import offset_name
from tilegrad.ir.uop import UOp, toposort
from tilegrad.tensor.handle.waiting import Call, Moves, Number, Value
from tilegrad.tensor.storage.leaf_kinds import DrawKind, Kind, LeafKind, NumberKind
from tilegrad.tensor.storage.memory import base_of
from tilegrad.tensor.storage.memory_below import moves_of
from tilegrad.tensor.storage.past import Reached
from tilegrad.tensor.storage.signatures import Leaves, WaitingCalls
from tilegrad.tensor.storage.worth_keeping import worth_keeping

__all__ = ["Computed", "Outcome", "PlainNodes", "ResultsAlive", "Segment", "noted", "reached_by"]


class Outcome(NamedTuple):
    """The outcome of call number `call` of a segment: [movement of] result number `source` of its
    plan, or of the memory number -1 - `source` that it reads. A view that was asked for is that
    memory, but its call is made again (`is_lasting`). Integers reach nothing. Where sizes may be
    others, `moves` is None for the shape of the call.
    """

    call: int
    source: int
    moves: Moves | None
    reached: Reached | None
    is_lasting: bool


class Segment:
    """Decisions about a segment: the memory that the plan reads, by number, the variables of its
    launches, the outcomes of its calls, and of copies from the host that it reads. Without a
    binding there is nothing to run. It is for leaves of certain `kinds`, under the switches
    `config`.

    For a plan for a range of sizes, `comes_again` counts a run, and says whether the plan still is
    the one for this size. `runs` counts those that the walk over the calls found.
    """

    __slots__ = (
        "binding", "comes_again", "config", "copies", "inputs", "kinds", "outcomes", "runs",
        "values",
    )  # fmt: skip

    def __init__(
        self,
        kinds: tuple[Kind, ...],
        binding: Binding | None,
        inputs: tuple[int, ...],
        values: Mapping[str, int],
        outcomes: tuple[Outcome, ...],
        copies: tuple[tuple[int, int], ...],
        comes_again: Callable[[], bool] | None,
    ):
        self.config = config.current()
        self.runs = 0
        self.kinds, self.binding, self.inputs, self.values = kinds, binding, inputs, values
        self.outcomes, self.copies, self.comes_again = outcomes, copies, comes_again


# The number of a call, its memory after a run and how it looks at that, what its value was computed
# from, and whether that is its value from now on.
Computed = tuple[int, Value, Moves, Reached | None, bool]


class PlainNodes:
    """The nodes of a segment over other leaves of the same memory: nothing else that was computed
    is found on the way, so what runs follows from the signature alone.
    """

    __slots__ = ("bases", "calls", "copies", "fixed", "leaves", "made", "uses")

    def __init__(self, found: WaitingCalls, below: Leaves):
        self.bases = {base: store.leaf(store.buffer_of(base)) for base in below.bases}
        self.copies = [self._over(copy) for copy in below.copies]
        self.leaves: dict[Any, UOp] = {
            leaf: self._over(node) for leaf, node in zip(found.leaves, below.nodes, strict=True)
        }
        self.calls: dict[Any, UOp] = {}
        # By a node and the position of a constant among its sources, the numbers that it is.
        self.uses: dict[tuple[UOp, int], list[Any]] = {}
        # Where the constant of a template is used, or of a graph below: a number that has the same
        # value, and so the same node, may be another one in an equal segment.
        self.fixed: set[tuple[UOp, int]] = set()
        # The nodes that calls make, which have the same arguments in equal segments.
        self.made: set[UOp] = set()
        for call in found.by_time:
            inputs = [self.calls.get(each) or self.leaves[each] for each in call.inputs or ()]
            nodes = call.template.make(inputs, call.entry)
            self.calls[call] = nodes[call.slot]
            self.made.update([node for node in nodes[len(inputs) :] if node.op is Ops.SHRINK])
            self._note_constants(call, nodes)
        constants = [each for call in found.calls for each in call.template.constants]
        for node in toposort([*constants, *self.leaves.values()]):
            for position, source in enumerate(node.src):
                if source.op is Ops.CONST:
                    self.fixed.add((node, position))

    def _note_constants(self, call: Call, nodes: Sequence[UOp]) -> None:
        """Note where numbers and constants are used among the nodes of a call."""
        inputs = call.inputs or ()
        for number, position, slot in call.template.uses():
            use = nodes[number], position
            if slot < len(inputs) and inputs[slot].__class__ is Number:
                self.uses.setdefault(use, []).append(inputs[slot])
            elif nodes[slot].op is Ops.CONST:
                self.fixed.add(use)

    def variables(self, request: Request, binding: Binding) -> dict[Any, str]:
        """The numbers that are variables of a run's launches, with their names. One that shares its
        variable with another constant is known by its value: where it is another one, they differ.
        So is one that the plan takes for a length.
        """
        constants = {number for uses in binding.numbers for number in uses}
        if not constants:
            return {}
        user_of = {
            source: (request.nodes[number], position)
            for number, sources in enumerate(request.sources)
            for position, source in enumerate(sources)
            if source in constants
        }
        found: dict[Any, str] = {}
        for slot, uses in enumerate(binding.numbers):
            users = [user_of[number] for number in uses if number in user_of]
            leaves = [() if user in self.fixed else self.uses.get(user, ()) for user in users]
            if leaves and all(leaves) and request.explained.isdisjoint(uses):
                name = variable_name(slot)
                found |= {leaf: name for several in leaves for leaf in several}
        return found

    def numbers_of_others(self, request: Request) -> set[Any]:
        """The numbers that only stand in calls whose results a run does not compute."""
        found = {leaf for leaf in self.leaves if leaf.__class__ is Number}
        for (user, _), leaves in self.uses.items():
            if user in request.numbers:
                found.difference_update(leaves)
        for call, node in self.calls.items():
            if node in request.numbers:
                found.difference_update(call.inputs or ())
        return found

    def offsets(
        self, found: WaitingCalls, kinds: Sequence[Kind], request: Request, binding: Binding
    ) -> list[Kind]:
        """The kinds of leaves, with the names of offsets of slices that are variables of a run's
        launches. One of a slice that a call makes too, or that a computed call is, is constant;
        not so that of a tensor that was made as a view of memory, and has no inputs.
        """
        names: dict[UOp, dict[int, str]] = {}
        for number, (at, axis) in enumerate(binding.slices):
            names.setdefault(request.nodes[at], {})[axis] = offset_name(number)
        fixed = set(self.made)
        chains: list[list[UOp]] = []
        for leaf, kind in zip(found.leaves, kinds, strict=True):
            chain: list[UOp] = []
            if isinstance(kind, LeafKind):
                node = self.leaves[leaf]
                is_view = isinstance(leaf, Call) and leaf.inputs is None and not leaf.is_write
                is_open = (isinstance(leaf, UOp) or is_view) and kind.steps is not None
                for each in toposort([node]):
                    if each in names and not is_open:
                        fixed.add(each)
                for _ in (kind.steps or ()) if is_open else ():
                    chain.append(node)
                    node = node.src[0]
            chains.append(chain)
        return [
            kind._replace(offsets=_offset_names(chain, names, fixed))
            if isinstance(kind, LeafKind) and any(node in names for node in chain)
            else kind
            for kind, chain in zip(kinds, chains)
        ]

    def _over(self, node: UOp) -> UOp:
        return node.substitute(engine.computed_below(node)).substitute(self.bases)


def _offset_names(
    chain: Sequence[UOp], names: Mapping[UOp, Mapping[int, str]], fixed: Collection[UOp]
) -> tuple[tuple[str | None, ...] | None, ...]:
    """For each node of a chain None, or the names of its offsets by axis."""
    found: list[tuple[str | None, ...] | None] = []
    for node in chain:
        by_axis = None if node in fixed else names.get(node)
        axes = range(len(node.arg)) if by_axis else ()
        found.append(tuple([by_axis.get(axis) for axis in axes]) if by_axis else None)
    return tuple(found) if any(found) else ()


class ResultsAlive(engine.Others):
    """Facts that a run of plain nodes needs about the results alive, and the run itself."""

    def __init__(self, alive: Sequence[UOp]):
        self.alive = alive
        self.runs: list[tuple[Request, Binding, Sequence[UOp], Mapping[str, int]]] = []

    def retained(self, request: Request) -> list[UOp]:
        """Those on the way, and what the others are to be computed from."""
        numbers = request.numbers
        found: set[UOp] = set()
        stack: list[UOp] = []
        for node in self.alive:
            if node in numbers:
                found.add(node)
            else:
                stack.append(node)
        seen = set(stack)
        while stack:
            for source in stack.pop().src:
                if source in numbers:
                    found.add(source)
                elif source not in seen:
                    seen.add(source)
                    stack.append(source)
        return worth_keeping(request, found)

    def ran(
        self, request: Request, binding: Binding, memory: Sequence[UOp], values: Mapping[str, int]
    ) -> None:
        self.runs.append((request, binding, memory, values))


class _PlanRun(NamedTuple):
    """One run of plain nodes: its request and binding, the memory that its plan reads by number,
    the values of its variables, and the kinds of the leaves with their variables.
    """

    request: Request
    binding: Binding
    inputs: tuple[int, ...]
    values: Mapping[str, int]
    kinds: tuple[Kind, ...]


def noted(
    found: WaitingCalls,
    below: Leaves,
    plain: PlainNodes,
    computed: Sequence[tuple[Call, UOp, Reached | None, bool]],
    others: ResultsAlive,
) -> Segment | None:
    """The noted segment; None if its plan does not run in one call."""
    sources = {base: -1 - number for number, base in enumerate(plain.bases.values())}
    run: _PlanRun | None = None
    if others.runs:
        run = _noted_run(found, below.kinds, plain, others, sources)
        if run is None:
            return None
    outcomes = _outcomes(found, computed, sources)
    copies = _copies(plain, sources)
    if outcomes is None or copies is None:
        return None
    if run is None:
        return Segment(below.kinds, None, (), {}, outcomes, copies, None)
    request, binding, inputs, values, kinds = run
    if all(each.source >= 0 for each in outcomes):
        # A view of memory that was there before would have moved as well.
        kinds = tuple(plain.offsets(found, kinds, request, binding))
    return Segment(kinds, binding, inputs, values, outcomes, copies, request.comes_again)


def _noted_run(
    found: WaitingCalls,
    kinds: Sequence[Kind],
    plain: PlainNodes,
    others: ResultsAlive,
    sources: dict[UOp, int],
) -> _PlanRun | None:
    """The noted run of a segment, whose results are added to `sources`; None if it takes more than
    launches over the memory below the leaves.
    """
    ((request, binding, memory, values),) = others.runs
    if binding.targets or ready_plan(binding.plan) is None:
        return None
    draws = {
        request.nodes[number]: RandArg.launch_names(position)
        for position, number in enumerate(binding.draws)
    }
    if not draws.keys() <= {*plain.leaves.values()}:
        return None
    given = [request.nodes[number] for number in binding.inputs]
    if not all(node in sources for node in given):
        return None
    inputs = tuple([-1 - sources[node] for node in given])
    for node, value in zip(memory, binding.values, strict=True):
        sources[base_of(node)] = value.source
    variables = plain.variables(request, binding)
    others_own = plain.numbers_of_others(request)
    named = tuple([
        kind._replace(variable=variables.get(leaf), bits=None if leaf in others_own else kind.bits)
        if isinstance(kind, NumberKind)
        else kind._replace(names=draws.get(plain.leaves[leaf]))
        if isinstance(kind, DrawKind)
        else kind
        for leaf, kind in zip(found.leaves, kinds, strict=True)
    ])  # fmt: skip
    return _PlanRun(request, binding, inputs, values, named)


def _outcomes(
    found: WaitingCalls,
    computed: Sequence[tuple[Call, UOp, Reached | None, bool]],
    sources: Mapping[UOp, int],
) -> tuple[Outcome, ...] | None:
    """The outcomes of calls; None if one is in memory that is no source."""
    numbers = {call: number for number, call in enumerate(found.calls)}
    outcomes: list[Outcome] = []
    for call, value_node, reached, is_lasting in computed:
        moves, base = moves_of(value_node)
        if base not in sources:
            return None
        outcomes.append(Outcome(numbers[call], sources[base], moves, reached, is_lasting))
    return tuple(outcomes)


def _copies(plain: PlainNodes, sources: Mapping[UOp, int]) -> tuple[tuple[int, int], ...] | None:
    """The copies from the host that were made, each with its source; None if one has none."""
    copies: list[tuple[int, int]] = []
    for number, copy in enumerate(plain.copies):
        stored = engine.realized(copy)
        if stored is not None:
            if stored not in sources:
                return None
            copies.append((number, sources[stored]))
    return tuple(copies)


def reached_by(found: WaitingCalls, plain: PlainNodes) -> dict[Call, Reached]:
    """For each call with a float result, what a gradient of that goes to."""
    leaf_bit = {node: 1 << number for number, node in enumerate(plain.leaves.values())}
    base_bit = {node: 1 << number for number, node in enumerate(plain.bases.values())}
    numbers = {each: number for number, each in enumerate(found.calls)}
    # An alias of all of a result has its node.
    call_bit: dict[UOp, int] = {}
    for each, node in plain.calls.items():
        call_bit[node] = call_bit.get(node, 0) | 1 << numbers[each]
    # By node, without the node itself where that is the result of a call.
    reached: dict[UOp, Reached] = {}
    for node in toposort(plain.calls.values()):
        leaves, bases, calls = leaf_bit.get(node, 0), base_bit.get(node, 0), 0
        if node.op not in NO_DERIVATIVE and (node.dtype.is_float or node.op is Ops.LOOP):
            for source in node.src:
                below = reached[source]
                leaves |= below.leaves
                bases |= below.bases
                calls |= below.calls | call_bit.get(source, 0)
        reached[node] = Reached(leaves, bases, calls)
    return {each: reached[node] for each, node in plain.calls.items() if each.dtype.is_float}
