"""What is decided of a run by the form of its graph: decided once, and then looked up.

A `Form` says by numbers what a run does: which plan it is, what the plan reads, what it writes to,
and which nodes have their value when it is through. It holds no memory and no graph, so that one
form serves every request of its kind.

Here a graph becomes what is planned:

* What was computed before is replaced by its memory.
* A view of memory that is about to change is copied, and so is the value of an assignment that
  another one overwrites in the same run.
* Values that cost a step of their own (copies, assignments, parts of loops) are results too, so
  that they are remembered.
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
from tilegrad.device.backend import Backend
from tilegrad.device.registry import Device
from tilegrad.engine.plans.plans import Graph, Plan, Step, normalise, plan_for
from tilegrad.engine.realize.causes import tell
from tilegrad.engine.realize.changing import changed_since
from tilegrad.engine.realize.numbers import bits_of, number_variable, variable_name
from tilegrad.engine.realize.request import Request
from tilegrad.engine.realize.windows import opened
from tilegrad.ir.copies import direct_copies
from tilegrad.ir.lengths import Terms, is_length, memory_shape, terms_of, value_of
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import base_of
from tilegrad.ir.slices import offset_name
from tilegrad.ir.uop import UOp, sint, toposort

__all__ = [
    "NOT_SIZED", "Form", "Forms", "Sized", "Value", "constants_of", "form_among", "form_of",
    "make_form",
]  # fmt: skip

_REMEMBERED = (Ops.COPY, Ops.ASSIGN, Ops.PART)
_MOST_PLACES = 256
# The forms of a key are few, as a rule: they are all counted only so often.
_COUNT_EVERY = 64
# More would be more parameters than a kernel should have.
_MOST_NUMBERS = 64

Moves = tuple[tuple[Ops, Any], ...]


class Extent(NamedTuple):
    """A size in the argument of a movement op that depends on lengths."""

    terms: Terms


class Value(NamedTuple):
    """Where a value is: [movement of] result number `source` of the plan, or if it `is_written` of
    the memory of node number `source`, as it is after the run.
    """

    source: int
    is_written: bool
    moves: Moves


@dataclass(frozen=True)
class Form:
    """What a run does, in numbers of a `Request`.

    Attributes:
        inputs: the memory that the plan takes.
        draws, windows, numbers: the random draws, the windows with the axis of each, and the
            constants, whose numbers are variables of the launches.
        targets: the memory that is overwritten.
        order: the nodes of the plan's graph, None for those made for the plan.
        values: where values are after the run.
        known: the nodes whose values these are, each with its place in `values`.
        roots: the place in `values` of what each root is, None for memory itself.
        unkept: the roots of which nothing is remembered: the value of a graph of constants is not
            one device's.
    """

    plan: Plan
    backends: tuple[tuple[str, Backend], ...]
    inputs: tuple[int, ...]
    draws: tuple[int, ...]
    windows: tuple[tuple[int, int], ...]
    numbers: tuple[int, ...]
    targets: tuple[int, ...]
    order: tuple[int | None, ...]
    values: tuple[Value, ...]
    known: tuple[tuple[int, int], ...]
    roots: tuple[int | None, ...]
    unkept: frozenset[int]

    def moves_of(self, value: Value, request: Request) -> Moves:
        """The movement above the memory of a value, for the sizes of `request`."""
        if not request.lengths:
            return value.moves
        return tuple([(op, _at(arg, request.lengths)) for op, arg in value.moves])

    def origin_of(self, request: Request, step: Step) -> tuple[Entry, ...]:
        """The user's calls behind a step: those of this request, whoever made the plan."""
        known = [self.order[place] for place in step.nodes if place < len(self.order)]
        nodes = [request.nodes[number] for number in known if number is not None]
        return tuple(dict.fromkeys(entry for node in nodes for entry in node.origin))

    def graph_of(self, request: Request) -> list[UOp]:
        """The nodes that the steps of the plan name, if it calls Python functions among them."""
        if not any(step.is_custom for step in self.plan.steps):
            return []
        return [request.nodes[number or 0] for number in self.order]

    def draws_and_places(self, request: Request) -> Iterator[tuple[str, int]]:
        """The values of the variables that the run itself brings: places of windows, constants
        that change, seed and offset of each draw, and lengths.
        """
        for place, number in enumerate(self.numbers):
            yield variable_name(place), bits_of(request.nodes[number])
        for place, (number, axis) in enumerate(self.windows):
            yield offset_name(place), request.nodes[number].arg[axis][0]
        for place, number in enumerate(self.draws):
            arg = request.nodes[number].arg
            yield f"seed{place}_low", arg.seed & 0xFFFFFFFF
            yield f"seed{place}_high", (arg.seed >> 32) & 0xFFFFFFFF
            yield f"offset{place}", arg.offset
        yield from request.lengths.items()

    @property
    def is_current(self) -> bool:
        """Whether the devices are still those that the plan was made for."""
        for name, backend in self.backends:
            if Device.at_hand(name) is not backend and Device[name] is not backend:
                return False
        return True


