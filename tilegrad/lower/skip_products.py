"""Folds leave out products of zeros, where written-out loops have found them.

What lower.skip does with the turns of a loop, for windows whose places are written out: a 3x3
convolution of 7x7 pixels has another tenth less to do.
"""

from __future__ import annotations

from tilegrad.ir.op import Ops
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp
from tilegrad.target import Target

__all__ = ["skip_products"]


def skip_products(ast: UOp, target: Target) -> UOp:
    """`ast` without products of a zero that written-out loops have found: where all places of a
    window and all that it stands at are written out, the gate of each load is open or closed.

    before   REDUCE(LOAD(a, 0, 0, False) * LOAD(w, k), LOAD(a, 0, 0, True) * LOAD(w, k + 1), k)
    after    REDUCE(LOAD(a, 0, 0, True) * LOAD(w, k + 1), k)
    """
    mapping: dict[UOp, UOp] = {}
    closed: dict[UOp, bool] = {}
    for fold in ast.toposort():
        if fold.op is not Ops.REDUCE or fold.arg is not Ops.ADD:
            continue
        values = [part for part in fold.src if part.op is not Ops.RANGE]
        kept = [value for value in values if not _is_closed(value, closed)]
        if len(kept) < len(values):
            loops = [part for part in fold.src if part.op is Ops.RANGE]
            mapping[fold] = fold.replace(src=(*(kept or [UOp.const(fold.dtype, 0)]), *loops))
    return ast.substitute(mapping) if mapping else ast


def _is_closed(value: UOp, closed: dict[UOp, bool]) -> bool:
    """Whether `value` is a product of what a closed gate hides; `closed` says which gates, and
    products, are.
    """
    if value.op is Ops.MUL:
        if value not in closed:
            closed[value] = any(_is_closed(factor, closed) for factor in value.src)
        return closed[value]
    if value.op is Ops.VECTORIZE:
        return all(_is_closed(lane, closed) for lane in dict.fromkeys(value.src))
    if value.op is not Ops.LOAD or len(value.src) < 4 or not _is_zero(value.src[2]):
        return False
    gate = value.src[3]
    if gate not in closed:
        found = simplify(gate) if not gate.ranges else gate
        closed[gate] = found.op is Ops.CONST and not found.arg
    return closed[gate]


def _is_zero(value: UOp) -> bool:
    return value.op is Ops.CONST and bool(value.arg == 0)
