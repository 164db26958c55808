"""Dtypes: one object each, their texts, promotion, rounding and wrapping."""

from __future__ import annotations

import copy
import gc
import itertools
import math
import pickle
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilegrad.base import dtype as dtype_module
from tilegrad.base.dtype import AddressSpace, DType, Pointer, as_const, dtypes, truncate
from tilegrad.base.dtype_promotion import promote, sum_dtype
from tilegrad.base.errors import DTypeError

SHORT = (*dtypes.fp8s, dtypes.bfloat16)
NUMPY = {dtype: np.dtype(dtype.name) for dtype in dtypes.all if dtype not in SHORT}


def test_names_of_c() -> None:
    assert dtypes.float is dtypes.float32
    assert dtypes.half is dtypes.float16
    assert dtypes.double is dtypes.float64
    assert dtypes.int is dtypes.int32
    assert dtypes.long is dtypes.int64
    assert dtypes.uchar is dtypes.uint8
    assert dtypes.char is dtypes.int8
    assert dtypes.ushort is dtypes.uint16


@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        (dtypes.float32, "dtypes.float"),
        (dtypes.int64, "dtypes.long"),
        (dtypes.bfloat16, "dtypes.bfloat16"),
        (dtypes.float.vec(4), "dtypes.float.vec(4)"),
        (dtypes.float.ptr(16), "dtypes.float.ptr(16)"),
        (dtypes.float.ptr(), "dtypes.float.ptr()"),
        (dtypes.int.ptr(8, AddressSpace.SHARED), "dtypes.int.ptr(8, AddressSpace.SHARED)"),
        (dtypes.half.vec(2).ptr(8), "dtypes.half.vec(2).ptr(8)"),
        (dtypes.index, "dtypes.index"),
        (dtypes.void, "dtypes.void"),
    ],
)
def test_text_gives_the_object(dtype: DType, text: str) -> None:
    assert repr(dtype) == text
    assert eval(text) is dtype
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert copy.deepcopy(dtype) is dtype


def test_vectors_and_pointers_are_single_objects() -> None:
    four = dtypes.float.vec(4)
    assert four is dtypes.float.vec(4)
    assert (four.lanes, four.scalar, four.itemsize, four.nbytes) == (4, dtypes.float, 4, 16)
    assert dtypes.float.vec(1) is dtypes.float
    with pytest.raises(ValueError, match=r"vec: dtypes\.float\.vec\(4\) is a vector already"):
        four.vec(2)
    pointer = dtypes.float.ptr(4, AddressSpace.SCRATCH)
    assert pointer is dtypes.float.ptr(4, AddressSpace.SCRATCH)
    assert pointer is not dtypes.float.ptr(4)
    assert isinstance(pointer, Pointer)
    assert (pointer.base, pointer.size, pointer.space) == (dtypes.float, 4, AddressSpace.SCRATCH)
    assert pointer.kind == "pointer"


def test_kinds_and_widths() -> None:
    for dtype, other in NUMPY.items():
        kinds = {"b": "bool", "i": "int", "u": "uint", "f": "float"}
        assert dtype.itemsize == other.itemsize
        assert dtype.kind == kinds[other.kind]
        assert dtype.is_float == (other.kind == "f")
        assert dtype.is_int == (other.kind in "iu")
    assert dtypes.bool.bits == 1
    assert dtypes.int16.bits == 16
    assert dtypes.index.is_int
    assert not dtypes.bool.is_int


def test_smallest_and_largest() -> None:
    for dtype, other in NUMPY.items():
        if dtype.is_int:
            assert (dtype.min, dtype.max) == (np.iinfo(other).min, np.iinfo(other).max)
    assert (dtypes.float.min, dtypes.float.max) == (-math.inf, math.inf)
    assert (dtypes.bool.min, dtypes.bool.max) == (False, True)


def test_lookup_by_name() -> None:
    assert dtypes.from_name("float32") is dtypes.float
    assert dtypes.from_name("uchar") is dtypes.uint8
    for name in ("float128", "all", "from_name", "float.vec", ""):
        with pytest.raises(DTypeError, match="dtype: no dtype is called"):
            dtypes.from_name(name)


# promotion


def test_promotion_is_a_least_upper_type() -> None:
    for a, b in itertools.product(dtypes.all, dtypes.all):
        assert promote(a, b) is promote(b, a)
        assert promote(a, a) is a
        assert promote(dtypes.bool, a) is a
        assert promote(promote(a, b), b) is promote(a, b)


@pytest.mark.row("X.2")
@pytest.mark.parametrize(
    ("a", "b", "both"),
    [
        (dtypes.int8, dtypes.uint8, dtypes.int16),
        (dtypes.int32, dtypes.uint32, dtypes.int64),
        (dtypes.int64, dtypes.uint64, dtypes.float32),
        (dtypes.int64, dtypes.float16, dtypes.float16),
        (dtypes.float16, dtypes.bfloat16, dtypes.float32),
        (dtypes.float32, dtypes.float64, dtypes.float64),
        (dtypes.bool, dtypes.uint8, dtypes.uint8),
        (dtypes.index, dtypes.int32, dtypes.index),
        (dtypes.index, dtypes.float32, dtypes.float32),
    ],
)
def test_promotion(a: DType, b: DType, both: DType) -> None:
    assert promote(a, b) is both


