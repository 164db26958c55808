"""Short filter windows along the rows of a register tile.

In `a[x + k] * w[k]` with k unrolled beside rows of x, each element of `a` is loaded once for all
positions of the filter window that read it. Where the rows are the whole axis, it is also known
which positions lie in the padding: no copy of the slice has to hold zeros for them, and they are
left out (lower.skip).
"""

from __future__ import annotations

from dataclasses import dataclass

from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.uop import UOp
from tilegrad.optimize.analysis.facts import operand
from tilegrad.optimize.generators.choice import CLEAR
from tilegrad.optimize.generators.reuse import Reuse
from tilegrad.optimize.opts.opt import loop_order
from tilegrad.optimize.opts.overlap import dimensions
from tilegrad.target import Target

__all__ = ["Beside", "FilterWindow", "find_beside", "find_filter_window"]


@dataclass(frozen=True)
class FilterWindow:
    """The loop that moves a filter window along the rows.

    Attributes:
        step: by how many elements a row moves the window.
    """

    loop: UOp
    step: int

    @property
    def count(self) -> int:
        return int(self.loop.vmax) + 1

    def has_room(self, vectors: int, rows: int, target: Target) -> bool:
        """Whether all elements of the window stay in registers, beside a tile and its other factor,
        and one is left.
        """
        elements = self.step * (rows - 1) + self.count
        return vectors * rows + elements + vectors < target.registers


@dataclass(frozen=True)
class Beside:
    """A tile that reads its slice of the operand where it lies."""

    vectors: int
    rows: int


def find_filter_window(ast: UOp, reuse: Reuse) -> FilterWindow | None:
    """The filter window that the rows of a tile read, if one short loop moves it."""
    if reuse.overlapping is None or len(reuse.rows) > 1:
        return None
    load, row = operand(ast, reuse.overlapping), reuse.rows[0]
    for each in dimensions(load, [axis for axis in loop_order(ast) if axis in load.ranges]):
        others = [axis for axis in each.times if axis is not row]
        if row not in each.times or len(others) != 1:
            continue
        (loop,) = others
        is_reduced = loop.axis is Axis.REDUCE
        if is_reduced and loop.extent.op is Ops.CONST and abs(each.times[loop]) == 1:
            return FilterWindow(loop, abs(each.times[row]))
    return None


def find_beside(
    ast: UOp, reuse: Reuse, filter_window: FilterWindow, vectors: int, target: Target
) -> Beside | None:
    """The tile that needs no copy of its slice: its rows are the whole axis, so that each gate is
    known; or a large chunk of it, where all gates but those of the first and last elements are, and
    no other lanes would read the copy.
    """
    assert reuse.overlapping is not None
    rows_extent = reuse.rows[0].extent
    if operand(ast, reuse.overlapping).op is not Ops.LOAD or rows_extent.op is not Ops.CONST:
        return None
    extent, most = rows_extent.arg, 0
    for count in range(min(vectors, 2), 0, -1):
        # As many rows as leave registers for the elements, if these lie side by side.
        most = (target.registers + 1 - filter_window.count - count) // (count + 1)
        if extent <= most:
            return Beside(count, extent) if count * extent >= target.busy_accumulators else None
    if reuse.lanes.vmax >= target.lanes_of(operand(ast, reuse.overlapping).dtype):
        return None
    # Not clearly fewer rows than there is room for.
    sizes = (rows for rows in range(most, int(most * CLEAR), -1) if extent % rows == 0)
    rows = next(sizes, 0)
    return Beside(1, rows) if rows >= target.busy_accumulators else None
