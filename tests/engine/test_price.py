"""What eager use costs beside the kernels, in calls of Python functions, which no load changes."""

from __future__ import annotations

import ast
import gc
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.guarded import guard_pages
from tests.tensor.helpers import close, numbers
from tilegrad import Context, GlobalCounters, Tensor, Variable, nn
from tilegrad.engine.run import ready
from tilegrad.engine.run.run import recording
from tilegrad.func import checkpoint

# A new block is made, by calls, where one is handed on otherwise.
not_guarded = pytest.mark.skipif(
    guard_pages.is_installed(), reason="blocks are not handed on beside guard pages"
)


@pytest.fixture(autouse=True)
def _runs_are_not_compared() -> Iterator[None]:
    """SEGMENTS=2 runs twice what is counted here."""
    with Context(SEGMENTS=1):
        yield


def in_a_process(count: Callable[[], Any]) -> Any:
    """What `count`, a function of a module, gives in a process of its own: what other tests ran
    decides there neither which templates are known nor which loops are settled.
    """
    code = f"from {count.__module__} import {count.__name__} as count; print(count())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        # It ends what hangs; a busy machine takes minutes.
        timeout=900,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "TILEGRAD_SEGMENTS": "1",
        },
        check=True,
    )
    return ast.literal_eval(done.stdout)


