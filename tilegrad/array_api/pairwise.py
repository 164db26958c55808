"""One result for each pair of elements of two arrays, or of an array and a number.

A number beside an array takes its dtype, if that holds numbers of its kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilegrad.array_api.array import Array, as_array
from tilegrad.array_api.data_types import as_operands, plain
from tilegrad.base.dtype import dtypes
from tilegrad.tensor import Tensor

__all__ = [
    "add", "atan2", "bitwise_and", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift",
    "bitwise_xor", "clip", "copysign", "divide", "equal", "floor_divide", "greater",
    "greater_equal", "hypot", "less", "less_equal", "logaddexp", "logical_and", "logical_or",
    "logical_xor", "maximum", "minimum", "multiply", "nextafter", "not_equal", "pow",
    "remainder", "subtract",
]  # fmt: skip


def _both(name: str, x1: Any, x2: Any, function: Callable[[Any, Any], Tensor]) -> Array:
    a, b = as_operands(name, x1, x2)
    found = function(a, b)
    return Array(found.clone() if found is a or found is b else found)


def _compared(name: str, x1: Any, x2: Any, function: Callable[[Any, Any], Tensor]) -> Array:
    """As `_both`; a number is compared as it is, though the array's dtype may not hold it."""
    if isinstance(x1, Array) and isinstance(x2, Array):
        return Array(function(*as_operands(name, x1, x2)))
    if isinstance(x1, Array):
        return Array(function(x1.tensor, plain(name, x2)))
    return Array(function(plain(name, x1), as_array(name, x2).tensor))


def add(x1: Any, x2: Any, /) -> Array:
    """The sum of two arrays, or of an array and a number.

    >>> from tilegrad import array_api as xp
    >>> xp.add(xp.asarray([1, 2]), 1).tensor.tolist()
    [2, 3]
    """
    return _both("add", x1, x2, lambda a, b: a + b)


def atan2(x1: Any, x2: Any, /) -> Array:
    """The angle of the point (x2, x1).

    >>> from tilegrad import array_api as xp
    >>> xp.atan2(xp.asarray([0.0]), xp.asarray([1.0])).tensor.tolist()
    [0.0]
    """
    return _both("atan2", x1, x2, lambda a, b: a.atan2(b))


def bitwise_and(x1: Any, x2: Any, /) -> Array:
    """The bits that both have.

    >>> from tilegrad import array_api as xp
    >>> xp.bitwise_and(xp.asarray([6]), 3).tensor.tolist()
    [2]
    """
    return _both("bitwise_and", x1, x2, lambda a, b: a & b)


def bitwise_left_shift(x1: Any, x2: Any, /) -> Array:
    """The bits moved up by the second operand; 0 from the width on.

    >>> from tilegrad import array_api as xp
    >>> xp.bitwise_left_shift(xp.asarray([3]), 2).tensor.tolist()
    [12]
    """
    return _both("bitwise_left_shift", x1, x2, lambda a, b: a << b)


def bitwise_or(x1: Any, x2: Any, /) -> Array:
    """The bits that one has.

    >>> from tilegrad import array_api as xp
    >>> xp.bitwise_or(xp.asarray([6]), 3).tensor.tolist()
    [7]
    """
    return _both("bitwise_or", x1, x2, lambda a, b: a | b)


def bitwise_right_shift(x1: Any, x2: Any, /) -> Array:
    """The bits moved down by the second operand; the sign is kept.

    >>> from tilegrad import array_api as xp
    >>> xp.bitwise_right_shift(xp.asarray([-8]), 2).tensor.tolist()
    [-2]
    """
    return _both("bitwise_right_shift", x1, x2, lambda a, b: a >> b)


def bitwise_xor(x1: Any, x2: Any, /) -> Array:
    """The bits that just one has.

    >>> from tilegrad import array_api as xp
    >>> xp.bitwise_xor(xp.asarray([6]), 3).tensor.tolist()
    [5]
    """
    return _both("bitwise_xor", x1, x2, lambda a, b: a ^ b)


