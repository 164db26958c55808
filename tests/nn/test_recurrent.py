"""Long sequences through recurrent layers are a loop: the same values and gradients, one
compilation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.fresh import forget
from tilegrad import Context, GlobalCounters, Tensor, nn
from tilegrad.base.trace import counters
from tilegrad.engine.plans.plan import Plan
from tilegrad.engine.run.run import run_plan
from tilegrad.ir.op import Ops
from tilegrad.nn import recurrent

Array = npt.NDArray[Any]
LONG = 11


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def lstm(layer: nn.LSTM, x: Array, suffix: str = "_l0") -> tuple[Array, Array, Array]:
    """All states, and the last pair, in float64."""
    w_ih, w_hh, b_ih, b_hh = (
        getattr(layer, f"{name}{suffix}").numpy().astype(np.float64)
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    h = c = np.zeros((x.shape[1], layer.hidden_size))
    states = []
    for row in x.astype(np.float64):
        i, f, g, o = np.split(row @ w_ih.T + b_ih + h @ w_hh.T + b_hh, 4, -1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        states.append(h)
    return np.stack(states), h, c


def test_a_long_sequence_against_numpy() -> None:
    """Both directions; the backward one reads the rows from the last."""
    layer = nn.LSTM(3, 4, bidirectional=True)
    x = np.random.default_rng(0).normal(size=(LONG, 2, 3)).astype(np.float32)
    y, (h, c) = layer(Tensor(x))
    assert any(node.op is Ops.LOOP for node in y.uop.toposort())
    ahead, back = lstm(layer, x), lstm(layer, x[::-1], "_l0_reverse")
    wanted = np.concatenate([ahead[0], back[0][::-1]], -1)
    np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(h.numpy(), np.stack([ahead[1], back[1]]), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(c.numpy(), np.stack([ahead[2], back[2]]), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", pytest.param("RNN", marks=pytest.mark.nightly)])
def test_a_loop_gives_what_written_out_steps_give(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values, and the gradients of every weight, of the input, and of the first state."""
    Tensor.manual_seed(1)
    layer = getattr(nn, kind)(3, 4, batch_first=True)
    x = Tensor.randn(2, 3, 3).realize()
    h = Tensor.randn(1, 2, 4).realize()
    state: Any = (h, h * 0.5) if kind == "LSTM" else h
    weights = nn.state.get_parameters(layer)
    found = []
    for bound in (3, 2):
        monkeypatch.setattr(recurrent, "_MOST_UNROLLED", bound)
        # Calls of these shapes, of other tests too, know how they were computed.
        forget()
        y, last = layer(x, state)
        last = last[1] if kind == "LSTM" else last
        assert any(node.op is Ops.LOOP for node in y.uop.toposort()) == (bound == 2)
        loss = (y * y).sum() + last.sum()
        gradients = loss.gradient(*weights, x, h)
        Tensor.realize(loss, y, *gradients)
        found.append([part.numpy() for part in (loss, y, *gradients)])
    for written, looped in zip(*found, strict=True):
        np.testing.assert_allclose(looped, written, rtol=2e-4, atol=1e-5)


def test_compilation_does_not_grow_with_the_sequence() -> None:
    layer = nn.RNN(2, 3)
    weights = nn.state.get_parameters(layer)
    for weight in weights:
        weight.realize()
    counts = []
    with Context(DISABLE_COMPILER_CACHE=1):
        for steps in (20, 48, 192, 77):
            x = Tensor.ones(steps, 1, 2).contiguous().realize()
            before = counters.compiles
            y, _ = layer(x)
            Tensor.realize(*y.sum().gradient(*weights))
            counts.append(counters.compiles - before)
    # The second or the third compiles what all others share.
    assert max(counts[1:3]) <= counts[0]
    assert not counts[3]


def test_time_and_memory_are_linear_in_the_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations, bytes moved, launches and the peak of a training step: from 48 to 96 steps twice
    as much more as from 24 to 48.
    """
    layer = nn.LSTM(2, 3)
    weights = nn.state.get_parameters(layer)
    for weight in weights:
        weight.realize()
    peaks: list[int] = []

    def watched(plan: Plan, *rest: Any) -> Any:
        peaks.append(plan.peak_bytes)
        return run_plan(plan, *rest)

    monkeypatch.setattr("tilegrad.engine.realize.realize.run_plan", watched)
    found = []
    for steps in (24, 48, 96):
        x = Tensor.ones(steps, 2, 2).contiguous().realize()
        y, _ = layer(x)
        gradients = y.sum().gradient(*weights)
        GlobalCounters.reset()
        peaks.clear()
        # A plan for all lengths says what the longest takes.
        with Context(SIZES=0):
            Tensor.realize(y, *gradients)
        work = GlobalCounters
        found.append([work.kernel_count, work.global_ops, work.global_mem, max(peaks)])
    few, some, many = np.array(found)
    assert (many - some == 2 * (some - few)).all(), found
    # What a step keeps: the rows of the gates, forward and back, y, two carries and their gradient.
    assert (many - some)[3] <= 48 * 2 * 4 * (2 * 12 + 6 * 3)
