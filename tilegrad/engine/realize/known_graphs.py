"""Straight-line code for graphs of nodes that come again and again, and their short way to memory.

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

Some decisions of a run follow from the graph alone: which binding runs it, that it overwrites
nothing, that it leaves one value. Code is written for such graphs:

    note_graph(request, ...)        after a run the long way
    matched(root, ...)              for the next equal graph
    graph.launch(root, nodes)       -> [RESHAPE of] the BUFFER of its value, or None

Other decisions are made each time: here whether gradients are watched and whether memory was
overwritten, in `tensor.storage.short_reads` which tensors hold or need a node. Where one differs,
the long way runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tilegrad.base.config import Config, current_config
from tilegrad.base.flat_code import FlatCode
from tilegrad.base.recent import Recent
from tilegrad.device.registry import Device
from tilegrad.engine.realize.bindings import Binding, Bindings
from tilegrad.engine.realize.launch_numbers import bits_of, may_change, variable_name
from tilegrad.engine.realize.request import Request, is_compared
from tilegrad.engine.run.leaf_memory import VALUE_ERRORS, buffer_in, leaf
from tilegrad.engine.run.ready import NoRoomError, Ready
from tilegrad.engine.run.run import record_of_thread, timer_of_thread
from tilegrad.engine.run.users import stands_on
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import below_reshapes, below_views
from tilegrad.ir.slices import offset_name
from tilegrad.ir.uop import UOp, remade
from tilegrad.runtime.buffer import Buffer

__all__ = ["KnownGraph", "Matched", "matched", "note_graph"]

# Runs of a graph after which code is written for it, if it can take the short way then.
_OFTEN = frozenset({8, 64, 512})
_MOST_NODES = 1024
# Graphs whose roots look alike.
_MOST_ALIKE = 4
_MOST = 256
# Matches in a row that were in vain, after which a graph goes the long way.
_MOST_MISSES = 8
# Ops that a walk treats by more than the node, or whose arguments may be any object.
_REFUSED = frozenset({Ops.LOOP, Ops.LOOP_OUTPUT, Ops.CUSTOM, Ops.DEFINE_VAR, Ops.BIND})
# Ops below a view that are computed whole.
_WRITES = frozenset({Ops.COPY, Ops.CONTIGUOUS, Ops.ASSIGN, Ops.AFTER})
_NOTHING = "return None"
_new = tuple.__new__

Stored = Callable[[UOp], UOp | None]
# The nodes by number, and those of them that are no uses of constants.
Found = tuple[tuple[UOp, ...], set[UOp]]
_Key = tuple[Any, ...]


class KnownGraph:
    """A graph for which code was written. It has one root and overwrites nothing.

    Attributes:
        root: the number of its root.
        signature, sources: those of its requests.
        device: where it runs.
        inside: of each node, whether it is neither the root, nor memory, a move of it or constant.
        reached: the numbers of the memory that gradients go to; None until someone asks.
    """

    __slots__ = (
        "_bindings", "_changing", "_config", "_default", "_draws", "_groups", "_has_values",
        "_inputs", "_key", "_match", "_misses", "_moves", "_numbers", "_ready", "_slices",
        "_source", "_variable_slices", "device", "inside", "reached", "root", "signature",
        "sources",
    )  # fmt: skip

    def __init__(
        self, request: Request, binding: Binding, ready: Ready, match: Callable[..., Found | None]
    ):
        (self.root,) = request.roots
        self.signature, self.sources = request.signature(), request.sources
        self.device = ready.backend.name
        memory = {*_memory_in(request), self.root}
        self.inside = [
            number not in memory and not node.is_constant
            for number, node in enumerate(request.nodes)
        ]
        self.reached: list[int] | None = None
        self._key, self._match = _key_of(request.nodes[self.root]), match
        self._config: Config = current_config()
        # Memory says where to compute; values without memory below are computed on the default
        # device.
        ops = {node.op for node in request.nodes}
        is_placed = Ops.BUFFER in ops and Ops.COPY not in ops
        self._default = None if is_placed else Device.DEFAULT
        bindings: Bindings = request.bindings
        self._bindings, self._ready = bindings, ready
        self._groups, self._changing = bindings.groups, bindings.changing
        self._variable_slices = bindings.variable_slices
        self._inputs = binding.inputs
        self._source, _, self._moves = binding.values[0]
        self._numbers = [(variable_name(n), uses[0]) for n, uses in enumerate(binding.numbers)]
        self._slices = [(offset_name(n), *each) for n, each in enumerate(binding.slices)]
        self._draws = [*enumerate(binding.draws)]
        self._has_values = binding.has_variables
        self._misses = 0

    def find(self, root: UOp, stored: Stored, switches: Config) -> Matched | None:
        """The graph of `root`, if it is equal."""
        if self._config is not switches and self._config != switches:
            return None
        if self._default is not None and self._default != Device.DEFAULT:
            return None
        aliases: list[tuple[UOp, int]] = []
        watched: list[UOp] = []
        try:
            found = self._match(root, stored, aliases.append, watched.append)
        except ValueError:
            # A node has fewer sources, or more.
            return None
        # As `Matched(...)`, without its frame.
        return None if found is None else _new(Matched, (self, found, watched, aliases))

    def miss(self) -> None:
        """Count a match after which the long way had to be taken."""
        self._misses += 1
        if self._misses >= _MOST_MISSES:
            _known.put(self._key, tuple([each for each in _alike(self._key) if each is not self]))

    def launch(self, root: UOp, nodes: Sequence[UOp]) -> UOp | None:
        """Compute `root`, of the graph of `nodes`: the memory that holds it from now on. None, and
        nothing has run, where this takes the long way.
        """
        bindings, ready = self._bindings, self._ready
        if (
            bindings.groups is not self._groups
            or bindings.changing is not self._changing
            or bindings.variable_slices is not self._variable_slices
            or record_of_thread() is not None
            or timer_of_thread() is not None
            or Device.at_hand(ready.backend.name) is not ready.backend
        ):
            return None
        inputs: list[Buffer] = []
        for number in self._inputs:
            buffer = buffer_in(nodes[number])
            if buffer is None:
                return None
            inputs.append(buffer)
        try:
            made = ready.run(inputs, self._values(nodes) if self._has_values else {})
        except (NoRoomError, *VALUE_ERRORS):
            # The long way tells the user's line.
            return None
        buffer = made[self._source]
        if root.origin:
            (buffer.base or buffer).origin = root.origin
        memory = leaf(buffer)
        for op, arg in self._moves:
            memory = remade((op.serial, memory.dtype, (memory,), arg, arg.__class__), op, arg)
        self._misses = 0
        _remember(root, memory)
        return memory

    def _values(self, nodes: Sequence[UOp]) -> dict[str, int]:
        """The values of the variables of the launches."""
        values: dict[str, int] = {name: bits_of(nodes[number]) for name, number in self._numbers}
        for name, number, axis in self._slices:
            values[name] = nodes[number].arg[axis][0]
        for position, number in self._draws:
            arg: Any = nodes[number].arg
            values.update(zip(arg.launch_names(position), arg.launch_values))
        return values


class Matched(NamedTuple):
    """Result of a match: the graph that the code was written for, and its nodes.

    Attributes:
        watched: the nodes that tensors alive may be, but for the root and memory; `aliases` are
            those that were computed before, with the numbers of their memory.
    """

    graph: KnownGraph
    found: Found
    watched: list[UOp]
    aliases: list[tuple[UOp, int]]


# By the op, dtype and shape of the root.
_known: Recent[_Key, tuple[KnownGraph, ...]] = Recent(lambda: _MOST)


def _key_of(root: UOp) -> _Key:
    return root.op.serial, root.dtype, root._shape or root.shape


def _alike(key: _Key) -> tuple[KnownGraph, ...]:
    return _known.get(key) or ()


def matched(root: UOp, stored: Stored) -> Matched | None:
    """The graph of `root`, if code was written for it."""
    key = _key_of(root)
    graphs = _known.get(key)
    if graphs is None:
        return None
    switches = current_config()
    for graph in graphs:
        found = graph.find(root, stored, switches)
        if found is not None:
            if graph is not graphs[0]:
                _known.put(key, (graph, *[each for each in graphs if each is not graph]))
            return found
    return None


def _remember(root: UOp, memory: UOp) -> None:
    """Note that `memory` holds the value of `root`, and of the node that `root` reshapes."""
    root.stored = memory
    if root.users is not None:
        stands_on(root, memory)
    if root.op is Ops.RESHAPE:
        base = below_reshapes(root)
        if base.stored is None and base.src:
            base.stored = stored = UOp(Ops.RESHAPE, base.dtype, (memory,), base.shape)
            if base.users is not None:
                stands_on(base, stored)


def note_graph(request: Request, binding: Binding) -> None:
    """Count a run of a graph the long way; write code for it if it came often, and equal graphs can
    take the short one.
    """
    bindings = request.bindings
    if bindings is None:
        return
    bindings.runs += 1
    if bindings.runs not in _OFTEN or not _is_simple(request, binding):
        return
    ready: Ready | None = binding.plan.ready[0] if binding.plan.ready else None
    if ready is None or (match := _written(request, bindings)) is None:
        return
    graph = KnownGraph(request, binding, ready, match)
    key = _key_of(request.nodes[graph.root])
    _known.put(key, (graph, *_alike(key)[: _MOST_ALIKE - 1]))


def _is_simple(request: Request, binding: Binding) -> bool:
    """Whether all that a run of the graph leaves is the value of its root."""
    switches = current_config()
    if len(request.roots) != 1 or switches.DEBUG >= 2 or switches.CHECK >= 2:
        return False
    (root,) = request.roots
    node = request.nodes[root]
    leaves = {number for number, each in enumerate(request.nodes) if each.op is Ops.BUFFER}
    return (
        (below_views(node) is node or below_views(node).op not in _WRITES)
        and not binding.targets
        and not request.lengths
        and not request.assigns
        and not request.needed_later
        and binding.roots == (0,)
        and len(binding.values) == 1
        and not binding.values[0].is_written
        and all(number == root for number, _ in binding.known)
        and not binding.unremembered
        and all(op is Ops.RESHAPE for op, _ in binding.values[0].moves)
        and {*binding.inputs} == leaves
        and len(binding.backends) == 1
        and binding.is_current
    )


def _written(request: Request, bindings: Bindings) -> Callable[..., Found | None] | None:
    """The function for the graph of a request that has one root."""
    count = len(request.nodes)
    if count > _MOST_NODES or any(node.op in _REFUSED for node in request.nodes):
        return None
    writer = _GraphWriter(request, bindings)
    (root,) = request.roots
    if root in writer.memory:
        return None
    writer.bound.add(root)
    for number in reversed(range(count)):
        writer.compare(number, is_root=number == root)
    members = [f"n{number}" for number in range(count) if number not in writer.uses]
    writer.lines.append(f"members = {{{', '.join(members)}}}")
    # Two nodes that are one by now are another graph.
    writer.unless(f"len(members) != {len(members)}")
    nodes = ", ".join([f"n{number}" for number in range(count)])
    writer.lines.append(f"return ({nodes},), members")
    match: Callable[..., Found | None] = writer.function(
        f"match(n{root}, stored, alias, watch)", "graph"
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
