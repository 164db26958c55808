"""Sums of terms: the form of index expressions that the rules for division, modulo and comparison
use.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

__all__ = ["conjuncts", "from_terms", "terms_of"]

_MOST = 64


def terms_of(node: UOp) -> tuple[dict[UOp, int], int] | None:
    """`node` as ({factor: coefficient}, constant), like factors gathered; None if it has too many terms."""
    terms: dict[UOp, int] = {}
    constant = 0
    stack = [(node, 1)]
    count = 0
    while stack:
        term, scale = stack.pop()
        count += 1
        if count > _MOST:
            return None
        op = term.op
        if op is Ops.ADD:
            left, right = term.src
            stack.append((right, scale))
            stack.append((left, scale))
        elif op is Ops.CONST:
            constant += term.arg * scale
        elif op is Ops.MUL and term.src[1].op is Ops.CONST:
            stack.append((term.src[0], scale * term.src[1].arg))
        else:
            terms[term] = terms.get(term, 0) + scale
    return terms, constant


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
