"""What a load or a store of a shaped kernel takes: as whole vectors, as vectors and shuffles, as
rows of a transpose, or lane by lane (ir.lanes says which, and lower makes them).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tilegrad.ir.lanes import LEAST_ROWS, MOST_LOADS, is_transposed, span_of
from tilegrad.ir.op import UNROLLED, Ops
from tilegrad.ir.queries import memory_of, stride_of
from tilegrad.ir.uop import UOp, prod
from tilegrad.optimize.footprint import distinct
from tilegrad.target import Target

__all__ = ["Access", "access_of"]


@dataclass(frozen=True)
class Access:
    """Instructions in one iteration of the loops around an access: those that go to memory, and
    operations on values.
    """

    memory: float
    operations: float = 0.0

    def times(self, count: float, operations: float = 0.0) -> Access:
        """As many of them, each with some operations more."""
        return Access(self.memory * count, (self.operations + operations) * count)


def access_of(node: UOp, lanes: Mapping[UOp, int], target: Target, step: int = 1) -> Access:
    """The instructions of the load or store `node`. `lanes` maps each axis that becomes lanes to
    their number; neighbouring lanes of a whole vector are `step` elements apart (a dot unit takes
    several neighbours at once).
    """
    index = node.src[1]
    lane = next((axis for axis in lanes if axis in index.ranges), None)
    if lane is None or lanes[lane] < 2:
        return _gated(node, Access(_positions(index)), target, lanes)
    width = lanes[lane]
    count = _positions(index, lane, width)
    found = _vector(node, lane, width, step, target)
    return _gated(node, found, target, lanes).times(count)


def _vector(node: UOp, lane: UOp, width: int, step: int, target: Target) -> Access:
    """One vector along `lane`."""
    index, is_store = node.src[1], node.op is Ops.STORE
    if stride_of(index, lane) == step or lane in memory_of(node.src[0]).src:
        return Access(1)
    if _is_computed(node, [lane]):
        # Positions are taken out of a vector, elements inserted into one.
        return Access(width, 2 * width)
    span = span_of(index, lane, width)
    if is_store:
        if is_transposed(index, lane):
            return Access(1, math.log2(width))
        return Access(width, width)
    reach = None if span is None else abs(span) + 1
    if reach is not None and 1 < reach <= MOST_LOADS * width:
        vectors = -(-reach // width)
        return Access(vectors, 2 * vectors - 1)
    rows = _rows_beside(index, lane)
    if rows >= LEAST_ROWS and len(node.src) == 2:
        return Access(max(width // rows, 1), math.log2(width))
    return Access(width, width)


def _is_computed(node: UOp, lanes: Iterable[UOp]) -> bool:
    """Whether the position of an access is computed from what lanes load."""
    own = frozenset(lanes)
    return any(
        each.op is Ops.LOAD and not own.isdisjoint(each.ranges) for each in node.src[1].toposort()
    )


def _rows_beside(index: UOp, lane: UOp) -> int:
    """Neighbours in memory along another unrolled axis."""
    extents = (
        axis.src[0].vmax
        for axis in index.ranges
        if axis is not lane and axis.arg[1] in UNROLLED and stride_of(index, axis) == 1
    )
    return max(extents, default=1)


def _positions(index: UOp, lane: UOp | None = None, width: int = 1) -> int:
    """How many different positions the unrolled copies of an access have, vectors counted once: a
    filter window beside rows reads many of its elements more than once.
    """
    moves: list[tuple[int, int]] = []
    unknown = 1
    for axis in index.ranges:
        if axis.arg[1] not in UNROLLED:
            continue
        step, extent = stride_of(index, axis), int(axis.src[0].vmax)
        if axis is lane:
            step, extent = (step if step is None else step * width), extent // width
        if step is None:
            unknown *= extent
        else:
            moves.append((abs(step), extent))
    return int(prod(count for _, count in distinct(moves))) * unknown


def _gated(node: UOp, found: Access, target: Target, lanes: Mapping[UOp, int]) -> Access:
    """`found` behind the gate of `node`, if it has one that is not known when it is compiled."""
    if len(node.src) < 4:
        return found
    gate = node.src[3]
    if all(axis.arg[1] in UNROLLED for axis in gate.ranges):
        return found
    has_lanes = _varies(gate, lanes)
    if has_lanes and target.has_mask and _is_computed(node, lanes):
        # Closed lanes load the first element, so that no lane needs a branch.
        return found.times(1, 2.0)
    if found.memory > 2 or (has_lanes and not target.has_mask):
        # Lanes that are loaded one by one, each behind a branch.
        return found.times(1, target.timing.branch * found.memory)
    return found.times(1, 2.0 if has_lanes else 1.0)


def _varies(gate: UOp, lanes: Iterable[UOp]) -> bool:
    """Whether a gate differs between lanes, and is not known when it is compiled."""
    own = frozenset(lanes)
    return any(
        each.op.is_boolean
        and not own.isdisjoint(each.ranges)
        and any(axis.arg[1] not in UNROLLED for axis in each.ranges)
        for each in gate.toposort()
    )
