"""Functions of one element, against NumPy and SciPy in float64: values, errors and finite
derivatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

from tests.tensor.helpers import check, close, numbers
from tilegrad import Tensor, dtypes

INF, NAN = float("inf"), float("nan")
X = np.concatenate(
    [numbers(24, low=-6, high=6), numbers(8, low=-0.01, high=0.01), np.float32([0, 1, -1])]
)
POSITIVE = np.abs(X) + np.float32(1e-3)


def sigmoid(x: Any) -> Any:
    return scipy.special.expit(x)


def relu6(x: Any) -> Any:
    return np.clip(x, 0, 6)


CASES: list[tuple[str, Callable[[Any], Any], np.ndarray]] = [
    ("exp", np.exp, X),
    ("exp2", np.exp2, X),
    ("expm1", np.expm1, X),
    ("log", np.log, POSITIVE),
    ("log2", np.log2, POSITIVE),
    ("log10", np.log10, POSITIVE),
    ("log1p", np.log1p, POSITIVE),
    ("sqrt", np.sqrt, POSITIVE),
    ("rsqrt", lambda x: 1 / np.sqrt(x), POSITIVE),
    ("sin", np.sin, X),
    ("cos", np.cos, X),
    ("tan", np.tan, X / 5),
    ("asin", np.arcsin, X / 6.01),
    ("acos", np.arccos, X / 6.01),
    ("atan", np.arctan, X),
    ("sinh", np.sinh, X),
    ("cosh", np.cosh, X),
    ("tanh", np.tanh, X),
    ("asinh", np.arcsinh, X),
    ("acosh", np.arccosh, POSITIVE + 1),
    ("atanh", np.arctanh, X / 6.2),
    ("erf", scipy.special.erf, X),
    ("sigmoid", sigmoid, X),
    ("logsigmoid", lambda x: np.log(sigmoid(x)), X),
    ("relu", lambda x: np.maximum(x, 0), X),
    ("relu6", relu6, X * 2),
    ("leaky_relu", lambda x: np.where(x > 0, x, 0.01 * x), X),
    ("elu", lambda x: np.where(x > 0, x, np.expm1(x)), X),
    ("celu", lambda x: np.where(x > 0, x, np.expm1(x)), X),
    (
        "selu",
        lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
        X,
    ),
    ("silu", lambda x: x * sigmoid(x), X),
    ("swish", lambda x: x * sigmoid(x), X),
    ("gelu", lambda x: x * scipy.special.ndtr(x), X),
    ("quick_gelu", lambda x: x * sigmoid(1.702 * x), X),
    ("softplus", lambda x: np.log1p(np.exp(x)), X),
    ("softsign", lambda x: x / (1 + np.abs(x)), X),
    ("mish", lambda x: x * np.tanh(np.log1p(np.exp(x))), X),
    ("hardswish", lambda x: x * relu6(x + 3) / 6, X),
    ("hardsigmoid", lambda x: np.clip(x / 6 + 0.5, 0, 1), X),
    ("hardtanh", lambda x: np.clip(x, -1, 1), X),
]


@pytest.mark.parametrize(("name", "reference", "values"), CASES, ids=[case[0] for case in CASES])
def test_function_agrees_in_float32(
    name: str, reference: Callable[[Any], Any], values: np.ndarray
) -> None:
    expected = reference(values.astype(np.float64)).astype(np.float32)
    close(getattr(Tensor(values), name)(), expected, rtol=4e-6, atol=4e-7)


@pytest.mark.parametrize(("name", "reference", "values"), CASES, ids=[case[0] for case in CASES])
def test_function_agrees_in_float64(
    name: str, reference: Callable[[Any], Any], values: np.ndarray
) -> None:
    wide = values.astype(np.float64)
    close(getattr(Tensor(wide), name)(), reference(wide), rtol=2e-13, atol=1e-14)


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "sigmoid", "gelu", "erf", "softplus"])
def test_half_is_computed_in_float32_and_rounded_once(name: str) -> None:
    reference = next(case for case in CASES if case[0] == name)
    values = reference[2].astype(np.float16)
    result = getattr(Tensor(values), name)()
    assert result.dtype is dtypes.float16
    expected = reference[1](values.astype(np.float64))
    close(result, expected.astype(np.float16), rtol=1.1e-3, atol=1e-7)


def test_integers_become_floats() -> None:
    assert Tensor([1, 2]).exp().dtype is dtypes.float32
    close(Tensor([1, 4]).sqrt(), np.float32([1, 2]))


def test_gelu_by_tanh() -> None:
    inner = np.sqrt(2 / np.pi) * (X + 0.044715 * X.astype(np.float64) ** 3)
    close(Tensor(X).gelu("tanh"), (0.5 * X * (1 + np.tanh(inner))).astype(np.float32), rtol=1e-5)


@pytest.mark.parametrize(
    "name", ["tanh", "sigmoid", "erf", "atan", "relu", "gelu", "log1p", "elu", "softplus"]
)
def test_limits_and_nan(name: str) -> None:
    reference = {case[0]: case[1] for case in CASES}[name]
    values = np.float32([INF, NAN, 80, 0])
    expected = np.float32(
        [
            INF
            if name in ("relu", "gelu", "log1p", "elu", "softplus")
            else reference(np.float64(90)),
            NAN,
            0,
            0,
        ]
    )
    if name == "atan":
        expected[0] = math.pi / 2
    expected[2:] = reference(values[2:].astype(np.float64))
    close(getattr(Tensor(values), name)(), expected)


# exp and its kin overflow themselves.
GENTLE = [case[0] for case in CASES if case[2] is X and case[0][:3] not in ("exp", "sin", "cos")]


@pytest.mark.parametrize("name", GENTLE)
def test_derivative_is_finite_far_out(name: str) -> None:
    x = Tensor([-200.0, -90.0, 0.0, 90.0, 200.0])
    (gradient,) = getattr(x, name)().sum().gradient(x)
    assert np.isfinite(gradient.numpy()).all()


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 7, -1, -2, 0.5, -0.5, 1.5, 2.5, -0.3, 70])
def test_power_by_a_number(exponent: float) -> None:
    base = np.abs(numbers(6, low=0.5)) + np.float32(0.1)
    close(
        Tensor(base) ** exponent,
        (base.astype(np.float64) ** exponent).astype(np.float32),
        rtol=3e-5,
    )


def test_power_of_negative_and_zero_bases() -> None:
    base = np.float32([-2, -2, -2, 0, 0, 0, 2, -1, INF, 5])
    exponent = np.float32([2, 3, 0.5, 0, 2, -1, -2, 4, 2, 0])
    check(lambda x, y: x**y, np.power, base, exponent)


def test_power_of_integers_wraps_and_stays_integer() -> None:
    base = np.int32([3, -3, 2, 0, 0, 7, -1, 10])
    exponent = np.int32([4, 3, 10, 0, 5, 20, 65, 1])
    check(lambda x, y: x**y, np.power, base, exponent)
    check(lambda x: x**3, None, base)
    close(Tensor(np.int32([2, 1, -1])) ** Tensor(np.int32([-1, -5, -3])), np.int32([0, 1, -1]))


def test_number_to_the_power_of_a_tensor() -> None:
    check(lambda x: 2**x, lambda x: np.float32(2) ** x, numbers(5))
    check(lambda x: 3.0**x, lambda x: np.float32(3) ** x, numbers(5))
    check(lambda x: 3**x, lambda x: np.int32(3) ** x, np.int32([0, 1, 5]))


def test_logaddexp_does_not_overflow() -> None:
    check(
        lambda x, y: x.logaddexp(y),
        np.logaddexp,
        np.float32([100, -INF, 0, -200]),
        np.float32([100, -INF, 1, -190]),
    )


def test_logaddexp_of_infinities() -> None:
    check(
        lambda x, y: x.logaddexp(y),
        np.logaddexp,
        np.float32([INF, INF, -INF, 3, INF]),
        np.float32([1, INF, -INF, -INF, -INF]),
    )


def test_logaddexp_keeps_what_is_far_below_one() -> None:
    found = Tensor([-88.0, -50.0]).logaddexp(0.0).numpy()
    expected = np.log1p(np.exp(np.float64([-88, -50])))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
