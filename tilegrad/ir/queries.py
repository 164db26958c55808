"""Queries: the common questions about a graph, each answered in one place.

They are the source below a chain of ops, such as the base of a view or the memory behind a pointer;
the loads, stores and reductions of a kernel; the memory that a node defines; the stride of an index
along a loop; the device of a value.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Any

from tilegrad.base.dtype import AddressSpace, Pointer
from tilegrad.ir.op import Ops
from tilegrad.ir.placement import Group
from tilegrad.ir.rules.sums import terms_of
from tilegrad.ir.sizes import tidy
from tilegrad.ir.uop import UOp, pointer_of, prod

__all__ = [
    "barriers_of",
    "base_of",
    "below",
    "below_casts",
    "below_reshapes",
    "below_views",
    "buffer_below",
    "bytes_of",
    "copied_of",
    "device_of",
    "direct_copies",
    "is_const",
    "is_scratch",
    "iterations_of",
    "loads_of",
    "loop_ranks",
    "loops_of",
    "memory_of",
    "moved_loads",
    "nesting_depth",
    "next_number",
    "nodes_of",
    "points_to",
    "reductions_of",
    "scratch_of",
    "shortened_memories",
    "stores_of",
    "stride_of",
    "trips_of",
    "values_of",
    "written_memories",
]


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


def barriers_of(node: UOp) -> UOp:
    """The barriers that a COPY_TILE counts for, in shared memory."""
    return memory_of(node.src[3])


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


def moved_loads(reduction: UOp) -> list[UOp]:
    """The loads of a reduction, or scan, whose index or gate its own loops move, sources first."""
    loops = frozenset(loops_of(reduction))
    return [node for node in loads_of(reduction.src[0]) if not loops.isdisjoint(node.ranges)]


def stores_of(root: UOp) -> list[UOp]:
    """The stores that `root` needs, sources first."""
    return nodes_of(root, Ops.STORE)


def reductions_of(root: UOp) -> list[UOp]:
    """The reductions that `root` needs, sources first."""
    return nodes_of(root, Ops.REDUCE)


def scratch_of(root: UOp) -> list[UOp]:
    """The scratch memory that `root` needs, sources first."""
    return [node for node in nodes_of(root, Ops.DEFINE_LOCAL) if is_scratch(node)]


def written_memories(nodes: Iterable[UOp]) -> set[UOp]:
    """The memory that the stores among `nodes` write."""
    return {memory_of(node.src[0]) for node in nodes if node.op is Ops.STORE}


def loops_of(node: UOp) -> tuple[UOp, ...]:
    """The loops among a node's sources: those of a reduction, a scan or a loop nest."""
    return tuple(source for source in node.src if source.op is Ops.RANGE)


def values_of(node: UOp) -> list[UOp]:
    """The sources of a reduction, a scan or a loop nest that are no loops."""
    return [source for source in node.src if source.op is not Ops.RANGE]


def loop_ranks(kernel: UOp) -> dict[int, int]:
    """By number of a loop: its position in the kernel's order, outermost first."""
    return {number: rank for rank, number in enumerate(kernel.arg.order)}


def nesting_depth(kernel: UOp) -> Callable[[UOp], int]:
    """The key by which loops of a kernel are sorted outermost first. A loop that its order does not
    name, as one of a nest that fills a tile, comes after the others, by its number.
    """
    rank = loop_ranks(kernel)
    return lambda loop: rank.get(loop.number, len(rank) + loop.number)


def trips_of(loops: Iterable[UOp]) -> int:
    """The iterations of a nest of loops: at most, where an extent is symbolic."""
    return int(prod(loop.vmax + 1 for loop in loops))


def iterations_of(reduction: UOp) -> int:
    """How often a reduction combines a value, over all its results."""
    return trips_of({*reduction.ranges, *loops_of(reduction)})


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
    """The memory that matrix units read by themselves as floats with short fractions: values stored
    there are rounded before.
    """
    return {
        memory_of(operand.src[1])
        for node in nodes
        if node.op is Ops.WMMA and node.arg.digits
        for operand in node.src[:2]
        if operand.op is Ops.DESCRIPTOR
    }


def direct_copies(nodes: Collection[UOp]) -> dict[UOp, UOp]:
    """The assignments whose value is a whole copy without other users, each with that copy. `nodes`
    are all nodes of a graph.

    `x.assign(Tensor(array))` copies from the host to the device, and then into the memory of x.
    Where the copy has no other user, it writes there at once: loading a model needs no second
    model's memory.
    """
    users = Counter(source for node in nodes for source in node.src)
    found: dict[UOp, UOp] = {}
    for node in nodes:
        if node.op is not Ops.ASSIGN:
            continue
        memory, value = node.src
        target = below_reshapes(memory)
        is_alone = users[value] == 1
        while value.op in (Ops.RESHAPE, Ops.DETACH):
            value = value.src[0]
            is_alone = is_alone and users[value] == 1
        is_whole = target.op is Ops.BUFFER and target.arg.size == tidy(prod(node.shape))
        if value.op is Ops.COPY and is_alone and is_whole and target.arg.device == value.arg:
            found[node] = value
    return found
