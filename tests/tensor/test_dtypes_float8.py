"""Floats of 8 bits: every bit pattern, every cast of a half and a bfloat16, and arithmetic, against
the package ml_dtypes.
"""

from __future__ import annotations

import bisect
import math
import operator
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilegrad import Context, Tensor
from tilegrad.base.dtype import DType, dtypes, truncate
from tilegrad.base.float8 import FORMATS
from tilegrad.nn.state import safe_load, safe_save

KINDS: dict[DType, Any] = {
    dtypes.fp8e4m3: ml_dtypes.float8_e4m3fn,
    dtypes.fp8e5m2: ml_dtypes.float8_e5m2,
    dtypes.fp8e4m3fnuz: ml_dtypes.float8_e4m3fnuz,
    dtypes.fp8e5m2fnuz: ml_dtypes.float8_e5m2fnuz,
}
BYTES = np.arange(256, dtype=np.uint8)
WORDS = np.arange(1 << 16, dtype=np.uint16)

each_kind = pytest.mark.parametrize("dtype", KINDS, ids=lambda dtype: dtype.name)


def same(found: Any, expected: Any) -> None:
    """Equal values, signs of zeros included; any NaN is NaN."""
    with np.errstate(invalid="ignore"):
        found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    np.testing.assert_array_equal(found, expected)
    kept = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found)[kept], np.signbit(expected)[kept])


def to(dtype: DType, x: Any) -> Any:
    """What ml_dtypes makes of numbers, as float64; beyond the largest as PyTorch, which keeps to it
    in fp8e4m3.
    """
    with np.errstate(all="ignore"):
        found = np.asarray(x).astype(KINDS[dtype]).astype(np.float64)
        if dtype is not dtypes.fp8e4m3:
            return found
        given = np.asarray(x).astype(np.float64)
        return np.where(np.isnan(found) & ~np.isnan(given), np.copysign(448.0, given), found)


@each_kind
def test_all_patterns(dtype: DType) -> None:
    """In the compiler's constants, on the host, and as compiled."""
    expected = BYTES.view(KINDS[dtype]).astype(np.float64)
    kind = FORMATS[dtype.name]
    same(kind.values(), expected)
    numbers = [(bits, value) for bits, value in enumerate(kind.values()) if value == value]
    assert [kind.to_bits(value) for _, value in numbers] == [bits for bits, _ in numbers]
    x = Tensor(BYTES).realize().bitcast(dtype)
    same(x.cast(dtypes.float32).numpy(), expected)
    same(x.numpy(), expected)
    same(x.tolist(), expected)
    kept = ~np.isnan(expected)
    moved = (x.flip(0).contiguous().bitcast(dtypes.uint8)).numpy()[::-1]
    np.testing.assert_array_equal(moved[kept], BYTES[kept])
    largest = ml_dtypes.finfo(KINDS[dtype])
    assert (
        kind.largest == float(largest.max) == max(value for value in expected if value < math.inf)
    )
    assert dtypes.finfo(dtype) == (largest.bits - 1 - largest.nmant, largest.nmant)
    assert (
        dtypes.max(dtype) == -dtypes.min(dtype) == (math.inf if kind.has_infinity else largest.max)
    )


@each_kind
def test_all_casts_of_16_bits(dtype: DType) -> None:
    for source in (np.float16, ml_dtypes.bfloat16):
        x = WORDS.view(source)
        expected = to(dtype, x.astype(np.float32))
        same(Tensor(x).realize().cast(dtype).cast(dtypes.float32).numpy(), expected)
        same(Tensor(x).realize().cast(dtype).numpy(), expected)


def exact(dtype: DType, value: float) -> float:
    """The nearest number by search among all of them, ties to the even bits."""
    kind = FORMATS[dtype.name]
    numbers = [(v, bits) for bits, v in enumerate(kind.values()[:128]) if v < math.inf]
    step = kind.largest - numbers[-2][0]
    at = bisect.bisect(numbers, (abs(value), 0))
    size = Fraction(abs(value)) if math.isfinite(value) else Fraction(10**30)
    if size > kind.largest + step / 2 or (size == kind.largest + step / 2 and numbers[-1][1] & 1):
        if dtype is dtypes.fp8e4m3:
            return math.copysign(448.0, value)
        return math.copysign(math.inf, value) if kind.has_infinity else math.nan
    best = min(
        numbers[max(at - 1, 0) : at + 1], key=lambda row: (abs(Fraction(row[0]) - size), row[1] & 1)
    )[0]
    return math.copysign(best, value) if best or not kind.has_one_zero else 0.0


