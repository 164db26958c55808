"""Constants that are computed on the host are NumPy's, or left to a kernel."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilegrad import Tensor
from tilegrad.tensor.storage.host_constants import constant_elements

_INT = np.int32
CONSTANTS: list[tuple[Callable[[], Tensor], np.ndarray]] = [
    (lambda: Tensor.arange(7), np.arange(7, dtype=_INT)),
    (lambda: Tensor.arange(3, 11), np.arange(3, 11, dtype=_INT)),
    (lambda: Tensor.arange(9, 0, -2), np.arange(9, 0, -2, dtype=_INT)),
    (lambda: Tensor.arange(5).float(), np.arange(5, dtype=np.float32)),
    (lambda: Tensor.arange(6).reshape(2, 3).T, np.arange(6, dtype=_INT).reshape(2, 3).T),
    (lambda: Tensor.ones(4, 4).tril(), np.tril(np.ones((4, 4), np.float32))),
    (lambda: Tensor.ones(3, 5).triu(1), np.triu(np.ones((3, 5), np.float32), 1)),
    (lambda: Tensor.eye(3), np.eye(3, dtype=np.float32)),
    (lambda: Tensor.ones(4, 4).tril() == 0, np.tril(np.ones((4, 4))) == 0),
    (lambda: Tensor.full((2, 2), float("-inf")).triu(1), np.array([[0, -np.inf], [0, 0]], "f4")),
    (lambda: Tensor.arange(4) * 3 - 5, np.arange(4, dtype=_INT) * 3 - 5),
    (lambda: (Tensor.arange(9) - 4) // 3, (np.arange(9, dtype=_INT) - 4) // 3),
    (lambda: (Tensor.arange(9) - 4) % 3, (np.arange(9, dtype=_INT) - 4) % 3),
    (lambda: Tensor.arange(4).cat(Tensor.arange(2)), np.array([0, 1, 2, 3, 0, 1], _INT)),
    (lambda: Tensor.arange(3).sum(0, keepdim=True).expand(4), np.array([3] * 4, np.int64)),
    (lambda: (Tensor.arange(6).reshape(2, 3) * 2).max(1), np.array([4, 10], _INT)),
    (lambda: (Tensor.arange(6).reshape(2, 3) == 4).any(1), np.array([False, True])),
    (lambda: Tensor.arange(5).cumsum(0), np.arange(5).cumsum()),
    (lambda: (Tensor.arange(6) < 3) & (Tensor.arange(6) != 1),
     (np.arange(6) < 3) & (np.arange(6) != 1)),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(CONSTANTS)))
def test_elements(number: int) -> None:
    make, wanted = CONSTANTS[number]
    made = make()
    assert made.uop.is_constant
    found = constant_elements(made.uop)
    assert found is not None
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Tensor.arange(5).float() * 0.1,
        lambda: Tensor.arange(5).float().exp(),
        lambda: Tensor.arange(5).half(),
        lambda: Tensor.arange(2000),
    ],
)
def test_what_a_kernel_computes(make: Callable[[], Tensor]) -> None:
    assert constant_elements(make().uop) is None
