"""Facts of dtypes: finfo, smallest and largest, least upper dtypes, casts without loss."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tilegrad.base.dtype import can_lossless_cast, dtypes, truncate
from tilegrad.base.dtype_promotion import least_upper_dtype, promote
from tilegrad.base.errors import DTypeError
from tilegrad.base.float8 import FORMATS


def edges(dtype: object) -> list[float]:
    """Values that another dtype may not hold: the largest, the smallest, the most digits."""
    if dtype is dtypes.bool:
        return [False, True]
    if dtype.is_int:  # type: ignore[attr-defined]
        return [dtype.min, dtype.min + 1, dtype.max, dtype.max - 1, dtype.max // 2]  # type: ignore[attr-defined]
    if dtype in dtypes.fp8s:
        return [value for value in FORMATS[dtype.name].values() if value == value]  # type: ignore[attr-defined]
    exponent, digits = dtypes.finfo(dtype)  # type: ignore[arg-type]
    bias = (1 << (exponent - 1)) - 1
    least = math.ldexp(1.0, 1 - bias - digits)
    largest = math.ldexp(2.0 - math.ldexp(1.0, -digits), bias)
    return [least, largest, 1 + math.ldexp(1.0, -digits), math.inf, -math.inf, -0.0]


def is_held(value: float, target: object) -> bool:
    if isinstance(value, float) and not target.is_float:  # type: ignore[attr-defined]
        return False
    found = truncate(value, target)  # type: ignore[arg-type]
    signs = math.copysign(1, found) == math.copysign(1, value)
    return bool(found == value) and (not isinstance(value, float) or signs)


def test_casts_without_loss() -> None:
    """One holds another exactly if it holds the values at its edges; integers exactly."""
    for source, target in itertools.product(dtypes.all, dtypes.all):
        if target is dtypes.bool:
            assert can_lossless_cast(source, target) is (source is dtypes.bool)
            continue
        expected = all(is_held(value, target) for value in edges(source))
        assert can_lossless_cast(source, target) is expected, (source, target)
    assert can_lossless_cast(dtypes.int64, dtypes.index)
    assert not can_lossless_cast(dtypes.uint64, dtypes.index)


def test_bits_of_floats() -> None:
    for dtype in (np.float16, np.float32, np.float64):
        info = np.finfo(dtype)
        assert dtypes.finfo(dtypes.from_name(info.dtype.name)) == (info.nexp, info.nmant)
    assert dtypes.finfo(dtypes.bfloat16) == (8, 7)
    assert dtypes.finfo(dtypes.float.vec(4)) == (8, 23)
    with pytest.raises(DTypeError, match="finfo: int32 is no float"):
        dtypes.finfo(dtypes.int32)


def test_smallest_and_largest() -> None:
    assert (dtypes.min(dtypes.int16), dtypes.max(dtypes.uint64)) == (-(2**15), 2**64 - 1)
    assert (dtypes.min(dtypes.bfloat16), dtypes.max(dtypes.fp8e5m2)) == (-math.inf, math.inf)
    assert (dtypes.min(dtypes.fp8e4m3fnuz), dtypes.max(dtypes.fp8e5m2fnuz)) == (-240.0, 57344.0)
    assert dtypes.max(dtypes.fp8e4m3.vec(4)) == 448.0


def test_least_upper_dtype() -> None:
    assert least_upper_dtype(dtypes.int8) is dtypes.int8
    assert least_upper_dtype(dtypes.bool, dtypes.uint8, dtypes.int8) is dtypes.int16
    assert least_upper_dtype(dtypes.fp8e4m3, dtypes.fp8e5m2, dtypes.int64) is dtypes.half
    for a, b in itertools.combinations(dtypes.fp8s, 2):
        assert promote(a, b) is dtypes.half
        assert can_lossless_cast(a, dtypes.half) and can_lossless_cast(b, dtypes.half)