class Forms:
    """The forms of graphs that differ in the places of windows and in constants only: `moving` are
    the windows that are variables; the others' numbers are part of the key. `first` are the
    constants of the first such graph. Constants that were equal in all of the graphs so far are one
    group, `groups` by constant: each of the groups `changing` is one variable.
    """

    __slots__ = ("by_places", "changing", "first", "groups", "moving", "used")

    def __init__(self, first: tuple[Hashable, ...]) -> None:
        # The number of the last use.
        self.used = 0
        self.moving: frozenset[int] = frozenset()
        self.changing: frozenset[int] = frozenset()
        self.first = first
        self.groups = _numbered(self.first)
        self.by_places: dict[tuple[Any, ...], Form] = {}

    def key(self, request: Request) -> tuple[Any, ...]:
        """Where the windows that do not move begin, and the constants that do not change."""
        fixed = [number for number in request.windows if number not in self.moving]
        places = [tuple([start for start, _ in request.nodes[n].arg]) for n in fixed]
        constants = constants_of(request)
        if not self.changing:
            return (*places, *constants)
        seen: dict[int, Hashable] = {}
        for group, value in zip(self.groups, constants, strict=True):
            if seen.setdefault(group, value) != value:
                # One variable cannot be two numbers.
                return (*places, None, *constants)
        return (*places, *[value for group, value in seen.items() if group not in self.changing])

    def begin(self, changes: Sequence[bool]) -> None:
        """Let those of the first graph's constants change of which that is known."""
        parted = _numbered(zip(self.first, changes, strict=True))
        changing = {group for group, does in zip(parted, changes, strict=True) if does}
        if changing and len(changing) <= _MOST_NUMBERS:
            self.groups, self.changing = parted, frozenset(changing)

    def open(self, request: Request) -> None:
        """Let the constants change that differ from those of the first graph; groups whose
        constants differ from each other are parted.
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
            self.by_places.clear()

    def variables(self, request: Request) -> list[list[int]]:
        """For each variable, the numbers of the constants that it stands for."""
        found: dict[int, list[int]] = {}
        for number, group in zip(request.constants, self.groups, strict=True):
            if group in self.changing:
                found.setdefault(group, []).append(number)
        return list(found.values())


def _numbered(values: Iterable[Hashable]) -> tuple[int, ...]:
    """For each value, the number of the first use of an equal one among the different ones."""
    found: dict[Hashable, int] = {}
    return tuple([found.setdefault(value, len(found)) for value in values])


def constants_of(request: Request) -> tuple[Hashable, ...]:
    """The constants that may change; an integer is not equal to a float."""
    nodes = [request.nodes[number] for number in request.constants]
    return tuple([(node.arg,) if node.dtype.is_int else node.arg for node in nodes])


_Key = tuple[Config, str, bool, tuple[Any, ...], tuple[int, ...]]
# By the switches, the default device, and what the requests share. A key is long, and its hash is
# computed anew each time: so a use is a number in the entry, and not a place in an order.
_kept: dict[_Key, Forms] = {}
_uses = itertools.count(1)
_lock = held_at_fork(threading.Lock(), 30)


def form_of(
    request: Request,
    keep: Sequence[int],
    *,
    may_open: bool = True,
    otherwise: Callable[[Request, Sequence[int]], Form | None] = lambda request, keep: None,
) -> Form:
    """The form of `request`; of what its plan stores anyway, the nodes with the numbers `keep` are
    kept if that is a way to compute them. Constants that change are variables if they `may_open`.
    A request of a new signature may have one `otherwise`.
    """
    key = config.current(), Device.DEFAULT, may_open, request.form(), tuple(keep)
    forms = _kept.get(key)
    if forms is None:
        found = otherwise(request, keep) if may_open else None
        if found is not None:
            return found
        forms = _keep(key, request)
    forms.used = next(_uses)
    return form_among(forms, request, keep, may_open=may_open)


def form_among(
    forms: Forms,
    request: Request,
    keep: Sequence[int],
    *,
    may_open: bool,
    sized: Sized | None = None,
) -> Form:
    """The form of `request` among `forms`, made if there is none."""
    found = forms.by_places.get(forms.key(request))
    if found is None or not found.is_current:
        if config.DEBUG >= 1:
            tell(request)
        if may_open:
            changes = changed_since(request)
            if forms.by_places or forms.first != constants_of(request):
                forms.open(request)
            else:
                forms.begin(changes)
        found, moving = make_form(request, keep, forms.variables(request), sized or NOT_SIZED)
        if moving != forms.moving or len(forms.by_places) >= _MOST_PLACES:
            forms.moving = moving
            forms.by_places.clear()
        forms.by_places[forms.key(request)] = found
    return found


def _keep(key: _Key, request: Request) -> Forms:
    """Room for the forms of a new key. Where there are more than KEEP_KERNELS forms, a quarter
    goes, those that were used longest ago.
    """
    with _lock:
        if len(_kept) % _COUNT_EVERY == 0 or len(_kept) >= config.KEEP_KERNELS:
            _forget(max(config.KEEP_KERNELS, 1))
        return _kept.setdefault(key, Forms(constants_of(request)))


def _forget(most: int) -> None:
    total = sum(len(forms.by_places) for forms in list(_kept.values()))
    if max(total, len(_kept)) < most:
        return
    for key, forms in sorted(_kept.items(), key=lambda item: item[1].used):
        if max(total, len(_kept)) <= most - most // 4 - 1:
            break
        total -= len(forms.by_places)
        del _kept[key]


class Sized(NamedTuple):
    """What stands for nodes in a graph that is planned for many sizes, by number: arguments, the
    shapes to which they lead, and whole nodes. `windows` are those whose places are lengths.
    """

    arguments: Mapping[int, Any]
    shapes: Mapping[int, tuple[sint, ...]]
    nodes: Mapping[int, UOp]
    windows: frozenset[int]


NOT_SIZED = Sized({}, {}, {}, frozenset())


def make_form(
    request: Request, keep: Sequence[int], changing: Sequence[Sequence[int]], sized: Sized
) -> tuple[Form, frozenset[int]]:
    """The form of `request`, with a variable for each of the groups of constants `changing`, and
    which of its windows have variables for their places.
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
    requested = [_request(node, overwritten) for node in sources]
    parts = [node for node in now if node.op is Ops.PART]
    sink = UOp.sink(*dict.fromkeys([*requested, *_remembered(requested, parts)]))
    graph = opened(normalise(sink))
    place_of = {node: place for place, node in enumerate(graph.nodes)}
    plan = plan_for(graph, sorted({place_of[now[n]] for n in keep if now[n] in place_of}))
    results = [*sink.src, *[graph.nodes[place] for place in plan.kept]]
    number_of: dict[UOp, int] = {}
    for number, node in enumerate(now):
        number_of.setdefault(node, number)
    values = _values(results, below, overwritten, number_of)
    for node, asked in zip(sources, requested, strict=True):
        if node not in values and node.op is not Ops.BUFFER:
            values[node] = values[asked]
    on_devices = _on_devices(values)
    has_device = {node: node in on_devices for node in values}
    at = {value: place for place, value in enumerate(dict.fromkeys(values.values()))}
    form = Form(
        plan=plan,
        backends=_backends(graph, plan),
        inputs=tuple([number_of[leaf] for leaf in graph.leaves]),
        draws=tuple([number_of[draw] for draw in graph.draws]),
        windows=tuple([(number_of[graph.nodes[w.position]], w.axis) for w in graph.windows]),
        numbers=tuple([several[0] for several in changing]),
        targets=tuple(dict.fromkeys(request.target_of(assign) for assign in request.assigns)),
        order=tuple([number_of.get(node) for node in graph.nodes]),
        values=tuple(at),
        known=tuple(
            [(n, at[values[node]]) for n, node in enumerate(now) if has_device.get(node, False)]
        ),
        roots=tuple([at[values[node]] if node in values else None for node in sources]),
        unkept=frozenset(
            place for place, node in enumerate(sources) if not has_device.get(node, True)
        ),
    )
    moving = {number for number, _ in form.windows} | sized.windows
    return form, frozenset(moving)


