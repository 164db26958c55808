"""Kernels of several stages: a reduction leaves results in scratch for some rows, and others go on
with them.

Two products with a softmax between them are such a kernel. One range runs through all stages, the
rows; a block of them is unrolled everywhere, so that each stage has its own register tile, of those
rows by lanes of its own, and loads each operand that the rows do not move once for all of them.
That is packed once for all blocks.
"""

from __future__ import annotations

from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import (
    iterations_of,
    loads_of,
    nodes_of,
    reductions_of,
    stride_of,
    trips_of,
)
from tilegrad.ir.ranges import slice_loop
from tilegrad.ir.uop import UOp
from tilegrad.optimize.analysis.facts import (
    LIGHT,
    LONG,
    ROWS,
    is_known,
    padded_to,
    stores,
)
from tilegrad.optimize.generators.heuristic_tiles import Tiler
from tilegrad.optimize.generators.reuse import Reuse, find_reuses
from tilegrad.optimize.opts.opt import OptOps, Side
from tilegrad.optimize.opts.stage import name_of_side

__all__ = ["StageShaper"]


class StageShaper(Tiler):
    """Blocks of rows through all stages."""

    def shape_stages(self, reductions: list[UOp]) -> bool:
        """Shape a kernel of several stages; False where it is none, or where the reductions that do
        the work share no rows.
        """
        nests = self.nests()
        if not nests or not reductions or not self.target.has_vectors:
            return False
        before = self.ast
        if slice_loop(self.ast) is not None:
            self.hoist_slice_loop()
            nests, reductions = self.nests(), reductions_of(self.ast)
        steps = {reduction: iterations_of(reduction) for reduction in reductions}
        heavy = [
            reduction for reduction in reductions if steps[reduction] > max(steps.values()) * LIGHT
        ]
        closed = {loop for nest in nests for loop in nest.src[1:]}
        for row in reversed([loop for loop in self.around(nests) if loop not in closed]):
            tiles = [
                find_reuses(
                    self.ast, reduction, self.target, store=self.store_of(reduction), shared=row
                )
                for reduction in heavy
            ]
            if all(tiles):
                found = [best for best, *_ in tiles]
                light = [reduction for reduction in reductions if reduction not in heavy]
                self.block(row, found, [reduction.src[-1] for reduction in heavy], light)
                if steps[heavy[0]] >= self.target.timing.worth_threads:
                    self.pack_sides([reduction.src[-1] for reduction in heavy])
                return True
        self.ast = before
        return False

    def hoist_slice_loop(self) -> None:
        """Run the loop over slices outside of the rows: all rows pass over a slice before the next
        one, or as many as have room for their accumulators.
        """
        closed = {axis for nest in self.nests() for axis in nest.src[1:]}
        *outside, row = [axis for axis in self.around(self.nests()) if axis not in closed]
        slices = slice_loop(self.ast)
        gathered = 0
        for node in self.ast.toposort():
            if node.op is Ops.REDUCE and slices in node.src:
                own = node.ranges.difference((*outside, row))
                gathered += trips_of(own) * node.dtype.itemsize
        most = min(self.target.cache_bytes[1], self.target.scratch_bytes // 4) // max(gathered, 1)
        if row.vmax >= most and not self.tile_rows(row, most):
            return
        for loop in outside:
            self.move(OptOps.TILE, loop, 1)
        self.move(OptOps.TILE, slice_loop(self.ast), 1)

    def tile_rows(self, row: UOp, most: int) -> bool:
        """Tiles of up to `most` rows; the last tile may hold rows of padding."""
        extent = row.extent
        count = next((n for n in range(most, most // 2, -1) if extent.divisor % n == 0), 0)
        if count < ROWS[0]:
            tiles = -(-(row.vmax + 1) // most)
            count = min(padded_to(-(-(row.vmax + 1) // tiles), ROWS[0]), padded_to(most, ROWS[0]))
            if extent.op is not Ops.CONST:
                # How many rows of the last tile are padding is not known.
                count = min(count, LONG * ROWS[0])
            position = self.ast.arg.order.index(row.number)
            if not self.move(OptOps.PADTO, row, count):
                return False
            number = self.ast.arg.order[position]
            row = next(loop for loop in self.outputs() if loop.number == number)
        return self.move(OptOps.TILE, row, count)

    def nests(self) -> list[UOp]:
        """The nests that fill scratch for some loops, not for all of the kernel."""
        return [
            node
            for node in nodes_of(self.ast, Ops.END)
            if node.src[0].op is Ops.STORE
            and node.src[0].src[0].op is Ops.DEFINE_LOCAL
            and node.src[0].src[0].src
        ]

    def around(self, nests: list[UOp]) -> list[UOp]:
        """The loops around scratch memory, outermost first."""
        found = {loop for nest in nests for loop in nest.src[0].src[0].src}
        return [loop for loop in self.outputs() if loop in found]

    def store_of(self, reduction: UOp) -> UOp:
        """The store of the results of `reduction`: that of the nest in which it stands, or of the
        kernel.
        """
        inside = (nest.src[0] for nest in self.nests() if reduction.ranges & set(nest.src[1:]))
        return next(inside, stores(self.ast)[0])

    def reduction_over(self, loop: UOp) -> UOp:
        reductions = reductions_of(self.ast)
        return next(reduction for reduction in reductions if loop in reduction.src)

    def block(self, row: UOp, tiles: list[Reuse], loops: list[UOp], light: list[UOp]) -> None:
        """Unroll a block of `row` for all stages and lanes in each; `loops` has a range of each
        reduction with a tile, in the order of these.
        """
        vectors = 1
        for tile, loop in zip(tiles, loops, strict=True):
            reduction = self.reduction_over(loop)
            step = self.tile_size(tile.lanes, reduction)
            if self.split_to(tile.lanes, OptOps.UPCAST, step, is_shared=False):
                vectors = max(vectors, step // self.target.lanes_of(reduction.dtype))
        self.unroll_rows([row], self.most_rows(vectors))
        # Reductions side by side have a range in common.
        for loop in dict.fromkeys(reduction.src[-1] for reduction in light):
            self.lanes_of_reduction(self.reduction_over(loop))
        for number in range(len(self.nests())):
            self.lanes_of_store(self.nests()[number].src[0])
        self.lanes_of_store(stores(self.ast)[0])

    def lanes_of_reduction(self, reduction: UOp) -> None:
        """A vector of accumulators for each row."""
        loads = loads_of(reduction.src[0])
        for loop in reversed(reduction.src[1:]):
            if any(stride_of(load.index, loop) == 1 for load in loads):
                self.split_lanes(loop, OptOps.UNROLL, reduction)
                return

    def lanes_of_store(self, store: UOp) -> None:
        """A vector for each row along the stored axis, unless a tile has lanes there."""
        for loop in store.index.ranges:
            if loop.axis is Axis.LOOP and stride_of(store.index, loop) == 1:
                self.split_lanes(loop, OptOps.UPCAST, store.value)
                return

    def split_lanes(self, loop: UOp, op: OptOps, value: UOp) -> None:
        width = self.target.lanes_of(value.dtype)
        if is_known(loop) and loop.vmax + 1 >= width > 1:
            self.split_to(loop, op, width, is_shared=False)

    def pack_sides(self, axes: list[UOp]) -> None:
        """Copy the operands of the reductions over `axes`: those that the rows do not move, once
        for all of them; those that they move and that have to be computed, for a block of them.
        """
        lives_in = {axis for nest in self.nests() for axis in nest.src[0].src[0].src}
        unrolled = {axis for axis in lives_in if axis.axis is Axis.UPCAST}
        if not (blocks := self.around(self.nests())):
            # All rows are one block, for which nothing is packed anew.
            return
        *outside, row = blocks
        slices = slice_loop(self.ast)
        if slices is not None:
            outside.append(slices)
        sides = [(axis, side) for axis in axes for side in Side]
        for axis, name in sides:
            reduction = self.reduction_over(axis)
            if len(reduction.src[0].src) != 2:
                continue
            side = reduction.src[0].src[name.value]
            if not side.ranges & unrolled:
                around = [loop for loop in outside if loop in side.ranges]
                self.stage(name_of_side(self.ast, reduction, name), around[-1] if around else None)
            elif side.op is not Ops.LOAD or side.is_gated:
                self.stage(name_of_side(self.ast, reduction, name), row)
