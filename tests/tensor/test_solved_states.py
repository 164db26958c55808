"""States of a loop that are slices of what one kernel wrote, as solutions of equations are, while
the loop reads a number made of them: each step stands on memory, and not on all steps before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.engine.test_price import in_a_process
from tilegrad import Context, Tensor
from tilegrad.base.trace import counters

_random = np.random.default_rng(3)
A = (np.eye(4) + 0.1 * _random.normal(size=(4, 4))).astype(np.float32)
_STEPS, _SETTLED = 40, 20


def plans(ours: Callable[[Any, Any], Any], numpys: Callable[[Any, Any], Any]) -> list[int]:
    """The plans after half of the steps and after all."""
    a, state, expected, found = Tensor(A), Tensor.eye(4), np.eye(4), []
    with Context(TEMPLATES=1, SEGMENTS=1, SIZES=1):
        for step in range(1, _STEPS + 1):
            state, expected = ours(state, a), numpys(expected, A)
            np.testing.assert_allclose(state.sum().item(), expected.sum(), rtol=1e-4)
            if step in (_SETTLED, _STEPS):
                found.append(counters.schedules)
        np.testing.assert_allclose(state.tolist(), expected, rtol=1e-4, atol=1e-5)
    return found


def of_inverses() -> list[int]:
    return plans(lambda p, a: (p @ a + a).inv(), lambda p, a: np.linalg.inv(p @ a + a))


def of_solutions() -> list[int]:
    return plans(lambda p, a: (p + a).solve(a), lambda p, a: np.linalg.solve(p + a, a))


def of_transposed_solutions() -> list[int]:
    return plans(lambda p, a: (p + a).solve(a).T, lambda p, a: np.linalg.solve(p + a, a).T)


@pytest.mark.parametrize("loop", [of_inverses, of_solutions, of_transposed_solutions])
def test_a_step_stands_on_the_memory_of_the_one_before(loop: Callable[[], list[int]]) -> None:
    settled, after = in_a_process(loop)
    assert after == settled
