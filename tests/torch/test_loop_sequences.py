"""Recurrent loops over a computed sequence with a gradient, such as an embedded batch, whose
lengths change: values and gradients by NumPy, and that a new length takes the blocks of earlier
ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.fresh import forget_loops
from tilegrad import Context, torch
from tilegrad.base.trace import counters
from tilegrad.tensor.storage import loop_slices

WORDS, HIDDEN, BATCH = 11, 6, 3
LENGTHS = [17, 21, 30, 19, 25, 33, 18, 28]


@pytest.fixture(autouse=True)
def no_lengths() -> Iterator[None]:
    """No loop came before, as in another test."""
    forget_loops()
    yield
    forget_loops()


class Sentences:
    """h = tanh(e[:, t] w + h u) over e = table[words]; the loss is the sum of squares of the last
    state, and a `share` of the mean of the sequence.
    """

    def __init__(self, order: Callable[[int], range] = range, share: float = 0.5) -> None:
        rng = np.random.default_rng(5)
        shapes = (WORDS, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, HIDDEN)
        self.arrays = [rng.uniform(-0.6, 0.6, shape).astype("f4") for shape in shapes]
        self.params = [torch.tensor(each).requires_grad_() for each in self.arrays]
        self.order, self.share = order, share

    def words(self, length: int) -> Any:
        return np.random.default_rng(length).integers(0, WORDS, (BATCH, length))

    def loss(self, words: Any) -> Any:
        table, w, u = self.params
        e = torch.nn.functional.embedding(torch.tensor(words), table)
        h = torch.zeros(BATCH, HIDDEN)
        for t in self.order(words.shape[1]):
            h = torch.tanh(e[:, t] @ w + h @ u)
        loss = (h**2).sum()
        return loss + e.mean() * self.share if self.share else loss

    def take_gradients(self) -> list[Any]:
        found = [each.grad.numpy().copy() for each in self.params]
        for each in self.params:
            each.grad = None
        return found

    def expected(self, words: Any) -> tuple[float, list[Any]]:
        table, w, u = (each.astype("f8") for each in self.arrays)
        e = table[words]
        order = [*self.order(words.shape[1])]
        states = [np.zeros((BATCH, HIDDEN))]
        for t in order:
            states.append(np.tanh(e[:, t] @ w + states[-1] @ u))
        de = np.full(e.shape, self.share / e.size)
        dw, du, flow = np.zeros_like(w), np.zeros_like(u), 2 * states[-1]
        for step in reversed(range(len(order))):
            before = flow * (1 - states[step + 1] ** 2)
            dw += e[:, order[step]].T @ before
            du += states[step].T @ before
            de[:, order[step]] += before @ w.T
            flow = before @ u.T
        dtable = np.zeros_like(table)
        np.add.at(dtable, words, de)
        return (states[-1] ** 2).sum() + e.mean() * self.share, [dtable, dw, du]


def agree(loss: float, found: list[Any], expected: tuple[float, list[Any]], times: int = 1) -> None:
    np.testing.assert_allclose(loss, expected[0], rtol=3e-5)
    for one, other in zip(found, expected[1], strict=True):
        np.testing.assert_allclose(one, other * times, rtol=3e-4, atol=3e-6)


@pytest.mark.parametrize("order", [range, lambda n: range(n - 1, -1, -1)], ids=["up", "down"])
def test_gradients_of_a_sequence_of_every_length(order: Callable[[int], range]) -> None:
    network = Sentences(order)
    blocks = counters.blocks
    for length in LENGTHS:
        words = network.words(length)
        loss = network.loss(words)
        loss.backward()
        agree(loss.item(), network.take_gradients(), network.expected(words))
    assert counters.blocks > blocks


def test_a_new_length_has_no_plan() -> None:
    network = Sentences(share=0.0)

    def train(length: int) -> None:
        loss = network.loss(network.words(length))
        loss.backward()
        loss.item()
        network.take_gradients()

    with Context(DISABLE_COMPILER_CACHE=1):
        for length in (*LENGTHS, 31, 26):
            train(length)
        before = counters.schedules
        for length in (29, 27, 32):
            train(length)
    assert counters.schedules == before


def test_a_loss_that_is_read_before_its_gradients() -> None:
    network = Sentences()
    for length in LENGTHS:
        words = network.words(length)
        loss = network.loss(words)
        value = loss.item()
        loss.backward()
        agree(value, network.take_gradients(), network.expected(words))


def test_gradients_that_are_asked_for_twice() -> None:
    """The calls stand on the sequence again when the blocks have run, and not on its slices."""
    network = Sentences()
    for length in LENGTHS:
        words = network.words(length)
        loss = network.loss(words)
        loss.backward(retain_graph=True)
        loss.backward()
        agree(loss.item(), network.take_gradients(), network.expected(words), times=2)


def test_without_room_for_a_slice_the_sequence_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Sentences()
    for number, length in enumerate(LENGTHS):
        if number == 5:
            monkeypatch.setattr(loop_slices, "new_memory", lambda *_: None)
        words = network.words(length)
        loss = network.loss(words)
        loss.backward()
        agree(loss.item(), network.take_gradients(), network.expected(words))


def test_without_room_for_the_gradient_of_a_sequence_the_nodes_tell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = Sentences()
    for number, length in enumerate(LENGTHS):
        if number == 5:
            monkeypatch.setattr(loop_slices.LoopSlices, "gathered", lambda *_: None)
        words = network.words(length)
        loss = network.loss(words)
        loss.backward()
        agree(loss.item(), network.take_gradients(), network.expected(words))


def test_the_gradient_of_the_sequence_itself() -> None:
    network = Sentences()
    table, w, u = network.params
    for length in LENGTHS[:8]:
        words = network.words(length)
        e = torch.nn.functional.embedding(torch.tensor(words), table)
        e.retain_grad()
        h = torch.zeros(BATCH, HIDDEN)
        for t in range(length):
            h = torch.tanh(e[:, t] @ w + h @ u)
        ((h**2).sum() + e.mean() * 0.5).backward()
        assert e.grad is not None
        rows = np.zeros((WORDS, HIDDEN))
        np.add.at(rows, words, e.grad.numpy())
        _, expected = network.expected(words)
        np.testing.assert_allclose(rows, expected[0], rtol=3e-4, atol=3e-6)
        network.take_gradients()
