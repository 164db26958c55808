"""Every function of one or two elements, on special values, beside NumPy."""

from __future__ import annotations

import array_api_strict as strict
import numpy as np
import pytest

from tests.array_api.cases import FLOATS, INTEGERS, SPECIAL, extremes, run
from tilegrad import array_api as xp

ALONE = [
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "exp",
    "expm1", "floor", "isfinite", "isinf", "isnan", "log", "log10", "log1p", "log2", "negative",
    "positive", "reciprocal", "round", "sign", "signbit", "sin", "sinh", "sqrt", "square", "tan",
    "tanh", "trunc",
]  # fmt: skip
PAIRS = [
    "add", "atan2", "copysign", "divide", "floor_divide", "equal", "not_equal", "less",
    "less_equal", "greater", "greater_equal", "hypot", "logaddexp", "maximum", "minimum",
    "multiply", "nextafter", "pow", "remainder", "subtract",
]  # fmt: skip
# The standard leaves open which of two zeros is the larger.
NO_SIGN = ("maximum", "minimum")
WHOLE = [
    "abs", "ceil", "floor", "negative", "positive", "round", "sign", "square", "trunc",
    "isfinite", "isinf", "isnan",
]  # fmt: skip
BITS = ["bitwise_and", "bitwise_or", "bitwise_xor"]
SHIFTS = ("bitwise_left_shift", "bitwise_right_shift")
TRUTH = [*BITS, "logical_and", "logical_or", "logical_xor", "equal", "not_equal"]


def check_floats(name: str, *args: np.ndarray) -> None:
    with np.errstate(all="ignore"):
        exact = getattr(np, name)(*args)
    (found,) = run(xp, name, args, {})
    assert found.dtype == exact.dtype and found.shape == exact.shape
    if exact.dtype == bool:
        np.testing.assert_array_equal(found, exact)
        return
    single = args[0].dtype == np.float32
    np.testing.assert_allclose(
        found, exact, rtol=2e-6 if single else 1e-14, atol=1e-37 if single else 1e-300
    )
    if name not in NO_SIGN:
        there = ~np.isnan(exact)
        np.testing.assert_array_equal(np.signbit(found)[there], np.signbit(exact)[there])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ALONE)
def test_floats_one_by_one(name: str, dtype: str) -> None:
    check_floats(name, np.array(SPECIAL, dtype))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", PAIRS)
def test_pairs_of_floats(name: str, dtype: str) -> None:
    values = np.array(SPECIAL, dtype)
    check_floats(name, np.repeat(values, len(values)), np.tile(values, len(values)))


SLOW = pytest.mark.nightly
FIRST = ("int8", "uint64")


@pytest.mark.parametrize(
    "dtype",
    [pytest.param(each, marks=[] if each in FIRST else SLOW) for each in INTEGERS],
)
def test_integers(dtype: str) -> None:
    """All in one test for each dtype: what is tiny compiles faster than it is set up."""
    values = extremes(dtype)
    for name in [*WHOLE, "bitwise_invert"]:
        exact = run(strict, name, (values,), {})
        np.testing.assert_array_equal(run(xp, name, (values,), {}), exact, err_msg=name)
    a, b = np.repeat(values, len(values)), np.tile(values, len(values))
    safe = (b != 0) & ~((b == -1) & (a == values[0]))
    shift = (b >= 0) & (b < 8 * values.itemsize)
    small = (b >= 0) & (b < 4)
    for name in [*PAIRS, *BITS, *SHIFTS]:
        if name in ("atan2", "copysign", "divide", "hypot", "logaddexp", "nextafter"):
            continue
        kept = shift if name in SHIFTS else small if name == "pow" else np.full(a.shape, True)
        kept = safe if name in ("floor_divide", "remainder") else kept
        with np.errstate(all="ignore"):
            exact = run(strict, name, (a[kept], b[kept]), {})
        found = run(xp, name, (a[kept], b[kept]), {})
        assert found[0].dtype == exact[0].dtype, name
        np.testing.assert_array_equal(found, exact, err_msg=name)


@pytest.mark.parametrize("name", TRUTH)
def test_bools(name: str) -> None:
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    np.testing.assert_array_equal(run(xp, name, (a, b), {}), [getattr(np, name)(a, b)])


def test_not() -> None:
    values = np.array([True, False])
    for name in ("logical_not", "bitwise_invert"):
        np.testing.assert_array_equal(run(xp, name, (values,), {}), [~values])


def test_parts_of_real_numbers() -> None:
    values = np.array([1.5, -0.0], np.float32)
    np.testing.assert_array_equal(run(xp, "real", (values,), {}), [values])
    np.testing.assert_array_equal(run(xp, "conj", (values,), {}), [values])
    np.testing.assert_array_equal(run(xp, "imag", (values,), {}), [[0, 0]])


def test_limits_that_an_integer_cannot_be() -> None:
    values = np.array([-3, 0, 9], np.int8)
    (found,) = run(xp, "clip", (values,), {"min": -float("inf"), "max": 2.0**40})
    assert found.tolist() == [-3, 0, 9] and found.dtype == np.int8


@pytest.mark.parametrize("name", ["positive", "floor", "abs", "conj"])
def test_what_changes_nothing_is_still_another_array(name: str) -> None:
    x = xp.asarray([1, 2], dtype=xp.uint8)
    y = getattr(xp, name)(x)
    x[0] = 7
    assert y.tensor.tolist() == [1, 2]
