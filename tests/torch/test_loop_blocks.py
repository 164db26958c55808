"""Loops of the user's whose lengths change: values and gradients, and that a new length takes the
blocks of earlier ones.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from tests.fresh import forget, forget_loops
from tilegrad import Context, torch
from tilegrad.base.trace import counters
from tilegrad.tensor.calls import block_gradients, gradients
from tilegrad.tensor.handle.waiting import Call
from tilegrad.tensor.storage import block_runs
from tilegrad.tensor.storage.loop_blocks import loop_of

HIDDEN, INPUTS, BATCH = 6, 5, 3


@pytest.fixture(autouse=True)
def no_lengths() -> Iterator[None]:
    """No loop came before, as in another test."""
    forget_loops()
    yield
    forget_loops()


def drawn(rng: Any, *shape: int) -> Any:
    return rng.uniform(-0.5, 0.5, shape).astype("f4")


class Recurrence:
    """A network h = tanh(x w + h u), and its gradients by NumPy in float64."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(3)
        self.arrays = [drawn(self.rng, INPUTS, HIDDEN), drawn(self.rng, HIDDEN, HIDDEN)]
        self.w, self.u = (torch.tensor(each).requires_grad_() for each in self.arrays)

    def sequence(self, length: int) -> Any:
        return drawn(self.rng, BATCH, length, INPUTS)

    def step(self, x: Any, h: Any) -> Any:
        return torch.tanh(x @ self.w + h @ self.u)

    def last_state(self, x: Any) -> Any:
        given, h = torch.tensor(x), torch.zeros(BATCH, HIDDEN)
        for t in range(x.shape[1]):
            h = self.step(given[:, t], h)
        return h

    def train(self, x: Any) -> tuple[float, list[Any]]:
        """The sum of squares of the last state, and its gradients."""
        self.w.grad = self.u.grad = None
        loss = (self.last_state(x) ** 2).sum()
        loss.backward()
        return loss.item(), [self.w.grad.numpy().copy(), self.u.grad.numpy().copy()]

    def expected(self, x: Any, from_states: Callable[[Any], Any] | None = None) -> Any:
        """The same by NumPy; `from_states` gives the gradients of all states instead."""
        w, u = (each.astype("f8") for each in self.arrays)
        states = [np.zeros((BATCH, HIDDEN))]
        for t in range(x.shape[1]):
            states.append(np.tanh(x[:, t] @ w + states[-1] @ u))
        given = np.zeros((len(states), BATCH, HIDDEN))
        if from_states is None:
            given[-1] = 2 * states[-1]
        else:
            given[1:] = from_states(np.array(states[1:]))
        dw, du, flow = np.zeros_like(w), np.zeros_like(u), np.zeros((BATCH, HIDDEN))
        for t in reversed(range(x.shape[1])):
            before = (given[t + 1] + flow) * (1 - states[t + 1] ** 2)
            dw += x[:, t].T @ before
            du += states[t].T @ before
            flow = before @ u.T
        return (states[-1] ** 2).sum(), [dw, du]


