"""Kernels that pass over memory: neighbours in memory become neighbours in a vector."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

from tilegrad.base.dtype import Pointer
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import loads_of, moved_loads, nodes_of, reductions_of, stride_of
from tilegrad.ir.uop import UOp
from tilegrad.optimize.analysis.facts import (
    FEW_ROWS,
    LONG,
    ROWS,
    UNROLLED,
    has_functions,
    is_peeled,
    padded_to,
    power_in,
    stores,
)
from tilegrad.optimize.analysis.stream_facts import (
    asks_position,
    has_unit_load,
    is_lane_reduction,
    is_picked,
    is_short,
    padded_load,
    score,
    widest_dtype,
)
from tilegrad.optimize.generators.amounts import (
    even_counts,
    lane_amount,
    padded_amount,
    reduction_amount,
    rows_of_reduction,
)
from tilegrad.optimize.generators.choice import CLEAR, choose
from tilegrad.optimize.generators.heuristic_pools import Pooler
from tilegrad.optimize.generators.latency_hiding import hide_waits
from tilegrad.optimize.generators.row_tiles import tiled_rows
from tilegrad.optimize.generators.transposes import transpose
from tilegrad.optimize.opts.opt import OptOps, loop_order

__all__ = ["Streamer"]

# Limits of compile time.
# Gated loads of a row of vectors that is unrolled as a whole: more take long to compile.
_MOST_ASKED = 160


class Streamer(Pooler):
    """Vectors along memory."""

    def stream(self, reductions: list[UOp]) -> None:
        """Vectors along the axes on which memory is contiguous, in every nest."""
        width = self.target.lanes_of(widest_dtype(self.ast))
        if width < 2:
            return
        if self.shape_pooling(reductions, width):
            return
        store = stores(self.ast)[0]
        padded = padded_load(reductions, store, is_large=self.is_large())
        if padded is not None:
            read = loads_of(reductions[0].src[0])
            self.stage_slice(padded.extent.arg)
            if len(read) > 1 and (loops := self.filter_loops()):
                self.unroll_filter(loops, width)
                self.join_images()
                return
        self.vectorize(width)

    def vectorize(self, width: int) -> None:
        """Vectors along memory: columns, or in every nest of one row or of several."""
        reductions = reductions_of(self.ast)
        if (columns := self.columns(stores(self.ast)[0])) is not None:
            self.vectorize_columns(columns, width)
            return
        plain = partial(self.vectorize_nests, reductions, width)
        rows = tiled_rows(self, reductions, width)
        found = [partial(self.take, each) for each in rows]
        # How sums are rounded does not depend on whether the shape is a short one.
        if loops := self.whole_rows(reductions, width):
            whole = partial(self.unroll_whole_rows, loops, width)
            choose(self, [plain, whole], given=(), is_short=False)
            return
        choose(self, [*found[:1], plain, *found[1:]])

    def whole_rows(self, reductions: Sequence[UOp], width: int) -> list[UOp]:
        """The loops of reductions along memory that vectors do not divide, short enough to be
        unrolled as a whole, on a target without masks: which lanes are padding is known then.
        """
        return [
            loop
            for reduction in reductions
            for loop in reduction.src[1:]
            if not self.target.has_mask and len(reduction.src) == 2
            if loop.op is Ops.RANGE and loop.extent.op is Ops.CONST
            if loop.extent.arg % width and width < loop.extent.arg <= UNROLLED * width
            if has_unit_load(reduction, loop)
        ]

    def unroll_whole_rows(self, loops: Sequence[UOp], width: int) -> None:
        """All of these loops as vectors in one iteration, the other nests by themselves."""
        for loop in dict.fromkeys(loops):
            amount = padded_to(loop.extent.arg, width)
            self.split_to(loop, OptOps.UNROLL, amount, is_shared=False)
        self.vectorize_nests(reductions_of(self.ast), width, has_lanes=True)

    def take(self, shaped: UOp) -> None:
        """Go on with a kernel that was shaped before."""
        self.ast = shaped

    def vectorize_nests(
        self, reductions: Sequence[UOp], width: int, *, has_lanes: bool = False
    ) -> None:
        """Vectors along memory in every nest, by itself; reductions may have lanes already."""
        store = stores(self.ast)[0]
        # Reductions that share their loops have lanes along one of them, not along one each.
        lanes_of: dict[tuple[UOp, ...], bool] = {}
        for reduction in reductions:
            loops = reduction.src[1:]
            if not lanes_of.get(loops):
                lanes_of[loops] = self.vectorize_reduction(
                    reduction, self.lanes(reduction), is_alone=len(reductions) == 1
                )
        has_lanes = has_lanes or any(lanes_of.values())
        for nest in nodes_of(self.ast, Ops.END):
            self.vectorize_nest(nest, width)
        for loop in reversed(loop_order(self.ast)):
            if (
                loop.axis is Axis.LOOP
                and stride_of(store.index, loop) == 1
                and loop.extent.op is Ops.CONST
            ):
                if has_lanes and is_lane_reduction(self.ast, loop, width):
                    break
                if reductions or not transpose(self, loop, width):
                    self.vectorize_output(loop, width, has_reduction=len(reductions) == 1)
                break

    def filter_loops(self) -> list[UOp]:
        """The loops of a filter that may be unrolled, the innermost first; none if the innermost is
        long or does not belong to the filter.
        """
        reduction = reductions_of(self.ast)[0]
        inner = loop_order(self.ast)[-1]
        if inner not in reduction.src[1:] or inner.vmax >= UNROLLED:
            return []
        others = [loop for loop in reduction.src[1:] if loop is not inner]
        return [inner, *(loop for loop in others if loop.vmax < UNROLLED)]

    def unroll_filter(self, loops: Sequence[UOp], width: int) -> None:
        """Unroll one of `loops`. Which one changes how sums are rounded, so captured and short
        kernels unroll the same one as others.
        """
        before, given, is_short = self.ast, self.given, self.is_short
        made: dict[UOp, UOp] = {}

        def unroll(loop: UOp) -> None:
            self.unroll_with_rows(loop, width)
            made[self.ast] = loop

        self.given, self.is_short = frozenset(), False
        choose(self, [partial(unroll, loop) for loop in loops])
        self.given, self.is_short = given, is_short
        if given or is_short:
            best, self.ast = made[self.ast], before
            self.unroll_with_rows(best, width)

    def unroll_with_rows(self, loop: UOp, width: int) -> None:
        """Unroll a loop of a filter, and some rows of results beside each other: they share its
        loads, and none waits for its own last step.
        """
        index = stores(self.ast)[0].src[1]
        self.move(OptOps.UNROLL, loop, 0)
        rows = [loop for loop in self.outputs() if stride_of(index, loop) != 1]
        if rows and rows[-1].extent.op is Ops.CONST and rows[-1].extent.arg > 1:
            extent = rows[-1].extent.arg
            counts = (count for count in range(ROWS[0], 2, -1) if extent % count == 0)
            self.overlap_to(rows[-1], min(next(counts, FEW_ROWS), extent))
        self.vectorize(width)

    def join_images(self) -> None:
        """Results that are multiplied by the same filter in one iteration, all of some short loop,
        where that takes less: they share the filter, and the conditions of their copies.
        """
        loads = loads_of(reductions_of(self.ast)[0].src[0])
        shared = [
            loop
            for loop in self.outputs()
            if loop.extent.op is Ops.CONST and 0 < loop.vmax < ROWS[0]
            if any(loop not in load.index.ranges for load in loads)
        ]
        joined = [partial(self.move, OptOps.UPCAST, loop, 0) for loop in shared]
        choose(self, [lambda: None, *joined])

    def columns(self, store: UOp) -> UOp | None:
        """The loop whose iterations lie side by side in all that is loaded and stored, if scratch
        lives in it, as in a softmax over another axis than the last: one lane for each iteration.
        """
        nodes = self.ast.toposort()
        lives_in = {axis for node in nodes if node.op is Ops.DEFINE_LOCAL for axis in node.src}
        loop = next((axis for axis in lives_in if stride_of(store.index, axis) == 1), None)
        if loop is None or loop.axis is not Axis.LOOP or loop.extent.op is not Ops.CONST:
            return None
        moved = [
            stride_of(node.src[1], loop)
            for node in nodes
            if node.op is Ops.LOAD and loop in node.index.ranges
        ]
        is_wide = 2 * loop.extent.arg >= self.target.lanes_of(widest_dtype(self.ast))
        return loop if is_wide and moved and all(step == 1 for step in moved) else None

    def vectorize_columns(self, loop: UOp, width: int) -> None:
        """A lane for each iteration of `loop`: two vectors, if their scratch stays in the second
        cache beside its source.
        """
        scratch = [node.dtype for node in nodes_of(self.ast, Ops.DEFINE_LOCAL)]
        nbytes = sum(
            each.size * each.base.itemsize for each in scratch if isinstance(each, Pointer)
        )
        limit = self.target.second_bytes // 4
        extent, amount = loop.extent.arg, 2 * width if 2 * width * nbytes <= limit else width
        if extent <= amount or padded_to(extent, amount) > padded_to(extent, width):
            amount = min(width, 1 << (extent - 1).bit_length())
        self.upcast_to(loop, amount, overlaps=True)

    def lanes(self, reduction: UOp) -> int:
        """Lanes of a vector of the widest dtype among a reduction's result and loads."""
        loads = [node.dtype for node in moved_loads(reduction)]
        widest = max((reduction.dtype, *loads), key=lambda dtype: dtype.itemsize)
        return self.target.lanes_of(widest)

    def vectorize_reduction(self, reduction: UOp, width: int, *, is_alone: bool) -> bool:
        """Vector accumulators along a contiguous reduce axis, for several results if they share
        loads; short reductions are unrolled. Whether the reduction runs in lanes.
        """
        loops = [
            loop
            for loop in reduction.src[1:]
            if loop.op is Ops.RANGE and loop.extent.op is Ops.CONST
        ]
        store = stores(self.ast)[0].src[1]
        rivals = [loop for loop in reduction.ranges if stride_of(store, loop) == 1]
        least = max((score(reduction, loop) for loop in rivals), default=None)
        is_gathered = self.target.has_mask and least is not None and least < -1
        # A short axis makes poor vectors beside a longer one of the results, but no lanes that are
        # gathered one by one.
        widest = max((int(loop.vmax) + 1 for loop in rivals), default=0)
        contiguous = [
            loop
            for loop in loops
            if has_unit_load(reduction, loop)
            and (least is None or score(reduction, loop) > least)
            and ((3 if is_gathered else 2) * loop.extent.arg > width or loop.extent.arg > widest)
            # Without masks padded vectors are loaded lane by lane, behind branches.
            and (
                self.target.has_mask
                or loop.extent.arg % width == 0
                or is_peeled(loop.extent.arg, width)
                or (loop.extent.arg >= width and (width > widest or has_functions(reduction)))
            )
        ]
        if contiguous:
            loop = contiguous[-1]
            extent = loop.extent.arg
            rows = self.rows(reduction) if extent >= width and is_alone else []
            vectors = 1 if rows else 4 if len(reduction.src) == 2 else 2
            amount = lane_amount(extent, width, vectors, has_mask=self.target.has_mask)
            # Where vectors divide a row, padding would only add branches.
            has_padding = self.target.has_mask or (extent % width > 0 and is_peeled(extent, width))
            if vectors == 4 and amount <= width < extent and has_padding:
                amount = reduction_amount(extent, width)
            if not has_padding and extent % amount and extent % 2 == 0:
                # Half a vector has no branch for each lane of padding, but computes half as much.
                is_read = not has_functions(reduction.src[0], loop)
                amount = power_in(loop.extent, width) if is_read else amount
            if amount > 1:
                self.split_to(loop, OptOps.UNROLL, amount, is_shared=False)
            for axis, count in rows:
                self.move(OptOps.UPCAST, axis, count)
            return True
        if loops and is_short(loops):
            for loop in loops:
                self.move(OptOps.UNROLL, loop, 0)
        return False

    def rows(self, reduction: UOp) -> list[tuple[UOp, int]]:
        """How many results to unroll, if this reduction is all the kernel does."""
        nodes = self.ast.toposort()
        if any(node.op is Ops.END for node in nodes):
            return []
        return rows_of_reduction(reduction, loop_order(self.ast), self.target)

    def vectorize_nest(self, nest: UOp, width: int) -> None:
        """Vectors in a nest that fills scratch."""
        for loop in reversed(
            [axis for axis in nest.src[1:] if axis.op is Ops.RANGE and axis.extent.op is Ops.CONST]
        ):
            if nest.src[0].op is Ops.STORE and stride_of(nest.src[0].src[1], loop) == 1:
                extent = loop.extent.arg
                amounts = [count * width for count in (4, 2, 1)] + [width // 2, width // 4]
                amount = next((each for each in amounts if each > 1 and extent % each == 0), 1)
                if amount < width <= extent and self.target.has_mask:
                    amount = padded_amount(extent, width)
                elif amount < width <= extent and self.overlap_to(loop, width):
                    return
                if amount > 1:
                    self.split_to(loop, OptOps.UPCAST, amount, is_shared=False)
                return

    def vectorize_output(self, loop: UOp, width: int, *, has_reduction: bool) -> None:
        """Vectors along the stored row. Beside a reduction, several: no accumulator waits for its
        own last step, and each read covers much of a row.
        """
        extent = loop.extent.arg
        # Picking elements takes the registers of its positions, and loads that nothing speeds up.
        vectors = 1 if is_picked(self.ast, loop) else 4
        if self.is_short and self.is_plain() and vectors > 1:
            # Each vector in an iteration is as much text again.
            vectors, self.was_shortened = 1, self.was_shortened or extent > width
        amount = lane_amount(extent, width, vectors, has_mask=self.target.has_mask)
        outside = {*self.outputs()} - {loop}
        if self.is_short_and_gated(loop, width):
            if self.target.has_mask or extent % width == 0:
                self.split_to(loop, OptOps.UPCAST, padded_to(extent, width), is_shared=False)
            else:
                self.unroll_row(loop, width)
            return
        moved = max(width, self.lanes_moved(loop)) if self.is_plain() else width
        if self.is_plain() and not self.is_short and (amount <= moved or extent % amount):
            # No vector is alone in its iteration or has a mask, if little is computed twice.
            wide = vectors * moved
            again = padded_to(extent, wide) - extent
            if 2 * LONG * again <= extent and self.overlap_to(loop, wide):
                return
        if has_reduction and self.is_unrolled():
            # Its gates stand at every term: no lane of a mask of their own is worth that, and rows
            # of a filter window share their loads.
            amount = width // 2 if amount > extent and extent % (width // 2) == 0 else amount
            self.split_rows(loop)
        elif has_reduction or self.is_scattered():
            self.vectorize_results(loop, width, amount)
            return
        if not self.is_plain() and self.target.has_mask and extent % width and amount == width:
            amount = padded_amount(extent, width)
        if amount > 1:
            shapes: list[Callable[[], object]] = []
            shapes.append(partial(self.split_to, loop, OptOps.UPCAST, amount))
            has_rest = extent % width or (amount <= width and not self.is_short)
            if self.is_plain() and width < extent and has_rest:
                if extent <= UNROLLED * width:
                    shapes.append(partial(self.unroll_row, loop, width))
                else:
                    counts = even_counts(extent, width)
                    shapes += [partial(self.overlap_to, loop, count * width) for count in counts]
            choose(self, shapes, share=1.0)
        if self.is_plain() and extent > 1:
            self.join_rows(outside)

    def lanes_moved(self, loop: UOp) -> int:
        """Lanes of a vector of the widest dtype that is loaded or stored along `loop`: positions of
        rows are none.
        """
        nodes = [each for each in self.ast.toposort() if each.op in (Ops.LOAD, Ops.STORE)]
        values = [each.value if each.op is Ops.STORE else each for each in nodes]
        moved = [value.dtype for each, value in zip(nodes, values) if loop in each.index.ranges]
        return min(map(self.target.lanes_of, moved), default=1)

    def vectorize_results(self, loop: UOp, width: int, amount: int) -> None:
        """Vectors of results along the stored row: `amount` of them in an iteration, or others that
        take less. Those of straight code overlap instead of having a mask, unless masks are clearly
        better: they share their loads.
        """
        extent = loop.extent.arg
        # A row that is shorter than a vector may be unrolled without lanes.
        whole = [extent] if 1 < extent < width else []
        amounts = [amount, *self.amounts(loop, width), *whole]
        splits: list[Callable[[], object]]
        splits = [partial(self.split_to, loop, OptOps.UPCAST, each) for each in amounts]
        if whole and not self.is_scattered():
            # A padded vector has fewer results than lanes, and waits more for its own last step:
            # which of the two is better shows once results of other rows are beside it.
            splits = [partial(self.split_and_hide, each) for each in splits]
        masked = partial(choose, self, list(dict(zip(amounts, splits)).values()), share=1.0)
        if self.is_scattered():
            choose(
                self, [masked, *(partial(self.tile_scattered, each) for each in splits)], share=1.0
            )
            return
        is_row = width < extent <= UNROLLED * width and extent % width > 0
        if not is_row or self.has_loops():
            masked()
            return
        apart = [partial(each, loop, width) for each in (self.unroll_row, self.overlap_to)]
        choose(self, [partial(choose, self, apart, share=1.0), masked])

    def split_and_hide(self, vectorize: Callable[[], object]) -> None:
        """Results along a row, with enough others beside them that no step waits."""
        vectorize()
        hide_waits(self)

    def tile_scattered(self, vectorize: Callable[[], object]) -> None:
        """Rows that are added to others, some at a time with all of their vectors: a vector of each
        of all rows would be on another page each time.
        """
        vectorize()
        loops = [loop for loop in loop_order(self.ast) if loop.axis is Axis.REDUCE]
        if len(loops) == 1:
            divisors = range(ROWS[0], 1, -1)
            count = next((n for n in divisors if loops[0].extent.divisor % n == 0), 1)
            self.move(OptOps.TILE, loops[0], count)
            tile = [loop for loop in loop_order(self.ast) if loop.axis is Axis.REDUCE][-1:]
            unrolled = [partial(self.move, OptOps.UNROLL, loop, 0) for loop in tile if count > 1]
            choose(self, [lambda: None, *unrolled])

    def join_rows(self, outside: Collection[UOp]) -> None:
        """Some rows in one iteration, or all of few: a loop takes as long as a short row,
        conditions of several stand beside each other, and of all they are known. Rows with a loop
        of their own, which is none of those `outside`, are joined where that is clearly better.
        """
        rows = [axis for axis in self.outputs() if axis in outside and axis.extent.op is Ops.CONST]
        joined = [
            partial(self.overlap_to, axis, count)
            for axis in rows[-1:]
            for count in dict.fromkeys((FEW_ROWS, ROWS[0], min(axis.extent.arg, ROWS[0])))
            if 1 < count <= axis.extent.arg
        ]
        has_loop = not set(self.outputs()) <= set(outside)
        choose(self, [lambda: None, *joined], share=CLEAR if has_loop else 1.0)

    def is_short_and_gated(self, loop: UOp, width: int) -> bool:
        """Whether slices of a row are made of different loads, and it is short enough to be
        unrolled: of each vector it is known then which loads it takes, where a loop would ask for
        all.
        """
        loads = loads_of(self.ast)
        gated = sum(asks_position(load, loop) for load in loads)
        vectors = padded_to(loop.extent.arg, width) // width
        is_row = 1 < vectors <= UNROLLED and vectors * gated <= _MOST_ASKED
        return self.is_plain() and gated > 0 and is_row

    def is_plain(self) -> bool:
        """Whether the kernel has neither reductions nor nests."""
        return all(node.op not in (Ops.REDUCE, Ops.END) for node in self.ast.toposort())

    def is_scattered(self) -> bool:
        """Whether the kernel adds to the memory that it stores to."""
        return any(store.arg is not None for store in stores(self.ast))

    def amounts(self, loop: UOp, width: int) -> list[int]:
        """Amounts of results for one iteration: some vectors, or all that a row has, but so that
        threads have slices to share. A shorter kernel is not worth a choice.
        """
        if self.work() < self.target.timing.launch:
            return []
        extent = loop.extent.arg
        worth = 2 * self.target.timing.worth_threads
        slices = min(self.operations() // worth, self.target.threads or 1)
        most = width * self.target.registers // 2
        wanted = [width, 4 * width, most, padded_to(extent, width)]
        if not (self.target.has_mask or self.is_scattered()):
            # Lanes of padding are branches, but sums in memory cannot overlap.
            wanted = [amount for amount in wanted if extent % amount == 0]
        limit = min(most, padded_to(extent, width) if slices < 2 else 2 * extent // slices)
        return [amount for amount in wanted if amount <= limit]

    def is_unrolled(self) -> bool:
        """Whether no reduction has a loop left, and loads have gates."""
        loads = loads_of(self.ast)
        return any(load.is_gated for load in loads) and not self.has_loops()

    def has_loops(self) -> bool:
        """Whether some reduction has a loop left."""
        reductions = reductions_of(self.ast)
        loops = (loop for reduction in reductions for loop in reduction.src[1:])
        return any(loop.axis is not Axis.UNROLL for loop in loops)

    def split_rows(self, lanes: UOp) -> None:
        """Unroll some iterations of the loop outside `lanes`: few, or all of a short one."""
        rows = [axis for axis in self.outputs() if axis is not lanes][-1:]
        for loop in rows:
            count = power_in(loop.extent, FEW_ROWS)
            if count == FEW_ROWS:
                self.move(OptOps.UPCAST, loop, count)
            elif loop.extent.op is Ops.CONST and loop.extent.arg > 1:
                extent = loop.extent.arg
                self.overlap_to(loop, extent if extent <= UNROLLED else FEW_ROWS)
