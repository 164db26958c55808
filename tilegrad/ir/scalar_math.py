"""Evaluation of ops on plain Python numbers, for ops that are no operator of Python.

A result that Python raises an error for is the one of IEEE 754, or the one that the op's definition
says: infinity, NaN, or 0 for a division of integers by zero.
"""

from __future__ import annotations

import math
from typing import Any

__all__ = [
    "c_divide",
    "cos",
    "divide",
    "exp",
    "exp2",
    "floor_divide",
    "floor_modulo",
    "fmod",
    "log2",
    "maximum",
    "multiply",
    "scale",
    "shift_left",
    "shift_right",
    "sigmoid",
    "sin",
    "truncate",
]

# No integer has more bits than this: shifting by more is shifting by this many.
_MOST_BITS = 64


def exp2(x: float) -> float:
    try:
        return float(2.0**x)
    except OverflowError:
        return math.inf


def exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def log2(x: float) -> float:
    if x > 0:
        return math.log2(x)
    return -math.inf if x == 0 else math.nan


def sin(x: float) -> float:
    return math.sin(x) if math.isfinite(x) else math.nan


def cos(x: float) -> float:
    return math.cos(x) if math.isfinite(x) else math.nan


def sigmoid(x: float) -> float:
    power = exp(-abs(x))
    return (power if x < 0 else 1.0) / (power + 1.0)


def divide(x: float, y: float) -> float:
    if y != 0:
        return x / y
    return math.nan if x == 0 or x != x else math.copysign(math.inf, x) * math.copysign(1.0, y)


def fmod(x: float, y: float) -> float:
    is_none = math.isinf(x) or y == 0 or x != x or y != y
    return math.nan if is_none else math.fmod(x, y)


def multiply(x: Any, y: Any) -> Any:
    return x * y


def scale(x: float, y: float) -> float:
    if not math.isfinite(y):
        return math.nan if y != y else x * (math.inf if y > 0 else 0.0)
    try:
        return math.ldexp(x, math.floor(y))
    except OverflowError:
        return math.copysign(math.inf, x)


def truncate(x: Any) -> Any:
    return math.copysign(math.trunc(x), x) if isinstance(x, float) and math.isfinite(x) else x


def c_divide(x: int, y: int) -> int:
    if y == 0:
        return 0
    quotient = abs(x) // abs(y)
    return quotient if (x < 0) == (y < 0) else -quotient


def floor_divide(x: int, y: int) -> int:
    return x // y if y != 0 else 0


def floor_modulo(x: int, y: int) -> int:
    return x % y if y != 0 else 0


def maximum(x: Any, y: Any) -> Any:
    """The larger, the first of equal ones; a NaN on either side wins, as in NumPy's maximum."""
    if x != x or y != y:
        return math.nan
    return y if y > x else x


def shift_left(x: int, y: int) -> int:
    """Bits shifted out are dropped by wrapping to the dtype."""
    return x << y if 0 <= y <= _MOST_BITS else 0


def shift_right(x: int, y: int) -> int:
    return x >> (y if 0 <= y <= _MOST_BITS else _MOST_BITS)
