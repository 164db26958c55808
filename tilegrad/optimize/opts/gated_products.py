"""Sums of products whose terms are chosen by a condition, as the gradients of padded convolutions.

A factor that is loaded behind the same condition is 0 elsewhere, and so is the product: without the
choice the sum is a product of matrices, which tiles and matrix units know. As in the convolution
itself, a weight that is infinite or NaN then makes NaN of the padding that it meets.
"""

from __future__ import annotations

from tilegrad.ir.op import Ops
from tilegrad.ir.queries import below_casts, is_const
from tilegrad.ir.rules import conjuncts
from tilegrad.ir.uop import UOp

__all__ = ["without_choices"]


def without_choices(ast: UOp) -> UOp:
    """`ast` with plain products in its sums.

    before   REDUCE(WHERE(c, LOAD(a, i, 0, c) * LOAD(b, j), 0), k, ADD)
    after    REDUCE(LOAD(a, i, 0, c) * LOAD(b, j), k, ADD)
    """
    mapping = {
        node.src[0]: value
        for node in ast.toposort()
        if node.op is Ops.REDUCE and node.arg is Ops.ADD
        if (value := _product_of(node.src[0])) is not None
    }
    return ast.substitute(mapping) if mapping else ast


def _product_of(term: UOp) -> UOp | None:
    if term.op is not Ops.WHERE or not is_const(term.src[2], 0):
        return None
    condition, value, _ = term.src
    product = below_casts(value)
    if product.op is not Ops.MUL:
        return None
    known = set(conjuncts(condition))
    return value if any(_is_zero_outside(factor, known) for factor in product.src) else None


def _is_zero_outside(factor: UOp, condition: set[UOp]) -> bool:
    """Whether a factor is 0 wherever not all of `condition` holds."""
    factor = below_casts(factor)
    return (
        factor.op is Ops.LOAD
        and factor.is_gated
        and is_const(factor.other, 0)
        and condition <= set(conjuncts(factor.gate))
    )
