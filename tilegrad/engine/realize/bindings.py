"""Bindings: the plan of a run and which nodes it reads, writes and computes, cached by signature.

A `Binding` names nodes by their numbers in a `Request`. It holds no memory and no graph, so that
one binding serves every request of the same signature.

Here a graph becomes one that can be planned:

* A value computed before is replaced by its memory.
* A view of memory that is about to change is copied, and so is the value of an assignment that
  another one overwrites in the same run.
* Values with a step of their own (copies, assignments, outputs of loops) are results too, so that
  they are remembered.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tilegrad.base.config import Config, config
from tilegrad.base.forks import held_at_fork
from tilegrad.base.origin import Entry
from tilegrad.base.recent import forget_all
from tilegrad.device.backend import Backend
from tilegrad.device.registry import Device
from tilegrad.engine.plans.plan import Plan, Step
from tilegrad.engine.plans.plans import Graph, normalise, plan_for
from tilegrad.engine.realize.causes import tell
from tilegrad.engine.realize.changing_numbers import changed_since, with_variable_offsets
from tilegrad.engine.realize.launch_numbers import bits_of, number_variable, variable_name
from tilegrad.engine.realize.request import Request
from tilegrad.engine.realize.values_of_runs import Moves, Value, moves_at, values_after
from tilegrad.engine.run.leaf_memory import give_up_memory
from tilegrad.engine.run.run import is_for_replays
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import base_of, direct_copies
from tilegrad.ir.slices import offset_name
from tilegrad.ir.uop import UOp, sint, toposort

__all__ = [
    "NOT_SIZED", "Binding", "Bindings", "Sized", "binding_among", "binding_of", "constants_of",
    "make_binding",
]  # fmt: skip

_REMEMBERED = (Ops.COPY, Ops.ASSIGN, Ops.LOOP_OUTPUT)
_MOST_BINDINGS = 256
# Keys have few bindings, as a rule: all are counted once in as many new keys.
_COUNT_EVERY = 64
# The most numbers of a graph that are variables: each is a parameter of a kernel.
_MOST_NUMBERS = 64


@dataclass(frozen=True)
class Binding:
    """The run of a plan, in numbers of a `Request`.

    Attributes:
        inputs: the memory that the plan takes.
        draws, slices, numbers: the random draws, the slices of memory with their axes, and the
            constants: all are variables of the launches, a constant once for each use.
        targets: the memory that is overwritten.
        order: the nodes of the plan's graph, None for those made for the plan.
        values: where values are after the run.
        known: the nodes whose values these are, each with its position in `values`.
        roots: the position in `values` of each root, None for memory itself.
        unremembered: the roots whose values are not kept for later: the value of a graph of
            constants is not one device's.
    """

    plan: Plan
    backends: tuple[tuple[str, Backend], ...]
    inputs: tuple[int, ...]
    draws: tuple[int, ...]
    slices: tuple[tuple[int, int], ...]
    numbers: tuple[tuple[int, ...], ...]
    targets: tuple[int, ...]
    order: tuple[int | None, ...]
    values: tuple[Value, ...]
    known: tuple[tuple[int, int], ...]
    roots: tuple[int | None, ...]
    unremembered: frozenset[int]

    def moves_of(self, value: Value, request: Request) -> Moves:
        """The movement above the memory of a value, for the sizes of `request`."""
        if not request.lengths:
            return value.moves
        return moves_at(value.moves, request.lengths)

    def origin_of(self, request: Request, step: Step) -> tuple[Entry, ...]:
        """The user's calls of this request behind a step; the plan may be an older request's."""
        known = [self.order[position] for position in step.nodes if position < len(self.order)]
        nodes = [request.nodes[number] for number in known if number is not None]
        return tuple(dict.fromkeys(entry for node in nodes for entry in node.origin))

    def graph_of(self, request: Request) -> list[UOp]:
        """The nodes that the steps of the plan name, if it calls Python functions among them."""
        if not any(step.is_custom for step in self.plan.steps):
            return []
        return [request.nodes[number or 0] for number in self.order]

    def launch_variables(self, request: Request) -> Iterator[tuple[str, int]]:
        """The values of the variables that the run itself brings: offsets of slices, constants
        that change, seed and offset of each draw, and lengths.
        """
        for position, uses in enumerate(self.numbers):
            yield variable_name(position), bits_of(request.nodes[uses[0]])
        for position, (number, axis) in enumerate(self.slices):
            yield offset_name(position), request.nodes[number].arg[axis][0]
        for position, number in enumerate(self.draws):
            arg = request.nodes[number].arg
            yield from zip(arg.launch_names(position), arg.launch_values)
        yield from request.lengths.items()

    @property
    def has_variables(self) -> bool:
        """Whether the run itself brings variables, beside lengths."""
        return bool(self.numbers or self.slices or self.draws)

    @property
    def is_current(self) -> bool:
        """Whether the devices are still those that the plan was made for."""
        for name, backend in self.backends:
            if Device.at_hand(name) is not backend and Device[name] is not backend:
                return False
        return True


class Bindings:
    """The bindings of graphs that differ in constants and in offsets of slices only.

    Attributes:
        variable_slices: the slices whose offsets are variables; the others' are part of the key.
        first: the constants of the first such graph.
        groups: for each constant the number of its group: constants that were equal in all graphs.
        changing: the groups that are variables.
    """

    __slots__ = ("by_key", "changing", "first", "groups", "runs", "used", "variable_slices")

    def __init__(self, first: tuple[Hashable, ...]) -> None:
        # The number of the last use, and how many runs there were.
        self.used = self.runs = 0
        self.variable_slices: frozenset[int] = frozenset()
        self.changing: frozenset[int] = frozenset()
        self.first = first
        self.groups = _numbered(self.first)
        self.by_key: dict[tuple[Any, ...], Binding] = {}

    def key(self, request: Request) -> tuple[Any, ...]:
        """The offsets of slices and the constants that are no variables."""
        fixed = [number for number in request.slices if number not in self.variable_slices]
        positions = [tuple([start for start, _ in request.nodes[n].arg]) for n in fixed]
        constants = constants_of(request)
        if not self.changing:
            return (*positions, *constants)
        seen: dict[int, Hashable] = {}
        for group, value in zip(self.groups, constants, strict=True):
            if seen.setdefault(group, value) != value:
                # One variable cannot be two numbers.
                return (*positions, None, *constants)
        return (*positions, *[value for group, value in seen.items() if group not in self.changing])

    def vary_changing(self, changes: Sequence[bool]) -> None:
        """Make variables of the constants of the first graph that are known to change."""
        split = _numbered(zip(self.first, changes, strict=True))
        changing = {group for group, does in zip(split, changes, strict=True) if does}
        if changing and len(changing) <= _MOST_NUMBERS:
            self.groups, self.changing = split, frozenset(changing)

    def vary_differing(self, request: Request) -> None:
        """Make variables of the constants that differ from those of the first graph; groups whose
        constants differ from each other are split.
        """
        now = constants_of(request)
        groups = _numbered([*zip(self.groups, now, strict=True)])
        changing = {
            group
            for group, old, value, first in zip(groups, self.groups, now, self.first, strict=True)
            if old in self.changing or value != first
        }
        if len(changing) > _MOST_NUMBERS:
            changing = set()
        if groups != self.groups or changing != self.changing:
            self.groups, self.changing = groups, frozenset(changing)
            self.by_key.clear()

    def variables(self, request: Request) -> list[list[int]]:
        """For each variable, the numbers of the constants that it stands for."""
        found: dict[int, list[int]] = {}
        for number, group in zip(request.constants, self.groups, strict=True):
            if group in self.changing:
                found.setdefault(group, []).append(number)
        return list(found.values())


def _numbered(values: Iterable[Hashable]) -> tuple[int, ...]:
    """Numbers for values, in the order of their first use; equal values share one."""
    found: dict[Hashable, int] = {}
    return tuple([found.setdefault(value, len(found)) for value in values])


def constants_of(request: Request) -> tuple[Hashable, ...]:
    """The constants that may change; an integer is not equal to a float."""
    nodes = [request.nodes[number] for number in request.constants]
    return tuple([(node.arg,) if node.dtype.is_int else node.arg for node in nodes])


BindingsKey = tuple[Config, str, bool, tuple[Any, ...], tuple[int, ...]]
"""The switches, the device, whether constants may vary, and the shared part of a request."""
# By the switches, the default device, and the shared part of the requests. A key is long, and its
# hash is computed anew each time: so a use is a number in the entry, and not an order of the table.
_bindings: dict[BindingsKey, Bindings] = {}
_uses = itertools.count(1)
_lock = held_at_fork(threading.Lock(), 30)


def key_of_bindings(request: Request, *, may_vary: bool = True) -> BindingsKey:
    """The key of the bindings of `request`."""
    return config.current(), Device.DEFAULT, may_vary, request.signature(), request.needed_later


def runs_of(key: BindingsKey) -> int:
    """How often graphs with that key were run by their nodes."""
    bindings = _bindings.get(key)
    return 0 if bindings is None else bindings.runs


def _forget_device(name: str) -> None:
    """Forget all plans, and memory on the device whose name another one has taken."""
    forget_all()
    _bindings.clear()
    give_up_memory(name)


Device.on_renewal.append(_forget_device)


def binding_of(
    request: Request,
    *,
    may_vary: bool,
    otherwise: Callable[[Request], Binding | None],
) -> Binding:
    """The binding of `request`. Constants that change are variables if they `may_vary`. `otherwise`
    may have a binding for a new signature.
    """
    key = key_of_bindings(request, may_vary=may_vary)
    bindings = _bindings.get(key)
    if bindings is None:
        found = otherwise(request) if may_vary else None
        if found is not None:
            return found
        bindings = _new_bindings(key, request)
    bindings.used = next(_uses)
    request.bindings = bindings
    return binding_among(bindings, request, may_vary=may_vary)


def binding_among(
    bindings: Bindings,
    request: Request,
    *,
    may_vary: bool,
    sized: Sized | None = None,
) -> Binding:
    """The binding of `request` among `bindings`, made if there is none."""
    found = bindings.by_key.get(bindings.key(request))
    if found is None or not found.is_current:
        if config.DEBUG >= 1:
            tell(request)
        if may_vary:
            changes = changed_since(request)
            if bindings.by_key or bindings.first != constants_of(request):
                bindings.vary_differing(request)
            else:
                bindings.vary_changing(changes)
        found, variable_slices = make_binding(
            request, bindings.variables(request), sized or NOT_SIZED
        )
        if variable_slices != bindings.variable_slices or len(bindings.by_key) >= _MOST_BINDINGS:
            bindings.variable_slices = variable_slices
            bindings.by_key.clear()
        bindings.by_key[bindings.key(request)] = found
    return found


def _new_bindings(key: BindingsKey, request: Request) -> Bindings:
    """An empty table for a new key. Beyond KEEP_KERNELS bindings, the quarter that was used longest
    ago is dropped.
    """
    with _lock:
        if len(_bindings) % _COUNT_EVERY == 0 or len(_bindings) >= config.KEEP_KERNELS:
            _forget(max(config.KEEP_KERNELS, 1))
        return _bindings.setdefault(key, Bindings(constants_of(request)))


def _forget(most: int) -> None:
    total = sum(len(bindings.by_key) for bindings in list(_bindings.values()))
    if max(total, len(_bindings)) < most:
        return
    for key, bindings in sorted(_bindings.items(), key=lambda item: item[1].used):
        if max(total, len(_bindings)) <= most - most // 4 - 1:
            break
        total -= len(bindings.by_key)
        del _bindings[key]


class Sized(NamedTuple):
    """Replacements for nodes of a graph that is planned for many sizes, by number: arguments, the
    shapes they lead to, and whole nodes. `slices` are those whose offsets are lengths; `paddings`
    tell by how much the source of a slice is padded before it is cut.
    """

    arguments: Mapping[int, Any]
    shapes: Mapping[int, tuple[sint, ...]]
    nodes: Mapping[int, UOp]
    slices: frozenset[int]
    paddings: Mapping[int, Sequence[int]]


NOT_SIZED = Sized({}, {}, {}, frozenset(), {})


def make_binding(
    request: Request, changing: Sequence[Sequence[int]], sized: Sized
) -> tuple[Binding, frozenset[int]]:
    """The binding of `request`, with a variable for each of the groups of constants `changing`, and
    which of its slices have variable offsets.
    """
    variables = {
        n: number_variable(at, request.nodes[n].dtype)
        for at, several in enumerate(changing)
        for n in several
    }
    now = _with_memory(request, {**variables, **sized.nodes}, sized)
    sources = [now[number] for number in request.roots]
    below = toposort(sources)
    overwritten = {now[request.version_of(assign)] for assign in request.assigns}
    requested = [_to_compute(node, overwritten) for node in sources]
    outputs = [node for node in now if node.op is Ops.LOOP_OUTPUT]
    sink = UOp.sink(*dict.fromkeys([*requested, *_remembered(requested, outputs)]))
    graph = with_variable_offsets(normalise(sink))
    position_of = {node: position for position, node in enumerate(graph.nodes)}
    plan = plan_for(
        graph,
        sorted({position_of[now[n]] for n in request.needed_later if now[n] in position_of}),
        is_short=not is_for_replays(),
    )
    results = [*sink.src, *[graph.nodes[position] for position in plan.materialised]]
    number_of: dict[UOp, int] = {}
    for number, node in enumerate(now):
        number_of.setdefault(node, number)
    values = values_after(results, below, overwritten, number_of)
    for node, asked in zip(sources, requested, strict=True):
        if node not in values and node.op is not Ops.BUFFER:
            values[node] = values[asked]
    on_devices = _on_devices(values)
    has_device = {node: node in on_devices for node in values}
    at = {value: position for position, value in enumerate(dict.fromkeys(values.values()))}
    binding = Binding(
        plan=plan,
        backends=_backends(graph, plan),
        inputs=tuple([number_of[leaf] for leaf in graph.leaves]),
        draws=tuple([number_of[draw] for draw in graph.draws]),
        slices=tuple([(number_of[graph.nodes[w.position]], w.axis) for w in graph.slices]),
        numbers=tuple(map(tuple, changing)),
        targets=tuple(dict.fromkeys(request.target_of(assign) for assign in request.assigns)),
        order=tuple([number_of.get(node) for node in graph.nodes]),
        values=tuple(at),
        known=_known_of(now, {node: at[values[node]] for node in on_devices if node in values}),
        roots=tuple([at[values[node]] if node in values else None for node in sources]),
        unremembered=frozenset(
            position for position, node in enumerate(sources) if not has_device.get(node, True)
        ),
    )
    variable_slices = {number for number, _ in binding.slices} | sized.slices
    return binding, frozenset(variable_slices)


def _known_of(now: Sequence[UOp], at: Mapping[UOp, int]) -> tuple[tuple[int, int], ...]:
    """The numbers of the nodes whose values a run leaves, with the positions of these.

    A write to a slice is part of the graph of the memory, which would hold itself if the write were
    remembered: its result tells that it has run.
    """
    of_slices = {node.src[1] for node in now if node.op is Ops.AFTER}
    return tuple(
        [(n, at[node]) for n, node in enumerate(now) if node in at and node not in of_slices]
    )


def _with_memory(request: Request, variables: Mapping[int, UOp], sized: Sized) -> list[UOp]:
    """The nodes of `request`, with memory for values that were computed before, and `variables` for
    constants that change.
    """
    now: list[UOp] = []
    for number, (node, sources) in enumerate(zip(request.nodes, request.sources, strict=True)):
        if number in variables:
            now.append(variables[number])
            continue
        src = tuple([now[source] for source in sources])
        arg = sized.arguments.get(number, node.arg)
        if src == node.src and arg is node.arg:
            now.append(node)
            continue
        if number in sized.paddings:
            amounts = tuple([(0, more) for more in sized.paddings[number]])
            src = (UOp(Ops.PAD, node.dtype, src, amounts),)
        made = UOp(node.op, node.dtype, src, arg)
        shape = sized.shapes.get(number)
        if shape is not None and any(a is not b for a, b in zip(made.shape, shape, strict=True)):
            # One size is written in one way, so that equal ones are one node.
            made = UOp(Ops.RESHAPE, made.dtype, (made,), shape)
        if node.origin and not made.origin:
            made.origin = node.origin
        now.append(made)
    return now


def _to_compute(node: UOp, overwritten: Collection[UOp]) -> UOp:
    """The node to compute for a root: a view of memory that is about to change is copied first."""
    if node in overwritten or base_of(node).op is Ops.BUFFER:
        return UOp(Ops.CONTIGUOUS, node.dtype, (node,))
    return node.src[1] if node.op is Ops.AFTER else node


def _remembered(requested: Sequence[UOp], outputs: Sequence[UOp]) -> list[UOp]:
    """Results beside the `requested` ones: `outputs` of loops that live nodes need."""
    below = toposort([*requested, *outputs])
    # A copy that lands in memory which may be written to again is not remembered.
    named = {*requested, *direct_copies([*below, UOp.sink(*requested)]).values()}
    return [node for node in below if node.op in _REMEMBERED and node not in named]


def _backends(graph: Graph, plan: Plan) -> tuple[tuple[str, Backend], ...]:
    names = {node.arg.device for node in (*graph.leaves, *graph.draws)} | {Device.DEFAULT}
    names |= {step.device for step in plan.steps}
    return tuple([(name, Device[name]) for name in sorted(names)])


def _on_devices(values: Iterable[UOp]) -> set[UOp]:
    """The nodes whose graphs hold memory or a draw: one made of constants alone is of every device,
    so its value on one must not be taken for another's.
    """
    found: set[UOp] = set()
    for node in toposort(values):
        is_first = node.op in (Ops.BUFFER, Ops.RAND, Ops.COPY) or (
            node.op is Ops.CONTIGUOUS and isinstance(node.arg, str)
        )
        if is_first or not found.isdisjoint(node.src):
            found.add(node)
    return found
