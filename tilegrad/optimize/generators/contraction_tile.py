"""Register tiles whose vectors lie along the contraction axis, as in `x @ w.T` of few rows: both
operands are contiguous along it, so vectors of some rows of one are multiplied with vectors of some
rows of the other as they are loaded, nothing is packed, and the lanes are summed at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import stride_of
from tilegrad.ir.uop import UOp
from tilegrad.optimize.analysis.facts import FEW_ROWS, ROWS, padded_to
from tilegrad.optimize.opts.opt import loop_order
from tilegrad.target import Target

__all__ = ["ContractionTile", "find_contraction_tile"]


@dataclass(frozen=True)
class ContractionTile:
    """A tile: the reduce loop that gives the lanes, their number, and the rows from each output
    loop.
    """

    lanes: UOp
    width: int
    rows: tuple[tuple[UOp, int], tuple[UOp, int]]


def find_contraction_tile(ast: UOp, reduction: UOp, target: Target) -> ContractionTile | None:
    """A tile along the contraction axis, if the reduction has one."""
    width = target.lanes_of(reduction.dtype)
    sides = [node for node in reduction.src[0].src if node.op is Ops.LOAD and not node.is_gated]
    if (
        width < 2
        or not reduction.src[0].op.is_alu
        or len(sides) != 2
        or len(reduction.src[0].src) != 2
    ):
        return None
    if any(side.dtype is not reduction.dtype for side in sides):
        return None
    lanes = next(
        (
            axis
            for axis in reduction.src[1:]
            if all(stride_of(side.index, axis) == 1 for side in sides)
            and axis.extent.op is Ops.CONST
            and axis.extent.arg >= width
        ),
        None,
    )
    outputs = [
        axis
        for axis in loop_order(ast)
        if axis.axis is Axis.LOOP and axis in reduction.ranges and axis.extent.op is Ops.CONST
    ]
    owned = [
        [axis for axis in outputs if axis in side.ranges and axis not in other.ranges]
        for side, other in (sides, sides[::-1])
    ]
    if lanes is None or not all(owned):
        return None
    few, many = sorted(
        (max(axes, key=lambda axis: axis.extent.arg) for axes in owned),
        key=lambda axis: axis.extent.arg,
    )
    rows = _some(few.src[0].arg, [count for count in ROWS if count <= ROWS[0]])
    most = min(target.accumulators // rows, FEW_ROWS)
    beside = _some(many.src[0].arg, range(most, 1, -1))
    return ContractionTile(lanes, width, ((few, rows), (many, beside)))


def _some(extent: int, counts: Sequence[int]) -> int:
    """The first of `counts` that pads least."""
    fitting = [count for count in counts if count <= extent]
    if not fitting:
        return extent
    return min(fitting, key=lambda count: padded_to(extent, count))
