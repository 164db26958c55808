"""Graphs of several tensors, each of a length of its own that changes from step to step: few plans
serve all of them, also where two lengths are equal by chance, so that constants of these are one
node of the graph.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.tensor.helpers import close, numbers
from tilegrad import Context, Tensor
from tilegrad.base.trace import counters

_STEPS = 40


@pytest.fixture(autouse=True)
def _nothing_on_disk(nothing_known: None) -> Iterator[None]:
    """No graph has come before, so that plans can be counted."""
    with Context(DISABLE_COMPILER_CACHE=1):
        yield


def _lengths(count: int, seed: int) -> list[list[int]]:
    """For each step as many lengths, in every third step two of them equal."""
    draw = np.random.default_rng(seed)
    steps = [[int(n) for n in draw.choice(np.arange(4, 60), count, False)] for _ in range(_STEPS)]
    for step in steps[3::3]:
        one, two = draw.choice(count, 2, replace=False)
        step[two] = step[one]
    return steps


@pytest.mark.parametrize("count", [2, 4, 6])
def test_few_plans_serve_several_lengths(count: int) -> None:
    before = counters.schedules
    for seed, lengths in enumerate(_lengths(count, seed=count)):
        values = [numbers(n, seed=seed + at) * 20 for at, n in enumerate(lengths)]
        total = Tensor(0.0)
        expected = 0.0
        for n, value in zip(lengths, values):
            total = total + (Tensor(value) - Tensor.arange(n)).relu().sum()
            expected += np.maximum(value.astype(np.float64) - np.arange(n), 0).sum()
        close(total, np.float32(expected), 1e-4, 1e-3)
    # A plan for the sizes of the first step, one for some of its lengths, and one for all; beside
    # them the copies of what the host gives, which are one plan for a length, then for all.
    assert counters.schedules - before <= 6


def test_experts_of_tokens_that_masks_pick() -> None:
    """Each of five experts has the rows of a mask, as many as it happens to be."""
    draw = np.random.default_rng(1)
    weights = draw.normal(size=(5, 8, 8)).astype(np.float32) * 0.3
    made = Tensor(weights, requires_grad=True)
    before = 0
    for step in range(_STEPS):
        if step == _STEPS // 2:
            before = counters.schedules
        x = draw.normal(size=(64, 8)).astype(np.float32)
        expert = np.concatenate([np.arange(5), draw.integers(0, 5, 59)])
        picked = Tensor(expert.astype(np.int32))
        loss = Tensor(0.0)
        gradient = np.zeros((5, 8, 8))
        expected = 0.0
        for number in range(5):
            rows = x[expert == number].astype(np.float64)
            product = rows @ weights[number]
            expected += (np.maximum(product, 0) ** 2).mean()
            gradient[number] = rows.T @ (2 * np.maximum(product, 0)) / product.size
            loss = loss + ((Tensor(x)[picked == number] @ made[number]).relu() ** 2).mean()
        made.grad = None
        loss.backward()
        close(loss, np.float32(expected), 1e-4, 1e-4)
        assert made.grad is not None
        close(made.grad, gradient.astype(np.float32), 1e-3, 1e-4)
    # In the second half hardly anything is planned.
    assert counters.schedules - before <= 5
