"""Which graphs have variables for the places of their windows: from the second place on.

The first time, a graph is planned with its numbers, and its kernels know them. When the same graph
comes with windows at other places, it is planned once more with variables, and that plan serves all
places. A graph that itself looks through many windows of one kind, as a loop over the columns of a
tensor does, has variables at once, so that its kernels are one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from tilegrad.engine.plans.plans import Graph, key_of
from tilegrad.ir.slices import MemorySlice, find_slices

__all__ = ["opened"]

_MOST = 4096
_MANY = 6

# By the key of a graph with variables: the places in the first such graph, None once there were
# others.
_seen: dict[str, tuple[int, ...] | None] = {}


def opened(graph: Graph) -> Graph:
    """`graph`, with variables for its windows if they move; its nodes are the same."""
    windows = find_slices(graph.nodes)
    if not windows:
        return graph
    key = key_of(graph.nodes, windows)
    places = tuple([window.start for window in windows])
    is_open = _seen.get(key, places) != places or _are_many(graph, windows)
    _seen[key] = None if is_open else places
    if len(_seen) > _MOST:
        del _seen[next(iter(_seen))]
    return replace(graph, windows=windows, key=key) if is_open else graph


def _are_many(graph: Graph, windows: list[MemorySlice]) -> bool:
    kinds = Counter((graph.nodes[each.position].src[0], each.axis, each.size) for each in windows)
    return max(kinds.values()) >= _MANY