@each_kind
def test_rounding_is_done_once(dtype: DType) -> None:
    """Every tie, and what is all but a tie, of float64 and float32; what is beyond."""
    kind = FORMATS[dtype.name]
    numbers = np.array([v for v in kind.values()[:128] if v < math.inf])
    middle = np.append((numbers[1:] + numbers[:-1]) / 2, kind.largest * 1.5 - numbers[-2] / 2)
    for source, near in ((np.float64, 2.0**-50), (np.float32, 2.0**-22)):
        x = np.concatenate([middle, middle * (1 + near), middle * (1 - near), numbers])
        x = np.concatenate([x, -x, [1e30, -1e30, math.inf, -math.inf, math.nan]]).astype(source)
        expected = [exact(dtype, value) if value == value else math.nan for value in x.tolist()]
        same(Tensor(x).cast(dtype).numpy(), expected)
        same([truncate(value, dtype) for value in x.tolist()], expected)
    if dtype is dtypes.fp8e4m3:
        # The package itself rounds float32 so.
        same(expected, to(dtype, x))


@each_kind
def test_integers_and_bools(dtype: DType) -> None:
    x = np.array(
        [0, 1, 3, 17, 19, 231, 240, 247, 248, 249, 464, 465, 57344, 61440, 1 << 24, 2**31 - 1]
    )
    for integer in (np.int32, np.int64, np.uint16):
        given = x[x <= np.iinfo(integer).max].astype(integer)
        given = np.concatenate([given, -given]) if integer is not np.uint16 else given
        same(Tensor(given).cast(dtype).numpy(), [exact(dtype, float(v)) for v in given.tolist()])
    assert Tensor([True, False]).cast(dtype).tolist() == [1.0, 0.0]
    back = Tensor([-2.5, 0.0, 3.5], dtype=dtype)
    assert back.cast(dtypes.int32).tolist() == [-2, 0, 3]
    assert back.cast(dtypes.bool).tolist() == [True, False, True]


@each_kind
@pytest.mark.parametrize("device", ["CPU", "EMU"])
def test_arithmetic_rounds_each_result(dtype: DType, device: str) -> None:
    """Each number with another: as ml_dtypes, which computes in float32 too."""
    kind = KINDS[dtype]
    other = np.random.default_rng(0).permutation(BYTES)
    ours: list[Callable[[Any, Any], Any]] = [operator.add, operator.sub, operator.mul]
    with Context(DEVICE=device), np.errstate(all="ignore"):
        x, y = Tensor(BYTES).bitcast(dtype), Tensor(other).bitcast(dtype)
        for op in ours:
            found = op(x, y)
            assert found.dtype is dtype
            expected = op(BYTES.view(kind).astype(np.float32), other.view(kind).astype(np.float32))
            same(found.cast(dtypes.float32).numpy(), to(dtype, expected))
        np.testing.assert_array_equal((x < y).numpy(), BYTES.view(kind) < other.view(kind))


@each_kind
def test_functions_and_folds(dtype: DType) -> None:
    """Functions are computed in float32, sums kept in it; a maximum starts below all numbers."""
    values = [v for v in FORMATS[dtype.name].values() if -100 < v < 100]
    x, wide = Tensor(values, dtype=dtype), np.array(values, np.float32)
    with np.errstate(all="ignore"):
        same(x.tanh().numpy(), to(dtype, np.tanh(wide.astype(np.float64))))
        same((x.exp() - 0).numpy(), to(dtype, np.exp(wide.astype(np.float64))))
    assert x.sum(dtype="float32").item() == pytest.approx(float(wide.sum()), abs=1e-3)
    ones = Tensor.ones(256, dtype=dtype)
    assert ones.mean().item() == 1.0 and (ones * 0.5).sum().item() == 128.0
    assert Tensor([-3.0, -2.0], dtype=dtype).max().item() == -2.0
    assert (ones.reshape(16, 16) @ ones.reshape(16, 16))[0, 0].item() == 16.0
    assert (x + 1.5).dtype is dtype and (2 * x).dtype is dtype and (x + Tensor([1])).dtype is dtype
    assert (x + x.half()).dtype is dtypes.half
    weight = Tensor([1.0, -2.0], dtype=dtype, requires_grad=True)
    (weight * 3).sum().backward()
    assert weight.grad is not None
    assert weight.grad.dtype is dtype and weight.grad.tolist() == [3.0, 3.0]


def test_what_goes_in_and_out(tmp_path: Path) -> None:
    for dtype, kind in KINDS.items():
        array = np.array([[1.0, -2.5], [0.3, 16.0]], np.float32).astype(kind)
        x = Tensor(array)
        assert x.dtype is dtype is dtypes.from_name(array.dtype.name)
        assert Tensor(array[0, 1]).item() == -2.5
        assert bytes(x.data()) == array.tobytes() and x.data().format == "B"
        safe_save({"x": x}, tmp_path / dtype.name)
        loaded = safe_load(tmp_path / dtype.name)["x"]
        assert loaded.dtype is dtype and loaded.tolist() == x.tolist()
        assert repr(dtype) == f"dtypes.{dtype.name}"
    assert Tensor.rand(1000, dtype="fp8e4m3").max().item() < 1
