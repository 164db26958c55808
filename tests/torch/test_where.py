"""`torch.where` and the method: which operand is the condition, and the dtype of what is chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch

RANDOM = np.random.default_rng(3)
X, M, Y = (RANDOM.random((3, 4)) > 0.5 for _ in range(3))


def test_of_two_conditions_a_program_chooses_by_the_second() -> None:
    x, m, y = torch.tensor(X), torch.tensor(M), torch.tensor(Y)
    for found, expected in (
        (x.where(m, y), np.where(M, X, Y)),
        (x.where(m, True), np.where(M, X, True)),
        (x.where(condition=m, other=y), np.where(M, X, Y)),
        (torch.where(m, x, y), np.where(M, X, Y)),
        (x.where(m, 2), np.where(M, X, 2)),
        (torch.where(m, 2.5, x), np.where(M, 2.5, X)),
    ):
        np.testing.assert_array_equal(found.numpy(), expected)


def test_methods_of_conditions_choose_by_their_mask() -> None:
    x, m, y = torch.tensor(X), torch.tensor(M), torch.tensor(Y)
    written = x.clone()
    written[m] = y[m]
    np.testing.assert_array_equal(written.numpy(), np.where(M, Y, X))
    np.testing.assert_array_equal(x.masked_fill(m, torch.tensor(True)).numpy(), X | M)
    expected = X.copy()
    expected[M] = Y.ravel()[: M.sum()]
    np.testing.assert_array_equal(x.masked_scatter(m, y).numpy(), expected)
    expected = X.copy()
    expected[1] = Y[0]
    np.testing.assert_array_equal(x.select_scatter(y[0], 0, 1).numpy(), expected)


@pytest.mark.parametrize(
    ("dtype", "number", "expected"),
    [
        (torch.int32, -1, torch.int32),
        (torch.int8, 3, torch.int8),
        (torch.float16, 2.0, torch.float16),
        (torch.bfloat16, 2, torch.bfloat16),
        (torch.int32, 2.5, torch.float32),
        (torch.bool, 2, torch.int64),
        (torch.float64, True, torch.float64),
    ],
)
@pytest.mark.parametrize("shape", [(), (2,)])
def test_a_number_takes_the_dtype_of_the_tensor(
    dtype: Any, number: float, expected: Any, shape: tuple[int, ...]
) -> None:
    given, condition = torch.ones(shape, dtype=dtype), torch.tensor(False)
    for found in (torch.where(condition, given, number), torch.where(~condition, number, given)):
        assert found.dtype is expected
        np.testing.assert_array_equal(found.float().numpy(), np.full(shape, number, "f4"))
