"""Rules for sums and products of index expressions.

The dtype `index` is unbounded, so the ordinary laws of arithmetic hold. To stay terminating, a rule either makes the
expression smaller or moves a constant to the right.

`terms_of` gives an index expression as a sum of terms, with which the rules for division, modulo
and comparison work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tilegrad.base.dtype import dtypes
from tilegrad.ir.matcher import PatternMatcher
from tilegrad.ir.op import Ops
from tilegrad.ir.pattern import Rule, UPat, fold
from tilegrad.ir.uop import UOp

__all__ = [
    "SUMS",
    "conjuncts",
    "difference_of",
    "from_terms",
    "shared_terms",
    "terms_of",
    "without_negation",
]

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


_MOST = 64
# Coefficients by factor, and a constant.
Sum = tuple[Mapping[UOp, int], int]


def terms_of(node: UOp) -> Sum | None:
    """`node` as ({factor: coefficient}, constant), like factors gathered; None if it has too many
    terms. The result is cached for a sum, as each loop asks for its own term.
    """
    found = node._terms
    if found is None:
        found = _gathered(node)
        # No other node may keep its result, which can have the node itself.
        if node.op is Ops.ADD:
            node._terms = found
    return found


def _gathered(node: UOp) -> Sum | None:
    terms: dict[UOp, int] = {}
    constant = 0
    term, scale = node, 1
    # Right operands wait while the left ones are gathered.
    waiting: list[tuple[UOp, int]] = []
    for _ in range(_MOST):
        op = term.op
        if op is Ops.ADD:
            term, right = term.src
            waiting.append((right, scale))
            continue
        if op is Ops.MUL and term.src[1].op is Ops.CONST:
            term, factor = term.src
            scale *= factor.arg
            continue
        if op is Ops.CONST:
            constant += term.arg * scale
        else:
            terms[term] = terms.get(term, 0) + scale
        if not waiting:
            return terms, constant
        term, scale = waiting.pop()
    return None


def from_terms(terms: Iterable[tuple[UOp, int]], constant: int, like: UOp) -> UOp:
    """The sum of `coefficient * factor` and `constant`, in the dtype of `like`."""
    total: UOp | None = None
    for factor, coefficient in terms:
        if coefficient == 0:
            continue
        term = factor if coefficient == 1 else factor * coefficient
        total = term if total is None else total + term
    if total is None:
        return UOp.const(like.dtype, constant)
    return total + constant if constant else total


def difference_of(ours: Sum, theirs: Sum) -> Sum:
    """The terms of one sum less those of another; a coefficient may be 0."""
    terms = dict(ours[0])
    for factor, scale in theirs[0].items():
        terms[factor] = terms.get(factor, 0) - scale
    return terms, ours[1] - theirs[1]


def shared_terms(
    indices: Sequence[UOp], bits: Sequence[UOp]
) -> tuple[list[int], list[int], dict[UOp, int]] | None:
    """For indices that differ by a constant only: the coefficient of each of `bits`, the constants,
    and the other terms. None if a bit is in one of these, or the indices differ in more.
    """
    found = [terms_of(index) for index in indices]
    first = found[0]
    if first is None or any(each is None or each[0] != first[0] for each in found):
        return None
    rest = {term: scale for term, scale in first[0].items() if term not in bits}
    if any(bit in term.ranges for term in rest for bit in bits):
        return None
    constants = [each[1] for each in found if each is not None]
    return [first[0].get(bit, 0) for bit in bits], constants, rest


def without_negation(condition: UOp) -> tuple[UOp, bool]:
    """The test that a condition is, and whether it is negated."""
    if condition.op is not Ops.XOR:
        return condition, False
    test, other = condition.src
    is_negated = other.op is Ops.CONST and other.arg is True
    return (test if is_negated else condition), is_negated


def conjuncts(condition: UOp) -> list[UOp]:
    """The operands of a conjunction, left to right."""
    found: list[UOp] = []
    stack = [condition]
    while stack:
        conjunct = stack.pop()
        if conjunct.op is Ops.AND:
            stack += [conjunct.src[1], conjunct.src[0]]
        else:
            found.append(conjunct)
    return found
