"""What the value in memory was computed from, so that it can still be differentiated.

A graph's root is kept by its parts: the engine remembers the memory of a root for as long as the
root lives, so memory that held its own root would never be given back.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from typing import Any

from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

__all__ = ["forgotten", "graphs"]


class _Graphs(Mapping[UOp, UOp]):
    """A weak mapping from a leaf to the graph, of the leaf's shape, that gave its value."""

    def __init__(self) -> None:
        self._parts: weakref.WeakKeyDictionary[UOp, tuple[Any, ...]] = weakref.WeakKeyDictionary()

    def __setitem__(self, leaf: UOp, graph: UOp) -> None:
        self._parts[leaf] = (graph.op, graph.dtype, graph.src, graph.arg, graph.origin)

    def __getitem__(self, leaf: UOp) -> UOp:
        *parts, origin = self._parts[leaf]
        graph = UOp(*parts)
        if origin and not graph.origin:
            graph.origin = origin
        return graph

    def __contains__(self, leaf: object) -> bool:
        return isinstance(leaf, UOp) and leaf.op is Ops.BUFFER and leaf in self._parts

    def __iter__(self) -> Iterator[UOp]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)


graphs = _Graphs()
# Memory whose value was computed, and then written to: of what is there now nobody knows the graph.
forgotten: weakref.WeakSet[UOp] = weakref.WeakSet()
