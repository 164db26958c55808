"""Captures in threads: each its own, whatever the others compute, assign or fork meanwhile."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tests.capture.helpers import full
from tilegrad import Tensor, jit, nn
from tilegrad.base.errors import TilegradError
from tilegrad.base.tracers import install_tracer


class Net:
    def __init__(self, seed: int):
        rng = np.random.default_rng(seed)
        self.weights = [
            Tensor(rng.standard_normal((8, 8)).astype(np.float32) * 0.3, requires_grad=True)
            for _ in range(3)
        ]

    def __call__(self, x: Tensor) -> Tensor:
        for weight in self.weights:
            x = (x @ weight).tanh()
        return x


def losses_by_hand(seed: int, steps: int) -> list[float]:
    """Adam in float64, with the gradients written out."""
    rng = np.random.default_rng(seed)
    weights = [rng.standard_normal((8, 8)).astype(np.float32) * 0.3 for _ in range(3)]
    weights = [weight.astype(np.float64) for weight in weights]
    x = np.random.default_rng(100 + seed).standard_normal((4, 8)).astype(np.float32)
    first, second = [np.zeros((8, 8)) for _ in weights], [np.zeros((8, 8)) for _ in weights]
    found = []
    for step in range(1, steps + 1):
        values = [x.astype(np.float64)]
        for weight in weights:
            values.append(np.tanh(values[-1] @ weight))
        found.append(float(np.mean((values[-1] - 1) ** 2)))
        grad = 2 * (values[-1] - 1) / values[-1].size
        for n in reversed(range(3)):
            grad = grad * (1 - values[n + 1] ** 2)
            slope = values[n].T @ grad
            grad = grad @ weights[n].T
            first[n] = 0.9 * first[n] + 0.1 * slope
            second[n] = 0.999 * second[n] + 0.001 * slope**2
            rate = (first[n] / (1 - 0.9**step)) / (np.sqrt(second[n] / (1 - 0.999**step)) + 1e-8)
            weights[n] = weights[n] - 0.01 * rate
    return found


def train(net: Net, seed: int, steps: int = 6, *, is_captured: bool = True) -> list[float]:
    optimizer = nn.optim.Adam(net.weights, lr=0.01)
    rng = np.random.default_rng(100 + seed)
    x = Tensor(rng.standard_normal((4, 8)).astype(np.float32)).realize()

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (net(x) - 1).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    run = jit(step) if is_captured else step
    with Tensor.train():
        return [float(run(x).item()) for _ in range(steps)]


def in_threads(functions: list[Callable[[], Any]]) -> list[Any]:
    """What the functions give, each in a thread of its own; what one raises is raised."""
    found: list[Any] = [None] * len(functions)

    def run(number: int) -> None:
        try:
            found[number] = functions[number]()
        except BaseException as error:
            found[number] = error

    threads = [threading.Thread(target=run, args=(n,)) for n in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    for value in found:
        if isinstance(value, BaseException):
            raise value
    return found


def check_training(repeats: int, *, is_made_here: bool, is_captured: bool = True) -> None:
    expected = [losses_by_hand(seed, 6) for seed in range(8)]
    for _ in range(repeats):
        nets = [Net(seed) if is_made_here else None for seed in range(8)]
        found = in_threads([
            lambda seed=seed, net=net: train(  # type: ignore[misc]
                net or Net(seed), seed, is_captured=is_captured
            )
            for seed, net in enumerate(nets)
        ])  # fmt: skip
        np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.parametrize("is_made_here", [False, True])
def test_a_training_step_in_each_of_eight_threads(is_made_here: bool) -> None:
    """The models are made in the threads, or in the one that starts them."""
    check_training(1, is_made_here=is_made_here)


@pytest.mark.nightly
@pytest.mark.parametrize("is_made_here", [False, True])
@pytest.mark.parametrize("is_captured", [False, True])
def test_many_trainings_in_eight_threads(is_made_here: bool, is_captured: bool) -> None:
    check_training(60, is_made_here=is_made_here, is_captured=is_captured)


def test_eager_threads_beside_capturing_ones() -> None:
    """Half of the threads capture, the others run as they are."""
    expected = [losses_by_hand(seed, 6) for seed in range(6)]
    found = in_threads([
        lambda seed=seed: train(Net(seed), seed, is_captured=seed % 2 == 0)  # type: ignore[misc]
        for seed in range(6)
    ])  # fmt: skip
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_one_function_of_many_threads() -> None:
    """Each call gives what its own argument asks for, and each shape has one capture."""
    function = jit(lambda x, k: (x * k).sum(1) + 1)

    def work(seed: int) -> bool:
        for n in range(12):
            size = 2 + (seed + n) % 3
            if function(full(seed, 2, size), 2.0).tolist() != [2.0 * seed * size + 1] * 2:
                return False
        return True

    assert in_threads([lambda seed=seed: work(seed) for seed in range(8)]) == [True] * 8  # type: ignore[misc]
    assert function.captures == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_while_other_threads_compute() -> None:
    """The child computes, captures and replays; it finds no lock that nobody gives back."""
    base, stop = Tensor.ones(64, 64).realize(), threading.Event()
    function = jit(lambda x: (x @ base).relu() + 1)

    def work() -> None:
        own = jit(lambda x: (x @ base).sum())
        count = 0
        while not stop.is_set():
            count += 1
            (base[:, : 10 + count % 7].sum(1) * count + Tensor([float(count)])).realize()
            own(base)
            function(base)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    statuses = []
    try:
        for n in range(8):
            pid = os.fork()
            if not pid:
                _compute_and_exit(base, function, n)
            statuses.append(os.waitpid(pid, 0)[1])
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert statuses == [0] * 8


def _compute_and_exit(base: Tensor, function: Any, n: int) -> None:
    """In a child: 0 if all is right; a hang ends by the alarm."""
    signal.alarm(60)
    code = 1
    try:
        is_right = (Tensor(np.full((4, 30 + n), 2.0, np.float32)).sum(1) * 3).tolist()[0] == (
            6 * (30 + n)
        )
        for _ in range(4):
            is_right = is_right and function(base).tolist()[3][5] == 65
        code = 0 if is_right else 2
    finally:
        os._exit(code)


def test_two_threads_that_assign_to_one_tensor_are_told() -> None:
    """What one has written, another still needs: the message speaks of threads."""
    x = full(1, 4)
    lazy = x * 2 + 1
    old = lazy.uop

    def write() -> None:
        x.assign(x + 1).realize()

    in_threads([write])
    assert lazy.tolist() == [3.0] * 4
    again = Tensor([0.0] * 4).realize()
    again.uop = old.src[0]
    with pytest.raises(TilegradError, match="overwritten by another thread"):
        (again * 5).realize()


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """The interpreter switches threads a hundred times as often as it does."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(interval / 100)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


