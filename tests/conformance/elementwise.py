"""Ops on each element: what they mean in NumPy, for which dtypes, and how exact they must be.

`ulp` is for float32, and for float64 if there is no `double_ulp`. Half types compute functions in
float32 and round once, which is half a unit; `half_ulp` is larger where a method rounds several
times. The bounds of functions are those that docs/dtypes.md publishes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from tests.conformance.values import FLOATS, INTEGERS
from tilegrad import Tensor
from tilegrad.base.dtype import DType, dtypes
from tilegrad.nn.functional import threshold

__all__ = ["ELEMENTWISE", "Elementwise"]

Error = Callable[..., Any]
NUMBERS = (*INTEGERS, *FLOATS)


def same(*kinds: DType) -> DType:
    """The dtype of the last argument: that of a condition in front does not count."""
    return kinds[-1]


def truth(*kinds: DType) -> DType:
    return dtypes.bool


def floating(*kinds: DType) -> DType:
    return kinds[-1] if kinds[-1].is_float else dtypes.float32


@dataclass(frozen=True)
class Elementwise:
    """An op.

    Attributes:
        ours: the op on tensors.
        theirs: the same on exact values.
        dtypes: those of its arguments.
        arity: how many arguments it takes.
        group: what part of the table it belongs to.
        result: the dtype of the result, of those of the arguments.
        ulp, half_ulp, double_ulp: the error allowed, in units of the result's last place.
        error: an error allowed beside that, of the roundoff of the dtype in which it is computed,
            the exact result, and the arguments.
        magnitude: of the arguments; units are those of its last place where that is more than the
            result: the terms that cancel.
        low, high: what random floats lie between.
        keep: which arguments to keep, for those outside of which nothing is promised.
        first, second: a dtype of that argument other than the rest, and values it is limited to.
        signed_zeros: whether the sign of a zero counts.
        widens: whether it takes integers and bools, too, as float32.
    """

    name: str
    ours: Callable[..., Tensor]
    theirs: Callable[..., Any]
    dtypes: tuple[DType, ...]
    arity: int = 1
    group: str = "arithmetic"
    result: Callable[..., DType] = same
    ulp: float = 0.0
    half_ulp: float = 0.51
    double_ulp: float | None = None
    error: Error | None = None
    magnitude: Callable[..., Any] | None = None
    low: float = -3.0
    high: float = 3.0
    keep: Callable[..., Any] | None = None
    first: DType | None = None
    second: Callable[[DType], tuple[int, int]] | None = None
    signed_zeros: bool = False
    widens: bool = False

    @property
    def is_dense(self) -> bool:
        """Whether it is a function to try on all values of the half types."""
        return (self.group == "functions" and self.arity == 1) or self.name == "sqrt"


def each(function: Callable[..., Any]) -> Callable[..., Any]:
    """A Python function of numbers on arrays of exact values."""
    return lambda *arrays: np.frompyfunc(function, len(arrays), 1)(*arrays)


def real(function: Callable[..., Any]) -> Callable[..., Any]:
    """A NumPy function on exact values, integers as floats."""
    return lambda *arrays: function(*[np.asarray(array, np.float64) for array in arrays])


def floor_divide(x: Any, y: Any) -> Any:
    return 0 if y == 0 else x // y


def floor_modulo(x: Any, y: Any) -> Any:
    return 0 if y == 0 else x % y


def divide_toward_zero(x: int, y: int) -> int:
    return 0 if y == 0 else abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def power(x: int, y: int) -> int:
    if y >= 0:
        return pow(x, y, 1 << 64)
    return {1: 1, -1: 1 - 2 * (y & 1)}.get(x, 0)


def sign(x: Any) -> Any:
    return x if x != x else (x > 0) - (x < 0)


def of_floats(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`function` on floats; integers are whole as they are."""
    return lambda x: function(x) if x.dtype.kind == "f" else x


def clipped(x: Any, low: Any) -> Any:
    return np.minimum(np.asarray(np.maximum(x, low), x.dtype), 5)


def near(x: Any, y: Any) -> Any:
    return np.isclose(x, y, 0.25, 1.0)


def float_fmod(x: float, y: float) -> float:
    is_none = math.isinf(x) or y == 0 or x != x or y != y
    return math.nan if is_none else math.fmod(x, y)


def float_modulo(x: float, y: float) -> float:
    """The remainder of the quotient rounded down, with the divisor's sign."""
    rest = float_fmod(x, y)
    if rest == 0:
        return math.copysign(0.0, y)
    return rest + y if (rest < 0) != (y < 0) else rest


