"""Rules for sums and products of index expressions.

The dtype `index` is unbounded, so the ordinary laws of arithmetic hold. To stay terminating, a rule either makes the
expression smaller or moves a constant to the right.
"""

from __future__ import annotations

from tilegrad.base.dtype import dtypes
from tilegrad.ir.matcher import PatternMatcher
from tilegrad.ir.op import Ops
from tilegrad.ir.pattern import Rule, UPat, fold
from tilegrad.ir.rules.terms import from_terms, terms_of
from tilegrad.ir.uop import UOp

__all__ = ["SUMS"]

x, y = UPat.wilds("x y", dtype=dtypes.index)
c0, c1 = UPat.constants("c0 c1")

SUMS = PatternMatcher("sums", [
    # constants gather on the right, where they fold
    Rule("fold-right",       (x + c0) + c1,          x + fold(c0 + c1)),
    Rule("gather-const",     (x + c0) + y,           (x + y) + c0, when=lambda y: y.op is not Ops.CONST),
    Rule("fold-factors",     (x * c0) * c1,          x * fold(c0 * c1)),
    Rule("spread-const",     (x + c0) * c1,          x * c1 + fold(c0 * c1)),
    Rule("spread-factor",    (x + y) * c0,           x * c0 + y * c0),
    Rule("max-of-less",      x.maximum(y),           x, when=lambda x, y: x.vmin >= y.vmax),
])  # fmt: skip


@SUMS.rule("collect-terms", UPat(Ops.ADD, dtype=dtypes.index, name="total"))
def collect_terms(total: UOp) -> UOp | None:
    """Terms with one factor become one term, and the terms of a division are combined.

    before   (i//4)*8 + (i%4)*2 + j - j
    after    i*2
    """
    if _is_collected(total):
        return None
    found = terms_of(total)
    if found is None:
        return None
    terms, constant = dict(found[0]), found[1]
    count = _leaf_count(total)
    joined = True
    while joined:
        joined = _join_division(terms)
    terms = {factor: scale for factor, scale in terms.items() if scale}
    if len(terms) + (constant != 0) >= count:
        return None
    return from_terms(terms.items(), constant, total)


def _is_collected(total: UOp) -> bool:
    """Whether each term has a factor of its own and no divisions can be combined, as in
    most sums.
    """
    seen: set[UOp | None] = set()
    stack = [total]
    while stack:
        term = stack.pop()
        op = term.op
        if op is Ops.ADD:
            stack += term.src
            continue
        factor: UOp | None = term
        if op is Ops.CONST:
            if not term.arg:
                return False
            factor = None
        elif op is Ops.MUL and term.src[1].op is Ops.CONST:
            factor = term.src[0]
            if factor.op in (Ops.ADD, Ops.MUL, Ops.CONST) or not term.src[1].arg:
                return False
            op = factor.op
        if op is Ops.FLOORMOD or factor in seen:
            return False
        seen.add(factor)
    return True


def _leaf_count(node: UOp) -> int:
    count, stack = 0, [node]
    while stack:
        term = stack.pop()
        if term.op is Ops.ADD:
            stack.extend(term.src)
        else:
            count += 1
    return count


def _join_division(terms: dict[UOp, int]) -> bool:
    """One step of y%c + (y//c)*c -> y and y%a + ((y//a)%b)*a -> y%(a*b), in place."""
    for factor, scale in terms.items():
        if factor.op is not Ops.FLOORMOD or factor.src[1].op is not Ops.CONST or not scale:
            continue
        base, modulus = factor.src[0], factor.src[1].arg
        quotient = _quotient(base, modulus)
        for other, other_scale in terms.items():
            if other_scale != scale * modulus:
                continue
            if other is quotient:
                del terms[factor], terms[other]
                _add_term(terms, base, scale)
                return True
            if (
                other.op is Ops.FLOORMOD
                and other.src[0] is quotient
                and other.src[1].op is Ops.CONST
            ):
                del terms[factor], terms[other]
                _add_term(terms, base % (modulus * other.src[1].arg), scale)
                return True
    return False


def _add_term(terms: dict[UOp, int], node: UOp, scale: int) -> None:
    """Add scale * node, itself perhaps a sum; a constant cannot occur, as `node` was the operand of a division."""
    found = terms_of(node)
    if found is None or found[1]:
        terms[node] = terms.get(node, 0) + scale
        return
    for factor, inner in found[0].items():
        terms[factor] = terms.get(factor, 0) + inner * scale


def _quotient(base: UOp, divisor: int) -> UOp:
    """base // divisor in the form that the division rules produce."""
    if base.op is Ops.FLOORDIV and base.src[1].op is Ops.CONST:
        return base.src[0] // (int(base.src[1].arg) * divisor)
    return base // divisor
