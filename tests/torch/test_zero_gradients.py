"""Gradients that are 0, and not missing; and at the kinks of a rectifier."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch

VALUES = [-np.inf, -2.5, -0.0, 0.0, 0.5, 3.0, np.inf, np.nan]


@pytest.mark.parametrize(
    "function",
    [torch.sign, torch.floor, torch.ceil, torch.round, torch.trunc, lambda x: x**0],
    ids=["sign", "floor", "ceil", "round", "trunc", "power of 0"],
)
def test_flat_functions(function: Callable[[Any], Any]) -> None:
    x = torch.tensor(VALUES, requires_grad=True)
    function(x).sum().backward()
    assert x.grad.tolist() == [0.0] * len(VALUES)


def test_a_polynomial_whose_first_power_is_zero() -> None:
    x = torch.tensor([2.0, -3.0], requires_grad=True)
    sum((x**k for k in range(4)), torch.zeros(2)).sum().backward()
    assert x.grad.tolist() == [1 + 2 * v + 3 * v * v for v in (2.0, -3.0)]


def test_a_rectifier_with_a_trained_slope_has_that_slope_at_zero() -> None:
    x = torch.tensor(VALUES[1:-1], requires_grad=True)
    slope = torch.tensor([0.25], requires_grad=True)
    torch.nn.functional.prelu(x, slope).sum().backward()
    assert x.grad.tolist() == [0.25, 0.25, 0.25, 1.0, 1.0, 1.0]
    assert slope.grad.tolist() == [-2.5]
    wide = torch.tensor([[-1.0, 0.0], [0.0, 2.0]], requires_grad=True)
    torch.nn.functional.prelu(wide, torch.tensor([0.5, 0.25])).sum().backward()
    assert wide.grad.tolist() == [[0.5, 0.25], [0.5, 1.0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_where_there_is_no_value_there_is_no_gradient(dtype: Any) -> None:
    """NaN, which a gradient of 0 would hide."""
    x = torch.tensor([np.nan, 2.0, -np.inf, 0.5, -0.25, 0.0], dtype=dtype, requires_grad=True)
    torch.erfinv(x).sum().backward()
    # Half of the root of pi, times e to the square of the value: SciPy's erfinv.
    inverse = np.array([0.4769362762044699, -0.22531205501217808, 0.0])
    slopes = np.sqrt(np.pi) / 2 * np.exp(inverse**2)
    assert np.isnan(x.grad.numpy()[:3]).all()
    np.testing.assert_allclose(x.grad.numpy()[3:], slopes, rtol=1e-5)
    a = torch.tensor([np.nan, 1.0, 3.0, 0.0, -3.0], dtype=dtype, requires_grad=True)
    b = torch.tensor([1.0, np.nan, 4.0, 0.0, 0.0], dtype=dtype, requires_grad=True)
    torch.hypot(a, b).sum().backward()
    assert np.isnan(a.grad.numpy()[0]) and np.isnan(b.grad.numpy()[1])
    np.testing.assert_allclose(a.grad.numpy()[2:], [0.6, 0.0, -1.0], rtol=1e-6)
    np.testing.assert_allclose(b.grad.numpy()[2:], [0.8, 0.0, 0.0], rtol=1e-6)
