"""Reductions without the products of zeros that unrolling exposes.

It is the counterpart of lower.skip for unrolled filter windows: another tenth of a 3x3 convolution
of 7x7 pixels.
"""

from __future__ import annotations

from tilegrad.ir.op import Ops
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp
from tilegrad.target import Target

__all__ = ["skip_products"]


def skip_products(ast: UOp, target: Target) -> UOp:
    """`ast` without products of a constant zero. Where a filter window and the positions it is
    applied to are unrolled, the gate of each load is constant.

    before   REDUCE(LOAD(a, 0, 0, False) * LOAD(w, k), LOAD(a, 0, 0, True) * LOAD(w, k + 1), k)
    after    REDUCE(LOAD(a, 0, 0, True) * LOAD(w, k + 1), k)
    """
    mapping: dict[UOp, UOp] = {}
    closed: dict[UOp, bool] = {}
    for reduce in ast.toposort():
        if reduce.op is not Ops.REDUCE or reduce.arg is not Ops.ADD:
            continue
        values = [source for source in reduce.src if source.op is not Ops.RANGE]
        left = [value for value in values if not _is_closed(value, closed)]
        if len(left) < len(values):
            loops = [source for source in reduce.src if source.op is Ops.RANGE]
            mapping[reduce] = reduce.replace(src=(*(left or [UOp.const(reduce.dtype, 0)]), *loops))
    return ast.substitute(mapping) if mapping else ast


def _is_closed(value: UOp, closed: dict[UOp, bool]) -> bool:
    """Whether `value` is a product with a load whose gate is closed; `closed` caches answers for
    gates and products.
    """
    if value.op is Ops.MUL:
        if value not in closed:
            closed[value] = any(_is_closed(factor, closed) for factor in value.src)
        return closed[value]
    if value.op is Ops.VECTORIZE:
        return all(_is_closed(lane, closed) for lane in dict.fromkeys(value.src))
    if value.op is not Ops.LOAD or not value.is_gated or not _is_zero(value.src[2]):
        return False
    gate = value.gate
    if gate not in closed:
        found = simplify(gate) if not gate.ranges else gate
        closed[gate] = found.op is Ops.CONST and not found.arg
    return closed[gate]


def _is_zero(value: UOp) -> bool:
    return value.op is Ops.CONST and bool(value.arg == 0)
