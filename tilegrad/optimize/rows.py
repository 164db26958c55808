"""Several results of a fold at once, where its lanes run along the fold.

Where every operand is contiguous along the fold (a weight's gradient, a product with a transposed
matrix), vectors of partial sums need no packing. Each loaded vector then serves as many results as
are written out along the axes that do not move it; what is chosen here is how many of which axis.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.uop import UOp, prod

__all__ = ["rows_of_fold"]

_MOST_ROWS = 8
_MOST_AXES = 3
# A load with a gate takes the gate's arithmetic too.
_GATED = 2


def rows_of_fold(fold: UOp, outputs: Sequence[UOp], accumulators: int) -> list[tuple[UOp, int]]:
    """How many results to write out along each of `outputs`, with at most `accumulators` in all:
    those with the fewest loads for a result; the pairs with more than one.
    """
    loads = [
        node
        for node in fold.src[0].toposort()
        if node.op is Ops.LOAD and any(part in node.ranges for part in fold.src[1:])
    ]
    if len(loads) < 2:
        return []
    axes = [
        axis
        for axis in outputs
        if axis.arg[1] is Axis.LOOP
        and axis in fold.ranges
        and axis.src[0].op is Ops.CONST
        and any(axis not in load.ranges for load in loads)
    ]
    # The axes that fewest loads move share most.
    axes.sort(key=lambda axis: (sum(axis in load.ranges for load in loads), axis.src[0].arg))
    axes = axes[:_MOST_AXES]
    options = [_amounts(axis.src[0].arg) for axis in axes]
    best: tuple[float, tuple[int, ...]] = (float("inf"), ())
    for amounts in itertools.product(*options):
        total = int(prod(amounts))
        if total > accumulators:
            continue
        cost = 0
        for load in loads:
            own = [amount for axis, amount in zip(axes, amounts) if axis in load.ranges]
            cost += int(prod(own)) * (_GATED if len(load.src) == 4 else 1)
        best = min(best, (cost / total, amounts))
    return [(axis, amount) for axis, amount in zip(axes, best[1]) if amount > 1]


def _amounts(extent: int) -> list[int]:
    return [count for count in range(1, min(extent, _MOST_ROWS) + 1) if extent % count == 0]
