"""The graph that a value in memory was computed from, so that it can still be differentiated.

A graph's root is kept by its parts: the engine remembers the memory of a root for as long as the
root lives, so memory that held its own root would never be given back.

In a graph over memory, values that were computed are replaced by the memory that holds them.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from typing import Any

from tilegrad.base.trace import counters
from tilegrad.engine.realize.realize import same_write
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, remade
from tilegrad.ir.walks import unvisited
from tilegrad.tensor.handle.living import ends
from tilegrad.tensor.storage.memory import WRITTEN

__all__ = ["graphs", "over_memory", "replayed"]

_WRITES = frozenset({Ops.CONTIGUOUS, Ops.ASSIGN})


class _Graphs(Mapping[UOp, UOp]):
    """A weak mapping from a leaf to the graph, of the leaf's shape, that gave its value."""

    def __init__(self) -> None:
        self._fields: weakref.WeakKeyDictionary[UOp, tuple[Any, ...]] = weakref.WeakKeyDictionary()

    def __setitem__(self, leaf: UOp, graph: UOp) -> None:
        graph = _without_what_no_gradient_reaches(graph)
        fields = graph.op, graph.dtype, graph.src, graph.arg
        self._fields[leaf] = (*fields, graph.origin, weakref.ref(graph))

    def __getitem__(self, leaf: UOp) -> UOp:
        *fields, origin, reference = self._fields[leaf]
        # Where its gradient is watched, an equal node is another one.
        graph: UOp = reference() or UOp(*fields)
        if origin and not graph.origin:
            graph.origin = origin
        return graph

    def __contains__(self, leaf: object) -> bool:
        return isinstance(leaf, UOp) and leaf.op is Ops.BUFFER and leaf in self._fields

    def __iter__(self) -> Iterator[UOp]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


def _without_what_no_gradient_reaches(graph: UOp) -> UOp:
    """`graph` over the memory of parameters that were updated by hand: what these were computed
    from holds all earlier steps. Who asks for their gradients knows them by their memory too.
    """
    memory: dict[UOp, UOp] = {}
    stack, seen = [graph], {graph}
    while stack:
        for source in stack.pop().src:
            if source in seen:
                continue
            seen.add(source)
            if source.stored is not None and source.op in _WRITES and source in ends:
                memory[source] = source.stored
            else:
                stack.append(source)
    return over_memory(graph, memory) if memory else graph


graphs = _Graphs()
# Memory whose value a replay of a captured function computed from leaves that require a gradient:
# there is no graph of it.
replayed: weakref.WeakSet[UOp] = weakref.WeakSet()


def over_memory(root: UOp, memory: Mapping[UOp, UOp]) -> UOp:
    """`root.substitute(memory)`, where each value is [movement of] a BUFFER that holds its key."""
    for node, stored in memory.items():
        if stored.shape != node.shape or stored.dtype is not node.dtype:
            return root.substitute(memory)
    done = dict(memory)
    now = done.__getitem__
    for node in unvisited(root, done):
        src = tuple(map(now, node.src))
        if src == node.src:
            done[node] = node
            continue
        # Over memory of the same shape it has the same shape, and is no constant.
        key = node.op.serial, node.dtype, src, node.arg, node.arg.__class__
        made = done[node] = remade(key, node.op, node.shape)
        if node.stored is not None and node.op in WRITTEN:
            same_write(made, node)
        if node.origin and not made.origin:
            made.origin = node.origin
    counters.visits += len(done)
    return done[root]
