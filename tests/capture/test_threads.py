"""Captures in threads: each its own, whatever the others compute, assign or fork meanwhile."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.capture.helpers import full
from tilegrad import Tensor, jit, nn
from tilegrad.base.errors import TilegradError


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
    check_training(2, is_made_here=is_made_here)


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