def float_quotient(x: float, y: float, rounded: Callable[[Fraction], int]) -> float:
    """x / y `rounded` to a whole number, as the array API has it for special values."""
    sign = math.copysign(1.0, x) * math.copysign(1.0, y)
    if x != x or y != y or (math.isinf(x) and y != 0) or (x == 0 and y == 0):
        return math.nan
    if y == 0:
        return sign * math.inf
    exact = Fraction(int(sign), 1 << 9999) if math.isinf(y) else Fraction(x) / Fraction(y)
    whole = rounded(exact) if x else 0
    try:
        return float(whole) if whole else sign * 0.0
    except OverflowError:
        return sign * math.inf


def float_floor_divide(x: float, y: float) -> float:
    return float_quotient(x, y, math.floor)


def far_from_whole(x: Any, y: Any) -> Any:
    """Where a rounded quotient lies between the same whole numbers as the exact one."""
    q = x / y
    return np.isfinite(q) & (np.abs(q) < 60) & (np.abs(q - np.rint(q)) > 0.3) & np.isfinite(y)


def relu(x: Any) -> Any:
    return np.where(x < 0, np.zeros_like(x), x)


def erf(x: Any) -> Any:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def gelu_by_tanh(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))


def softplus(x: Any) -> Any:
    return np.logaddexp(x, 0.0)


def small(*arrays: Any) -> Any:
    """Where sine and cosine are exact to the last place."""
    return np.abs(arrays[0]) < 2.0**20


def finite(*arrays: Any) -> Any:
    """Where nothing is infinite, or so small that a quotient loses its digits."""
    kept: Any = True
    for array in arrays:
        size = np.abs(array)
        kept = kept & np.isfinite(array) & ((size > 1e-3) | (size == 0)) & (size < 1e4)
    return kept


def each_real(function: Callable[[float], float]) -> Callable[..., Any]:
    return lambda x: np.vectorize(function, otypes=[np.float64])(x)


def special(name: str) -> Callable[..., Any]:
    """A function of SciPy, which comes with scikit-learn, and is loaded when it is needed."""

    def call(x: Any) -> Any:
        import scipy.special

        return getattr(scipy.special, name)(x)

    return call


def moderate(*arrays: Any) -> Any:
    """Where no step between overflows, and nothing is infinite."""
    kept: Any = True
    for array in arrays:
        kept = kept & (np.abs(array) < 60)
    return kept


def of_one(*x: Any) -> Any:
    """Errors are measured in units of a number near 1."""
    return 1.0


def shift_limits(dtype: DType) -> tuple[int, int]:
    """Amounts beyond the width, too."""
    return 0, min(2 * dtype.bits + 3, int(dtype.max))


def shifted_left(x: int, y: int) -> int:
    return x * 2**y


def shifted_right(x: int, y: int) -> int:
    return x // 2**y


