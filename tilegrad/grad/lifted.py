"""A graph for one example made one for many, which are an axis in front: the ops that say so alone.

Elementwise ops, movement and reductions take one axis more. Nodes that depend on none of the mapped
nodes stay as they are and are stretched where they meet a node that has the axis. `grad.batch` adds
the ops that ask for more; `grad.over_steps` makes the steps of a loop the axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilegrad.base.dtype import dtypes
from tilegrad.ir.movement import shaped, stretched
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

__all__ = ["Lifted"]

_SAME = frozenset({Ops.CAST, Ops.BITCAST, Ops.CONTIGUOUS, Ops.DETACH, Ops.COPY})
"""Ops of one source that do not look at the shape."""


class Lifted:
    """Nodes with an axis of `size` in front, by node: `done`, which begins as `mapped`."""

    def __init__(self, mapped: Mapping[UOp, UOp], size: Any):
        self.size = size
        self.done: dict[UOp, UOp] = dict(mapped)

    def plain(self, node: UOp) -> UOp | None:
        """`node` where at least one source has the axis; None if its op asks for more."""
        op = node.op
        if op.is_alu:
            src = tuple(self.operand(source, node) for source in node.src)
            return UOp(op, node.dtype, src, node.arg)
        if op.is_movement:
            return self.moved(node)
        if op in _SAME:
            return UOp(op, node.dtype, (self.done[node.src[0]],), node.arg)
        return self.reduce(node) if op is Ops.REDUCE_AXIS else None

    def whole(self, node: UOp) -> UOp:
        """`node` with the axis, stretched if it is the same for all."""
        found = self.done.get(node)
        if found is not None:
            return found
        return stretched(shaped(node, (1, *node.shape)), (self.size, *node.shape))

    def operand(self, node: UOp, user: UOp) -> UOp:
        """`node` as an operand of the elementwise `user`: a number that no example has for itself
        fits as it is.
        """
        if node not in self.done and node.shape == () and not _has_memory(node):
            return node
        found = self.whole(node)
        if node.shape == () and user.shape != ():
            found = shaped(found, (self.size, *(1 for _ in user.shape)))
            return stretched(found, (self.size, *user.shape))
        return found

    def moved(self, node: UOp) -> UOp:
        op, arg, x = node.op, node.arg, self.done[node.src[0]]
        if op is Ops.RESHAPE:
            return shaped(x, (self.size, *arg))
        if op is Ops.EXPAND:
            return stretched(x, (self.size, *arg))
        first: Any
        if op is Ops.PERMUTE:
            first, arg = 0, tuple(axis + 1 for axis in arg)
        else:
            first = {Ops.PAD: (0, 0), Ops.SHRINK: (0, self.size), Ops.FLIP: False}[op]
        return UOp(op, x.dtype, (x,), (first, *arg))

    def reduce(self, node: UOp) -> UOp:
        function, axes, *ties = node.arg
        arg = (function, tuple(axis + 1 for axis in axes), *ties)
        return UOp(Ops.REDUCE_AXIS, node.dtype, (self.done[node.src[0]],), arg)


def _has_memory(node: UOp) -> bool:
    """Whether a node of no axes is more than a constant or a symbolic size."""
    return not (node.op is Ops.CONST or (node.op is Ops.CAST and node.src[0].dtype is dtypes.index))
