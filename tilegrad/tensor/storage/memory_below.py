"""The memory below one leaf of waiting calls: of a tensor that was computed, of a node, and of the
same leaf at other sizes. A leaf is compared with the kind that a segment was noted for, so that
nothing is built where they agree (`signatures.py`).
"""

from __future__ import annotations

from math import prod
from typing import Any

from tilegrad.engine.realize import realize as engine
from tilegrad.engine.run import leaf_memory as store
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.handle.waiting import Call, Input, Moves, Value
from tilegrad.tensor.storage.leaf_kinds import LeafKind, SizedKind, SizedSliceKind, takes_offsets

__all__ = ["Base", "base_below", "moves_of", "node_of", "sliced", "whole"]

Base = UOp | Value


def node_of(call: Call) -> UOp | None:
    if call.value is not None:
        return call.memory
    return None if call.node is None else engine.realized(call.node)


def whole(leaf: Input, kind: SizedKind, copies: dict[UOp, None]) -> Base | None:
    """The memory of a leaf that covers all of it; None unless the leaf is of this `kind`."""
    count = prod(leaf.shape)
    if isinstance(leaf, Call) and leaf.value is not None:
        buffer = leaf.value.buffer
        if (
            kind.ops
            or any(op is not Ops.RESHAPE for op, _, _ in leaf.moves)
            or buffer.dtype is not kind.dtype
            or buffer.size != count
            or buffer.allocator.device != kind.device
        ):
            return None
        return leaf.value.leaf or leaf.value
    node = leaf if isinstance(leaf, UOp) else node_of(leaf) if isinstance(leaf, Call) else None
    ops: list[Ops] = []
    while node is not None and node.op is not Ops.BUFFER:
        if node.stored is not None and (memory := engine.realized(node)) is not None:
            node = memory
            continue
        if node.op is not Ops.RESHAPE:
            if node.op is not Ops.COPY and node.op is not Ops.DETACH:
                return None
            ops.append(node.op)
            if node.op is Ops.COPY:
                copies[node] = None
        node = node.src[0]
    if node is None or tuple(ops) != kind.ops or node.dtype is not kind.dtype:
        return None
    is_of_kind = node.arg.size == count and node.arg.device == kind.device
    return node if is_of_kind and not store.is_overwritten(node) else None


def sliced(leaf: Input, kind: SizedSliceKind) -> Base | None:
    """The memory of a leaf that is a slice of it; None unless the leaf is of this `kind`."""
    if isinstance(leaf, Call) and leaf.value is not None:
        buffer = leaf.value.buffer
        if (
            buffer.dtype is not kind.dtype
            or buffer.allocator.device != kind.device
            or not kind.has(leaf.moves, buffer.size)
        ):
            return None
        return leaf.value.leaf or leaf.value
    node = leaf if isinstance(leaf, UOp) else node_of(leaf) if isinstance(leaf, Call) else None
    moves: list[tuple[Ops, Any, tuple[Any, ...]]] = []
    while node is not None and node.op is not Ops.BUFFER:
        if node.stored is not None and (memory := engine.realized(node)) is not None:
            node = memory
            continue
        if len(node.src) != 1:
            return None
        moves.append((node.op, node.arg, node.shape))
        node = node.src[0]
    if node is None or node.dtype is not kind.dtype or node.arg.device != kind.device:
        return None
    is_of_kind = kind.has(moves[::-1], node.arg.size)
    return node if is_of_kind and not store.is_overwritten(node) else None


def base_below(
    node: UOp, kind: LeafKind, copies: dict[UOp, None], values: dict[str, int]
) -> UOp | None:
    """The memory below a chain of nodes; None unless it is of this `kind`. The offsets of its
    slices that are variables are added to `values`.
    """
    left = iter(kind.offsets)
    for op, dtype, arg in kind.steps or ():
        if node.stored is not None:
            node = engine.realized(node) or node
        if node.op is not op or node.dtype is not dtype:
            return None
        names = next(left, None)
        if names is not None:
            if not takes_offsets(node.arg, arg, names, values):
                return None
        elif node.arg != arg:
            return None
        if op is Ops.COPY:
            copies[node] = None
        node = node.src[0]
    if node.stored is not None:
        node = engine.realized(node) or node
    if node.op is not Ops.BUFFER or node.dtype is not kind.dtype:
        return None
    _, device, size = node.arg
    is_of_kind = size == kind.size and device == kind.device
    return node if is_of_kind and not store.is_overwritten(node) else None


def moves_of(node: UOp) -> tuple[Moves, UOp]:
    """The movement ops of memory, from the BUFFER up, and that."""
    moves: list[tuple[Ops, Any, tuple[Any, ...]]] = []
    while node.op is not Ops.BUFFER:
        moves.append((node.op, node.arg, node.shape))
        node = node.src[0]
    return tuple(moves[::-1]), node
