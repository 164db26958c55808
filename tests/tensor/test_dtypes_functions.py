"""Functions at the ends of a dtype, and of half types, which are computed in float32."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tilegrad import Context, Device, Tensor
from tilegrad.base.dtype import DType, dtypes
from tilegrad.device import cpu
from tilegrad.device.backend import Backend

HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
INF, NAN = math.inf, math.nan


def logistic(x: Any) -> Any:
    return np.where(x < 0, np.exp(np.minimum(x, 0)) / (1 + np.exp(np.minimum(x, 0))),
                    1 / (1 + np.exp(-np.maximum(x, 0))))  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sigmoid_down_to_the_smallest_number(dtype: Any) -> None:
    low = -103.0 if dtype is np.float32 else -744.0
    x = np.concatenate([np.linspace(low, 60, 400), [-3.4e38, -1e30, 1e30, INF, -INF]]).astype(dtype)
    exact = logistic(x.astype(np.float64))
    tensor = Tensor(x, requires_grad=True)
    found = tensor.sigmoid()
    least = np.finfo(dtype).smallest_subnormal
    bound = (8e-6 if dtype is np.float32 else 2e-13) * exact + least
    assert np.all(np.abs(found.numpy() - exact) <= bound)
    found.sum().backward()
    assert tensor.grad is not None
    slope = exact * logistic(-x.astype(np.float64))
    # Made of the result, it is as exact as that is below 0, and off by its rounding near 1.
    off = np.abs(tensor.grad.numpy() - slope)
    rounding = np.where(x > 0, 3 * np.finfo(dtype).eps, 2 * float(least))
    assert np.all(off <= 1e-4 * slope * (x <= 0) + rounding)


def test_silu_far_below_zero() -> None:
    """PyTorch's values: -0.0, and NaN for 0 times infinity."""
    x = Tensor([-3.4e38, -1000.0, -100.0, 0.0, 3.4e38, -INF])
    found = x.silu().tolist()
    assert found[:2] == [0.0, 0.0] and [math.copysign(1, y) for y in found[:2]] == [-1, -1]
    assert found[2] == pytest.approx(-100 * math.exp(-100), rel=1e-2)
    assert found[3:5] == [0.0, float(np.float32(3.4e38))] and math.isnan(found[5])


def test_powers_of_special_values() -> None:
    """As C's pow, the signs of zeros included."""
    ones = [0.0, 1, 2, 0.5, 3, 65, 1e30, 1e-40, INF]
    values = [*ones, *[-value for value in ones], -64, 2.5, NAN]
    base, exponent = (grid.ravel() for grid in np.meshgrid(values, values))
    for dtype in (np.float32, np.float64):
        with np.errstate(all="ignore"):
            exact = np.power(base, exponent).astype(dtype)
        found = Tensor(base.astype(dtype)).pow(Tensor(exponent.astype(dtype))).numpy()
        np.testing.assert_allclose(found, exact, rtol=1e-5 if dtype is np.float32 else 1e-13)
        kept = ~np.isnan(exact)
        np.testing.assert_array_equal(np.signbit(found)[kept], np.signbit(exact)[kept])


def test_logaddexp_keeps_its_digits_near_zero() -> None:
    """log(1 + exp(-7)) is 0.0009: the sum in the logarithm must not be rounded to one near 1."""
    left = np.array([0.0, -7.0, -20.0, 1.0, INF, -INF, -INF, NAN])
    right = np.array([-7.0, 0.0, 0.0, 1.0, INF, -INF, 3.0, 0.0])
    with np.errstate(all="ignore"):
        exact = np.logaddexp(left, right)
    for dtype, bound in ((np.float32, 1e-6), (np.float64, 1e-15)):
        found = Tensor(left.astype(dtype)).logaddexp(Tensor(right.astype(dtype))).numpy()
        np.testing.assert_allclose(found, exact, rtol=bound)


def test_logaddexp_has_the_gradient_of_both_where_they_are_equal() -> None:
    x, y = Tensor([1.0, 0.0]), Tensor([1.0, 3.0])
    share = 1 / (1 + np.exp(3.0))
    found = [part.tolist() for part in x.logaddexp(y).sum().gradient(x, y)]
    np.testing.assert_allclose(found, [[0.5, share], [0.5, 1 - share]], rtol=1e-6)


def test_powers_of_float32_round_once() -> None:
    """Whole powers of whole numbers are exact, as far as float32 holds them."""
    base, exponent = (grid.ravel() for grid in np.meshgrid(np.arange(2.0, 12), np.arange(1.0, 7)))
    found = Tensor(base.astype(np.float32)).pow(Tensor(exponent.astype(np.float32)))
    np.testing.assert_array_equal(found.numpy(), np.power(base, exponent).astype(np.float32))
    assert (10 ** Tensor([1.0, 2.0, 3.0])).tolist() == [10.0, 100.0, 1000.0]
    generator = np.random.default_rng(12)
    x, y = (generator.uniform(low, high, 50_000) for low, high in ((0.01, 100), (-10, 10)))
    x, y = x.astype(np.float32), y.astype(np.float32)
    exact = np.power(x.astype(np.float64), y.astype(np.float64))
    distance = np.abs(Tensor(x).pow(Tensor(y)).numpy() - exact)
    assert np.max(distance / np.spacing(exact.astype(np.float32))) <= 0.51


