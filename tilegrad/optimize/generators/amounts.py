"""Amounts that an iteration takes: elements of a row, as whole vectors or with padding, and rows of
a reduction whose lanes run along the contraction axis.

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
from tilegrad.optimize.analysis.facts import (
    LONG,
    ROWS,
    UNROLLED,
    is_mostly_used,
    padded_to,
    power_below,
)
from tilegrad.target import Target

__all__ = ["even_counts", "lane_amount", "padded_amount", "reduction_amount", "rows_of_reduction"]


def reduction_amount(extent: int, width: int) -> int:
    """Elements of a reduction per iteration: all of them, or as many vectors as pad little. Only
    the last vector has a mask.
    """
    whole = padded_to(extent, width)
    if whole <= UNROLLED * width:
        return whole
    amounts = (count * width for count in (4, 2))
    fits = (each for each in amounts if is_mostly_used(extent, each))
    return next(fits, width)


def padded_amount(extent: int, width: int) -> int:
    """Several vectors for an iteration, where little of the axis is padding then, else one."""
    wide = (4 * width, 2 * width)
    return next((each for each in wide if is_mostly_used(extent, each)), width)


def lane_amount(extent: int, width: int, vectors: int, *, has_mask: bool) -> int:
    """Elements per iteration: as many whole vectors as divide the extent, the whole extent masked,
    or one padded vector.
    """
    for count in range(vectors, 0, -1):
        if extent % (count * width) == 0 and count & (count - 1) == 0:
            return count * width
    padded = -(-extent // width) * width
    if has_mask and width < extent <= vectors * width:
        return padded
    if has_mask and extent >= LONG * vectors * width:
        return vectors * width
    if extent >= width:
        half = width // 2
        if extent < 4 * width and half > 1 and extent % half == 0:
            return half
        return width
    power = power_below(extent)
    return (
        extent
        if extent == power
        else power
        if extent % power == 0
        else power * 2
        if power * 2 <= 2 * extent and extent > 2
        else 1
    )


# Limits of compile time.
# The most axes of a result along which row counts are tried.
_MOST_AXES = 3


def even_counts(extent: int, width: int) -> list[int]:
    """Vectors per iteration, up to some: as few of them in as many iterations as a row needs, so
    that the last one computes little again.
    """
    vectors, found = padded_to(extent, width) // width, list[int]()
    for most in (ROWS[0], ROWS[0] // 2):
        found.append(-(-vectors // -(-vectors // most)))
    return [count for count in dict.fromkeys(found) if count > 1]


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
