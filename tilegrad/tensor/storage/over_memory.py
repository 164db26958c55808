"""A graph over memory: values that were computed are replaced by the memory that holds them."""

from __future__ import annotations

from collections.abc import Mapping

from tilegrad.base.trace import counters
from tilegrad.engine.realize.realize import same_write
from tilegrad.ir.uop import UOp, remade
from tilegrad.ir.walks import unvisited
from tilegrad.tensor.storage.memory import WRITTEN

__all__ = ["over_memory"]


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