def test_powers_without_float64() -> None:
    """A device that lacks it computes them in pairs of float32."""

    def narrow(name: str) -> Backend:
        found = cpu.backend(name)
        missing = frozenset({dtypes.float64})
        return replace(found, target=replace(found.target, missing_dtypes=missing))

    Device.register("SINGLE", narrow)
    try:
        with Context(DEVICE="SINGLE"):
            found = Tensor([3.0, -2.0, 10.0]).pow(Tensor([2.0, 3.0, -3.0])).tolist()
            far = Tensor([1.0957918]).pow(Tensor([-879.44684])).item()
    finally:
        Device.unregister("SINGLE")
    assert found == [9.0, -8.0, float(np.float32(1e-3))]
    exact = float(np.float32(1.0957918)) ** float(np.float32(-879.44684))
    assert far == pytest.approx(exact, rel=2**-23)


FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Any], Any]]] = {
    "sigmoid": (lambda x: x.sigmoid(), logistic),
    "silu": (lambda x: x.silu(), lambda x: x * logistic(x)),
    "quick_gelu": (lambda x: x.quick_gelu(), lambda x: x * logistic(1.702 * x)),
    "softsign": (lambda x: x.softsign(), lambda x: x / (1 + np.abs(x))),
    "softplus": (lambda x: x.softplus(), lambda x: np.logaddexp(0, x)),
    "logsigmoid": (lambda x: x.logsigmoid(), lambda x: -np.logaddexp(0, -x)),
    "mish": (lambda x: x.mish(), lambda x: x * np.tanh(np.logaddexp(0, x))),
    "hardswish": (lambda x: x.hardswish(), lambda x: x * np.clip(x + 3, 0, 6) / 6),
    "hardsigmoid": (lambda x: x.hardsigmoid(), lambda x: np.clip(x / 6 + 0.5, 0, 1)),
    "elu": (lambda x: x.elu(0.7), lambda x: np.where(x > 0, x, 0.7 * np.expm1(x))),
    "celu": (lambda x: x.celu(1.5), lambda x: np.where(x > 0, x, 1.5 * np.expm1(x / 1.5))),
    "selu": (
        lambda x: x.selu(),
        lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
    ),
    "logaddexp": (lambda x: x.logaddexp(0.25), lambda x: np.logaddexp(x, 0.25)),
    # Of positive numbers: no digits cancel.
    "lerp": (lambda x: x.abs().lerp(3.0, 0.3), lambda x: np.abs(x) * 0.7 + 0.9),
    "std": (
        lambda x: x.reshape(-1, 8).std(1),
        lambda x: np.std(x.reshape(-1, 8), axis=1, ddof=1),
    ),
}


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_composed_functions_of_half_types_round_once(name: str, dtype: DType) -> None:
    """Half a unit in the last place, and what float32 is off."""
    digits, least = (11, 2.0**-24) if dtype is dtypes.float16 else (8, 2.0**-133)
    x = HALVES[np.isfinite(HALVES) & (np.abs(HALVES) < 1000)]
    ours, theirs = FUNCTIONS[name]
    with np.errstate(all="ignore"):
        given = Tensor(x).cast(dtype)
        found = ours(given).cast(dtypes.float64).numpy()
        exact = theirs(given.cast(dtypes.float64).numpy())
    _, exponent = np.frexp(exact)
    unit = np.maximum(np.ldexp(1.0, exponent - digits), least)
    assert np.max(np.abs(found - exact) / unit) <= 0.51


def test_odd_functions_keep_the_sign_of_zero() -> None:
    names = (
        "expm1 log1p sin tan asin atan sinh tanh asinh atanh erf sqrt silu gelu floor ceil trunc"
    )
    for name in names.split():
        x = Tensor([-0.0, 0.0], requires_grad=True)
        y = getattr(x, name)()
        assert [math.copysign(1, value) for value in y.tolist()] == [-1, 1], name
        if name in ("log1p", "atanh", "tanh"):
            y.sum().backward()
            assert x.grad is not None
            assert x.grad.tolist() == [1.0, 1.0], name
    assert [math.copysign(1, y) for y in Tensor([-0.5, -0.0]).ceil().tolist()] == [-1, -1]
    assert Tensor([-1.5, 1.5, 2.0, INF]).ceil().tolist() == [-1, 2, 2, INF]


def test_lerp_of_other_dtypes() -> None:
    assert Tensor([1, 3]).lerp(Tensor([5, 5]), 0.5).tolist() == [3.0, 4.0]
    half = Tensor([1.0, 2.0]).half()
    assert half.lerp(Tensor([3.0, 4.0]).half(), 0.5).dtype is dtypes.half
    assert half.lerp(Tensor([3.0, 4.0]), 0.5).dtype is dtypes.float32
    assert half.lerp(Tensor([3.0, 4.0]).half(), Tensor([0.5, 0.5])).dtype is dtypes.float32
    assert half.std_mean()[0].dtype is half.std_mean()[1].dtype is dtypes.half
