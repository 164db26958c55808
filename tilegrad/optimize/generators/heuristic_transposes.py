"""Transposes on targets with blocks: elementwise work that reads along one axis and stores along
another.

A lane has a tile of registers: it loads vectors along the one axis and stores vectors along the
other. Together with its neighbours along both axes it reads and writes whole sectors of memory.
"""

from __future__ import annotations

from tilegrad.ir.op import Ops
from tilegrad.ir.queries import loads_of, stride_of
from tilegrad.ir.rules import terms_of
from tilegrad.ir.uop import UOp
from tilegrad.optimize.generators.block_shaper import BlockShaper
from tilegrad.optimize.opts.opt import OptOps

__all__ = ["share_transpose", "vectors_join"]


def share_transpose(shaper: BlockShaper) -> bool:
    """Shape a kernel that transposes; False where none of its loads is across its store."""
    store = shaper.store()
    stored = next((axis for axis in shaper.grid() if stride_of(store.index, axis) == 1), None)
    if stored is None:
        return False
    loads = loads_of(shaper.ast)
    across = [load for load in loads if (stride_of(load.index, stored) or 0) > 1]
    for axis in shaper.grid():
        read = [load for load in across if stride_of(load.index, axis) == 1]
        if axis is not stored and read and _share_tile(shaper, axis, stored, read):
            return True
    return False


def _share_tile(shaper: BlockShaper, axis: UOp, stored: UOp, read: list[UOp]) -> bool:
    """Share tiles of `axis`, which `read` run along, and of `stored`, which the store does; False
    where these are too few for a warp.
    """
    store, target, before = shaper.store(), shaper.target, shaper.ast
    dtypes = read[0].dtype, store.value.dtype
    sides = [
        min(_amount(load, axis, target.access_lanes(load.dtype)) for load in read),
        _amount(store, stored, target.access_lanes(dtypes[1])),
    ]
    while sides[0] * sides[1] > 2 * target.warp_lanes:
        longer = sides.index(max(sides))
        sides[longer] //= 2
    rest = [
        shaper.move(OptOps.UPCAST, loop, side) if side > 1 else loop
        for loop, side in zip((axis, stored), sides, strict=True)
    ]
    # In a warp, neighbours along the axis that is read fill a sector, and the others follow the
    # store.
    block, lanes = 4 * target.warp_lanes, 1
    filling = max(target.sector_bytes // dtypes[0].itemsize // sides[0], 1)
    for position, room in ((0, filling), (1, target.warp_lanes // filling), (0, block)):
        loop = rest[position]
        if loop is not None and (count := _divisor(loop, max(min(room, block // lanes), 1))) > 1:
            rest[position] = shaper.move(OptOps.LOCAL, loop, count)
            lanes *= count
    if 2 * lanes < target.warp_lanes:
        shaper.ast = before
        return False
    return True


def _amount(access: UOp, loop: UOp, most: int) -> int:
    """The widest vector, up to `most` elements, that an access may be along `loop`."""
    amount = most
    while amount > 1 and not (loop.extent.arg % amount == 0 and vectors_join(access, loop, amount)):
        amount //= 2
    return amount


def vectors_join(access: UOp, loop: UOp, amount: int) -> bool:
    """Whether `amount` steps of `loop` are one aligned vector of an access that `loop` moves by
    one.
    """
    rest = access.src[2:] if access.op is Ops.LOAD else access.src[3:]
    found = terms_of(access.index)
    if found is None or any(loop in node.ranges for node in rest):
        return False
    others = (scale * factor.divisor for factor, scale in found[0].items() if factor is not loop)
    return found[1] % amount == 0 and all(scale % amount == 0 for scale in others)


def _divisor(loop: UOp, most: int) -> int:
    return max(lanes for lanes in range(1, most + 1) if loop.extent.arg % lanes == 0)
