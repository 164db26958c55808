"""From requested nodes to memory that holds their values: the one entry that tensors use.

Computed values are remembered by node, as long as the node lives, so that a graph is never run
twice. Before a buffer is overwritten, every live tensor that still needs its old value is computed
in the same schedule.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from tilegrad.base.config import config
from tilegrad.base.forks import held_at_fork
from tilegrad.base.trace import counters
from tilegrad.base.tracers import install_tracer
from tilegrad.engine.realize import over_devices
from tilegrad.engine.realize.bindings import Binding, binding_of
from tilegrad.engine.realize.compare import Expected
from tilegrad.engine.realize.computed_nodes import Known, of_variables, readers
from tilegrad.engine.realize.host_reads import expose, looked_at, read, read_number, view_of
from tilegrad.engine.realize.known_graphs import note_graph
from tilegrad.engine.realize.noted_writes import note_slice_writes
from tilegrad.engine.realize.over_devices import has_groups, run_over_devices
from tilegrad.engine.realize.request import Request
from tilegrad.engine.realize.size_ranges import binding_for_sizes
from tilegrad.engine.run.leaf_memory import (
    buffer_of,
    leaf,
    note_origin,
    overwrite,
)
from tilegrad.engine.run.run import current_recording, run_plan
from tilegrad.engine.run.users import above, index
from tilegrad.ir.op import Ops
from tilegrad.ir.placement import Placement, use
from tilegrad.ir.queries import base_of, below_reshapes, below_views
from tilegrad.ir.uop import UOp, remade, toposort
from tilegrad.runtime.buffer import Buffer

__all__ = [
    "Others", "computed_below", "exclusive", "expose", "index", "late_readers", "leaves_below",
    "lend", "looked_at", "memory_of", "pending", "placement_of", "read", "read_number",
    "readers_of", "realize", "realized", "remember", "same_write", "share", "users_of", "view_of",
]  # fmt: skip

_known = Known()
# [Movement of] the BUFFER that holds the value of a node itself, if it was computed.
memory_of = _known.get
_lock = held_at_fork(threading.RLock(), 10)
# Ops of memory that was written to, whole or in part.
_WRITTEN = (Ops.ASSIGN, Ops.AFTER)
_MEMORY = (Ops.BUFFER, Ops.AFTER)
_PAGE = 4096
# Elements up to which computing a value again takes less time than finding out who needs it.
_SMALL = 16


def realized(node: UOp) -> UOp | None:
    """[Movement of] the BUFFER that holds the value of `node`, if it was computed."""
    base = node
    while True:
        # A slice of a kernel's result may have memory of its own, and the whole result none.
        known = None if base.stored is None else _known.get(base)
        if known is not None:
            return known if base is node else node.substitute({base: known})
        if not base.op.is_movement:
            return node if base.op is Ops.BUFFER else None
        base = base.src[0]


def remember(node: UOp, memory: UOp) -> None:
    """Note that [movement of] a BUFFER, `memory`, holds the value of `node`. Nothing is noted of
    `memory` itself, as a search for its memory would not end, nor of another view of memory: an
    assignment to that view would write to the copy.
    """
    if node is not memory and below_views(node).op not in _MEMORY:
        _known[node] = memory


def same_write(made: UOp, written: UOp) -> None:
    """Note that `made` is the assignment `written` with other leaves for the values it reads. If
    `written` has run, `made` has: its target has no earlier value on which it could run.
    """
    memory = _known.get(written)
    if memory is not None:
        _known[made] = memory


class Others:
    """Values beside the requested ones that a run has to know: none, unless a subclass has some."""

    def standing_on(self, memory: Collection[UOp], request: Request) -> Iterable[UOp]:
        """Nodes of live tensors, among them all that may need the present value of `memory`, which
        a run of `request` is about to overwrite.
        """
        return ()

    def asked_soon(self) -> Iterable[UOp]:
        """Nodes that will be asked for soon; the run stores the values that they share with it."""
        return ()

    def retained(self, request: Request) -> Iterable[UOp]:
        """Nodes of `request` whose values its run stores as well."""
        return ()

    def computed(self, memory: Mapping[UOp, UOp]) -> None:
        """Take the memory of computed values that depend on variables: they are not remembered by
        their nodes, whose values are others where the variables have other values.
        """

    def ran(
        self, request: Request, binding: Binding, memory: Sequence[UOp], values: Mapping[str, int]
    ) -> None:
        """Take note of a run that is through: `memory` holds the values of the binding, `values`
        are the variables of its launches.
        """


_NOTHING = Others()


def realize(
    roots: Sequence[UOp], variables: Mapping[UOp, int], others: Others = _NOTHING
) -> list[UOp]:
    """For each root, [movement of] a BUFFER that holds its value; values not yet computed run now,
    in one schedule. `variables` has the value of every symbolic variable in the roots' graphs.
    """
    record = current_recording()
    tracer = sys.gettrace()
    is_traced = tracer is not None and record is not None and record.tracer is tracer
    if is_traced:
        # It follows the user's functions; to trace the compiler would cost seconds.
        install_tracer(None)
    try:
        with _lock:
            todo = [root for root in dict.fromkeys(roots) if realized(root) is None]
            if use.is_used and has_groups(todo, _known.get):
                done = _run_over_devices(todo, variables, others)
            else:
                done = _run(todo, variables, others) if todo else {}
            results = [done.get(root) or realized(root) for root in roots]
    finally:
        if is_traced:
            install_tracer(tracer)
    assert all(result is not None for result in results)
    return [result for result in results if result is not None]


def computed_below(node: UOp) -> dict[UOp, UOp]:
    """The computed nodes below `node`, with the memory of their values."""
    found: dict[UOp, UOp] = {}
    seen: set[UOp] = set()
    stack = [node]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.stored is not None and (memory := _known.get(node)) is not None:
            found[node] = memory
        else:
            stack += node.src
    counters.visits += len(seen)
    return found


def leaves_below(root: UOp) -> list[UOp]:
    """The memory that has to be read to compute `root`."""
    below = toposort([root], stop=_known.__contains__)
    leaves = [base_of(_known.get(node) or node) for node in below]
    return [leaf for leaf in leaves if leaf.op is Ops.BUFFER]


def exclusive() -> AbstractContextManager[Any]:
    """While it is entered, no other thread runs a graph or overwrites memory."""
    return _lock


def readers_of(leaves: Collection[UOp], roots: Iterable[UOp]) -> list[UOp]:
    """The `roots` whose values are in the memory of `leaves` or have yet to be computed from it."""
    return readers(roots, leaves, _known)


def users_of(memory: Collection[UOp]) -> list[UOp]:
    """The leaves `memory`, and the indexed nodes whose values are in it or are still to be computed
    from it.
    """

    def is_elsewhere(node: UOp) -> bool:
        found = _known.get(node)
        return found is not None and base_of(found) not in memory

    return above(memory, is_elsewhere)


def pending(roots: Sequence[UOp]) -> list[UOp]:
    """Memory as assignments leave it that have to run for `roots`, each behind those it needs."""
    return [node for node in toposort(roots, stop=_known.__contains__) if node.op in _WRITTEN]


def late_readers(roots: Sequence[UOp], others: Sequence[UOp]) -> list[UOp]:
    """The `others` that need a value which a run of `roots` overwrites."""
    request = Request(_known.get)
    request.want(roots)
    return _late(request, roots, _Given(others))


def placement_of(node: UOp) -> Placement | None:
    """The placement of a value of several devices; None for a value of a single device."""
    return over_devices.placement_of(node, _known.get)


class _Given(Others):
    def __init__(self, nodes: Sequence[UOp]):
        self.nodes = nodes

    def standing_on(self, memory: Collection[UOp], request: Request) -> Iterable[UOp]:
        return self.nodes


def _run(todo: list[UOp], variables: Mapping[UOp, int], others: Others) -> dict[UOp, UOp]:
    """Compute `todo`, and give the memory of each."""
    request, wanted = _request_of(todo, others)
    request.needed_later = _needed_later(request, others)
    binding = _binding_of(request)
    values = {variable.name: value for variable, value in variables.items()}
    if binding.has_variables or request.lengths:
        values.update(binding.launch_variables(request))
    memory = _memory_after(binding, request, _launch(binding, request, values))
    passing = of_variables(request.nodes) if variables else set()
    for number, position in binding.known:
        node = request.nodes[number]
        if node not in passing and node not in wanted:
            _known[node] = memory[position]
            note_origin(memory[position], node.origin)
    done: dict[UOp, UOp] = {}
    for position, (name, at) in enumerate(zip(wanted, binding.roots, strict=True)):
        if at is not None:
            done[name] = memory[at]
            note_origin(memory[at], name.origin)
            if position not in binding.unremembered and name not in passing:
                # The request holds the memory of a root that was computed before, not its name.
                _known[name] = memory[at]
                base = below_reshapes(name)
                if base is not name and base.stored is None and base.src:
                    # Another reshape of the value is one of that, as reshapes join.
                    _known[base] = UOp(Ops.RESHAPE, base.dtype, (memory[at],), base.shape)
    if passing:
        others.computed({name: stored for name, stored in done.items() if name in passing})
    others.ran(request, binding, memory, values)
    if current_recording() is None and not config.NOOPT:
        note_graph(request, binding)
    return done


def _run_over_devices(
    todo: list[UOp], variables: Mapping[UOp, int], others: Others
) -> dict[UOp, UOp]:
    """As `_run`, of graphs in which something is on several devices."""
    request = Request(_known.get)
    request.want(todo)
    late = _late(request, todo, others) if request.assigns else []
    lost = request.lost()
    # A node that can never be computed raises where it is read.
    late = [root for root in late if request.numbers.get(root) not in lost]
    wanted = list(dict.fromkeys([*todo, *late]))

    def compute(nodes: list[UOp]) -> dict[UOp, UOp]:
        waiting = [node for node in nodes if realized(node) is None]
        found = _run(waiting, variables, _NOTHING) if waiting else {}
        memory = [(node, found.get(node) or realized(node)) for node in nodes]
        return {node: stored for node, stored in memory if stored is not None}

    done = run_over_devices(request, wanted, _known.get, _known.__setitem__, compute)
    passing = of_variables(request.nodes) if variables else set()
    for node, memory in done.items():
        note_origin(memory, node.origin)
        if node not in passing:
            _known[node] = memory
    if passing:
        others.computed({node: stored for node, stored in done.items() if node in passing})
    return done


def _binding_of(request: Request) -> Binding:
    """The binding of `request`."""
    record = current_recording()
    # A capture runs its launches with the numbers that it saw: its kernels may know them. So do
    # those of the call before it, which is compared with it.
    may_vary = not (config.NOOPT or (record is not None and record.is_of_capture))
    return binding_of(request, may_vary=may_vary, otherwise=binding_for_sizes)


def _request_of(todo: list[UOp], others: Others) -> tuple[Request, list[UOp]]:
    """The request for `todo`, and all that it asks for: `todo`, values that need overwritten
    memory, and those that `others` want stored.
    """
    request = Request(_known.get)
    request.want(todo)
    late = _late(request, todo, others) if request.assigns else []
    lost = request.lost()
    # Before the graph is planned, which may be long.
    if lost:
        wanted = [root for root, number in zip([*todo, *late], request.roots) if number not in lost]
        if wanted[: len(todo)] != todo:
            buffer_of(next(request.nodes[n] for n in lost if request.nodes[n].op is Ops.BUFFER))
        # A node that can never be computed raises where it is read.
        request = Request(_known.get)
        request.want(wanted)
    else:
        wanted = [*todo, *late]
    retained = [node for node in others.retained(request) if node not in wanted]
    if retained:
        request.want(retained)
        wanted += retained
    return request, _in_order(request, wanted)


def _in_order(request: Request, wanted: list[UOp]) -> list[UOp]:
    """The roots `wanted` of a request in the order of its graph, which its own have from now on: it
    is one signature, whichever of them somebody asks for, and whichever are only stored.
    """
    roots = request.roots
    order = sorted(range(len(wanted)), key=roots.__getitem__)
    request.roots = [roots[position] for position in order]
    return [wanted[position] for position in order]


def _launch(binding: Binding, request: Request, values: Mapping[str, int]) -> list[Buffer]:
    """Run the plan of a binding on the memory of `request`."""
    nodes = request.nodes
    inputs = [buffer_of(nodes[number]) for number in binding.inputs]
    for number in binding.targets:
        buffer_of(nodes[number]).before_write()
    expected = None
    if request.lengths and config.SIZES > 1:
        expected = Expected(request, inputs, binding)
    outputs = run_plan(
        binding.plan,
        inputs,
        values,
        lambda step: binding.origin_of(request, step),
        bool(binding.targets),
        binding.graph_of(request),
    )
    if expected is not None:
        expected.compare(outputs)
    return outputs


def _memory_after(binding: Binding, request: Request, outputs: Sequence[Buffer]) -> list[UOp]:
    """[Movement of] the leaves that hold the values of a binding after its run."""
    # All targets first: an assignment to memory that another one wrote must find the leaf that both
    # overwrite.
    written = {number: overwrite(request.nodes[number]) for number in binding.targets}
    if written:
        note_slice_writes(request, written)
    found: list[UOp] = []
    for value in binding.values:
        node = written[value.source] if value.is_written else leaf(outputs[value.source])
        for op, arg in binding.moves_of(value, request):
            if op is Ops.RESHAPE:
                node = remade((op.serial, node.dtype, (node,), arg, arg.__class__), op, arg)
            else:
                node = UOp(op, node.dtype, (node,), arg)
        found.append(node)
    return found


def _needed_later(request: Request, others: Others) -> tuple[int, ...]:
    """The numbers of nodes of a graph that is about to run which other graphs use as well: stored
    values that these need next are not computed again.
    """
    nodes = request.nodes
    if len(nodes) < _SMALL:
        return ()
    soon = [node for node in others.asked_soon() if node not in _known]
    if not soon:
        return ()
    numbers = request.numbers
    used = {
        numbers[source]
        for node in toposort(soon, stop=lambda node: node in numbers or node in _known)
        if node not in numbers
        for source in node.src
        if source in numbers
    }
    return tuple(sorted(n for n in used if nodes[n].src and not nodes[n].is_constant))


def _late(request: Request, todo: Sequence[UOp], others: Others) -> list[UOp]:
    """Live nodes that need the old value of a buffer that a run of `todo`, which `request` holds,
    overwrites; the request wants them too. Their own runs may overwrite more.
    """
    found: dict[UOp, None] = {}
    count = 0
    while count < len(request.assigns):
        count = len(request.assigns)
        memory = {request.nodes[request.target_of(assign)] for assign in request.assigns}
        roots = dict.fromkeys(others.standing_on(memory, request))
        late = _readers(request, roots, {*todo, *found})
        # In the order of the graph: whichever tensors happen to be older, it is one signature.
        late.sort(key=lambda node: request.numbers.get(node, len(request.numbers)))
        found |= dict.fromkeys(late)
        request.want(late)
    return list(found)


def _readers(request: Request, live: Iterable[UOp], todo: set[UOp]) -> list[UOp]:
    """Live nodes that need the old value of a buffer that is about to be overwritten."""
    numbers = request.numbers
    targets = {request.target_of(assign) for assign in request.assigns}
    needing = _needing(request, targets, todo)
    outside: dict[UOp, bool] = {}

    def needs_old(node: UOp) -> bool:
        number = numbers.get(node)
        return outside[node] if number is None else number in needing

    found: list[UOp] = []
    for root in live:
        if root in todo:
            continue
        memory = realized(root)
        if memory is not None:
            if (
                numbers.get(base_of(memory)) in targets
                and root.op not in _WRITTEN
                and base_of(root).op not in _WRITTEN
            ):
                found.append(root)
            continue
        if root not in numbers:
            for node in toposort([root], stop=lambda node: node in numbers or node in outside):
                if node in numbers or node in outside:
                    continue
                memory = _known.get(node)
                outside[node] = (
                    any(needs_old(source) for source in node.src)
                    if memory is None
                    else numbers.get(base_of(memory)) in targets
                )
        if needs_old(root):
            found.append(root)
    return found


def _needing(request: Request, targets: Collection[int], todo: Collection[UOp]) -> set[int]:
    """The numbers of nodes whose values depend on the memory `targets` before the run, and will not
    be known after it: the run computes `todo`, and assignments are their outcome.
    """
    nodes, numbers = request.nodes, request.numbers
    # Values that one assignment wrote and another overwrites in this very run.
    between = {request.version_of(assign) for assign in request.assigns}
    settled = {*request.versions, *[numbers[root] for root in todo if nodes[numbers[root]] is root]}
    found = {*targets, *between}
    for number, sources in enumerate(request.sources):
        if number not in settled and not found.isdisjoint(sources):
            found.add(number)
    return found


def lend(buffer: Buffer) -> memoryview:
    """The bytes of memory, read-only, and never written to while somebody looks at them: the memory
    itself where the host can reach it, else a copy.

    Memory within a page is copied: that costs less than to remember who looks.
    """
    return share(buffer) if buffer.nbytes > _PAGE else read(buffer).toreadonly()


def share(buffer: Buffer) -> memoryview:
    """As `lend`, of small memory too."""
    with _lock:
        found = buffer.lend()
    return read(buffer).toreadonly() if found is None else found