def write_by_four(write: Callable[[Tensor, int], Any], times: int) -> tuple[list[float], int]:
    """What one tensor of eight zeros is after each of four threads wrote to it so often, and how
    many were told that another one has overwritten what they need. Nobody waits for ever.
    """
    x = Tensor.zeros(8).contiguous().realize()
    told: list[str] = []

    def work(number: int) -> None:
        for _ in range(times):
            try:
                write(x, number)
            except TilegradError as error:
                told.append(str(error))

    in_threads([lambda number=number: work(number) for number in range(4)])  # type: ignore[misc]
    assert all("overwritten by another thread" in each for each in told)
    return x.tolist(), len(told)


def add_in_place(x: Tensor, number: int) -> None:
    x.add_(1.0)
    x.tolist()


def add_by_operator(x: Tensor, number: int) -> None:
    x += 1.0
    x.realize()


def write_own_slice(x: Tensor, number: int) -> None:
    x[2 * number : 2 * number + 2] = number + 1.0
    x.tolist()


def assign_what_is_read(x: Tensor, number: int) -> None:
    """Between the read and the write another thread may come: this one loses its own write."""
    x.assign(x + 1.0).realize()


@pytest.mark.usefixtures("quick_switches")
@pytest.mark.parametrize("write", [add_in_place, add_by_operator])
def test_four_threads_that_add_to_one_tensor_in_place_take_turns(
    write: Callable[[Tensor, int], Any],
) -> None:
    assert write_by_four(write, 50) == ([200.0] * 8, 0)


@pytest.mark.usefixtures("quick_switches")
def test_four_threads_that_write_to_slices_of_one_tensor_take_turns() -> None:
    assert write_by_four(write_own_slice, 20) == ([1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0], 0)


@pytest.mark.usefixtures("quick_switches")
def test_four_threads_that_assign_what_they_read_end_and_leave_a_whole_tensor() -> None:
    """Writes may be lost, as in any language; each that was told is left out, and no more."""
    values, told = write_by_four(assign_what_is_read, 200)
    assert len(set(values)) == 1
    assert 1 <= values[0] <= 800 - told


@pytest.mark.nightly
@pytest.mark.usefixtures("quick_switches")
def test_four_threads_write_thousands_of_times() -> None:
    assert write_by_four(add_in_place, 2000) == ([8000.0] * 8, 0)
    assert write_by_four(write_own_slice, 500)[1] == 0
    values, told = write_by_four(assign_what_is_read, 2000)
    assert len(set(values)) == 1
    assert 1 <= values[0] <= 8000 - told


