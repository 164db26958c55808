"""exp2, log2 and sin as polynomials: arithmetic, casts of bits and choices only, so that whole
vectors run through them.

Each function reduces its argument exactly, evaluates a polynomial by Horner's rule with MULACC, and
puts the parts together. Special values (zero, infinities, NaN, subnormal numbers) take the same
path with a choice at the end. half and bfloat16 are computed in float32.

Error bounds, against correctly rounded results (tests/lower/test_transcendental.py measures them):

    exp2     float32 1.5 ulp, float64 2 ulp
    log2     float32 2 ulp, float64 3 ulp
    sin      float32 2 ulp, float64 2.5 ulp, of arguments of any size (lower/turns.py reduces them)

Coefficients: float32 exp2 and log2 are Chebyshev fits of degree 6 and 10; the others are the
functions' own series, taken far enough that the next term is below half a unit in the last place.
"""

from __future__ import annotations

import math

from tilegrad.base.dtype import DType, dtypes
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.lower.turns import reduced

__all__ = ["exp2", "log2", "sin"]

_LN2 = math.log(2.0)
_EXP2_FLOAT = (1.0, 0.6931472067106187, 0.24022651213596455, 0.05550327214210924,
               0.009618025602796367, 0.0013400432164871745,
               0.00015469732024939734)  # fmt: skip
_EXP2_DOUBLE = tuple(_LN2**k / math.factorial(k) for k in range(14))
_LOG2_FLOAT = (1.4426950418020965, -0.7213475159796165, 0.48089788826877267,
               -0.36067410606372896, 0.288576207860461, -0.24046883102081812,
               0.20504394440797852, -0.17888555493503466, 0.17203325235009487,
               -0.16917613212306476,
               0.09720983942791098)  # fmt: skip
_ATANH_DOUBLE = tuple(2.0 / (_LN2 * (2 * k + 1)) for k in range(12))
_SIN = tuple((-1.0) ** k / math.factorial(2 * k + 1) for k in range(11))
_SIN_FLOAT_TERMS = 7


def _const(like: UOp, value: float) -> UOp:
    return UOp.const(like.dtype, value)


def _horner(x: UOp, coefficients: tuple[float, ...]) -> UOp:
    total = _const(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = UOp(Ops.MULACC, x.dtype, (total, x, _const(x, coefficient)))
    return total


def _integer(dtype: DType) -> DType:
    """The integers with as many bits."""
    return (dtypes.int64 if dtype.itemsize == 8 else dtypes.int32).vec(dtype.lanes)


def _mantissa_bits(dtype: DType) -> int:
    return 52 if dtype.itemsize == 8 else 23


def _power(exponent: UOp, dtype: DType) -> UOp:
    """2 to the integer `exponent`, which must be that of a normal number."""
    bits = _mantissa_bits(dtype)
    bias = 1023 if dtype.itemsize == 8 else 127
    return ((exponent + bias) << bits).bitcast(dtype)


def _at_most(x: UOp, limit: float) -> UOp:
    """The smaller of the two; NaN passes."""
    bound = _const(x, limit)
    return (bound < x).where(bound, x)


def _at_least(x: UOp, limit: float) -> UOp:
    bound = _const(x, limit)
    return (x < bound).where(bound, x)


def _nearest(x: UOp) -> tuple[UOp, UOp]:
    """x rounded to a whole number, as a float and as an integer; |x| must be below 2**21."""
    bits = _mantissa_bits(x.dtype)
    magic = 1.5 * 2.0**bits
    shifted = x + _const(x, magic)
    whole = shifted + _const(x, -magic)
    base = 0x4338000000000000 if bits == 52 else 0x4B400000
    return whole, shifted.bitcast(_integer(x.dtype)) + -base


def exp2(x: UOp) -> UOp:
    """2**x for float32 and float64: 2**n * p(x - n), the power in two halves so that results may be
    subnormal.
    """
    is_double = x.dtype.itemsize == 8
    inside = _at_most(
        _at_least(x, -1080.0 if is_double else -152.0), 1025.0 if is_double else 129.0
    )
    whole, exponent = _nearest(inside)
    part = inside + whole * -1.0
    value = _horner(part, _EXP2_DOUBLE if is_double else _EXP2_FLOAT)
    half = exponent >> 1
    return value * _power(half, x.dtype) * _power(exponent + half * -1, x.dtype)


def log2(x: UOp) -> UOp:
    """log2(x) for float32 and float64: the exponent plus the logarithm of a mantissa between
    sqrt(1/2) and sqrt(2).
    """
    is_double = x.dtype.itemsize == 8
    bits = _mantissa_bits(x.dtype)
    least, lift = (2.0**-1022, 54) if is_double else (2.0**-126, 24)
    is_small = x < _const(x, least)
    lifted = is_small.where(x * 2.0**lift, x)
    pattern = lifted.bitcast(_integer(x.dtype))
    exponent = (pattern + -(0x3FE6A09E667F3BCD if is_double else 0x3F3504F3)) >> bits
    mantissa = (pattern + (exponent << bits) * -1).bitcast(x.dtype)
    above = mantissa + -1.0
    if is_double:
        ratio = above.alu(Ops.FDIV, mantissa + 1.0)
        value = ratio * _horner(ratio * ratio, _ATANH_DOUBLE)
    else:
        value = above * _horner(above, _LOG2_FLOAT)
    whole = exponent + is_small.where(
        UOp.const(exponent.dtype, -lift), UOp.const(exponent.dtype, 0)
    )
    result = value + whole.cast(x.dtype)
    result = x.eq(_const(x, 0.0)).where(_const(x, -math.inf), result)
    result = (x < _const(x, 0.0)).where(_const(x, math.nan), result)
    return (x < _const(x, math.inf)).where(result, x)


def sin(x: UOp, angle: UOp | None = None) -> UOp:
    """sin(x) for float32 and float64: an odd polynomial of the `angle` between -pi/2 and pi/2 that
    lower.turns has made of x, or would make of it without a branch.
    """
    if angle is None:
        angle = reduced(x)
    terms = _SIN if x.dtype.itemsize == 8 else _SIN[:_SIN_FLOAT_TERMS]
    square = angle * angle
    value = UOp(Ops.MULACC, angle.dtype, (angle * square, _horner(square, terms[1:]), angle))
    value = (x.eq(_const(x, 0.0))).where(x, value)
    is_finite = (x < _const(x, math.inf)) & (_const(x, -math.inf) < x)
    return is_finite.where(value, _const(x, math.nan))
