"""States that a loop takes from step to step while it reads something else: a step costs what the
one before did, whether or not the state is ever read.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
from tests.engine.test_price import in_a_process
from tests.torch.nodes_made import noted_expansions
from tilegrad import Context
from tilegrad.base.trace import counters
from tilegrad.ir.uop import node_count, toposort
from tilegrad.tensor.handle import waiting

_STEPS, _SETTLED = 1200, 400
# What a step reads, what NumPy says of it; then the state, and NumPy's.
Reads = Iterator[tuple[Any, Any]]


def _drawn(*shape: int) -> np.ndarray[Any, Any]:
    return _random.normal(size=shape).astype(np.float32)


_random = np.random.default_rng(5)
W, V, U = _drawn(8, 8) / 4, _drawn(16, 4) / 2, _drawn(16, 4) / 2


def average() -> Reads:
    """A running average of what is read."""
    mean, expected = torch.zeros(8), np.zeros(8)
    for _ in range(_STEPS):
        x = _drawn(8)
        given = torch.tensor(x)
        mean = mean * 0.9 + given * 0.1
        expected = expected * 0.9 + x * 0.1
        yield (given * given).sum().item(), (x * x).sum()
    yield mean.tolist(), expected


def average_in_place() -> Reads:
    """A larger one, in place."""
    mean, expected = torch.zeros(64, 8), np.zeros((64, 8))
    for _ in range(_STEPS):
        x = _drawn(64, 8)
        given = torch.tensor(x)
        mean.mul_(0.9).add_(given, alpha=0.1)
        expected = expected * 0.9 + x * 0.1
        yield given.amax().item(), x.max()
    yield mean.tolist(), expected


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def recurrent() -> Reads:
    """Two states, computed from one another; a step of fifty reads one."""
    cell = torch.nn.LSTMCell(4, 4, bias=False)
    with torch.no_grad():
        cell.weight_ih.copy_(torch.tensor(V))
        cell.weight_hh.copy_(torch.tensor(U))
        h, c = torch.zeros(2, 4), torch.zeros(2, 4)
        below, inside = np.zeros((2, 4)), np.zeros((2, 4))
        for step in range(_STEPS):
            x = _drawn(2, 4)
            given = torch.tensor(x)
            h, c = cell(given, (h, c))
            i, f, g, o = np.split(x @ V.T + below @ U.T, 4, 1)
            inside = _sigmoid(f) * inside + _sigmoid(i) * np.tanh(g)
            below = _sigmoid(o) * np.tanh(inside)
            if step % 50 == 7:
                yield (h @ torch.tensor(U.T)).sum().item(), (below @ U.T).sum()
            else:
                yield given.sum().item(), x.sum()
        yield [h.tolist(), c.tolist()], [below, inside]


def averaged_weights() -> Reads:
    """The average of the weights of a model in training, whose loss is read."""
    model = torch.nn.Linear(8, 8, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with torch.no_grad():
        model.weight.copy_(torch.tensor(W))
    mean, weights, expected = torch.tensor(W), W.astype(np.float64), W.astype(np.float64)
    for _ in range(_STEPS):
        x = _drawn(4, 8)
        loss = ((model(torch.tensor(x)) - torch.tensor(x)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            mean = mean * 0.99 + model.weight * 0.01
        difference = x @ weights.T - x
        weights = weights - 0.05 * (2 / 32 * difference.T @ x)
        expected = expected * 0.99 + weights * 0.01
        yield loss.item(), (difference**2).mean()
    yield mean.tolist(), expected


def best_rows() -> Reads:
    """The best rows so far, picked by `topk` and `gather`."""
    rows, best = _drawn(4, 8), np.zeros((8, 8), np.float32)
    made, kept, weights = torch.tensor(rows), torch.tensor(best), torch.tensor(2 * W)
    with torch.no_grad():
        for step in range(_STEPS):
            made = torch.tanh(made @ weights + 1 / (step % 7 + 2))
            both = torch.cat((kept, made))
            kept = both.gather(0, both.sum(1).topk(8)[1][:, None].expand(-1, 8))
            rows = np.tanh(rows @ (2 * W) + 1 / (step % 7 + 2))
            joined = np.concatenate((best, rows))
            best = joined[np.argsort(-joined.sum(1), kind="stable")[:8]]
            yield made.sum().item(), rows.sum()
    yield kept.tolist(), best


def counted(loop: Callable[[], Reads]) -> list[list[int]]:
    """The plans, how often nodes were made, and the calls and nodes alive, after some steps and
    after all.
    """
    made = noted_expansions()
    found: list[list[int]] = []
    with Context(TEMPLATES=1, SEGMENTS=1, SIZES=1):
        for step, (value, expected) in enumerate(loop(), 1):
            np.testing.assert_allclose(value, expected, rtol=1e-3, atol=1e-3)
            if step in (_SETTLED, _STEPS):
                calls = [each for each in gc.get_objects() if each.__class__ is waiting.Call]
                found.append([counters.schedules, len(made), len(calls), node_count()])
    return found


def of_average() -> list[list[int]]:
    return counted(average)


def of_average_in_place() -> list[list[int]]:
    return counted(average_in_place)


def of_recurrent() -> list[list[int]]:
    return counted(recurrent)


def of_averaged_weights() -> list[list[int]]:
    return counted(averaged_weights)


def of_best_rows() -> list[list[int]]:
    return counted(best_rows)


@pytest.mark.parametrize(
    "loop", [of_average, of_average_in_place, of_recurrent, of_averaged_weights, of_best_rows]
)
def test_a_state_that_no_read_needs_makes_no_step_longer(
    loop: Callable[[], list[list[int]]],
) -> None:
    settled, after = in_a_process(loop)
    assert after[:2] == settled[:2], "plans are made, or nodes"
    # Two calls, or a node, more in each of the 800 steps would be as many.
    assert after[2] < settled[2] + 1500
    assert after[3] < settled[3] + 800


@pytest.mark.parametrize("by_nodes", [2, 3, 4])
def test_segments_and_runs_of_nodes_in_turn_give_their_graphs_back(by_nodes: int) -> None:
    """As where a particle filter draws anew in some steps, by a method that makes nodes."""
    start = _drawn(200, 40)
    state, expected, change = torch.tensor(start), start.astype(np.float64), torch.tensor(start)
    most = 0
    for step in range(40):
        with Context(TEMPLATES=1, SEGMENTS=int(step % by_nodes > 0)):
            state = state * 0.9 + change
            expected = expected * 0.9 + start
            total = (state * state).sum().item()
        np.testing.assert_allclose(total, (expected**2).sum(), rtol=1e-4)
        if step > 30:
            most = max(most, len(toposort([state.uop])))
    # Each step is two nodes; graphs of three or four steps are held.
    assert most < 20


def of_lists() -> list[int]:
    """The results that wait at the end of a training loop that keeps some of each step in lists."""
    r = np.random.default_rng(3)
    start = r.normal(size=(6, 3)).astype(np.float32)
    w, expected = torch.nn.Parameter(torch.tensor(start)), start.astype(np.float64)
    optimizer = torch.optim.SGD([w], lr=0.05)
    losses, largest, shares = [], [], []
    wanted: list[tuple[Any, ...]] = []
    with Context(TEMPLATES=1, SEGMENTS=1, SIZES=1):
        for step in range(120):
            x = r.normal(size=(5, 6)).astype(np.float32)
            made = torch.tensor(x) @ w
            optimizer.zero_grad()
            loss = (made * made).mean()
            loss.backward()
            losses.append(loss.detach())
            largest.append(w.grad.abs().max())
            shares.append((made > 0).float().mean())
            optimizer.step()
            if step % 10 == 9:
                loss.item()
            product = x @ expected
            gradient = x.T @ product * (2 / product.size)
            wanted.append((np.mean(product**2), np.abs(gradient).max(), np.mean(product > 0)))
            expected = expected - 0.05 * gradient
        waiting_now = len(waiting.this_thread.pool.waiting)
    for kept, values in zip((losses, largest, shares), zip(*wanted, strict=True), strict=True):
        np.testing.assert_allclose(torch.stack(kept).numpy(), values, rtol=1e-3, atol=1e-6)
    return [waiting_now]


def test_lists_of_results_do_not_wait_for_the_end_of_a_loop() -> None:
    (waiting_now,) = in_a_process(of_lists)
    # 360 results are kept; each that waits has the memory of its step, and each read walks it.
    assert waiting_now < 40
