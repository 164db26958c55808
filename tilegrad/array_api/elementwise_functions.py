"""One result for each element of one array.

Integers are taken where a float is expected, and give float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilegrad.array_api.array import Array, as_array
from tilegrad.tensor import Tensor

__all__ = [
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bitwise_invert", "ceil", "conj",
    "cos", "cosh", "exp", "expm1", "floor", "imag", "isfinite", "isinf", "isnan", "log", "log1p",
    "log2", "log10", "logical_not", "negative", "positive", "real", "reciprocal", "round", "sign",
    "signbit", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc",
]  # fmt: skip


def _alone(name: str, x: Any, function: Callable[[Tensor], Tensor]) -> Array:
    """`function` of an array; never the array's own tensor, which an index may write to."""
    tensor = as_array(name, x).tensor
    found = function(tensor)
    return Array(tensor.clone() if found is tensor else found)


def _whole(name: str, x: Any, function: Callable[[Tensor], Tensor]) -> Array:
    """As `_alone`, for what leaves integers as they are."""
    return _alone(name, x, lambda a: function(a) if a.dtype.is_float else a)


def abs(x: Array, /) -> Array:
    """The size of each element.

    >>> from tilegrad import array_api as xp
    >>> xp.abs(xp.asarray([-1, 2])).tensor.tolist()
    [1, 2]
    """
    return _alone("abs", x, lambda a: a.abs())


def acos(x: Array, /) -> Array:
    """The arc cosine of each element.

    >>> from tilegrad import array_api as xp
    >>> xp.acos(xp.asarray([1.0])).tensor.tolist()
    [0.0]
    """
    return _alone("acos", x, lambda a: a.acos())


def acosh(x: Array, /) -> Array:
    """The inverse of the hyperbolic cosine.

    >>> from tilegrad import array_api as xp
    >>> xp.acosh(xp.asarray([1.0])).tensor.tolist()
    [0.0]
    """
    return _alone("acosh", x, lambda a: a.acosh())


def asin(x: Array, /) -> Array:
    """The arc sine of each element.

    >>> from tilegrad import array_api as xp
    >>> xp.asin(xp.asarray([0.0])).tensor.tolist()
    [0.0]
    """
    return _alone("asin", x, lambda a: a.asin())


def asinh(x: Array, /) -> Array:
    """The inverse of the hyperbolic sine.

    >>> from tilegrad import array_api as xp
    >>> xp.asinh(xp.asarray([0.0])).tensor.tolist()
    [0.0]
    """
    return _alone("asinh", x, lambda a: a.asinh())


def atan(x: Array, /) -> Array:
    """The arc tangent of each element.

    >>> from tilegrad import array_api as xp
    >>> xp.atan(xp.asarray([0.0])).tensor.tolist()
    [0.0]
    """
    return _alone("atan", x, lambda a: a.atan())


def atanh(x: Array, /) -> Array:
    """The inverse of the hyperbolic tangent.

    >>> from tilegrad import array_api as xp
    >>> xp.atanh(xp.asarray([0.0])).tensor.tolist()
    [0.0]
    """
    return _alone("atanh", x, lambda a: a.atanh())


def bitwise_invert(x: Array, /) -> Array:
    """Each bit inverted; of a bool, not.

    >>> from tilegrad import array_api as xp
    >>> xp.bitwise_invert(xp.asarray([0, True])).tensor.tolist()
    [-1, -2]
    """
    return Array(~as_array("bitwise_invert", x).tensor)


def ceil(x: Array, /) -> Array:
    """The least whole number not below each element; integers stay.

    >>> from tilegrad import array_api as xp
    >>> xp.ceil(xp.asarray([1.5])).tensor.tolist()
    [2.0]
    """
    return _whole("ceil", x, lambda a: a.ceil())


def conj(x: Array, /) -> Array:
    """The conjugate: of real numbers, themselves.

    >>> from tilegrad import array_api as xp
    >>> xp.conj(xp.asarray([1.0])).tensor.tolist()
    [1.0]
    """
    return positive(as_array("conj", x))


