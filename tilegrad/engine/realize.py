"""From requested nodes to memory that holds their values: the one entry that tensors use.

What was computed once is remembered by node, as long as the node lives, so that a graph is never
run twice. Before a buffer is overwritten, every live tensor that still needs its old value is
computed in the same schedule.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from tilegrad.base.config import config
from tilegrad.base.errors import ShapeError
from tilegrad.engine import report
from tilegrad.engine.known import Known, readers
from tilegrad.engine.memory import buffer_of, leaf, overwrite
from tilegrad.engine.plans import Graph, normalise, plan_for
from tilegrad.engine.run import current_recording, run_plan, show_copy
from tilegrad.engine.windows import opened
from tilegrad.ir.copies import direct_copies
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, alive, toposort
from tilegrad.ir.windows import place_name
from tilegrad.runtime.buffer import Buffer

__all__ = [
    "base_of", "exclusive", "expose", "late_readers", "lend", "pending", "read", "readers_of",
    "realize", "realized", "view_of",
]  # fmt: skip

_known = Known()
_lock = threading.RLock()
_REMEMBERED = (Ops.COPY, Ops.ASSIGN, Ops.AFTER, Ops.PART)
# What memory is once it was written to, whole or in part.
_WRITTEN = (Ops.ASSIGN, Ops.AFTER)
_PAGE = 4096
# Less is computed again sooner than it is found out who needs it.
_SMALL = 16


def base_of(node: UOp) -> UOp:
    """What a chain of movement ops moves."""
    while node.op.is_movement:
        node = node.src[0]
    return node


def realized(node: UOp) -> UOp | None:
    """[Movement of] the BUFFER that holds the value of `node`, if it was computed."""
    found = _known.get(node)
    if found is not None:
        return found
    base = base_of(node)
    if base.op is Ops.BUFFER:
        return node
    known = _known.get(base)
    return None if known is None else node.substitute({base: known})


def realize(
    roots: Sequence[UOp],
    variables: Mapping[UOp, int],
    live: Callable[[], Iterable[UOp]] = tuple,
    beside: Callable[[], Iterable[UOp]] | None = None,
) -> list[UOp]:
    """For each root, [movement of] a BUFFER that holds its value; what is not yet computed runs
    now, in one schedule.

    Args:
        variables: the value of every symbolic variable in the roots' graphs.
        live: gives the nodes of all live tensors; asked only if a buffer is to be overwritten.
        beside: gives nodes that will be asked for soon; what they share with the roots is kept.
    """
    record = current_recording()
    tracer = sys.gettrace()
    is_traced = tracer is not None and record is not None and record.tracer is tracer
    if is_traced:
        # It follows the user's functions; to trace the compiler would cost seconds.
        sys.settrace(None)
    try:
        with _lock:
            todo = [root for root in dict.fromkeys(roots) if realized(root) is None]
            done = _run(todo, variables, live, beside) if todo else {}
            results = [done.get(root) or realized(root) for root in roots]
    finally:
        if is_traced:
            sys.settrace(tracer)
    assert all(result is not None for result in results)
    return [result for result in results if result is not None]


def exclusive() -> AbstractContextManager[Any]:
    """While it is entered, no other thread runs a graph or overwrites memory."""
    return _lock


def readers_of(leaves: Collection[UOp], roots: Iterable[UOp]) -> list[UOp]:
    """Those of `roots` whose values are in, or are still to be computed from, the memory of
    `leaves`.
    """
    return readers(roots, leaves, _known)


def pending(roots: Sequence[UOp]) -> list[UOp]:
    """Memory as assignments leave it that have to run for `roots`, each behind those it needs."""
    return [node for node in toposort(roots, stop=_known.__contains__) if node.op in _WRITTEN]


def late_readers(roots: Sequence[UOp], others: Sequence[UOp]) -> list[UOp]:
    """Those of `others` that need a value which a run of `roots` overwrites."""
    return _late(roots, lambda: others)


def _has_device(node: UOp) -> bool:
    """Whether the graph holds memory or a draw: one made of constants alone is of every device, so
    its value on one must not be taken for another's.
    """
    stack, seen = [node], {node}
    while stack:
        part = stack.pop()
        if part.op in (Ops.BUFFER, Ops.RAND, Ops.COPY):
            return True
        if part.op is Ops.CONTIGUOUS and isinstance(part.arg, str):
            return True
        fresh = [source for source in part.src if source not in seen]
        seen.update(fresh)
        stack += fresh
    return False


def _run(
    todo: list[UOp],
    variables: Mapping[UOp, int],
    live: Callable[[], Iterable[UOp]],
    beside: Callable[[], Iterable[UOp]] | None,
) -> dict[UOp, UOp]:
    """Compute `todo`, and give the memory of each."""
    wanted = [*todo, *_late(todo, live)]
    graph_roots = [_with_known(UOp.sink(*wanted))]
    sources = graph_roots[0].src
    nodes = toposort(sources)
    overwritten = {base_of(node.src[0]) for node in nodes if node.op is Ops.ASSIGN}
    requested = [_request(node, overwritten) for node in sources]
    below = toposort(requested)
    # A copy that lands in memory which may be written to again is not remembered.
    unkept = {*requested, *direct_copies([*below, UOp.sink(*requested)]).values()}
    inner = [
        node
        for node in below
        if node.op in _REMEMBERED and node.op is not Ops.AFTER and node not in unkept
    ]
    inner += _held_parts(below)
    sink = UOp.sink(*dict.fromkeys([*requested, *inner]))
    graph = opened(normalise(sink))
    plan = plan_for(graph, _needed_beside(graph, beside) if beside is not None else ())
    inputs = [buffer_of(node) for node in graph.leaves]
    writers = [node for node in sink.src if node.op is Ops.ASSIGN]
    for node in writers:
        buffer_of(base_of(_place(node))).part()
    outputs = run_plan(
        plan,
        inputs,
        _values(graph, variables),
        lambda step: graph.origin_of(step.nodes),
        bool(writers),
        graph.nodes,
    )
    kept = [graph.nodes[place] for place in plan.kept]
    for node, buffer in zip([*sink.src, *kept], outputs, strict=True):
        if node.op is Ops.ASSIGN:
            continue
        _known[node] = _shaped(leaf(buffer), node)
    # All targets first: an assignment to what another one wrote must find the leaf that both
    # overwrite.
    places = {node: _place(node) for node in sink.src if node.op is Ops.ASSIGN}
    written = {
        target: overwrite(target)
        for target in dict.fromkeys(base_of(place) for place in places.values())
    }
    places |= {node: _memory_of(node) for node in nodes if node.op is Ops.AFTER}
    for node, place in places.items():
        # What is overwritten in the same run is nowhere any more, unless it was copied.
        if node not in overwritten:
            target = base_of(place)
            _known[node] = place.substitute({target: written[target]})
    # A root was rewritten where its graph held known values: its own name must find the result too.
    for name, node, request in zip(wanted, sources, requested, strict=True):
        for key in (name, node):
            if key not in _known and key.op is not Ops.BUFFER:
                _known[key] = _known[node if node in _known else request]
    for name, node in _renamed(wanted, sources, {*kept}):
        if node in _known and name not in _known:
            _known[name] = _known[node]
    done = {root: _known[root] for root in todo if root in _known}
    for node in {*wanted, *sources, *requested, *kept}:
        if not _has_device(node):
            _known.forget(node)
    return done


def _held_parts(nodes: Iterable[UOp]) -> list[UOp]:
    """What somebody holds of the loops in a graph, and may ask for later: made as they run
    anyway.
    """
    loops = [node for node in nodes if node.op is Ops.LOOP]
    found = [
        alive(Ops.PART, loop.arg.value(number).dtype, (loop,), number)
        for loop in loops
        for number in range(loop.arg.outputs)
    ]
    return [part for part in found if part is not None]


def _needed_beside(graph: Graph, beside: Callable[[], Iterable[UOp]]) -> list[int]:
    """The positions of nodes of a graph that is about to run which other graphs use as well: of
    values that these need next, what is stored anyway is not computed again.
    """
    if len(graph.nodes) < _SMALL:
        return []
    inside = {node: place for place, node in enumerate(graph.nodes)}
    others = [node for node in beside() if node not in _known]
    if not others:
        return []
    around = _with_known(UOp.sink(*others))
    used = {
        source
        for node in toposort([around], stop=inside.__contains__)
        if node not in inside
        for source in node.src
    }
    return sorted(
        inside[node] for node in used if node in inside and node.src and not node.is_constant
    )


def _renamed(
    wanted: Sequence[UOp], sources: Sequence[UOp], kept: Collection[UOp]
) -> Iterable[tuple[UOp, UOp]]:
    """Remembered nodes inside the graphs as their owners know them, and those that were `kept`,
    with what stood for them in the run.
    """
    stack = list(zip(wanted, sources, strict=True))
    seen: set[UOp] = set()
    while stack:
        name, node = stack.pop()
        if name in seen or name is node or len(name.src) != len(node.src):
            continue
        seen.add(name)
        if name.op in _REMEMBERED or node in kept:
            yield name, node
        stack.extend(zip(name.src, node.src, strict=True))


def _with_known(sink: UOp) -> UOp:
    """The graph with everything that was computed before replaced by its memory."""
    nodes = toposort([sink], stop=lambda node: node in _known)
    return sink.substitute({node: _known[node] for node in nodes if node in _known})


def _assigns(roots: Sequence[UOp]) -> list[UOp]:
    return [
        node
        for node in toposort(roots, stop=lambda node: node in _known)
        if node.op is Ops.ASSIGN and node not in _known
    ]


def _place(assign: UOp) -> UOp:
    """What an ASSIGN writes: [movement of] a BUFFER."""
    return _memory_of(assign.src[0])


def _memory_of(place: UOp) -> UOp:
    """`place`, which views memory once it was written to, as [movement of] the BUFFER."""
    while (base := base_of(place)).op is not Ops.BUFFER:
        known = _known.get(base)
        place = place.substitute({base: known if known is not None else base.src[0]})
    return place


def _request(node: UOp, overwritten: Collection[UOp]) -> UOp:
    """What to compute for a root. A view of memory that is about to change must be copied;
    everything else is computed anyway.
    """
    if node in overwritten or base_of(node).op is Ops.BUFFER:
        return UOp(Ops.CONTIGUOUS, node.dtype, (node,))
    return node.src[1] if node.op is Ops.AFTER else node


def _late(todo: Sequence[UOp], live: Callable[[], Iterable[UOp]]) -> list[UOp]:
    """Live nodes that need the old value of a buffer that a run of `todo` overwrites; what is to be
    run for these may overwrite more.
    """
    found: dict[UOp, None] = {}
    assigns = _assigns(todo)
    roots = list(live()) if assigns else []
    while assigns:
        count = len(assigns)
        found |= dict.fromkeys(_readers(assigns, roots, {*todo, *found}))
        assigns = _assigns([*todo, *found])
        if len(assigns) == count:
            break
    return list(found)


def _readers(assigns: Sequence[UOp], live: Iterable[UOp], todo: set[UOp]) -> list[UOp]:
    """Live nodes that need the old value of a buffer that is about to be overwritten."""
    targets = {base_of(_place(node)) for node in assigns}
    # What one assignment wrote and another overwrites in this very run.
    between = {base_of(node.src[0]) for node in assigns}
    written = set(assigns)

    def is_written(node: UOp) -> bool:
        return node in written or (node.op is Ops.AFTER and node.src[1] in written)

    needs: dict[UOp, bool] = {}

    def is_decided(node: UOp) -> bool:
        return node in needs or node in todo or is_written(node)

    found: list[UOp] = []
    for root in dict.fromkeys(live):
        if root in todo or (is_written(root) and root not in between):
            continue
        known = realized(root)
        if known is not None:
            is_reader = (
                base_of(known) in targets
                and root.op not in _WRITTEN
                and base_of(root).op not in _WRITTEN
            )
            if is_reader and not _is_owner(root, assigns):
                found.append(root)
            continue
        for node in toposort([root], stop=is_decided):
            if node in needs:
                continue
            if is_written(node):
                needs[node] = node in between
            elif node in todo:
                # Computed by this run, and remembered.
                needs[node] = False
            elif node in _known:
                needs[node] = base_of(_known[node]) in targets
            else:
                needs[node] = node in targets or any(needs[source] for source in node.src)
        if needs[root]:
            found.append(root)
    return found


def _is_owner(root: UOp, assigns: Sequence[UOp]) -> bool:
    return any(root is node for node in assigns)


def _values(graph: Graph, variables: Mapping[UOp, int]) -> dict[str, int]:
    """The value of every launch-time variable: symbolic sizes, places of windows, and seed and
    offset of each draw.
    """
    values = {variable.arg[0]: value for variable, value in variables.items()}
    for number, window in enumerate(graph.windows):
        values[place_name(number)] = window.start
    for number, node in enumerate(graph.draws):
        seed = node.arg.seed
        values[f"seed{number}_low"] = seed & 0xFFFFFFFF
        values[f"seed{number}_high"] = (seed >> 32) & 0xFFFFFFFF
        values[f"offset{number}"] = node.arg.offset
    return values


def _shaped(buffer: UOp, node: UOp) -> UOp:
    """`buffer` under the shape of `node`; memory has the largest sizes of a symbolic shape."""
    shape = node.shape
    largest = tuple(size.vmax if isinstance(size, UOp) else size for size in shape)
    result = (
        buffer
        if largest == (buffer.arg.size,)
        else UOp(Ops.RESHAPE, buffer.dtype, (buffer,), largest)
    )
    if largest != shape:
        result = UOp(Ops.SHRINK, buffer.dtype, (result,), tuple((0, size) for size in shape))
    return result


def read(node: UOp) -> memoryview:
    """The bytes of a realized node, row-major, in fresh memory of the host; shown as a copy."""
    buffer = _looked_at(node)
    start = time.perf_counter()
    data = buffer.copy_out()
    seconds = time.perf_counter() - start
    if buffer.device != "HOST":
        report.count(0, buffer.nbytes, seconds, kernels=0)
        if config.DEBUG >= 2:
            show_copy("HOST", buffer.device, buffer.nbytes, seconds)
    return data


def expose(node: UOp) -> None:
    """Say that the memory of a realized node goes to others who could write it unseen."""
    buffer_of(base_of(node)).expose()


def lend(node: UOp, is_small_too: bool = False) -> memoryview:
    """The bytes of a realized node, row-major, read-only, and never written to while somebody looks
    at them: the memory itself where the host can reach it, else a copy.

    What fits a page is copied, unless it `is_small_too`: that costs less than to remember who
    looks.
    """
    buffer = _looked_at(node)
    with _lock:
        found = buffer.lend() if is_small_too or buffer.nbytes > _PAGE else None
    return read(node).toreadonly() if found is None else found


def view_of(leaf: UOp) -> memoryview | None:
    """The memory of a leaf, where the host can reach it."""
    return buffer_of(leaf).host_view()


def _looked_at(node: UOp) -> Buffer:
    """The memory of a realized node that the host is about to read."""
    base = node
    while base.op is Ops.RESHAPE:
        base = base.src[0]
    if base.op is not Ops.BUFFER:
        raise ShapeError(
            "read: the value is not stored as a whole",
            remedy="call contiguous() and realize() first",
        )
    record = current_recording()
    if record is not None and record.on_read is not None:
        record.on_read(node)
    return buffer_of(base)
