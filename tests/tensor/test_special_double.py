"""Special functions of float64 to its last digits, beside SciPy, and closed forms where SciPy loses
digits itself.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special

from tilegrad import Tensor

GAMMA = 0.5772156649015329
ZETA2, ZETA3 = math.pi**2 / 6, 1.2020569031595942
SMALL = np.concatenate([sign * 10.0 ** -np.arange(5.0, 16.0) for sign in (1, -1)])


def double(function: Callable[[Tensor], Tensor], values: Any) -> Any:
    return function(Tensor(np.asarray(values, "f8"))).numpy()


def test_lgamma_near_1() -> None:
    """-gamma z + zeta(2) / 2 z^2 - zeta(3) / 3 z^3."""
    z = (1 + SMALL) - 1
    expected = z * (-GAMMA + z * (ZETA2 / 2 - z * ZETA3 / 3))
    np.testing.assert_allclose(double(lambda x: x.lgamma(), 1 + SMALL), expected, rtol=1e-15)


def test_lgamma_near_2() -> None:
    """(1 - gamma) z + (zeta(2) - 1) / 2 z^2 - (zeta(3) - 1) / 3 z^3."""
    z = (2 + SMALL) - 2
    expected = z * (1 - GAMMA + z * ((ZETA2 - 1) / 2 - z * (ZETA3 - 1) / 3))
    np.testing.assert_allclose(double(lambda x: x.lgamma(), 2 + SMALL), expected, rtol=1e-15)


def test_lgamma_is_exactly_zero_at_1_and_2() -> None:
    assert double(lambda x: x.lgamma(), [1.0, 2.0]).tolist() == [0.0, 0.0]


def test_digamma_at_both_zeros_is_infinite_as_in_scipy() -> None:
    x = np.array([0.0, -0.0])
    np.testing.assert_array_equal(double(lambda x: x.digamma(), x), special.digamma(x))


@pytest.mark.parametrize(
    "order", [1, 6, *(pytest.param(each, marks=pytest.mark.nightly) for each in (2, 3))]
)
def test_polygamma_of_negative_numbers_is_that_of_scipy(order: int) -> None:
    x = np.concatenate([np.arange(-20.0, 1.0), np.linspace(-9.9, 4.1, 29), [-1e-3, np.inf, np.nan]])
    found = double(lambda x: x.polygamma(order), x)
    np.testing.assert_allclose(found, special.polygamma(order, x), rtol=1e-12)


def test_polygamma_of_negative_float32_numbers_is_that_of_scipy() -> None:
    x = np.linspace(-9.9, 4.1, 29, dtype=np.float32)
    found = Tensor(x).polygamma(1).numpy()
    np.testing.assert_allclose(found, special.polygamma(1, x.astype(float)), rtol=1e-6)


def test_digamma_near_its_zero() -> None:
    """trigamma(x0) (x - x0) for small distances; x0 in two numbers."""
    x = 1.4616321449683623 + SMALL[SMALL < 1e-7][:6]
    distance = (x - 1.4616321449683623) - 9.549995429965697e-17
    expected = distance * (0.9676722454476212 - 0.4427631689835921 * distance)
    np.testing.assert_allclose(double(lambda x: x.digamma(), x), expected, rtol=1e-14)


RANGE = np.concatenate([np.linspace(-40, 40, 161), [7.9999, 8.0, 8.0001, 1e-9]])
CASES: list[tuple[str, Callable[[Tensor], Tensor], Callable[[Any], Any], Any]] = [
    ("lgamma", lambda x: x.lgamma(), special.gammaln, np.linspace(2.6, 40, 200)),
    ("digamma", lambda x: x.digamma(), special.digamma, np.linspace(0.6, 40, 200)),
    ("i0", lambda x: x.i0(), special.i0, RANGE),
    ("i1", lambda x: x.i1(), special.i1, RANGE),
    ("i0e", lambda x: x.i0e(), special.i0e, np.linspace(-900, 900, 200)),
    ("i1e", lambda x: x.i1e(), special.i1e, np.linspace(-900, 900, 200)),
    ("erfcx", lambda x: x.erfcx(), special.erfcx, 10.0 ** np.linspace(2, 200, 50)),
    (
        "zeta",
        lambda x: x.const_like(5.5).zeta(x),
        lambda x: special.zeta(5.5, x),
        10.0 ** np.linspace(-1, 25, 60),
    ),
]


@pytest.mark.parametrize(("name", "ours", "theirs", "x"), CASES, ids=[case[0] for case in CASES])
def test_doubles_agree_with_scipy(
    name: str, ours: Callable[[Tensor], Tensor], theirs: Callable[[Any], Any], x: Any
) -> None:
    np.testing.assert_allclose(double(ours, x), theirs(x), rtol=4e-15)


def test_i0_does_not_overflow_before_its_value_does() -> None:
    expected = special.i0e(712.0) * math.exp(356.0) * math.exp(356.0)
    assert double(lambda x: x.i0(), [712.0])[0] == pytest.approx(expected, rel=1e-12)


# By mpmath, with 40 digits.
BELOW = {
    -1.5: 0.066807201268858066004,
    -4.25: 0.000010688525774934420469,
    -11.8: 1.9515572931695542816e-32,
    -20.7: 1.731851879019737858e-95,
    -33.3: 1.9305055059278399761e-243,
}


def test_the_normal_distribution_far_below_0() -> None:
    """The square of -11.8 is an exponent: what rounding takes from it was 198 units."""
    np.testing.assert_allclose(
        double(lambda x: x.ndtr(), list(BELOW)), list(BELOW.values()), rtol=16 * 2.0**-53
    )


def test_the_inverse_of_erf_rounds_once_in_single() -> None:
    random = np.random.default_rng(0)
    near_1 = 1 - 10.0 ** random.uniform(-6.5, -1, 4000)
    x = np.concatenate([random.uniform(-1, 1, 20_000), near_1, -near_1]).astype(np.float32)
    exact = special.erfinv(x.astype(np.float64))
    error = np.abs(Tensor(x).erfinv().numpy().astype(np.float64) - exact)
    assert (error <= 0.51 * np.spacing(np.abs(exact).astype(np.float32))).all()


def test_sinc_is_zero_at_integers_and_right_beside_them() -> None:
    whole = np.array([-40.0, -3, -1, 1, 2, 5, 1000, 2.0**24, 3e30], np.float32)
    np.testing.assert_array_equal(abs(Tensor(whole).sinc().numpy()), 0)
    beside = np.concatenate(
        [np.nextafter(whole[:7], up) for up in (np.float32(-50), np.float32(1e9))]
    )
    # In float64 the product with pi loses nothing that float32 has.
    expected = np.sinc(beside.astype(np.float64))
    np.testing.assert_allclose(Tensor(beside).sinc().numpy(), expected, rtol=3e-7)
    x = Tensor(np.array([1.0], np.float32))
    (slope,) = x.sinc().sum().gradient(x)
    np.testing.assert_allclose(slope.numpy(), [-1.0], rtol=1e-6)
