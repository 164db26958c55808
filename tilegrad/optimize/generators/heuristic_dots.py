"""Which sums of products run on a dot unit, and how: a register tile whose operands lie in the
unit's order.

The unit takes k neighbours of the reduce axis at once: a vector k times as long of the operand that
the lanes move, and k elements of the other one, the same for all lanes. So the first is always
packed in a panel whose innermost axis is the unit's slice of the reduce axis; the other is, too,
unless memory has those elements side by side.
"""

from __future__ import annotations

from tilegrad.base.config import config
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import trips_of
from tilegrad.ir.rules import terms_of
from tilegrad.ir.uop import UOp, prod
from tilegrad.optimize.generators.heuristic_tiles import Tiler
from tilegrad.optimize.opts.dots import Dot, find_dots, narrow
from tilegrad.optimize.opts.opt import Opt, OptOps, ReduceOperand, Side, axes_of, loop_order
from tilegrad.optimize.opts.overlap import Dimension, dimensions, join
from tilegrad.target import MatrixUnit

__all__ = ["use_dots"]


def use_dots(shaper: Tiler, lanes: UOp, rows: list[UOp], reduction: UOp) -> bool:
    """Give `reduction` to a dot unit, its results in a tile of `lanes` by `rows`. False, and the
    kernel as it was, where none fits.
    """
    before = shaper.ast
    if not config.TC:
        return False
    for number, unit in enumerate(shaper.target.matrix_units):
        if not unit.is_dot:
            continue
        dots = [dot for dot in find_dots(shaper.ast, unit) if dot.reduction is reduction]
        depth = _best_depth(dots, lanes, unit)
        if depth is None:
            continue
        if _DotTile(shaper, unit, number).run(lanes, rows, depth, reduction):
            return True
        shaper.ast = before
    return False


