"""State that begins as a constant, of which something else is read at each step: it is computed as
any other state, and each step's graph is one step long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
from tilegrad import Context, Tensor
from tilegrad.base.trace import counters
from tilegrad.ir.uop import toposort

State = tuple[Any, ...]


def oscillator(ones: Any, zeros: Any) -> tuple[State, Callable[[State], State]]:
    def step(state: State) -> State:
        x, v = state
        v = v - 0.1 * x
        return x + 0.1 * v, v

    return (zeros, ones), step


def affine(ones: Any, zeros: Any) -> tuple[State, Callable[[State], State]]:
    return (zeros,), lambda state: (state[0] * 0.5 + ones,)


def products(ones: Any, zeros: Any) -> tuple[State, Callable[[State], State]]:
    return (ones,), lambda state: (state[0] @ (ones * 0.25) + zeros,)


PROGRAMS = {"oscillator": oscillator, "affine": affine, "products": products}
MADE: dict[str, Callable[[], tuple[Any, Any]]] = {
    "tilegrad": lambda: (Tensor.ones(4, 4), Tensor.zeros(4, 4)),
    "torch": lambda: (torch.ones(4, 4), torch.zeros(4, 4)),
    "torch, in memory": lambda: (torch.ones(4, 4).clone(), torch.zeros(4, 4).clone()),
}


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("program", PROGRAMS)
def test_later_steps_plan_nothing_and_are_one_step_long(program: str, made: str) -> None:
    with Context(TEMPLATES=1, SEGMENTS=1, SIZES=1):
        state, step = PROGRAMS[program](*MADE[made]())
        wanted, numpy_step = PROGRAMS[program](np.ones((4, 4)), np.zeros((4, 4)))
        plans: list[int] = []
        for _ in range(60):
            state, wanted = step(state), numpy_step(wanted)
            read = sum((each * each).sum() for each in state).item()
            assert read == pytest.approx(sum((each**2).sum() for each in wanted), rel=1e-4)
            plans.append(counters.schedules)
        assert plans[-1] == plans[39]
        for each, expected in zip(state, wanted, strict=True):
            assert len(toposort([each.uop])) < 64
            np.testing.assert_allclose(each.numpy(), expected, rtol=1e-4, atol=1e-6)


def test_constants_of_few_operations_stay_constants() -> None:
    x = Tensor.arange(6).reshape(2, 3) * 2.0 + 1
    assert (x * 3).sum().item() == 108.0
    assert x.uop.is_constant
