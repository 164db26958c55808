"""What integers become where the default dtype is another one, however often a call came before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "times a number": lambda x: x * 2.5,
    "divided": lambda x: x / 3,
    "where": lambda x: torch.where(x > 1, 1.5, 0.0),
    "sqrt": torch.sqrt,
    "sin": torch.sin,
    "sigmoid": torch.sigmoid,
    "log1p": torch.log1p,
    "digamma": torch.digamma,
    "atan2": lambda x: torch.atan2(x, x),
}


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_integers_become_the_default_dtype(function: Callable[[Any], Any]) -> None:
    for kind in (torch.float32, torch.float64, torch.float16, torch.float32):
        torch.set_default_dtype(kind)
        for _ in range(4):
            assert function(torch.tensor([1, 2, 3])).dtype is kind


def test_functions_of_integers_have_the_digits_of_the_default_dtype() -> None:
    torch.set_default_dtype(torch.float64)
    array = np.array([3, 1_000_003, 123_456_789])
    np.testing.assert_allclose(torch.sqrt(torch.tensor(array)).numpy(), np.sqrt(array), 1e-15)