def agree(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found[0], expected[0], rtol=2e-5)
    for one, other in zip(found[1], expected[1], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def count(work: Callable[..., Any], *given: Any) -> tuple[int, int, int]:
    """Schedules, kernels compiled and blocks of gradients."""
    before = counters.schedules, counters.compiles, counters.blocks
    work(*given)
    after = counters.schedules, counters.compiles, counters.blocks
    schedules, compiles, blocks = (now - then for now, then in zip(after, before, strict=True))
    return schedules, compiles, blocks


def test_lengths_that_change_have_the_gradients_of_numpy() -> None:
    net = Recurrence()
    for length in (40, 41, 56, 40, 73, 19, 64, 130, 131, 18):
        x = net.sequence(length)
        agree(net.train(x), net.expected(x))


def test_a_new_length_has_no_plan_of_its_own() -> None:
    net = Recurrence()
    # 63 and 127 steps after the first one have a block of each size.
    for length in (40, 64, 128, 64, 128, 63):
        net.train(net.sequence(length))
    for length in (97, 50, 121):
        schedules, compiles, blocks = count(net.train, net.sequence(length))
        assert (schedules, compiles) == (0, 0)
        # The loss, blocks of 32, a block for each binary digit of the rest, and the first step.
        assert blocks == 2 + (length - 1) // 32 + ((length - 1) % 32).bit_count()


def test_the_first_blocks_of_a_process_have_all_gradients() -> None:
    """No template is known: sums of gradients are calls nevertheless, and no block is in vain."""
    forget()
    net = Recurrence()
    # The first steps have nodes, and the first loop of calls runs as a whole.
    for length in (40, 40, 57):
        net.train(net.sequence(length))
    x = net.sequence(70)
    before = counters.blocks
    agree(net.train(x), net.expected(x))
    # The loss, two blocks of 32, those of 4 and 1, and the first step.
    assert counters.blocks - before == 2 + 2 + 2


def test_a_mean_of_losses_of_all_steps() -> None:
    """The gradient of a sum that is divided by the length is a constant in memory."""
    net = Recurrence()
    for length in (24, 30, 47, 40, 66, 52):
        x = net.sequence(length)
        given, h, loss = torch.tensor(x), torch.zeros(BATCH, HIDDEN), 0.0
        for t in range(length):
            h = net.step(given[:, t], h)
            loss = loss + (h**2).sum()
        net.w.grad = net.u.grad = None
        before = counters.blocks
        (loss / length).backward()
        blocks = counters.blocks - before
        _, expected = net.expected(x, lambda states: 2 * states / len(states))
        agree((1.0, [net.w.grad.numpy(), net.u.grad.numpy()]), (1.0, expected))
    assert blocks > 2


def test_without_room_for_sums_the_nodes_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Recurrence()
    for length in (24, 40):
        net.train(net.sequence(length))
    monkeypatch.setattr(block_gradients, "uploaded", lambda *given: None)
    for length in (33, 51):
        x = net.sequence(length)
        agree(net.train(x), net.expected(x))


def test_a_slice_with_a_name_is_memory_of_its_own() -> None:
    net = Recurrence()

    def train(x: Any, *, is_written: bool = False) -> None:
        net.w.grad = net.u.grad = None
        given, h = torch.tensor(x), torch.zeros(BATCH, HIDDEN)
        for t in range(x.shape[1]):
            row = given[:, t]
            h = net.step(row, h)
        loss = (h**2).sum()
        loss.backward()
        value, gradients = net.expected(x)
        agree((loss.item(), [net.w.grad.numpy(), net.u.grad.numpy()]), (value, gradients))
        if is_written:
            given[:, -1] = 1.0
            np.testing.assert_array_equal(row.numpy(), np.ones((BATCH, INPUTS)))

    for length in (40, 64, 128, 64, 128, 63, 40):
        train(net.sequence(length))
    assert [count(train, net.sequence(length))[0] for length in (97, 50, 121)] == [0, 0, 0]
    for length in (64, 77):
        train(net.sequence(length), is_written=True)


def test_a_view_of_a_slice_shows_what_is_written_later() -> None:
    """A view that nobody else holds the slice of, beside a loop that has read the slice."""
    net = Recurrence()
    for length in (40, 64, 128, 63, 77, 41):
        x = net.sequence(length)
        net.w.grad = net.u.grad = None
        given, h, shown = torch.tensor(x), torch.zeros(BATCH, HIDDEN), []
        for t in range(length):
            row = given[:, t]
            h = net.step(row, h)
            shown.append(row[:, 1:].T)
            del row
        loss = (h**2).sum()
        loss.backward()
        agree((loss.item(), [net.w.grad.numpy(), net.u.grad.numpy()]), net.expected(x))
        given.mul_(2.0)
        for t in (0, length // 2, length - 1):
            np.testing.assert_array_equal(shown[t].numpy(), 2 * x[:, t, 1:].T)


def test_the_first_length_runs_as_a_whole() -> None:
    net = Recurrence()
    for _ in range(3):
        assert count(net.train, net.sequence(60))[2] == 0
    assert count(net.train, net.sequence(70))[2] > 0
    assert count(net.train, net.sequence(60))[2] == 0


def test_a_length_that_comes_often_runs_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_runs, "_OFTEN", 4)
    net = Recurrence()
    for _ in range(3):
        net.train(net.sequence(40))
    blocks = [count(net.train, net.sequence(48))[2] for _ in range(6)]
    assert all(blocks[:3]) and not any(blocks[3:])
    # The next length has to come twice as often.
    blocks = [count(net.train, net.sequence(56))[2] for _ in range(9)]
    assert all(blocks[:7]) and not any(blocks[7:])


def test_few_lengths_are_known() -> None:
    lengths = block_runs._Lengths((0,))
    for length in range(3 * block_runs._MOST_LENGTHS):
        lengths.is_whole((length,))
    assert len(lengths.counts) <= block_runs._MOST_LENGTHS


def test_without_sizes_each_length_runs_as_a_whole() -> None:
    net = Recurrence()
    with Context(SIZES=0):
        for length in (24, 30, 24):
            blocks = counters.blocks
            x = net.sequence(length)
            agree(net.train(x), net.expected(x))
            assert counters.blocks == blocks


def test_blocks_agree_with_their_nodes() -> None:
    net = Recurrence()
    with Context(SEGMENTS=2):
        for length in (24, 33, 40, 33):
            x = net.sequence(length)
            agree(net.train(x), net.expected(x))


def test_a_list_of_states_is_joined_between_blocks() -> None:
    net = Recurrence()
    for length in (24, 30, 47, 40, 66, 52, 71):
        x = net.sequence(length)
        given, h, states = torch.tensor(x), torch.zeros(BATCH, HIDDEN), []
        for t in range(length):
            h = net.step(given[:, t], h)
            states.append(h)
        net.w.grad = net.u.grad = None
        loss = (torch.stack(states, 1) ** 2).sum()
        loss.backward()
        _, expected = net.expected(x, lambda states: 2 * states)
        agree((1.0, [net.w.grad.numpy(), net.u.grad.numpy()]), (1.0, expected))
        # Results that the user has are the states.
        np.testing.assert_allclose(
            float((states[3] ** 2).sum().item() + (h**2).sum().item()),
            _squares(net, x, 3) + _squares(net, x, length - 1),
            rtol=1e-4,
        )


def _squares(net: Recurrence, x: Any, step: int) -> float:
    return float(net.expected(x[:, : step + 1])[0])


def test_slices_in_any_order_and_a_second_backward() -> None:
    net = Recurrence()
    for length in (24, 31, 45, 28):
        x = net.sequence(length)
        given, h = torch.tensor(x), torch.zeros(BATCH, HIDDEN)
        for t in reversed(range(length)):
            h = net.step(given[:, t], h)
        net.w.grad = net.u.grad = None
        loss = (h**2).sum()
        loss.backward(retain_graph=True)
        loss.backward()
        value, expected = net.expected(x[:, ::-1])
        agree((loss.item(), [net.w.grad.numpy(), net.u.grad.numpy()]),
              (value, [2 * each for each in expected]))  # fmt: skip


def test_a_loop_without_gradients_runs_in_blocks() -> None:
    net = Recurrence()
    with torch.no_grad():
        for length in (60, 64, 128, 128, 64, 63):
            (net.last_state(net.sequence(length)) ** 2).sum().item()
        for length in (97, 50, 121):
            x = net.sequence(length)
            before = counters.schedules
            found = (net.last_state(x) ** 2).sum().item()
            assert counters.schedules == before
            np.testing.assert_allclose(found, net.expected(x)[0], rtol=2e-5)


def test_episodes_of_changing_lengths() -> None:
    """REINFORCE: the gradient of -sum(return * log p(action)) for a linear policy."""
    rng = np.random.default_rng(5)
    weights = drawn(rng, 4, 3)
    w = torch.tensor(weights).requires_grad_()
    for length in (40, 31, 52, 45, 28, 60, 33, 47):
        states, returns = drawn(rng, length, 4), drawn(rng, length)
        actions, logs = [], []
        for state in states:
            policy = torch.distributions.Categorical(logits=torch.tensor(state) @ w)
            action = policy.sample()
            actions.append(int(action.item()))
            logs.append(policy.log_prob(action))
        w.grad = None
        loss = -(torch.stack(logs) * torch.tensor(returns)).sum()
        loss.backward()
        scores = states.astype("f8") @ weights
        chances = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        picked = np.eye(3)[actions]
        expected = -states.T @ (returns[:, None] * (picked - chances))
        np.testing.assert_allclose(w.grad.numpy(), expected, rtol=1e-4, atol=1e-5)
        value = -(returns * np.log((picked * chances).sum(1))).sum()
        np.testing.assert_allclose(loss.item(), value, rtol=1e-4, atol=1e-5)
    assert counters.blocks


def test_dropout_in_a_loop_is_the_same_when_it_is_computed_again() -> None:
    rng = np.random.default_rng(2)
    w = torch.ones(HIDDEN).requires_grad_()
    for length in (40, 33, 52, 45):
        h, masks = torch.zeros(HIDDEN), []
        given = torch.tensor(drawn(rng, length, HIDDEN) + 1)
        for t in range(length):
            kept = torch.nn.functional.dropout(given[t] * w, 0.5)
            masks.append(kept.detach())
            h = h * 0.9 + kept
        w.grad = None
        h.sum().backward()
        # Of a sum of products with w, where w is one, the gradient is the sum itself.
        np.testing.assert_allclose(w.grad.numpy(), h.detach().numpy(), rtol=1e-4)


def test_threads_with_loops_of_their_own() -> None:
    failures: list[BaseException] = []

    def work() -> None:
        try:
            net = Recurrence()
            for length in (24, 30, 41, 35, 30):
                x = net.sequence(length)
                agree(net.train(x), net.expected(x))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failures


def _calls_below(result: Any) -> list[Call]:
    found: dict[Call, None] = {result._call: None}
    stack = [result._call]
    while stack:
        for each in stack.pop().inputs or ():
            if isinstance(each, Call) and each.value is None and each not in found:
                found[each] = None
                stack.append(each)
    return sorted(found, key=lambda call: call.serial)


@pytest.mark.parametrize(
    ("length", "sizes"), [(17, [1, 16]), (65, [1, 32, 32]), (24, [1, 16, 4, 2, 1])]
)
def test_the_blocks_of_a_loop(length: int, sizes: Sequence[int]) -> None:
    net = Recurrence()
    net.train(net.sequence(20))
    loss = (net.last_state(net.sequence(length)) ** 2).sum()
    loop = loop_of(_calls_below(loss))
    assert loop is not None and loop.lengths == (length,)
    # Four calls a step: two products, a sum and tanh; the first state is a constant.
    assert [math.ceil(len(each.steps) / 4) for each in loop.blocks[:-1]] == sizes
    for before, block in zip(loop.blocks, loop.blocks[1:]):
        assert block.inputs == before.outputs and len(block.inputs) == 1
    assert not loop.blocks[-1].outputs


def test_a_loop_of_one_length_is_planned_as_a_whole() -> None:
    """Although its first steps, whose templates are made, are no calls."""
    net = Recurrence()
    net.train(net.sequence(40))
    for table in (block_runs._lengths, gradients._known, gradients._long):
        table.clear()
    before = counters.blocks
    for shorter in (2, 0, 0):
        net.train(net.sequence(40 - shorter))
    assert counters.blocks == before
    net.train(net.sequence(57))
    assert counters.blocks > before


def test_calls_in_no_order_are_no_loop() -> None:
    choices = np.random.default_rng(0).integers(0, 3, 90)
    methods: list[Callable[[Any], Any]] = [torch.tanh, torch.sigmoid, torch.exp]
    x = torch.ones(3).requires_grad_()
    for _ in range(3):
        y = x * 2.0
        for choice in choices:
            y = methods[choice](y)
    calls = _calls_below(y)
    assert len(calls) > len(choices) and loop_of(calls) is None
