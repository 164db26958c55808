"""Reductions without the products of zeros that unrolling exposes.

It is the counterpart of lower.skip for unrolled filter windows: another tenth of a 3x3 convolution
of 7x7 pixels, and three quarters of the gradient of an average over 5x5 pixels with stride 2.
"""

from __future__ import annotations

from tilegrad.ir.op import Ops
from tilegrad.ir.queries import is_const, loops_of, values_of
from tilegrad.ir.rules import conjuncts, simplify
from tilegrad.ir.uop import UOp
from tilegrad.target import Target

__all__ = ["skip_products"]


def skip_products(ast: UOp, target: Target) -> UOp:
    """`ast` without products of a constant zero. Where a filter window and the positions it is
    applied to are unrolled, the gate of each load is constant, or conditions of it are.

    before   REDUCE(LOAD(a, 0, 0, False) * LOAD(w, k), LOAD(a, 0, 0, True) * LOAD(w, k + 1), k)
    after    REDUCE(LOAD(a, 0, 0, True) * LOAD(w, k + 1), k)
    """
    mapping: dict[UOp, UOp] = {}
    closed: dict[UOp, bool] = {}
    for reduce in ast.toposort():
        if reduce.op is not Ops.REDUCE or reduce.arg is not Ops.ADD:
            continue
        values = values_of(reduce)
        left = [value for value in values if not _is_nothing(value, closed)]
        if len(left) < len(values):
            loops = loops_of(reduce)
            mapping[reduce] = reduce.replace(src=(*(left or [UOp.const(reduce.dtype, 0)]), *loops))
    return ast.substitute(mapping) if mapping else ast


def _is_nothing(value: UOp, closed: dict[UOp, bool]) -> bool:
    """Whether `value` is a zero that is known: a constant, a product with a closed load, or a
    choice between such values.
    """
    sides = [value]
    while sides:
        side = sides.pop()
        if side.op is Ops.WHERE:
            condition, then, other = side.src
            sides += [other] if _is_false(condition, closed) else [other, then]
        elif not is_const(side, 0) and not _is_closed(side, closed):
            return False
    return True


def _is_closed(value: UOp, closed: dict[UOp, bool]) -> bool:
    """Whether `value` is a product with a load whose gate is closed; `closed` caches answers for
    conditions and products.
    """
    if value.op is Ops.MUL:
        if value not in closed:
            closed[value] = any(_is_closed(factor, closed) for factor in value.src)
        return closed[value]
    if value.op is Ops.VECTORIZE:
        return all(_is_closed(lane, closed) for lane in dict.fromkeys(value.src))
    if value.op is not Ops.LOAD or not value.is_gated or not is_const(value.other, 0):
        return False
    return _is_false(value.gate, closed)


def _is_false(condition: UOp, closed: dict[UOp, bool]) -> bool:
    """Whether some operand of a conjunction never holds, in no lane if it is a vector."""
    if condition not in closed:
        closed[condition] = any(
            all(_never_holds(lane, closed) for lane in dict.fromkeys(each.src))
            if each.op is Ops.VECTORIZE
            else _never_holds(each, closed)
            for each in conjuncts(condition)
        )
    return closed[condition]


def _never_holds(condition: UOp, closed: dict[UOp, bool]) -> bool:
    """Whether some operand of a conjunction is known to be false, as no loop moves it."""
    for each in conjuncts(condition):
        if each.ranges:
            continue
        if each not in closed:
            found = simplify(each)
            closed[each] = found.op is Ops.CONST and not found.arg
        if closed[each]:
            return True
    return False
