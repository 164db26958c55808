"""Facts about kernels that pass over memory: which vectors `heuristic_streams` makes of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilegrad.base.dtype import DType
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import loads_of, stride_of, trips_of
from tilegrad.ir.rules.sums import conjuncts
from tilegrad.ir.uop import UOp
from tilegrad.ir.vector_lanes import MOST_LOADS
from tilegrad.optimize.analysis.facts import UNROLLED, has_functions, stores

__all__ = [
    "asks_position",
    "has_unit_load",
    "is_lane_reduction",
    "is_picked",
    "is_short",
    "padded_load",
    "score",
    "widest_dtype",
]


def is_picked(ast: UOp, loop: UOp) -> bool:
    """Whether each iteration of `loop` loads an element whose position was loaded."""
    return any(
        node.op is Ops.LOAD and any(_varies(each, loop) for each in node.index.toposort())
        for node in ast.toposort()
    )


def _varies(node: UOp, loop: UOp) -> bool:
    return node.op is Ops.LOAD and loop in node.index.ranges


def asks_position(load: UOp, loop: UOp) -> bool:
    """Whether a load has a condition that the iteration of `loop` decides, and no loaded value."""
    return load.is_gated and any(
        loop in condition.ranges and all(each.op is not Ops.LOAD for each in condition.toposort())
        for condition in conjuncts(load.gate)
    )


def padded_load(reductions: list[UOp], store: UOp, *, is_large: bool) -> UOp | None:
    """The load of a padded parameter by whose copy without gates a kernel of one reduce gains: its
    lanes are then picked from whole vectors. Either the reduce reads nothing else and lanes lie
    several elements apart, as in a pooling, or it also reads a filter that is the same for all
    lanes, and is too long to be unrolled as a whole, where each gate would be known.
    """
    loads = loads_of(store)
    gated = [load for load in loads if load.is_gated]
    if len(reductions) != 1 or len(gated) != 1 or has_functions(reductions[0]):
        return None
    (load,) = gated
    if load.src[0].op is not Ops.DEFINE_GLOBAL or any(
        other is not load and other.src[0] is load.src[0] for other in loads
    ):
        return None
    lanes = [loop for loop in load.ranges if stride_of(store.index, loop) == 1]
    read = set(loads_of(reductions[0].src[0]))
    if load not in read or not set(reductions[0].src[1:]) <= load.ranges:
        return None
    filters = read - {load}
    if any(loop in each.ranges for each in filters for loop in lanes):
        return None
    # A gather: each element of the copy would be used once.
    if not filters.isdisjoint(load.toposort()):
        return None
    if filters:
        return load if lanes and not is_short(reductions[0].src[1:]) else None
    strides = [stride_of(load.index, loop) for loop in lanes]
    is_apart = any(step is not None and abs(step) > 1 for step in strides)
    return load if is_apart and is_large else None


def is_short(loops: Sequence[UOp]) -> bool:
    """Whether a reduce over `loops` is unrolled as a whole."""
    return trips_of(loops) <= UNROLLED


def score(reduction: UOp, loop: UOp) -> float:
    """Loads inside the reduce that move by one along `loop`, less those whose lanes are in a few
    vectors, and twice those that jump. One whose address depends on data loaded along `loop` is a
    gather, which no other load makes up for.
    """
    total, loops = 0.0, set(reduction.src[1:])
    for node in reduction.src[0].toposort():
        if node.op is Ops.LOAD and loop in node.index.ranges and loops & node.ranges:
            step = stride_of(node.src[1], loop)
            is_gather = step is None and any(
                each.op is Ops.LOAD and loop in each.ranges for each in node.index.toposort()
            )
            is_near = step is not None and abs(step) <= MOST_LOADS
            total += 1 if step == 1 else -math.inf if is_gather else -1 if is_near else -2
    return total


def has_unit_load(reduction: UOp, loop: UOp) -> bool:
    """Whether some load moves by one along `loop`."""
    loads = loads_of(reduction.src[0])
    return any(stride_of(load.index, loop) == 1 for load in loads)


def is_lane_reduction(ast: UOp, loop: UOp, width: int) -> bool:
    """Whether a reduction that depends on `loop` already runs in vectors of its own."""
    return any(
        node.op is Ops.REDUCE
        and loop in node.ranges
        and any(
            axis.axis is Axis.UNROLL and axis.extent.arg >= min(width, 8) for axis in node.src[1:]
        )
        for node in ast.toposort()
    )


def widest_dtype(ast: UOp) -> DType:
    dtypes_used = [node.dtype for node in ast.toposort() if node.op in (Ops.LOAD, Ops.REDUCE)]
    dtypes_used += [node.value.dtype for node in stores(ast)]
    return max(dtypes_used, key=lambda dtype: dtype.itemsize)
