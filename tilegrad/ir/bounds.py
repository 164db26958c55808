"""Bounds of integer nodes: the smallest and largest value, and a constant divisor.

Interval arithmetic over the graph. A fixed-width integer whose interval exceeds its dtype may have
wrapped, so its bounds are the dtype's; `index` never wraps.
"""

from __future__ import annotations

import math
from typing import Any

from tilegrad.base.dtype import DType
from tilegrad.ir.op import Ops

__all__ = ["bounds_of", "combined", "dividend_of", "divisor_of"]

Bounds = tuple[Any, Any]
_BINARY = frozenset({
    Ops.ADD, Ops.SUB, Ops.MUL, Ops.MAX, Ops.FLOORDIV, Ops.FLOORMOD, Ops.IDIV, Ops.MOD, Ops.CMPLT,
    Ops.CMPNE, Ops.CMPEQ,
})  # fmt: skip


def bounds_of(node: Any) -> Bounds:
    """(smallest, largest) of `node`, whose sources have theirs; floats have a constant or their
    dtype's range.
    """
    if node.op is Ops.CONST:
        return node.arg, node.arg
    dtype = node.dtype
    kind = dtype.kind
    if kind == "index":
        found = _interval(node)
        return _limits(dtype) if found is None else found
    low, high = _limits(dtype)
    if kind not in _INTEGERS:
        return low, high
    found = _interval(node)
    if found is None or found[0] < low or found[1] > high:
        return low, high
    return found


_INTEGERS = ("int", "uint", "bool")
_limits_of: dict[DType, Bounds] = {}


def _limits(dtype: DType) -> Bounds:
    """The smallest and the largest value of a dtype."""
    found = _limits_of.get(dtype)
    if found is None:
        found = _limits_of[dtype] = dtype.min, dtype.max
    return found


def _interval(node: Any) -> Bounds | None:
    op, src = node.op, node.src
    if op is Ops.MUL:
        dividend = dividend_of(node)
        if dividend is not None:
            return 0, dividend.vmax
    if op in _BINARY:
        return combined(op, src[0].bounds, src[1].bounds) if src[0].dtype.kind != "float" else None
    if op is Ops.RANGE:
        return 0, max(src[0].vmax - 1, 0)
    if op is Ops.SPECIAL:
        extent = node.arg[1]
        return 0, (extent if isinstance(extent, int) else extent.vmax) - 1
    if op is Ops.BIND:
        return src[1].vmin, src[1].vmax
    if op is Ops.DEFINE_VAR:
        return node.arg[1], node.arg[2]
    if op is Ops.WHERE or op is Ops.VECTORIZE:
        values = src[1:] if op is Ops.WHERE else src
        return min(value.vmin for value in values), max(value.vmax for value in values)
    if op is Ops.CAST and src[0].dtype.kind in ("int", "uint", "index", "bool"):
        return (int(src[0].vmin), int(src[0].vmax)) if node.dtype.kind != "bool" else None
    if op is Ops.NEG:
        return -src[0].vmax, -src[0].vmin
    if op in (Ops.GEP, Ops.AFTER, Ops.CONTIGUOUS):
        return src[0].bounds if node.dtype.kind == src[0].dtype.kind else None
    if op is Ops.AND and node.dtype.kind != "bool" and src[1].op is Ops.CONST and src[1].arg >= 0:
        return 0, min(src[1].arg, src[0].vmax) if src[0].vmin >= 0 else src[1].arg
    if op is Ops.AND and node.dtype.kind == "bool":
        return src[0].vmin and src[1].vmin, src[0].vmax and src[1].vmax
    if op is Ops.OR and node.dtype.kind == "bool":
        return src[0].vmin or src[1].vmin, src[0].vmax or src[1].vmax
    if op is Ops.XOR and node.dtype.kind == "bool" and src[1].vmin == src[1].vmax:
        return (not src[0].vmax, not src[0].vmin) if src[1].vmin else src[0].bounds
    if op in (Ops.SHL, Ops.SHR) and src[1].op is Ops.CONST:
        shifted: Any = op.evaluate
        return shifted(src[0].vmin, src[1].arg), shifted(src[0].vmax, src[1].arg)
    return None


def dividend_of(product: Any) -> Any:
    """The x of a product x // y * y, which is at most x where x >= 0 and y > 0; None for other
    products.
    """
    for quotient, factor in (product.src, product.src[::-1]):
        quotient, factor = _below_cast(quotient), _below_cast(factor)
        if quotient.op in _QUOTIENTS and _below_cast(quotient.src[1]) is factor:
            dividend = quotient.src[0]
            return dividend if dividend.vmin >= 0 and factor.vmin > 0 else None
    return None


_QUOTIENTS = (Ops.FLOORDIV, Ops.IDIV)


def _below_cast(node: Any) -> Any:
    """The source of a cast that leaves an integer's bounds unchanged; else the node itself."""
    if node.op is Ops.CAST and node.src[0].bounds == node.bounds:
        return node.src[0]
    return node


def combined(op: Ops, left: Bounds, right: Bounds) -> Any:
    """The bounds of an op of integers within these bounds, if nothing wraps; None where they are
    not known.
    """
    (a, b), (c, d) = left, right
    if op is Ops.ADD:
        return a + c, b + d
    if op is Ops.SUB:
        return a - d, b - c
    if op is Ops.MUL:
        corners = (a * c, a * d, b * c, b * d)
        return min(corners), max(corners)
    if op is Ops.MAX:
        return max(a, c), max(b, d)
    if op is Ops.CMPLT:
        return b < c, a < d
    if op is Ops.CMPNE:
        return b < c or d < a, not (a == b == c == d)
    if op is Ops.CMPEQ:
        return a == b == c == d, not (b < c or d < a)
    if op is Ops.FLOORDIV and (c > 0 or d < 0):
        corners = (a // c, a // d, b // c, b // d)
        return min(corners), max(corners)
    if op is Ops.FLOORMOD and c > 0:
        if c == d and a // c == b // c:
            return a % c, b % c
        return 0, min(d - 1, b) if a >= 0 else d - 1
    if op is Ops.IDIV and c > 0:
        return -(-a // c) if a < 0 else a // d, -(-b // d) if b < 0 else b // c
    if op is Ops.MOD and c > 0:
        return (0 if a >= 0 else max(a, 1 - d)), (0 if b <= 0 else min(b, d - 1))
    return None


def divisor_of(node: Any) -> int:
    """A constant that divides every value of the integer `node` (0 divides only 0); its sources
    have theirs. A float, which a comparison below an index may have, has the divisor 1.
    """
    op, src = node.op, node.src
    if node.dtype.is_float:
        return 1
    if op is Ops.CONST:
        return abs(int(node.arg))
    if op is Ops.ADD:
        return math.gcd(src[0].divisor, src[1].divisor)
    if op is Ops.MUL:
        return int(src[0].divisor * src[1].divisor)
    if op is Ops.NEG:
        return int(src[0].divisor)
    if op is Ops.FLOORMOD and src[1].op is Ops.CONST:
        return math.gcd(src[0].divisor, src[1].divisor)
    if op is Ops.WHERE:
        return math.gcd(src[1].divisor, src[2].divisor)
    if op is Ops.SHL and src[1].op is Ops.CONST:
        shifted: Any = op.evaluate
        return int(shifted(src[0].divisor, src[1].arg))
    if op is Ops.CAST and src[0].dtype.kind in ("int", "uint", "index"):
        return int(src[0].divisor)
    return 1
