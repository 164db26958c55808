"""Straight-line code for graphs that come again and again.

A request is one walk over a graph, which numbers the nodes and makes the signature (`request`
beside this file). For a graph that has run a few times both are known, so a function without
loops is written that compares a new graph with them. For `x * 0.1 + y`:

    def match(n4, stored, alias, watch):
        if n4.op is not k1 or n4.dtype is not k2 or n4.arg is not None: return None
        n2, n3 = n4.src
        ...
        n0, n1 = n2.src
        ...
        return (n0, n1, n2, n3, n4), {n0, n2, n3, n4}

Memory, offsets of slices and numbers that are variables are not in the signature and may differ;
where anything else differs, the function gives None and the walk decides, with the same result. On
its way the code notes the nodes that tensors alive may be, which saves a search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from typing import Any, NamedTuple

from tilegrad.base.config import Config, current_config
from tilegrad.base.errors import InternalError
from tilegrad.base.flat_code import FlatCode
from tilegrad.base.recent import Recent
from tilegrad.device.registry import Device
from tilegrad.engine.realize.bindings import Binding, Bindings, binding_among
from tilegrad.engine.realize.launch_numbers import may_change
from tilegrad.engine.realize.request import Request, is_compared
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

__all__ = ["KnownGraph", "KnownRequest", "Matched", "known_request", "matched", "note_graph"]

# Runs of a graph after which code is written for it; once more later, if that code does not match.
_OFTEN = frozenset({8, 64, 512})
_MOST_NODES = 1024
_MOST_ROOTS = 16
# Graphs whose roots look alike.
_MOST_ALIKE = 4
_MOST = 256
# Bindings of one graph, by the nodes that are asked for beside its roots.
_MOST_BINDINGS = 64
# Ops that a walk treats by more than the node, or whose arguments may be any object.
_REFUSED = frozenset({Ops.LOOP, Ops.LOOP_OUTPUT, Ops.CUSTOM, Ops.DEFINE_VAR, Ops.BIND})
_NOTHING = "return None"
_new = tuple.__new__

Stored = Callable[[UOp], UOp | None]
# The nodes by number, and those of them that are no uses of constants.
Found = tuple[tuple[UOp, ...], set[UOp]]


class _Varying(NamedTuple):
    """Variables of the bindings of a graph."""

    groups: tuple[int, ...]
    changing: frozenset[int]
    slices: frozenset[int]


class KnownGraph:
    """A graph for which code was written.

    Attributes:
        request: the request that it was written from, without its nodes.
        roots: the numbers of the requested nodes.
        default: the default device, where the graph depends on it.
        leaves, constants: the numbers of its memory, and of constants that are one node.
        is_inside: of each node, whether it is neither memory, nor a move of it, nor constant.
        varying: the numbers that the code takes for variables; all others are constant.
        bindings: by the roots and the numbers that are needed later, the binding that runs.
        short: the short way of its root, if there is one (`short_runs`).
        notes: facts that other modules know of it.
    """

    __slots__ = (
        "bindings", "config", "constants", "default", "is_inside", "leaves", "match", "notes",
        "request", "roots", "short", "varying",
    )  # fmt: skip

    def __init__(
        self,
        request: Request,
        roots: list[int],
        bindings: Bindings,
        match: Callable[..., Found | None],
    ):
        self.request, self.roots = KnownRequest.of(request), roots
        numbered = [*enumerate(request.nodes)]
        self.leaves = [n for n, node in numbered if node.op is Ops.BUFFER]
        uses = {*request.constants}
        self.constants = [n for n, node in numbered if node.op is Ops.CONST and n not in uses]
        memory = _memory_in(request)
        self.is_inside = [n not in memory and not node.is_constant for n, node in numbered]
        self.varying = _varying(bindings)
        self.bindings: dict[tuple[Any, ...], tuple[Bindings, _Varying, Binding]] = {}
        self.short: Any = None
        self.notes: dict[Any, Any] = {}
        self.match = match
        self.config: Config = current_config()
        # Memory says where to compute; values without memory below are computed on the default
        # device.
        has_copies = any(node.op is Ops.COPY for node in request.nodes)
        is_placed = len(roots) == 1 and self.leaves and not has_copies
        self.default = None if is_placed else Device.DEFAULT


_Key = tuple[Any, ...]
# By the number of roots, and the op, dtype and shape of the first one.
_known: Recent[_Key, tuple[KnownGraph, ...]] = Recent(lambda: _MOST)


class KnownRequest(Request):
    """A request that code has found.

    Attributes:
        graph: the graph that the code was written for.
        watched: the nodes that tensors alive may be, but for roots and memory; `aliases` are those
            that were computed before, with the numbers of their memory.
    """

    __slots__ = ("_is_shared", "_members", "_numbers", "aliases", "graph", "watched")
    graph: KnownGraph
    watched: list[UOp]
    aliases: list[tuple[UOp, int]]
    _numbers: dict[UOp, int] | None
    _members: set[UOp]

    @staticmethod
    def of(request: Request) -> KnownRequest:
        """The facts that all requests of the signature of `request` share."""
        made = object.__new__(KnownRequest)
        made.sources, made.roots = request.sources, []
        made.assigns, made.versions = request.assigns, request.versions
        made.slices, made.constants = request.slices, request.constants
        made._arguments, made._signature = request._arguments, request._signature
        made._views, made._targets = request._views, request._targets
        return made

    def over(self, graph: KnownGraph, found: Found, stored: Stored) -> KnownRequest:
        """The request for other nodes."""
        made = object.__new__(KnownRequest)
        made.graph, made._stored = graph, stored
        made.nodes, made._members = found  # type: ignore[assignment]
        made._numbers, made._is_shared = None, True
        made.sources, made.roots = self.sources, []
        made.assigns, made.versions = self.assigns, self.versions
        made.slices, made.constants = self.slices, self.constants
        made._arguments, made._signature = self._arguments, self._signature
        made._views, made._targets = self._views, self._targets
        made.needed_later, made.lengths, made.explained = (), {}, frozenset()
        made.comes_again = made.lengths_of = made.bindings = None
        return made

    @property
    def numbers(self) -> dict[UOp, int]:  # type: ignore[override]
        """The number of a node; of one that was computed, that of its memory."""
        found = self._numbers
        if found is None:
            nodes = self.nodes
            found = self._numbers = dict(zip(nodes, range(len(nodes))))
            for number in self.graph.constants:
                found[nodes[number]] = number
            found.update(self.aliases)
        return found

    def __contains__(self, node: UOp) -> bool:
        return node in self._members or any(node is other for other, _ in self.aliases)

    def want(self, roots: Iterable[UOp]) -> None:
        """Ask for `roots` too."""
        roots = list(roots)
        if self._is_shared and not all(root in self.numbers for root in roots):
            self._separate()
        super().want(roots)

    def _separate(self) -> None:
        """Let this be one of its own: a walk goes on from it."""
        self._is_shared = False
        self.nodes, self.sources = [*self.nodes], [*self.sources]
        self.assigns, self.versions = [*self.assigns], [*self.versions]
        self.slices, self.constants = [*self.slices], [*self.constants]
        self._signature, self._views = [*self._signature], {*self._views}
        self._targets, self._arguments = {**self._targets}, {**self._arguments}
        # A walk gives each use of a constant a number of its own.
        uses = {self.nodes[number] for number in self.constants}
        uses.difference_update([self.nodes[number] for number in self.graph.constants])
        for node in uses:
            self.numbers.pop(node, None)

    def with_users(self) -> list[UOp]:
        """The nodes that other graphs are made of as well, but for memory and constants."""
        return [node for node in compress(self.nodes, self.graph.is_inside) if node.users]

    def memory(self) -> Iterable[int]:
        """The numbers of memory."""
        return self.graph.leaves if self._is_shared else super().memory()

    @property
    def is_whole(self) -> bool:
        """Whether it has the nodes that the code has found, and no others."""
        return self._is_shared

    def binding(self) -> Binding | None:
        """The binding that runs it, if that is known."""
        if not self._is_shared:
            return None
        graph = self.graph
        found = graph.bindings.get((*self.roots, self.needed_later))
        if found is None:
            return None
        bindings, varying, binding = found
        groups, changing, slices = varying
        if (
            bindings.groups is groups
            and bindings.changing is changing
            and bindings.variable_slices is slices
            and varying == graph.varying
            and binding.is_current
        ):
            # All numbers that are no variables are unchanged.
            return binding
        binding = binding_among(bindings, self, may_vary=True)
        self.bindings = bindings
        self.note(binding)
        return binding

    def note(self, binding: Binding) -> None:
        """Note the binding that has run it, or is about to."""
        if self._is_shared and self.bindings is not None:
            known = self.graph.bindings
            if len(known) >= _MOST_BINDINGS:
                known.clear()
            known[(*self.roots, self.needed_later)] = (
                self.bindings, _varying(self.bindings), binding
            )  # fmt: skip


class Matched(NamedTuple):
    """Result of a match: the graph that the code was written for, and the nodes it has noted."""

    graph: KnownGraph
    found: Found
    watched: list[UOp]
    aliases: list[tuple[UOp, int]]


def _varying(bindings: Bindings) -> _Varying:
    return _Varying(bindings.groups, bindings.changing, bindings.variable_slices)


def _key_of(roots: Sequence[UOp]) -> _Key:
    first = roots[0]
    return len(roots), first.op.serial, first.dtype, first._shape or first.shape


def matched(roots: Sequence[UOp], stored: Stored) -> Matched | None:
    """The graph of `roots`, if code was written for it."""
    key = _key_of(roots)
    graphs = _known.get(key)
    if graphs is None:
        return None
    switches = current_config()
    for graph in graphs:
        if graph.config is not switches and graph.config != switches:
            continue
        if graph.default is not None and graph.default != Device.DEFAULT:
            continue
        aliases: list[tuple[UOp, int]] = []
        watched: list[UOp] = []
        try:
            found = graph.match(*roots, stored, aliases.append, watched.append)
        except ValueError:
            # A node has fewer sources, or more.
            continue
        if found is None:
            continue
        if graph is not graphs[0]:
            _known.put(key, (graph, *[each for each in graphs if each is not graph]))
        # As `Matched(...)`, without its frame.
        return _new(Matched, (graph, found, watched, aliases))
    return None


def known_request(roots: Sequence[UOp], stored: Stored) -> KnownRequest | None:
    """The request for `roots`, if code was written for their graph."""
    match = matched(roots, stored)
    if match is None:
        return None
    graph, found, watched, aliases = match
    made = graph.request.over(graph, found, stored)
    made.aliases, made.watched = aliases, watched
    made.roots += graph.roots
    if current_config().TEMPLATES > 1:
        _compare(made, roots, stored)
    return made


def _compare(made: KnownRequest, roots: Sequence[UOp], stored: Stored) -> None:
    """Compare the code's result with that of a walk."""
    walked = Request(stored)
    walked.want(roots)
    if (
        walked.nodes != [*made.nodes]
        or walked.signature() != made.signature()
        or any(made.numbers.get(node) != number for node, number in walked.numbers.items())
    ):
        raise InternalError(
            f"realize: code for a graph of {len(made.nodes)} nodes found another one than a walk",
            root=repr(roots[0]),
        )


