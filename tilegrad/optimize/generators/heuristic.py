"""A good list of Opts without measuring, from static facts of the target.

Targets with blocks have a list of their own (heuristic_simt). For a processor with vectors, one
question decides: which data is used again? Where a reduction reads two operands, and one output
axis moves only the first while another moves only the second, a tile of both axes in registers
reads each element once for many uses. Elsewhere memory is the limit, so neighbours in memory should
be neighbours in a vector.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import iterations_of, loads_of, moved_loads, reductions_of, stride_of
from tilegrad.ir.uop import UOp, prod
from tilegrad.ir.vector_lanes import lane_axes
from tilegrad.optimize.analysis.facts import ROWS, UNROLLED, heaviest, stores
from tilegrad.optimize.generators.choice import CLEAR, choose
from tilegrad.optimize.generators.contraction_tile import find_contraction_tile
from tilegrad.optimize.generators.heuristic_dots import use_dots
from tilegrad.optimize.generators.heuristic_simt import heuristic as heuristic_simt
from tilegrad.optimize.generators.heuristic_stages import StageShaper
from tilegrad.optimize.generators.heuristic_streams import Streamer
from tilegrad.optimize.generators.latency_hiding import hide_waits
from tilegrad.optimize.generators.reuse import Reuse, find_reuses
from tilegrad.optimize.opts.opt import Opt, OptOps, loop_order
from tilegrad.optimize.opts.opts import apply_opts
from tilegrad.target import Target

__all__ = ["heuristic", "shape", "short_shape"]


def heuristic(ast: UOp, target: Target, given: Collection[int] = ()) -> list[Opt]:
    """The Opts for a kernel on `target`. Copies of the parameters `given` cost nothing: they will
    be made beforehand (optimize.generators.prepack).
    """
    return list(shape(ast, target, given).arg.opts)


def shape(ast: UOp, target: Target, given: Collection[int] = ()) -> UOp:
    """A kernel after the Opts of `heuristic`, which have been applied to find them."""
    if target.has_locals:
        return apply_opts(ast, heuristic_simt(ast, target), target)
    shaper = _Heuristic(ast, target, given)
    shaper.run()
    return shaper.ast


def short_shape(ast: UOp, target: Target) -> tuple[UOp, bool]:
    """A kernel in a shape that is hardly slower than that of `shape`, and much sooner compiled, and
    whether the two differ.

    Results are rounded alike: the tile has fewer vectors, and no loop of the sum is unrolled.
    """
    if target.has_locals:
        return shape(ast, target), False
    shaper = _Heuristic(ast, target, is_short=True)
    shaper.run()
    return shaper.ast, shaper.was_shortened


class _Heuristic(Streamer, StageShaper):
    """Tiles where a reduction uses data again, else vectors along memory; then threads."""

    def run(self) -> None:
        reductions = reductions_of(self.ast)
        if self.shape_stages(reductions):
            self.thread()
            return
        heavy = heaviest(reductions)
        reuses = find_reuses(self.ast, heavy, self.target, self.given) if heavy is not None else []
        if reuses and heavy is not None:
            self.reuse(reuses, heavy)
        else:
            self.stream(reductions)
        hide_waits(self)
        if not reuses:
            self.unroll_sliding()
        self.thread()

    def thread(self) -> None:
        """Chunks for threads. Each chunk makes every copy that its loop does not move: where that
        is much of the work, other loops are tried, and chunks must be clearly better than none.
        """
        moves = self.thread_moves()
        if not moves or moves[0][0] < 1 - CLEAR:
            super().thread()
            return
        cut = [partial(self.move, OptOps.THREAD, loop, chunks) for _, loop, chunks in moves]
        if self.is_short and len(cut) > 1:
            # The others are hardly ever better by as much as it takes to try them.
            cut, self.was_shortened = cut[:1], True
        choose(self, [lambda: None, partial(choose, self, cut)])

    def reuse(self, reuses: list[Reuse], heavy: UOp) -> None:
        """The tile of a reduction that uses data again: its lanes are those of an output, or of the
        contraction axis.
        """
        if use_dots(self, reuses[0].lanes, reuses[0].rows, heavy):
            return
        # One that promises a third of the first is not worth the estimate.
        worthy = [each for each in reuses if 3 * each.worth >= reuses[0].worth]
        # To leave padding out has to be clearly better: such rows lie further apart in memory.
        worthy.sort(key=lambda each: each.padding is not None)
        if self.is_short:
            # The others are hardly ever best by as much as it takes to try them.
            plain, padded = (
                [each for each in worthy if (each.padding is not None) is pads]
                for pads in (False, True)
            )
            worthy = [*plain[:2], *padded[:2]]
        # All lanes of all vectors add up products all the time.
        share = min([each.padding.share for each in worthy if each.padding], default=1.0)
        least = iterations_of(heavy) / self.target.lanes_of(heavy.dtype) / self.target.timing.ports
        least *= share
        tiles = [partial(self.unrolled_tile, least, each, heavy) for each in worthy]
        # One vector by a few rows is hardly slower in a small kernel, and much sooner compiled.
        shorter = [partial(self.unrolled_tile, least, each, heavy, ROWS[0]) for each in worthy]
        best = partial(choose, self, tiles, least=least, shorter=shorter)
        if self.is_short:
            best, self.was_shortened = partial(choose, self, shorter, least=least), True
        tile = find_contraction_tile(self.ast, heavy, self.target)
        if tile is None:
            best()
        else:
            # Their sums are rounded differently, and short shapes round as the best ones do.
            both = [best, partial(self.tile_contraction, tile)]
            choose(self, both, share=1.0, is_short=False)
        self.unroll_steps()

    def unrolled_tile(
        self, least: float, reuse: Reuse, heavy: UOp, rows: int | None = None
    ) -> None:
        """A register tile with its innermost loop as it is best."""
        self.tile(reuse, heavy, rows)
        self.unroll_short(least)

    def unroll_sliding(self) -> None:
        """Unroll the short loop of a sum along which unrolled rows of results read the elements
        that a row before them reads a step later, as the gradient of a filter does: each value is
        loaded once.
        """
        nodes = self.ast.toposort()
        reductions = [node for node in nodes if node.op is Ops.REDUCE]
        if len(reductions) != 1:
            return
        (reduction,) = reductions
        stored = stores(self.ast)[0].index
        rows = [axis for axis in reduction.ranges if axis.axis is Axis.UPCAST]
        rows = [axis for axis in rows if stride_of(stored, axis) != 1]
        loads = loads_of(reduction.src[0])
        for loop in reduction.src[1:]:
            if loop.axis is not Axis.REDUCE or loop.extent.op is not Ops.CONST:
                continue
            carried = [_carried(load, loop, row) for load in loads for row in rows]
            if loop.vmax < UNROLLED and any(carried) and self.holds(reduction, max(carried)):
                unroll = partial(self.move, OptOps.UNROLL, loop, 0)
                choose(self, [unroll, lambda: None], given=(), is_short=False)
                return

    def holds(self, reduction: UOp, carried: float) -> bool:
        """Whether registers hold the results of a reduction and that share of as many operands;
        without multiply-adds, products beside them.
        """
        lanes = prod(loop.extent.vmax for loop in reduction.ranges if loop.axis is Axis.UPCAST)
        results = self.target.registers_of(reduction.dtype, lanes)
        needed = (1 if self.target.has_fma else 2) + carried
        return needed * results <= self.target.accumulators

    def unroll_short(self, least: float) -> None:
        """Unroll the innermost loop of a contraction where it is short and conditions of loads ask
        for it, as those of an image's padding do: vectors of conditions take the registers and
        ports of the tile.

        Terms are added in the order in which they were, so that kernels of one sum that read its
        operands in other ways, as those of a captured program may, round alike.
        """
        nodes = self.ast.toposort()
        reduction = heaviest([node for node in nodes if node.op is Ops.REDUCE])
        loops = [loop for loop in loop_order(self.ast) if reduction and loop in reduction.src[1:]]
        if reduction is None or not loops or any(loop.axis is not Axis.REDUCE for loop in loops):
            return
        inner = loops[-1]
        asked = {
            node
            for load in nodes
            if load.op is Ops.LOAD and load.is_gated
            for node in load.gate.toposort()
        }
        if inner not in asked or inner.extent.op is not Ops.CONST or inner.vmax >= UNROLLED:
            return
        results = prod(loop.extent.vmax for loop in reduction.ranges if loop.axis is Axis.UPCAST)
        if results // self.target.lanes_of(reduction.dtype) < self.target.busy_accumulators:
            return
        if self.is_short:
            self.was_shortened = True
            return
        unroll = partial(self.move, OptOps.UNROLL, inner, 0)
        choose(self, [lambda: None, unroll], least=least, given=())

    def unroll_steps(self) -> None:
        """Unroll two steps of a long contraction where the estimate says so, in a tile that adds
        up products all the time: the processor, which looks a number of instructions ahead, sees
        more of the lines that its rows need next. Terms are added in the order in which they were.
        """
        reduction = heaviest([node for node in self.ast.toposort() if node.op is Ops.REDUCE])
        loops = [loop for loop in loop_order(self.ast) if reduction and loop in reduction.src[1:]]
        if reduction is None or not loops or not self.is_large():
            return
        inner = loops[-1]
        if any(loop.axis is not Axis.REDUCE for loop in loops) or inner.extent.op is not Ops.CONST:
            return
        if inner.extent.arg % 2 or inner.vmax < UNROLLED:
            return
        results, operands = self.registers_of(reduction)
        # The compiler loads the operands of the next step early.
        holds = results + operands <= self.target.registers
        if results < self.target.busy_accumulators or not holds:
            return
        if self.is_short:
            self.was_shortened = True
            return
        choose(self, [lambda: None, partial(self.move, OptOps.UNROLL, inner, 2)], share=1.0)

    def registers_of(self, reduction: UOp) -> tuple[int, int]:
        """Vectors of a tile's results, and of the operands of one step."""
        lanes = lane_axes(self.ast, self.target.lanes_of, self.target.gather_bytes)

        def vectors(node: UOp) -> int:
            axes = [axis for axis in node.ranges if axis.axis is Axis.UPCAST]
            count = int(prod(axis.extent.vmax for axis in axes))
            is_vector = any(axis in lanes for axis in axes)
            return self.target.registers_of(node.dtype, count) if is_vector else count

        return vectors(reduction), sum(map(vectors, moved_loads(reduction)))


def _carried(load: UOp, loop: UOp, row: UOp) -> float:
    """The share of the rows that `row` unrolls whose loads the next iteration of `loop` reads again
    for others.
    """
    step, apart = (stride_of(load.index, axis) for axis in (loop, row))
    if not step or not apart or step % apart:
        return 0.0
    rows = int(row.extent.vmax)
    return max(rows - step // apart, 0) / rows if step // apart > 0 else 0.0
