"""An index expression as a sum of terms: the form in which division, modulo and comparison are decided."""

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
        part, scale = stack.pop()
        count += 1
        if count > _MOST:
            return None
        op = part.op
        if op is Ops.ADD:
            left, right = part.src
            stack.append((right, scale))
            stack.append((left, scale))
        elif op is Ops.CONST:
            constant += part.arg * scale
        elif op is Ops.MUL and part.src[1].op is Ops.CONST:
            stack.append((part.src[0], scale * part.src[1].arg))
        else:
            terms[part] = terms.get(part, 0) + scale
    return terms, constant


def from_terms(terms: Iterable[tuple[UOp, int]], constant: int, like: UOp) -> UOp:
    """The sum of `coefficient * factor` and `constant`, in the dtype of `like`."""
    total: UOp | None = None
    for factor, coefficient in terms:
        if coefficient == 0:
            continue
        part = factor if coefficient == 1 else factor * coefficient
        total = part if total is None else total + part
    if total is None:
        return UOp.const(like.dtype, constant)
    return total + constant if constant else total


def conjuncts(condition: UOp) -> list[UOp]:
    """The parts of a conjunction, left to right."""
    found: list[UOp] = []
    stack = [condition]
    while stack:
        part = stack.pop()
        if part.op is Ops.AND:
            stack += [part.src[1], part.src[0]]
        else:
            found.append(part)
    return found
