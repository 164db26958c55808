"""A good list of Opts for a target with blocks of lanes, from static facts.

matrix units    where the target has one for the kernel's products, and nothing else then
group           lanes share a fold that has few results, or whose data only they read in a row
tile            a register tile of outputs, where a fold reads each element for several of them
unroll          short folds lose their loop
vectors         elementwise work moves 16 bytes at a time
lanes           neighbouring outputs become neighbouring lanes
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tilegrad.base.config import config
from tilegrad.base.errors import OptError
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import stride_of
from tilegrad.ir.rules import terms_of
from tilegrad.ir.uop import UOp, prod
from tilegrad.optimize.group import is_second_stage
from tilegrad.optimize.matrix import find_products
from tilegrad.optimize.opt import Opt, OptOps, axes_of, loop_order, reduce_axes
from tilegrad.optimize.opts import apply_opt
from tilegrad.optimize.split import next_number
from tilegrad.target import Target

__all__ = ["heuristic"]

# A block, and the lanes of it that follow the contiguous axis of a register tile.
_BLOCK, _TILE_LANES = 256, 16
# From this many outputs on, a register tile leaves enough lanes to keep a device busy.
_WORTH_TILING = 1024
# Blocks may grow while at least so many are left.
_WORTH_BLOCKS = 128
# By how much lanes may pad an axis.
_LITTLE = 1.15
# Folds of at most this many elements are written out.
_SHORT = 32
# Lanes share a fold that is this deep where a tile would leave too few of them, and a shallower
# one where there are fewer results.
_DEEP = 64
# With fewer results than this, a fold is shared by lanes.
_FEW_RESULTS = 8192
_FROM_REDUCE = (OptOps.UNROLL, OptOps.GROUP, OptOps.GROUPTOP)


def heuristic(ast: UOp, target: Target) -> list[Opt]:
    """The Opts for a kernel on a target with blocks."""
    shaper = _Shaper(ast, target)
    shaper.run()
    return list(shaper.ast.arg.opts)


class _Shaper:
    """Applies Opts one by one; a move that is refused is left out."""

    def __init__(self, ast: UOp, target: Target):
        self.ast, self.target = ast, target

    def run(self) -> None:
        self.pad_symbolic()
        folds = self.folds()
        if len(folds) == 1 and config.TC and self.use_matrix_unit():
            return
        if not folds:
            self.use_vectors()
        elif not self.share_folds(folds):
            if len(folds) == 1:
                self.tile(folds[0])
            self.unroll()
        self.use_lanes()

    def pad_symbolic(self) -> None:
        """Lanes need extents that are numbers: the largest, with a gate. A fold takes them too
        where lanes will share it.
        """
        results = int(
            prod(loop.vmax + 1 for loop in axes_of(self.ast) if loop.arg[1] is Axis.GLOBAL)
        )
        for loop in axes_of(self.ast):
            is_shared = loop.arg[1] is Axis.REDUCE and results <= _FEW_RESULTS
            if loop.src[0].op is not Ops.CONST and loop.vmax >= 2 * self.target.warp_lanes:
                if loop.arg[1] is Axis.GLOBAL or is_shared:
                    self.apply(OptOps.PADTO, loop, self.target.warp_lanes)

    # moving

    def folds(self) -> list[UOp]:
        return [node for node in self.ast.toposort() if node.op is Ops.REDUCE]

    def store(self) -> UOp:
        return next(
            node
            for node in self.ast.toposort()
            if node.op is Ops.STORE and node.src[0].op is Ops.DEFINE_GLOBAL
        )

    def grid(self) -> list[UOp]:
        """The grid axes of known extent."""
        return [
            part
            for part in axes_of(self.ast)
            if part.arg[1] is Axis.GLOBAL and part.src[0].op is Ops.CONST
        ]

    def outer_part(self, number: int) -> UOp | None:
        """The axis of this number, if there is one."""
        return next((part for part in loop_order(self.ast) if part.arg[0] == number), None)

    def apply(self, op: OptOps, loop: UOp, arg: object) -> bool:
        """Apply an Opt to `loop`; False where it is not legal."""
        axes = reduce_axes(self.ast) if op in _FROM_REDUCE else axes_of(self.ast)
        if loop not in axes:
            return False
        try:
            self.ast = apply_opt(self.ast, Opt(op, axes.index(loop), arg), self.target)
        except OptError:
            return False
        return True

    def move(self, op: OptOps, loop: UOp, arg: object) -> UOp | None:
        """As `apply`: what is left of `loop` in its place, or None where nothing is."""
        if loop.arg[0] not in self.ast.arg.order:
            return None
        place = self.ast.arg.order.index(loop.arg[0])
        before = set(self.ast.arg.order)
        if not self.apply(op, loop, arg):
            return None
        order = self.ast.arg.order
        number = order[place] if place < len(order) and order[place] not in before else None
        left = None if number is None else self.outer_part(number)
        return left if left is not None and left.arg[1] is loop.arg[1] else None

    # matrix units

    def use_matrix_unit(self) -> bool:
        """Products on the first unit that fits, padded where that adds little."""
        for number, unit in enumerate(self.target.matrix_units):
            for choice, parts in enumerate(find_products(self.ast, unit)):
                sizes = (unit.m, unit.n, unit.k)
                if not all(map(_pads_little, parts, sizes)):
                    continue
                before = self.ast
                for part, size in zip(parts, sizes, strict=True):
                    if part.src[0].arg % size:
                        self.move(OptOps.PADTO, part, size)
                opt = Opt(OptOps.TC, choice, (number, config.TC))
                first = next_number(self.ast)
                try:
                    self.ast = apply_opt(self.ast, opt, self.target)
                except OptError:
                    self.ast = before
                    continue
                self.tile_units(self.outer_part(first), self.outer_part(first + 1))
                return True
        return False

    def tile_units(self, rows: UOp | None, columns: UOp | None) -> None:
        """Several of the unit's tiles per group, so that each operand serves several products; then
        several groups per block.
        """
        left = []
        for part in (rows, columns):
            if part is not None and (amount := _divisor(part, (4, 3, 2))):
                part = self.move(OptOps.UPCAST, part, amount)
            left.append(part)
        for part in reversed(left):
            blocks = int(prod(axis.src[0].arg for axis in self.grid()))
            if part is not None and part.src[0].arg % 2 == 0 and blocks >= 2 * _WORTH_BLOCKS:
                self.move(OptOps.LOCAL, part, 2)

    # folds

    def share_folds(self, folds: list[UOp]) -> bool:
        """Lanes of a block share the folds where outputs alone would not use the device well."""
        loops = list(dict.fromkeys(self.longest(fold) for fold in folds))
        known = [loop for loop in loops if loop is not None]
        if len(known) < len(loops):
            return False
        loads = [load for fold in folds for load in _loads_of(fold)]
        results = int(prod(part.vmax + 1 for part in self.grid()))
        depth = int(prod(part.src[0].arg for part in folds[0].src[1:]))
        if not loads or depth <= _SHORT or results * self.target.warp_lanes > depth * _FEW_RESULTS:
            return False
        if any(_stride(load, part) == 1 for load in loads for part in self.grid()):
            amount = _divisor(known[0], (8, 16, 4))
            if len(folds) > 1 or not amount or results * _DEEP > depth * _WORTH_TILING:
                return False
            self.use_lanes(self.target.warp_lanes)
            return self.apply(OptOps.GROUPTOP, known[0], amount)
        return self.share_rows(known)

    def longest(self, fold: UOp) -> UOp | None:
        """The axis of a fold to share: the one along which most loads are contiguous."""
        loops = [part for part in fold.src[1:] if part.op is Ops.RANGE]
        if any(part.src[0].op is not Ops.CONST for part in loops):
            return None
        loads = _loads_of(fold)
        return max(loops, key=lambda part: (_count(loads, part), part.src[0].arg))

    def share_rows(self, loops: list[UOp]) -> bool:
        """Lanes read neighbours of a row, each a vector, in every fold and in the loop that
        stores.
        """
        rows = [
            part
            for part in axes_of(self.ast)
            if part.arg[1] is Axis.LOOP
            and part.src[0].op is Ops.CONST
            and stride_of(self.store().src[1], part) == 1
        ]
        extents = [part.src[0].arg for part in (*loops, *rows)]
        width, warp = self.target.memory_lanes, self.target.warp_lanes
        if all(extent % width == 0 and extent > warp * width for extent in extents):
            loops = [self.move(OptOps.UNROLL, loop, width) or loop for loop in loops]
            for part in rows:
                self.move(OptOps.UPCAST, part, width)
            extents = [extent // width for extent in extents]
        amount = _lanes_of(math.gcd(*extents), _BLOCK, warp)
        if amount < warp // 2 and len(loops) == 1 and not rows:
            loops = [self.move(OptOps.PADTO, loops[0], warp) or loops[0]]
            amount = _lanes_of(loops[0].src[0].arg, _BLOCK, warp)
        if amount < 2:
            return False
        shared = [self.apply(OptOps.GROUP, loop, amount) for loop in loops]
        if not all(shared):
            return any(shared)
        # Where lanes meet, each reads what all have written.
        for part in reduce_axes(self.ast):
            if part.arg[1] is Axis.REDUCE and part.src[0].arg == amount and self.meets(part):
                if step := _divisor(part, (16, 8, 4, 5, 3, 2)):
                    self.apply(OptOps.UNROLL, part, step)
        return True

    def meets(self, loop: UOp) -> bool:
        """Whether `loop` runs over what lanes left in shared memory."""
        folds = [fold for fold in self.folds() if loop in fold.src]
        return bool(folds) and all(map(is_second_stage, folds))

    def tile(self, fold: UOp) -> None:
        """A register tile of two axes, each of which moves only some of what the fold reads."""
        loads = _loads_of(fold)
        if int(prod(part.vmax + 1 for part in self.grid())) < _WORTH_TILING or len(loads) < 2:
            return
        index = self.store().src[1]
        axes = [part for part in self.grid() if part.src[0].arg >= 4 and part in fold.ranges]
        axes.sort(key=lambda part: (stride_of(index, part) != 1, -part.src[0].arg))
        for lanes in axes:
            still = [load for load in loads if lanes not in load.ranges]
            rows = [
                part
                for part in axes
                if part is not lanes
                and any(part in load.ranges for load in still)
                and any(part not in load.ranges for load in loads)
            ]
            if still and rows:
                self.upcast(lanes)
                self.upcast(rows[0])
                return

    def upcast(self, loop: UOp) -> None:
        extent = loop.src[0].arg
        amount = (
            _divisor(loop, (4, 3, 5, 2))
            if extent < 2 * self.target.warp_lanes
            else _divisor(loop, (4,))
        )
        if not amount and extent >= 2 * self.target.warp_lanes:
            loop = self.move(OptOps.PADTO, loop, self.target.warp_lanes) or loop
            amount = _divisor(loop, (4,))
        if amount:
            self.move(OptOps.UPCAST, loop, amount)

    def unroll(self) -> None:
        """Short folds, and the ends of long ones, are written out."""
        for fold in self.folds():
            loops = [part for part in fold.src[1:] if part.arg[1] is Axis.REDUCE]
            written = 1
            for loop in reversed(loops):
                extent = loop.src[0]
                if extent.op is not Ops.CONST or written * extent.arg > _SHORT:
                    break
                self.move(OptOps.UNROLL, loop, 0)
                written *= extent.arg
            if written == 1 and loops and loops[-1].src[0].op is Ops.CONST:
                if step := _divisor(loops[-1], (4, 2)):
                    self.move(OptOps.UNROLL, loops[-1], step)

    # elementwise work

    def use_vectors(self) -> None:
        """Written-out neighbours where most accesses join to vectors."""
        accesses = [node for node in self.ast.toposort() if node.op in (Ops.LOAD, Ops.STORE)]
        best: tuple[int, UOp, int] | None = None
        for loop in self.grid():
            amount = _divisor(loop, (self.target.memory_lanes, 2))
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
            self.grid(), key=lambda part: (stride_of(index, part) or 1 << 30, -part.src[0].arg)
        )
        taken = [part for part in axes_of(self.ast) if part.arg[1] in (Axis.LOCAL, Axis.GROUP)]
        lanes = int(prod(part.src[0].arg for part in taken))
        is_tiled = any(part.arg[1] is Axis.UPCAST for part in axes_of(self.ast)) and self.folds()
        warp = self.target.warp_lanes
        for number, loop in enumerate(axes):
            room = most // lanes
            if number == 0:
                room = min(room, _TILE_LANES if is_tiled else _first_lanes(loop, axes, warp))
            elif lanes >= warp and not is_tiled:
                break
            elif not is_tiled:
                room = min(room, max(4 * warp // lanes, 1))
            loop, amount = self.padded(loop, _lanes_of(loop.src[0].arg, room, warp), room)
            if amount > 1:
                self.move(OptOps.LOCAL, loop, amount)
                lanes *= amount

    def padded(self, loop: UOp, amount: int, room: int) -> tuple[UOp, int]:
        """`loop`, padded where its divisor `amount` would leave most of `room` empty."""
        extent, size = loop.src[0].arg, _power_below(room)
        while size >= 2 * amount:
            if -(-extent // size) * size <= _LITTLE * extent:
                found = self.move(OptOps.PADTO, loop, size)
                return (loop, amount) if found is None else (found, size)
            size //= 2
        return loop, amount


def _loads_of(fold: UOp) -> list[UOp]:
    loops = fold.src[1:]
    return [
        node
        for node in fold.src[0].toposort()
        if node.op is Ops.LOAD and any(part in node.ranges for part in loops)
    ]


def _stride(access: UOp, loop: UOp) -> int | None:
    return stride_of(access.src[1], loop)


def _count(loads: Sequence[UOp], loop: UOp) -> int:
    return sum(_stride(load, loop) == 1 for load in loads)


def _gain(access: UOp, loop: UOp, amount: int) -> int:
    """What writing out `amount` steps of `loop` does for an access: 1 if they join to a vector."""
    rest = access.src[2:] if access.op is Ops.LOAD else access.src[3:]
    stride = _stride(access, loop)
    if loop not in access.ranges or stride == 0:
        return 0
    found = terms_of(access.src[1])
    if stride != 1 or found is None or any(loop in part.ranges for part in rest):
        return -1
    others = (scale * factor.divisor for factor, scale in found[0].items() if factor is not loop)
    is_aligned = found[1] % amount == 0 and all(step % amount == 0 for step in others)
    return 1 if is_aligned else -1


def _divisor(loop: UOp, wanted: Iterable[int]) -> int:
    """The first of `wanted` that divides the extent, or 0."""
    extent = loop.src[0].arg
    return next((amount for amount in wanted if amount and extent % amount == 0), 0)


def _lanes_of(extent: int, most: int, warp: int) -> int:
    """The divisor of `extent` up to `most` that fills warps best, the largest of equals."""
    divisors = [lanes for lanes in range(1, min(extent, most) + 1) if extent % lanes == 0]

    def filled(lanes: int) -> float:
        return lanes / (-(-lanes // warp) * warp)

    return max(divisors, key=lambda lanes: (filled(lanes) > 0.9, min(lanes, warp), lanes))


def _first_lanes(loop: UOp, axes: Sequence[UOp], warp: int) -> int:
    """How many lanes the contiguous axis may have: a warp, more where there are blocks enough."""
    work = int(prod(part.src[0].arg for part in axes))
    return _BLOCK if work >= _BLOCK * 512 else warp


def _power_below(number: int) -> int:
    return 1 << (number.bit_length() - 1)


def _pads_little(loop: UOp, size: int) -> bool:
    extent = loop.src[0].arg
    return bool(-(-extent // size) * size <= 1.34 * extent)
