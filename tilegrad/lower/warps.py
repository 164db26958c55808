"""Lanes that meet exchange values within their warp, not through shared memory.

GROUP leaves a reduction in two stages (optimize.opts.group): each lane stores its partial result to
shared memory, waits, and reduces the results of all lanes. Where the lanes of a warp can exchange
values, log2(32) exchanges reduce them, and only one result of each warp goes through shared memory.
Lanes of one warp need neither shared memory nor a barrier. Each lane ends up with the same bits:
the two operands of an exchange are the same two numbers for both lanes, and the op commutes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import NamedTuple

from tilegrad.base.dtype import AddressSpace, Pointer, dtypes
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import memory_of, nesting_depth, next_number
from tilegrad.ir.rewrite import rebuilt
from tilegrad.ir.uop import UOp, pointer_of, prod
from tilegrad.target import Target

__all__ = ["use_warps"]

_LANES = (Axis.LOCAL, Axis.GROUP)


class _Meeting(NamedTuple):
    """Lanes that meet: `reduce` runs over the results that the `store` of each `lane` left in
    `memory`.
    """

    reduce: UOp
    memory: UOp
    store: UOp
    lane: UOp

    @property
    def lanes(self) -> int:
        return int(self.lane.extent.arg)


def use_warps(ast: UOp, target: Target) -> UOp:
    """`ast` with exchanges where neighbouring lanes meet.

    before   REDUCE(LOAD(AFTER(shared, BARRIER(STORE(shared, g, x))), k), k)            g: 0..256
    after    REDUCE(LOAD(AFTER(shared, BARRIER(STORE(shared, g//32, y, g%32 == 0))), k), k)
             y = x + SHUFFLE(x, 16), and so on for 8, 4, 2, 1                            k: 0..8
    """
    warp = target.shuffle_lanes
    nodes = ast.toposort()
    innermost = _innermost(ast, nodes, warp)
    if innermost is None:
        return ast
    found = {
        meeting.reduce: meeting
        for node in nodes
        if node.op is Ops.REDUCE and (meeting := _read(node, innermost, warp)) is not None
    }
    # Memory with other readers stays as it is.
    for node in nodes:
        if node.op is Ops.LOAD and node.src[0].op is Ops.AFTER:
            others = [m for m in found.values() if m.memory is node.src[0].src[0]]
            for meeting in others:
                if meeting.reduce.src[0] is not node or len(others) > 1:
                    found.pop(meeting.reduce, None)
    return _rewritten(ast, list(found.values()), warp) if found else ast


def _innermost(ast: UOp, nodes: Iterable[UOp], warp: int) -> UOp | None:
    """The axis of lanes whose neighbours are neighbours in a warp; None where it does not fill
    whole warps of the block, or where the lanes are those of a matrix unit.
    """
    if any(node.op is Ops.WMMA for node in nodes):
        return None
    lanes = [node for node in nodes if node.op is Ops.RANGE and node.axis in _LANES]
    if any(lane.extent.op is not Ops.CONST for lane in lanes):
        return None
    if not lanes or prod(lane.extent.arg for lane in lanes) % warp:
        return None
    last = max(lanes, key=nesting_depth(ast))
    count = last.extent.arg
    return last if last.axis is Axis.GROUP and _fits(count, warp) else None


def _fits(count: int, warp: int) -> bool:
    """Whether `count` lanes are a slice of a warp, or whole warps."""
    return bool(count % warp == 0 if count > warp else warp % count == 0)


def _read(reduce: UOp, lane: UOp, warp: int) -> _Meeting | None:
    """The exchange that a REDUCE over the results of lanes stands for, or None."""
    load, *loops = reduce.src
    dtype = reduce.dtype
    if load.op is not Ops.LOAD or load.is_gated or load.src[0].op is not Ops.AFTER:
        return None
    if dtype.itemsize != 4 or dtype is dtypes.bool or dtype.lanes > 1:
        return None
    memory, *effects = load.src[0].src
    pointer = memory.dtype
    if not isinstance(pointer, Pointer) or pointer.space is not AddressSpace.SHARED:
        return None
    if len(effects) != 1 or effects[0].op is not Ops.BARRIER:
        return None
    stores = [
        node for node in effects[0].src if node.op is Ops.STORE and memory_of(node.src[0]) is memory
    ]
    index = load.index
    count = lane.extent.arg
    if len(stores) != 1 or len(stores[0].src) != 3 or stores[0].src[1] is not lane:
        return None
    if not all(loop.op is Ops.RANGE and loop.extent.op is Ops.CONST for loop in loops):
        return None
    is_whole = prod(loop.extent.arg for loop in loops) == count and index.bounds == (0, count - 1)
    if not is_whole or index.ranges != frozenset(loops):
        return None
    return _Meeting(reduce, memory, stores[0], lane)


def _rewritten(ast: UOp, meetings: list[_Meeting], warp: int) -> UOp:
    reduces = {meeting.reduce: meeting for meeting in meetings}
    stores = {meeting.store: meeting for meeting in meetings if meeting.lanes > warp}
    memories = {meeting.memory: meeting for meeting in meetings if meeting.lanes > warp}
    numbers = itertools.count(next_number(ast.toposort()))
    done: dict[UOp, UOp] = {}

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node in stores:
            lane = src[1]
            total = _exchanged(src[2], stores[node].reduce.arg, warp)
            return src[0].store(lane // warp, total, (lane % warp).eq(0))
        if node in memories:
            pointer = pointer_of(node)
            size = memories[node].lanes // warp
            return UOp(node.op, pointer.base.ptr(size, pointer.space), src, node.arg)
        if node.op is Ops.AFTER and node.src[0] in memories:
            return src[0].after(*src[1:])
        if node not in reduces:
            return None
        meeting = reduces[node]
        if meeting.lanes <= warp:
            return _exchanged(done[meeting.store.value], node.arg, meeting.lanes)
        again = UOp.range(meeting.lanes // warp, next(numbers), Axis.UNROLL)
        return UOp(Ops.REDUCE, node.dtype, (src[0].src[0].load(again), again), node.arg)

    return rebuilt(ast, change, (Ops.STORE, Ops.DEFINE_LOCAL, Ops.AFTER, Ops.REDUCE), done)


def _exchanged(value: UOp, function: Ops, count: int) -> UOp:
    """`value` reduced over `count` neighbouring lanes, in each of them."""
    mask = count // 2
    while mask:
        value = value.alu(function, UOp(Ops.SHUFFLE, value.dtype, (value,), mask))
        mask //= 2
    return value
