"""Functions of complex numbers near their edges, against NumPy, and their gradients against the
derivative's formula.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch

GRID = np.array([1e-8, 1e-3, 0.5, 1.0, 3.0, 40.0])
Z = np.concatenate([
    (GRID[:, None] + 1j * GRID).ravel(), (-GRID[:, None] + 1j * GRID[::-1]).ravel(),
    (GRID[:, None] - 1j * GRID[1:]).ravel(),
    [1 + 1e-9j, -1 + 1e-9j, 1e-9 + 1j, 1e5 + 1j, -2e4 - 3j],
])  # fmt: skip


def _of_parts(z: Any, function: Callable[[Fraction, Fraction], complex]) -> Any:
    """A function by Taylor's series of exact fractions for small numbers, else NumPy's."""
    return np.array([
        function(Fraction(each.real), Fraction(each.imag)) if abs(each) < 0.1 else plain
        for each, plain in zip(z, (np.log1p if function is _log1p else np.expm1)(z), strict=True)
    ])  # fmt: skip


def _log1p(x: Fraction, y: Fraction) -> complex:
    return _summed(x, y, [Fraction((-1) ** (n + 1), n) for n in range(1, 20)])


def _expm1(x: Fraction, y: Fraction) -> complex:
    return _summed(x, y, [Fraction(1, math.factorial(n)) for n in range(1, 20)])


def _summed(x: Fraction, y: Fraction, coefficients: list[Fraction]) -> complex:
    """The sum of the coefficients times powers of x + iy."""
    total, power = (Fraction(0), Fraction(0)), (Fraction(1), Fraction(0))
    for each in coefficients:
        power = power[0] * x - power[1] * y, power[0] * y + power[1] * x
        total = total[0] + each * power[0], total[1] + each * power[1]
    return complex(float(total[0]), float(total[1]))


# Value and derivative.
FUNCTIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "acos": (np.arccos, lambda z: -1 / (np.sqrt(1 - z) * np.sqrt(1 + z))),
    "acosh": (np.arccosh, lambda z: 1 / (np.sqrt(z - 1) * np.sqrt(z + 1))),
    "asin": (np.arcsin, lambda z: 1 / (np.sqrt(1 - z) * np.sqrt(1 + z))),
    "asinh": (np.arcsinh, lambda z: 1 / (np.sqrt(1 - 1j * z) * np.sqrt(1 + 1j * z))),
    "atan": (np.arctan, lambda z: 1 / ((1 + 1j * z) * (1 - 1j * z))),
    "atanh": (np.arctanh, lambda z: 1 / ((1 - z) * (1 + z))),
    "expm1": (lambda z: _of_parts(z, _expm1), np.exp),
    "log": (np.log, lambda z: 1 / z),
    "log1p": (lambda z: _of_parts(z, _log1p), lambda z: 1 / (1 + z)),
    "sqrt": (np.sqrt, lambda z: 0.5 / np.sqrt(z)),
    "tan": (np.tan, lambda z: 1 / np.cos(z) ** 2),
    "tanh": (np.tanh, lambda z: 1 / np.cosh(z) ** 2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("dtype", "bound"), [(np.complex128, 2e-15), (np.complex64, 1e-6)])
def test_digits_are_kept(name: str, dtype: Any, bound: float) -> None:
    z = Z.astype(dtype)
    with np.errstate(all="ignore"):
        expected = FUNCTIONS[name][0](z.astype(np.complex128))
    is_fit = np.isfinite(expected) & (np.abs(expected) < (1e30 if dtype is np.complex64 else 1e300))
    found = getattr(torch, name)(torch.tensor(z)).numpy()[is_fit]
    error = np.abs(found - expected[is_fit]) / np.abs(expected[is_fit])
    assert error.max() < bound


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_at_real_and_imaginary_numbers(name: str) -> None:
    z = np.array([0.5, 0.25j, 2j, 0.3 + 0.4j, -0.3 - 0.4j, 3 - 1j, 1e-3 + 0j])
    x = torch.tensor(z, requires_grad=True)
    y = getattr(torch, name)(x)
    (y.real * 1.25 + y.imag * 0.5).sum().backward()
    assert x.grad is not None
    # Of a L = Re(conj(w) f(z)) it is w conj(f').
    expected = (1.25 + 0.5j) * np.conj(FUNCTIONS[name][1](z))
    is_fit = np.isfinite(expected)
    np.testing.assert_allclose(x.grad.numpy()[is_fit], expected[is_fit], rtol=1e-9, atol=1e-12)


def test_real_tensors_meet_complex_ones() -> None:
    a, z = np.array([1, 2]), np.array([1 + 2j, 2 + 0j])
    x, w = torch.tensor(a), torch.tensor(z)
    for name, expected in (
        ("eq", a == z), ("ne", a != z), ("pow", a**z), ("true_divide", a / z), ("sub", a - z),
    ):  # fmt: skip
        for found in (getattr(x, name)(w), getattr(torch, name)(x, w)):
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(x.add(w, alpha=3).numpy(), a + 3 * z, rtol=1e-6)
    np.testing.assert_allclose(torch.sub(x, w, alpha=2).numpy(), a - 2 * z, rtol=1e-6)


def test_the_second_derivative_of_a_logarithm_of_equal_components() -> None:
    """The real part is log(x^2 + y^2) / 2: by x twice, (y^2 - x^2) / (x^2 + y^2)^2."""
    values = np.array([[1.0, 1.0], [-1.0, 1.0], [0.5, -0.5], [1.0, 0.5]])
    parts = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    real = torch.view_as_complex(parts).log().real
    (first,) = torch.autograd.grad(real.sum(), parts, create_graph=True)
    (found,) = torch.autograd.grad(first[:, 0].sum(), parts)
    x, y = values.T
    size = (x * x + y * y) ** 2
    wanted = np.stack([(y * y - x * x) / size, -2 * x * y / size], 1)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-9, atol=1e-12)