def exact_ops() -> list[Elementwise]:
    def op(name: str, ours: Any, theirs: Any, kinds: Any, arity: int = 1, **rest: Any) -> None:
        found.append(Elementwise(name, ours, theirs, kinds, arity, **rest))

    found: list[Elementwise] = []
    both: dict[str, Any] = {"arity": 2}
    every = (dtypes.bool, *NUMBERS)
    truths = (dtypes.bool,)
    op("add", lambda x, y: x + y, np.add, NUMBERS, **both, signed_zeros=True)
    op("sub", lambda x, y: x - y, np.subtract, NUMBERS, **both, signed_zeros=True)
    op("mul", lambda x, y: x * y, np.multiply, NUMBERS, **both, signed_zeros=True)
    op("div", lambda x, y: x / y, np.divide, FLOATS, **both, signed_zeros=True, widens=True)
    op("add", lambda x, y: x + y, np.logical_or, truths, **both)
    op("mul", lambda x, y: x * y, np.logical_and, truths, **both)
    integers: dict[str, Any] = {"result": lambda *kinds: dtypes.int32}
    op("sub", lambda x, y: x - y, lambda x, y: x * 1 - y, truths, **both, **integers)
    op("neg", lambda x: -x, np.negative, NUMBERS, signed_zeros=True)
    op("neg", lambda x: -x, np.logical_not, truths)
    op("abs", lambda x: x.abs(), np.abs, every)
    op("sign", lambda x: x.sign(), each(sign), every)
    op("square", lambda x: x.square(), lambda x: x * x, every)
    op("reciprocal", lambda x: x.reciprocal(), lambda x: 1 / x, FLOATS, signed_zeros=True,
       widens=True)  # fmt: skip
    op("sqrt", lambda x: x.sqrt(), np.sqrt, FLOATS, signed_zeros=True, widens=True)
    op("maximum", lambda x, y: x.maximum(y), np.maximum, every, **both)
    op("minimum", lambda x, y: x.minimum(y), np.minimum, every, **both)
    op("clip", lambda x, y: x.clip(y, 5), clipped, NUMBERS, 2)
    op("clip", lambda x, y: x.clip(y, 5), np.maximum, truths, 2, **integers)
    op("trunc", lambda x: x.trunc(), of_floats(np.trunc), every, signed_zeros=True)
    op("floor", lambda x: x.floor(), of_floats(np.floor), every, signed_zeros=True)
    op("ceil", lambda x: x.ceil(), of_floats(np.ceil), every, signed_zeros=True)
    op("round", lambda x: x.round(), of_floats(np.rint), every, signed_zeros=True)
    op("copysign", lambda x, y: x.copysign(y), np.copysign, FLOATS, 2, signed_zeros=True,
       widens=True, keep=lambda x, y: ~np.isnan(y))  # fmt: skip
    op("relu", lambda x: x.relu(), relu, every, signed_zeros=True)
    op("relu6", lambda x: x.relu6(), lambda x: np.clip(x, 0, 6), NUMBERS)
    op("hardtanh", lambda x: x.hardtanh(), lambda x: np.clip(x, -1, 1), FLOATS, widens=True)
    op("lt", lambda x, y: x < y, np.less, every, 2, result=truth)
    op("le", lambda x, y: x <= y, np.less_equal, every, 2, result=truth)
    op("gt", lambda x, y: x > y, np.greater, every, 2, result=truth)
    op("ge", lambda x, y: x >= y, np.greater_equal, every, 2, result=truth)
    op("eq", lambda x, y: x.eq(y), np.equal, every, 2, result=truth)
    op("ne", lambda x, y: x.ne(y), np.not_equal, every, 2, result=truth)
    op("isnan", lambda x: x.isnan(), real(np.isnan), every, result=truth)
    op("isinf", lambda x: x.isinf(), real(np.isinf), every, result=truth)
    op("isfinite", lambda x: x.isfinite(), real(np.isfinite), every, result=truth)
    choose: dict[str, Any] = {"first": dtypes.bool, "signed_zeros": True}
    op("where", lambda c, x, y: c.where(x, y), np.where, every, 3, **choose)
    op("masked_fill", lambda c, x: x.masked_fill(c, 1), lambda c, x: np.where(c, 1, x), NUMBERS, 2,
       **choose)  # fmt: skip
    # The tensor keeps its dtype, as in PyTorch.
    op("masked_fill", lambda c, x: x.masked_fill(c, 3), lambda c, x: np.where(c, True, x), truths,
       2, result=truth)  # fmt: skip
    op("logical_not", lambda x: x.logical_not(), lambda x: x == 0, every, result=truth)
    bits = (dtypes.bool, *INTEGERS)
    op("bitwise_not", lambda x: ~x, np.invert, bits, group="bits")
    op("bitwise_and", lambda x, y: x & y, np.bitwise_and, bits, 2, group="bits")
    op("bitwise_or", lambda x, y: x | y, np.bitwise_or, bits, 2, group="bits")
    op("bitwise_xor", lambda x, y: x ^ y, np.bitwise_xor, bits, 2, group="bits")
    shifted: dict[str, Any] = {"arity": 2, "second": shift_limits, "group": "bits"}
    op("lshift", lambda x, y: x << y, each(shifted_left), INTEGERS, **shifted)
    op("rshift", lambda x, y: x >> y, each(shifted_right), INTEGERS, **shifted)
    op("floordiv", lambda x, y: x // y, each(floor_divide), INTEGERS, 2)
    op("mod", lambda x, y: x % y, each(floor_modulo), INTEGERS, 2)
    op("div-trunc", lambda x, y: x.div(y, rounding_mode="trunc"), each(divide_toward_zero),
       INTEGERS, 2)  # fmt: skip
    op("fmod", lambda x, y: x.fmod(y),
       each(lambda x, y: 0 if y == 0 else x - y * divide_toward_zero(x, y)), INTEGERS, 2,
       keep=lambda x, y: np.not_equal(y, 0))  # fmt: skip
    op("logical_and", lambda x, y: x.logical_and(y), lambda x, y: (x != 0) & (y != 0), every, 2,
       result=truth)  # fmt: skip
    op("logical_or", lambda x, y: x.logical_or(y), lambda x, y: (x != 0) | (y != 0), every, 2,
       result=truth)  # fmt: skip
    op("logical_xor", lambda x, y: x.logical_xor(y), lambda x, y: (x != 0) ^ (y != 0), every, 2,
       result=truth)  # fmt: skip
    op("isposinf", lambda x: x.isposinf(), np.isposinf, FLOATS, result=truth)
    op("isneginf", lambda x: x.isneginf(), np.isneginf, FLOATS, result=truth)
    op("signbit", lambda x: x.signbit(), np.signbit, FLOATS, result=truth,
       keep=lambda x: ~np.isnan(x))  # fmt: skip
    op("frac", lambda x: x.frac(), lambda x: x - np.trunc(x), FLOATS,
       keep=lambda x: np.isfinite(x))  # fmt: skip
    op("fmax", lambda x, y: x.fmax(y), np.fmax, NUMBERS, 2)
    op("fmin", lambda x, y: x.fmin(y), np.fmin, NUMBERS, 2)
    op("heaviside", lambda x, y: x.heaviside(y), np.heaviside, FLOATS, 2)
    op("nan_to_num", lambda x: x.nan_to_num(2.0, 3.0, 4.0),
       lambda x: np.nan_to_num(x, nan=2.0, posinf=3.0, neginf=4.0), FLOATS)  # fmt: skip
    op("hardshrink", lambda x: x.hardshrink(), lambda x: np.where(np.abs(x) > 0.5, x, 0 * x),
       FLOATS, keep=lambda x: ~np.isinf(x))  # fmt: skip
    op("threshold", lambda x: threshold(x, 0.5, 7.0),
       lambda x: np.where(x <= 0.5, 7.0, x), FLOATS)  # fmt: skip
    op("clamp_min", lambda x, y: x.clamp_min(y), np.maximum, NUMBERS, 2)
    op("clamp_max", lambda x, y: x.clamp_max(y), np.minimum, NUMBERS, 2)
    signed: dict[str, Any] = {"arity": 2, "signed_zeros": True}
    # Beyond 2**24 in float32 the quotient is whole and rounded, by a unit at most.
    op("floordiv", lambda x, y: x // y, each(float_floor_divide), FLOATS, **signed, ulp=1.0,
       half_ulp=1.0)  # fmt: skip
    op("div-trunc", lambda x, y: x.div(y, rounding_mode="trunc"), lambda x, y: np.trunc(x / y),
       FLOATS, arity=2, keep=far_from_whole)  # fmt: skip
    op("mod", lambda x, y: x % y, each(float_modulo), FLOATS, **signed)
    op("fmod", lambda x, y: x.fmod(y), each(float_fmod), FLOATS, **signed)
    op("pow", lambda x, y: x**y, each(power), INTEGERS, 2)
    op("lerp", lambda x, y, w: x.lerp(y, w), lambda x, y, w: x + (y - x) * w, INTEGERS, 3)
    op("isclose", lambda x, y: x.isclose(y, 0.25, 1.0), near, FLOATS, 2, result=truth,
       keep=lambda x, y: np.abs(np.abs(x - y) - (0.25 * np.abs(y) + 1)) > 0.05)  # fmt: skip
    return found


def function_ops() -> list[Elementwise]:
    def op(name: str, theirs: Any, ulp: float, **rest: Any) -> None:
        rest.setdefault("dtypes", FLOATS)
        rest.setdefault("widens", True)
        ours = rest.pop("ours", lambda *x: getattr(x[0], name)(*x[1:]))
        found.append(Elementwise(name, ours, real(theirs), ulp=ulp, group="functions", **rest))

    found: list[Elementwise] = []
    op("exp2", np.exp2, 1.5, low=-20, high=20)
    op("exp", np.exp, 1.5, low=-20, high=20)
    op("expm1", np.expm1, 2)
    op("log2", np.log2, 1.5, double_ulp=3, low=0, high=20)
    op("log", np.log, 2, low=0, high=20)
    op("log10", np.log10, 2.5, low=0, high=20)
    op("log1p", np.log1p, 2.5, low=-0.9, high=3)
    op("logaddexp", np.logaddexp, 4, arity=2, half_ulp=2, magnitude=of_one)  # fmt: skip
    op("rsqrt", lambda x: 1 / np.sqrt(x), 1.5, low=0, high=9)
    op("sin", np.sin, 2, keep=small, low=-30, high=30)
    op("cos", np.cos, 2, keep=small, low=-30, high=30)
    op("tan", np.tan, 4, keep=lambda x: np.abs(x) < 1.4, low=-1.2, high=1.2)
    op("asin", np.arcsin, 3.5, low=-1, high=1)
    op("acos", np.arccos, 3.5, low=-1, high=1)
    op("atan", np.arctan, 2.5)
    op("sinh", np.sinh, 2.5)
    op("cosh", np.cosh, 2.5)
    op("tanh", np.tanh, 2)
    op("asinh", np.arcsinh, 3)
    op("acosh", np.arccosh, 3.5, low=1.1, high=9)
    op("atanh", np.arctanh, 3, low=-0.95, high=0.95)
    op("erf", erf, 3.5)
    op("sigmoid", sigmoid, 2.5, double_ulp=3.5)
    op("logsigmoid", lambda x: -softplus(-x), 1.5, magnitude=of_one)
    op("softplus", softplus, 1.5, magnitude=of_one)
    op("silu", lambda x: x * sigmoid(x), 3.5, keep=moderate)
    op("gelu", lambda x: x * (0.5 * (1 + erf(x / math.sqrt(2)))), 2, double_ulp=16, keep=moderate,
       magnitude=of_one)  # fmt: skip
    op("gelu-tanh", gelu_by_tanh, 2.5, ours=lambda x: x.gelu("tanh"), keep=moderate,
       magnitude=of_one)  # fmt: skip
    op("quick_gelu", lambda x: x * sigmoid(1.702 * x), 3, keep=moderate,
       magnitude=lambda x: np.abs(x) * (np.abs(x * sigmoid(1.702 * x)) + 2.0**-126))  # fmt: skip
    op("hardsigmoid", lambda x: np.clip(x / 6 + 0.5, 0, 1), 1, magnitude=of_one)
    op("hardswish", lambda x: x * np.clip(x + 3, 0, 6) / 6, 2.5, keep=moderate,
       magnitude=of_one)  # fmt: skip
    op("mish", lambda x: x * np.tanh(softplus(x)), 2.5, keep=moderate,
       magnitude=of_one)  # fmt: skip
    op("celu", lambda x: np.where(x > 0, x, 1.5 * np.expm1(np.minimum(x, 0) / 1.5)), 4,
       ours=lambda x: x.celu(1.5), half_ulp=1.1)  # fmt: skip
    op("selu", lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 *
       np.expm1(np.minimum(x, 0))), 3)  # fmt: skip
    op("softsign", lambda x: x / (1 + np.abs(x)), 2, keep=moderate)
    op("elu", lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))), 3)
    op("leaky_relu", lambda x: np.where(x > 0, x, x * 0.01), 1.5)
    exactly: dict[str, Any] = {"widens": False}
    op("atan2", np.arctan2, 3.5, arity=2, **exactly)
    op("hypot", np.hypot, 2, arity=2, **exactly)
    op("deg2rad", np.deg2rad, 1)
    op("rad2deg", np.rad2deg, 1)
    op("sinc", np.sinc, 4, keep=moderate, magnitude=of_one)
    op("erfc", each_real(math.erfc), 0.51, double_ulp=9, keep=lambda x: x < 26)
    op("erfinv", special("erfinv"), 8, double_ulp=40, low=-0.95, high=0.95)
    op("lgamma", special("gammaln"), 8, low=0.2, high=9, magnitude=of_one, double_ulp=40,
       keep=lambda x: (x > 0.1) & (x < 1e4))  # fmt: skip
    op("digamma", special("digamma"), 8, low=0.2, high=9, magnitude=of_one, double_ulp=40,
       keep=lambda x: (x > 0.1) & (x < 1e4))  # fmt: skip
    op("logit", lambda x: np.log(x / (1 - x)), 3, low=0.05, high=0.95, magnitude=of_one,
       keep=lambda x: (x > 0) & (x < 1))  # fmt: skip
    op("xlogy", lambda x, y: np.where((x == 0) & ~np.isnan(y), 0, x * np.log(y)), 3, arity=2,
       low=0.1, **exactly)  # fmt: skip
    op("logaddexp2", np.logaddexp2, 3, arity=2, magnitude=of_one, **exactly)
    op("softshrink", lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.5, 0), 1, half_ulp=1.1)
    op("pow", np.power, 0.51, double_ulp=1.5, arity=2, widens=False, low=0.1, high=4,
       keep=lambda x, y: np.isfinite(x) & np.isfinite(y) & (x >= 0) & ~np.signbit(x))  # fmt: skip
    op("lerp", lambda x, y, w: x + (y - x) * w, 2, arity=3, keep=moderate, half_ulp=1, low=0,
       high=1, widens=False, magnitude=lambda x, y, w: np.abs(x) + np.abs(y))  # fmt: skip
    return found


ELEMENTWISE = [*exact_ops(), *function_ops()]
