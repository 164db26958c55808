"""STAGE: copy the part of an operand that the inner loops need, packed, to memory nearer by.

The part becomes a DEFINE_LOCAL that lives inside the loops outside of it, filled by a nest of its
own. On a CPU the place is scratch that stays in a cache; on a target with blocks it is shared
memory, filled by all lanes between barriers.
"""

from __future__ import annotations

from tilegrad.base.dtype import Place, dtypes
from tilegrad.base.errors import OptError
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp, prod
from tilegrad.optimize.opt import Opt, axes_of, loop_order
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
    size = int(prod(part.vmax + 1 for part in inner))
    if size * load.dtype.itemsize > target.cache_bytes[-1]:
        raise OptError(
            f"stage: {size * load.dtype.itemsize} bytes do not fit the caches of {target.name}",
            opt=opt,
        )
    number = next_number(ast)
    fresh = {
        part: UOp.range(part.src[0], number + place, _copy_axis(part, place == len(inner) - 1))
        for place, part in enumerate(inner)
    }
    numbers = [node.arg for node in ast.toposort() if node.op is Ops.DEFINE_LOCAL]
    lives_in = tuple(part for part in outer if part in used or _encloses(part, load))
    memory = UOp(
        Ops.DEFINE_LOCAL,
        load.dtype.ptr(size, Place.SCRATCH),
        lives_in,
        1 + max(numbers, default=-1),
    )
    position, stride = UOp.const(dtypes.index, 0), 1
    for part in reversed(inner):
        position = part * stride + position
        stride *= part.vmax + 1
    position = simplify(position)
    copied = load.substitute(fresh)
    filled = memory.after(memory.store(position.substitute(fresh), copied).end(*fresh.values()))
    return simplify(ast.substitute({load: filled.load(position, dtype=load.dtype)}))


def _copy_axis(part: UOp, is_last: bool) -> Axis:
    """A written-out axis stays so in the copy where it is the packed one; the others are loops."""
    return Axis.UPCAST if is_last and part.arg[1] in (Axis.UPCAST, Axis.UNROLL) else Axis.STAGE


def _encloses(part: UOp, load: UOp) -> bool:
    return part in load.ranges