def cos(x: Array, /) -> Array:
    """The cosine of each element.

    >>> from tilegrad import array_api as xp
    >>> xp.cos(xp.asarray([0.0])).tensor.tolist()
    [1.0]
    """
    return _alone("cos", x, lambda a: a.cos())


def cosh(x: Array, /) -> Array:
    """The hyperbolic cosine of each element.

    >>> from tilegrad import array_api as xp
    >>> xp.cosh(xp.asarray([0.0])).tensor.tolist()
    [1.0]
    """
    return _alone("cosh", x, lambda a: a.cosh())


def exp(x: Array, /) -> Array:
    """e to the power of each element.

    >>> from tilegrad import array_api as xp
    >>> xp.exp(xp.asarray([0.0])).tensor.tolist()
    [1.0]
    """
    return _alone("exp", x, lambda a: a.exp())


def expm1(x: Array, /) -> Array:
    """`exp(x) - 1`, exact near zero.

    >>> from tilegrad import array_api as xp
    >>> xp.expm1(xp.asarray([0.0])).tensor.tolist()
    [0.0]
    """
    return _alone("expm1", x, lambda a: a.expm1())


def floor(x: Array, /) -> Array:
    """The largest whole number not above each element; integers stay.

    >>> from tilegrad import array_api as xp
    >>> xp.floor(xp.asarray([1.5])).tensor.tolist()
    [1.0]
    """
    return _whole("floor", x, lambda a: a.floor())


def imag(x: Array, /) -> Array:
    """The imaginary part: of real numbers, zeros.

    >>> from tilegrad import array_api as xp
    >>> xp.imag(xp.asarray([1.0])).tensor.tolist()
    [0.0]
    """
    return Array(as_array("imag", x).tensor.zeros_like())


def isfinite(x: Array, /) -> Array:
    """Whether each element is neither NaN nor infinite.

    >>> from tilegrad import array_api as xp
    >>> xp.isfinite(xp.asarray([1.0, xp.inf])).tensor.tolist()
    [True, False]
    """
    return _alone("isfinite", x, lambda a: a.isfinite())


def isinf(x: Array, /) -> Array:
    """Whether each element is infinite.

    >>> from tilegrad import array_api as xp
    >>> xp.isinf(xp.asarray([1.0, xp.inf])).tensor.tolist()
    [False, True]
    """
    return _alone("isinf", x, lambda a: a.isinf())


def isnan(x: Array, /) -> Array:
    """Whether each element is NaN.

    >>> from tilegrad import array_api as xp
    >>> xp.isnan(xp.asarray([1.0, xp.nan])).tensor.tolist()
    [False, True]
    """
    return _alone("isnan", x, lambda a: a.isnan())


def log(x: Array, /) -> Array:
    """The natural logarithm of each element.

    >>> from tilegrad import array_api as xp
    >>> xp.log(xp.asarray([1.0])).tensor.tolist()
    [0.0]
    """
    return _alone("log", x, lambda a: a.log())


def log10(x: Array, /) -> Array:
    """The logarithm to base 10.

    >>> from tilegrad import array_api as xp
    >>> xp.log10(xp.asarray([100.0])).tensor.tolist()
    [2.0]
    """
    return _alone("log10", x, lambda a: a.log10())


def log1p(x: Array, /) -> Array:
    """`log(1 + x)`, exact near zero.

    >>> from tilegrad import array_api as xp
    >>> xp.log1p(xp.asarray([0.0])).tensor.tolist()
    [0.0]
    """
    return _alone("log1p", x, lambda a: a.log1p())


def log2(x: Array, /) -> Array:
    """The logarithm to base 2.

    >>> from tilegrad import array_api as xp
    >>> xp.log2(xp.asarray([8.0])).tensor.tolist()
    [3.0]
    """
    return _alone("log2", x, lambda a: a.log2())


def logical_not(x: Array, /) -> Array:
    """Whether each element is false.

    >>> from tilegrad import array_api as xp
    >>> xp.logical_not(xp.asarray([True, False])).tensor.tolist()
    [False, True]
    """
    return Array(as_array("logical_not", x).tensor.logical_not())


