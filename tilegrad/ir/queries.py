"""Queries: the common questions about a graph, each answered in one place.

What is below a chain of ops, such as the base of a view or the memory behind a pointer; the loads,
stores and reductions of a kernel; what memory a node defines; the stride of an index along a loop;
the device of a value.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Any

from tilegrad.base.dtype import AddressSpace, Pointer
from tilegrad.ir.op import Ops
from tilegrad.ir.placement import Group
from tilegrad.ir.rules.terms import terms_of
from tilegrad.ir.uop import UOp, pointer_of, prod

__all__ = [
    "base_of", "below", "below_casts", "below_reshapes", "below_views", "buffer_below", "bytes_of",
    "copied_of", "device_of", "is_const", "is_scratch", "iterations_of", "loads_of", "memory_of",
    "next_number", "nodes_of", "points_to", "reductions_of",
    "shortened_memories", "stores_of", "stride_of",
]  # fmt: skip


def below(node: UOp, ops: Collection[Ops]) -> UOp:
    """The first node down the chain of first sources whose op is not in `ops`."""
    while node.op in ops:
        node = node.src[0]
    return node


def base_of(node: UOp) -> UOp:
    """The node below a chain of movement ops: the base of a view."""
    while node.op.is_movement:
        node = node.src[0]
    return node


def below_views(node: UOp) -> UOp:
    """The node below a chain of movement ops and DETACH."""
    while node.op.is_movement or node.op is Ops.DETACH:
        node = node.src[0]
    return node


def below_reshapes(node: UOp) -> UOp:
    """The node below a chain of reshapes."""
    while node.op is Ops.RESHAPE:
        node = node.src[0]
    return node


def below_casts(node: UOp) -> UOp:
    """The value that a chain of casts begins with."""
    while node.op is Ops.CAST:
        node = node.src[0]
    return node


def buffer_below(node: UOp) -> UOp:
    """The BUFFER down the chain of first sources of a stored node."""
    while node.op is not Ops.BUFFER:
        node = node.src[0]
    return node


def copied_of(node: UOp) -> tuple[UOp, tuple[UOp, ...]]:
    """The memory that a COPY_TILE reads, and where its box begins along each dimension."""
    return node.src[2], node.src[6:]


def memory_of(pointer: UOp) -> UOp:
    """The definition of the memory, or accumulator, behind a chain of AFTER."""
    while pointer.op is Ops.AFTER:
        pointer = pointer.src[0]
    return pointer


def bytes_of(memory: UOp) -> int:
    """The size of the memory that a node defines, in bytes."""
    pointer = pointer_of(memory)
    return pointer.size * pointer.base.itemsize


def points_to(node: UOp, space: AddressSpace) -> bool:
    """Whether a node points to memory of an address space."""
    return isinstance(node.dtype, Pointer) and node.dtype.space is space


def is_scratch(memory: UOp) -> bool:
    """Whether a node defines memory of the address space SCRATCH."""
    return memory.op is Ops.DEFINE_LOCAL and points_to(memory, AddressSpace.SCRATCH)


def is_const(node: UOp, number: float) -> bool:
    """Whether a node is the constant `number`; 0.0 and -0.0 are two."""
    if node.op is not Ops.CONST or node.arg != number:
        return False
    return bool(number) or math.copysign(1.0, node.arg) == math.copysign(1.0, number)


def next_number(nodes: Iterable[UOp], op: Ops = Ops.RANGE) -> int:
    """The first number above those of the nodes of kind `op`: RANGE, DEFINE_LOCAL, DEFINE_ACC."""
    is_range = op is Ops.RANGE
    numbers = (node.number if is_range else node.arg for node in nodes if node.op is op)
    return max(numbers, default=-1) + 1


def nodes_of(root: UOp, op: Ops) -> list[UOp]:
    """The nodes of kind `op` that `root` needs, sources first."""
    return [node for node in root.toposort() if node.op is op]


def loads_of(root: UOp) -> list[UOp]:
    """The loads that `root` needs, sources first."""
    return nodes_of(root, Ops.LOAD)


def stores_of(root: UOp) -> list[UOp]:
    """The stores that `root` needs, sources first."""
    return nodes_of(root, Ops.STORE)


def reductions_of(root: UOp) -> list[UOp]:
    """The reductions that `root` needs, sources first."""
    return nodes_of(root, Ops.REDUCE)


def iterations_of(reduction: UOp) -> int:
    """How often a reduction combines a value, over all its results."""
    loops = {*reduction.ranges, *(loop for loop in reduction.src[1:] if loop.op is Ops.RANGE)}
    return int(prod(loop.vmax + 1 for loop in loops))


def stride_of(index: UOp, loop: UOp) -> int | None:
    """The change of `index` per iteration of `loop`; None where it is not constant."""
    found = terms_of(index)
    if found is None:
        return None
    scale = found[0].get(loop, 0)
    if any(loop in factor.ranges for factor in found[0] if factor is not loop):
        return None
    return scale


def device_of(node: UOp) -> Any:
    """The name of the value's device, or the group of those that share it; None for constants,
    which every device has.
    """
    stack, seen = [node], {node}
    while stack:
        inner = stack.pop()
        if inner.op in (Ops.BUFFER, Ops.RAND):
            return inner.arg.device
        if inner.op is Ops.SHARD:
            return inner.arg.devices
        # A CONTIGUOUS may name the device of a constant; other arguments mark it.
        if inner.op is Ops.COPY or (
            inner.op is Ops.CONTIGUOUS and isinstance(inner.arg, (str, Group))
        ):
            return inner.arg
        fresh = [source for source in inner.src if source not in seen]
        seen.update(fresh)
        stack += fresh
    return None


def shortened_memories(nodes: Iterable[UOp]) -> set[UOp]:
    """The memory that matrix units read by themselves as floats with short fractions: what is
    stored there is rounded before.
    """
    return {
        memory_of(operand.src[1])
        for node in nodes
        if node.op is Ops.WMMA and node.arg.digits
        for operand in node.src[:2]
        if operand.op is Ops.DESCRIPTOR
    }
