"""Sums of terms: the form of index expressions that the rules for division, modulo and comparison
use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

__all__ = [
    "conjuncts",
    "difference_of",
    "from_terms",
    "shared_terms",
    "terms_of",
    "without_negation",
]

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