def note_graph(request: Request, roots: Sequence[UOp], walked: int) -> None:
    """Count a run of a graph, for whose `roots` a walk has found the first `walked` nodes; write
    code if it came often.
    """
    bindings = request.bindings
    if bindings is None:
        return
    bindings.runs += 1
    if bindings.runs not in _OFTEN or len(request.nodes) != walked or walked > _MOST_NODES:
        return
    if len(roots) > _MOST_ROOTS:
        return
    asked = [request.numbers[root] for root in roots]
    match = _written(request, asked, bindings)
    if match is None:
        return
    graph = KnownGraph(request, asked, bindings, match)
    key = _key_of(roots)
    others = [each for each in _known.get(key) or () if each.match is not match]
    _known.put(key, (graph, *others[: _MOST_ALIKE - 1]))


def _written(
    request: Request, wanted: Sequence[int], bindings: Bindings
) -> Callable[..., Found | None] | None:
    """The function for the graph of a request, for the numbers of the roots that are `wanted`."""
    if any(node.op in _REFUSED for node in request.nodes):
        return None
    writer = _GraphWriter(request, bindings)
    if len({*wanted}) < len(wanted) or any(number in writer.memory for number in wanted):
        return None
    writer.bound.update(wanted)
    for number in reversed(range(len(request.nodes))):
        writer.compare(number, is_root=number in wanted)
    nodes = [f"n{number}" for number in range(len(request.nodes))]
    members = [each for number, each in enumerate(nodes) if number not in writer.uses]
    names = ", ".join([f"n{number}" for number in wanted])
    writer.lines.append(f"members = {{{', '.join(members)}}}")
    # Two nodes that are one by now are another graph.
    writer.unless(f"len(members) != {len(members)}")
    writer.lines.append(f"return ({', '.join(nodes)},), members")
    match: Callable[..., Found | None] = writer.function(
        f"match({names}, stored, alias, watch)", "graph"
    )
    return match


