"""The shape of a node of the tensor graph, from its op, argument and sources.

A shape is a tuple of sizes: integers, or index nodes where a `Variable` takes part. Nodes of
kernels and programs have no shape; asking for one is an error of ours.
"""

from __future__ import annotations

from typing import Any

from tilegrad.base.errors import InternalError
from tilegrad.ir.op import Ops

__all__ = ["Shape", "shape_of"]

Shape = tuple[Any, ...]


def shape_of(node: Any) -> Shape:
    """The shape of `node`, whose sources have theirs."""
    op, arg, src = node.op, node.arg, node.src
    if op.is_alu:
        return _widest(src)
    if op is Ops.RESHAPE or op is Ops.EXPAND:
        return tuple(arg)
    if op is Ops.REDUCE_AXIS:
        axes = arg[1]
        return tuple([1 if axis in axes else size for axis, size in enumerate(src[0].shape)])
    if op is Ops.PERMUTE:
        shape = src[0].shape
        return tuple([shape[axis] for axis in arg])
    if op in _AS_SOURCE:
        return _widest(src)
    if op is Ops.PAD:
        padded = zip(src[0].shape, arg, strict=True)
        return tuple(_plus(_plus(size, before), after) for size, (before, after) in padded)
    if op is Ops.SHRINK:
        return tuple(_between(start, end) for start, end in arg)
    if op is Ops.PREFIX_AXIS:
        return tuple(src[0].shape)
    if op is Ops.BUFFER:
        return (arg.size,)
    if op is Ops.RAND:
        return tuple(arg.shape)
    if op is Ops.GATHER:
        return (*src[1].shape, *src[0].shape[1:])
    if op in (Ops.CONST, Ops.DEFINE_VAR, Ops.BIND):
        return ()
    if op is Ops.CUSTOM:
        return tuple(node.arg.shape)
    if op is Ops.LOOP:
        return ()
    if op is Ops.LOOP_OUTPUT:
        return tuple(src[0].arg.shape(arg))
    raise InternalError(f"infer: a {op} node has no shape", node=repr(node)[:200])


_AS_SOURCE = frozenset({
    Ops.CAST, Ops.BITCAST, Ops.CONTIGUOUS, Ops.DETACH, Ops.COPY, Ops.SHARD, Ops.ASSIGN, Ops.AFTER,
    Ops.FLIP, Ops.SCATTER_ADD,
})  # fmt: skip


def _between(start: Any, end: Any) -> Any:
    """The distance from `start` to `end`: a number for a slice of fixed size at a variable
    offset.
    """
    if not isinstance(end, int) and end.op is Ops.ADD and end.src[0] is start:
        size = end.src[1]
        return int(size.arg) if size.op is Ops.CONST else size
    return _plus(end, -1 * start)


def _plus(size: Any, amount: Any) -> Any:
    """The sum; adding 0 keeps the identical node `n`."""
    return size if isinstance(amount, int) and amount == 0 else size + amount


def _widest(src: tuple[Any, ...]) -> Shape:
    """The common shape of an elementwise op's sources; constants of shape () fit any shape."""
    for source in src:
        shape: Shape = source.shape
        if shape:
            return shape
    return ()
