"""Numbers that change from step to step, known by the call that uses them.

The first steps of a program are different graphs: the first has no state yet, the second begins to
keep it. A number that changes at each step, such as Adam's `1 - 0.99**step`, would be found in each
of these kinds anew, by a second graph of it. So the numbers of graphs that are planned are noted by
the user's calls, and where a call comes with others, they are variables at once.

Offsets of slices are such numbers as well. The first time, a graph is planned with the offsets of
its slices as numbers. When the same graph comes with other offsets, or another graph in which a
call takes a slice that it did not take before, it is planned with variables, and that plan serves
all offsets. A graph with many slices of one kind, such as a loop over the columns of a tensor, has
variables at once, so that one kernel serves all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from tilegrad.base.origin import Entry
from tilegrad.base.recent import Recent
from tilegrad.engine.plans.plans import Graph, key_of
from tilegrad.engine.realize.request import Request
from tilegrad.ir.op import Ops
from tilegrad.ir.slices import MemorySlice, find_slices
from tilegrad.ir.uop import UOp

__all__ = ["changed_since", "will_change", "with_variable_offsets"]

# Calls that are remembered.
_MOST = 4096

_Call = tuple[Ops, tuple[Entry, ...]]
# The constants of a call in the graph that was planned last, in their order.
_lately: Recent[_Call, tuple[float, ...]] = Recent(lambda: _MOST)
# Calls whose numbers are known to change.
_changing: Recent[_Call, bool] = Recent(lambda: _MOST)


def will_change(op: Ops, entry: Entry) -> None:
    """Let the numbers from 0 on that nodes of an op have by a user's call be variables at once."""
    _changing.put((op, (entry,)), True)


def changed_since(request: Request) -> Sequence[bool]:
    """For each constant of `request`, which is about to be planned, whether its call had another
    one when a graph with it was planned before; and note those of `request`.
    """
    users = _users(request)
    calls: dict[_Call, list[int]] = {}
    for position, number in enumerate(request.constants):
        node = request.nodes[users[number]] if number in users else None
        if node is not None and node.origin:
            calls.setdefault((node.op, node.origin), []).append(position)
    found = [False] * len(request.constants)
    for call, positions in calls.items():
        now = tuple([request.nodes[request.constants[position]].arg for position in positions])
        before = _lately.get(call)
        if _changing.get(call):
            for position, number in zip(positions, now, strict=True):
                found[position] = number >= 0
        elif before is not None and len(before) == len(now):
            for position, old, new in zip(positions, before, now, strict=True):
                found[position] = old != new
        _lately.put(call, now)
    # Gradients belong to no call, and have the numbers of the calls that they go through.
    values = [request.nodes[number].arg for number in request.constants]
    changed = {value for value, does in zip(values, found, strict=True) if does}
    for position, (number, value) in enumerate(zip(request.constants, values, strict=True)):
        if value in changed and number in users and not request.nodes[users[number]].origin:
            found[position] = True
    return found


def _users(request: Request) -> dict[int, int]:
    """For each constant, the node that uses it."""
    constants = set(request.constants)
    found: dict[int, int] = {}
    for number, sources in enumerate(request.sources):
        for source in sources:
            if source in constants:
                found.setdefault(source, number)
    return found


_MOST_OFFSETS = 4096
_MANY = 6

# By the key of a graph with variables: the offsets in the first such graph, None once there were
# others.
_seen: dict[str, tuple[int, ...] | None] = {}
# By call and axis, the offsets in the graph that was planned last.
_taken: Recent[tuple[_Call, int], frozenset[int]] = Recent(lambda: _MOST)


def with_variable_offsets(graph: Graph) -> Graph:
    """`graph`, with variables for the offsets of its slices if they change."""
    slices = find_slices(graph.nodes)
    if not slices:
        return graph
    key = key_of(graph.nodes, slices)
    positions = tuple([each.start for each in slices])
    are_variable = _have_moved(graph, slices)
    are_variable |= _seen.get(key, positions) != positions or _are_many(graph, slices)
    _seen[key] = None if are_variable else positions
    if len(_seen) > _MOST_OFFSETS:
        del _seen[next(iter(_seen))]
    return replace(graph, slices=slices, key=key) if are_variable else graph


def _have_moved(graph: Graph, slices: Sequence[MemorySlice]) -> bool:
    """Whether a call takes a slice that it did not take in the graph that was planned before; and
    note the slices of this one.
    """
    found = False
    for call, starts in _starts_by_call(graph, slices).items():
        found |= not starts <= (_taken.get(call) or starts)
        _taken.put(call, frozenset(starts))
    return found


def _starts_by_call(
    graph: Graph, slices: Sequence[MemorySlice]
) -> dict[tuple[_Call, int], set[int]]:
    """The offsets that each call takes along an axis. A slice has no call of its own: those that
    compute with it are meant.
    """
    taken: dict[UOp, list[MemorySlice]] = {}
    for each in slices:
        taken.setdefault(graph.nodes[each.position], []).append(each)
    found: dict[tuple[_Call, int], set[int]] = {}
    for node in graph.nodes:
        for source in node.src:
            for each in taken.get(source, ()):
                if node.op.is_movement:
                    taken.setdefault(node, []).append(each)
                elif node.origin:
                    call = node.op, node.origin
                    found.setdefault((call, each.axis), set()).add(each.start)
    return found


def _are_many(graph: Graph, slices: list[MemorySlice]) -> bool:
    kinds = Counter((graph.nodes[each.position].src[0], each.axis, each.size) for each in slices)
    return max(kinds.values()) >= _MANY
