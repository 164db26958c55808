"""A good list of Opts for a target with blocks of lanes, from static facts.

matrix units    where the target has one for the kernel's products, and nothing else then
slices          rows between two products, as attention's scores, go through a block slice by slice
group           lanes share a reduction with few results, or whose data only they read in a row
stage           a product's operands pass through shared memory (heuristic_products)
tile            a register tile of outputs, where a reduction reads each element for several of them
unroll          short reductions lose their loop
transposes      a lane loads vectors along one axis and stores them along another
vectors         elementwise work moves 16 bytes at a time
lanes           neighbouring outputs become neighbouring lanes
"""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.base.config import config
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import moved_loads, next_number, stride_of, trips_of
from tilegrad.ir.uop import UOp
from tilegrad.optimize.analysis.facts import power_below
from tilegrad.optimize.generators.heuristic_rows import (
    FEW_RESULTS,
    LITTLE,
    SHORT,
    WORTH_TILING,
    divisor,
    groups_for,
    share_reductions,
    share_scan,
)
from tilegrad.optimize.generators.heuristic_slices import SliceShaper
from tilegrad.optimize.generators.heuristic_transposes import share_transpose, vectors_join
from tilegrad.optimize.generators.heuristic_units import UnitShaper
from tilegrad.optimize.opts.opt import Opt, OptOps, axes_of
from tilegrad.target import Target

__all__ = ["heuristic"]

# Lanes of a block, and those of them along the contiguous axis of a register tile.
_BLOCK, _TILE_LANES = 256, 16


def heuristic(ast: UOp, target: Target) -> list[Opt]:
    """The Opts for a kernel on a target with blocks."""
    shaper = _SimtShaper(ast, target)
    shaper.run()
    return list(shaper.ast.arg.opts)


