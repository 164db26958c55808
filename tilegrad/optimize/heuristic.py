"""A good list of Opts without measuring, from static facts of the target.

Targets with blocks have a list of their own (heuristic_simt). For a processor with vectors, one
question decides: which data is used again? Where a fold reads two operands, and one output axis
moves only the first while another moves only the second, a tile of both axes kept in registers
reads each element once for many uses. Elsewhere memory is the limit, and what counts is that
neighbours in memory are neighbours in a vector.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from tilegrad.base.dtype import DType, Pointer, dtypes
from tilegrad.base.errors import OptError
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.rules import terms_of
from tilegrad.ir.uop import UOp, prod
from tilegrad.optimize.heuristic_dots import use_dots
from tilegrad.optimize.heuristic_simt import heuristic as heuristic_simt
from tilegrad.optimize.opt import Opt, OptOps, axes_of, loop_order, reduce_axes
from tilegrad.optimize.opts import apply_opt
from tilegrad.optimize.overlap import dimensions
from tilegrad.optimize.rows import rows_of_fold
from tilegrad.optimize.stage import operand_of
from tilegrad.target import Target

__all__ = ["heuristic"]

# A launch over threads pays from about this many operations on, of which one on memory counts as
# several, and a function as its polynomial.
_WORTH_THREADS = 9 << 15
_ON_MEMORY = 4
_FUNCTION = 16
_FUNCTIONS = frozenset({Ops.EXP, Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.COS})
# Copies of operands pay from about this many on.
_WORTH_STAGING = 1 << 18
# Code for several results at once pays from about this many on.
_WORTH_ROWS = 1 << 18
# Accumulators and operands must stay in registers: this share of them may hold accumulators.
_ACCUMULATORS = 3 / 4
_ROWS = (8, 12, 10, 9, 7, 6, 11, 5, 4)
# One axis with fewer is joined by others; with so many, it is as good as one with more.
_FEW_ROWS = 4
_ENOUGH_ROWS = 7
_MOST_UNROLL = 4
# An axis that is so many times its parts is hardly longer for being padded to a multiple of them.
_LONG = 16
# The least side of a tile that is turned in registers.
_LEAST_TURNED = 4
# An operand that is used so often may be packed more than once.
_OFTEN = 64
# The share of the second cache that a panel may take.
_PANEL = 5 / 8
# The steps of a fold from which on its results may go through memory.
_WORTH_GATHERING = 32
# A row of this share of its vectors is taken as one.
_WORTH_MASKING = 0.6
# How many vectors of results a fold gathers, and the share of them that must be results.
_MANY_VECTORS = (16, 8, 4, 2)
_WORTH_PADDING = 0.9
# What a register tile is worth whose single elements are loaded behind gates.
_GATED = 0.7
# What one is worth that is one vector wide: each single element is loaded for one multiply-add.
_NARROW = 0.9
# A fold of so few steps takes as long as storing its results apart.
_SHALLOW = 512
# And what one is worth whose single elements come from memory, or each from a line of its own.
_FAR = 0.6
_SPREAD = 0.8
# What it costs to pack an element that is alone in memory, or by turning a tile, and to store one,
# in multiply-adds.
_PACKED = 48
_TURNED = 16
_SCATTERED = 32
# What it costs to copy an element to scratch, in multiply-adds.
_COPIED = 16
# What it costs, as a share, that chunks are too few for a slow core to hold up none.
_UNEVEN = 0.5


def heuristic(ast: UOp, target: Target) -> list[Opt]:
    """The Opts for a kernel on `target`."""
    if target.has_locals:
        return heuristic_simt(ast, target)
    shaper = _Shaper(ast, target)
    shaper.run()
    return list(shaper.ast.arg.opts)


@dataclass
class _Reuse:
    """Output axes of a fold that move only some of its operands: one for lanes, others for rows.

    Attributes:
        stages: the parameter that the lanes move, if it can be packed.
        windows: a padded parameter of which overlapping parts are read, if it is not `stages`.
        cuts: loops to run outside of all, and how much of each stays inside.
    """

    lanes: UOp
    rows: list[UOp]
    stages: int | None
    windows: int | None
    cuts: list[tuple[UOp, int]]


class _Shaper:
    """Applies Opts one by one; a move that is refused is left out."""

    def __init__(self, ast: UOp, target: Target):
        self.ast, self.target = ast, target

    def run(self) -> None:
        folds = [node for node in self.ast.toposort() if node.op is Ops.REDUCE]
        heavy = _heaviest(folds)
        reuse = _find_reuse(self.ast, heavy, self.target) if heavy is not None else None
        if reuse is not None and heavy is not None:
            if not use_dots(self, reuse.lanes, reuse.rows, heavy):
                self.tile(reuse, heavy)
        else:
            self.stream(folds)
        self.thread()

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
        chunks can share what remains, if it is long and `is_shared`.
        """
        if loop not in loop_order(self.ast):
            return False
        if loop.src[0].arg % amount == 0:
            return self.move(op, loop, amount)
        place = self.ast.arg.order.index(loop.arg[0])
        chunks = max(self.target.threads, 1) if is_shared else 1
        shared = amount * chunks if loop.src[0].arg > _LONG * amount * chunks else amount
        if not self.move(OptOps.PADTO, loop, shared):
            return False
        number = self.ast.arg.order[place]
        padded = next(part for part in loop_order(self.ast) if part.arg[0] == number)
        return self.move(op, padded, amount)

    # folds that use data again

    def tile(self, reuse: _Reuse, fold: UOp) -> None:
        """A register tile: some vectors of one axis by some rows of the other."""
        width = self.target.lanes_of(fold.dtype)
        step = self.tile_size(reuse.lanes, fold)
        if step == reuse.lanes.src[0].arg == 2 * width and self.reused(reuse) < _OFTEN:
            # A vector for each of two threads, as any other loop would pack the lanes again.
            step = width
        work = self.work()
        depth = int(prod(part.vmax + 1 for part in fold.src[1:]))
        if not self.split_to(reuse.lanes, OptOps.UPCAST, step):
            return
        self.write_rows(reuse.rows, max(step // width, 1))
        if work < _WORTH_STAGING:
            return
        for loop, inside in reuse.cuts:
            if self.move(OptOps.TILE, loop, inside) and loop.arg[1] is Axis.REDUCE:
                depth = depth * inside // loop.src[0].arg
        if reuse.stages is not None:
            # Several short axes of rows are all there is to reuse it for.
            least = 4 if len(reuse.rows) == 1 else 1
            self.pack(reuse.stages, depth * step * fold.dtype.itemsize, least)
        if reuse.windows is not None:
            self.stage_window(reuse.windows, is_whole=len(reuse.rows) > 1)

    def tile_size(self, lanes: UOp, fold: UOp) -> int:
        """How much of `lanes` a register tile takes: two vectors, or what pads little."""
        width, extent = self.target.lanes_of(fold.dtype), lanes.src[0].arg
        step = 2 * width if _padded(extent, 2 * width) <= 1.15 * extent else width
        while step > 4 and _padded(extent, step) > 1.34 * extent:
            step //= 2
        return step

    def write_rows(self, loops: list[UOp], vectors: int, *, is_shared: bool = True) -> None:
        """Write out rows of as many vectors as there are accumulators for."""
        most = max(int(self.target.registers * _ACCUMULATORS) // vectors, 1)
        written = 1
        for loop in loops:
            rows = _best_rows(loop.src[0].arg, most // written)
            if rows > 1 and self.split_to(loop, OptOps.UPCAST, rows, is_shared=is_shared):
                written *= rows

    def packed_bytes(self, slot: int) -> int:
        """The size of a copy of an operand as a whole."""
        return _packed_bytes(_operand(self.ast, slot), [])

    def reused(self, reuse: _Reuse) -> int:
        """How often each element that the lanes move is used."""
        if reuse.stages is None:
            return _OFTEN
        moved = _operand(self.ast, reuse.stages).ranges
        return int(prod(part.vmax + 1 for part in self.outputs() if part not in moved))

    def pack(self, slot: int, panel: int, least: int) -> None:
        """Copy the operand that the lanes move to scratch, once per group of lanes, so that all
        rows pass over it there, if it is used `least` times; a panel too large for the caches is
        cut along the fold.
        """
        limit = int(self.target.cache_bytes[1] * _PANEL)
        moved = _operand(self.ast, slot).ranges
        outputs = self.outputs()
        reused = int(prod(part.vmax + 1 for part in outputs if part not in moved))
        if reused < least:
            return
        before, place = self.ast, None
        if panel > limit:
            place = self.cut_fold(moved, panel, limit)
            if place is None:
                return
        lanes_loop = next((part for part in outputs if part in moved), None)
        if place is None and _packed_bytes(_operand(self.ast, slot), []) <= limit // 2:
            lanes_loop = None
        if lanes_loop is not None:
            self.put_first([lanes_loop])
            place = lanes_loop
        if not self.stage(slot, place):
            self.ast = before

    def stage_window(self, slot: int, *, is_whole: bool = False) -> None:
        """Copy the part of a padded operand that some output elements need to scratch, where no
        gate is left and neighbours that share a window find it once.

        The loops that the window does not move along go inside, so that all of them use a copy;
        what is left of it outside is as little as fits the cache; of what fits as a whole, nothing
        where `is_whole`, as results that follow one another in memory had better be made so.
        """
        before = self.ast
        limit = self.target.cache_bytes[1] // 2
        load = _operand(self.ast, slot)
        own = [part for part in self.outputs() if part in load.ranges]
        # A fold that was cut runs around the outputs.
        around = [
            part
            for part in itertools.takewhile(
                lambda part: part.arg[1] is not Axis.LOOP, loop_order(self.ast)
            )
            if part in load.ranges
        ]
        shared = {
            part
            for each in dimensions(
                load, [part for part in loop_order(self.ast) if part in load.ranges]
            )
            if each.is_window
            for part in each.times
        }
        outside = [part for part in own if part not in shared]
        if is_whole and not around and _packed_bytes(load, []) <= limit:
            outside = []
        for loop in (part for part in own if part in shared):
            extent = loop.src[0].arg
            if _packed_bytes(load, [*around, *outside]) <= limit:
                break
            # Rows of the window at a time, as the copy at a time shares their borders.
            fits = (
                count
                for count in range(extent - 1, 1, -1)
                if extent % count == 0 and _packed_bytes(load, outside, (loop, count)) <= limit
            )
            count = next(fits, None)
            if count is not None and self.move(OptOps.TILE, loop, count):
                load = _operand(self.ast, slot)
                own = [part for part in self.outputs() if part in load.ranges]
                outside = [own[0], *(part for part in own if part in outside)]
                break
            outside.append(loop)
        first = [
            part for part in self.outputs() if part not in load.ranges and part in self.staged()
        ]
        self.put_first([*first, *outside])
        if not self.stage(slot, next(reversed([*around, *outside]), None)):
            self.ast = before

    def staged(self) -> set[UOp]:
        """The loops in which scratch lives already."""
        return {
            part for node in self.ast.toposort() if node.op is Ops.DEFINE_LOCAL for part in node.src
        }

    def outputs(self) -> list[UOp]:
        return [part for part in loop_order(self.ast) if part.arg[1] is Axis.LOOP]

    def put_first(self, loops: list[UOp]) -> None:
        """Make `loops` the outermost output loops, in this order."""
        for place, loop in enumerate(loops):
            there = self.outputs()[place]
            if there is not loop:
                self.move(OptOps.SWAP, there, axes_of(self.ast).index(loop))

    def stage(self, slot: int, place: UOp | None) -> bool:
        axis = -1 if place is None else axes_of(self.ast).index(place)
        return self.apply(Opt(OptOps.STAGE, axis, slot))

    def cut_fold(self, moved: frozenset[UOp], panel: int, limit: int) -> UOp | None:
        """Tile a reduce loop so that the panel fits; its outer part, which becomes the outermost
        loop, or None.
        """
        for loop in loop_order(self.ast):
            extent = loop.src[0]
            if loop.arg[1] is not Axis.REDUCE or loop not in moved or extent.op is not Ops.CONST:
                continue
            parts = range(extent.arg - 1, 0, -1)
            fits = [n for n in parts if extent.arg % n == 0 and panel * n // extent.arg <= limit]
            if fits and self.move(OptOps.TILE, loop, fits[0]):
                return loop_order(self.ast)[0]
        return None

    # everything else

    def stream(self, folds: list[UOp]) -> None:
        """Vectors along the axes on which memory is contiguous, in every nest."""
        width = self.target.lanes_of(_widest(self.ast))
        if width < 2:
            return
        store = _stores(self.ast)[0]
        strided = _strided_window(folds, store) if self.work() >= _WORTH_STAGING else None
        if strided is not None:
            self.stage_window(strided)
            folds = [node for node in self.ast.toposort() if node.op is Ops.REDUCE]
            store = _stores(self.ast)[0]
        has_lanes = [
            self.vectorize_fold(fold, self.lanes(fold), is_alone=len(folds) == 1) for fold in folds
        ]
        for nest in [node for node in self.ast.toposort() if node.op is Ops.END]:
            self.vectorize_nest(nest, width)
        for loop in reversed(loop_order(self.ast)):
            if (
                loop.arg[1] is Axis.LOOP
                and _stride(store.src[1], loop) == 1
                and loop.src[0].op is Ops.CONST
            ):
                if any(has_lanes) and _is_lane_fold(self.ast, loop):
                    break
                if not self.turn(loop, folds, width):
                    self.vectorize_output(loop, width, folds=len(folds) == 1)
                break

    def lanes(self, fold: UOp) -> int:
        """How many elements of what a fold runs over one vector holds."""
        folded = set(fold.src[1:])
        loads = [
            node.dtype
            for node in fold.src[0].toposort()
            if node.op is Ops.LOAD and folded & node.ranges
        ]
        widest = max((fold.dtype, *loads), key=lambda dtype: dtype.itemsize)
        return self.target.lanes_of(widest)

    def vectorize_fold(self, fold: UOp, width: int, *, is_alone: bool) -> bool:
        """Vector accumulators along a contiguous reduce axis, for several results if they share
        loads; short folds are written out. Whether the fold runs in lanes.
        """
        loops = [
            part for part in fold.src[1:] if part.op is Ops.RANGE and part.src[0].op is Ops.CONST
        ]
        store = _stores(self.ast)[0].src[1]
        rivals = [part for part in fold.ranges if _stride(store, part) == 1]
        least = max((_score(fold, part) for part in rivals), default=-(1 << 20))
        # A short axis makes poor vectors beside a longer one of the results.
        widest = max((int(part.vmax) + 1 for part in rivals), default=0)
        contiguous = [
            part
            for part in loops
            if _has_unit_load(fold, part)
            and _score(fold, part) > least
            and (2 * part.src[0].arg > width or part.src[0].arg > widest)
        ]
        if contiguous:
            loop = contiguous[-1]
            extent = loop.src[0].arg
            rows = self.rows(fold) if extent >= width and is_alone else []
            vectors = 1 if rows else 4 if len(fold.src) == 2 else 2
            amount = _lane_amount(extent, width, vectors, has_mask=self.target.has_mask)
            if amount > 1:
                self.split_to(loop, OptOps.UNROLL, amount, is_shared=False)
            for axis, count in rows:
                self.move(OptOps.UPCAST, axis, count)
            return True
        if loops and int(prod(part.src[0].arg for part in loops)) <= 4 * _MOST_UNROLL:
            for loop in loops:
                self.move(OptOps.UNROLL, loop, 0)
        return False

    def rows(self, fold: UOp) -> list[tuple[UOp, int]]:
        """How many results to write out, if this fold is all the kernel does."""
        nodes = self.ast.toposort()
        work = self.work()
        if work < _WORTH_ROWS or any(node.op is Ops.END for node in nodes):
            return []
        return rows_of_fold(fold, loop_order(self.ast), int(self.target.registers * _ACCUMULATORS))

    def vectorize_nest(self, nest: UOp, width: int) -> None:
        """Vectors in a nest that fills scratch."""
        for loop in reversed(
            [part for part in nest.src[1:] if part.op is Ops.RANGE and part.src[0].op is Ops.CONST]
        ):
            if nest.src[0].op is Ops.STORE and _stride(nest.src[0].src[1], loop) == 1:
                extent = loop.src[0].arg
                amounts = [count * width for count in (4, 2, 1)] + [width // 2, width // 4]
                amount = next((each for each in amounts if each > 1 and extent % each == 0), 1)
                if amount < width <= extent and self.target.has_mask:
                    self.split_to(loop, OptOps.UPCAST, width, is_shared=False)
                elif amount > 1:
                    self.move(OptOps.UPCAST, loop, amount)
                return

    def turn(self, loop: UOp, folds: list[UOp], width: int) -> bool:
        """A square tile, where what is stored along `loop` is loaded along another axis: vectors of
        both, turned in registers.
        """
        if folds:
            return False
        loads = [node for node in self.ast.toposort() if node.op is Ops.LOAD]
        for other in self.outputs():
            if other is loop or not any(
                _stride(load.src[1], other) == 1 and _stride(load.src[1], loop) not in (0, 1)
                for load in loads
            ):
                continue
            sides = [_power_in(part.src[0], width) for part in (loop, other)]
            if min(sides) >= _LEAST_TURNED:
                self.move(OptOps.UPCAST, other, sides[1])
                self.move(OptOps.UPCAST, loop, sides[0])
                return True
        return False

    def vectorize_output(self, loop: UOp, width: int, *, folds: bool) -> None:
        """Vectors along what is stored; beside a fold so many that no accumulator waits for itself,
        and that much of a row is read at a time.
        """
        extent = loop.src[0].arg
        amount = _lane_amount(extent, width, 4, has_mask=self.target.has_mask)
        if folds and self.is_written_out():
            # Its gates stand at every term: no lane of a mask of their own is worth that, and rows
            # of a window share what they load.
            amount = width // 2 if amount > extent and extent % (width // 2) == 0 else amount
            self.split_rows(loop)
        elif folds and self.target.has_mask:
            threads = self.target.threads if self.operations() >= _WORTH_THREADS else 1
            amounts = (count * width for count in _MANY_VECTORS)
            amount = next(
                (
                    each
                    for each in amounts
                    if extent >= _WORTH_PADDING * _padded(extent, each)
                    and extent > threads * each // 2
                ),
                amount,
            )
        if amount > 1:
            self.split_to(loop, OptOps.UPCAST, amount)

    def is_written_out(self) -> bool:
        """Whether a fold has no loop left, and gates."""
        nodes = self.ast.toposort()
        loops = (part for node in nodes if node.op is Ops.REDUCE for part in node.src[1:])
        gated = any(node.op is Ops.LOAD and len(node.src) == 4 for node in nodes)
        return gated and all(part.arg[1] is Axis.UNROLL for part in loops)

    def split_rows(self, lanes: UOp) -> None:
        """Write out some iterations of the loop outside `lanes`."""
        rows = [part for part in self.outputs() if part is not lanes][-1:]
        for loop in rows:
            count = _power_in(loop.src[0], _FEW_ROWS)
            if count > 1 and loop.src[0].arg > count:
                self.move(OptOps.UPCAST, loop, count)

    def work(self) -> int:
        """How often the innermost loop's body runs in all."""
        return int(prod(part.vmax + 1 for part in loop_order(self.ast)))

    def operations(self) -> int:
        """What all values take, each as often as the loops that it depends on run."""
        total = 0
        times: dict[frozenset[UOp], int] = {}
        for node in self.ast.toposort():
            if node.op in (Ops.LOAD, Ops.STORE):
                cost = _ON_MEMORY
            elif node.dtype.scalar is dtypes.index or not (node.op.is_alu or node.op is Ops.REDUCE):
                continue
            else:
                cost = _FUNCTION if node.op in _FUNCTIONS else 1
            ranges = node.src[0].ranges if node.op is Ops.REDUCE else node.ranges
            if ranges not in times:
                times[ranges] = int(prod(part.vmax + 1 for part in ranges))
            total += cost * times[ranges]
        return total

    def thread(self) -> None:
        """Chunks of the outermost loop on which every fold depends, so that nothing is computed
        twice.
        """
        loops = [
            part
            for part in loop_order(self.ast)
            if part.arg[1] is Axis.LOOP and part.src[0].op is Ops.CONST
        ]
        work = self.work()
        if not self.target.threads or self.operations() < _WORTH_THREADS:
            return
        folds = [node for node in self.ast.toposort() if node.op is Ops.REDUCE]
        if (heavy := _heaviest(folds)) is not None:
            # What does little of the work may be done again.
            folds = [heavy]
        nests = {
            part for node in self.ast.toposort() if node.op is Ops.END for part in node.src[1:]
        }
        copies = {
            node.src[0]: int(prod(part.vmax + 1 for part in {*node.ranges, *node.src[1:]}))
            for node in self.ast.toposort()
            if node.op is Ops.END and node.src[0].op is Ops.STORE
        }
        candidates: list[tuple[float, int, UOp, int]] = []
        for place, loop in enumerate(loops):
            chunks = _chunks(loop.src[0].arg, self.target.threads)
            if loop not in nests and chunks > 1 and all(loop in fold.ranges for fold in folds):
                # What a copy does not move with the loop is copied again in each chunk.
                again = sum(each for store, each in copies.items() if loop not in store.ranges)
                balance = min(chunks, self.target.threads) / self.target.threads
                cost = (1 + _COPIED * again * (chunks - 1) / work) * (1 + _UNEVEN * (1 - balance))
                candidates.append((cost, place, loop, chunks))
        for _, _, loop, chunks in sorted(candidates, key=lambda each: each[:2]):
            if self.move(OptOps.THREAD, loop, chunks):
                return


def _heaviest(folds: list[UOp]) -> UOp | None:
    """The fold that does nearly all the work, if one does."""
    if not folds:
        return None
    work = {fold: int(prod(part.vmax + 1 for part in _loops_of_fold(fold))) for fold in folds}
    heavy = max(folds, key=work.__getitem__)
    return heavy if 8 * (sum(work.values()) - work[heavy]) <= work[heavy] else None


def _loops_of_fold(fold: UOp) -> set[UOp]:
    return {*fold.ranges, *(part for part in fold.src[1:] if part.op is Ops.RANGE)}


def _find_reuse(ast: UOp, fold: UOp, target: Target) -> _Reuse | None:
    """The two axes of a register tile, if the fold has them."""
    width = target.lanes_of(fold.dtype)
    everywhere = [node for node in ast.toposort() if node.op is Ops.LOAD]
    loads = [
        node
        for node in fold.toposort()
        if node.op is Ops.LOAD and any(part in node.ranges for part in fold.src[1:])
    ]
    if width < 2 or len(loads) < 2:
        return None
    outputs = [
        part
        for part in loop_order(ast)
        if part.arg[1] is Axis.LOOP and part in fold.ranges and part.src[0].op is Ops.CONST
    ]
    store = _stores(ast)[0]
    depth = int(prod(part.vmax + 1 for part in fold.src[1:]))
    inner = max(fold.src[1:], key=lambda part: ast.arg.order.index(part.arg[0]))
    best: tuple[float, _Reuse] | None = None
    for lanes in outputs:
        moves = [load for load in loads if lanes in load.src[1].ranges]
        stays = [load for load in loads if lanes not in load.ranges]
        if not moves or not stays or lanes.src[0].arg < 4:
            continue
        rows = [
            part
            for part in outputs
            if part is not lanes
            and any(part in load.ranges for load in stays)
            and any(part not in load.ranges for load in moves)
        ]
        if not rows:
            continue
        rows.sort(
            key=lambda part: (
                min(part.src[0].arg, _ENOUGH_ROWS),
                _stride(store.src[1], part) == 1,
                part.src[0].arg,
            ),
            reverse=True,
        )
        row, many = rows[0], min(int(prod(part.src[0].arg for part in rows)), 8)
        run = _run_of(store, rows, int(target.registers * _ACCUMULATORS) // 2)
        if depth <= _SHALLOW and _stride(store.src[1], lanes) != 1 and row not in run and run:
            rows = run
        elif row.src[0].arg >= _FEW_ROWS:
            rows = [row]
        strided = [load for load in moves if _stride(load.src[1], lanes) != 1]
        stage = _name_of(fold, moves, everywhere, None)
        if strided:
            # Only a packed operand can be strided along the lanes, and packing takes many uses.
            others = [part for part in outputs if part not in strided[0].ranges]
            left = int(prod(part.src[0].arg for part in others))
            left //= int(prod(min(part.src[0].arg, _ROWS[0]) for part in rows if part in others))
            if stage is None or (left < 4 and len(rows) == 1):
                continue
        extent = lanes.src[0].arg
        quality = extent / _padded(extent, min(width, _power_below(extent)))
        quality *= min(_power_below(extent), width) / width
        if extent < 2 * width:
            quality *= _NARROW
        if _stride(store.src[1], lanes) != 1:
            quality *= depth / (depth + _SCATTERED)
        if strided:
            reused = int(prod(part.src[0].arg for part in outputs if part not in strided[0].ranges))
            turns = any(_stride(strided[0].src[1], part) == 1 for part in fold.src[1:])
            quality *= reused / (reused + (_TURNED if turns else _PACKED))
        quality *= many / 8 * 0.5 + 0.5
        if extent > 2 * width and _nbytes(stays) > target.cache_bytes[-1]:
            # Read again from memory for every few vectors of lanes.
            quality *= _FAR
        # What is computed from loads, or gated, for each element, where along neighbours a vector
        # serves: once, in a copy, or dearly.
        dear = [] if _is_plain(fold, stays) else stays
        window = _name_of(fold, dear, everywhere, lanes)
        if dear and window is None:
            quality *= _GATED
        if window is None and not any(
            _stride(load.src[1], part) in (0, 1) for load in stays for part in (rows[0], inner)
        ):
            # A line of memory for each element.
            is_near = _nbytes(stays) <= target.cache_bytes[min(1, len(target.cache_bytes) - 1)]
            quality *= _SPREAD if is_near else _FAR
        if best is None or quality > best[0] * 1.01:
            cuts = _cuts(fold, stays, rows[0], outputs, target) if len(rows) == 1 else []
            best = (quality, _Reuse(lanes, rows, stage, window, cuts))
    return best[1] if best is not None else None


def _run_of(store: UOp, rows: list[UOp], most: int) -> list[UOp]:
    """Those of `rows`, outermost first, that together are neighbours in what is stored, at most
    `most` of them.
    """
    run: list[UOp] = []
    length = 1
    while True:
        part = next((row for row in rows if _stride(store.src[1], row) == length), None)
        if part is None or length * part.src[0].arg > most:
            return run if length >= _FEW_ROWS else []
        run.insert(0, part)
        length *= part.src[0].arg


def _cuts(
    fold: UOp, loads: list[UOp], row: UOp, outputs: list[UOp], target: Target
) -> list[tuple[UOp, int]]:
    """How to cut a fold whose steps are far apart in an operand of which rows are neighbours, as in
    `a.T @ b`: each step takes a line of memory for few of its elements, and before the next rows
    want the others, the caches have lost it. A part of the fold, for all rows, is read as it lies.
    """
    if len(loads) != 1 or _stride(loads[0].src[1], row) != 1 or len(target.cache_bytes) < 2:
        return []
    (load,) = loads
    cache = target.cache_bytes[1] // load.dtype.itemsize
    steps = {part: _stride(load.src[1], part) for part in fold.src[1:]}
    far = max(fold.src[1:], key=lambda part: steps[part] or 0)
    step, extent = steps[far], far.src[0]
    # Steps to the next element use up lines by themselves.
    if not step or any(abs(each or 0) == 1 for each in steps.values()):
        return []
    if extent.op is not Ops.CONST or step * extent.arg <= cache:
        return []
    parts = (count for count in range(extent.arg - 1, 0, -1) if extent.arg % count == 0)
    inside = next((count for count in parts if count * step <= cache // 2), 0)
    deep = int(prod(part.vmax + 1 for part in fold.src[1:])) // extent.arg * inside
    if deep < _WORTH_GATHERING:
        return []
    around = [part for part in outputs if part is not row and part in load.ranges]
    return [(far, inside), *((part, 1) for part in reversed(around))]


def _strided_window(folds: list[UOp], store: UOp) -> int | None:
    """The parameter of which the only fold reads windows behind gates, several elements apart along
    what is stored: as a copy without gates, its lanes are picked from whole vectors.
    """
    loads = [node for node in store.toposort() if node.op is Ops.LOAD]
    gated = [load for load in loads if len(load.src) == 4]
    if len(folds) != 1 or len(gated) != 1 or gated[0] is not folds[0].src[0]:
        return None
    (load,) = gated
    if load.src[0].op is not Ops.DEFINE_GLOBAL or any(
        other is not load and other.src[0] is load.src[0] for other in loads
    ):
        return None
    strides = [
        _stride(load.src[1], part) for part in load.ranges if _stride(store.src[1], part) == 1
    ]
    is_apart = any(stride is not None and abs(stride) > 1 for stride in strides)
    return int(load.src[0].arg) if is_apart and set(folds[0].src[1:]) <= load.ranges else None


def _nbytes(loads: list[UOp]) -> int:
    """The size of the parameters that are loaded."""
    memories = {load.src[0].dtype for load in loads if isinstance(load.src[0].dtype, Pointer)}
    return sum(memory.size * memory.base.itemsize for memory in memories)


def _is_plain(fold: UOp, loads: list[UOp]) -> bool:
    """Whether `loads` are sides of the fold by themselves, without a gate."""
    return all(load in fold.src[0].src and len(load.src) == 2 for load in loads)


def _name_of(fold: UOp, wanted: list[UOp], loads: list[UOp], without: UOp | None) -> int | None:
    """What STAGE calls the operand with the loads `wanted`: a parameter that no other of the
    kernel's `loads` reads, or a side of the fold if the other side has none of them; `without` is a
    range that must not move it.
    """
    value = fold.src[0]
    sides = value.src if value.op.is_alu and len(value.src) == 2 else ()
    if len(wanted) == 1 and wanted[0].src[0].op is Ops.DEFINE_GLOBAL:
        memory, is_alone = wanted[0].src[0], not sides or wanted[0] in sides
        if is_alone and sum(load.src[0] is memory for load in loads) == 1:
            return int(memory.arg)
    reads = [{node for node in side.toposort() if node.op is Ops.LOAD} for side in sides]
    for place, side in enumerate(sides):
        if wanted and reads[place].issuperset(wanted) and reads[1 - place].isdisjoint(wanted):
            is_plain = all(node.op not in (Ops.REDUCE, Ops.AFTER) for node in side.toposort())
            return -1 - place if is_plain and without not in side.ranges else None
    return None


def _operand(ast: UOp, name: int) -> UOp:
    found = operand_of(ast, name)
    assert found is not None
    return found


def _packed_bytes(load: UOp, outside: list[UOp], tile: tuple[UOp, int] | None = None) -> int:
    """The size of a copy of what `load` reads inside the loops `outside`; of a loop that is tiled,
    `tile` is the loop and how much of it.
    """
    total = load.dtype.itemsize
    inner = sorted(load.ranges.difference(outside), key=lambda part: part.arg[0])
    for each in dimensions(load, inner):
        extent = each.extent
        if tile is not None and tile[0] in each.times:
            extent -= abs(each.times[tile[0]]) * int(tile[0].vmax + 1 - tile[1])
        total *= extent
    return total


def _stores(ast: UOp) -> list[UOp]:
    return [
        node
        for node in ast.toposort()
        if node.op is Ops.STORE and node.src[0].op is Ops.DEFINE_GLOBAL
    ]


def _stride(index: UOp, loop: UOp) -> int | None:
    found = terms_of(index)
    if found is None or any(loop in factor.ranges for factor in found[0] if factor is not loop):
        return None
    return found[0].get(loop, 0)


def _score(fold: UOp, loop: UOp) -> int:
    """Loads inside the fold that move by one along `loop`, less those that jump."""
    score, folded = 0, set(fold.src[1:])
    for node in fold.src[0].toposort():
        if node.op is Ops.LOAD and loop in node.src[1].ranges and folded & node.ranges:
            score += 1 if _stride(node.src[1], loop) == 1 else -2
    return score


def _has_unit_load(fold: UOp, loop: UOp) -> bool:
    """Whether some load moves by one along `loop`."""
    loads = (node for node in fold.src[0].toposort() if node.op is Ops.LOAD)
    return any(_stride(load.src[1], loop) == 1 for load in loads)


def _is_lane_fold(ast: UOp, loop: UOp) -> bool:
    """Whether a fold that depends on `loop` already runs in vectors of its own."""
    return any(
        node.op is Ops.REDUCE
        and loop in node.ranges
        and any(part.arg[1] is Axis.UNROLL and part.src[0].arg >= 8 for part in node.src[1:])
        for node in ast.toposort()
    )


def _widest(ast: UOp) -> DType:
    dtypes_used = [node.dtype for node in ast.toposort() if node.op in (Ops.LOAD, Ops.REDUCE)]
    dtypes_used += [node.src[2].dtype for node in _stores(ast)]
    return max(dtypes_used, key=lambda dtype: dtype.itemsize)


def _padded(extent: int, step: int) -> int:
    return -(-extent // step) * step


def _power_below(extent: int) -> int:
    return 1 << (extent.bit_length() - 1)


def _power_in(extent: UOp, most: int) -> int:
    """The largest power of two up to `most` that divides an extent."""
    return math.gcd(extent.arg, most) if extent.op is Ops.CONST else 1


def _best_rows(extent: int, most: int) -> int:
    """Rows of a register tile: a divisor if there is a good one, else what pads least."""
    if extent <= most:
        return extent
    for rows in _ROWS:
        if rows <= most and extent % rows == 0:
            return rows
    return min(
        (rows for rows in _ROWS if rows <= most),
        key=lambda rows: (_padded(extent, rows), -rows),
        default=1,
    )


def _lane_amount(extent: int, width: int, vectors: int, *, has_mask: bool) -> int:
    """Elements per iteration: as many whole vectors as divide the extent, the whole extent masked,
    or one padded vector.
    """
    for count in range(vectors, 0, -1):
        if extent % (count * width) == 0 and count & (count - 1) == 0:
            return count * width
    padded = -(-extent // width) * width
    if has_mask and width < extent <= vectors * width and extent >= _WORTH_MASKING * padded:
        return padded
    if has_mask and extent >= _LONG * vectors * width:
        return vectors * width
    if extent >= width:
        half = width // 2
        if extent < 4 * width and half > 1 and extent % half == 0:
            return half
        return width
    power = _power_below(extent)
    return (
        extent
        if extent == power
        else power
        if extent % power == 0
        else power * 2
        if power * 2 <= 2 * extent and extent > 2
        else 1
    )


def _chunks(extent: int, wanted: int) -> int:
    """How many chunks: the divisor of the extent nearest above what is wanted, else the largest
    below.
    """
    divisors = [count for count in range(2, min(extent, 4 * wanted) + 1) if extent % count == 0]
    above = [count for count in divisors if count >= wanted]
    return above[0] if above else max(divisors, default=1)