def negative(x: Array, /) -> Array:
    """Each element with the other sign.

    >>> from tilegrad import array_api as xp
    >>> xp.negative(xp.asarray([1, -2])).tensor.tolist()
    [-1, 2]
    """
    return _alone("negative", x, lambda a: -a)


def positive(x: Array, /) -> Array:
    """The array again.

    >>> from tilegrad import array_api as xp
    >>> xp.positive(xp.asarray([-1])).tensor.tolist()
    [-1]
    """
    return Array(as_array("positive", x).tensor.clone())


def real(x: Array, /) -> Array:
    """The real part: of real numbers, themselves.

    >>> from tilegrad import array_api as xp
    >>> xp.real(xp.asarray([1.0])).tensor.tolist()
    [1.0]
    """
    return positive(as_array("real", x))


def reciprocal(x: Array, /) -> Array:
    """One divided by each element.

    >>> from tilegrad import array_api as xp
    >>> xp.reciprocal(xp.asarray([4.0])).tensor.tolist()
    [0.25]
    """
    return _alone("reciprocal", x, lambda a: a.reciprocal())


def round(x: Array, /) -> Array:
    """The nearest whole number, the even one of two; integers stay.

    >>> from tilegrad import array_api as xp
    >>> xp.round(xp.asarray([2.5])).tensor.tolist()
    [2.0]
    """
    return _whole("round", x, lambda a: a.round())


def sign(x: Array, /) -> Array:
    """-1, 0 or 1 by the sign of each element; NaN of NaN.

    >>> from tilegrad import array_api as xp
    >>> xp.sign(xp.asarray([-3.0, 0.0])).tensor.tolist()
    [-1.0, 0.0]
    """
    return _alone("sign", x, lambda a: a.sign())


def signbit(x: Array, /) -> Array:
    """Whether the sign of each element is set, that of -0.0 and of NaN too.

    >>> from tilegrad import array_api as xp
    >>> xp.signbit(xp.asarray([-0.0, 0.0])).tensor.tolist()
    [True, False]
    """
    return Array(as_array("signbit", x).tensor.signbit())


def sin(x: Array, /) -> Array:
    """The sine of each element.

    >>> from tilegrad import array_api as xp
    >>> xp.sin(xp.asarray([0.0])).tensor.tolist()
    [0.0]
    """
    return _alone("sin", x, lambda a: a.sin())


def sinh(x: Array, /) -> Array:
    """The hyperbolic sine of each element.

    >>> from tilegrad import array_api as xp
    >>> xp.sinh(xp.asarray([0.0])).tensor.tolist()
    [0.0]
    """
    return _alone("sinh", x, lambda a: a.sinh())


def sqrt(x: Array, /) -> Array:
    """The square root of each element.

    >>> from tilegrad import array_api as xp
    >>> xp.sqrt(xp.asarray([9.0])).tensor.tolist()
    [3.0]
    """
    return _alone("sqrt", x, lambda a: a.sqrt())


def square(x: Array, /) -> Array:
    """Each element times itself.

    >>> from tilegrad import array_api as xp
    >>> xp.square(xp.asarray([3])).tensor.tolist()
    [9]
    """
    return _alone("square", x, lambda a: a.square())


def tan(x: Array, /) -> Array:
    """The tangent of each element.

    >>> from tilegrad import array_api as xp
    >>> xp.tan(xp.asarray([0.0])).tensor.tolist()
    [0.0]
    """
    return _alone("tan", x, lambda a: a.tan())


def tanh(x: Array, /) -> Array:
    """The hyperbolic tangent of each element.

    >>> from tilegrad import array_api as xp
    >>> xp.tanh(xp.asarray([0.0])).tensor.tolist()
    [0.0]
    """
    return _alone("tanh", x, lambda a: a.tanh())


def trunc(x: Array, /) -> Array:
    """Each element without its fraction; integers stay.

    >>> from tilegrad import array_api as xp
    >>> xp.trunc(xp.asarray([-1.5])).tensor.tolist()
    [-1.0]
    """
    return _whole("trunc", x, lambda a: a.trunc())
