"""Slices with variable offsets: which graphs have them.

The first time, a graph is planned with the offsets of its slices as numbers. When the same graph
comes with other offsets, it is planned once more with variables, and that plan serves all offsets.
A graph with many slices of one kind, such as a loop over the columns of a tensor, has variables at
once, so that one kernel serves all of them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from tilegrad.engine.plans.plans import Graph, key_of
from tilegrad.ir.slices import MemorySlice, find_slices

__all__ = ["with_variable_offsets"]

_MOST = 4096
_MANY = 6

# By the key of a graph with variables: the offsets in the first such graph, None once there were
# others.
_seen: dict[str, tuple[int, ...] | None] = {}


def with_variable_offsets(graph: Graph) -> Graph:
    """`graph`, with variables for the offsets of its slices if they change."""
    slices = find_slices(graph.nodes)
    if not slices:
        return graph
    key = key_of(graph.nodes, slices)
    positions = tuple([each.start for each in slices])
    are_variable = _seen.get(key, positions) != positions or _are_many(graph, slices)
    _seen[key] = None if are_variable else positions
    if len(_seen) > _MOST:
        del _seen[next(iter(_seen))]
    return replace(graph, slices=slices, key=key) if are_variable else graph


def _are_many(graph: Graph, slices: list[MemorySlice]) -> bool:
    kinds = Counter((graph.nodes[each.position].src[0], each.axis, each.size) for each in slices)
    return max(kinds.values()) >= _MANY
