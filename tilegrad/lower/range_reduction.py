"""Range reduction: angles of any size brought between -pi/2 and pi/2, for sine and cosine.

Up to `FAR`, the nearest multiple of pi is subtracted in float64, with pi as a sum of constants
whose multiples are exact. Beyond, x = m * 2**e with an integer m, and the fraction of x / 2 pi is
that of m * (2**e / 2 pi). Only a window of the binary digits of 1 / 2 pi matters: digits further
left give an integer, and digits further right are below the precision (Payne, Hanek: Radian
Reduction for Trigonometric Functions, 1983). The digits are selected for each lane, and the product
is one of integers in limbs of 32 bits.

The distance of a number from a multiple of pi / 2 is at least 2**-61 for float64 and 2**-30 for
float32 (Muller: Elementary Functions, section 11.3.2), so 128 and 64 bits of the fraction are more
than the result's precision.
"""

from __future__ import annotations

import math
from functools import cache

from tilegrad.base.dtype import AddressSpace, DType, dtypes
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.uop import UOp

__all__ = [
    "FAR", "any_lane", "far", "is_far", "near", "reduced", "reduced_by_integers",
    "reduced_together",
]  # fmt: skip

# pi as a sum of constants of 27 bits, so that a multiple below 2**26 of each is exact, with or
# without fused multiply-adds; the last constant has the rest.
_PI_TERMS = (
    3.141592651605606,
    1.9841871479187034e-09,
    1.144237741932715e-17,
    3.2892513872648515e-26,
)
FAR = 2.0**25 * math.pi
# Zeros before the first digits of 1 / 2 pi, so that the first bit needed is at a position >= 0.
_ZEROS = 32
_LIMB = 0xFFFFFFFF


def near(x: UOp, is_cosine: bool = False) -> UOp:
    """An angle between -pi/2 and pi/2 whose sine is that of x, or the cosine of x, for |x| <= FAR:
    x minus the nearest multiple of pi, or odd multiple of pi / 2, in float64 for both.
    """
    wide = x.cast(dtypes.float64)
    magic = UOp.const(wide.dtype, 1.5 * 2.0**52)
    multiples = wide * (1.0 / math.pi)
    shifted = (multiples + -0.5 if is_cosine else multiples) + magic
    whole = shifted + magic * -1.0
    is_odd = (shifted.bitcast(_int64(x)) & 1).ne(0)
    if is_cosine:
        # cos(k pi + pi/2 + rest) is -sin(rest), or sin(rest) where k is odd.
        whole, is_odd = whole + 0.5, is_odd.logical_not()
    rest = wide
    for term in _PI_TERMS:
        rest = UOp(Ops.MULACC, wide.dtype, (whole, UOp.const(wide.dtype, -term), rest))
    angle = rest.cast(x.dtype)
    return is_odd.where(angle * -1.0, angle)


def far(x: UOp, is_cosine: bool = False) -> UOp:
    """The same for finite x beyond `FAR`."""
    is_double = x.dtype.itemsize == 8
    fraction = _fraction(x, is_double)
    if is_cosine:
        fraction[0] = fraction[0] + (1 << 62)
    # The nearest half period; adding a quarter wraps around at the full period.
    half = (fraction[0] + (1 << 62)) >> 63
    top = (fraction[0] + (half << 63)).bitcast(_int64(x))
    if is_double:
        angle = _radians_exact(top, fraction[1])
    else:
        # From units of 2**-64 of a period.
        angle = (top.cast(dtypes.float64) * (math.pi * 2.0**-63)).cast(x.dtype)
    is_other = half.ne(0)
    if not is_cosine:
        is_other = (x < UOp.const(x.dtype, 0.0)).ne(is_other)
    return is_other.where(angle * -1.0, angle)


def reduced_by_integers(x: UOp, is_cosine: bool) -> UOp:
    """The angle of a float32 of any size without float64: the fraction of a period and its product
    with pi are integers, which are rounded once. A small x needs neither.
    """
    fraction = _fraction(x, False)[0]
    if is_cosine:
        fraction = fraction + (1 << 62)
    half = (fraction + (1 << 62)) >> 63
    angle = _radians_single((fraction + (half << 63)).bitcast(_int64(x)))
    is_other = half.ne(0)
    is_negative = x < UOp.const(x.dtype, 0.0)
    if not is_cosine:
        is_other = is_negative.ne(is_other)
    angle = is_other.where(angle * -1.0, angle)
    size = is_negative.where(x * -1.0, x)
    # The slice of digits begins behind the point from 2**-9 on.
    limit, near_angle = (2.0**-6, size * -1.0 + math.pi / 2) if is_cosine else (1.0, x)
    return (size < UOp.const(x.dtype, limit)).where(near_angle, angle)


