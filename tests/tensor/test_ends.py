"""Values and derivatives where a function ends, has a pole, or overflows, by closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special

from tilegrad import Tensor, nn
from tilegrad.base.errors import DTypeError

INF, NAN = math.inf, math.nan
LARGEST = float(np.finfo(np.float64).max)


def slopes(function: Callable[..., Tensor], *values: Any, dtype: str = "f4") -> list[Any]:
    """The derivative with respect to each argument."""
    given = [Tensor(np.array(each, dtype), requires_grad=True) for each in values]
    function(*given).sum().backward()
    return [each.grad.numpy() for each in given if each.grad is not None]


def test_a_remainder_of_zero_has_the_derivatives_of_the_others() -> None:
    """x % y = x - y * floor(x / y)."""
    x, y = [0.0, 1.0, 1.0, 4.0, -4.0, 5.5, -5.5], [1.0, 1.0, -1.0, 2.0, 2.0, 2.0, 2.0]
    found = slopes(lambda x, y: x % y, x, y)
    np.testing.assert_array_equal(found[0], 1)
    np.testing.assert_array_equal(found[1], -np.floor(np.divide(x, y)))
    rest = (Tensor([4.0, -4.0]) % Tensor([-2.0, 2.0])).numpy()
    assert np.signbit(rest).tolist() == [True, False]


def test_a_pole_of_a_power_has_an_infinite_derivative() -> None:
    x, y = [0.0, -0.0, 0.0, -0.0, 0.0], [-1.0, -1.0, -2.0, -2.0, -0.5]
    found, _ = slopes(lambda x, y: x.pow(y), x, y)
    assert found.tolist() == [-INF, -INF, -INF, INF, -INF]


def test_powers_of_the_largest_number_are_finite() -> None:
    x = Tensor(np.array([LARGEST, -LARGEST, LARGEST]))
    found = x.pow(Tensor(np.array([1.0, 1.0, 0.5]))).numpy()
    np.testing.assert_allclose(found, [LARGEST, -LARGEST, LARGEST**0.5], rtol=1e-15)


@pytest.mark.parametrize(
    ("function", "x", "expected"),
    [
        (Tensor.log1p, [INF, 0.0, -0.0], [0.0, 1.0, 1.0]),
        (Tensor.digamma, [INF], [0.0]),
        (Tensor.lgamma, [0.0, -0.0, INF], [-INF, INF, INF]),
        (Tensor.erfinv, [1.0, -1.0], [INF, INF]),
        (Tensor.i0, [1e3, -1e3, 3e38], [INF, -INF, INF]),
        (Tensor.i1, [1e3, -1e3, 3e38], [INF, INF, INF]),
    ],
)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_derivatives_at_ends_are_no_nan(
    function: Callable[..., Tensor], x: list[float], expected: list[float], dtype: str
) -> None:
    (found,) = slopes(function, x, dtype=dtype)
    assert found.tolist() == expected


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_the_derivative_of_sinc_near_zero(dtype: str) -> None:
    """-pi^2 x / 3 for small x, of which rounding took a tenth."""
    x = np.array([1e-40, 2.0**-12, -1e-3, 0.1, 0.24], dtype)
    exact = x.astype(np.float64)
    angle = np.pi * exact
    series = -np.pi * angle / 3 * (1 - angle**2 / 10 * (1 - angle**2 / 28 * (1 - angle**2 / 54)))
    expected = np.where(abs(exact) < 0.2, series, np.cos(angle) / exact - np.sinc(exact) / exact)
    (found,) = slopes(Tensor.sinc, x, dtype=dtype)
    np.testing.assert_allclose(found, expected, rtol=1e-5 if dtype == "f4" else 1e-10, atol=1e-44)


def test_lgamma_of_the_smallest_and_the_largest_numbers() -> None:
    x = np.array([5e-324, -5e-324, 1e-310, 1e-20, -1e-16])
    np.testing.assert_allclose(Tensor(x).lgamma().numpy(), -np.log(abs(x)), rtol=4e-16)
    small = np.array([1e-45, -1e-45, 1e-39, 1e-9], np.float32)
    expected = -np.log(abs(small.astype(np.float64)))
    np.testing.assert_allclose(Tensor(small).lgamma().numpy(), expected, rtol=1.2e-7)
    assert Tensor(np.array([-LARGEST, -3.0, -INF, INF])).lgamma().tolist() == [INF] * 4


def test_zeta_of_zero_and_negative_integers_is_infinite() -> None:
    q = np.array([0.0, -1.0, -7.0, 0.5])
    found = Tensor(np.full(4, 2.0)).zeta(Tensor(q)).numpy()
    np.testing.assert_allclose(found, special.zeta(2.0, q), rtol=1e-14)


def test_ldexp_of_any_float() -> None:
    x = Tensor([1.0, 1.0, 0.0, 3.0, 1.0])
    found = x.ldexp(Tensor([NAN, INF, INF, 0.5, -149.0])).numpy()
    np.testing.assert_allclose(found, [NAN, INF, 0.0, 3 * 2**0.5, 2.0**-149], rtol=2e-7)
    by_value, by_exponent = slopes(lambda x, y: x.ldexp(y), [1.0, 3.0], [3.0, 0.5])
    np.testing.assert_allclose(by_value, [8.0, 2**0.5], rtol=2e-7)
    np.testing.assert_allclose(by_exponent, [8 * math.log(2), 3 * 2**0.5 * math.log(2)], rtol=4e-7)


def test_a_limit_that_is_nan_is_seen() -> None:
    x = Tensor([1.0, -INF])
    assert x.clip(min=NAN).isnan().all().item() and x.clip(0.0, NAN).isnan().all().item()


def test_an_integer_beside_bools_that_does_not_fit_is_refused() -> None:
    with pytest.raises(DTypeError, match="does not fit int32"):
        Tensor([True]) + 2**63


def test_integers_beyond_half_are_infinite() -> None:
    assert Tensor([2**31, -(2**70), 3], dtype="float16").tolist() == [INF, -INF, 3.0]
    x = Tensor([1.0, 1.0]).half()
    x[0] = 2**40
    assert x.tolist() == [INF, 1.0]


def test_a_factor_of_the_second_term_does_not_change_the_dtype() -> None:
    truth = Tensor([True, False])
    both, count = truth.add(truth, alpha=2), Tensor([1, 1], dtype="uint8").add(truth, alpha=2)
    assert both.dtype.name == "bool" and both.tolist() == [True, False]
    assert count.dtype.name == "uint8" and count.tolist() == [3, 1]


def test_logit_around_a_half() -> None:
    """logit(1/2 + d) is 2 artanh(2 d)."""
    for dtype, unit in (("f4", 2.0**-23), ("f8", 2.0**-52)):
        d = np.concatenate([[-unit / 4, unit / 2, 1e-6, -1e-3], np.linspace(-0.3, 0.3, 61)])
        x = (0.5 + d).astype(dtype)
        expected = 2 * np.arctanh(2 * (x.astype(np.float64) - 0.5))
        np.testing.assert_allclose(Tensor(x).logit().numpy(), expected, rtol=4 * unit, atol=1e-300)
    (found,) = slopes(Tensor.logit, [0.5, 0.3, 0.75, 0.9])
    np.testing.assert_allclose(found, [4, 1 / 0.21, 16 / 3, 1 / 0.09], rtol=1e-6)


def test_divergence_from_what_is_no_probability_is_nan() -> None:
    target = Tensor([0.0, -1.0, NAN, 0.5])
    found = nn.functional.kl_div(Tensor([-INF, 0.0, 0.0, 0.0]), target, reduction="none").numpy()
    np.testing.assert_allclose(found, [0.0, NAN, NAN, 0.5 * math.log(0.5)], rtol=1e-6)


def test_erfcx_below_zero() -> None:
    """The square is an exponent: what rounding took from it was 222 units. By mpmath, 40 digits."""
    exact = {
        -18.501671908527893: 9.2296103151950448749e148,
        -25.3: 1.9435016653958537247e278,
        -3.7: 1764092.7560908963011,
    }
    found = Tensor(np.array(list(exact))).erfcx().numpy()
    np.testing.assert_allclose(found, list(exact.values()), rtol=4 * 2.0**-52)
    assert Tensor(np.array([-27.0, -1e300, -INF])).erfcx().tolist() == [INF] * 3


@pytest.mark.parametrize("weight", [0.0, 0.25, 0.5, 0.75, 1.0])
@pytest.mark.parametrize("is_number", [True, False])
def test_an_interpolation_reaches_both_ends(weight: float, is_number: bool) -> None:
    """1e8 and 1 leave nothing of the 1 in their difference."""
    start = np.array([1e8, 1.0, 0.1, -3.0, 0.0], np.float32)
    end = np.array([1.0, 1e-8, 0.7, -0.0, 1e8], np.float32)
    given: Any = weight if is_number else Tensor(np.full(5, weight, np.float32)).realize()
    x, y = Tensor(start, requires_grad=True), Tensor(end, requires_grad=True)
    found = x.lerp(y, given)
    wide = start.astype(float) + (end.astype(float) - start) * weight
    np.testing.assert_allclose(found.numpy(), wide, rtol=2e-7)
    found.sum().backward()
    assert x.grad is not None and y.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), np.full(5, 1 - weight))
    np.testing.assert_allclose(y.grad.numpy(), np.full(5, weight))
