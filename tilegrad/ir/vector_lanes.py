"""Lanes: which unrolled axes of a kernel become the lanes of vectors, and how accesses follow.

The lowering makes vectors by these rules (lower.lanes), and the estimate of a kernel's time counts
them (optimize.model.model): one decision for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tilegrad.base.dtype import DType, dtypes
from tilegrad.ir.op import UNROLLED, Axis, Ops
from tilegrad.ir.queries import loads_of, stride_of
from tilegrad.ir.rules import distance_between, simplify
from tilegrad.ir.uop import UOp

__all__ = [
    "LEAST_ROWS", "MOST_LOADS", "in_lane", "is_transposed", "lane_axes", "lane_count", "span_of",
]  # fmt: skip

# Rows that a transpose in registers makes vectors of; fewer are accessed one by one.
LEAST_ROWS = 4
# Vectors at most that are loaded for the lanes of one.
MOST_LOADS = 4
# The largest group of consecutive lanes that a transpose moves as one.
_MOST_GROUPED = 8

LanesOf = Callable[[DType], int]


def lane_axes(ast: UOp, lanes_of: LanesOf, gather_bytes: int) -> dict[UOp, int]:
    """The axes that become lanes and the lanes of each, best first; no value depends on two.

    `lanes_of` gives the elements of a dtype in one vector; positions of loads that are taken out of
    a vector fit `gather_bytes`, unless that is 0.
    """
    nodes = ast.toposort()
    score: dict[UOp, int] = {}
    for node in nodes:
        if node.op not in (Ops.LOAD, Ops.STORE):
            continue
        for axis in node.index.ranges:
            if axis.axis in UNROLLED and axis.extent.op is Ops.CONST:
                score[axis] = score.get(axis, 0) + _gain(node, axis) * _weight(node)
    sizes = _LaneSizes(nodes)
    width = {axis: sizes.lane_count(axis, lanes_of, gather_bytes) for axis in score}
    chosen: dict[UOp, int] = {}
    # The score times the width: half as many lanes are worth half.
    for axis in sorted(score, key=lambda axis: (-score[axis] * width[axis], axis.number)):
        if score[axis] > 0 and width[axis] > 1 and not _meets(nodes, axis, chosen):
            chosen[axis] = width[axis]
    return chosen


def _gain(access: UOp, axis: UOp) -> int:
    """Gain of lanes along `axis` for an access: negative where each lane is a separate access."""
    index = access.src[1]
    if stride_of(index, axis) == 1:
        return 3 if access.op is Ops.STORE else 2
    if access.op is Ops.STORE:
        return 0 if is_transposed(index, axis) else -4
    last = axis.extent.arg - 1
    span = span_of(index, axis, axis.extent.arg)
    return 1 if span is not None and 0 < abs(span) <= MOST_LOADS * last else -4


def _weight(access: UOp) -> int:
    """A rough frequency of an access: 8 iterations for each reduce loop around it."""
    loops = sum(loop.axis is Axis.REDUCE for loop in access.ranges)
    return int(8 ** min(loops, 3))


def _meets(nodes: Iterable[UOp], axis: UOp, others: Iterable[UOp]) -> bool:
    """Whether some value depends on `axis` and on one of `others`."""
    rest = frozenset(others)
    return bool(rest) and any(
        node.op is not Ops.END and axis in node.ranges and not rest.isdisjoint(node.ranges)
        for node in nodes
    )


def lane_count(ast: UOp, axis: UOp, lanes_of: LanesOf, gather_bytes: int) -> int:
    """The number of lanes: the largest power of two that divides the extent and fits a vector of
    the widest dtype on this axis.
    """
    return _LaneSizes(ast.toposort()).lane_count(axis, lanes_of, gather_bytes)


class _LaneSizes:
    """The values of a kernel whose dtypes say how many lanes there are."""

    def __init__(self, nodes: Iterable[UOp]):
        self.values: list[UOp] = []
        self.stores: list[UOp] = []
        for node in nodes:
            if node.op is Ops.STORE:
                self.stores.append(node)
            elif node.op in (Ops.LOAD, Ops.REDUCE, Ops.PREFIX):
                self.values.append(node)
        # Loaded values that say where another load is.
        self.positions = [
            (node, inner)
            for node in self.values
            if node.op is Ops.LOAD
            for inner in loads_of(node.index)
        ]

    def lane_count(self, axis: UOp, lanes_of: LanesOf, gather_bytes: int) -> int:
        """As the function, for an axis of this kernel."""
        dtypes_here = [
            node.dtype for node in self.values if axis in node.ranges or axis in node.src
        ]
        dtypes_here += [node.value.dtype for node in self.stores if axis in node.index.ranges]
        widest = max(dtypes_here, key=lambda dtype: dtype.itemsize, default=dtypes.float32)
        most = lanes_of(widest)
        if gather_bytes:
            for load, inner in self.positions:
                if axis in inner.ranges and axis in load.index.ranges:
                    most = min(most, gather_bytes // inner.dtype.itemsize)
        width = 1
        while width * 2 <= most and axis.extent.arg % (width * 2) == 0:
            width *= 2
        return width


def span_of(index: UOp, axis: UOp, count: int) -> int | None:
    """The distance from the first to the last of `count` iterations of `axis`; None where it is
    not constant.
    """
    step = stride_of(index, axis)
    if step is not None:
        return step * (count - 1)
    return distance_between(in_lane(index, axis, 0), in_lane(index, axis, count - 1))


def is_transposed(index: UOp, axis: UOp) -> bool:
    """Whether a transpose (lower.transpose_accesses) makes vector stores of lanes that are apart in
    memory: another unrolled axis is contiguous, or groups of lanes are.
    """
    for other in index.ranges:
        if other is axis or other.axis not in UNROLLED or other.extent.op is not Ops.CONST:
            continue
        rows, step = other.extent.arg, stride_of(index, other)
        if step == 1 and (rows >= LEAST_ROWS or 1 < rows == stride_of(index, axis)):
            return True
        if step is None or not 1 < step <= _MOST_GROUPED or rows < 2:
            continue
        if _has_runs(index, axis, step):
            return True
    return False


def _has_runs(index: UOp, axis: UOp, length: int) -> bool:
    """Whether `length` consecutive iterations of `axis` access consecutive elements."""
    if axis.extent.arg % length:
        return False
    first = in_lane(index, axis, 0)
    return all(
        distance_between(first, in_lane(index, axis, number)) == number
        for number in range(1, length)
    )


def in_lane(value: UOp, axis: UOp, number: int) -> UOp:
    """`value` in iteration `number` of `axis`."""
    return simplify(value, {axis: UOp.const(dtypes.index, number)})
