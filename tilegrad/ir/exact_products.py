"""Sums of products whose dtype is shorter than that of the sum: no product is rounded before.

A product of two halves or bfloat16 is exact in float32, and so is one of floats of 8 bits. Rounded
first, a product of fp8e4m3 has 4 binary digits, and is NaN from 480 on.
"""

from __future__ import annotations

from collections.abc import Callable

from tilegrad.base.dtype import DType
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

__all__ = ["exact_products"]


def exact_products(ast: UOp, wanted: Callable[[DType], bool] = lambda dtype: True) -> UOp:
    """Also of products that are summed only where a condition holds; `wanted` is asked for the
    dtype of a product.

    before   REDUCE(CAST(a * b), k, ADD)                    a, b: half
    after    REDUCE(CAST(a) * CAST(b), k, ADD)
    """
    mapping: dict[UOp, UOp] = {}
    for node in ast.toposort():
        if node.op is Ops.REDUCE and node.arg is Ops.ADD and node.dtype.is_float:
            (value, *_) = node.src
            exact = _exact(value, wanted)
            if exact is not value:
                mapping[value] = exact
    return ast.substitute(mapping) if mapping else ast


def _exact(value: UOp, wanted: Callable[[DType], bool]) -> UOp:
    """A term of a sum, with its product in the dtype of the sum."""
    if value.op is Ops.WHERE:
        condition, *sides = value.src
        made = [_exact(side, wanted) for side in sides]
        return value if made == sides else condition.where(*made)
    if value.op is not Ops.CAST:
        return value
    dtype, inner = value.dtype, value.src[0]
    if not inner.dtype.is_float or inner.dtype.itemsize >= dtype.itemsize:
        return value
    if inner.op is Ops.MUL and wanted(inner.dtype.scalar):
        return inner.src[0].cast(dtype) * inner.src[1].cast(dtype)
    if inner.op is Ops.WHERE:
        condition, *sides = inner.src
        made = [_exact(side.cast(dtype), wanted) for side in sides]
        is_exact = any(new is not side.cast(dtype) for new, side in zip(made, sides))
        return condition.where(*made) if is_exact else value
    return value