class _SimtShaper(UnitShaper, SliceShaper):
    """Applies Opts one by one; a move that is refused is left out."""

    def run(self) -> None:
        self.pad_symbolic()
        if self.share_slices():
            return
        reductions = self.reductions()
        if len(reductions) == 1 and self.stage_merged(reductions[0]):
            return
        if len(reductions) == 1 and config.TC and self.use_matrix_unit():
            return
        if not reductions:
            if share_transpose(self):
                return
            if not share_scan(self):
                self.use_vectors()
        elif self.has_many_results(reductions) and self.stage_product(reductions[0]):
            return
        elif not share_reductions(self, reductions, self.use_lanes):
            if len(reductions) == 1:
                if self.stage_product(reductions[0]):
                    return
                self.tile(reductions[0])
                if self.share_depth():
                    return
            self.unroll()
        self.use_lanes()

    def has_many_results(self, reductions: Sequence[UOp]) -> bool:
        """Whether there is one reduction, whose operands a cache would give once for each result
        more slowly than tiles wait for memory.
        """
        results = trips_of(self.grid())
        return len(reductions) == 1 and results > 2 * FEW_RESULTS

    def share_depth(self) -> bool:
        """Groups of lanes share the sum of a register tile, where its results alone leave most of
        the device without lanes; False where they do not.
        """
        (reduction,) = self.reductions()
        loops = [axis for axis in reduction.src[1:] if axis.axis is Axis.REDUCE]
        is_tiled = any(axis.axis is Axis.UPCAST for axis in axes_of(self.ast))
        lanes = trips_of(self.grid())
        if not is_tiled or not loops or lanes >= self.target.busy_blocks * self.target.warp_lanes:
            return False
        depth = max(loops, key=lambda axis: axis.vmax)
        before = self.ast
        amount = groups_for(depth) if depth.extent.op is Ops.CONST else 0
        if not amount or depth.vmax < SHORT * amount - 1:
            return False
        self.use_lanes(self.target.warp_lanes)
        number = next_number(self.ast.toposort())
        if not self.apply(OptOps.GROUPTOP, depth, amount):
            self.ast = before
            return False
        left = self.axis_numbered(number)
        if left is not None and (step := divisor(left, (4, 2))):
            self.move(OptOps.UNROLL, left, step)
        return True

    def pad_symbolic(self) -> None:
        """Lanes need extents that are numbers: the largest, with a gate. A reduction takes them too
        where lanes will share it.
        """
        results = trips_of(loop for loop in axes_of(self.ast) if loop.axis is Axis.GLOBAL)
        for loop in axes_of(self.ast):
            is_shared = loop.axis is Axis.REDUCE and results <= FEW_RESULTS
            if loop.extent.op is not Ops.CONST and loop.vmax >= 2 * self.target.warp_lanes:
                if loop.axis is Axis.GLOBAL or is_shared:
                    self.apply(OptOps.PADTO, loop, self.target.warp_lanes)

    # reductions

    def stage_merged(self, reduction: UOp) -> bool:
        """A product of staged operands, with output axes joined; False where none can be."""
        before = self.ast
        reduction = self.merge_outputs(reduction)
        if self.ast is not before:
            if (config.TC and self.stage_units()) or self.stage_product(reduction):
                return True
            self.ast = before
        return False

    def tile(self, reduction: UOp) -> None:
        """A register tile of two axes: along each, only some of the reduction's loads move."""
        loads = moved_loads(reduction)
        if trips_of(self.grid()) < WORTH_TILING or len(loads) < 2:
            return
        index = self.store().src[1]
        axes = [axis for axis in self.grid() if axis.extent.arg >= 4 and axis in reduction.ranges]
        axes.sort(key=lambda axis: (stride_of(index, axis) != 1, -axis.extent.arg))
        for lanes in axes:
            still = [load for load in loads if lanes not in load.ranges]
            rows = [
                axis
                for axis in axes
                if axis is not lanes
                and any(axis in load.ranges for load in still)
                and any(axis not in load.ranges for load in loads)
            ]
            if still and rows:
                self.upcast(lanes)
                self.upcast(rows[0])
                return

    def upcast(self, loop: UOp) -> None:
        """A side of a register tile. Where lanes share no memory they are those of a processor's
        vectors: each loads its operands by itself, one lane after the other, so that a load costs
        more than the spills of a larger tile.
        """
        extent = loop.extent.arg
        vector = self.target.memory_lanes
        long = (4,) if self.target.shared_bytes else (2 * vector, vector)
        amount = (
            divisor(loop, (*long, 3, 5, 2))
            if extent < 2 * self.target.warp_lanes
            else divisor(loop, long)
        )
        if not amount and extent >= 2 * self.target.warp_lanes:
            loop = self.move(OptOps.PADTO, loop, self.target.warp_lanes) or loop
            amount = divisor(loop, long)
        if amount:
            self.move(OptOps.UPCAST, loop, amount)

    def unroll(self) -> None:
        """Short reductions, and the ends of long ones, are unrolled. Where lanes share no memory a
        load costs most (`upcast`): there the shortest loops are, wherever they stand, as positions
        of a filter window load the same elements.
        """
        for reduction in self.reductions():
            loops = [axis for axis in reduction.src[1:] if axis.axis is Axis.REDUCE]
            inner = loops[::-1]
            if not self.target.shared_bytes:
                inner.sort(key=lambda axis: axis.vmax)
            unrolled = 1
            for loop in inner:
                extent = loop.extent
                if extent.op is not Ops.CONST or unrolled * extent.arg > SHORT:
                    break
                self.move(OptOps.UNROLL, loop, 0)
                unrolled *= extent.arg
            if unrolled == 1 and loops and loops[-1].extent.op is Ops.CONST:
                if step := divisor(loops[-1], (4, 2)):
                    self.move(OptOps.UNROLL, loops[-1], step)

    # elementwise work

    def use_vectors(self) -> None:
        """Unrolled neighbours where most accesses join to vectors."""
        accesses = [node for node in self.ast.toposort() if node.op in (Ops.LOAD, Ops.STORE)]
        best: tuple[int, UOp, int] | None = None
        for loop in self.grid():
            amount = divisor(loop, (self.target.memory_lanes, 2))
            if not amount:
                continue
            score = sum(_gain(access, loop, amount) for access in accesses)
            if score > 0 and (best is None or score > best[0]):
                best = score, loop, amount
        if best is not None:
            self.move(OptOps.UPCAST, best[1], best[2])

    # lanes

    def use_lanes(self, most: int = _BLOCK) -> None:
        """Lanes of a block from the grid's axes, the contiguous one first."""
        index = self.store().src[1]
        axes = sorted(
            self.grid(), key=lambda axis: (stride_of(index, axis) or 1 << 30, -axis.extent.arg)
        )
        taken = [axis for axis in axes_of(self.ast) if axis.axis in (Axis.LOCAL, Axis.GROUP)]
        lanes = trips_of(taken)
        is_tiled = any(axis.axis is Axis.UPCAST for axis in axes_of(self.ast)) and self.reductions()
        warp = self.target.warp_lanes
        for number, loop in enumerate(axes):
            room = max(most // lanes, 1)
            if number == 0:
                room = min(room, _TILE_LANES if is_tiled else _first_lanes(axes, warp))
            elif lanes >= warp and not is_tiled:
                break
            elif not is_tiled:
                room = min(room, max(4 * warp // lanes, 1))
            loop, amount = self.padded(loop, _lanes_of(loop.extent.arg, room, warp), room)
            if amount > 1:
                self.move(OptOps.LOCAL, loop, amount)
                lanes *= amount

    def padded(self, loop: UOp, amount: int, room: int) -> tuple[UOp, int]:
        """`loop`, padded where its divisor `amount` would leave most of `room` empty."""
        extent, size = loop.extent.arg, power_below(room)
        while size >= 2 * amount:
            if -(-extent // size) * size <= LITTLE * extent:
                found = self.move(OptOps.PADTO, loop, size)
                return (loop, amount) if found is None else (found, size)
            size //= 2
        return loop, amount


def _gain(access: UOp, loop: UOp, amount: int) -> int:
    """Gain of an access from unrolling `amount` steps of `loop`: 1 if they join to a vector, -1 if
    they are separate accesses.
    """
    step = stride_of(access.index, loop)
    if loop not in access.ranges or step == 0:
        return 0
    return 1 if step == 1 and vectors_join(access, loop, amount) else -1


def _lanes_of(extent: int, most: int, warp: int) -> int:
    """The divisor of `extent` up to `most` that fills warps best, the largest of equals."""
    divisors = [lanes for lanes in range(1, min(extent, most) + 1) if extent % lanes == 0]

    def filled(lanes: int) -> float:
        return lanes / (-(-lanes // warp) * warp)

    return max(divisors, key=lambda lanes: (filled(lanes) > 0.9, min(lanes, warp), lanes))


def _first_lanes(axes: Sequence[UOp], warp: int) -> int:
    """How many lanes the contiguous axis may have: a warp, more where there are blocks enough."""
    work = trips_of(axes)
    return _BLOCK if work >= _BLOCK * 512 else warp