def test_promotion_of_integers_holds_both() -> None:
    for a, b in itertools.product(dtypes.signed + dtypes.unsigned, repeat=2):
        both = promote(a, b)
        if both.is_int:
            assert both.min <= min(a.min, b.min)
            assert both.max >= max(a.max, b.max)
            assert both.name == np.promote_types(NUMPY[a], NUMPY[b]).name


def test_sums_are_kept_wider() -> None:
    assert sum_dtype(dtypes.bool) is dtypes.int32
    assert sum_dtype(dtypes.int8) is dtypes.int32
    assert sum_dtype(dtypes.uint16) is dtypes.uint32
    assert sum_dtype(dtypes.half) is dtypes.float
    assert sum_dtype(dtypes.bfloat16) is dtypes.float
    for dtype in (dtypes.int32, dtypes.int64, dtypes.uint64, dtypes.float, dtypes.double):
        assert sum_dtype(dtype) is dtype


# numbers as a dtype holds them


@given(st.floats(), st.sampled_from([dtypes.float16, dtypes.float32, dtypes.float64]))
def test_floats_round_as_numpy_does(value: float, dtype: DType) -> None:
    with np.errstate(over="ignore"):
        wanted = float(np.array(value, NUMPY[dtype]))
    ours = truncate(value, dtype)
    assert struct.pack("<d", ours) == struct.pack("<d", wanted) or (
        ours != ours and wanted != wanted
    )


def nearest_bfloat16(value: float) -> float:
    """By search: the two neighbours with eight significant bits, ties to the even one."""
    if value == 0 or not math.isfinite(value):
        return value
    exponent = max(math.frexp(value)[1], -125)
    step = math.ldexp(1.0, exponent - 8)
    low = math.floor(value / step) * step
    near = min((low, low + step), key=lambda part: (abs(part - value), (part / step) % 2))
    largest = math.ldexp(255, 120)
    return math.copysign(math.inf, value) if abs(near) > largest else math.copysign(near, value)


@given(st.floats(allow_nan=False) | st.floats(width=32, allow_nan=False))
def test_bfloat16_rounds_once(value: float) -> None:
    """To nearest even, also where a stop at float32 would round twice."""
    assert truncate(value, dtypes.bfloat16) == nearest_bfloat16(value)


def test_bfloat16_by_hand() -> None:
    assert truncate(1 + 2**-8, dtypes.bfloat16) == 1.0
    assert truncate(1 + 3 * 2**-8, dtypes.bfloat16) == 1 + 2**-6
    assert truncate(1 + 2**-8 + 2**-40, dtypes.bfloat16) == 1 + 2**-7
    assert truncate(3.4e38, dtypes.bfloat16) == math.inf
    assert math.copysign(1, truncate(-0.0, dtypes.bfloat16)) == -1


@given(st.integers(-(2**70), 2**70), st.sampled_from([*dtypes.signed, *dtypes.unsigned]))
def test_integers_wrap_around(value: int, dtype: DType) -> None:
    wanted = (value - dtype.min) % 2 ** (8 * dtype.itemsize) + dtype.min
    assert truncate(value, dtype) == wanted
    assert truncate(value, dtypes.index) == value


def test_nan_is_one() -> None:
    for dtype in (*dtypes.floats, *dtypes.fp8s):
        (bits,) = struct.unpack("<Q", struct.pack("<d", truncate(-math.nan, dtype)))
        assert bits == 0x7FF8000000000000


def test_constants_of_other_kinds() -> None:
    assert as_const(2.9, dtypes.int) == 2
    assert as_const(-2.9, dtypes.int) == -2
    assert as_const(300.0, dtypes.uint8) == 255
    assert as_const(-1.0, dtypes.uint64) == 0
    assert as_const(math.nan, dtypes.int) == 0
    assert as_const(math.inf, dtypes.int) == dtypes.int.max
    assert as_const(-math.inf, dtypes.int) == dtypes.int.min
    assert as_const(3, dtypes.bool) is True
    assert type(as_const(3, dtypes.float)) is float
    assert type(as_const(True, dtypes.int)) is int


def test_pointers_that_nothing_has_are_gone() -> None:
    gc.collect()
    # Pointers of earlier tests may go meanwhile.
    before = set(dtype_module._pointers)
    # Of sizes that nothing else has.
    kept = [dtypes.float.ptr((1 << 50) + number) for number in range(100)]
    assert len(set(dtype_module._pointers) - before) == 100
    del kept
    gc.collect()
    assert set(dtype_module._pointers) <= before
