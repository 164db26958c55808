"""Several results of a reduction at once, where its lanes run along the contraction axis.

Where every operand is contiguous along the contraction axis (a weight's gradient, a product with a
transposed matrix), vectors of partial sums need no packing. Each loaded vector then serves as many
results as are unrolled along the axes that do not move it: the unrolled rows of each axis are
chosen here.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import moved_loads, stride_of
from tilegrad.ir.uop import UOp, prod
from tilegrad.optimize.analysis.facts import ROWS
from tilegrad.target import Target

__all__ = ["rows_of_reduction"]

# Limits of compile time.
# The most axes of a result along which row counts are tried.
_MOST_AXES = 3


def rows_of_reduction(
    reduction: UOp, outputs: Sequence[UOp], target: Target
) -> list[tuple[UOp, int]]:
    """How many results to unroll along each of `outputs`, as many as there are accumulators at
    most: those with the fewest loads for a result; the pairs with more than one.

    Rows whose distance is a multiple of `Target.set_bytes` share a set of the nearest cache. Where
    they are read once, they take at most half of its lines, which leaves room for the lines that
    are fetched ahead. The limit is not worth it for short rows.
    """
    loads = moved_loads(reduction)
    if len(loads) < 2:
        return []
    axes = [
        axis
        for axis in outputs
        if axis.axis is Axis.LOOP
        and axis in reduction.ranges
        and axis.extent.op is Ops.CONST
        and any(axis not in load.ranges for load in loads)
    ]
    # The axes that fewest loads move share most.
    axes.sort(key=lambda axis: (sum(axis in load.ranges for load in loads), axis.extent.arg))
    axes = axes[:_MOST_AXES]
    options = [_amounts(axis.extent.arg) for axis in axes]
    crowded = {load for load in loads if _is_crowded(load, axes, outputs, target.set_bytes)}
    most = target.cache_ways // 2
    best: tuple[float, tuple[int, ...]] = (float("inf"), ())
    for amounts in itertools.product(*options):
        total = int(prod(amounts))
        rows = {
            load: int(prod(amount for axis, amount in zip(axes, amounts) if axis in load.ranges))
            for load in loads
        }
        if total > target.accumulators or any(rows[load] > most for load in crowded):
            continue
        cost = sum(rows.values())
        best = min(best, (cost / total, amounts))
    return [(axis, amount) for axis, amount in zip(axes, best[1]) if amount > 1]


def _is_crowded(load: UOp, axes: Sequence[UOp], outputs: Sequence[UOp], set_bytes: int) -> bool:
    """Whether no element serves two results, and rows lie so that their lines crowd each other."""
    steps = [stride_of(load.index, axis) or 0 for axis in axes if axis in load.ranges]
    apart = [step * load.dtype.itemsize for step in steps]
    is_read_once = all(axis in load.ranges for axis in outputs if axis.axis is Axis.LOOP)
    return is_read_once and any(each > set_bytes and each % set_bytes == 0 for each in apart)


def _amounts(extent: int) -> list[int]:
    return [count for count in range(1, min(extent, ROWS[0]) + 1) if extent % count == 0]
