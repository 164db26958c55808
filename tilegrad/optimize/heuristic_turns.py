"""Tiles that are turned in registers: what is stored along one axis is loaded along another.

Which of the two loops over tiles runs inside decides what memory sees: a tile's rows in the memory
along which that loop goes follow those of the tile before, the other's begin anew each time, as far
apart as its stride says.
"""

from __future__ import annotations

from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.optimize.facts import padded_to, power_in, stores, stride
from tilegrad.optimize.opt import OptOps, axes_of
from tilegrad.optimize.shaper import Shaper

__all__ = ["turn"]

# The least side of a tile.
_LEAST = 4
# An axis that is longer by more than this, as whole vectors, is cut into halves of them.
_MUCH_LONGER = 1.15


def turn(shaper: Shaper, loop: UOp, width: int) -> bool:
    """A tile of vectors along `loop`, the axis that is stored, and along one that is loaded; False
    where there is none.
    """
    loads = [node for node in shaper.ast.toposort() if node.op is Ops.LOAD]
    index = stores(shaper.ast)[0].src[1]
    for other in shaper.outputs():
        if other is loop or not any(
            stride(load.src[1], other) == 1 and stride(load.src[1], loop) not in (0, 1)
            for load in loads
        ):
            continue
        before = shaper.ast
        far = max(abs(stride(load.src[1], loop) or 0) for load in loads)
        axes = axes_of(shaper.ast)
        if far > abs(stride(index, other) or 0) and axes.index(other) < axes.index(loop):
            shaper.move(OptOps.SWAP, loop, axes.index(other))
        if all(_written(shaper, part, width) for part in (other, loop)):
            return True
        shaper.ast = before
    return False


def _written(shaper: Shaper, loop: UOp, width: int) -> bool:
    """Write out as much of `loop` as one side of a tile has."""
    extent = loop.src[0]
    divisor = power_in(extent, width)
    if extent.op is not Ops.CONST or divisor == width or extent.arg < width:
        return divisor >= _LEAST and shaper.move(OptOps.UPCAST, loop, divisor)
    side = width if padded_to(extent.arg, width) <= _MUCH_LONGER * extent.arg else width // 2
    return side >= _LEAST and shaper.overlap_to(loop, side)
