"""Which sums of products run on a dot unit, and how: a register tile whose operands lie in the
unit's order.

The unit takes k neighbours of the fold at once: a vector k times as long of the operand that the
lanes move, and k elements of the other one, the same for all lanes. So the first is always packed
in a panel whose innermost axis is the unit's part of the fold; the other is, too, unless memory has
those elements side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tilegrad.base.config import config
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.rules import terms_of
from tilegrad.ir.uop import UOp
from tilegrad.optimize.dots import Dot, find_dots, narrow
from tilegrad.optimize.opt import Opt, OptOps, axes_of, loop_order
from tilegrad.optimize.overlap import dimensions
from tilegrad.target import MatrixUnit, Target

__all__ = ["Shaper", "use_dots"]

# Fewer products are made faster than their operands are packed.
_WORTH_DOTS = 1 << 12
# The share of a padded fold that must be the fold.
_WORTH_PADDING = 0.7


class Shaper(Protocol):
    """What the heuristic offers: a kernel, and moves that are left out where they are refused."""

    ast: UOp
    target: Target

    def move(self, op: OptOps, loop: UOp | None, arg: object) -> bool: ...
    def apply(self, opt: Opt) -> bool: ...
    def split_to(self, loop: UOp, op: OptOps, amount: int) -> bool: ...
    def pack(self, slot: int, panel: int, least: int) -> None: ...
    def stage(self, slot: int, place: UOp | None) -> bool: ...
    def stage_window(self, slot: int) -> None: ...
    def outputs(self) -> list[UOp]: ...
    def put_first(self, loops: list[UOp]) -> None: ...
    def work(self) -> int: ...
    def tile_size(self, lanes: UOp, fold: UOp) -> int: ...
    def write_rows(self, rows: list[UOp], vectors: int) -> None: ...
    def packed_bytes(self, slot: int) -> int: ...


def use_dots(shaper: Shaper, lanes: UOp, rows: list[UOp], fold: UOp) -> bool:
    """Give `fold` to a dot unit, its results in a tile of `lanes` by `rows`. False, and the kernel
    as it was, where none fits.
    """
    before = shaper.ast
    if not config.TC or shaper.work() < _WORTH_DOTS:
        return False
    for number, unit in enumerate(shaper.target.matrix_units):
        if not unit.is_dot:
            continue
        dots = [dot for dot in find_dots(shaper.ast, unit) if dot.fold is fold]
        depth = _best_depth(dots, lanes, unit)
        if depth is None:
            continue
        if _Tile(shaper, unit, number).run(lanes, rows, depth, fold):
            return True
        shaper.ast = before
    return False


def _best_depth(dots: list[Dot], lanes: UOp, unit: MatrixUnit) -> UOp | None:
    """The axis of the fold that the unit takes a part of: one that needs little padding, along
    which what the lanes do not move is contiguous.
    """
    found: list[tuple[float, bool, int, UOp]] = []
    for dot in dots:
        if lanes in dot.left.ranges or lanes not in dot.right.ranges:
            continue
        extent = dot.depth.src[0].arg
        padded = -(-extent // unit.k) * unit.k
        if dot.depth.arg[1] is Axis.REDUCE and extent >= _WORTH_PADDING * padded:
            share = min(extent / padded, 0.95)
            found.append((share, _is_side_by_side(dot.left, dot.depth), extent, dot.depth))
    return max(found, key=lambda each: each[:3])[3] if found else None


def _is_side_by_side(side: UOp, depth: UOp) -> bool:
    """Whether memory has what the unit takes as it is."""
    if side.op is not Ops.LOAD or len(side.src) != 2:
        return False
    found = terms_of(side.src[1])
    return found is not None and found[0].get(depth) == 1


class _Tile:
    def __init__(self, shaper: Shaper, unit: MatrixUnit, number: int):
        self.shaper, self.unit, self.number = shaper, unit, number

    def run(self, lanes: UOp, rows: list[UOp], depth: UOp, fold: UOp) -> bool:
        shaper, unit = self.shaper, self.unit
        step = shaper.tile_size(lanes, fold)
        iterations = 1
        for part in fold.src[1:]:
            iterations *= int(part.vmax) + 1
        if not shaper.split_to(lanes, OptOps.UPCAST, step):
            return False
        written = self.newest(Axis.UPCAST)
        shaper.write_rows(rows, max(step // shaper.target.lanes_of(fold.dtype), 1))
        if not shaper.split_to(depth, OptOps.UNROLL, unit.k):
            return False
        own = self.newest(Axis.UNROLL)
        name = self.side(lambda side: written in side.ranges)
        if name is None:
            return False
        packed = shaper.ast
        shaper.pack(name, iterations * step * unit.dtype_in.itemsize, 1)
        if shaper.ast is packed:
            return False
        self.place_rows(written, own)
        return self.use(written, own)

    def newest(self, kind: Axis) -> UOp:
        """The axis that was made last."""
        return [part for part in axes_of(self.shaper.ast) if part.arg[1] is kind][-1]

    def product(self) -> UOp | None:
        dots = find_dots(self.shaper.ast, self.unit)
        return dots[0].fold.src[0] if dots else None

    def side(self, wanted: Callable[[UOp], bool]) -> int | None:
        """What STAGE calls the factor that is `wanted`, without what it is cast to."""
        product = self.product()
        if product is None:
            return None
        return next((-3 - place for place, side in enumerate(product.src) if wanted(side)), None)

    def place_rows(self, written: UOp, own: UOp) -> None:
        """Copy the operand that the lanes do not move, where the unit could not take it as it is:
        as a whole if that fits a cache, else as much of its rows as does.
        """
        shaper = self.shaper
        name, product = self.side(lambda side: written not in side.ranges), self.product()
        if name is None or product is None:
            return
        value = narrow(product.src[-3 - name])
        if _is_side_by_side(value, own):
            return
        limit = shaper.target.cache_bytes[1] // 2
        if shaper.packed_bytes(name) <= limit and shaper.stage(name, None):
            return
        inner = [part for part in loop_order(shaper.ast) if part in value.ranges]
        if any(each.is_window for each in dimensions(value, inner)):
            shaper.stage_window(name)
            return
        for loop in [part for part in shaper.outputs() if part in value.ranges]:
            extent = loop.src[0].arg
            nbytes = shaper.packed_bytes(name)
            counts = (count for count in range(extent - 1, 0, -1) if extent % count == 0)
            fits = next((count for count in counts if nbytes * count // extent <= limit), None)
            if fits is not None and (
                shaper.stage(name, loop) if fits == 1 else self.stage_rows(loop, fits, name)
            ):
                return

    def stage_rows(self, loop: UOp, count: int, name: int) -> bool:
        """Copies of `count` iterations of `loop`, outside of all loops that use them."""
        shaper = self.shaper
        before = shaper.ast
        if shaper.move(OptOps.TILE, loop, count) and shaper.stage(name, loop_order(shaper.ast)[0]):
            return True
        shaper.ast = before
        return False

    def use(self, written: UOp, own: UOp) -> bool:
        for choice, dot in enumerate(find_dots(self.shaper.ast, self.unit)):
            if dot.depth is own and written not in dot.left.ranges:
                return self.shaper.apply(Opt(OptOps.TC, choice, (self.number, config.TC)))
        return False
