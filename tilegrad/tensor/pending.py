"""Graphs that nobody reads, and that grow: from some size on, their first nodes run by themselves.

    for _ in range(100_000):
        x = x * 0.99 + y

Nothing here asks for a value. Left alone, the graph would have 200,000 nodes when somebody does,
and be another one for each number of iterations. So the lower end of a graph of _MOST nodes is
computed, _CUT nodes at a time, counted from memory up: these graphs are equal, and have one plan.
"""

from __future__ import annotations

from typing import Any

from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, node_count, toposort
from tilegrad.tensor import running
from tilegrad.tensor.aliases import hold
from tilegrad.tensor.sizes import NO_VARIABLES

__all__ = ["pressure", "relieve"]

# A training step of a large model has fewer.
_MOST = 1 << 14
_CUT = 1 << 11
# Not to be run without the whole: what stands for other values, writes, and what has no one value.
_APART = frozenset({
    Ops.CUSTOM, Ops.ASSIGN, Ops.AFTER, Ops.LOOP, Ops.PART, Ops.DEFINE_VAR, Ops.BIND
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
    try:
        if running.keeps() and not tensor._symbols:
            order = _waiting(tensor._node)
            if len(order) >= _MOST:
                _run_in_parts(tensor, order)
    finally:
        pressure.most = node_count() + _MOST // 2


def _waiting(node: UOp) -> list[UOp]:
    """What is to be computed for a node, and the values that it is computed from, which come
    first.
    """
    return list(toposort([node], stop=lambda each: each.stored is not None))


def _run_in_parts(tensor: Any, order: list[UOp]) -> None:
    has_writes = any(each.op in _WRITTEN for each in order)
    cut = stored = None
    while len(order) >= _CUT:
        first = order[:_CUT]
        if not _APART.isdisjoint(each.op for each in first):
            break
        largest = max((each.arg.size for each in order if each.op is Ops.BUFFER), default=0)
        found = next((each for each in reversed(first) if _can_be_cut(each, largest)), None)
        if found is None:
            break
        cut = found
        (stored,) = running.run([cut], NO_VARIABLES)
        order = _waiting(tensor._node)
    if cut is not None and stored is not None and not tensor._requires_grad and not has_writes:
        # The graph below is given back; who asks for a gradient through it is told.
        running.note_past({cut: stored})
        hold(tensor, tensor._node.substitute({cut: stored}), is_computed=False)


def _can_be_cut(node: UOp, largest: int) -> bool:
    """Whether the value may be memory: it is computed, and no larger than what it is made of."""
    if node.op.is_movement or node.is_constant or node.op is Ops.BUFFER or node.stored is not None:
        return False
    count = 1
    for size in node.shape:
        count *= size
    return 0 < count <= largest
