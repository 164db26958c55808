"""0.0 and -0.0 are two numbers wherever a sign shows, and what lies outside of a padded product is
zero whatever the factors are. Each is compared with NumPy, bit by bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilegrad import Context, Device, Tensor, jit

INF, NAN = math.inf, math.nan
X = np.array([[1.0, -2.0, 0.0, -0.0], [-0.0, 3.0, -4.0, 0.0]], np.float32)
AROUND = ((0, 0), (1, 2))


def padded(x: Any, value: float = 0.0) -> Any:
    return np.pad(x, AROUND, constant_values=value)


def rows(x: Any, start: int, value: float) -> Any:
    """The rows of `x` from `start` on, with `value` in their middle."""
    x = x[start:] * 1
    x[:, 1:3] = value
    return x


def joined(*several: Any) -> Any:
    kind = Tensor if isinstance(several[0], Tensor) else np
    return Tensor.cat(*several) if kind is Tensor else np.concatenate(several)


# What is computed of X, with tensors and with NumPy.
CASES: dict[str, tuple[Callable[[Tensor], Any], Callable[[Any], Any]]] = {
    "pad with -0": (lambda x: x.pad(AROUND, value=-0.0), lambda x: padded(x, -0.0)),
    "pad with 0": (lambda x: x.pad(AROUND), padded),
    "negative of a pad": (lambda x: -x.pad(AROUND, value=-0.0), lambda x: -padded(x, -0.0)),
    "pad of a negative": (lambda x: (-x).pad(AROUND), lambda x: padded(-x)),
    "pad of a product": (lambda x: (x * -3).pad(AROUND), lambda x: padded(x * -3)),
    "pad of a sign": (lambda x: x.copysign(-1).pad(AROUND), lambda x: padded(np.copysign(x, -1))),
    "inverse of a pad": (lambda x: 1 / x.pad(AROUND, value=-0.0), lambda x: 1 / padded(x, -0.0)),
    "sign bit of a pad": (
        lambda x: x.pad(AROUND, value=-0.0).signbit(), lambda x: np.signbit(padded(x, -0.0))
    ),
    "angle of a pad": (
        lambda x: x.pad(AROUND, value=-0.0).atan2(-1.0), lambda x: np.arctan2(padded(x, -0.0), -1)
    ),
    "largest of a pad": (
        lambda x: x.pad(AROUND, value=-0.0).max(1), lambda x: padded(x, -0.0).max(1)
    ),
    "masked": (lambda x: x.masked_fill(x > 0, -0.0), lambda x: np.where(x > 0, -0.0, x)),
    "chosen": (lambda x: (x > 0).where(-0.0, 0.0), lambda x: np.where(x > 0, -0.0, 0.0)),
    "chosen otherwise": (lambda x: (x > 0).where(x, -0.0), lambda x: np.where(x > 0, x, -0.0)),
    "filled": (lambda x: joined(x.full_like(-0.0), x), lambda x: joined(np.full_like(x, -0.0), x)),
    "both": (
        lambda x: joined(x.full_like(0.0), x.full_like(-0.0)),
        lambda x: joined(np.full_like(x, 0.0), np.full_like(x, -0.0)),
    ),
    "written": (lambda x: rows(x, 1, -0.0), lambda x: rows(x, 1, -0.0)),
    "sum with 0": (lambda x: x + 0.0, lambda x: x + 0.0),
    "sum with -0": (lambda x: x + -0.0, lambda x: x + -0.0),
    "difference to 0": (lambda x: 0.0 - x, lambda x: 0.0 - x),
    "difference to -0": (lambda x: -0.0 - x, lambda x: -0.0 - x),
    "product with 0": (lambda x: x * 0.0, lambda x: x * 0.0),
    "product with -0": (lambda x: x * -0.0, lambda x: x * -0.0),
    "quotient": (lambda x: -0.0 / (x + 5), lambda x: -0.0 / (x + 5)),
}  # fmt: skip


def assert_same_bits(found: Tensor, expected: Any) -> None:
    array = found.numpy()
    np.testing.assert_array_equal(array, expected.astype(array.dtype), strict=True)
    is_number = expected == expected
    np.testing.assert_array_equal(
        np.signbit(array * 1.0)[is_number], np.signbit(expected)[is_number]
    )


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("given", [Tensor, lambda x: Tensor(x).realize()], ids=["host", "memory"])
def test_each_zero_has_its_sign(name: str, given: Callable[[Any], Tensor]) -> None:
    ours, numpys = CASES[name]
    with np.errstate(all="ignore"):
        expected = numpys(X) * (1 if "bit" in name else np.float32(1))
    expected = expected.astype("f4") if expected.dtype == np.float64 else expected
    assert_same_bits(ours(given(X)), expected)
    with Context(NOOPT=1):
        assert_same_bits(ours(given(X)), expected)
    captured = jit(lambda x: (ours(x), x * 3))
    for _ in range(3):
        assert_same_bits(captured(given(X))[0], expected)


@pytest.mark.parametrize("device", ["EMU", "CLANG", "CL", "WEBGPU", "EMU:NV"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_each_device_knows_both_zeros(device: str, dtype: str) -> None:
    if Device.why_not(device):
        pytest.skip(f"{device} is not here")
    x = Tensor(X, device=device).cast(dtype).realize()
    expected = padded(X, -0.0)
    assert_same_bits(x.pad(AROUND, value=-0.0).float(), expected)
    assert_same_bits((x * -3).pad(AROUND).float(), padded(X * np.float32(-3)))
    assert_same_bits(x.full_like(-0.0).cat(x).float(), joined(np.full_like(X, -0.0), X))


@pytest.mark.parametrize("factor", [INF, -INF, NAN, -2.0, 1e30])
def test_a_padded_product_is_zero_outside(factor: float) -> None:
    """By a number, and by a column that says nothing of where it is padded."""
    column = np.array([[factor], [-1.0]], np.float32)
    with np.errstate(all="ignore"):
        by_number, by_column = padded(X * np.float32(factor)), padded(X * column)
        in_turn = padded(np.exp(X) * column)
    x = Tensor(X).realize()
    assert_same_bits((x * factor).pad(AROUND), by_number)
    assert_same_bits((x * Tensor(column).realize()).pad(AROUND), by_column)
    found = (x.exp() * Tensor(column).realize()).pad(AROUND).numpy()
    np.testing.assert_allclose(found, in_turn, rtol=1e-6)
    assert not np.signbit(found[:, 0]).any()


def test_the_sum_of_a_padded_product_is_that_of_what_is_inside() -> None:
    column = np.array([[INF], [-2.0]], np.float32)
    x = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    found = (Tensor(x).realize() * Tensor(column).realize()).pad(AROUND).sum(1)
    assert found.tolist() == [INF, -14.0]