def _radians_single(top: UOp) -> UOp:
    """2**-64 periods, a quarter at most, as an angle in float32."""
    u64 = dtypes.uint64.vec(top.dtype.lanes)
    is_negative = top < UOp.const(top.dtype, 0)
    size = is_negative.where(top * -1, top).cast(u64)
    # pi * 2**30 as a whole number and a fraction of 32 bits.
    pi = _digits_of_pi(62)
    high, low = size >> 32, size & _LIMB
    whole = high * (pi >> 32) + ((high * (pi & _LIMB)) >> 32) + ((low * (pi >> 32)) >> 32)
    angle = whole.cast(dtypes.float32.vec(top.dtype.lanes)) * 2.0**-61
    return is_negative.where(angle * -1.0, angle)


def is_far(x: UOp) -> UOp:
    """Whether |x| > FAR; NaN is not."""
    bits = x.bitcast((dtypes.int64 if x.dtype.itemsize == 8 else dtypes.int32).vec(x.dtype.lanes))
    size = (bits & ((1 << (8 * x.dtype.itemsize - 1)) - 1)).bitcast(x.dtype)
    return UOp.const(x.dtype, FAR) < size


def reduced(x: UOp, is_cosine: bool = False) -> UOp:
    """The angle of x, near or far, without a branch: both are computed."""
    return is_far(x).where(far(x, is_cosine), near(x, is_cosine))


def reduced_together(values: list[UOp], number: int, is_cosine: bool) -> list[UOp]:
    """The angles of values of one dtype that are known at the same time. The rare far angles are
    computed in a loop that does not run where there is none. So they cost one test for all values
    together, and their constants take no vector registers.

    before   a, b                                               float.vec(4)
    after    angles[0..8] = near(a), near(b); sizes[0..8] = a, b
             for (i = 0; i < (any is_far ? 8 : 0); i++)
               if (is_far(sizes[i])) angles[i] = far(sizes[i])
             angles[0..4], angles[4..8]

    The arrays have the numbers `number` and `number` + 1, the loop has `number`.
    """
    dtype, lanes = values[0].dtype.scalar, values[0].dtype.lanes
    size = lanes * len(values)
    sizes, angles = (
        UOp(Ops.DEFINE_LOCAL, dtype.ptr(size, AddressSpace.SCRATCH), (), number + offset)
        for offset in (0, 1)
    )
    offsets = [UOp.const(dtypes.int32, lanes * number) for number in range(len(values))]
    given = sizes.after(*[sizes.store(at, x) for at, x in zip(offsets, values, strict=True)])
    near_angles = angles.after(
        *[angles.store(at, near(x, is_cosine)) for at, x in zip(offsets, values, strict=True)]
    )
    flags = is_far(values[0])
    for x in values[1:]:
        flags = flags | is_far(x)
    times = any_lane(flags).where(UOp.const(dtypes.int32, size), UOp.const(dtypes.int32, 0))
    loop = UOp(Ops.RANGE, dtypes.int32, (times,), (number, Axis.LOOP))
    x = given.load(loop)
    done = near_angles.after(near_angles.store(loop, far(x, is_cosine), is_far(x)).end(loop))
    return [done.load(at, dtype=values[0].dtype) for at in offsets]


def any_lane(flags: UOp) -> UOp:
    """Whether one of the lanes is true."""
    while flags.dtype.lanes > 1:
        half = flags.dtype.lanes // 2
        flags = flags.gep(*range(half)) | flags.gep(*range(half, 2 * half))
    return flags


