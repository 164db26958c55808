"""Powers of floats whose dtype is the widest at hand, nearly as exact as one rounding.

`exp2(y * log2(x))` alone loses a digit for every doubling of the exponent: an error of half a unit
in `y * log2(x)`, which may be 1,000, is one of 300 units in the power. So logarithm and product are
pairs of numbers, a value and what rounding took from it, with the digits of two (Dekker, "A
floating-point technique for extending the available precision", 1971). Products are split by their
bits and not by fused multiply-adds, which not all machines have.

    x = 2**e * m, 1/sqrt(2) <= m < sqrt(2);   s = (m - 1) / (m + 1)
    log(m) = 2 s (1 + s**2/3 + s**4/5 + ...)
    y * log2(x) = n + f, n whole;   x**y = 2**n * exp(f ln 2)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tilegrad.base.dtype import DType, dtypes

__all__ = ["power", "product"]

# A tensor of float32 or float64; and a value with what rounding took from it.
Real = Any
Pair = tuple[Real, Real]


@dataclass(frozen=True)
class _Format:
    """The format of a floating dtype, and the terms that its series need.

    Attributes:
        integer: the integers with as many bits.
        digits, bias: of the mantissa behind the leading one, and of the exponent.
        lift: subnormal numbers times 2**lift are normal.
        least, most: powers of two beyond these are 0 and infinite.
        squares, terms: of the series of the logarithm after s**2/3, and of the exponential's.
    """

    integer: DType
    digits: int
    bias: int
    lift: int
    least: float
    most: float
    squares: int
    terms: int

    @property
    def root(self) -> int:
        """The bits of sqrt(1/2)."""
        fraction = math.isqrt(1 << (2 * self.digits + 1)) - (1 << self.digits)
        return ((self.bias - 1) << self.digits) + fraction

    @property
    def high(self) -> int:
        """A mask of the sign, the exponent and the upper half of the digits."""
        return -(1 << ((self.digits + 2) // 2))


_FORMATS = {
    dtypes.float32: _Format(dtypes.int32, 23, 127, 24, -152.0, 129.0, 6, 8),
    dtypes.float64: _Format(dtypes.int64, 52, 1023, 54, -1080.0, 1025.0, 13, 15),
}


def power(size: Real, exponent: Real) -> Real:
    """size ** exponent, for `size` above 0, infinity and NaN included: within 0.8 units in the last
    place. Its derivatives are those of exp2(exponent * log2(size)).
    """
    plain = (exponent * size.log2()).exp2()
    x, y = size.detach(), exponent.detach()
    format_ = _FORMATS[size.dtype]
    logarithm = _log2(x, format_)
    value, rest = _times(logarithm, y, format_)
    # Beyond these limits what rounding took may be larger than they are.
    is_within = (value > format_.least) & (value < format_.most)
    value = value.clip(format_.least, format_.most)
    exact = _exp2((value, is_within.where(rest, 0.0)), format_)
    # The plain power of the largest number is infinite.
    is_finite = x.isfinite() & y.isfinite()
    is_plain = plain.detach().isfinite()
    slope = is_plain.where(plain - plain.detach(), 0.0)
    return (is_finite & (is_plain | exact.isfinite())).where(exact + slope, plain)


def _log2(x: Real, format_: _Format) -> Pair:
    is_small = x < 2.0 ** (1 - format_.bias)
    bits = is_small.where(x * 2.0**format_.lift, x).bitcast(format_.integer)
    exponent = (bits - format_.root) >> format_.digits
    m = (bits - (exponent << format_.digits)).bitcast(x.dtype)
    whole = (exponent - is_small.where(format_.lift, 0)).cast(x.dtype)
    # s, by one step of long division.
    below = m + 1
    lost = m - (below - 1)
    quotient = (m - 1) / below
    back, missing = product(quotient, below)
    s: Pair = quotient, (((m - 1 - back) - missing) - quotient * lost) / below
    # 1 + s**2/3 + ..., with the first two terms as pairs.
    square, rest = product(s[0], s[0])
    rest = rest + s[0] * s[1] * 2
    third = _constant(Fraction(1, 3), format_)
    term, small = product(square, third[0])
    small = small + square * third[1] + rest * third[0]
    series = _series(square, [1 / (2 * k + 1) for k in range(2, format_.squares + 1)])
    small = small + square * square * series
    total = term + 1
    sum_ = total, (term - (total - 1)) + small
    half, half_rest = product(s[0], sum_[0])
    half_rest = half_rest + s[0] * sum_[1] + s[1] * sum_[0]
    scaled, scaled_rest = product(half, _TWO_OVER_LN2[format_.digits][0])
    scaled_rest = scaled_rest + half * _TWO_OVER_LN2[format_.digits][1]
    scaled_rest = scaled_rest + half_rest * _TWO_OVER_LN2[format_.digits][0]
    result = whole + scaled
    rest = (scaled - (result - whole)) + scaled_rest
    rounded = result + rest
    return rounded, (result - rounded) + rest


def _times(pair: Pair, y: Real, format_: _Format) -> Pair:
    value, rest = product(pair[0], y)
    return value, rest + pair[1] * y


def _exp2(pair: Pair, format_: _Format) -> Real:
    """2 to the power of a pair, whose value is between `least` and `most`."""
    value, rest = pair
    whole = (value + (value < 0).where(-0.5, 0.5)).trunc()
    ln2 = _LN2[format_.digits]
    angle, small = product(value - whole, ln2[0])
    small = small + (value - whole) * ln2[1] + rest * ln2[0]
    beyond = (
        angle * angle * _series(angle, [1 / math.factorial(k) for k in range(2, format_.terms)])
    )
    total = angle + 1
    # exp(angle + small) is exp(angle) * (1 + small).
    mantissa = total + ((angle - (total - 1)) + (beyond + small * (total + beyond)))
    # 2**whole in two steps, both normal numbers: the last product rounds what is too small once.
    count = whole.cast(format_.integer)
    first = count >> 1
    for exponent_half in (first, count - first):
        mantissa = mantissa * ((exponent_half + format_.bias) << format_.digits).bitcast(
            value.dtype
        )
    return mantissa


def product(a: Real, b: Real) -> Pair:
    """a * b, and what rounding took from it; `b` may be a number."""
    format_ = _FORMATS[a.dtype]
    rounded = a * b
    a_high = _high(a, format_)
    if isinstance(b, float):
        b_high: Real = _high_of(b, format_)
    else:
        b_high = _high(b, format_)
    a_low, b_low = a - a_high, b - b_high
    rest = ((a_high * b_high - rounded) + a_high * b_low + a_low * b_high) + a_low * b_low
    return rounded, rest


def _high(x: Real, format_: _Format) -> Real:
    """The upper half of the digits of x."""
    return (x.bitcast(format_.integer) & format_.high).bitcast(x.dtype)


def _series(x: Real, coefficients: list[float]) -> Real:
    """A polynomial, its coefficients from the constant on."""
    total = x * coefficients[-1] + coefficients[-2]
    for coefficient in reversed(coefficients[:-2]):
        total = total * x + coefficient
    return total


def _rounded(value: Fraction, digits: int) -> Fraction:
    """The nearest number of `digits` binary digits, ties away from zero."""
    shift = digits - (value.numerator.bit_length() - value.denominator.bit_length())
    scaled = abs(value) * Fraction(2) ** shift
    if scaled >= 1 << digits:
        shift, scaled = shift - 1, scaled / 2
    nearest = (2 * scaled.numerator + scaled.denominator) // (2 * scaled.denominator)
    return (1 if value > 0 else -1) * nearest * Fraction(2) ** -shift


def _constant(value: Fraction, format_: _Format) -> tuple[float, float]:
    """A number as a pair of floats."""
    first = _rounded(value, format_.digits + 1)
    return float(first), float(_rounded(value - first, format_.digits + 1))


def _high_of(value: float, format_: _Format) -> float:
    return float(_rounded(Fraction(value), (format_.digits + 1) // 2))


# ln 2 with twice the digits of float64: the sum of 1 / (k 2**k).
_LN2_EXACT = sum((Fraction(1, k << k) for k in range(1, 140)), Fraction(0))
_LN2 = {format_.digits: _constant(_LN2_EXACT, format_) for format_ in _FORMATS.values()}
_TWO_OVER_LN2 = {
    format_.digits: _constant(2 / _LN2_EXACT, format_) for format_ in _FORMATS.values()
}
