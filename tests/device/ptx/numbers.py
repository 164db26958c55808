"""Arithmetic of PTX on NumPy arrays: rounded once, whatever the type."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

__all__ = [
    "TYPES", "as_type", "bfloat_values", "convert", "fma", "from_bfloat", "round_to", "to_bfloat",
]  # fmt: skip

Array = np.ndarray[Any, Any]

# PTX's types as NumPy's; bf16 is its bits.
TYPES: dict[str, Any] = {
    "u8": np.uint8, "s8": np.int8, "b8": np.uint8,
    "u16": np.uint16, "s16": np.int16, "b16": np.uint16,
    "u32": np.uint32, "s32": np.int32, "b32": np.uint32,
    "u64": np.uint64, "s64": np.int64, "b64": np.uint64,
    "f16": np.float16, "bf16": np.uint16, "f32": np.float32, "f64": np.float64,
    "pred": np.bool_,
}  # fmt: skip


def from_bfloat(bits: Array) -> Array:
    """bfloat16 as float32."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


bfloat_values = from_bfloat


def _sticky(value: Array, rest: Array) -> Array:
    """float64 `value` rounded to odd, given that the exact number is `value` + `rest`."""
    bits = value.view(np.int64).copy()
    lost = (rest != 0) & np.isfinite(value) & (bits & 1 == 0)
    away = (rest > 0) == (value > 0)
    # At zero the rest alone says where to go.
    bits[lost & away & (value != 0)] += 1
    bits[lost & ~away & (value != 0)] -= 1
    found = bits.view(np.float64)
    return np.where(lost & (value == 0), rest, found)


def to_bfloat(value: Array) -> Array:
    """float32 or float64 as the bits of the nearest bfloat16."""
    with np.errstate(all="ignore"):
        wide = value.astype(np.float64)
        single = wide.astype(np.float32)
        bits = single.view(np.uint32).astype(np.int64)
        back = single.astype(np.float64)
        lost = (back != wide) & np.isfinite(wide)
        # Toward zero, then odd.
        bits = np.where(lost & (np.abs(back) > np.abs(wide)), bits - 1, bits)
        bits = np.where(lost, bits | 1, bits)
        nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        return np.where(np.isnan(wide), 0x7FFF, nearest).astype(np.uint16)


def round_to(value: Array, kind: str) -> Array:
    """float64 as `kind`, rounded to nearest even."""
    with np.errstate(all="ignore"):
        return to_bfloat(value) if kind == "bf16" else value.astype(TYPES[kind])


def as_type(value: Array, kind: str) -> Array:
    """A float of any type as float64."""
    if kind == "bf16":
        return from_bfloat(value).astype(np.float64)
    return value.astype(np.float64)


def fma(a: Array, b: Array, c: Array, kind: str) -> Array:
    """a * b + c with one rounding."""
    if kind == "f64":
        return _fma_double(*np.broadcast_arrays(a, b, c))
    with np.errstate(all="ignore"):
        x, y, z = (as_type(np.asarray(each), kind) for each in (a, b, c))
        product = x * y  # exact: 48 digits at most
        total = product + z
        back = total - product
        rest = (product - (total - back)) + (z - back)
        odd = _sticky(np.atleast_1d(total), np.atleast_1d(np.nan_to_num(rest)))
    return round_to(odd, kind)


def _fma_double(a: Array, b: Array, c: Array) -> Array:
    """Number by number, with fractions."""
    with np.errstate(all="ignore"):
        plain = a * b + c
    found = plain.copy()
    known = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    for place in np.flatnonzero(known):
        x, y, z = float(a[place]), float(b[place]), float(c[place])
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        if exact:
            try:
                found[place] = float(exact)
            except OverflowError:
                found[place] = np.inf if exact > 0 else -np.inf
    return found


def convert(value: Array, source: str, target: str, rounding: str) -> Array:
    """`cvt`: `value` of type `source` as `target`."""
    floats = ("f16", "bf16", "f32", "f64")
    with np.errstate(all="ignore"):
        if source not in floats and target not in floats:
            return value.astype(TYPES[target])
        if source not in floats:
            return _of_integer(value, target, rounding)
        if target not in floats:
            return _to_integer(as_type(value, source), source, target, rounding)
        wide = as_type(value, source)
        if rounding == "rzi":
            wide = np.copysign(np.trunc(wide), wide)
        found = round_to(wide, target)
        return _toward_zero(found, wide) if rounding == "rz" else found


def _toward_zero(found: Array, exact: Array) -> Array:
    beyond = np.abs(found.astype(np.longdouble)) > np.abs(exact.astype(np.longdouble))
    return np.where(beyond, np.nextafter(found, found.dtype.type(0)), found)


def _of_integer(value: Array, target: str, rounding: str) -> Array:
    if target in ("f16", "bf16"):
        # Through float64, which holds all that does not become infinite; bf16 rounds to odd there.
        return round_to(value.astype(np.float64), target)
    found = value.astype(TYPES[target])
    return _toward_zero(found, value) if rounding == "rz" else found


def _to_integer(value: Array, source: str, target: str, rounding: str) -> Array:
    """Beyond the range the nearest integer; NaN as the manual says."""
    steps = {"rzi": np.trunc, "rni": np.rint, "rmi": np.floor, "rpi": np.ceil}
    whole = steps[rounding](value)
    info = np.iinfo(TYPES[target])
    low, high = float(info.min), float(info.max)
    inside = np.where(np.isnan(whole), 0.0, np.clip(whole, low, np.nextafter(high + 1.0, 0)))
    found = inside.astype(TYPES[target])
    found = np.where(whole >= high, info.max, np.where(whole <= low, info.min, found))
    is_zero = source != "f64" and not target.endswith("64")
    other = 0 if is_zero else (1 << (info.bits - 1)) if target[0] == "u" else info.min
    return np.where(np.isnan(value), TYPES[target](other), found.astype(TYPES[target]))