def clip(x: Array, /, min: Any = None, max: Any = None) -> Array:
    """The elements limited to `min` and `max`, arrays or numbers; in the dtype of `x`.

    >>> from tilegrad import array_api as xp
    >>> xp.clip(xp.asarray([1, 5, 9]), 2, 6).tensor.tolist()
    [2, 5, 6]
    """
    tensor = as_array("clip", x).tensor
    found = tensor
    if min is not None:
        found = found.maximum(_limit(tensor, min))
    if max is not None:
        found = found.minimum(_limit(tensor, max))
    return Array(tensor.clone() if found is tensor else found)


def _limit(x: Tensor, limit: Any) -> Tensor:
    """A limit as a tensor in the dtype of `x`."""
    if isinstance(limit, Array):
        return limit.tensor.cast(x.dtype)
    value = plain("clip", limit)
    if isinstance(value, float) and x.dtype.is_int and value == value:
        # A limit that no element reaches acts as the largest value of the dtype.
        least, most = int(x.dtype.min), int(x.dtype.max)
        value = least if value < least else most if value > most else value
    return Tensor(value, dtype=x.dtype, device=x.device)


def copysign(x1: Any, x2: Any, /) -> Array:
    """The size of the first operand with the sign of the second.

    >>> from tilegrad import array_api as xp
    >>> xp.copysign(xp.asarray([1.0, 2.0]), -0.0).tensor.tolist()
    [-1.0, -2.0]
    """
    return _both("copysign", x1, x2, lambda a, b: a.copysign(b))


def divide(x1: Any, x2: Any, /) -> Array:
    """The quotient, as a float.

    >>> from tilegrad import array_api as xp
    >>> xp.divide(xp.asarray([1.0, 2.0]), 2).tensor.tolist()
    [0.5, 1.0]
    """
    return _both("divide", x1, x2, lambda a, b: a / b)


def equal(x1: Any, x2: Any, /) -> Array:
    """Whether the elements are equal.

    >>> from tilegrad import array_api as xp
    >>> xp.equal(xp.asarray([1, 2]), 1).tensor.tolist()
    [True, False]
    """
    return _compared("equal", x1, x2, lambda a, b: a == b)


def floor_divide(x1: Any, x2: Any, /) -> Array:
    """The quotient rounded toward minus infinity; integers by 0 give 0.

    >>> from tilegrad import array_api as xp
    >>> xp.floor_divide(xp.asarray([-3, 3]), 2).tensor.tolist()
    [-2, 1]
    """
    return _both("floor_divide", x1, x2, lambda a, b: a // b)


def greater(x1: Any, x2: Any, /) -> Array:
    """Whether the first is larger.

    >>> from tilegrad import array_api as xp
    >>> xp.greater(xp.asarray([1, 3]), 2).tensor.tolist()
    [False, True]
    """
    return _compared("greater", x1, x2, lambda a, b: a > b)


def greater_equal(x1: Any, x2: Any, /) -> Array:
    """Whether the first is not less.

    >>> from tilegrad import array_api as xp
    >>> xp.greater_equal(xp.asarray([1, 3]), 2).tensor.tolist()
    [False, True]
    """
    return _compared("greater_equal", x1, x2, lambda a, b: a >= b)


def hypot(x1: Any, x2: Any, /) -> Array:
    """`sqrt(x1**2 + x2**2)` without overflow between.

    >>> from tilegrad import array_api as xp
    >>> xp.hypot(xp.asarray([3.0]), xp.asarray([4.0])).tensor.tolist()
    [5.0]
    """
    return _both("hypot", x1, x2, lambda a, b: a.hypot(b))


def less(x1: Any, x2: Any, /) -> Array:
    """Whether the first is less.

    >>> from tilegrad import array_api as xp
    >>> xp.less(xp.asarray([1, 2]), 2).tensor.tolist()
    [True, False]
    """
    return _compared("less", x1, x2, lambda a, b: a < b)


def less_equal(x1: Any, x2: Any, /) -> Array:
    """Whether the first is not larger.

    >>> from tilegrad import array_api as xp
    >>> xp.less_equal(xp.asarray([1, 3]), 2).tensor.tolist()
    [True, False]
    """
    return _compared("less_equal", x1, x2, lambda a, b: a <= b)


def logaddexp(x1: Any, x2: Any, /) -> Array:
    """`log(exp(x1) + exp(x2))` without overflow between.

    >>> from tilegrad import array_api as xp
    >>> xp.logaddexp(xp.asarray([0.0]), xp.asarray([-xp.inf])).tensor.tolist()
    [0.0]
    """
    return _both("logaddexp", x1, x2, lambda a, b: a.logaddexp(b))


def logical_and(x1: Any, x2: Any, /) -> Array:
    """Whether both are true.

    >>> from tilegrad import array_api as xp
    >>> xp.logical_and(xp.asarray([True, False]), True).tensor.tolist()
    [True, False]
    """
    return _both("logical_and", x1, x2, lambda a, b: a.cast(dtypes.bool) & b.cast(dtypes.bool))


def logical_or(x1: Any, x2: Any, /) -> Array:
    """Whether one is true.

    >>> from tilegrad import array_api as xp
    >>> xp.logical_or(xp.asarray([True, False]), False).tensor.tolist()
    [True, False]
    """
    return _both("logical_or", x1, x2, lambda a, b: a.cast(dtypes.bool) | b.cast(dtypes.bool))


def logical_xor(x1: Any, x2: Any, /) -> Array:
    """Whether just one is true.

    >>> from tilegrad import array_api as xp
    >>> xp.logical_xor(xp.asarray([True, False]), True).tensor.tolist()
    [False, True]
    """
    return _both("logical_xor", x1, x2, lambda a, b: a.cast(dtypes.bool) ^ b.cast(dtypes.bool))


def maximum(x1: Any, x2: Any, /) -> Array:
    """The larger of two; NaN if one is.

    >>> from tilegrad import array_api as xp
    >>> xp.maximum(xp.asarray([1, 5]), 3).tensor.tolist()
    [3, 5]
    """
    return _both("maximum", x1, x2, lambda a, b: a.maximum(b))


def minimum(x1: Any, x2: Any, /) -> Array:
    """The smaller of two; NaN if one is.

    >>> from tilegrad import array_api as xp
    >>> xp.minimum(xp.asarray([1, 5]), 3).tensor.tolist()
    [1, 3]
    """
    return _both("minimum", x1, x2, lambda a, b: a.minimum(b))


def multiply(x1: Any, x2: Any, /) -> Array:
    """The product.

    >>> from tilegrad import array_api as xp
    >>> xp.multiply(xp.asarray([1, 2]), 3).tensor.tolist()
    [3, 6]
    """
    return _both("multiply", x1, x2, lambda a, b: a * b)


def nextafter(x1: Any, x2: Any, /) -> Array:
    """The next number from the first operand toward the second.

    >>> from tilegrad import array_api as xp
    >>> (xp.nextafter(xp.asarray([0.0]), xp.asarray([1.0])) > 0).tensor.tolist()
    [True]
    """
    return _both("nextafter", x1, x2, lambda a, b: a.nextafter(b))


def not_equal(x1: Any, x2: Any, /) -> Array:
    """Whether the elements differ.

    >>> from tilegrad import array_api as xp
    >>> xp.not_equal(xp.asarray([1, 2]), 1).tensor.tolist()
    [False, True]
    """
    return _compared("not_equal", x1, x2, lambda a, b: a != b)


def pow(x1: Any, x2: Any, /) -> Array:
    """The first operand to the power of the second.

    >>> from tilegrad import array_api as xp
    >>> xp.pow(xp.asarray([2, 3]), 2).tensor.tolist()
    [4, 9]
    """
    return _both("pow", x1, x2, lambda a, b: a**b)


def remainder(x1: Any, x2: Any, /) -> Array:
    """The remainder, with the sign of the divisor; integers by 0 give 0.

    >>> from tilegrad import array_api as xp
    >>> xp.remainder(xp.asarray([-3, 3]), 2).tensor.tolist()
    [1, 1]
    """
    return _both("remainder", x1, x2, lambda a, b: a % b)


def subtract(x1: Any, x2: Any, /) -> Array:
    """The difference.

    >>> from tilegrad import array_api as xp
    >>> xp.subtract(xp.asarray([1, 2]), 1).tensor.tolist()
    [0, 1]
    """
    return _both("subtract", x1, x2, lambda a, b: a - b)
