"""8-bit floats on machines that lack them: bits to float32, rounding of a float32, and float32 to
bits.

All of it is arithmetic on float32 and on its bits, so it vectorizes. It must agree with
base/float8.py, which defines the formats.
"""

from __future__ import annotations

import math

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.float8 import Float8
from tilegrad.ir.uop import UOp

__all__ = ["from_bits", "rounded", "to_bits", "to_digits"]


def from_bits(bits: UOp, kind: Float8) -> UOp:
    """The float32 value of 8 bits."""
    wide = bits.cast(dtypes.uint32)
    size, single = wide & 0x7F, dtypes.float32.vec(bits.dtype.lanes)
    # The mantissa is shifted up and the exponent rebased by a multiplication, which is exact for
    # subnormals too.
    value = (size << (23 - kind.digits)).bitcast(single) * 2.0 ** (127 - kind.bias)
    if kind.has_infinity:
        special = (size << (23 - kind.digits)) | 0x7F800000
        value = (UOp.const(size.dtype, 0x7B) < size).where(special.bitcast(single), value)
    elif not kind.has_one_zero:
        value = size.eq(kind.nan).where(UOp.const(single, math.nan), value)
    value = (value.bitcast(wide.dtype) | ((wide & 0x80) << 24)).bitcast(single)
    if kind.has_one_zero:
        value = wide.eq(kind.nan).where(UOp.const(single, math.nan), value)
    return value


def to_bits(value: UOp, kind: Float8) -> UOp:
    """The 8 bits of a float32 that already is a value of this format."""
    wide = value.bitcast(_u32(value))
    size = (wide & 0x7FFFFFFF).bitcast(value.dtype)
    bits = (size * 2.0 ** (kind.bias - 127)).bitcast(wide.dtype) >> (23 - kind.digits)
    if kind.has_infinity:
        bits = size.eq(math.inf).where(UOp.const(wide.dtype, 0x7C), bits)
    sign = (wide >> 24) & 0x80
    bits = bits | sign
    nan = UOp.const(wide.dtype, kind.nan)
    return value.ne(value).where(nan if kind.has_one_zero else nan | sign, bits).cast(dtypes.uint8)


def rounded(value: UOp, kind: Float8) -> UOp:
    """A float32 rounded to the nearest value of this format, ties to even; larger magnitudes become
    the format's overflow value.
    """
    wide = value.bitcast(_u32(value))
    magnitude = (wide & 0x7FFFFFFF).bitcast(value.dtype)
    near = to_digits(magnitude, kind.digits, kind.bias)
    beyond = UOp.const(value.dtype, math.nan)
    if kind.overflow == kind.overflow:
        overflow = UOp.const(value.dtype, kind.overflow)
        beyond = magnitude.ne(magnitude).where(beyond, overflow)
    fits = near < UOp.const(value.dtype, kind.largest * 1.01)
    bits = fits.where(near, beyond).bitcast(wide.dtype) | (wide & 0x80000000)
    signed = bits.bitcast(value.dtype)
    return near.eq(0.0).where(near, signed) if kind.has_one_zero else signed


def to_digits(magnitude: UOp, digits: int, bias: int) -> UOp:
    """A positive float32 rounded to `digits` mantissa bits, or to the spacing of the numbers that
    are subnormal with this `bias`.

    Adding and subtracting a number whose last bit has the wanted weight rounds once.
    """
    exponent = magnitude.bitcast(_u32(magnitude)) & 0x7F800000
    least = UOp.const(exponent.dtype, (128 - bias) << 23)
    scale = (exponent < least).where(least, exponent) + ((23 - digits) << 23)
    magic = scale.bitcast(magnitude.dtype)
    return (magnitude + magic) + magic * -1.0


def _u32(like: UOp) -> DType:
    return dtypes.uint32.vec(like.dtype.lanes)
