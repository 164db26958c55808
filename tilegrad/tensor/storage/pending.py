"""Unread graphs that grow: from some size on, their first nodes run by themselves.

    for _ in range(100_000):
        x = x * 0.99 + y

Nothing here asks for a value. Left alone, the graph would have 200,000 nodes when somebody does,
and be another one for each number of iterations. So the lower end of a graph of _MOST nodes is
computed, _CUT nodes at a time, counted from memory up: these graphs are equal, and have one plan.
"""

from __future__ import annotations

import math
from typing import Any

from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, node_count, toposort
from tilegrad.tensor.handle.aliases import hold
from tilegrad.tensor.handle.size_arguments import NO_VARIABLES
from tilegrad.tensor.storage import running
from tilegrad.tensor.storage.past_of_graphs import note_past

__all__ = ["pressure", "relieve"]

# A training step of a large model has fewer.
_MOST = 1 << 14
_CUT = 1 << 11
# Not to be run without the whole: what stands for other values, writes, and what has no one value.
_APART = frozenset({
    Ops.CUSTOM, Ops.ASSIGN, Ops.AFTER, Ops.LOOP, Ops.LOOP_OUTPUT, Ops.DEFINE_VAR, Ops.BIND
})  # fmt: skip


_WRITTEN = (Ops.ASSIGN, Ops.AFTER)


class _Pressure:
    """With `most` nodes in the process, somebody looks whether one graph has too many."""

    __slots__ = ("most",)

    def __init__(self) -> None:
        self.most = _MOST


pressure = _Pressure()


def relieve(tensor: Any) -> None:
    """Run what a tensor's graph holds, but for the last nodes, if it is large; and if runs may keep
    what they find.
    """
    left = 0
    try:
        if running.keeps() and not tensor._symbols:
            left = _run_in_chunks(tensor)
    finally:
        # No list holds the nodes that were given back here, so they do not count. A graph that
        # stays large is walked again when it has grown by half: the walks are in proportion to it.
        pressure.most = node_count() + max(_MOST, left) // 2


def _waiting(node: UOp) -> list[UOp]:
    """Nodes to compute for a node: those that it is computed from come first."""
    return list(toposort([node], stop=lambda each: each.stored is not None))


def _run_in_chunks(tensor: Any) -> int:
    """How many nodes still wait."""
    order = _waiting(tensor.uop)
    if len(order) < _MOST:
        return len(order)
    has_writes = any(each.op in _WRITTEN for each in order)
    cut = stored = None
    while len(order) >= _CUT:
        first = order[:_CUT]
        if not _APART.isdisjoint(each.op for each in first):
            break
        found = _cut_in(first, order)
        if found is None:
            break
        cut = found
        (stored,) = running.run([cut], NO_VARIABLES)
        size, order = len(order), _waiting(tensor.uop)
        if size - len(order) < _CUT // 4:
            break
    if cut is not None and stored is not None and not tensor._requires_grad and not has_writes:
        # The graph below is given back; who asks for a gradient through it is told.
        note_past({cut: stored})
        hold(tensor, tensor.uop.substitute({cut: stored}), is_computed=False)
    return len(order)


def _cut_in(first: list[UOp], order: list[UOp]) -> UOp | None:
    """The last of the nodes `first` to be computed by itself. If there is one in their second half
    that all later nodes of `order` stand on, beside memory and constants, it is that: its run
    computes what is needed and nothing is computed twice. And a loop, whose iterations meet there,
    is cut at one point of its body, so that the pieces are equal graphs.
    """
    largest = max((_elements(each) for each in order if _is_memory(each)), default=0)
    last_use: dict[UOp, int] = {}
    for number, node in enumerate(order):
        for source in node.src if node.stored is None else ():
            last_use[source] = number
    any_cut = alone = None
    reach = 0
    for number, node in enumerate(first):
        is_cut = _can_be_cut(node, largest)
        if is_cut:
            any_cut = node
            if reach <= number and number >= len(first) // 2:
                alone = node
        if not (_is_memory(node) or node.is_constant):
            reach = max(reach, last_use.get(node, 0))
    return alone or any_cut


def _is_memory(node: UOp) -> bool:
    return node.op is Ops.BUFFER or node.stored is not None


def _elements(node: UOp) -> int:
    if node.op is Ops.BUFFER:
        return int(node.arg.size)
    return math.prod(size if isinstance(size, int) else 0 for size in node.shape)


def _can_be_cut(node: UOp, largest: int) -> bool:
    """Whether the value may be memory: it is computed, and no larger than what it is made of."""
    if node.op.is_movement or node.is_constant or node.op is Ops.BUFFER or node.stored is not None:
        return False
    return bool(0 < math.prod(node.shape) <= largest)