def work_in_place(seed: int, rounds: int, shared: Tensor) -> None:
    """Random in-place work, views, reads, gradients and drops, beside NumPy in float64; `shared` is
    (8, 8) ones that all threads read.
    """
    choose, numbers = random.Random(seed), np.random.default_rng(seed)
    for _ in range(rounds):
        given = numbers.standard_normal((8, 8)).astype(np.float32)
        x, y = Tensor(given), given.astype(np.float64)
        kept: list[tuple[Tensor, Any]] = []
        for step in [choose.randrange(8) for _ in range(6)]:
            if step == 0:
                x += 1.0
                y = y + 1
            elif step == 1:
                x[2:4] = x[3:4] * 0.5
                y[2:4] = y[3:4] * 0.5
            elif step == 2:
                kept.append((x * 2 + shared, y * 2 + 1))
            elif step == 3:
                np.testing.assert_allclose(x.numpy(), y, rtol=1e-4, atol=1e-4)
            elif step == 4:
                x, y = (x @ shared) * 0.125, (y @ np.ones((8, 8))) * 0.125
            elif step == 5:
                w = Tensor(given, requires_grad=True)
                (w * x.detach()).tanh().sum().backward()
                assert w.grad is not None
                kept.append((w.grad, (1 - np.tanh(given * y) ** 2) * y))
            elif step == 6:
                x.T.mul_(2.0)
                y = y * 2
            elif kept:
                kept.pop(choose.randrange(len(kept)))
        for tensor, expected in [*kept, (x, y)]:
            np.testing.assert_allclose(tensor.numpy(), expected, rtol=1e-3, atol=1e-3)


def capture_and_write(seed: int, rounds: int, shared: Tensor) -> None:
    """Captured functions that write to a tensor of their own."""
    for _ in range(rounds):
        state = Tensor(np.full((8, 8), float(seed), np.float32)).realize()

        @jit
        def function(x: Tensor, state: Tensor = state) -> Tensor:
            state.assign(state + 1.0)
            return (x @ shared + state).sum()

        for n in range(5):
            found = function(Tensor.full((8, 8), float(n)).contiguous().realize()).item()
            assert found == 64 * (8 * n + seed + n + 1)


def check_threads_at_work(rounds: int) -> None:
    shared = Tensor.ones(8, 8).realize()
    works = [work_in_place] * 6 + [capture_and_write] * 2
    in_threads([
        lambda work=work, seed=seed: work(seed, rounds, shared)  # type: ignore[misc]
        for seed, work in enumerate(works)
    ])  # fmt: skip


@pytest.mark.usefixtures("quick_switches")
def test_threads_at_work_in_place_beside_threads_that_capture() -> None:
    check_threads_at_work(2)


@pytest.mark.nightly
@pytest.mark.usefixtures("quick_switches")
def test_threads_at_work_in_place_for_long() -> None:
    check_threads_at_work(40)


def test_gradients_are_captured_in_several_threads() -> None:
    """The view that an input was, and its copy in memory, are one tensor's value."""

    def step(x: Tensor, other: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        gradient = x.max(0).sum().gradient(x)[0]
        gradient[-2:, -1:] = -3
        return other.tanh(), gradient, x * 3

    def check(seed: int) -> None:
        x = np.full((1, 1), 1.5 - seed, np.float32)
        other = np.full((2, 2), 2.0 - seed, np.float32)
        captured = jit(step)
        for _ in range(3):
            found = captured(*[Tensor(np.stack([array] * 2))[1] for array in (x, other)])
            for ours, expected in zip(found, (np.tanh(other), [[-3.0]], 3 * x), strict=True):
                np.testing.assert_allclose(ours.numpy(), expected, 1e-6)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        with ThreadPoolExecutor(4) as pool:
            for _ in range(40):
                list(pool.map(check, range(3)))
    finally:
        sys.setswitchinterval(before)


def test_threads_install_trace_functions_one_at_a_time() -> None:
    """CPython refuses a second one meanwhile."""

    class Tracer:
        def __call__(self, *event: object) -> None: ...

        def __del__(self) -> None:
            sum(range(50))

    def install(_: int) -> int:
        found = 0
        for _ in range(3000):
            tracer = Tracer()
            install_tracer(tracer)
            found += sys.gettrace() is tracer
            install_tracer(None)
            found += sys.gettrace() is None
        return found

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(install, range(4))) == [6000] * 4
    finally:
        sys.setswitchinterval(before)
