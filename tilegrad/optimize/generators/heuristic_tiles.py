"""Reductions that use data again: tiles of results in registers, operands packed in scratch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import loads_of, stride_of, trips_of
from tilegrad.ir.uop import UOp, prod
from tilegrad.optimize.analysis.facts import (
    COPIED,
    OFTEN,
    PER_VECTOR,
    ROWS,
    operand,
    packed_bytes,
    padded_to,
    parameters_of,
    stores,
)
from tilegrad.optimize.generators.contraction_tile import ContractionTile
from tilegrad.optimize.generators.filter_window import find_beside, find_filter_window
from tilegrad.optimize.generators.reuse import Reuse
from tilegrad.optimize.generators.shaper import Shaper
from tilegrad.optimize.opts.opt import OptOps, StageOperand, axes_of, loop_order
from tilegrad.optimize.opts.overlap import dimensions

__all__ = ["Tiler"]

# Vectors of a wide tile.
_WIDE = max(PER_VECTOR)
# Tuning, worth shown by `bench/corpus.py`, families products and convolutions. Penalties of a tile:
# per row below the best number, a share; for rows that are computed twice or not needed, a factor
# (products, 512x8192x512: 4 against 6 rows).
_FEWER, _PADDED = 0.035, 1.05
# The share of the second cache that a panel may take.
_PANEL = 5 / 8


class Tiler(Shaper):
    """Register tiles and copies of operands."""

    def tile(self, reuse: Reuse, reduction: UOp, rows: int | None = None) -> None:
        """A register tile: some vectors of one axis by some rows of the other. With `rows`, one
        vector by at most that number of rows.
        """
        before = self.ast
        if not self.tile_as(reuse, reduction, rows):
            # Without the copy that it was cut for, the last vector overlaps: in a tile that is
            # cut short every load would have a mask, in all iterations.
            self.ast = before
            self.tile_as(reuse, reduction, rows, is_read=True)

    def tile_as(
        self, reuse: Reuse, reduction: UOp, rows: int | None, *, is_read: bool = False
    ) -> bool:
        """Such a tile, whose operands are read where they lie if `is_read`. False where it was cut
        for a copy that was not made.
        """
        width = self.target.lanes_of(reduction.dtype)
        step = self.lane_step(reuse, reduction, is_one_vector=rows is not None)
        is_large = self.is_large()
        is_unrolled = is_large and not self.is_short
        filter_window = find_filter_window(self.ast, reuse) if is_unrolled else None
        count, overlapping = max(step // width, 1), reuse.overlapping
        beside = filter_window and find_beside(self.ast, reuse, filter_window, count, self.target)
        if beside:
            step, reuse = min(step, beside.vectors * width), replace(reuse, overlapping=None)
        is_strided = self.is_strided(reuse)
        is_branched = self.is_branched(reuse)
        is_far = is_strided or not self.is_near(reuse, reduction, step)
        # Operands that the rows move stay cached while each group of lanes passes over them.
        is_again = reuse.overlapping is None and self.nbytes_at_once(reduction, reuse.lanes) <= (
            self.target.cache_bytes[1] // 2
        )
        depth = trips_of(reduction.src[1:])
        is_copied = reuse.overlapping is not None or (reuse.stages is not None and is_far)
        is_copied &= not is_read and (is_large or is_strided)
        # Operands that lanes move are copied; those that rows move are read from their memory,
        # where each gate would be a branch. A tiled reduction adds to memory, which must not happen
        # twice.
        panel = depth * step * reduction.dtype.itemsize
        is_whole = panel <= self.panel_limit() and not reuse.cuts
        overlaps = not is_copied or is_whole
        # A copy of whole vectors has no masks. Storing results of few terms twice takes longer.
        overlaps_lanes = not is_copied or (is_whole and depth >= COPIED)
        # All vectors of a short row are in the tile; a copy of them would have to be cut likewise.
        is_row = not is_copied and width < reuse.lanes.vmax + 1 < step
        if not (is_row and self.unroll_row(reuse.lanes, width)) and not self.upcast_to(
            reuse.lanes, step, overlaps=overlaps_lanes
        ):
            return True
        vectors = max(step // width, 1)
        if beside and self.move(OptOps.UPCAST, reuse.rows[0], beside.rows):
            unrolled = beside.rows
        else:
            is_gated = not overlaps and reuse.overlapping is None
            padded = _PADDED if not is_gated else self.gated_rows(vectors)
            most = self.most_rows(vectors) if rows is None else rows
            unrolled = self.unroll_rows(reuse.rows, most, padded=padded, overlaps=overlaps)
        least = self.least_uses(reuse, is_apart=is_strided or is_branched)
        if rows is None and unrolled * vectors < self.target.busy_accumulators:
            is_packed = is_copied and is_far and self.reused(reuse) >= least
            self.unroll_beside(unrolled * vectors, reuse.stages if is_packed else None)
        if reuse.padding is not None:
            self.put_innermost(reuse.padding.inner)
        if not is_large and not is_strided:
            return True
        for loop, inside in reuse.cuts:
            if self.move(OptOps.TILE, loop, inside) and loop.axis is Axis.REDUCE:
                depth = depth * inside // loop.extent.arg
        if reuse.stages is not None and is_far:
            panel = depth * step * reduction.dtype.itemsize
            self.pack(reuse.stages, panel, least, is_whole=not is_again)
        if reuse.overlapping is not None and is_large:
            self.stage_slice(reuse.overlapping, is_whole=len(reuse.rows) > 1)
        elif beside and overlapping is not None:
            self.loop_over_slice(overlapping)
        if filter_window and (beside or filter_window.has_room(vectors, unrolled, self.target)):
            # After copies, whose lanes it would separate.
            self.move(OptOps.UNROLL, filter_window.loop, 0)
        moves = {opt.op for opt in self.ast.arg.opts}
        is_cut_short = OptOps.PADTO in moves and OptOps.STAGE not in moves
        return not (is_copied and is_cut_short and not reuse.cuts)

    def lane_step(self, reuse: Reuse, reduction: UOp, *, is_one_vector: bool) -> int:
        """How much of the lanes' axis the tile takes; of several vectors the best number."""
        width = self.target.lanes_of(reduction.dtype)
        counts = (_WIDE, 2, 3, 1) if self.is_wide(reuse, reduction) else (2, 3, 1)
        step = self.tile_size(reuse.lanes, reduction, (1,) if is_one_vector else counts)
        if step == reuse.lanes.vmax + 1 == 2 * width and self.reused(reuse) < OFTEN:
            # A vector for each of two threads, as any other loop would pack the lanes again.
            return width
        return step

    def put_innermost(self, loop: UOp) -> None:
        """Make `loop` the innermost reduce loop."""
        loops = [axis for axis in loop_order(self.ast) if axis.axis is Axis.REDUCE]
        for there in loops[loops.index(loop) + 1 :]:
            self.move(OptOps.SWAP, loop, axes_of(self.ast).index(there))

    def tile_contraction(self, tile: ContractionTile) -> None:
        """A register tile whose lanes lie along the contraction axis."""
        if self.split_to(tile.lanes, OptOps.UNROLL, tile.width, is_shared=False):
            for loop, count in tile.rows:
                if count > 1:
                    self.upcast_to(loop, count, overlaps=True)

    def is_strided(self, reuse: Reuse) -> bool:
        """Whether the operand that the lanes move lies apart along them: an element of it that is
        not packed is loaded by itself, for each use.
        """
        if reuse.stages is None:
            return False
        loads = loads_of(operand(self.ast, reuse.stages))
        return any(stride_of(load.index, reuse.lanes) not in (0, 1) for load in loads)

    def is_branched(self, reuse: Reuse) -> bool:
        """Whether elements of the operand that the lanes move are loaded one by one, as gates
        differ between lanes and the target has no masks.
        """
        if reuse.stages is None or self.target.has_mask:
            return False
        loads = loads_of(operand(self.ast, reuse.stages))
        return any(load.is_gated and reuse.lanes in load.gate.ranges for load in loads)

    def is_wide(self, reuse: Reuse, reduction: UOp) -> bool:
        """Whether four vectors by six rows are better than two by eight: an iteration of the
        reduction loads less, and results are stored in longer runs. There must be many of both
        axes, and the operand that the lanes move must be copied by whole vectors, or beforehand.
        """
        if reuse.stages is None or reuse.overlapping is not None or len(reuse.rows) > 1:
            return False
        step = _WIDE * self.target.lanes_of(reduction.dtype)
        lanes, rows = reuse.lanes.vmax + 1, reuse.rows[0].vmax + 1
        is_given = self.given.issuperset(parameters_of(operand(self.ast, reuse.stages)))
        return (
            self.target.has_mask
            and self.target.accumulators >= _WIDE * _WIDE
            and lanes >= step * max(self.target.threads, 1)
            and rows >= _WIDE * _WIDE
            and all(stride_of(store.index, reuse.lanes) == 1 for store in stores(self.ast))
            and (is_given or not self.is_strided(reuse))
            and not self.is_near(reuse, reduction, step)
        )

    def is_near(self, reuse: Reuse, reduction: UOp, step: int) -> bool:
        """Whether vectors along the lanes are loaded as well from where they lie as from a copy:
        all that the reduce reads, but for loops that take it to other memory, fits half the second
        cache, and where the last vector is cut short, there are two to a row: loads are few.
        """
        if reuse.overlapping is not None or not isinstance(reuse.stages, int):
            return False
        width, extent = self.target.lanes_of(reduction.dtype), reuse.lanes.vmax + 1
        is_gated = len(operand(self.ast, reuse.stages).src) > 2
        if is_gated or (extent % step and step < 2 * width):
            return False
        return self.nbytes_at_once(reduction) <= self.target.cache_bytes[1] // 2

    def nbytes_at_once(self, reduction: UOp, lanes: UOp | None = None) -> int:
        """Bytes that the reduction reads per iteration of the loops that move all of its loads;
        with `lanes`, of the loads that it does not move.
        """
        loads = loads_of(reduction)
        apart = [loop for loop in self.outputs() if all(loop in load.ranges for load in loads)]
        return sum(packed_bytes(load, apart) for load in loads if lanes not in load.ranges)

    def tile_size(self, lanes: UOp, reduction: UOp, counts: Sequence[int] = (2, 1)) -> int:
        """How much of `lanes` a register tile takes: as many vectors as cost least for the whole
        axis, of `counts` the first of equals; less than a vector where that holds all.
        """
        width, extent = self.target.lanes_of(reduction.dtype), int(lanes.vmax + 1)
        if self.target.has_mask:
            if extent <= width:
                return max(1 << (extent - 1).bit_length(), 4)
            costs = {
                count: padded_to(extent, count * width) * PER_VECTOR[count] for count in counts
            }
            return width * min(counts, key=costs.__getitem__)
        step = 2 * width if padded_to(extent, 2 * width) <= 1.15 * extent else width
        while step > 4 and padded_to(extent, step) > 1.34 * extent:
            step //= 2
        return step

    def gated_rows(self, vectors: int) -> float:
        """The price of rows whose elements are loaded behind branches, each for `vectors`
        multiply-adds: how much longer it takes for all of them to start.
        """
        timing = self.target.timing
        return 1 + timing.branch / timing.width * timing.ports / vectors

    def most_rows(self, vectors: int) -> int:
        """The most rows of `vectors` each for which there are accumulators."""
        return max(self.target.accumulators // vectors, 1)

    def unroll_rows(
        self,
        loops: list[UOp],
        most: int,
        *,
        padded: float = _PADDED,
        is_shared: bool = True,
        overlaps: bool = False,
    ) -> int:
        """Unroll at most `most` rows; `padded` is the price of a remainder."""
        unrolled = 1
        for loop in loops:
            rows = _best_rows(loop.vmax + 1, most // unrolled, padded)
            if rows > 1 and self.upcast_to(loop, rows, is_shared=is_shared, overlaps=overlaps):
                unrolled *= rows
        return unrolled

    def least_uses(self, reuse: Reuse, *, is_apart: bool) -> int:
        """How often a copy of the operand that the lanes move must be used: several short axes of
        rows are all there is to reuse it for; and where its elements are loaded one by one, a
        copy does that once.
        """
        if reuse.stages is None or len(reuse.rows) > 1 or is_apart:
            return 1
        is_given = self.given.issuperset(parameters_of(operand(self.ast, reuse.stages)))
        return 1 if is_given else 4

    def unroll_beside(self, vectors: int, stages: StageOperand | None) -> None:
        """Unroll some of another axis, whether or not its iterations share what they read, where a
        tile has fewer vectors than the reduction needs to hide its latency; the axes of a packed
        operand stay, as unrolling would separate its lanes.
        """
        most = self.target.accumulators // vectors
        packed = operand(self.ast, stages).ranges if stages is not None else ()
        for loop in reversed([axis for axis in self.outputs() if axis not in packed]):
            extent = loop.extent.divisor
            count = next((n for n in range(min(most, extent), 1, -1) if extent % n == 0), 1)
            if count > 1 and self.move(OptOps.UPCAST, loop, count):
                return

    def panel_limit(self) -> int:
        return int(self.target.cache_bytes[1] * _PANEL)

    def packed_bytes(self, name: StageOperand) -> int:
        """The size of a copy of an operand as a whole."""
        return packed_bytes(operand(self.ast, name), [])

    def reused(self, reuse: Reuse) -> int:
        """How often each element that the lanes move is used."""
        if reuse.stages is None:
            return OFTEN
        moved = operand(self.ast, reuse.stages).ranges
        return trips_of(loop for loop in self.outputs() if loop not in moved)

    def pack(self, name: StageOperand, panel: int, least: int, *, is_whole: bool) -> None:
        """Copy the operand that the lanes move to scratch, once per group of lanes, so that all
        rows pass over it there, if it is used `least` times; a panel too large for the caches is
        tiled along the reduce axis. A small operand is copied as a whole if `is_whole`: all rows
        then pass once.
        """
        limit = self.panel_limit()
        moved = operand(self.ast, name).ranges
        outputs = self.outputs()
        reused = trips_of(loop for loop in outputs if loop not in moved)
        if reused < least:
            return
        before, outer = self.ast, None
        if panel > limit:
            outer = self.tile_reduction(moved, panel, limit)
            if outer is None:
                return
        loops = [loop for loop in outputs if loop in moved]
        load = operand(self.ast, name)
        if is_whole and outer is None and packed_bytes(load, []) <= limit // 2:
            loops = []
        elif packed_bytes(load, loops[:1]) <= limit:
            loops = loops[:1]
        if loops:
            self.put_first(loops)
            outer = self.group_panels(loops, panel, limit) if is_whole else loops[-1]
        if not self.stage(name, outer):
            self.ast = before

    def group_panels(self, loops: list[UOp], panel: int, limit: int) -> UOp:
        """Tile the last of `loops`, which move panels, so that as many panels as the second cache
        holds are copied at a time: rows too many for it then come from beyond once for all of them.
        Chunks for threads must be left. The loop inside which the panels are copied.
        """
        *around, loop = loops
        extent = loop.extent
        if extent.op is not Ops.CONST:
            return loop
        least = self.chunks() / prod(axis.vmax + 1 for axis in around)
        most = min(
            limit // panel, int(extent.arg / least), extent.arg if around else extent.arg - 1
        )
        count = next((count for count in range(most, 1, -1) if extent.arg % count == 0), 1)
        before = self.outputs()
        if count == extent.arg > 1:
            # All panels at a time: the loop is its only tile.
            outer, inner = around[-1], loop
        elif count > 1 and self.move(OptOps.TILE, loop, count):
            outer, inner = (each for each in self.outputs() if each not in before)
        else:
            return loop
        for there in self.outputs()[self.outputs().index(inner) + 1 :]:
            self.move(OptOps.SWAP, inner, axes_of(self.ast).index(there))
        return next(reversed(around), outer)

    def stage_slice(self, name: StageOperand, *, is_whole: bool = False) -> None:
        """Copy the slice of a padded operand that some output elements need to scratch, where no
        gate is left and neighbours that share elements find them once. With `is_whole`, an operand
        that fits is copied as a whole: results are then made in their order in memory.
        """
        before = self.ast
        if not self.stage(name, self.put_slice_outside(name, is_whole=is_whole)):
            self.ast = before

    def loop_over_slice(self, name: StageOperand) -> None:
        """Run all loops that use a slice of a padded operand over it while the second cache holds
        it.
        """
        load, staged = operand(self.ast, name), self.staged()
        again = [loop for loop in self.outputs() if loop not in load.ranges and loop not in staged]
        if again:
            self.put_slice_outside(name)

    def put_slice_outside(self, name: StageOperand, *, is_whole: bool = False) -> UOp | None:
        """Put the loops that do not move a padded operand inside, so that all of them use a slice
        of it that fits the cache; its rest outside is as short as that allows. The innermost of the
        loops outside.
        """
        limit = self.target.cache_bytes[1] // 2
        load = operand(self.ast, name)
        own = [axis for axis in self.outputs() if axis in load.ranges]
        # A tiled reduce loop runs around the outputs.
        around = [
            axis
            for axis in itertools.takewhile(
                lambda axis: axis.axis is not Axis.LOOP, loop_order(self.ast)
            )
            if axis in load.ranges
        ]
        shared = {
            axis
            for each in dimensions(
                load, [axis for axis in loop_order(self.ast) if axis in load.ranges]
            )
            if each.is_overlapping
            for axis in each.times
        }
        outside = [axis for axis in own if axis not in shared]
        if is_whole and not around and packed_bytes(load, []) <= limit:
            outside = []
        for loop in (axis for axis in own if axis in shared):
            extent = loop.vmax + 1
            if packed_bytes(load, [*around, *outside]) <= limit:
                break
            # Several rows at a time, as the copy then holds their common elements once.
            fits = (
                count
                for count in range(extent - 1, 1, -1)
                if extent % count == 0 and packed_bytes(load, outside, (loop, count)) <= limit
            )
            count = next(fits, None)
            if count is not None and self.move(OptOps.TILE, loop, count):
                load = operand(self.ast, name)
                own = [axis for axis in self.outputs() if axis in load.ranges]
                outside = [own[0], *(axis for axis in own if axis in outside)]
                break
            outside.append(loop)
        first = [
            axis for axis in self.outputs() if axis not in load.ranges and axis in self.staged()
        ]
        self.put_first([*first, *outside])
        return next(reversed([*around, *outside]), None)

    def tile_reduction(self, moved: frozenset[UOp], panel: int, limit: int) -> UOp | None:
        """Tile a reduce loop so that the panel fits; its outer loop, which becomes the outermost
        one, or None.
        """
        for loop in loop_order(self.ast):
            extent = loop.extent
            if loop.axis is not Axis.REDUCE or loop not in moved or extent.op is not Ops.CONST:
                continue
            sizes = range(extent.arg - 1, 0, -1)
            fits = [n for n in sizes if extent.arg % n == 0 and panel * n // extent.arg <= limit]
            if fits and self.move(OptOps.TILE, loop, fits[0]):
                return loop_order(self.ast)[0]
        return None


def _best_rows(extent: int, most: int, padded: float) -> int:
    """Rows of a register tile: a divisor if there is a good one, else the number with the least
    padding; the fewer, the more often the lanes are loaded.
    """
    if extent <= most:
        return extent
    costs = {
        rows: padded_to(extent, rows)
        * (1 + _FEWER * max(ROWS[0] - rows, 0))
        * (padded if extent % rows else 1)
        for rows in ROWS
        if rows <= most
    }
    return min(costs, key=costs.__getitem__, default=1)