class _GraphWriter(FlatCode):
    """The lines of the function, and the objects that these name."""

    def __init__(self, request: Request, bindings: Bindings):
        super().__init__(
            CONST=Ops.CONST, are_as_long=_are_as_long, may_change=may_change, repr=repr,
            several=list,
        )  # fmt: skip
        self.request = request
        self.bound: set[int] = set()
        self.uses = {*request.constants}
        self.memory = _memory_in(request)
        groups = zip(request.constants, bindings.groups, strict=True)
        # The group of each constant that is a variable, and its first use that was met.
        self.groups = {number: group for number, group in groups if group in bindings.changing}
        self.first: dict[int, int] = {}
        self.slices = {*request.slices} & bindings.variable_slices

    def compare(self, number: int, *, is_root: bool) -> None:
        """Compare node `number`, and name its sources."""
        node, name = self.request.nodes[number], f"n{number}"
        if number in self.groups:
            self.compare_variable(node, number)
            return
        if node.op is Ops.CONST:
            # The name keeps it alive, so that an equal one is the same.
            self.unless(f"{name} is not {self.name(node)}")
            return
        conditions = [
            f"{name}.op is not {self.name(node.op)}",
            f"{name}.dtype is not {self.name(node.dtype)}",
        ]
        if node.op is Ops.BUFFER:
            conditions.append(f"{name}.arg[1:] != {self.name(tuple(node.arg[1:]))}")
        elif node.op is not Ops.DETACH or is_compared(node.arg):
            conditions.append(self.argument(node, number))
        if number not in self.memory:
            conditions.append(f"{name}.stored is not None")
        self.unless(*conditions)
        if not (is_root or number in self.memory or node.is_constant):
            self.lines += [
                f"h = {name}.holders",
                f"if h is not None and (h.__class__ is several or h() is not None): watch({name})",
            ]
        self.unpack(number)

    def argument(self, node: UOp, number: int) -> str:
        """The condition that the argument of a node is another one."""
        name, arg = f"n{number}.arg", node.arg
        if number in self.slices:
            return f"{name} != {self.name(arg)} and not are_as_long({name}, {self.name(arg)})"
        if node.op is Ops.RAND:
            known = self.name(arg)
            return f"{name}.device != {known}.device or {name}.shape != {known}.shape"
        if arg is None or isinstance(arg, Ops):
            return f"{name} is not {'None' if arg is None else self.name(arg)}"
        if isinstance(arg, (tuple, str, int)):
            return f"{name} != {self.name(arg)}"
        # As in a signature.
        return f"{name} != {self.name(arg)} or repr({name}) != {self.name(repr(arg))}"

    def compare_variable(self, node: UOp, number: int) -> None:
        """Compare a constant that is a variable: those of a group are one number."""
        name = f"n{number}"
        first = self.first.setdefault(self.groups[number], number)
        if first != number:
            self.unless(f"{name} is not n{first}")
            return
        self.unless(
            f"{name}.op is not CONST",
            f"{name}.dtype is not {self.name(node.dtype)}",
            f"{name} is not {self.name(node)} and not may_change({name})",
        )

    def unpack(self, number: int) -> None:
        """Name the sources of node `number`; those that have a name have to be the same."""
        sources = self.request.sources[number]
        if not sources:
            return
        targets: list[str] = []
        same: list[tuple[str, int]] = []
        new: list[int] = []
        for position, source in enumerate(sources):
            if source in self.bound:
                targets.append(f"t{position}")
                same.append((f"t{position}", source))
            else:
                self.bound.add(source)
                targets.append(f"n{source}")
                new.append(source)
        self.lines.append(f"{', '.join(targets)}, = n{number}.src")
        for source in new:
            if source in self.memory:
                self.lines += [
                    f"if n{source}.stored is not None:",
                    f" m = stored(n{source})",
                    f" if m is None: {_NOTHING}",
                    f" alias((n{source}, {source})); n{source} = m",
                ]
        for name, source in same:
            if source in self.memory:
                self.lines += [
                    f"if {name} is not n{source}:",
                    f" if {name}.stored is None or stored({name}) is not n{source}: {_NOTHING}",
                    f" alias(({name}, {source}))",
                ]
            else:
                self.unless(f"{name} is not n{source}")


def _memory_in(request: Request) -> set[int]:
    """The numbers of memory and of movements of it: of these a node may be that was computed."""
    found: set[int] = set()
    for number, (node, sources) in enumerate(zip(request.nodes, request.sources, strict=True)):
        if node.op is Ops.BUFFER or (node.op.is_movement and sources[0] in found):
            found.add(number)
    return found


def _are_as_long(arg: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Whether two slices have the same sizes, and offsets that are numbers."""
    return len(arg) == len(other) and all(
        type(start) is int is type(end) and end - start == stop - first
        for (start, end), (first, stop) in zip(arg, other, strict=True)
    )
