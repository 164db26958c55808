"""exp, exp2, log2, sin and cos as polynomials: only arithmetic, bitcasts and selects, so that they
vectorize; and SCALE, where the target has it.

Each function reduces its argument exactly, evaluates a polynomial by Horner's rule with MULACC, and
combines the results. Special values (zero, infinities, NaN, subnormal numbers) take the same path,
with a select at the end. float16 and bfloat16 are computed in float32.

Error bounds, against correctly rounded results (measured by tests/lower/test_transcendental.py):

    exp      float32 1.5 ulp, float64 2 ulp
    exp2     float32 1.5 ulp, float64 2 ulp
    log2     float32 1.5 ulp, float64 3 ulp
    sin      float32 2 ulp, float64 2.5 ulp, for arguments of any size (range_reduction.py)
    cos      the same

Coefficients: those of float32 are Chebyshev fits, of degree 6 for exp and exp2, 10 for log2 and 11
for sin; those of float64 are the functions' series up to a term below half a unit in the last
place.

tanh and the logistic function are made of one exponential, a division and, for tanh near 0, a
polynomial. In the graph each is one node, whose derivative is a product of its result; so the
graphs of recurrent networks, of their gradients and of their schedules are small. No target needs
the ops: the graphs here replace each node before anything is rendered. The exponent is at most 0,
so the power is at most 1, and infinities and NaN take the same path as numbers. An error of at most
1.5 ulp for float32 and 2 ulp for float64 (tests/lower/test_transcendental.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tilegrad.base.dtype import DType, dtypes
from tilegrad.ir.matcher import PatternMatcher
from tilegrad.ir.op import Ops
from tilegrad.ir.pattern import Rule, UPat
from tilegrad.ir.uop import UOp
from tilegrad.lower.range_reduction import reduced

__all__ = [
    "COMPOSED",
    "FUNCTIONS",
    "cos",
    "exp",
    "exp2",
    "horner",
    "log2",
    "sigmoid",
    "sin",
    "tanh",
    "wide_enough",
]

_LN2 = math.log(2.0)
_EXP2_FLOAT = (1.0, 0.6931472067106187, 0.24022651213596455, 0.05550327214210924,
               0.009618025602796367, 0.0013400432164871745,
               0.00015469732024939734)  # fmt: skip
_EXP_FLOAT = (1.0, 1.0, 0.4999999343199124, 0.16666520397761744, 0.04166839081122878,
              0.00836874522795643, 0.001381453885311253)  # fmt: skip
_EXP_DOUBLE = tuple(1.0 / math.factorial(k) for k in range(14))
# ln 2 as a sum of two constants; the first has few bits, so that its multiples by exponents are
# exact.
_LN2_FLOAT = (0.693115234375, 3.1946184945309415e-05)
_LN2_DOUBLE = (0.6931471803691238, 1.9082149292705877e-10)
_EXP2_DOUBLE = tuple(_LN2**k / math.factorial(k) for k in range(14))
_LOG2_FLOAT = (1.4426950418020965, -0.7213475159796165, 0.48089788826877267,
               -0.36067410606372896, 0.288576207860461, -0.24046883102081812,
               0.20504394440797852, -0.17888555493503466, 0.17203325235009487,
               -0.16917613212306476,
               0.09720983942791098)  # fmt: skip
_ATANH_DOUBLE = tuple(2.0 / (_LN2 * (2 * k + 1)) for k in range(12))
_SIN = tuple((-1.0) ** k / math.factorial(2 * k + 1) for k in range(11))
# A fit of sin, chosen among its neighbours so that sin(pi/2) is 1 and no value exceeds 1.
_SIN_FLOAT = (1.0, -0.1666666567325592, 0.008333328180015087, -0.000198410838493146,
              2.753646867859061e-06, -2.408028088041192e-08)  # fmt: skip

# The vector sizes, in bytes, that SCALE takes.
_SCALED = (16, 32, 64)


def _const(like: UOp, value: float) -> UOp:
    return UOp.const(like.dtype, value)


def horner(x: UOp, coefficients: tuple[float, ...]) -> UOp:
    """The polynomial of x with these coefficients, from the constant on."""
    total = _const(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = _multiply_add(total, x, _const(x, coefficient))
    return total


def _multiply_add(x: UOp, factor: UOp, addend: UOp) -> UOp:
    return UOp(Ops.MULACC, x.dtype, (x, factor, addend))


def _integer(dtype: DType) -> DType:
    """The integer dtype of the same width."""
    return (dtypes.int64 if dtype.itemsize == 8 else dtypes.int32).vec(dtype.lanes)


def _at_most(x: UOp, limit: float) -> UOp:
    """The minimum; NaN passes."""
    bound = _const(x, limit)
    return (bound < x).where(bound, x)


def _at_least(x: UOp, limit: float) -> UOp:
    bound = _const(x, limit)
    return (x < bound).where(bound, x)


def _power(x: UOp, scale: float, has_scale: bool) -> tuple[UOp, Callable[[UOp], UOp]]:
    """x * scale rounded to an integer n, and a function that multiplies a value by 2**n with one
    rounding. |n| must be below 1100, for float32 below 150. Both variants give equal results.

    A sum with a large number leaves n in its last bits. Where SCALE is no instruction, the large
    number includes an exponent bias. The bits then are the exponent of a power of two in the middle
    of the range; a product with a second power rounds subnormal results once.
    """
    is_double = x.dtype.itemsize == 8
    bits, bias, far = (52, 1023, 512) if is_double else (23, 127, 64)
    if has_scale and x.dtype.lanes * x.dtype.itemsize in _SCALED:
        magic = 1.5 * 2.0**bits
        whole = _multiply_add(x, _const(x, scale), _const(x, magic)) + -magic
        return whole, lambda value: value.alu(Ops.SCALE, whole)
    magic = 1.5 * 2.0**bits + bias
    is_negative = x < _const(x, 0.0)
    shift = is_negative.where(_const(x, magic + far), _const(x, magic - far))
    back = is_negative.where(_const(x, 2.0**-far), _const(x, 2.0**far))
    shifted = _multiply_add(x, _const(x, scale), shift)
    power = (shifted.bitcast(_integer(x.dtype)) << bits).bitcast(x.dtype)
    return shifted + shift * -1.0, lambda value: value * power * back


def exp(x: UOp, has_scale: bool = False) -> UOp:
    """e**x for float32 and float64: 2**n * e**(x - n ln 2)."""
    is_double = x.dtype.itemsize == 8
    inside = _at_most(_at_least(x, -746.0 if is_double else -104.5), 711.0 if is_double else 89.0)
    whole, scaled = _power(inside, 1 / _LN2, has_scale)
    rest = inside
    for ln2 in _LN2_DOUBLE if is_double else _LN2_FLOAT:
        rest = _multiply_add(whole, _const(x, -ln2), rest)
    value = horner(rest, _EXP_DOUBLE if is_double else _EXP_FLOAT)
    return scaled(_unless_zero(x, -745.1332191019411 if is_double else -103.97207641601562, value))


def exp2(x: UOp, has_scale: bool = False) -> UOp:
    """2**x for float32 and float64: 2**n * p(x - n)."""
    is_double = x.dtype.itemsize == 8
    inside = _at_most(
        _at_least(x, -1080.0 if is_double else -152.0), 1025.0 if is_double else 129.0
    )
    whole, scaled = _power(inside, 1.0, has_scale)
    rest = inside + whole * -1.0
    value = horner(rest, _EXP2_DOUBLE if is_double else _EXP2_FLOAT)
    return scaled(_unless_zero(x, -1074.9999999999998 if is_double else -149.99998474121094, value))


def _unless_zero(x: UOp, least: float, value: UOp) -> UOp:
    """`value`, or 0 below `least`, the least number whose power does not round to 0: an
    operation that underflows took 85 ns a vector on an Emerald Rapids, 22 times the function, and
    what a mask left out of a softmax is e**-inf.
    """
    return (x < _const(x, least)).where(_const(x, 0.0), value)


def log2(x: UOp, has_fma: bool = True, has_double: bool = True) -> UOp:
    """log2(x) for float32 and float64: the exponent plus the logarithm of a mantissa between
    sqrt(1/2) and sqrt(2). Without fused multiply-adds, float32 is computed in float64; without
    float64 as well, its leading product is split into an exact one and a small rest.
    """
    is_double = x.dtype.itemsize == 8
    bits, least, lift = (52, 2.0**-1022, 54) if is_double else (23, 2.0**-126, 24)
    is_small = x < _const(x, least)
    lifted = is_small.where(x * 2.0**lift, x)
    pattern = lifted.bitcast(_integer(x.dtype))
    exponent = (pattern + -(0x3FE6A09E667F3BCD if is_double else 0x3F3504F3)) >> bits
    mantissa = (pattern + (exponent << bits) * -1).bitcast(x.dtype)
    above = mantissa + -1.0
    if is_double:
        ratio = above.alu(Ops.FDIV, mantissa + 1.0)
        value = ratio * horner(ratio * ratio, _ATANH_DOUBLE)
    elif not has_fma and not has_double:
        value = _log2_in_halves(above)
    elif not has_fma:
        above = above.cast(dtypes.float64)
        value = above * horner(above, _LOG2_FLOAT)
    else:
        # The first coefficient as a sum of two: all products but the leading one are small.
        first, *rest = _LOG2_FLOAT
        leading = 1.44269502162933349609375
        small = UOp(
            Ops.MULACC, x.dtype,
            (above * above, horner(above, tuple(rest)), above * (first - leading)),
        )  # fmt: skip
        value = UOp(Ops.MULACC, x.dtype, (above, _const(x, leading), small))
    whole = exponent + is_small.where(
        UOp.const(exponent.dtype, -lift), UOp.const(exponent.dtype, 0)
    )
    result = (value + whole.cast(value.dtype)).cast(x.dtype)
    result = x.eq(_const(x, 0.0)).where(_const(x, -math.inf), result)
    result = (x < _const(x, 0.0)).where(_const(x, math.nan), result)
    return (x < _const(x, math.inf)).where(result, x)


def _log2_in_halves(above: UOp) -> UOp:
    """log2(1 + above) by sums and products of float32 that round."""
    first, *rest = _LOG2_FLOAT
    # 12 bits each: their product is exact.
    leading = 1.4423828125
    kind = dtypes.uint32.vec(above.dtype.lanes)
    upper = (above.bitcast(kind) & 0xFFFFF000).bitcast(above.dtype)
    small = above * above * horner(above, tuple(rest))
    lower = (above - upper) * leading + above * (first - leading)
    return upper * leading + (lower + small)


def cos(x: UOp, angle: UOp | None = None) -> UOp:
    """cos(x) for float32 and float64: the sine of `angle`, to which x reduces for a cosine."""
    if angle is None:
        angle = reduced(x, is_cosine=True)
    value = x.eq(_const(x, 0.0)).where(_const(x, 1.0), _sine_of_angle(angle))
    return _of_finite(x, value)


def sin(x: UOp, angle: UOp | None = None) -> UOp:
    """sin(x) for float32 and float64: an odd polynomial of `angle`, the range reduction of x, or
    without one of the branch-free reduction.
    """
    if angle is None:
        angle = reduced(x)
    return _of_finite(x, x.eq(_const(x, 0.0)).where(x, _sine_of_angle(angle)))


def _sine_of_angle(angle: UOp) -> UOp:
    """The sine of an angle between -pi/2 and pi/2."""
    terms = _SIN if angle.dtype.itemsize == 8 else _SIN_FLOAT
    square = angle * angle
    value = UOp(Ops.MULACC, angle.dtype, (angle * square, horner(square, terms[1:]), angle))
    # The coefficients of float32 are chosen so that no value exceeds 1.
    return _at_most(_at_least(value, -1.0), 1.0) if angle.dtype.itemsize == 8 else value


def _of_finite(x: UOp, value: UOp) -> UOp:
    """`value`, or NaN where x is infinite or NaN."""
    is_finite = (x < _const(x, math.inf)) & (_const(x, -math.inf) < x)
    return is_finite.where(value, _const(x, math.nan))


def wide_enough(build: Callable[[UOp], UOp]) -> Callable[[UOp], UOp]:
    """The function on float32 or float64, narrower floats by way of float32."""

    def apply(node: UOp) -> UOp:
        (value,) = node.src
        if node.dtype.itemsize >= 4:
            return build(value)
        return build(value.cast(dtypes.float32)).cast(node.dtype)

    return apply


# (tanh(x) / x - 1) / x^2 in x * x, on 0 <= x <= 0.625 for float32 and 0.75 for float64: fits on
# Chebyshev points.
_TANH_FLOAT = (
    -0.33333281940980203, 0.1333144217529943, -0.05373971344032077, 0.020639082477080867,
    -0.005704982170141786,
)  # fmt: skip
_TANH_DOUBLE = (
    -0.333333333333333, 0.13333333333325711, -0.05396825396335104, 0.021869488389232472,
    -0.008863233046952175, 0.003592101827604733, -0.001455650980731706, 0.0005891465815054115,
    -0.00023617515600121713, 8.998060671565791e-05, -2.8020688982656717e-05, 3.656650267063963e-06,
    2.0600768859001456e-06, -9.537641416713722e-07,
)  # fmt: skip


def sigmoid(x: UOp) -> UOp:
    """1 / (1 + exp(-x)) for float32 and float64, as exact far below 0 as above."""
    is_negative = x < 0.0
    one = UOp.const(x.dtype, 1.0)
    power = is_negative.where(x, -x).alu(Ops.EXP)
    return is_negative.where(power, one).alu(Ops.FDIV, power + 1.0)


def tanh(x: UOp) -> UOp:
    """tanh(x) for float32 and float64: a polynomial near 0, else 1 - 2 / (exp(2 |x|) + 1)."""
    is_double = x.dtype.itemsize == 8
    limit = 0.75 if is_double else 0.625
    is_negative = x < 0.0
    power = (is_negative.where(x, -x) * 2.0).alu(Ops.EXP)
    size = 1.0 - (power * 2.0).alu(Ops.FDIV, power + 1.0)
    far = is_negative.where(-size, size)
    square = x * x
    rest = horner(square, _TANH_DOUBLE if is_double else _TANH_FLOAT)
    near = UOp(Ops.MULACC, x.dtype, (square, rest, UOp.const(x.dtype, 1.0))) * x
    is_near = (x < limit) & (UOp.const(x.dtype, -limit) < x)
    return is_near.where(near, far)


COMPOSED = {Ops.TANH: tanh, Ops.SIGMOID: sigmoid}
"""The functions that no target needs to have."""

FUNCTIONS = PatternMatcher(
    "functions",
    [
        Rule(f"no-{op.name.lower()}", UPat(op, name="node"), function=wide_enough(build))
        for op, build in COMPOSED.items()
    ],
)
