"""Numbers of every dtype: random ones that repeat, the special ones, and how far a result may be
from the exact one.

Arrays of bfloat16 are float32 arrays with values that bfloat16 has. What a reference gets is exact:
float64 for floats, Python's integers for the rest.
"""

from __future__ import annotations

import contextlib
import functools
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from tilegrad import Tensor
from tilegrad.base.dtype import DType, dtypes

__all__ = [
    "EVERY",
    "FLOATS",
    "INTEGERS",
    "SIGNED",
    "UNSIGNED",
    "check",
    "exact",
    "extremes",
    "measured",
    "quantize",
    "roundoff",
    "sample",
    "spacing",
    "tensor",
    "wild",
    "zero_padded",
]

SIGNED, UNSIGNED, FLOATS = dtypes.signed, dtypes.unsigned, dtypes.floats
INTEGERS = (*SIGNED, *UNSIGNED)
EVERY = (dtypes.bool, *INTEGERS, *FLOATS)

# (bits of the significand with the leading one, exponent of the least normal number)
_FORMATS = {
    dtypes.float16: (11, -14),
    dtypes.bfloat16: (8, -126),
    dtypes.float32: (24, -126),
    dtypes.float64: (53, -1022),
}


def roundoff(dtype: DType) -> float:
    """The largest relative error of rounding to `dtype`; 0 for integers."""
    return 2.0 ** -_FORMATS[dtype][0] if dtype.is_float else 0.0


def largest(dtype: DType) -> float:
    digits, least = _FORMATS[dtype]
    return (2.0 - 2.0 ** (1 - digits)) * 2.0 ** (1 - least)


def spacing(values: Any, dtype: DType) -> Any:
    """The distance from each value to its next neighbour in `dtype`: one unit in the last place."""
    digits, least = _FORMATS[dtype]
    sizes = np.abs(np.asarray(values, np.float64))
    _, exponents = np.frexp(np.where(np.isfinite(sizes), sizes, largest(dtype)))
    return np.ldexp(1.0, np.maximum(exponents - 1, least) - (digits - 1))


def quantize(values: Any, dtype: DType) -> np.ndarray:
    """The nearest values that `dtype` has, in the array type that stands for it."""
    if dtype is dtypes.bfloat16:
        array = np.asarray(values, np.float64)
        with np.errstate(all="ignore"):
            unit = spacing(array, dtype)
            rounded = np.rint(array / unit) * unit
        beyond = np.abs(rounded) > largest(dtype)
        return np.where(beyond, np.copysign(np.inf, array), rounded).astype(np.float32)
    if dtype.is_float:
        with np.errstate(over="ignore"):
            return np.asarray(values, np.float64).astype(dtype.name)
    if dtype is dtypes.bool:
        return np.asarray(values).astype(np.bool_)
    count = 1 << dtype.bits
    wrapped = [(int(value) - dtype.min) % count + dtype.min for value in np.ravel(values).tolist()]
    return np.array(wrapped, dtype.name).reshape(np.shape(values))


def exact(array: np.ndarray, dtype: DType) -> np.ndarray:
    """The values as a reference takes them."""
    if dtype.is_float:
        with np.errstate(invalid="ignore"):  # NaN of other bits than the usual ones
            return array.astype(np.float64)
    return array if dtype is dtypes.bool else array.astype(object)


def zero_padded(array: Any, widths: Any) -> Any:
    """As np.pad, which puts NumPy's integers among Python's, and those do not add up."""
    shape = [size + low + high for size, (low, high) in zip(array.shape, widths, strict=True)]
    result = np.full(shape, 0, array.dtype)
    result[tuple(slice(low, low + n) for n, (low, _) in zip(array.shape, widths))] = array
    return result


def tensor(array: np.ndarray, dtype: DType) -> Tensor:
    """A tensor with these values as a leaf: no cast is part of its graph."""
    if dtype is dtypes.bfloat16:
        return Tensor(array.ravel().tolist(), dtype=dtype).reshape(array.shape)
    return Tensor(array)


@functools.cache
def extremes(dtype: DType) -> tuple[Any, ...]:
    """Values at which arithmetic goes wrong, if anywhere."""
    if dtype is dtypes.bool:
        return (False, True)
    if not dtype.is_float:
        near = (0, 1, 2, 3, 7, dtype.max - 1, dtype.max)
        return near if dtype.kind == "uint" else (*near, -1, -2, -7, dtype.min, dtype.min + 1)
    digits, least = _FORMATS[dtype]
    tiny, normal, huge = 2.0 ** (least - digits + 1), 2.0**least, largest(dtype)
    positive = (0.0, 1.0, 0.5, 1.5, 2.5, 3.0, tiny, normal - tiny, normal, huge, np.inf)
    near_one = (1.0 + 2.0 ** (1 - digits), 1.0 - 2.0**-digits)
    return (*positive, *[-value for value in positive], *near_one, np.nan)


