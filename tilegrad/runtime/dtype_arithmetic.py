"""Arithmetic of each dtype, exact to the bit, for programs that run as Python source.

A Python float is a double, which holds every half, bfloat16 and float exactly. A sum, product,
quotient or square root of such values, computed in double and then rounded, is rounded correctly,
since double has more than twice their digits. Two things need care. A fused multiply-add has an
exact product but its sum may not fit a double; and an integer beyond 2**53 or a double may lie
near the middle between two floats. Both are rounded to odd first: toward zero, with the last bit
set if any bit was lost. The second rounding is then right
(Boldo, Melquiond: Emulation of FMA and Correctly Rounded Sums, 2008).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.float8 import FORMATS
from tilegrad.ir.op import Ops

__all__ = [
    "arithmetic", "bfloat16_values", "decode", "encode", "half_values", "to_bfloat16", "to_half",
]  # fmt: skip

_HALF = struct.Struct("<e")
_SHORT = struct.Struct("<H")

CODES = {
    "bool": "?", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i",
    "uint32": "I", "int64": "q", "uint64": "Q", "float16": "H", "bfloat16": "H",
    "float32": "f", "float64": "d", "index": "q", **dict.fromkeys(FORMATS, "B"),
}  # fmt: skip
"""How memory holds each dtype, as a format of `memoryview`; short floats as their bits."""


@cache
def half_values() -> tuple[float, ...]:
    """The value of each of the 65,536 half bit patterns."""
    return struct.unpack("<65536e", struct.pack("<65536H", *range(65536)))


@cache
def bfloat16_values() -> tuple[float, ...]:
    """The value of each of the 65,536 bfloat16 bit patterns."""
    return struct.unpack("<65536f", struct.pack("<65536I", *[bits << 16 for bits in range(65536)]))


def to_half(value: float) -> int:
    """The bits of a value that is a half."""
    found: int = _SHORT.unpack(_HALF.pack(value))[0]
    return found


def to_bfloat16(value: float) -> int:
    """The bits of a value that is a bfloat16."""
    found: int = struct.unpack("<I", struct.pack("<f", value))[0] >> 16
    return found


def encode(values: Sequence[Any], dtype: DType) -> bytes:
    """The bytes of values of a dtype, as memory holds them."""
    if dtype in dtypes.fp8s:
        values = [FORMATS[dtype.name].to_bits(value) for value in values]
    elif dtype is dtypes.float16:
        values = [to_half(value) for value in values]
    elif dtype is dtypes.bfloat16:
        values = [to_bfloat16(value) for value in values]
    return struct.pack(f"<{len(values)}{CODES[dtype.name]}", *values)


def decode(data: bytes, dtype: DType) -> tuple[Any, ...]:
    """The values that bytes hold."""
    found = struct.unpack(f"<{len(data) // dtype.itemsize}{CODES[dtype.name]}", data)
    if dtype in dtypes.fp8s:
        return tuple([FORMATS[dtype.name].values()[bits] for bits in found])
    if dtype is dtypes.float16:
        return tuple([half_values()[bits] for bits in found])
    if dtype is dtypes.bfloat16:
        return tuple([bfloat16_values()[bits] for bits in found])
    return found


def arithmetic() -> dict[str, Any]:
    """The functions that a program's source calls, by name.

    Rounding goes through memory, so each thread that runs a program has a set of its own.
    """
    roundings = _roundings()
    return {
        **{f"op_{op.name.lower()}": op.evaluate for op in Ops if op.is_alu},
        **{dtype.name: _wrap(dtype) for dtype in (*dtypes.signed, *dtypes.unsigned)},
        "bitcast": _bitcast,
        "to_integer": _to_integer,
        "odd": _odd,
        **roundings,
        **{f"fma_{name}": _fused(rounded) for name, rounded in roundings.items()},
        "fma_float64": _fma_float64,
        "inf": math.inf,
        "nan": math.nan,
    }


def _roundings() -> dict[str, Callable[[float], float]]:
    """For each dtype below float64, a float rounded to it."""
    memory = memoryview(bytearray(4))
    single, single_bits = memory.cast("f"), memory.cast("I")
    isfinite = math.isfinite

    def float32(x: float) -> float:
        single[0] = x
        return single[0]

    def float16(x: float) -> float:
        try:
            found: float = _HALF.unpack(_HALF.pack(x))[0]
        except OverflowError:
            return math.copysign(math.inf, x)
        return found

    def bfloat16(x: float) -> float:
        if not isfinite(x):
            return x
        single[0] = x
        rounded, bits = single[0], single_bits[0]
        if rounded != x:
            bits = (bits - (abs(rounded) > abs(x))) | 1
        single_bits[0] = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16
        return single[0]

    eighths = {name: kind.round for name, kind in FORMATS.items()}
    return {"float32": float32, "float16": float16, "bfloat16": bfloat16, **eighths}


def _odd(value: int) -> float:
    """An integer as a float, rounded to odd."""
    if -(2**53) <= value <= 2**53:
        return float(value)
    size = abs(value)
    shift = size.bit_length() - 53
    digits = size >> shift
    digits |= digits << shift != size
    return math.copysign(math.ldexp(digits, shift), value)


def _fused(rounded: Callable[[float], float]) -> Callable[[float, float, float], float]:
    """x * y + z, rounded once. The product of two such numbers fits a double; the sum is rounded to
    odd first, so that rounding it again gives the same as rounding once.
    """
    memory = memoryview(bytearray(8))
    double, double_bits = memory.cast("d"), memory.cast("Q")
    isfinite, nextafter = math.isfinite, math.nextafter

    def fused(x: float, y: float, z: float) -> float:
        product = x * y
        total = product + z
        second = total - product
        lost = (product - (total - second)) + (z - second)
        if lost != 0.0 and isfinite(total):
            double[0] = total
            if not double_bits[0] & 1:
                total = nextafter(total, math.inf if lost > 0 else -math.inf)
        return rounded(total)

    return fused


def _wrap(dtype: DType) -> Callable[[int], int]:
    mask, low = (1 << dtype.bits) - 1, int(dtype.min)
    if low == 0:
        return lambda x: x & mask
    return lambda x: ((x - low) & mask) + low


def _to_integer(x: float, low: int, high: int) -> int:
    """A float cast to an integer dtype: toward zero, the nearest that there is, 0 for NaN."""
    if x != x:
        return 0
    return high if x >= high else low if x <= low else int(x)


def _bitcast(values: tuple[Any, ...], source: str, target: str) -> tuple[Any, ...]:
    return decode(encode(values, dtypes.from_name(source)), dtypes.from_name(target))


def _fma_float64(x: float, y: float, z: float) -> float:
    """In exact fractions: the product of two doubles does not fit a double."""
    if not (math.isfinite(x) and math.isfinite(y) and math.isfinite(z)):
        return x * y + z
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    if exact == 0:
        return x * y + z if x == 0 or y == 0 else 0.0
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf
