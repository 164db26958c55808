"""A kernel under moves: each is tried, and left out where it is not legal. Chunks for threads are
chosen here, as every kernel needs them.
"""

from __future__ import annotations

from collections.abc import Collection

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import OptError
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import iterations_of, nodes_of, reductions_of, trips_of
from tilegrad.ir.uop import UOp
from tilegrad.optimize.analysis.facts import (
    COPIED,
    LONG,
    heaviest,
    padded_to,
    stores,
)
from tilegrad.optimize.analysis.footprint import step_of
from tilegrad.optimize.model.model import Estimate
from tilegrad.optimize.opts.opt import (
    Opt,
    OptOps,
    StageOperand,
    axes_of,
    loop_order,
    reduce_axes,
    running_loops,
)
from tilegrad.optimize.opts.opts import apply_opt
from tilegrad.target import Target

__all__ = ["Shaper"]

# Tuning, worth shown by `bench/launch.py` and `bench/rows.py`.
# Share of the time that is lost where chunks are half as many as would let no slow core hold up the
# others.
_UNEVEN = 1 / 8
# The fewest operations of a chunk where there are few chunks, as a multiple of
# `Timing.worth_threads`.
_WORTH_CHUNK = 4


class Shaper:
    """Applies Opts one by one; a move that is refused is left out. Copies of the parameters `given`
    are made beforehand. With `is_short` it takes shapes of little text, and `was_shortened` tells
    whether there were others. `estimates` are those of shapes that were compared, by kernel and
    copies that are left out.
    """

    def __init__(
        self, ast: UOp, target: Target, given: Collection[int] = (), *, is_short: bool = False
    ):
        self.ast, self.target, self.given = ast, target, frozenset(given)
        self.is_short, self.was_shortened = is_short, False
        self.estimates: dict[tuple[UOp, frozenset[int]], Estimate] = {}

    def move(self, op: OptOps, loop: UOp | None, arg: object) -> bool:
        """Apply an Opt to the axis `loop`; False where it is not legal."""
        axes = reduce_axes(self.ast) if op is OptOps.UNROLL else axes_of(self.ast)
        if loop is not None and loop not in axes:
            return False
        return self.apply(Opt(op, None if loop is None else axes.index(loop), arg))

    def apply(self, opt: Opt) -> bool:
        """Apply an Opt; False where it is not legal."""
        try:
            self.ast = apply_opt(self.ast, opt, self.target)
        except OptError:
            return False
        return True

    def split_to(self, loop: UOp, op: OptOps, amount: int, *, is_shared: bool = True) -> bool:
        """UPCAST or UNROLL by `amount`, padding the axis first where it does not divide: so that
        chunks can share the rest, if it is long and `is_shared`. Without masks each lane of padding
        is a branch, and chunks overlap where they can.
        """
        if loop not in loop_order(self.ast):
            return False
        if loop.extent.divisor % amount == 0:
            return self.move(op, loop, amount)
        is_output = op is OptOps.UPCAST and loop.extent.op is Ops.CONST and loop.vmax >= amount
        if is_output and not self.target.has_mask and self.overlap_to(loop, amount):
            return True
        position = self.ast.arg.order.index(loop.number)
        chunks = max(self.target.threads, 1) if is_shared else 1
        is_long = loop.extent.op is Ops.CONST and loop.vmax >= LONG * amount * chunks
        shared = amount * chunks if is_long else amount
        if not self.move(OptOps.PADTO, loop, shared):
            return False
        number = self.ast.arg.order[position]
        padded = next(axis for axis in loop_order(self.ast) if axis.number == number)
        return self.move(op, padded, amount)

    def overlap_to(self, loop: UOp, amount: int) -> bool:
        """UPCAST by `amount`; an axis that it does not divide ends with a chunk that overlaps."""
        if loop.extent.divisor % amount == 0:
            return self.move(OptOps.UPCAST, loop, amount)
        before = self.ast
        if self.move(OptOps.OVERLAP, loop, amount):
            # The loop over chunks stands at the loop's position, the loop inside a chunk behind it.
            inside = loop_order(self.ast)[loop_order(before).index(loop) + 1]
            if self.move(OptOps.UPCAST, inside, 0):
                return True
        self.ast = before
        return False

    def unroll_row(self, loop: UOp, width: int) -> bool:
        """All vectors of a short row in one iteration: it is known then where the last one begins,
        which a loop would compute for each.
        """
        position = loop_order(self.ast).index(loop)
        return self.overlap_to(loop, width) and self.move(
            OptOps.UPCAST, loop_order(self.ast)[position], 0
        )

    def apart_to(self, loop: UOp, amount: int) -> bool:
        """UPCAST of `amount` iterations that are an equal share of the loop apart; the last ones
        overlap. Each goes on along memory from one iteration to the next, where the hardware has
        fetched ahead, while neighbours would begin anew.
        """
        before = self.ast
        size = -(-loop.extent.divisor // amount)
        is_known = loop.extent.op is Ops.CONST and size > 1
        if not is_known or -(-loop.extent.arg // size) != amount:
            return False
        is_even = loop.extent.arg % size == 0
        if self.move(OptOps.TILE if is_even else OptOps.OVERLAP, loop, size):
            # A tile stands outside of all loops.
            slices = next(each for each in loop_order(self.ast) if each not in loop_order(before))
            if self.move(OptOps.UPCAST, slices, 0):
                return True
        self.ast = before
        return False

    def upcast_to(self, loop: UOp, amount: int, *, overlaps: bool, is_shared: bool = True) -> bool:
        """UPCAST by `amount`, by chunks that overlap where they may and can, else padded."""
        can = overlaps and loop.extent.vmax > amount
        return (can and self.overlap_to(loop, amount)) or self.split_to(
            loop, OptOps.UPCAST, amount, is_shared=is_shared
        )

    def outputs(self) -> list[UOp]:
        return [loop for loop in loop_order(self.ast) if loop.axis is Axis.LOOP]

    def staged(self) -> set[UOp]:
        """The loops in which scratch lives already."""
        return {loop for node in nodes_of(self.ast, Ops.DEFINE_LOCAL) for loop in node.src}

    def put_first(self, loops: list[UOp]) -> None:
        """Make `loops` the outermost output loops, in this order."""
        for position, loop in enumerate(loops):
            there = self.outputs()[position]
            if there is not loop:
                self.move(OptOps.SWAP, there, axes_of(self.ast).index(loop))

    def stage(self, name: StageOperand, loop: UOp | None) -> bool:
        axis = -1 if loop is None else axes_of(self.ast).index(loop)
        return self.apply(Opt(OptOps.STAGE, axis, name))

    def work(self) -> int:
        """How often the innermost loop's body runs in all."""
        return trips_of(loop_order(self.ast))

    def is_large(self) -> bool:
        """Whether a copy of an operand may be faster than reading it where it lies."""
        return self.work() >= self.target.timing.worth_threads

    def operations(self) -> int:
        """Operations of all values, each as often as the loops that it depends on run, times its
        price.
        """
        total = 0
        times: dict[frozenset[UOp], int] = {}
        for node in self.ast.toposort():
            is_access = node.op in (Ops.LOAD, Ops.STORE)
            is_value = node.op.is_alu or node.op in (Ops.REDUCE, Ops.PREFIX)
            if not is_access and (not is_value or node.dtype.scalar is dtypes.index):
                continue
            ranges = node.src[0].ranges if node.op is Ops.REDUCE else node.ranges
            if ranges not in times:
                times[ranges] = trips_of(ranges)
            total += node.op.definition.price * times[ranges]
        return total

    def thread(self) -> None:
        """Chunks for threads: the first that is legal of `thread_moves`."""
        any(self.move(OptOps.THREAD, loop, chunks) for _, loop, chunks in self.thread_moves())

    def thread_moves(self) -> list[tuple[float, UOp, int]]:
        """Loops to cut into chunks and their numbers, the best first: outermost loops on which
        every reduction depends, so that nothing is computed twice. Before each, about which share
        of the work copies are that are made again.
        """
        loops = [
            axis
            for axis in loop_order(self.ast)
            if axis.axis is Axis.LOOP and axis.extent.op is Ops.CONST
        ]
        wanted = self.chunks()
        if wanted < 2:
            return []
        reductions = reductions_of(self.ast)
        # The longest of several stages.
        work = max(map(iterations_of, reductions), default=self.work())
        if (heavy := heaviest(reductions)) is not None:
            # Stages with little of the work may be done again.
            reductions = [heavy]
        nests = {axis for node in nodes_of(self.ast, Ops.END) for axis in node.src[1:]}
        copies = {
            node.src[0]: trips_of({*node.ranges, *node.src[1:]})
            for node in nodes_of(self.ast, Ops.END)
            if node.src[0].op is Ops.STORE
        }
        store = stores(self.ast)[0]
        nests |= running_loops(self.ast)
        candidates: list[tuple[float, int, float, UOp, int]] = []
        for position, loop in enumerate(loops):
            extent = loop.extent.arg
            if (
                loop in nests
                or extent < 2
                or any(loop not in reduction.ranges for reduction in reductions)
            ):
                continue
            # A copy that does not move with the loop is made again in each chunk.
            again = sum(each for copy, each in copies.items() if loop not in copy.ranges)
            counts = {_chunks(extent, each) for each in (wanted, max(wanted // 2, 2))}
            for chunks in counts | {min(extent, wanted)}:
                size = -(-extent // chunks)
                copied = COPIED * again * (chunks - 1) / work
                cost = (1 + copied) * self.unevenness(chunks, wanted)
                # Chunks that store short runs of a long one share the lines where these meet: a
                # quarter of a line for each run.
                run = abs(step_of(store.index, loop) or 0) * size * store.value.dtype.itemsize
                line = self.target.line_bytes
                is_short = line < run * chunks and run < self.target.page_bytes
                cost *= 1 + line / 4 / run if is_short else 1
                cost *= padded_to(extent, size) / extent
                candidates.append((cost, position, copied, loop, chunks))
        candidates.sort(key=lambda each: each[:2])
        return [(copied, loop, chunks) for _, _, copied, loop, chunks in candidates]

    def unevenness(self, chunks: int, wanted: int) -> float:
        """Cost of cores that end at different times: the last round of chunks may not be one for
        each, and each of few chunks takes long.
        """
        cores = self.target.cores
        few = max(wanted / chunks, 1.0) - 1.0
        return padded_to(chunks, min(cores, wanted)) / chunks * (1 + _UNEVEN * few)

    def chunks(self) -> int:
        """How many chunks a launch is worth; 1 where threads are not."""
        operations, worth = self.operations(), self.target.timing.worth_threads
        if not self.target.threads or operations < worth:
            return 1
        return min(self.target.threads, max(2, operations // (_WORTH_CHUNK * worth)))


def _chunks(extent: int, wanted: int) -> int:
    """How many chunks: the divisor of the extent nearest above the wanted number, else as many as
    wanted, the last of them shorter.
    """
    above = range(wanted, min(extent, 4 * wanted) + 1)
    return next((count for count in above if extent % count == 0), min(extent, wanted))
