"""Captured functions that write to an argument and to another tensor of its value."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilegrad import Tensor, jit


@pytest.mark.parametrize("makes", ["list", "memory", "graph"])
@pytest.mark.parametrize(
    "equal",
    [lambda x: x.roll(0, 0), Tensor, lambda x: x.clone()],
    ids=["roll", "Tensor", "clone"],
)
def test_each_keeps_its_own_value(equal: Callable[[Tensor], Tensor], makes: str) -> None:
    @jit
    def step(x: Tensor) -> Tensor:
        x[1:3] = 0
        other = equal(x)
        other[3:4] = -1
        return other

    for count in range(5):
        given = np.full(6, 10.0 - count, np.float32)
        x = Tensor(given.tolist())
        if makes == "memory":
            x.realize()
        elif makes == "graph":
            x = x + 1 - 1
        found = step(x)
        given[1:3] = 0
        np.testing.assert_array_equal(x.numpy(), given)
        given[3:4] = -1
        np.testing.assert_array_equal(found.numpy(), given)
