"""Recurrent networks by hand, a Python loop over time steps: values and gradients, and that a known
step makes no nodes, however many steps of time it has.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tilegrad import Context, torch
from tilegrad.ir.graph_templates import Template
from tilegrad.tensor.calls import gradients
from tilegrad.tensor.handle.waiting import Pool

HIDDEN, INPUTS, BATCH = 6, 4, 3
GATES = {"rnn": 1, "lstm": 4, "gru": 3}


def step(torch: ModuleType, cell: str, x: Any, h: Any, s: Any, w: Any, u: Any) -> tuple[Any, Any]:
    if cell == "rnn":
        return torch.tanh(x @ w + h @ u), s
    if cell == "lstm":
        i, f, g, o = (x @ w + h @ u).chunk(4, 1)
        s = torch.sigmoid(f) * s + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(s), s
    a, b = x @ w, h @ u
    z = torch.sigmoid(a[:, :HIDDEN] + b[:, :HIDDEN])
    r = torch.sigmoid(a[:, HIDDEN : 2 * HIDDEN] + b[:, HIDDEN : 2 * HIDDEN])
    n = torch.tanh(a[:, 2 * HIDDEN :] + r * b[:, 2 * HIDDEN :])
    return (1 - z) * n + z * h, s


def train(torch: ModuleType, cell: str, lengths: list[int]) -> list[Any]:
    """What each step of training leaves: its loss, and the gradients."""
    rng = np.random.default_rng(0)

    def drawn(*shape: int) -> Any:
        return torch.tensor(rng.uniform(-0.5, 0.5, shape).astype("f4"))

    w = drawn(INPUTS, GATES[cell] * HIDDEN).requires_grad_()
    u = drawn(HIDDEN, GATES[cell] * HIDDEN).requires_grad_()
    optimizer = torch.optim.SGD([w, u], lr=0.5)
    found: list[Any] = []
    for length in lengths:
        x = drawn(BATCH, length, INPUTS)
        h, s = torch.zeros(BATCH, HIDDEN), torch.zeros(BATCH, HIDDEN)
        states = []
        for t in range(length):
            h, s = step(torch, cell, x[:, t], h, s, w, u)
            states.append(h)
        loss = (torch.stack(states, 1) ** 2).mean() + (h**2).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found += [loss.item(), w.grad.numpy().copy(), u.grad.numpy().copy()]
    return found


@pytest.mark.parametrize("cell", GATES)
def test_beside_pytorch(cell: str) -> None:
    """Some lengths more than once, so that what is known of them is used."""
    pytorch = pytest.importorskip("torch")
    lengths = [9, 9, 9, 4, 9, 35, 4, 9, 35, 4]
    for ours, theirs in zip(train(torch, cell, lengths), train(pytorch, cell, lengths)):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-6)


def test_new_data_makes_no_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices are taken from an array too large to be copied when a tensor is made, while the
    gradients of the step before are alive.
    """
    expanded: list[int] = []
    expand = Pool.expand

    def counted(pool: Pool) -> None:
        expanded.append(len(pool.waiting))
        expand(pool)

    rng = np.random.default_rng(0)
    with Context(TEMPLATES=1, SEGMENTS=1, SIZES=1):
        w = torch.ones(1000).requires_grad_()
        for number in range(12):
            if number == 10:
                monkeypatch.setattr(Pool, "expand", counted)
            data = rng.integers(0, 4, (5, 30, 1000)).astype("f4")
            x, total = torch.tensor(data), torch.zeros(5, 1000)
            for t in range(30):
                total = total + x[:, t] * w
            w.grad = None
            total.sum().backward()
            assert total.sum().item() == data.sum()
            np.testing.assert_array_equal(w.grad.numpy(), data.sum((0, 1)))
    assert not expanded


def test_a_long_loop_has_a_template(monkeypatch: pytest.MonkeyPatch) -> None:
    """From its third step on, with more calls than a template may have that is always kept."""
    made = 0
    make = Template.make

    def counted(template: Template, *given: Any) -> Any:
        nonlocal made
        made += 1
        return make(template, *given)

    length = 1100
    assert 2 * length > gradients._MANY_CALLS
    slopes: list[float] = []
    with Context(TEMPLATES=1, SEGMENTS=1, SIZES=1):
        w = torch.tensor([0.5]).requires_grad_()
        for number in range(6):
            if number == 4:
                monkeypatch.setattr(Template, "make", counted)
            h = torch.ones(1)
            for _ in range(length):
                h = torch.tanh(h * w)
            w.grad = None
            h.sum().backward()
            slopes.append(w.grad.item())
            with torch.no_grad():
                w += 0.25
    assert made < 10
    for number, found in enumerate(slopes):
        weight = 0.5 + 0.25 * number
        value, slope = 1.0, 0.0
        for _ in range(length):
            inner = value * weight
            value_next = float(np.tanh(inner))
            slope = (1 - value_next**2) * (slope * weight + value)
            value = value_next
        assert found == pytest.approx(slope, rel=1e-3, abs=1e-6)
