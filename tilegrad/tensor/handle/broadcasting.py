"""Broadcasting: the common shape of operands, and how an error shows them.

Shapes are aligned at the last axis, and sizes of 1 stretch. Constants and symbolic integers have
shape () and stand next to operands of any shape as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import ShapeError
from tilegrad.base.origin import user_expression, user_line
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import base_of
from tilegrad.ir.uop import UOp, sint
from tilegrad.tensor.handle.size_arguments import is_one, same, same_shape, show_shape

__all__ = ["broadcast", "broadcast_shape", "describe", "is_scalar_leaf"]


def is_scalar_leaf(node: UOp) -> bool:
    """Whether `node` is a constant or a symbolic integer: it fits any shape."""
    return node.op is Ops.CONST or (node.op is Ops.CAST and node.src[0].dtype is dtypes.index)


def describe(node: UOp) -> str:
    """An operand for an error message: shape, dtype, the user's text and line. A filled tensor has
    no line: its node is that of all who ask for the same.
    """
    below, filled = node, base_of(node)
    while not below.origin and below.src:
        below = below.src[0]
    facts = [show_shape(node.shape), node.dtype.name]
    if filled.op is not Ops.CONST:
        facts += [user_expression(below.origin), user_line(below.origin)]
    return "  ".join(fact for fact in facts if fact)


def broadcast_shape(name: str, nodes: Sequence[Any]) -> tuple[sint, ...]:
    """The common shape of nodes or tensors: aligned at the last axis, sizes of 1 stretch.

    Raises ShapeError if two sizes differ and neither is 1.
    """
    shape: tuple[sint, ...] = nodes[0].shape
    for node in nodes[1:]:
        theirs = node.shape
        if theirs == shape or not theirs:
            continue
        length = max(len(shape), len(theirs))
        ours = (1,) * (length - len(shape)) + shape
        theirs = (1,) * (length - len(theirs)) + theirs
        common: list[sint] = []
        for a, b in zip(ours, theirs):
            if type(a) is int is type(b) and (a == b or a == 1 or b == 1):
                common.append(b if a == 1 else a)
                continue
            if not (is_one(a) or is_one(b) or same(a, b)):
                raise ShapeError(
                    f"{name}: shapes do not broadcast: {show_shape(shape)} and "
                    f"{show_shape(node.shape)}",
                    left=describe(_node_of(nodes[0])),
                    right=describe(_node_of(node)),
                    rule="aligned at the last axis, sizes must be equal or 1",
                )
            common.append(b if is_one(a) else a)
        shape = tuple(common)
    return shape


def _node_of(operand: Any) -> UOp:
    return operand if isinstance(operand, UOp) else operand.uop


def stretch(node: UOp, shape: tuple[sint, ...]) -> UOp:
    """`node` broadcast to `shape`, which it fits."""
    own = node.shape
    if own == shape or is_scalar_leaf(node):
        return node
    if len(own) < len(shape):
        node = UOp(Ops.RESHAPE, node.dtype, (node,), (1,) * (len(shape) - len(own)) + own)
    return node if same_shape(node.shape, shape) else UOp(Ops.EXPAND, node.dtype, (node,), shape)


def broadcast(name: str, nodes: list[UOp]) -> tuple[UOp, ...]:
    """The nodes in their common shape."""
    first = nodes[0].shape
    for node in nodes:
        if node.shape != first:
            shape = broadcast_shape(name, nodes)
            return tuple([stretch(node, shape) for node in nodes])
    return tuple(nodes)
