"""Graphs that nobody reads do not grow without bound."""

from __future__ import annotations

import numpy as np
import pytest

from tilegrad import Context, Tensor
from tilegrad.base.trace import counters
from tilegrad.ir.uop import UOp, node_count
from tilegrad.tensor.handle import waiting
from tilegrad.tensor.storage import pending


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs of 1,024 nodes are large, and run 128 nodes at a time."""
    monkeypatch.setattr(pending, "_MOST", 1024)
    monkeypatch.setattr(pending, "_CUT", 128)
    monkeypatch.setattr(waiting, "MOST_NODES", 256)
    pending.pressure.most = node_count() + 512


def looped(steps: int, at: list[int]) -> tuple[Tensor, np.ndarray]:
    ours = np.linspace(-1, 1, 16, dtype=np.float32)
    x, y = Tensor(ours).realize(), Tensor(np.full(16, 0.25, np.float32)).realize()
    for step in range(steps):
        x = x * 0.99 + y
        ours = ours * np.float32(0.99) + np.float32(0.25)
        at.append(node_count()) if step % 64 == 0 else None
    return x, ours


@pytest.mark.usefixtures("small")
def test_an_unread_loop_has_its_value_and_few_plans() -> None:
    before = counters.schedules
    x, expected = looped(4000, [])
    np.testing.assert_allclose(x.numpy(), expected, rtol=1e-5)
    assert counters.schedules - before <= 8


@pytest.mark.usefixtures("small")
def test_an_unread_loop_holds_a_bounded_number_of_nodes() -> None:
    counts: list[int] = []
    looped(6000, counts)
    assert max(counts[len(counts) // 2 :]) <= max(counts[: len(counts) // 2]) + 2048


@pytest.mark.usefixtures("small")
def test_a_graph_that_requires_a_gradient_keeps_it() -> None:
    w = Tensor([0.5, 2.0], requires_grad=True)
    x = w
    for _ in range(1500):
        x = x * 0.999 + w * 0.001
    x.sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), [1.0, 1.0], rtol=1e-3)


@pytest.mark.usefixtures("small")
def test_writes_that_wait_stay_in_order() -> None:
    x, y = Tensor([1.0, 2.0]).realize(), Tensor([0.5, 0.25]).realize()
    view = x.reshape(2, 1)
    for _ in range(1500):
        x += y
    np.testing.assert_allclose(view.numpy(), [[751.0], [377.0]])


def test_the_plain_plan_runs_nothing_by_itself(small: None) -> None:
    with Context(NOOPT=1):
        before = counters.schedules
        x = Tensor([1.0]).realize()
        made = counters.schedules - before
        for _ in range(1200):
            x = x + 1
        assert counters.schedules - before == made


@pytest.mark.usefixtures("small")
def test_a_chain_over_one_memory_has_few_plans_nodes_and_visits() -> None:
    """After the first cut all stands on a computed value, and no memory is left in the graph. With
    TEMPLATES=2 a cut would come between the nodes of a call and those that it is compared with.
    """
    work: list[int] = []
    for steps in (400, 1600):
        x, expected = Tensor([0.5, -0.25]).realize(), np.array([0.5, -0.25])
        there, schedules, visits = node_count(), counters.schedules, counters.visits
        most = 0
        with Context(TEMPLATES=1):
            for _ in range(steps):
                x, expected = x.tanh(), np.tanh(expected)
                most = max(most, node_count() - there)
        np.testing.assert_allclose(x.numpy(), expected, rtol=1e-4)
        assert counters.schedules - schedules <= 4
        assert most < 2048
        work.append(counters.visits - visits)
    assert work[1] < 5 * work[0]


@pytest.mark.usefixtures("small")
def test_two_values_each_made_of_both_run_in_few_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a cut all later steps soon stand on one node again: to cut there, a step or two
    farther, would be a run and a walk for each step.
    """
    walked, waiting_below = 0, pending._waiting

    def counted(node: UOp) -> list[UOp]:
        nonlocal walked
        found = waiting_below(node)
        walked += len(found)
        return found

    monkeypatch.setattr(pending, "_waiting", counted)
    work: list[int] = []
    for steps in (600, 2400):
        x = y = None
        pending.pressure.most, walked = node_count() + 512, 0
        x = Tensor([0.5, -0.25], requires_grad=True)
        y, now = x * 2, np.array([[0.5, -0.25], [1.0, -0.5]])
        for _ in range(steps):
            x, y = x * 0.8 + y * 0.6, y * 0.8 - x * 0.6
            now = np.array([[0.8, 0.6], [-0.6, 0.8]]) @ now
        work.append(walked)
        np.testing.assert_allclose(x.numpy(), now[0], rtol=1e-3)
    # In proportion to the square it would be 16 times as much.
    assert 0 < work[1] < 7 * work[0]
