"""Angles of any size, brought between -pi/2 and pi/2: what sine and cosine do first.

Up to `FAR`, the nearest multiple of pi is taken away in float64, pi being given in parts whose
multiples are exact. Beyond, x = m * 2**e with a whole m, and the fraction of x / 2 pi is that of
m * (2**e / 2 pi), of which only the digits of 1 / 2 pi count that stand neither so far left that m
times them is whole, nor so far right that they change nothing (Payne, Hanek: Radian Reduction for
Trigonometric Functions, 1983). That window of digits is chosen for each lane, and the product is
one of whole numbers in limbs of 32 bits.

The nearest that a number comes to a multiple of pi / 2 is 2**-61 for float64 and 2**-30 for float32
(Muller: Elementary Functions, section 11.3.2), so 128 and 64 bits of the fraction hold as many
digits as the result has, and some more.
"""

from __future__ import annotations

import math
from functools import cache

from tilegrad.base.dtype import DType, Place, dtypes
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.uop import UOp

__all__ = ["FAR", "any_lane", "far", "is_far", "near", "reduced", "reduced_together"]

# pi in parts of 27 bits, so that a multiple below 2**26 of each is exact, with or without fused
# multiply-adds; the last part takes what is left.
_PI_PARTS = (
    3.141592651605606,
    1.9841871479187034e-09,
    1.144237741932715e-17,
    3.2892513872648515e-26,
)
FAR = 2.0**25 * math.pi
# The first digits of 1 / 2 pi are preceded by zeros, so that the window starts at a place >= 0.
_ZEROS = 32
_LIMB = 0xFFFFFFFF


def near(x: UOp, is_cosine: bool = False) -> UOp:
    """An angle between -pi/2 and pi/2 whose sine is that of x, or the cosine of x, for |x| <= FAR:
    x less the nearest multiple of pi, or odd multiple of pi / 2, in float64 for both.
    """
    wide = x.cast(dtypes.float64)
    magic = UOp.const(wide.dtype, 1.5 * 2.0**52)
    turns = wide * (1.0 / math.pi)
    shifted = (turns + -0.5 if is_cosine else turns) + magic
    whole = shifted + magic * -1.0
    is_odd = (shifted.bitcast(_int64(x)) & 1).ne(0)
    if is_cosine:
        # cos(k pi + pi/2 + rest) is -sin(rest), or sin(rest) where k is odd.
        whole, is_odd = whole + 0.5, is_odd.logical_not()
    rest = wide
    for part in _PI_PARTS:
        rest = UOp(Ops.MULACC, wide.dtype, (whole, UOp.const(wide.dtype, -part), rest))
    angle = rest.cast(x.dtype)
    return is_odd.where(angle * -1.0, angle)


def far(x: UOp, is_cosine: bool = False) -> UOp:
    """The same for finite x beyond `FAR`."""
    is_double = x.dtype.itemsize == 8
    fraction = _turns(x, is_double)
    if is_cosine:
        fraction[0] = fraction[0] + (1 << 62)
    # The nearest half turn; adding a quarter wraps around at the full turn.
    half = (fraction[0] + (1 << 62)) >> 63
    top = (fraction[0] + (half << 63)).bitcast(_int64(x))
    angle = _radians_exact(top, fraction[1]) if is_double else _radians(top).cast(x.dtype)
    is_other = half.ne(0)
    if not is_cosine:
        is_other = (x < UOp.const(x.dtype, 0.0)).ne(is_other)
    return is_other.where(angle * -1.0, angle)


def is_far(x: UOp) -> UOp:
    """Whether |x| > FAR; NaN is not."""
    bits = x.bitcast((dtypes.int64 if x.dtype.itemsize == 8 else dtypes.int32).vec(x.dtype.lanes))
    size = (bits & ((1 << (8 * x.dtype.itemsize - 1)) - 1)).bitcast(x.dtype)
    return UOp.const(x.dtype, FAR) < size


def reduced(x: UOp, is_cosine: bool = False) -> UOp:
    """The angle of x, near or far, without a branch: both are computed."""
    return is_far(x).where(far(x, is_cosine), near(x, is_cosine))


def reduced_together(values: list[UOp], number: int, is_cosine: bool = False) -> list[UOp]:
    """The angles of values of one dtype that are known at the same time. What few are far is seen
    to by a loop that does not run where none is: so it costs a test for all values together, and
    its constants take no registers of vectors.

    before   a, b                                               float.vec(4)
    after    angles[0..8] = near(a), near(b); sizes[0..8] = a, b
             for (i = 0; i < (any is_far ? 8 : 0); i++)
               if (is_far(sizes[i])) angles[i] = far(sizes[i])
             angles[0..4], angles[4..8]

    `number` and the next are those of the arrays, and `number` that of the loop.
    """
    dtype, lanes = values[0].dtype.scalar, values[0].dtype.lanes
    size = lanes * len(values)
    sizes, angles = (
        UOp(Ops.DEFINE_LOCAL, dtype.ptr(size, Place.SCRATCH), (), number + place)
        for place in (0, 1)
    )
    places = [UOp.const(dtypes.int32, lanes * place) for place in range(len(values))]
    given = sizes.after(*[sizes.store(at, x) for at, x in zip(places, values, strict=True)])
    usual = angles.after(
        *[angles.store(at, near(x, is_cosine)) for at, x in zip(places, values, strict=True)]
    )
    flags = is_far(values[0])
    for x in values[1:]:
        flags = flags | is_far(x)
    times = any_lane(flags).where(UOp.const(dtypes.int32, size), UOp.const(dtypes.int32, 0))
    loop = UOp(Ops.RANGE, dtypes.int32, (times,), (number, Axis.LOOP))
    x = given.load(loop)
    done = usual.after(usual.store(loop, far(x, is_cosine), is_far(x)).end(loop))
    return [done.load(at, dtype=values[0].dtype) for at in places]


def any_lane(flags: UOp) -> UOp:
    """Whether one of the lanes is true."""
    while flags.dtype.lanes > 1:
        half = flags.dtype.lanes // 2
        flags = flags.gep(*range(half)) | flags.gep(*range(half, 2 * half))
    return flags


def _turns(x: UOp, is_double: bool) -> list[UOp]:
    """The fraction of |x| / 2 pi, as words of 64 bits: one for float32, two for float64."""
    u64 = dtypes.uint64.vec(x.dtype.lanes)
    bits = x.bitcast((dtypes.uint64 if is_double else dtypes.uint32).vec(x.dtype.lanes)).cast(u64)
    digits, bias = (52, 1023) if is_double else (23, 127)
    whole = (bits & ((1 << digits) - 1)) | (1 << digits)
    exponent = (bits >> digits) & (2 * bias + 1)
    # Lanes that are not far may have any exponent here; what comes of them is not used.
    place = exponent + ((1 << 64) + _ZEROS - bias - digits)
    limbs = _window(place, *((3, 4) if is_double else (2, 2)))[: 6 if is_double else 3]
    product = _times(limbs, whole & _LIMB)
    if is_double:
        # The upper half counts for one limb more.
        upper = _times(limbs[1:], whole >> 32)
        product = _sum(product, [*upper, UOp.const(u64, 0)])
    pairs = zip(product[0::2], product[1::2], strict=False)
    return [(high << 32) | low for high, low in pairs][: 2 if is_double else 1]


def _window(place: UOp, words: int, levels: int) -> list[UOp]:
    """`words` times 64 bits of 1 / 2 pi from bit `place` on, as limbs of 32 bits; `place` is below
    64 * 2**levels.
    """
    size = words + 2**levels
    table = _digits(64 * size)
    found = [
        UOp.const(place.dtype, (table >> (64 * (size - 1 - word))) & (2**64 - 1))
        for word in range(size)
    ]
    for level in reversed(range(levels)):
        step = 1 << level
        is_later = ((place >> (6 + level)) & 1).ne(0)
        found = [is_later.where(found[word + step], found[word]) for word in range(words + step)]
    left = place & 63
    right = UOp.const(place.dtype, 63) ^ left
    limbs: list[UOp] = []
    for word in range(words):
        shifted = (found[word] << left) | ((found[word + 1] >> 1) >> right)
        limbs += [shifted >> 32, shifted & _LIMB]
    return limbs


@cache
def _digits(bits: int) -> int:
    """The first `bits` binary digits of 1 / 2 pi behind the point, `_ZEROS` zeros among them; pi by
    Machin's formula.
    """
    one = 1 << (bits + 64)

    def arctangent_of_inverse(n: int) -> int:
        total = term = one // n
        for k in range(3, 2 * bits, 2):
            term //= -n * n
            total += term // k
        return total

    pi = 4 * (4 * arctangent_of_inverse(5) - arctangent_of_inverse(239))
    return (one << (bits - _ZEROS)) // (2 * pi)


def _times(limbs: list[UOp], factor: UOp) -> list[UOp]:
    """A fraction in limbs of 32 bits, first the highest, times a whole number of 32 bits; what is
    whole is dropped.
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


def _radians(top: UOp) -> UOp:
    """2**-64 turns as an angle in float64."""
    return top.cast(dtypes.float64) * (math.pi * 2.0**-63)


def _radians_exact(top: UOp, low: UOp) -> UOp:
    """2**-128 turns as an angle, rounded once but for a few units of the 2**-78th part."""
    pieces = ((top >> 32), (top & _LIMB), (low >> 32), (low & _LIMB))
    a, b, c, d = (
        piece.cast(dtypes.float64) * 2.0 ** (32 - 32 * number)
        for number, piece in enumerate(pieces)
    )
    # The turns as a sum of two floats without loss, and the first of them as 26 bits and the rest.
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
