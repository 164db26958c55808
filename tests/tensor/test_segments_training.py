"""Training loops whose calls, gradients and assignments wait, against NumPy."""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.tensor.helpers import numbers
from tests.tensor.test_segments import calls_wait, close, of_use
from tilegrad import Context, GlobalCounters, Tensor, jit, nn, no_grad
from tilegrad.base.errors import DTypeError, ShapeError
from tilegrad.ir.uop import node_count
from tilegrad.tensor.handle.waiting import this_thread


@pytest.fixture(autouse=True, params=["often", "once"])
def fresh(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with calls_wait(request.param, monkeypatch):
        yield


class Linear:
    """A linear model by hand, its loss the mean of squares, and the same in NumPy."""

    def __init__(self, inputs: int = 5, outputs: int = 3, seed: int = 0):
        self.mirror = numbers(inputs, outputs, seed=seed).astype(np.float64)
        self.w = Tensor(self.mirror.astype(np.float32), requires_grad=True)
        self.seed = seed
        self.inputs = inputs

    def loss(self) -> tuple[Any, float, np.ndarray]:
        """The loss of another batch, what it should be, and its gradient."""
        self.seed += 1
        x = numbers(4, self.inputs, seed=self.seed)
        y = x.astype(np.float64) @ self.mirror
        loss = (Tensor(x) @ self.w).square().mean()
        return loss, float((y * y).mean()), x.T.astype(np.float64) @ (2 * y / y.size)

    def step(self) -> None:
        loss, expected, gradient = self.loss()
        loss.backward()
        assert self.w.grad is not None
        self.w.assign(self.w - 0.1 * self.w.grad)
        self.w.grad = None
        self.mirror = self.mirror - 0.1 * gradient
        close(loss.item(), expected)


def test_a_training_loop_by_hand_runs_by_its_calls() -> None:
    model = Linear()
    assert of_use(model.step)
    close(model.w, model.mirror)


def test_an_optimizer_whose_rate_changes_runs_by_its_calls() -> None:
    w = Tensor(numbers(6, seed=1), requires_grad=True)
    mirror, m, v = numbers(6, seed=1).astype(np.float64), np.zeros(6), np.zeros(6)
    optimizer = nn.optim.Adam([w], lr=0.1)
    count = 0

    def step() -> None:
        nonlocal count, mirror, m, v
        count += 1
        for group in optimizer.param_groups:
            group["lr"] = 0.1 / count
        x = numbers(6, seed=count)
        loss = ((w - Tensor(x)) ** 2).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        g = 2 * (mirror - x)
        close(loss.item(), ((mirror - x) ** 2).sum())
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        root = np.sqrt(v / (1 - 0.999**count)) + 1e-8
        mirror = mirror - 0.1 / count * (m / (1 - 0.9**count)) / root

    assert of_use(step)
    close(w, mirror)


def test_writes_and_reads_of_a_state_keep_their_order() -> None:
    state, mirror = Tensor(numbers(7)).realize(), numbers(7)

    def step() -> None:
        nonlocal mirror
        before = state * 2
        state.mul_(0.5)
        between = state + 1
        state.add_(before)
        close((before + between).sum().item(), (mirror * 2.5 + 1).sum())
        mirror = mirror * 2.5
        mirror /= 2.5
        state.div_(2.5)

    assert of_use(step)
    close(state, mirror)


@pytest.mark.parametrize("at", [3, 10])
def test_a_view_that_lives_sees_what_is_assigned(at: int) -> None:
    model = Linear()
    view: Any = None
    for step in range(16):
        if step == at:
            view = model.w.detach()[1:]
        model.step()
        if view is not None:
            close(view, model.mirror[1:])


def test_an_array_that_was_lent_keeps_its_values() -> None:
    model = Linear()
    for _ in range(12):
        before = model.mirror
        array = model.w.numpy()
        model.step()
        close(array, before)


def test_a_parameter_that_is_read_between_a_loss_and_its_gradient() -> None:
    model = Linear()
    for _ in range(12):
        loss, expected, gradient = model.loss()
        close(model.w.sum().item(), model.mirror.sum())
        loss.backward()
        close(loss.item(), expected)
        close(model.w.grad, gradient)
        model.w.assign(model.w - 0.1 * model.w.grad)
        model.w.grad = None
        model.mirror = model.mirror - 0.1 * gradient


def test_a_loss_that_is_read_before_its_gradient() -> None:
    model = Linear()
    for _ in range(12):
        loss, expected, gradient = model.loss()
        close(loss.item(), expected)
        loss.backward()
        close(model.w.grad, gradient)
        model.w.grad = None


def test_gradients_of_several_losses_are_added_up() -> None:
    model = Linear()
    for _ in range(12):
        total = np.zeros((5, 3))
        for _ in range(3):
            loss, _, gradient = model.loss()
            loss.backward()
            total += gradient
        close(model.w.grad, total)
        model.w.grad = None


def test_a_gradient_goes_through_a_value_that_an_earlier_read_computed() -> None:
    model = Linear()
    for _ in range(12):
        x = numbers(4, 5, seed=model.seed)
        hidden = (Tensor(x) @ model.w).tanh()
        hidden.sum().item()
        (hidden * hidden).sum().backward()
        h = np.tanh(x @ model.mirror)
        close(model.w.grad, x.T @ (2 * h * (1 - h * h)))
        model.w.grad = None


def test_the_gradient_of_a_loss_before_an_assignment_goes_to_the_parameter() -> None:
    """Of the values that it had then, as in PyTorch, which refuses what it did not keep."""
    w, other = Tensor([2.0], requires_grad=True), Tensor([5.0], requires_grad=True)
    for step in range(10):
        loss = (w * other).sum()
        w.assign(w.detach() * 0 + 3)
        loss.backward()
        close(w.grad, [5.0])
        close(other.grad, [2.0] if step == 0 else [3.0])
        w.grad = other.grad = None


def test_hooks_see_each_gradient() -> None:
    model = Linear()
    seen: list[Any] = []
    for step in range(14):
        loss, _, gradient = model.loss()
        handle = model.w.register_hook(seen.append) if step % 5 == 4 else None
        loss.backward()
        close(model.w.grad, gradient)
        model.w.grad = None
        if handle is not None:
            close(seen.pop(), gradient)
            handle.remove()


def test_a_hook_of_a_parameter_sees_the_gradient_of_each_step() -> None:
    model = Linear()
    seen: list[Any] = []
    handle = model.w.register_hook(seen.append)
    for step in range(1, 9):
        model.step()
        assert len(seen) == step
    handle.remove()
    model.step()
    assert len(seen) == 8


def test_a_hook_decides_what_a_parameter_learns() -> None:
    layer = nn.Linear(4, 3)
    before = layer.weight.numpy().copy()
    rows = np.array([[1.0], [0.0], [1.0]], np.float32)
    layer.weight.register_hook(lambda gradient: gradient * Tensor(rows))
    optimizer = nn.optim.Adam(layer.parameters(), lr=0.1)
    for step in range(8):
        optimizer.zero_grad()
        layer(Tensor(numbers(5, 4, seed=step))).square().mean().backward()
        optimizer.step()
    after = layer.weight.numpy()
    np.testing.assert_array_equal(after[1], before[1])
    assert np.abs(after - before)[[0, 2]].min() > 0


def test_hooks_and_checkpoints_elsewhere_are_no_matter() -> None:
    other = Tensor([1.0, 2.0], requires_grad=True)
    computed = other * 2
    computed.register_hook(lambda gradient: gradient)
    other.register_hook(lambda gradient: gradient)
    model = Linear()
    assert of_use(model.step)
    close(model.w, model.mirror)


def test_an_unread_result_of_another_leaf_is_no_matter() -> None:
    other = Tensor([1.0, 2.0], requires_grad=True)
    held = [other.exp() for _ in range(4)]
    model = Linear()
    assert of_use(model.step)
    close(model.w, model.mirror)
    close(held[-1], np.exp([1.0, 2.0]))


def test_a_leaf_is_not_changed_in_place_outside_no_grad() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    for _ in range(10):
        with pytest.raises(DTypeError, match="leaf"):
            w += 1
        with no_grad():
            w += 1
            w -= 1
    close(w, [1.0, 2.0])


def test_an_assignment_that_is_refused_changes_nothing() -> None:
    state = Tensor([1.0, 2.0]).realize()
    for _ in range(10):
        doubled = state * 2
        with pytest.raises(ShapeError):
            state.assign(doubled.reshape(2, 1))
        state.assign(doubled * 0.5)
        close(state.sum().item(), 3.0)


def test_what_is_assigned_is_no_alias_of_the_value() -> None:
    state = Tensor([1.0, 2.0]).realize()
    for _ in range(10):
        value = state * 1 + 1
        state.assign(value)
        value[0] = 9.0
        expected = state.tolist()
        assert value.tolist() == [9.0, expected[1]]
        state.sub_(1)
        assert state.tolist() == [expected[0] - 1, expected[1] - 1] == [1.0, 2.0]


def test_a_captured_function_sees_what_a_loop_assigns() -> None:
    state = Tensor([1.0, 2.0]).realize()
    total = jit(lambda x: (x + state).sum())
    mirror = np.array([1.0, 2.0])
    for step in range(14):
        state.mul_(2.0) if step % 2 else state.mul_(0.5)
        mirror *= 2.0 if step % 2 else 0.5
        if step % 3 == 2:
            close(total(Tensor([1.0, 1.0]).realize()).item(), mirror.sum() + 2)
        else:
            close(state.sum().item(), mirror.sum())


def test_eight_threads_train_at_once() -> None:
    failed: list[BaseException] = []

    def train(seed: int) -> None:
        try:
            with Context(TEMPLATES=1, SEGMENTS=1):
                model = Linear(seed=1000 * seed)
                for _ in range(15):
                    model.step()
                close(model.w, model.mirror)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=train, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed[0]


@pytest.mark.usefixtures("nothing_known")
@pytest.mark.parametrize(
    "steps", [200, pytest.param(2000, marks=pytest.mark.nightly)]
)  # fmt: skip
def test_a_long_training_loop_holds_a_bounded_number_of_nodes_and_bytes(steps: int) -> None:
    model = Linear()
    found: list[tuple[int, int]] = []
    for step in range(steps):
        model.step()
        assert len(this_thread.pool.waiting) + len(this_thread.pool.computed) <= 40
        if step in (steps // 2, steps - 1):
            gc.collect()
            found.append((node_count(), GlobalCounters.mem_used))
    assert found[1][0] <= found[0][0] + 50
    assert found[1][1] <= found[0][1] + 4096


def test_a_training_loop_that_nobody_reads_holds_a_bounded_number_of_calls() -> None:
    model = Linear()
    optimizer = nn.optim.SGD([model.w], lr=0.1)
    for _ in range(40):
        loss, _, gradient = model.loss()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.mirror = model.mirror - 0.1 * gradient
        assert this_thread.pool.count < 200
    close(model.w, model.mirror)


class Game:
    """A random program over integers that floats hold exactly: a leaf `w`, a state `m`, values that
    were computed from them, and gradients, all with their values in NumPy.
    """

    def __init__(self, seed: int):
        self.chance = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.w, self.m = self._draw(3, 2), self._draw(3, 2)
        self.ours_w = Tensor(self.w.astype(np.float32), requires_grad=True)
        self.ours_m = Tensor(self.m.astype(np.float32)).realize()
        self.grad: np.ndarray | None = None
        # A value, what it should be, its gradient for w, and w's version.
        self.held: tuple[Any, np.ndarray, np.ndarray, int] | None = None
        self.version = 0
        self.view: tuple[Any, Callable[[], np.ndarray]] | None = None
        kinds = [
            self.backward, self.backward, self.update, self.move, self.move, self.read, self.hold,
            self.backward_of_held, self.look, self.forget, self.window,
        ]  # fmt: skip
        self.body = [self.chance.choice(kinds) for _ in range(self.chance.randint(3, 9))]

    def _draw(self, *shape: int) -> np.ndarray:
        return self.numbers.integers(-3, 4, shape).astype(np.float64)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            for statement in self.body:
                if self.chance.random() < 0.97:
                    statement()
            self.bound()
            assert self.ours_m.sum().item() == self.m.sum()
        np.testing.assert_array_equal(self.ours_w.numpy(), self.w)
        np.testing.assert_array_equal(self.ours_m.numpy(), self.m)

    def bound(self) -> None:
        """Keep values small, by a remainder."""
        if max(abs(self.w).max(), abs(self.m).max()) > 1000:
            with no_grad():
                self.ours_w.assign(self.ours_w * 0 + 1)
            self.ours_m.assign(self.ours_m * 0 + 2)
            self.w, self.m = self.w * 0 + 1, self.m * 0 + 2
            self.version += 1

    def forward(self) -> tuple[Any, np.ndarray, np.ndarray]:
        x = self._draw(4, 3)
        hidden = (Tensor(x.astype(np.float32)) @ self.ours_w).relu()
        mirror = x @ self.w
        return hidden, np.maximum(mirror, 0), x.T @ (mirror > 0)

    def add(self, gradient: np.ndarray) -> None:
        self.grad = gradient if self.grad is None else self.grad + gradient

    def backward(self) -> None:
        hidden, mirror, gradient = self.forward()
        loss = hidden.sum()
        loss.backward()
        self.add(gradient)
        if self.chance.random() < 0.3:
            assert loss.item() == mirror.sum()

    def hold(self) -> None:
        self.held = (*self.forward(), self.version)

    def backward_of_held(self) -> None:
        if self.held is None:
            return
        ours, mirror, gradient, version = self.held
        assert ours.sum().item() == mirror.sum()
        if version == self.version:
            (ours * 2).sum().backward()
            self.add(2 * gradient)

    def update(self) -> None:
        if self.grad is None:
            return
        np.testing.assert_array_equal(self.ours_w.grad.numpy(), self.grad) if (
            self.chance.random() < 0.2
        ) else None
        way = self.chance.randrange(3)
        if way == 0:
            self.ours_w.assign(self.ours_w - self.ours_w.grad)
        elif way == 1:
            with no_grad():
                self.ours_w -= self.ours_w.grad
        else:
            with no_grad():
                self.ours_w.copy_(self.ours_w - self.ours_w.grad)
        self.w = self.w - self.grad
        self.version += 1
        if self.chance.random() < 0.7:
            self.ours_w.grad = self.grad = None

    def move(self) -> None:
        way = self.chance.randrange(4)
        if way == 0:
            self.ours_m += 1
            self.m = self.m + 1
        elif way == 1:
            self.ours_m.mul_(-1)
            self.m = -self.m
        elif way == 2:
            self.ours_m.assign(self.ours_m.flip(0) - self.ours_w.detach())
            self.m = self.m[::-1] - self.w
        else:
            self.ours_m.copy_(self.ours_w.detach() * 2)
            self.m = self.w * 2

    def window(self) -> None:
        self.ours_m[1:] = self.ours_m[:2] + 1
        self.m = np.concatenate([self.m[:1], self.m[:2] + 1])

    def look(self) -> None:
        if self.view is None:
            rows = self.chance.randrange(2)
            self.view = (
                (self.ours_m[rows:], lambda: self.m[rows:])
                if self.chance.random() < 0.5
                else (self.ours_w.detach()[rows:], lambda: self.w[rows:])
            )
        ours, mirror = self.view
        np.testing.assert_array_equal(ours.numpy(), mirror())

    def forget(self) -> None:
        self.view = None

    def read(self) -> None:
        assert (self.ours_w * 2).sum().item() == 2 * self.w.sum()


def play(seed: int, mode: int, steps: int = 14) -> None:
    this_thread.pool.end()
    this_thread.pool.count_hit()
    with Context(SEGMENTS=mode):
        Game(seed).run(steps)


@pytest.mark.parametrize("seed", range(3))
def test_a_random_training_program_has_the_values_of_numpy(seed: int) -> None:
    play(seed, 1)


@pytest.mark.nightly
@pytest.mark.parametrize("start", range(100, 300, 20))
@pytest.mark.parametrize("mode", [1, 2])
def test_many_random_training_programs(start: int, mode: int) -> None:
    for seed in range(start, start + 20):
        play(seed, mode, 30)


def test_gradients_go_through_numbers_that_change() -> None:
    data = numbers(6, 4).astype(np.float32)
    goal = (Tensor(data) * 7).sin()
    weight, mirror = Tensor(np.ones(4, np.float32), requires_grad=True), np.ones(4)
    moment = np.zeros(4)
    held = Tensor(np.zeros(4, np.float32))
    for step in range(1, 20):
        scale, rate = 0.5 + 0.1 * step, 0.01 / step
        loss = ((weight * scale * data - goal) ** 2 / scale).sum()
        loss.backward()
        assert weight.grad is not None
        held = 0.9 * held + 0.1 * weight.grad
        weight.assign(weight - rate * held / (1 - 0.9**step))
        weight.grad = None
        error = mirror * scale * data - np.sin(7 * data)
        moment = 0.9 * moment + 0.1 * (2 * error * data).sum(0)
        found = loss.item()
        np.testing.assert_allclose(found, (error**2 / scale).sum(), rtol=1e-3)
        mirror = mirror - rate * moment / (1 - 0.9**step)
    np.testing.assert_allclose(weight.numpy(), mirror, rtol=1e-3)
