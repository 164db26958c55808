"""Which part of the launch runs an axis: blocks, lanes of a block, or chunks that threads take."""

from __future__ import annotations

from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp, prod

__all__ = ["use_grid"]

_GRID_AXES = 3
_NAMES = {Axis.GLOBAL: "gidx", Axis.LOCAL: "lidx", Axis.GROUP: "lidx"}


def use_grid(ast: UOp) -> UOp:
    """Ranges that the launch runs become SPECIAL.

    A launch has three axes of each kind; the outermost axes share the last one.

    before   RANGE(16, GLOBAL)
    after    SPECIAL("gidx0", 16)
    """
    place = {number: rank for rank, number in enumerate(ast.arg.order)}
    ranges = sorted(
        (node for node in ast.toposort() if node.op is Ops.RANGE), key=lambda node: place.get(node.arg[0], len(place) + node.arg[0])
    )
    mapping: dict[UOp, UOp] = {part: _special("chunk", part.src[0]) for part in ranges if part.arg[1] is Axis.THREAD}
    for kinds in ((Axis.GLOBAL,), (Axis.LOCAL, Axis.GROUP)):
        axes = [part for part in ranges if part.arg[1] in kinds]
        name = _NAMES[kinds[0]]
        crowded = axes[: max(len(axes) - _GRID_AXES + 1, 0)] if len(axes) > _GRID_AXES else []
        if crowded:
            position = _special(f"{name}0", UOp.const(dtypes.index, int(prod(part.src[0].vmax for part in crowded))))
            for part in reversed(crowded):
                mapping[part] = position % part.src[0]
                position = position // part.src[0]
        for number, part in enumerate(axes[len(crowded) :]):
            mapping[part] = _special(f"{name}{number + bool(crowded)}", part.src[0])
    return simplify(ast.substitute(mapping))


def _special(name: str, extent: UOp) -> UOp:
    return UOp(Ops.SPECIAL, dtypes.index, (), (name, extent.arg if extent.op is Ops.CONST else extent))