def calls_of(function: Callable[[], Any]) -> int:
    count = 0

    def see(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "call"

    with Context(TEMPLATES=1):
        # Where another test had such a graph of other sizes or numbers, the plan for all of them
        # comes first.
        for _ in range(40):
            function()
        # A collection of what earlier tests left would call their objects' finalizers.
        gc.collect()
        gc.disable()
        sys.setprofile(see)
        try:
            function()
        finally:
            sys.setprofile(None)
            gc.enable()
    return count - 1


@not_guarded
def test_a_step_of_equal_calls_takes_few_calls() -> None:
    a, goal = Tensor(numbers(9, 9)).realize(), Tensor(numbers(9, 4, seed=1)).realize()
    weights = Tensor(numbers(9, 4, seed=2)).realize()

    def step() -> None:
        nonlocal weights
        hidden = (a @ weights).relu()
        error = a @ hidden - goal
        weights = weights - (a.T @ error) * 0.1
        (error * error).mean().item()

    with Context(SEGMENTS=1):
        assert calls_of(step) <= 130
    with Context(SEGMENTS=0):
        # What the bound above is to be compared with.
        assert calls_of(step) > 500


def test_an_item_of_memory_takes_few_calls() -> None:
    x = Tensor([2.5]).sum().realize()
    assert calls_of(x.item) <= 15


@not_guarded
def test_a_run_of_a_known_graph_takes_few_calls() -> None:
    x, y = Tensor(numbers(8, 9)).realize(), Tensor(numbers(8, 9, seed=1)).realize()
    assert calls_of(lambda: ((x + y) * y).realize()) <= 75


def test_a_node_more_in_a_known_graph_costs_little() -> None:
    x = Tensor(numbers(8, 9)).realize()

    def run(length: int) -> int:
        def step() -> None:
            y = x
            for _ in range(length):
                y = y.exp2()
            y.realize()

        return calls_of(step)

    # Of these, five make the node and its tensor.
    assert run(60) - run(20) <= 40 * 12


def test_a_kernel_more_in_a_known_plan_costs_little() -> None:
    x = Tensor(numbers(8, 9)).realize()

    def run(length: int) -> int:
        def step() -> None:
            y = x
            for _ in range(length):
                y = y.exp2().contiguous()
            y.realize()

        return calls_of(step)

    # Nodes and tensors of two methods among them; a launch takes none.
    assert run(12) - run(4) <= 8 * 50


def test_a_step_of_adam_takes_few_calls() -> None:
    parameters = [
        Tensor(numbers(*shape, seed=seed), requires_grad=True).realize()
        for seed, shape in enumerate([(8, 16), (16,), (16, 4), (4,)])
    ]
    w, b, v, c = parameters
    optimizer = nn.optim.Adam(parameters, lr=1e-3)
    x, y = Tensor(numbers(6, 8)).realize(), Tensor(np.arange(6, dtype=np.int32) % 4).realize()

    def step() -> None:
        loss = ((x @ w + b).relu() @ v + c).cross_entropy(y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()

    assert calls_of(step) <= 6000


def test_living_graphs_that_share_only_numbers_with_a_step_cost_it_nothing() -> None:
    x = Tensor(numbers(8, 9)).realize()

    def step() -> None:
        y = x * Tensor.full((8, 9), 1.625)
        (y.sum() + Tensor.full((), 0.375)).item()

    before = calls_of(step)
    held = []
    for seed in range(40):
        other = Tensor(numbers(8, 9, seed=seed)).realize()
        held.append((other + Tensor.full((8, 9), 1.625)).sum() + Tensor.full((), 0.375))
    assert calls_of(step) <= before + 60
    close(held[7], (numbers(8, 9, seed=7) + 1.625).sum() + 0.375)


def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many kernels each run in one call had."""
    found: list[int] = []
    original = ready.Ready.run

    def run(self: ready.Ready, *args: Any) -> Any:
        found.append(self._count)
        return original(self, *args)

    monkeypatch.setattr(ready.Ready, "run", run)
    return found


def work(a: np.ndarray) -> tuple[Tensor, np.ndarray]:
    x = Tensor(a).realize()
    weights = a - a.max(1, keepdims=True)
    shares = np.exp(weights) / np.exp(weights).sum(1, keepdims=True)
    return (x.softmax(1) @ x.T).sum(0), (shares @ a.T).sum(0)


def test_a_plan_of_several_kernels_is_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    found = runs(monkeypatch)
    before = GlobalCounters.kernel_count
    close(*work(numbers(12, 40)), 1e-4)
    assert GlobalCounters.kernel_count - before == sum(found) > 1
    assert len(found) == 1


@pytest.mark.parametrize("switches", [{"DEBUG": 2}, {"CHECK": 2}])
def test_who_wants_to_see_each_step_sees_it(
    switches: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = runs(monkeypatch)
    with Context(**switches):
        close(*work(numbers(12, 41)), 1e-4)
    assert found == []


def test_a_record_has_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    found = runs(monkeypatch)
    with recording() as record:
        close(*work(numbers(12, 42)), 1e-4)
    assert found == [] and len([each for each in record if each.kernel is not None]) > 1


def test_work_on_both_sides_of_the_bound_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    for bound in (0, 1 << 40):
        monkeypatch.setattr(ready, "_SMALL_OPS", bound)
        monkeypatch.setattr(ready, "_SMALL_BYTES", bound)
        monkeypatch.setattr(ready, "_MIDDLE_OPS", bound)
        # Another size each time: a plan is made ready once.
        close(*work(numbers(300, 400 + (bound > 0))), 1e-3)


@pytest.mark.parametrize(("name", "seconds"), [("tanh", 2e-5), ("sin", 2e-3)])
def test_work_that_ends_before_a_thread_has_woken_wakes_none(
    name: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As its first runs tell, by a clock that stands still but for them."""
    asked: list[bool] = []
    call = ready.Ready.call
    monkeypatch.setattr(
        ready.Ready, "call", lambda self, is_small: asked.append(is_small) or call(self, is_small)
    )
    monkeypatch.setattr(ready, "_SMALL_OPS", 0)
    clock = itertools.count()
    monkeypatch.setattr(ready, "time", SimpleNamespace(perf_counter=lambda: seconds * next(clock)))
    a = numbers(41, 73)
    x = Tensor(a).realize()
    for _ in range(8):
        found = (getattr(x, name)() @ x.T).max(1)
        close(found, (getattr(np, name)(a) @ a.T).max(1), 1e-3)
    assert asked[0] is True
    assert (False in asked) is (seconds > 1e-3)


def test_variables_and_numbers_reach_a_plan_that_is_ready() -> None:
    n = Variable("n", 1, 9)
    a = numbers(9, 4)
    x = Tensor(a).realize()
    for length in (2, 9, 5):
        for factor in (0.3, 0.7, 0.11):
            found = (x[: n.bind(length)] * factor).sum(0)
            close(found, (a[:length] * np.float32(factor)).sum(0), 1e-5)


@pytest.mark.usefixtures("nothing_known")
def test_memory_comes_back_with_its_tensors() -> None:
    x = Tensor(numbers(50, 50)).realize()
    x.exp().realize()
    before = GlobalCounters.mem_used
    for _ in range(5):
        y = (x.exp() @ x).realize()
        assert GlobalCounters.mem_used - before == 50 * 50 * 4
        del y
        assert GlobalCounters.mem_used == before


def test_eight_eager_loops_at_once() -> None:
    wrong: list[str] = []

    def loop(seed: int) -> None:
        a = numbers(16, 16, seed=seed) * 0.1
        x, w = Tensor(a).realize(), Tensor(np.eye(16, dtype=np.float32) * 0.9).realize()
        for step in range(25):
            x = (x @ w + 0.01 * (step % 3)).tanh()
            a = np.tanh(a @ (np.eye(16, dtype=np.float32) * 0.9) + np.float32(0.01 * (step % 3)))
            if not np.allclose(x.sum().item(), a.sum(), rtol=1e-3, atol=1e-3):
                wrong.append(f"{seed}, step {step}")

    threads = [threading.Thread(target=loop, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("has_regions", [False, True])
def test_a_gradient_does_not_look_below_parameters_that_wait_for_their_update(
    has_regions: bool,
) -> None:
    # Another graph of the process is to be computed anew for its gradient: no matter here.
    other = Tensor(numbers(3), requires_grad=True)
    kept = checkpoint(lambda y: (y * 2).sin(), other) if has_regions else None
    x = Tensor(numbers(6, 8)).realize()
    w = Tensor(numbers(8, 4, seed=1), requires_grad=True)
    step = [0]

    def backward() -> None:
        loss = ((x @ w).tanh() ** 2).mean()
        loss.backward()
        # A number that is another one at each step, below the parameter of the next.
        w.assign(w - (0.01 + 0.001 * step[0]) * w.grad.detach())
        w.grad = None
        step[0] += 1

    assert calls_of(backward) <= 1_700
    assert (kept is not None) == has_regions


def calls_of_a_loop_that_reads() -> int:
    a = Tensor(numbers(8, 8)).realize()
    state = [Tensor(numbers(8, seed=1))]

    def step() -> None:
        v = a @ state[0]
        norm = (v * v).sum().sqrt()
        state[0] = v / norm
        norm.item()

    return calls_of(step)


def test_the_past_of_what_a_loop_reads_costs_few_calls() -> None:
    """In a process of its own: what other tests ran decides when such a loop is settled."""
    # 720 where each node was asked for its past.
    assert in_a_process(calls_of_a_loop_that_reads) <= 120


def test_arrays_of_the_host_are_copied_by_the_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    w = Tensor(numbers(6, 5)).realize()
    found = runs(monkeypatch)
    for seed in range(6):
        a = numbers(4, 6, seed=seed)
        moved = GlobalCounters.global_mem
        close(
            ((Tensor(a) @ w).exp() + Tensor(a[:, :5])).sum(0),
            (np.exp(a.astype(np.float64) @ numbers(6, 5)) + a[:, :5]).sum(0),
            1e-4,
        )
        assert GlobalCounters.global_mem - moved >= a.nbytes + a[:, :5].nbytes
    assert len(found) == 6


def test_a_plan_for_a_range_of_sizes_is_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    w = Tensor(numbers(6, 5)).realize()
    found = runs(monkeypatch)
    for length in range(1, 14):
        a = numbers(length, 6, seed=length)
        x = Tensor(a).realize()
        close((x @ w).softmax(0).sum(1), _shares(a @ numbers(6, 5)).sum(1), 1e-4)
    assert len(found) >= 13


def _shares(a: np.ndarray) -> np.ndarray:
    weights = np.exp(a - a.max(0))
    return weights / weights.sum(0)