def _with_memory(request: Request, variables: Mapping[int, UOp], sized: Sized) -> list[UOp]:
    """The nodes of `request`, over the memory of what was computed before, and with `variables` for
    the constants that change.
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
        made = UOp(node.op, node.dtype, src, arg)
        shape = sized.shapes.get(number)
        if shape is not None and any(a is not b for a, b in zip(made.shape, shape, strict=True)):
            # One size is written in one way, so that equal ones are one node.
            made = UOp(Ops.RESHAPE, made.dtype, (made,), shape)
        if node.origin and not made.origin:
            made.origin = node.origin
        now.append(made)
    return now


def _request(node: UOp, overwritten: Collection[UOp]) -> UOp:
    """What to compute for a root. A view of memory that is about to change must be copied;
    everything else is computed anyway.
    """
    if node in overwritten or base_of(node).op is Ops.BUFFER:
        return UOp(Ops.CONTIGUOUS, node.dtype, (node,))
    return node.src[1] if node.op is Ops.AFTER else node


def _remembered(requested: Sequence[UOp], parts: Sequence[UOp]) -> list[UOp]:
    """What is a result beside the `requested`; `parts` of loops are what somebody holds."""
    below = toposort([*requested, *parts])
    # A copy that lands in memory which may be written to again is not remembered.
    unkept = {*requested, *direct_copies([*below, UOp.sink(*requested)]).values()}
    return [node for node in below if node.op in _REMEMBERED and node not in unkept]


def _values(
    results: Sequence[UOp],
    below: Collection[UOp],
    overwritten: Collection[UOp],
    number_of: dict[UOp, int],
) -> dict[UOp, Value]:
    """Where the values of the `results`, and of what memory is once it was written to, are after
    the run.
    """
    values: dict[UOp, Value] = {}
    for number, node in enumerate(results):
        if node.op is not Ops.ASSIGN:
            values[node] = Value(number, False, _shaping(node))
    places = {node: node.src[0] for node in results if node.op is Ops.ASSIGN}
    places |= {node: node for node in below if node.op is Ops.AFTER}
    for node, place in places.items():
        # What is overwritten in the same run is nowhere any more, unless it was copied.
        if node not in overwritten:
            target, moves = _on_memory(place)
            values[node] = Value(number_of[target], True, moves)
    return values


def _at(arg: Any, lengths: Mapping[str, int]) -> Any:
    if isinstance(arg, Extent):
        return value_of(arg.terms, lengths)
    return tuple([_at(part, lengths) for part in arg]) if isinstance(arg, tuple) else arg


def _of_lengths(arg: Any) -> Any:
    """An argument with an Extent for each size that depends on lengths."""
    if isinstance(arg, UOp):
        return Extent(terms_of(arg)) if is_length(arg) else arg
    return tuple([_of_lengths(part) for part in arg]) if isinstance(arg, tuple) else arg


def _on_memory(place: UOp) -> tuple[UOp, Moves]:
    """The BUFFER that `place` views once it was written to, and the movement above it."""
    moves: list[tuple[Ops, Any]] = []
    while place.op is not Ops.BUFFER:
        if place.op.is_movement:
            moves.append((place.op, _of_lengths(place.arg)))
        place = place.src[0]
    return place, tuple(reversed(moves))


def _shaping(node: UOp) -> Moves:
    """From flat memory to the shape of `node`; memory has the largest sizes of a symbolic shape."""
    shape = node.shape
    largest = memory_shape(shape)
    moves: list[tuple[Ops, Any]] = [] if len(largest) == 1 else [(Ops.RESHAPE, largest)]
    if any(isinstance(size, UOp) for size in largest):
        return tuple([(op, _of_lengths(arg)) for op, arg in moves])
    if largest != shape:
        moves.append((Ops.SHRINK, tuple((0, size) for size in shape)))
    return tuple(moves)


def _backends(graph: Graph, plan: Plan) -> tuple[tuple[str, Backend], ...]:
    names = {str(node.arg.device) for node in (*graph.leaves, *graph.draws)} | {Device.DEFAULT}
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