def _fraction(x: UOp, is_double: bool) -> list[UOp]:
    """The fraction of |x| / 2 pi, as words of 64 bits: one for float32, two for float64."""
    u64 = dtypes.uint64.vec(x.dtype.lanes)
    bits = x.bitcast((dtypes.uint64 if is_double else dtypes.uint32).vec(x.dtype.lanes)).cast(u64)
    digits, bias = (52, 1023) if is_double else (23, 127)
    whole = (bits & ((1 << digits) - 1)) | (1 << digits)
    exponent = (bits >> digits) & (2 * bias + 1)
    # Lanes that are not far may have any exponent here; their results are not used.
    bit = exponent + ((1 << 64) + _ZEROS - bias - digits)
    limbs = _digits_from(bit, *((3, 4) if is_double else (2, 2)))[: 6 if is_double else 3]
    product = _times(limbs, whole & _LIMB)
    if is_double:
        # The upper half has a weight of one limb more.
        upper = _times(limbs[1:], whole >> 32)
        product = _sum(product, [*upper, UOp.const(u64, 0)])
    pairs = zip(product[0::2], product[1::2], strict=False)
    return [(high << 32) | low for high, low in pairs][: 2 if is_double else 1]


def _digits_from(bit: UOp, words: int, levels: int) -> list[UOp]:
    """`words` times 64 bits of 1 / 2 pi from bit `bit` on, as limbs of 32 bits; `bit` is below 64 *
    2**levels.
    """
    size = words + 2**levels
    table = _digits(64 * size)
    found = [
        UOp.const(bit.dtype, (table >> (64 * (size - 1 - word))) & (2**64 - 1))
        for word in range(size)
    ]
    for level in reversed(range(levels)):
        step = 1 << level
        is_later = ((bit >> (6 + level)) & 1).ne(0)
        found = [is_later.where(found[word + step], found[word]) for word in range(words + step)]
    left = bit & 63
    right = UOp.const(bit.dtype, 63) ^ left
    limbs: list[UOp] = []
    for word in range(words):
        shifted = (found[word] << left) | ((found[word + 1] >> 1) >> right)
        limbs += [shifted >> 32, shifted & _LIMB]
    return limbs


@cache
def _digits(bits: int) -> int:
    """The first `bits` binary digits of 1 / 2 pi after the point, `_ZEROS` zeros among them; pi by
    Machin's formula.
    """
    return (1 << (bits + 64) << (bits - _ZEROS)) // (2 * _digits_of_pi(bits + 64))


@cache
def _digits_of_pi(bits: int) -> int:
    """pi * 2**bits, as a whole number."""
    extra = 64
    one = 1 << (bits + extra)

    def arctangent_of_inverse(n: int) -> int:
        total = term = one // n
        for k in range(3, 2 * bits, 2):
            term //= -n * n
            total += term // k
        return total

    return (4 * (4 * arctangent_of_inverse(5) - arctangent_of_inverse(239))) >> extra


def _times(limbs: list[UOp], factor: UOp) -> list[UOp]:
    """The fraction of a fraction in limbs of 32 bits, the highest first, times an integer of 32
    bits.
    """
    result: list[UOp] = []
    carry: UOp | None = None
    for limb in reversed(limbs):
        product = limb * factor if carry is None else limb * factor + carry
        result.append(product & _LIMB)
        carry = product >> 32
    return result[::-1]


def _sum(left: list[UOp], right: list[UOp]) -> list[UOp]:
    """The sum of two fractions in limbs."""
    result: list[UOp] = []
    carry: UOp | None = None
    for a, b in zip(reversed(left), reversed(right), strict=True):
        total = a + b if carry is None else a + b + carry
        result.append(total & _LIMB)
        carry = total >> 32
    return result[::-1]


def _radians_exact(top: UOp, low: UOp) -> UOp:
    """An angle from units of 2**-128 of a period, with an error of a few 2**-78 before the last
    rounding.
    """
    limbs = ((top >> 32), (top & _LIMB), (low >> 32), (low & _LIMB))
    a, b, c, d = (
        limb.cast(dtypes.float64) * 2.0 ** (32 - 32 * number) for number, limb in enumerate(limbs)
    )
    # The fraction of a period as an exact sum of two floats, and the first of them as 26 bits and
    # the rest.
    high = a + b
    rest = ((a + high * -1.0) + b) + (c + d)
    total = high + rest
    rest = (high + total * -1.0) + rest
    leading = (total.bitcast(_int64(top)) & ~((1 << 27) - 1)).bitcast(total.dtype)
    tail = total + leading * -1.0
    pi_leading = 3.1415926218032837
    pi_tail = 3.178650954705639e-08
    unit = 2.0**-63
    small = leading * (pi_tail * unit) + (tail + rest) * (math.pi * unit)
    return leading * (pi_leading * unit) + small


def _int64(like: UOp) -> DType:
    return dtypes.int64.vec(like.dtype.lanes)
