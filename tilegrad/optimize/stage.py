"""STAGE: copy the part of an operand that the inner loops need, packed, to memory nearer by.

The part becomes a DEFINE_LOCAL that lives inside the loops outside of it, filled by a nest of its
own. On a CPU the place is scratch that stays in a cache; on a target with blocks it is shared
memory, filled by all lanes between barriers.
"""

from __future__ import annotations

import math

from tilegrad.base.dtype import Place, dtypes
from tilegrad.base.errors import OptError
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.ranges import gated_load
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp, prod
from tilegrad.optimize.opt import Opt, axes_of, loop_order
from tilegrad.optimize.overlap import Dimension, dimensions
from tilegrad.optimize.split import next_number
from tilegrad.target import Target

__all__ = ["stage"]


def stage(ast: UOp, opt: Opt, target: Target) -> UOp:
    """`Opt(STAGE, axis, operand)` or `Opt(STAGE, axis, (operand, order))`: copy what is read of
    parameter number `operand` inside the loop `axis`. `order` names the packed dimensions, as
    positions among the inner ranges that the operand's index uses, outermost first; by default
    loops come before written-out axes.

    before   LOAD(b, k*N + j)                                  loops: K, i, j, k
    after    LOAD(AFTER(scratch, END(STORE(scratch, ...))), ...) filled once for each iteration of
    the loop K
    """
    operand, order = opt.arg if isinstance(opt.arg, tuple) else (opt.arg, None)
    axes = axes_of(ast)
    if opt.axis is None or not -1 <= opt.axis < len(axes):
        raise OptError(f"stage: axis {opt.axis} of a kernel with {len(axes)} axes", opt=opt)
    if target.has_locals:
        raise OptError(
            f"stage: {target.name} has blocks; use TC or GROUP, whose operands pass through "
            f"shared memory",
            opt=opt,
        )
    loads = [
        node
        for node in ast.toposort()
        if node.op is Ops.LOAD
        and node.src[0].op is Ops.DEFINE_GLOBAL
        and node.src[0].arg == operand
    ]
    if len(loads) != 1:
        raise OptError(
            f"stage: parameter {operand} is loaded at {len(loads)} places, not one", opt=opt
        )
    (load,) = loads
    loops = loop_order(ast)
    depth = -1 if opt.axis == -1 else loops.index(axes[opt.axis])
    used = load.ranges
    outer = [part for part in loops[: depth + 1] if part.arg[1] not in (Axis.UPCAST, Axis.UNROLL)]
    inner = [part for part in loops if part in used and part not in outer]
    if not inner:
        raise OptError(f"stage: no loop inside axis {opt.axis} uses parameter {operand}", opt=opt)
    if order is not None:
        if sorted(order) != list(range(len(inner))):
            raise OptError(
                f"stage: {order} does not order the {len(inner)} inner ranges of parameter "
                f"{operand}",
                opt=opt,
            )
        inner = [inner[place] for place in order]
    packed = [Dimension({part: 1}) for part in inner]
    if order is None:
        packed = dimensions(load, inner)
    step = _step(packed[-1], load, target)
    last = -(-packed[-1].extent // step) * step
    size = int(prod(each.extent for each in packed[:-1])) * last
    if size * load.dtype.itemsize > target.cache_bytes[-1]:
        raise OptError(
            f"stage: {size * load.dtype.itemsize} bytes do not fit the caches of {target.name}",
            opt=opt,
        )
    numbers = [node.arg for node in ast.toposort() if node.op is Ops.DEFINE_LOCAL]
    memory = UOp(
        Ops.DEFINE_LOCAL,
        load.dtype.ptr(size, Place.SCRATCH),
        tuple(part for part in outer if part in used),
        1 + max(numbers, default=-1),
    )
    number, nest = next_number(ast), []
    places: list[UOp] = []
    is_written = inner[-1].arg[1] in (Axis.UPCAST, Axis.UNROLL)
    for each in packed:
        lanes = 1
        if each is packed[-1]:
            lanes = step if step > 1 else each.extent if is_written else 1
        elif is_written and each.moves(load) == 1 and packed[-1].moves(load) != 1:
            # Neighbours in memory are not neighbours in the copy: a tile of both is turned.
            lanes = math.gcd(each.extent, target.lanes_of(load.dtype))
        place, parts = _place(each.extent, lanes, number)
        places.append(place)
        nest += parts
        number += 2
    copied = load.substitute(
        {
            part: at
            for each, place in zip(packed, places, strict=True)
            for part, at in each.ranges_at(place).items()
        }
    )
    if last != packed[-1].extent:
        copied = gated_load(copied, places[-1] < packed[-1].extent)
    position, filled_at, stride = UOp.const(dtypes.index, 0), UOp.const(dtypes.index, 0), 1
    for each, place in reversed(list(zip(packed, places, strict=True))):
        position, filled_at = each.position * stride + position, place * stride + filled_at
        stride *= last if each is packed[-1] else each.extent
    filled = memory.store(simplify(filled_at), copied).end(*nest)
    read = memory.after(filled).load(simplify(position), dtype=load.dtype)
    return simplify(ast.substitute({load: read}))


def _step(packed: Dimension, load: UOp, target: Target) -> int:
    """How many elements of the last dimension are copied at once where it is a window: as many as a
    vector holds; the window is rounded up to that.
    """
    if not packed.is_window or not target.has_mask:
        return 1
    return min(target.lanes_of(load.dtype), 1 << (packed.extent - 1).bit_length())


def _place(extent: int, lanes: int, number: int) -> tuple[UOp, list[UOp]]:
    """A place in a dimension of `extent` elements, `lanes` of them written out, and the ranges that
    go over it.
    """
    count = -(-extent // lanes)
    if lanes == 1:
        place = UOp.range(count, number, Axis.STAGE)
        return place, [place]
    lane = UOp.range(lanes, number + 1, Axis.UPCAST)
    if count == 1:
        return lane, [lane]
    loop = UOp.range(count, number, Axis.STAGE)
    return loop * lanes + lane, [loop, lane]
