"""The short way of a known graph, from its root to the memory of its value.

Some decisions of a run follow from the graph alone: which binding runs it, that it overwrites
nothing, that it leaves one value. For a graph that has code of its own (`known_graphs`) they are
noted after a run; a later run compares the graph, and launches.

    note_short(request, ...)        after a run the long way
    matched(...).graph.short        for the next equal graph
    short.launch(root, nodes)       -> [RESHAPE of] the BUFFER of its value, or None

Other decisions are made each time: here whether gradients are watched and whether memory was
overwritten, in `tensor.storage.short_reads` which tensors hold or need a node. Where one differs,
the long way runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilegrad.device.registry import Device
from tilegrad.engine.realize.bindings import Binding, Bindings
from tilegrad.engine.realize.known_graphs import KnownGraph, KnownRequest
from tilegrad.engine.realize.launch_numbers import bits_of, variable_name
from tilegrad.engine.run.leaf_memory import VALUE_ERRORS, buffer_in, leaf
from tilegrad.engine.run.ready import NoRoomError, Ready
from tilegrad.engine.run.run import record_of_thread, timer_of_thread
from tilegrad.engine.run.users import stands_on
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import below_reshapes, below_views
from tilegrad.ir.slices import offset_name
from tilegrad.ir.uop import UOp, remade
from tilegrad.runtime.buffer import Buffer

__all__ = ["ShortRun", "note_short"]

# Matches in a row that were in vain, after which a graph goes the long way.
_MOST_MISSES = 8
# Ops below a view that are computed whole.
_WRITES = frozenset({Ops.COPY, Ops.CONTIGUOUS, Ops.ASSIGN, Ops.AFTER})


class ShortRun:
    """The run of a known graph that has one root and overwrites nothing.

    Attributes:
        root: its number.
        device: where it runs.
        inside: of each node, whether it is neither the root, nor memory, a move of it or constant.
    """

    __slots__ = (
        "_bindings", "_changing", "_draws", "_groups", "_has_values", "_inputs", "_misses",
        "_moves", "_numbers", "_ready", "_slices", "_source", "_variable_slices", "device",
        "inside", "root",
    )  # fmt: skip

    def __init__(
        self, graph: KnownGraph, bindings: Bindings, binding: Binding, ready: Ready, root: int
    ):
        self.root, self.device = root, ready.backend.name
        self.inside = [each and n != root for n, each in enumerate(graph.is_inside)]
        self._bindings, self._ready = bindings, ready
        self._groups, self._changing, self._variable_slices = graph.varying
        self._inputs = binding.inputs
        self._source, _, self._moves = binding.values[0]
        self._numbers = [(variable_name(n), uses[0]) for n, uses in enumerate(binding.numbers)]
        self._slices = [(offset_name(n), *each) for n, each in enumerate(binding.slices)]
        self._draws = [*enumerate(binding.draws)]
        self._has_values = binding.has_variables
        self._misses = 0

    def miss(self, graph: KnownGraph) -> None:
        """Count a match after which the long way had to be taken."""
        self._misses += 1
        if self._misses >= _MOST_MISSES:
            graph.short = None

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


def note_short(request: KnownRequest, binding: Binding) -> None:
    """After a run of `request` the long way: note the short one, if equal graphs can take it."""
    graph, switches = request.graph, request.graph.config
    known = graph.bindings.get((*graph.roots, ()))
    if graph.short is not None or known is None or known[2] is not binding:
        return
    if len(request.roots) != 1 or switches.DEBUG >= 2 or switches.CHECK >= 2 or switches.NOOPT:
        return
    (root,) = request.roots
    node = request.nodes[root]
    is_simple = (
        (below_views(node) is node or below_views(node).op not in _WRITES)
        and not binding.targets
        and not request.lengths
        and not request.assigns
        and binding.roots == (0,)
        and len(binding.values) == 1
        and not binding.values[0].is_written
        and all(number == root for number, _ in binding.known)
        and not binding.unremembered
        and all(op is Ops.RESHAPE for op, _ in binding.values[0].moves)
        and {*binding.inputs} == {*graph.leaves}
        and len(binding.backends) == 1
    )
    ready = binding.plan.ready[0] if binding.plan.ready else None
    if is_simple and ready is not None and binding.is_current:
        graph.short = ShortRun(graph, known[0], binding, ready, root)