def _best_depth(dots: list[Dot], lanes: UOp, unit: MatrixUnit) -> UOp | None:
    """The reduce axis that the unit takes a slice of: one that needs little padding, along which
    the operand that the lanes do not move is contiguous.
    """
    found: list[tuple[float, bool, int, UOp]] = []
    for dot in dots:
        if lanes in dot.left.ranges or lanes not in dot.right.ranges:
            continue
        extent = dot.depth.extent.arg
        padded = -(-extent // unit.k) * unit.k
        if dot.depth.axis is Axis.REDUCE and 2 * extent > padded:
            share = min(extent / padded, 0.95)
            found.append((share, _is_side_by_side(dot.left, dot.depth), extent, dot.depth))
    return max(found, key=lambda each: each[:3])[3] if found else None


def _is_side_by_side(side: UOp, depth: UOp) -> bool:
    """Whether memory has the unit's operand as it is."""
    return side.op is Ops.LOAD and not side.is_gated and _is_beside(side, depth)


def _is_beside(side: UOp, depth: UOp) -> bool:
    """Whether neighbours along `depth` are neighbours in memory."""
    if side.op is not Ops.LOAD:
        return False
    found = terms_of(side.index)
    return found is not None and found[0].get(depth) == 1


class _DotTile:
    def __init__(self, shaper: Tiler, unit: MatrixUnit, number: int):
        self.shaper, self.unit, self.number = shaper, unit, number
        self.limit = shaper.target.cache_bytes[1] // 2

    def run(self, lanes: UOp, rows: list[UOp], depth: UOp, reduction: UOp) -> bool:
        shaper, unit = self.shaper, self.unit
        step = shaper.tile_size(lanes, reduction)
        if not shaper.split_to(lanes, OptOps.UPCAST, step):
            return False
        unrolled = self.newest(Axis.UPCAST)
        # Where chunks share the panels, they need not share the rows, but blocks of transposed
        # ones.
        found = self.side(unrolled, has_lanes=False)
        has_panels = (
            found is not None
            and _is_beside(found[1], depth)
            and any(
                loop.extent.arg % max(shaper.target.threads, 1) == 0
                for loop in shaper.outputs()
                if loop not in rows and loop.extent.op is Ops.CONST
            )
        )
        vectors = max(step // shaper.target.lanes_of(reduction.dtype), 1)
        shaper.unroll_rows(rows, shaper.most_rows(vectors), is_shared=not has_panels)
        if not shaper.split_to(depth, OptOps.UNROLL, unit.k, is_shared=False):
            return False
        own = self.newest(Axis.UNROLL)
        if not self.pack_lanes(unrolled):
            return False
        self.stage_rows(unrolled, own)
        return self.use(unrolled, own)

    def newest(self, kind: Axis) -> UOp:
        """The axis that was made last."""
        return [loop for loop in axes_of(self.shaper.ast) if loop.axis is kind][-1]

    def side(self, unrolled: UOp, *, has_lanes: bool) -> tuple[ReduceOperand, UOp] | None:
        """The factor that depends on the lanes, or the other one: its name for STAGE, and its
        value before a cast.
        """
        dots = find_dots(self.shaper.ast, self.unit)
        sides = dots[0].reduction.src[0].src if dots else ()
        for name, side in zip(Side, sides):
            if (unrolled in side.ranges) is has_lanes:
                return ReduceOperand(name, is_cast=False), narrow(side)
        return None

    def output_loops_of(self, value: UOp) -> list[UOp]:
        return [loop for loop in self.shaper.outputs() if loop in value.ranges]

    def pack_lanes(self, unrolled: UOp) -> bool:
        """Copy a panel of the operand that the lanes move, outside of the loops of rows alone."""
        shaper = self.shaper
        before = shaper.ast
        found = self.side(unrolled, has_lanes=True)
        if found is None:
            return False
        name, value = found
        loops = self.output_loops_of(value)
        nbytes = shaper.packed_bytes(name) // prod(loop.vmax + 1 for loop in loops)
        if nbytes > self.limit:
            shaper.pack(name, int(nbytes), 1, is_whole=True)
            return shaper.ast is not before
        shaper.put_first(loops)
        return shaper.stage(name, loops[-1] if loops else None)

    def stage_rows(self, unrolled: UOp, own: UOp) -> None:
        """Copy the operand that the lanes do not move, where the unit could not take it as it is:
        as a whole, or as much of its rows as a cache holds.
        """
        shaper = self.shaper
        found = self.side(unrolled, has_lanes=False)
        if found is None or _is_side_by_side(found[1], own):
            return
        name, value = found
        ranges = [loop for loop in loop_order(shaper.ast) if loop in value.ranges]
        if any(each.is_overlapping for each in dimensions(value, ranges)):
            shaper.stage_slice(name)
            return
        if _is_beside(value, own) and _is_open(value) and shaper.target.has_mask:
            # Only in the last iteration of the loop is a gate closed, and that iteration is peeled.
            return
        nbytes, loops = shaper.packed_bytes(name), self.output_loops_of(value)
        if any(loop.extent.op is not Ops.CONST for loop in loops):
            # How many blocks there are is not known.
            self.copy(name, value, own, loops[-1])
            return
        other = self.side(unrolled, has_lanes=True)
        panels = shaper.packed_bytes(name) if other is None else self.copied(other[1])
        # Each chunk of a launch copies a whole again, each block of rows the panels.
        chunks = shaper.target.threads or 1
        is_run = any(_goes_on(value, loop, own) for loop in ranges)
        extent = loops[0].extent.arg if loops else 1
        blocks = next(
            (
                count
                for count in range(min(chunks, extent), extent + 1)
                if extent % count == 0 and nbytes // count <= shaper.target.scratch_bytes // 2
            ),
            None,
        )
        if is_run:
            repeated = nbytes * (chunks - 1)
            is_whole = blocks is None or repeated < panels * (blocks - 1)
        else:
            # Steps along the reduce axis are far apart in a copy of many rows.
            is_whole = blocks is None or blocks > chunks
        if is_whole and self.copy(name, value, own, None):
            return
        if loops and blocks is not None:
            self.copy_rows(name, value, own, loops[0], extent // blocks)

    def copied(self, value: UOp) -> int:
        """The size of the panels of `value` together."""
        ranges = [
            *self.output_loops_of(value),
            *(loop for loop in value.ranges if loop.axis is not Axis.LOOP),
        ]
        return trips_of(ranges) * value.dtype.itemsize

    def copy_rows(self, name: ReduceOperand, value: UOp, own: UOp, loop: UOp, count: int) -> None:
        """Copies of `count` iterations of `loop`, outside of all loops that use them."""
        shaper = self.shaper
        before = shaper.ast
        if not shaper.move(OptOps.TILE, loop, count):
            return
        value = narrow(value) if (found := self.side_named(name)) is None else found
        if not self.copy(name, value, own, loop_order(shaper.ast)[0]):
            shaper.ast = before

    def side_named(self, name: ReduceOperand) -> UOp | None:
        dots = find_dots(self.shaper.ast, self.unit)
        return narrow(dots[0].reduction.src[0].src[name.side.value]) if dots else None

    def copy(self, name: ReduceOperand, value: UOp, own: UOp, loop: UOp | None) -> bool:
        """Stage `value` inside `loop`; where memory goes on along the reduce axis, so does the
        copy.
        """
        shaper = self.shaper
        order = loop_order(shaper.ast)
        outer = order[: order.index(loop) + 1] if loop is not None else []
        inner = [each for each in order if each in value.ranges and each not in outer]
        argument: object = name
        for last in ((own,), *((each, own) for each in inner if each.axis is Axis.UPCAST)):
            step = next((each for each in inner if _goes_on(value, each, last[0])), None)
            if step is not None:
                first = [each for each in inner if each is not step and each not in last]
                argument = (name, tuple(inner.index(each) for each in (*first, step, *last)))
                break
        axis = -1 if loop is None else axes_of(shaper.ast).index(loop)
        return shaper.apply(Opt(OptOps.STAGE, axis, argument))

    def use(self, unrolled: UOp, own: UOp) -> bool:
        for choice, dot in enumerate(find_dots(self.shaper.ast, self.unit)):
            if dot.depth is own and unrolled not in dot.left.ranges:
                return self.shaper.apply(Opt(OptOps.TC, choice, (self.number, config.TC)))
        return False


def _is_open(load: UOp) -> bool:
    """Whether the gate of a load depends on at most one reduce loop."""
    gate = load.gate if load.is_gated else load
    return len([loop for loop in gate.ranges if loop.axis is Axis.REDUCE]) <= 1


def _goes_on(value: UOp, loop: UOp, unrolled: UOp) -> bool:
    """Whether memory goes on from an unrolled axis to the next iteration of `loop`."""
    if loop.axis in (Axis.UPCAST, Axis.UNROLL):
        return False
    found = join(value, Dimension({loop: 1}), Dimension({unrolled: 1}))
    return found is not None and found.is_contiguous(value)
