"""Values of memory from before it was overwritten, computed again from their graphs: a gradient may
need those that no memory holds any more.

    h[1:-1] += (h[2:] + h[:-2]) * w        for each of several steps, then h is read

before   SHRINK(AFTER_t)                   the memory as step t left it, overwritten since
after    SHRINK(WHERE(mask, new, old))     what step t wrote, beside what there was before it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilegrad.engine.realize.noted_writes import are_noted
from tilegrad.engine.realize.realize import realized
from tilegrad.engine.run.leaf_memory import is_overwritten
from tilegrad.grad.partial_writes import partly_written
from tilegrad.grad.regions import unrecorded
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.ir.walks import toposort_over
from tilegrad.tensor.storage.memory import WRITTEN, base_of, is_in_order, is_whole

__all__ = ["computed_again"]


def computed_again(roots: Sequence[UOp], graphs: Mapping[UOp, UOp]) -> list[UOp]:
    """`roots`, over the values that overwritten memory below them had, where these can be computed
    again. `graphs` has what memory was computed from.
    """
    if not are_noted():
        return list(roots)
    # The nodes that each lost value follows from.
    lost: dict[UOp, tuple[UOp, ...]] = {}

    def sources(node: UOp) -> tuple[UOp, ...]:
        if not _is_lost(node):
            return () if _is_known(node) else node.src
        if node.op is not Ops.BUFFER:
            found = _written(node)
        else:
            found = (graphs[node],) if node in graphs else ()
        lost[node] = found
        return found

    order = toposort_over(roots, sources)
    if not lost:
        return list(roots)
    made: dict[UOp, UOp] = {}
    for node in order:
        follows_from = lost.get(node)
        if follows_from:
            again = _again(node, tuple([made[each] for each in follows_from]))
            # A gradient of a gradient goes on to what was read.
            made[node] = unrecorded(again, lambda gradient: gradient, node)
        elif follows_from is not None or _is_known(node):
            made[node] = node
        else:
            below = tuple([made[each] for each in node.src])
            made[node] = node if below == node.src else node.over(below)
    return [made[root] for root in roots]


def _is_known(node: UOp) -> bool:
    """Whether the value of a node that is no lost one is in memory."""
    return node.stored is not None and realized(node) is not None


def _is_lost(node: UOp) -> bool:
    """Whether a node is memory, or what a write left there, that holds another value by now."""
    if node.op is Ops.BUFFER:
        return is_overwritten(node)
    if node.op not in WRITTEN:
        return False
    memory = realized(node)
    return is_overwritten(base_of(node if memory is None else memory))


def _written(version: UOp) -> tuple[UOp, ...]:
    """The values that a version of memory follows from: the written one, and the one before if that
    was a part. Nothing where it cannot be told.
    """
    if version.op is Ops.ASSIGN:
        target, value = version.src[:2]
        return (value,) if is_whole(target) and is_in_order(target) else ()
    before, assign = version.src
    return (before, assign.src[1])


def _again(node: UOp, below: tuple[UOp, ...]) -> UOp:
    """The value of a lost `node`, from those `below` it."""
    if node.op is Ops.AFTER:
        return partly_written(node, *below)
    (value,) = below
    return (
        value if value.shape == node.shape else UOp(Ops.RESHAPE, node.dtype, (value,), node.shape)
    )