def sample(
    shape: tuple[int, ...],
    dtype: DType,
    seed: object,
    low: float = -2.0,
    high: float = 2.0,
) -> np.ndarray:
    """Random values: floats between `low` and `high`, integers from the whole range."""
    generator = np.random.default_rng(zlib.crc32(f"{seed} {shape} {dtype.name}".encode()))
    if dtype.is_float:
        return quantize(generator.uniform(low, high, shape), dtype)
    if dtype is dtypes.bool:
        return generator.integers(0, 2, shape).astype(np.bool_)
    whole = generator.integers(int(dtype.min), int(dtype.max), shape, dtype.name, endpoint=True)
    # Half of them small, so that quotients and powers are of all sizes.
    small = generator.integers(-9 if dtype.kind == "int" else 0, 10, shape)
    return np.where(generator.integers(0, 2, shape), whole, small.astype(dtype.name))


def wild(shape: tuple[int, ...], dtype: DType, seed: object, *beside: np.ndarray) -> np.ndarray:
    """Floats as wild as floats are: random bits, so exponents over the whole range, special values,
    and, `beside` another array, its values, their neighbours, multiples and near multiples.
    """
    generator = np.random.default_rng(zlib.crc32(f"wild {seed} {shape} {dtype.name}".encode()))
    count = int(np.prod(shape))
    bits = generator.integers(0, 1 << (8 * dtype.itemsize), count, np.uint64, endpoint=False) \
        if dtype.itemsize < 8 else generator.integers(0, (1 << 64) - 1, count, np.uint64,
                                                      endpoint=True)  # fmt: skip
    if dtype is dtypes.bfloat16:
        found = (bits << 16).astype(np.uint32).view(np.float32)
    else:
        found = bits.astype(f"uint{8 * dtype.itemsize}").view(dtype.name)
    special = quantize(np.array(extremes(dtype)), dtype)
    kind = generator.integers(0, 8, count)
    found = np.where(kind == 0, generator.choice(special, count), found)
    for other in beside:
        with np.errstate(all="ignore"):
            near = np.ravel(other).astype(np.float64)
            times = generator.integers(1, 50, count) * generator.choice([1.0, 0.5, 1 / 3], count)
            multiple = quantize(near * times, dtype)
            beyond = quantize(near * (1 + generator.choice([-1, 1], count) * roundoff(dtype) * 2),
                              dtype)  # fmt: skip
        found = np.where(kind == 1, multiple, np.where(kind == 2, beyond, found))
        found = np.where(kind == 3, np.ravel(other), found)
    return found.reshape(shape)


_MEASURED: list[list[float]] = []


@contextlib.contextmanager
def measured() -> Iterator[list[float]]:
    """A list that gets the largest error, in units, of each comparison of floats made inside."""
    found: list[float] = []
    _MEASURED.append(found)
    try:
        yield found
    finally:
        _MEASURED.remove(found)


def check(
    found: np.ndarray,
    expected: Any,
    dtype: DType,
    *,
    ulp: float = 0.0,
    error: Any = 0.0,
    signed_zeros: bool = False,
    magnitude: Any = 0.0,
) -> None:
    """Assert that `found`, of `dtype`, is `expected`, which is exact.

    Integers and bools must be equal, wrapped around. Floats must be the nearest value of the dtype,
    or differ by at most `ulp` units in the last place and `error`; NaN is NaN. A unit is that of
    the exact result, or of `magnitude` where that is larger: of terms that cancel.
    """
    expected = np.asarray(expected)
    assert found.shape == expected.shape, f"shape {found.shape}, expected {expected.shape}"
    if not dtype.is_float:
        np.testing.assert_array_equal(found, quantize(expected, dtype))
        return
    target = np.asarray(expected, np.float64)
    with np.errstate(all="ignore"):
        nearest = np.asarray(quantize(target, dtype), np.float64)
        ours = np.asarray(found, np.float64)
        is_right = (ours == nearest) | (np.isnan(ours) & np.isnan(nearest))
        if signed_zeros:
            is_right &= (ours != 0) | (np.signbit(ours) == np.signbit(nearest))
        # Past the largest number counts as one step above it, unless the exact result is infinite.
        step = largest(dtype) + (0 if dtype is dtypes.float64 else spacing(largest(dtype), dtype))
        near = np.where(np.isfinite(target), np.clip(target, -step, step), np.nan)
        place = np.where(np.isfinite(ours), ours, np.copysign(step, ours))
        unit = spacing(np.fmax(np.abs(near), np.nan_to_num(magnitude)), dtype)
        is_right |= (np.abs(place - near) <= ulp * unit + error) & ~np.isnan(ours)
        if _MEASURED:
            off = np.where(ours == nearest, 0.0, np.abs(place - near) / unit)
            for worst in _MEASURED:
                worst.append(float(np.nanmax(off, initial=0.0)))
    if is_right.all():
        return
    with np.errstate(all="ignore"):
        units = np.abs(place - near) / unit
    wrong = np.argwhere(~is_right)
    rows = [
        f"at {tuple(at.tolist())}: {ours[tuple(at)]!r}, expected {target[tuple(at)]!r}, "
        f"{units[tuple(at)]:.3g} units"
        for at in wrong[:8]
    ]
    raise AssertionError(f"{len(wrong)} of {is_right.size} differ\n" + "\n".join(rows))
