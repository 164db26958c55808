"""Arguments at the edge of what a function takes: one row, weights of another dtype, None for a
default, operands that stretch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch

ROWS = np.array([[-8, 6, 3], [9, 0, 1]])
OFTEN, WEIGHTS = np.array([7, 4, 1]), np.array([0.25, 0.375, 2.0])


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.float16, torch.float64])
@pytest.mark.parametrize("often", [None, OFTEN])
@pytest.mark.parametrize("rows", [ROWS, ROWS[:1], ROWS[0]])
def test_weights_of_a_covariance_are_not_rounded_to_the_dtype_of_its_rows(
    rows: Any, often: Any, dtype: Any
) -> None:
    counts = None if often is None else torch.tensor(often)
    x, weights = torch.tensor(rows, dtype=dtype), torch.tensor(WEIGHTS, dtype=torch.float32)
    found = torch.cov(x, fweights=counts, aweights=weights)
    assert found.dtype == (torch.float64 if dtype is torch.float64 else torch.float32)
    expected = np.cov(rows, fweights=often, aweights=WEIGHTS)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)


def test_one_row_has_a_variance_and_no_matrix_of_them() -> None:
    x = torch.tensor(ROWS[:1], dtype=torch.float32)
    for found in (x.cov(), x.corrcoef(), torch.cov(x, fweights=torch.tensor(OFTEN))):
        assert found.shape == ()
    assert x.corrcoef().item() == 1
    np.testing.assert_allclose(x.cov().numpy(), np.cov(ROWS[:1]), rtol=1e-6)


def test_parts_of_complex_numbers_stretch() -> None:
    real, imag = np.arange(3.0).reshape(3, 1), np.array([1.0, -2.0])
    found = torch.complex(torch.tensor(real), torch.tensor(imag))
    np.testing.assert_array_equal(found.numpy(), real + 1j * imag)
    found = torch.polar(torch.tensor(real), torch.tensor(imag))
    np.testing.assert_allclose(found.numpy(), real * np.exp(1j * imag), rtol=1e-12)


def test_distances_take_a_mode_in_its_place() -> None:
    x, y = torch.ones(1, 2), torch.zeros(3, 2)
    found = torch.cdist(x, y, 1.0, "use_mm_for_euclid_dist_if_necessary")
    assert found.tolist() == x.cdist(x2=y, p=1, compute_mode="donot").tolist() == [[2.0] * 3]


def test_the_spacing_of_a_gradient_may_be_none() -> None:
    values = np.array([1.0, 4.0, 9.0])
    (found,) = torch.gradient(torch.tensor(values), spacing=None, dim=None)
    np.testing.assert_array_equal(found.numpy(), np.gradient(values))


@pytest.mark.parametrize("unbiased", [True, False])
def test_a_mean_beside_a_variance_has_its_axes(unbiased: bool) -> None:
    x, count = np.arange(6.0).reshape(2, 3) ** 2, int(unbiased)
    for function, expected in ((torch.var_mean, np.var), (torch.std_mean, np.std)):
        spread, mean = function(torch.tensor(x), unbiased)
        np.testing.assert_allclose(spread.numpy(), expected(x, ddof=count))
        np.testing.assert_allclose(mean.numpy(), x.mean())
        spread, mean = function(torch.tensor(x), 1, unbiased, True)
        np.testing.assert_allclose(spread.numpy(), expected(x, 1, ddof=count, keepdims=True))
        np.testing.assert_allclose(mean.numpy(), x.mean(1, keepdims=True))
