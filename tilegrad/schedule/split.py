"""Folds of a whole value to one number: in two steps, the first of which has chunks to share among
threads.

before   REDUCE_AXIS(x, all)
after    REDUCE_AXIS(REDUCE_AXIS(RESHAPE(x, (8, n/8)), 1), 0)

The number of parts is fixed, so that the result does not depend on the machine.
"""

from __future__ import annotations

from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, toposort
from tilegrad.schedule.cost import elements

__all__ = ["split_folds"]

_PARTS = 8
# From this many elements on, sharing pays for a second kernel.
_WORTH_SPLITTING = 1 << 18


def split_folds(sink: UOp) -> tuple[UOp, dict[UOp, UOp]]:
    """The graph with large folds to one number split, and for each node of it the one it came
    from.
    """
    nodes = toposort([sink])
    made: dict[UOp, UOp] = {}
    came_from: dict[UOp, UOp] = {}
    for node in nodes:
        src = tuple([made[source] for source in node.src])
        fresh = node if src == node.src else node.replace(src=src)
        if _is_large(node):
            op, _ = node.arg
            count = elements(node.src[0])
            parts = UOp(Ops.RESHAPE, node.dtype, src, (_PARTS, count // _PARTS))
            each = UOp(Ops.REDUCE_AXIS, node.dtype, (parts,), (op, (1,)))
            total = UOp(Ops.REDUCE_AXIS, node.dtype, (each,), (op, (0,)))
            fresh = UOp(Ops.RESHAPE, node.dtype, (total,), node.shape)
            for step in (parts, each, total):
                came_from.setdefault(step, node)
                step.origin = step.origin or node.origin
        if fresh is not node and node.origin and not fresh.origin:
            fresh.origin = node.origin
        made[node] = fresh
        came_from.setdefault(fresh, node)
    return made[sink], came_from


def _is_large(node: UOp) -> bool:
    if node.op is not Ops.REDUCE_AXIS or elements(node) != 1:
        return False
    shape = node.src[0].shape
    if not all(isinstance(size, int) for size in shape) or node.src[0].is_constant:
        return False
    count = elements(node.src[0])
    return count >= _WORTH_SPLITTING and count % _PARTS == 0
