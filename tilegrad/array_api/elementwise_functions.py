"""One result for each element of one array.

Integers are taken where a float is expected, and give float32. One line declares a function: its
name, its summary, an example's values and result, and the method of `Tensor`, where that has
another name.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import methodcaller
from typing import Any

from tilegrad.array_api.array import Array, as_array

__all__ = [
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bitwise_invert", "ceil", "conj",
    "cos", "cosh", "exp", "expm1", "floor", "imag", "isfinite", "isinf", "isnan", "log", "log1p",
    "log2", "log10", "logical_not", "negative", "positive", "real", "reciprocal", "round", "sign",
    "signbit", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc",
]  # fmt: skip


def _function(
    name: str, text: str, given: str, found: str, apply: Callable[[Any], Any]
) -> Callable[[Array], Array]:
    def function(x: Array, /) -> Array:
        tensor = as_array(name, x).tensor
        result = apply(tensor)
        # Never the array's own tensor, which an index may write to.
        return Array(tensor.clone() if result is tensor else result)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"{text}\n\n>>> from tilegrad import array_api as xp\n"
        f">>> xp.{name}(xp.asarray({given})).tensor.tolist()\n{found}\n"
    )
    return function


def _alone(
    name: str, text: str, given: str, found: str, method: str = ""
) -> Callable[[Array], Array]:
    return _function(name, text, given, found, methodcaller(method or name))


def _whole(name: str, text: str, given: str, found: str) -> Callable[[Array], Array]:
    """As `_alone`, for what gives whole numbers: integers are themselves."""
    round_floats = methodcaller(name)
    return _function(
        name,
        f"{text[:-1]}; integers are themselves.",
        given,
        found,
        lambda x: round_floats(x) if x.dtype.is_float else x,
    )


abs = _alone("abs", "The size of each element.", "[-1, 2]", "[1, 2]")
acos = _alone("acos", "The arc cosine of each element.", "[1.0]", "[0.0]")
acosh = _alone("acosh", "The inverse of the hyperbolic cosine.", "[1.0]", "[0.0]")
asin = _alone("asin", "The arc sine of each element.", "[0.0]", "[0.0]")
asinh = _alone("asinh", "The inverse of the hyperbolic sine.", "[0.0]", "[0.0]")
atan = _alone("atan", "The arc tangent of each element.", "[0.0]", "[0.0]")
atanh = _alone("atanh", "The inverse of the hyperbolic tangent.", "[0.0]", "[0.0]")
bitwise_invert = _alone(
    "bitwise_invert", "Each bit inverted; of a bool, not.", "[0, True]", "[-1, -2]", "__invert__"
)
ceil = _whole("ceil", "The least whole number not below each element.", "[1.5]", "[2.0]")
conj = _alone("conj", "The conjugate: of real numbers, themselves.", "[1.0]", "[1.0]", "clone")
cos = _alone("cos", "The cosine of each element.", "[0.0]", "[1.0]")
cosh = _alone("cosh", "The hyperbolic cosine of each element.", "[0.0]", "[1.0]")
exp = _alone("exp", "e to the power of each element.", "[0.0]", "[1.0]")
expm1 = _alone("expm1", "`exp(x) - 1`, exact near zero.", "[0.0]", "[0.0]")
floor = _whole("floor", "The largest whole number not above each element.", "[1.5]", "[1.0]")
imag = _alone("imag", "The imaginary part: of real numbers, zeros.", "[1.0]", "[0.0]", "zeros_like")
isfinite = _alone(
    "isfinite",
    "Whether each element is neither NaN nor infinite.",
    "[1.0, xp.inf]",
    "[True, False]",
)
isinf = _alone("isinf", "Whether each element is infinite.", "[1.0, xp.inf]", "[False, True]")
isnan = _alone("isnan", "Whether each element is NaN.", "[1.0, xp.nan]", "[False, True]")
log = _alone("log", "The natural logarithm of each element.", "[1.0]", "[0.0]")
log10 = _alone("log10", "The logarithm to base 10.", "[100.0]", "[2.0]")
log1p = _alone("log1p", "`log(1 + x)`, exact near zero.", "[0.0]", "[0.0]")
log2 = _alone("log2", "The logarithm to base 2.", "[8.0]", "[3.0]")
logical_not = _alone(
    "logical_not", "Whether each element is false.", "[True, False]", "[False, True]"
)
negative = _alone("negative", "Each element with the other sign.", "[1, -2]", "[-1, 2]", "__neg__")
positive = _alone("positive", "The array again.", "[-1]", "[-1]", "clone")
real = _alone("real", "The real part: of real numbers, themselves.", "[1.0]", "[1.0]", "clone")
reciprocal = _alone("reciprocal", "One divided by each element.", "[4.0]", "[0.25]")
round = _whole("round", "The nearest whole number, the even one of two.", "[2.5]", "[2.0]")
sign = _alone(
    "sign", "-1, 0 or 1 by the sign of each element; NaN of NaN.", "[-3.0, 0.0]", "[-1.0, 0.0]"
)
signbit = _alone(
    "signbit",
    "Whether the sign of each element is set, that of -0.0 and of NaN too.",
    "[-0.0, 0.0]",
    "[True, False]",
)
sin = _alone("sin", "The sine of each element.", "[0.0]", "[0.0]")
sinh = _alone("sinh", "The hyperbolic sine of each element.", "[0.0]", "[0.0]")
sqrt = _alone("sqrt", "The square root of each element.", "[9.0]", "[3.0]")
square = _alone("square", "Each element times itself.", "[3]", "[9]")
tan = _alone("tan", "The tangent of each element.", "[0.0]", "[0.0]")
tanh = _alone("tanh", "The hyperbolic tangent of each element.", "[0.0]", "[0.0]")
trunc = _whole("trunc", "Each element without its fraction.", "[-1.5]", "[-1.0]")
