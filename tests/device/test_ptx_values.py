"""What PTX kernels compute on the numbers that instructions treat in ways of their own: NaN,
infinities, zeros with signs, the ends of integers, ties. They run on the interpreter of PTX.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.device.ptx.device import simulated
from tilegrad import Tensor

# bfloat16 has instructions of its own on the last.
DEVICES = ["NVSIM80", pytest.param("NVSIM90", marks=pytest.mark.nightly)]
WILD = [0.0, -0.0, 1.0, -1.5, 2.5, 1e30, -1e30, np.inf, -np.inf, np.nan, 255.5, -128.9, 6e4]
INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]

pytestmark = pytest.mark.parametrize("device", DEVICES)


def on(device: str, values: Any, dtype: str) -> Tensor:
    return Tensor(np.asarray(values), device=simulated(device)).cast(dtype).realize()


def saturated(value: float, dtype: str) -> int:
    """Toward zero, the nearest that there is, 0 for NaN."""
    info = np.iinfo(dtype)
    if np.isnan(value):
        return 0
    return (
        int(info.max) if value >= info.max else int(info.min) if value <= info.min else int(value)
    )


@pytest.mark.parametrize("target", INTEGERS)
@pytest.mark.parametrize("source", ["float16", "float32", "float64"])
def test_a_float_becomes_the_nearest_integer(device: str, source: str, target: str) -> None:
    with np.errstate(over="ignore"):
        values = np.array(WILD).astype(source)
    found = Tensor(values, device=simulated(device)).cast(target).tolist()
    assert found == [saturated(float(value), target) for value in values]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_nothing_equals_nan(device: str, dtype: str) -> None:
    x = on(device, [1.0, np.nan, np.nan, 2.0], dtype)
    y = on(device, [1.0, 1.0, np.nan, np.nan], dtype)
    assert (x == y).tolist() == [True, False, False, False]
    assert (x != y).tolist() == [False, True, True, True]
    assert (x < y).tolist() == [False, False, False, False]
    assert x.cast("bool").tolist() == [True] * 4


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_the_maximum_keeps_nan_and_the_first_zero(device: str, dtype: str) -> None:
    x = on(device, [0.0, -0.0, np.nan, 1.0, 2.0, -1.0], dtype)
    y = on(device, [-0.0, 0.0, 1.0, np.nan, 1.0, np.inf], dtype)
    found = x.maximum(y).cast("float64").numpy()
    np.testing.assert_array_equal(found, [0.0, -0.0, np.nan, np.nan, 2.0, np.inf])
    assert np.signbit(found[:2]).tolist() == [False, True]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_maximum_over_rows_keeps_nan(device: str, dtype: str) -> None:
    values = np.arange(300.0).reshape(3, 100)
    values[1, 50] = np.nan
    assert str(on(device, values, dtype).max(1).tolist()) == "[99.0, nan, 299.0]"


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap_around(device: str, dtype: str) -> None:
    info = np.iinfo(dtype)
    values = np.array([info.max, info.min, info.max, 3, 100], dtype)
    other = np.array([1, info.max, info.max, 77, 100], dtype)
    x, y = on(device, values, dtype), on(device, other, dtype)
    operations: list[Callable[[Any, Any], Any]] = [
        lambda a, b: a + b,
        lambda a, b: a - b,
        lambda a, b: a * b,
        lambda a, b: a * b + a,
        lambda a, b: a << 3,
        lambda a, b: -a,
    ]
    span = 1 << info.bits
    for operation in operations:
        wanted = [operation(int(a), int(b)) for a, b in zip(values, other)]
        wrapped = [(each - int(info.min)) % span + int(info.min) for each in wanted]
        assert operation(x, y).tolist() == wrapped


@pytest.mark.parametrize("dtype", INTEGERS)
def test_divisions_have_no_traps(device: str, dtype: str) -> None:
    """By zero they are 0; the least by -1 wraps around."""
    info = np.iinfo(dtype)
    left = [info.min, info.max, 7, 7, 0, 100]
    right = [-1 if info.min else 1, 0, 0, 2, 0, 7]
    found = (
        on(device, np.array(left, dtype), dtype) // on(device, np.array(right, dtype), dtype)
    ).tolist()
    wanted = [0 if b == 0 else int(a) // b for a, b in zip(left, right)]
    wanted[0] = int(info.min)
    assert found == wanted
    rest = (
        on(device, np.array(left, dtype), dtype) % on(device, np.array(right, dtype), dtype)
    ).tolist()
    assert rest == [0, 0, 0, 1, 0, 2]


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint32", "int64", "uint64"])
def test_a_shift_by_the_width_or_more(device: str, dtype: str) -> None:
    info = np.iinfo(dtype)
    values = np.array([info.min, -3 if info.min else 3, info.max, 5], dtype)
    amounts = [info.bits, info.bits + 1, info.bits - 1, 2]
    x, y = on(device, values, dtype), on(device, np.array(amounts), dtype)
    left = [0, 0, (int(info.max) << (info.bits - 1)) & ((1 << info.bits) - 1), 20]
    left[2] = left[2] - (1 << info.bits) if left[2] > info.max else left[2]
    assert (x << y).tolist() == left
    assert (x >> y).tolist() == [int(a) >> b for a, b in zip(values, amounts)]


@pytest.mark.parametrize("source", ["int32", "int64", "uint64", "float64"])
def test_a_number_becomes_bfloat16_with_one_rounding(device: str, source: str) -> None:
    """2**24 + 2**16 lies half way between two of them: one more, and it goes up."""
    tie = 2**24 + 2**16
    values = np.array([tie, tie + 1, tie - 1, 3 * 2**16 + 2**24, 7], source)
    found = on(device, values, source).cast("bfloat16").cast("float64").tolist()
    step = 2.0**17
    assert found == [2.0**24, 2.0**24 + step, 2.0**24, 2.0**24 + 2 * step, 7.0]


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_a_wide_integer_becomes_a_float_with_one_rounding(device: str, dtype: str) -> None:
    values = np.array([2**24 + 1, 2**53 + 1, 2**62 + 2**38, 2**62 + 2**38 + 1], dtype)
    x = on(device, values, dtype)
    assert x.cast("float32").tolist() == [2.0**24, 2.0**53, 2.0**62, 2.0**62 + 2.0**39]
    assert x.cast("float64").tolist() == [float(int(each)) for each in values]


def test_words_become_other_words_with_the_same_bits(device: str) -> None:
    x = on(device, [1.0, -0.0, np.nan, 65504.0], "float16")
    assert x.bitcast("int16").tolist() == [0x3C00, -(2**15), 0x7E00, 0x7BFF]
    assert x.bitcast("uint16").bitcast("float16").bitcast("int16").tolist()[1] == -(2**15)
    assert x.bitcast("bfloat16").bitcast("uint16").tolist()[0] == 0x3C00
    y = on(device, [1.0, -2.0], "float64")
    assert y.bitcast("int64").tolist() == [0x3FF << 52, -(2**62)]


def test_a_choice_between_bools(device: str) -> None:
    a, b, c = (on(device, [0, 1, 0, 1, 0, 1, 0, 1][:: step or 1], "bool") for step in (1, 1, -1))
    found = a.where(b, c)
    wanted = [y if x else z for x, y, z in zip(a.tolist(), b.tolist(), c.tolist())]
    assert found.tolist() == wanted
    assert (a & b).tolist() == [x and y for x, y in zip(a.tolist(), b.tolist())]


def test_a_loop_with_a_bound_that_lanes_do_not_share(device: str) -> None:
    """The rows of a lower triangle end where they end."""
    rng = np.random.default_rng(0)
    a = rng.integers(-3, 4, (24, 24)).astype(np.float32)
    x = on(device, a, "float32")
    np.testing.assert_array_equal((x.tril() @ x).numpy(), np.tril(a) @ a)
    np.testing.assert_array_equal(x.cumsum(1).numpy(), a.cumsum(1))


def test_rows_that_meet_are_added(device: str) -> None:
    rng = np.random.default_rng(1)
    for dtype in ("float32", "int32", "int64", "float16", "bfloat16", "int8"):
        values, rows = rng.integers(-3, 4, (40, 8)), rng.integers(0, 5, 40)
        table = on(device, np.ones((5, 8)), dtype)
        found = table.index_add(0, on(device, rows, "int32"), on(device, values, dtype))
        wanted = np.ones((5, 8))
        np.add.at(wanted, rows, values)
        np.testing.assert_array_equal(found.cast("float64").numpy(), wanted)


def test_what_a_mask_hides_is_not_read(device: str) -> None:
    """The interpreter refuses an access outside: each edge of a padded window has such."""
    rng = np.random.default_rng(2)
    image, weight = rng.integers(-3, 4, (1, 2, 7, 7)), rng.integers(-3, 4, (3, 2, 3, 3))
    found = on(device, image, "float32").conv2d(on(device, weight, "float32"), padding=1).numpy()
    padded = np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    np.testing.assert_array_equal(found, np.einsum("nchwij,ocij->nohw", windows, weight))


@pytest.mark.parametrize("dtype", ["int16", "uint16"])
def test_several_chosen_integers_of_16_bits_are_stored_together(device: str, dtype: str) -> None:
    """Their registers have 32 bits, so the pairs of 16 in which floats are stored are none."""
    values = np.random.default_rng(4).integers(0, 1000, (5, 9)).astype(dtype)
    mask = np.arange(45).reshape(5, 9) % 3 == 0
    found = on(device, values, dtype).masked_select(on(device, mask, "bool"), 15)
    np.testing.assert_array_equal(found.numpy(), values[mask])


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_attention_is_that_of_its_definition(device: str, dtype: str) -> None:
    """One kernel: keys and values by cp.async, and in half precision both products by mma."""
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, 64, 16)).astype(dtype)
    found = on(device, q, dtype).scaled_dot_product_attention(
        on(device, k, dtype), on(device, v, dtype), is_causal=True
    )
    wide = [x.astype(np.float64) for x in (q, k, v)]
    scores = np.where(np.tri(64) > 0, wide[0] @ wide[1].transpose(0, 2, 1) / 4, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True) @ wide[2]
    np.testing.assert_allclose(found.numpy(), expected, atol=2e-3 if dtype == "float16" else 2e-6)
