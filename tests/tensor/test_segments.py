"""Loops whose calls wait, against NumPy: what recurs, and what changes at some step."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.tensor.helpers import numbers
from tilegrad import Context, GlobalCounters, Tensor, no_grad
from tilegrad.base.errors import InternalError, TilegradError
from tilegrad.base.trace import counters
from tilegrad.engine.run import ready
from tilegrad.ir.uop import node_count
from tilegrad.tensor.handle import waiting
from tilegrad.tensor.handle.waiting import Pool, this_thread
from tilegrad.tensor.storage import segments

STEPS = 16


def close(ours: Any, theirs: Any, tol: float = 1e-4) -> None:
    found = ours.numpy() if isinstance(ours, Tensor) else ours
    np.testing.assert_allclose(found, theirs, rtol=tol, atol=tol)


@contextlib.contextmanager
def calls_wait(written: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Calls wait in each test, whatever the tests before it did. Code for a segment is written
    when it has run "often", or "once", the first time that it comes again.
    """
    if written == "once":
        monkeypatch.setattr(segments, "_OFTEN", 1)
        monkeypatch.setattr(ready, "_OFTEN", 1)
    this_thread.pool.end()
    this_thread.pool.count_hit()
    with Context(TEMPLATES=1, SEGMENTS=1):
        yield


@pytest.fixture(autouse=True, params=["often", "once"])
def fresh(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with calls_wait(request.param, monkeypatch):
        yield


def of_use(step: Callable[[], object]) -> bool:
    """Whether `step` makes no nodes, in the steady state. Where another test had such a graph of
    other sizes or numbers, the plan for all of them comes first.
    """
    for _ in range(40):
        step()
    found: list[bool] = []
    with pytest.MonkeyPatch.context() as patch:
        for name, is_of_use in (("count_hit", True), ("count_miss", False)):
            real = getattr(Pool, name)
            patch.setattr(
                Pool, name, lambda pool, of=is_of_use, real=real: found.append(of) or real(pool)
            )
        step()
    return bool(found) and all(found)


LOOP = """
import sys
import numpy as np
from tilegrad import Tensor
from tilegrad.engine.run import ready
from tilegrad.ir.uop import node_count

for size in map(int, sys.argv[1:]):
    a = Tensor(np.eye(size, dtype=np.float32)).realize()
    v = Tensor(np.ones(size, np.float32)).realize()
    counts = []
    for step in range(40):
        before = node_count()
        v = a @ v
        norm = (v * v).sum().sqrt()
        v = v / norm
        counts.append(node_count() - before)
        norm.item()
    print(max(counts[21:]))
"""


# Other sizes of the same graph give it a plan for a range of sizes.
@pytest.mark.parametrize("sizes", ["9", "5 9 6 7 8 9"])
def test_a_loop_of_equal_steps_makes_no_nodes(sizes: str) -> None:
    """In a process of its own: loops of other sizes before it would share a plan with it."""
    found = subprocess.run(
        [sys.executable, "-c", LOOP, *sizes.split()],
        # With TEMPLATES=2 every call makes nodes.
        env={**os.environ, "TILEGRAD_TEMPLATES": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert max(map(int, found.stdout.split())) <= 0


def power(steps: int, change: Callable[[int, Any, Any], tuple[Any, Any]]) -> None:
    """Power iteration, in which `change` has its say about matrix and vector at each step."""
    mine = numbers(9, 9), numbers(9, seed=1)
    a, v = Tensor(mine[0]).realize(), Tensor(mine[1]).realize()
    b, w = mine[0].astype(np.float64), mine[1].astype(np.float64)
    for step in range(steps):
        a, v = change(step, a, v)
        b, w = change(step, b, w)
        v, w = a @ v, b @ w
        norm, other = (v * v).sum() ** 0.5, (w * w).sum() ** 0.5
        v, w = v / norm, w / other
        close(norm.item(), other, tol=1e-3)
    close(v, w, tol=1e-3)


def test_steps_that_are_equal_have_their_values() -> None:
    power(STEPS, lambda step, a, v: (a, v))


@pytest.mark.parametrize("at", [5, 9, 12])
def test_another_branch_at_one_step(at: int) -> None:
    power(STEPS, lambda step, a, v: (a, v * 2.0 + 1.0 if step == at else v))


@pytest.mark.parametrize("at", [5, 9, 12])
def test_a_leaf_that_is_replaced_by_one_of_equal_shape(at: int) -> None:
    new = numbers(9, 9, seed=5)

    def change(step: int, a: Any, v: Any) -> tuple[Any, Any]:
        if step != at:
            return a, v
        return (Tensor(new).realize() if isinstance(a, Tensor) else new.astype(np.float64)), v

    power(STEPS, change)


@pytest.mark.parametrize("at", [5, 9, 12])
def test_a_write_through_a_view_of_a_leaf(at: int) -> None:
    def change(step: int, a: Any, v: Any) -> tuple[Any, Any]:
        if step == at:
            row = a[2]
            row[1:4] = 0.5
        return a, v

    power(STEPS, change)


def test_writes_to_the_state_itself_at_each_third_step() -> None:
    def change(step: int, a: Any, v: Any) -> tuple[Any, Any]:
        if step % 3 == 2:
            v *= 0.5
            v[0] = 1.0
        return a, v

    power(STEPS, change)


def test_what_waits_keeps_the_value_from_before_a_write() -> None:
    x = Tensor(numbers(6)).realize()
    expected = numbers(6).astype(np.float64)
    for _ in range(STEPS):
        before = x * 3.0
        x += 1.0
        close((before + x).sum().item(), (expected * 3 + expected + 1).sum(), tol=1e-3)
        close(before, expected * 3)
        expected = expected + 1


@pytest.mark.parametrize("number", [float("nan"), -0.0, 0.0, float("inf"), 1.5])
def test_a_number_that_is_another_at_one_step(number: float) -> None:
    x = Tensor(numbers(6)).realize()
    for step in range(STEPS):
        by = number if step == 9 else 2.25
        y = x * by
        with np.errstate(all="ignore"):
            expected = numbers(6).astype(np.float64) * by
        np.testing.assert_allclose(y.numpy(), expected, rtol=1e-5)
        assert (np.signbit(y.numpy()) == np.signbit(expected)).all() or np.isnan(by)


def test_another_dtype_at_one_step() -> None:
    for step in range(STEPS):
        kind = np.float64 if step in (6, 11) else np.float32
        x = Tensor(numbers(7).astype(kind)).realize()
        y = (x * 1.5 + x).sum()
        assert y.numpy().dtype == kind
        close(y.item(), numbers(7).sum() * 2.5, tol=1e-4)


def test_one_leaf_twice_and_two_leaves_are_told_apart() -> None:
    x, y = Tensor(numbers(5)).realize(), Tensor(numbers(5, seed=3)).realize()
    mine, other = numbers(5), numbers(5, seed=3)
    for step in range(STEPS):
        second, expected = (x, mine) if step % 2 else (y, other)
        close((x * second - second).sum().item(), (mine * expected - expected).sum(), tol=1e-4)


@pytest.mark.parametrize("at", [5, 8, 11])
def test_a_value_that_is_held_from_one_step_on(at: int) -> None:
    held = []
    x, mine = Tensor(numbers(8)).realize(), numbers(8).astype(np.float64)
    for step in range(STEPS):
        y = x.tanh() + x
        z, w = y * y, (np.tanh(mine) + mine) ** 2
        if step >= at:
            held.append((y, np.tanh(mine) + mine, z, w))
        close(z.sum().item(), w.sum(), tol=1e-4)
        x, mine = z / (1.0 + z.sum()), w / (1 + w.sum())
    for y, expected, z, squares in held:
        close(z, squares, tol=1e-4)
        close(y, expected, tol=1e-4)


def test_reads_in_another_order() -> None:
    x = Tensor(numbers(8)).realize()
    mine = numbers(8).astype(np.float64)
    for step in range(24):
        y = (x * 1.25).exp()
        z = y.sum()
        reads = [
            lambda y=y: close(y, np.exp(mine * 1.25), tol=1e-4),
            lambda z=z: close(z.item(), np.exp(mine * 1.25).sum(), tol=1e-3),
        ]
        for read in reads if step % 3 else reversed(reads):
            read()


def test_views_and_their_bases_are_one_storage() -> None:
    x = Tensor(numbers(4, 6)).realize()
    mine = numbers(4, 6).astype(np.float64)
    for _ in range(12):
        y, expected = x * 2.0 + 1.0, mine * 2 + 1
        view = y.reshape(6, 4)[1:3]
        close(view.sum().item(), expected.reshape(6, 4)[1:3].sum(), tol=1e-4)
        view += 10.0
        expected.reshape(6, 4)[1:3] += 10
        close(y, expected, tol=1e-4)
        close(y.T[2], expected.T[2], tol=1e-4)


def test_a_gradient_that_is_asked_for_after_the_value() -> None:
    x, w = Tensor(numbers(5)).realize(), Tensor(numbers(5, seed=1)).realize()
    for _ in range(12):
        y = (x * w).tanh()
        z = (y * y).sum()
        loss = z * 2.0
        z.item()
        (gradient,) = loss.gradient(w)
        t = np.tanh(numbers(5) * numbers(5, seed=1))
        close(gradient, 4 * t * (1 - t**2) * numbers(5), tol=1e-4)


def test_a_gradient_through_what_is_memory_alone_is_an_error_and_never_none() -> None:
    x = Tensor(numbers(5)).realize()
    y, values = x, []
    for _ in range(30):
        y = (y * 0.9 + x * 0.1).tanh() * 1.5
        values.append(y)
        (y * y).sum().item()
    with pytest.raises(TilegradError, match="gradient"):
        values[10].sum().gradient(x)


@pytest.mark.parametrize("view", [lambda x: x.T.T, lambda x: x.reshape(4, 3).reshape(3, 4)])
def test_a_gradient_of_a_view_of_memory_that_was_read(view: Callable[[Any], Any]) -> None:
    w = Tensor(numbers(3, 4)).realize()
    for _ in range(6):
        x = view(w)
        close(x, numbers(3, 4))
        (gradient,) = (x * x).sum().gradient(w)
        close(gradient, numbers(3, 4) * 2)


@pytest.mark.parametrize("step", [0.0, 0.25])
def test_equal_calls_are_computed_once(step: float) -> None:
    """Whether their numbers change from time to time or not."""
    x = Tensor(numbers(5)).realize()
    for number in range(10):
        scale = 3.25 + step * number
        y, z = (x * scale).tanh(), (x * scale).tanh()
        y.realize()
        before = GlobalCounters.kernel_count
        close(z, np.tanh(numbers(5) * scale))
        assert GlobalCounters.kernel_count == before


def test_one_that_requires_a_gradient_in_the_middle_of_others() -> None:
    x, w = Tensor(numbers(3, 4)).realize(), Tensor(numbers(4), requires_grad=True).realize()
    for _ in range(10):
        y = x * 2.0 + 1.0
        loss = (y * w).sum()
        w.grad = None
        loss.backward()
        close(w.grad, (numbers(3, 4) * 2 + 1).sum(0), tol=1e-4)
        with no_grad():
            close((y * w).sum().item(), ((numbers(3, 4) * 2 + 1) * numbers(4)).sum(), tol=1e-4)


def test_eight_threads_at_once() -> None:
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            with Context(TEMPLATES=1, SEGMENTS=1):
                x, mine = Tensor(numbers(9, seed=seed)).realize(), numbers(9, seed=seed)
                for step in range(40):
                    y = (x * 1.5).tanh() + x
                    expected = np.tanh(mine * 1.5) + mine
                    close(y.sum().item(), expected.sum(), tol=1e-3)
                    if step % 7 == seed % 7:
                        gc.collect()
                    x, mine = y * 0.5, expected * 0.5
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]


def test_a_tensor_of_another_thread_has_its_value() -> None:
    x = Tensor(numbers(6)).realize()
    for _ in range(10):
        y = (x * 2.5).exp()
        found: list[Any] = []
        thread = threading.Thread(target=lambda y=y, found=found: found.append((y + 1.0).tolist()))
        thread.start()
        thread.join()
        close(np.array(found[0]), np.exp(numbers(6) * 2.5) + 1, tol=1e-3)
        close(y.sum().item(), np.exp(numbers(6) * 2.5).sum(), tol=1e-3)


def test_an_error_in_the_middle_leaves_all_values_right() -> None:
    x = Tensor(numbers(6)).realize()
    for step in range(STEPS):
        y = x * 2.0
        if step in (7, 12):
            with pytest.raises(TilegradError, match="broadcast"):
                y + Tensor(numbers(5))
        close((y + x).sum().item(), numbers(6).sum() * 3, tol=1e-4)


@pytest.mark.usefixtures("nothing_known")
def test_a_long_loop_holds_a_bounded_number_of_calls_nodes_and_bytes() -> None:
    a, v = Tensor(numbers(9, 9) / 9).realize(), Tensor(numbers(9)).realize()
    seen = []
    for step in range(600):
        v = (a @ v).tanh() + 0.1
        v.sum().item()
        if step % 100 == 99:
            gc.collect()
            pool = this_thread.pool
            waiting = len(pool.waiting) + len(pool.computed)
            seen.append((waiting, node_count(), GlobalCounters.mem_used))
    # At most 32 of these are references to dead tensors.
    assert max(number for number, _, _ in seen) <= 40
    assert seen[-1][1] <= seen[1][1] + 32
    assert seen[-1][2] <= seen[1][2] + 4096


def test_a_loop_that_nobody_reads_holds_a_bounded_number_of_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting, "MOST_NODES", 128)
    x = Tensor(numbers(4)).realize()
    for _ in range(12):
        (x * 0.5 + 0.25).sum().item()
    for _ in range(400):
        x = x * 0.5 + 0.25
    assert this_thread.pool.count <= 256
    close(x, np.full(4, 0.5), tol=1e-4)


@pytest.mark.nightly
def test_calls_that_are_in_vain_stop_waiting() -> None:
    x = Tensor(numbers(4, 5)).realize()
    for size in range(60):
        y = x[:, : 1 + size % 5] * 1.5
        # A draw has no signature.
        close((y + Tensor.rand(4, 1) * 0).sum().item(), y.numpy().sum(), tol=1e-4)
    assert this_thread.pool.pause or this_thread.pool.patience


def test_plans_are_as_few_as_without() -> None:
    a, v = Tensor(numbers(9, 9)).realize(), Tensor(numbers(9)).realize()
    before = counters.schedules
    for _ in range(30):
        v = (a @ v).tanh()
        v.sum().item()
    assert counters.schedules - before <= 6


def test_arrays_of_the_host_are_copied_by_the_run() -> None:
    w = Tensor(numbers(6, 3)).realize()

    def step() -> None:
        batch = numbers(4, 6, seed=step.count)  # type: ignore[attr-defined]
        step.count += 1  # type: ignore[attr-defined]
        x = Tensor(batch)
        close((x @ w).relu().sum().item(), np.maximum(batch @ numbers(6, 3), 0).sum(), tol=1e-3)
        close(x, batch)

    step.count = 1  # type: ignore[attr-defined]
    assert of_use(step)


def test_results_of_equal_calls_are_written_to_one_by_one() -> None:
    """Equal calls of a segment are computed once; each result is a storage of its own."""
    for _ in range(4):
        a = Tensor([1.0, 2.0, 3.0])
        held, above = a * 2, a * 2 + 1
        x = (a * 2).realize()
        x[1] = 5.0
        assert (x.tolist(), held.tolist()) == ([2, 5, 6], [2, 4, 6])
        held += 1
        y = a * 2
        y[0] = 7.0
        assert (y.tolist(), (a * 2).tolist(), held.tolist()) == ([7, 4, 6], [2, 4, 6], [3, 5, 7])
        assert (above.tolist(), x.tolist()) == ([3, 5, 7], [2, 5, 6])


def test_numbers_that_change_make_no_nodes() -> None:
    x, state = numbers(40).astype(np.float32), numbers(40).astype(np.float32)
    places = Tensor(np.arange(40, dtype=np.int32)).realize()
    held, kept = Tensor(x).realize(), Tensor(state).realize()
    count = 0

    def step() -> None:
        nonlocal count, kept, state
        count += 1
        rate, limit = 0.1 * 0.9**count, 1.5 + 0.25 * (count % 7)
        kept = (kept - rate * held).clip(-limit, 2.5 + 0.01 * count)
        kept = (places <= count).where(kept / (1 - 0.9**count), kept)
        state = np.clip(state - rate * x, -limit, 2.5 + 0.01 * count)
        state = np.where(np.arange(40) <= count, state / (1 - 0.9**count), state)
        close(kept.sum().item(), state.sum(), 1e-3)

    assert of_use(step)
    with Context(SEGMENTS=2):
        for _ in range(4):
            step()
    with Context(TEMPLATES=2):
        for _ in range(4):
            step()


def test_two_numbers_that_were_equal_may_differ() -> None:
    x = Tensor(numbers(8).astype(np.float32)).realize()
    for first, second in [(3, 3), (4, 4), (5, 5), (5, 6), (7, 6), (8, 8), (9, 3), (1, 5), (0, 2)]:
        found = ((x * first).exp() + (x * second).exp()).sum().item()
        each = x.numpy()
        close(found, (np.exp(each * first) + np.exp(each * second)).sum(), 1e-3)
        found = ((x - float(first)) * (x - second)).sum().item()
        close(found, ((each - first) * (each - second)).sum(), 1e-3)


def test_a_number_that_no_float_holds_is_as_without_segments() -> None:
    x = Tensor(np.ones(4, np.float32)).realize()
    for number in (1.5, 2.5, 3.5, 1e39, 1e-46, float("inf"), 4.5, -0.0, 1 + 1e-12, 7.5):
        with np.errstate(all="ignore"):
            close((x * number).sum().item(), np.float32(number) * 4)
    with Context(TEMPLATES=2):
        small = x.cast("bfloat16")
        for number in (1.5, 2.5, 1.001, 3.001, 2.25):
            close((small * number).cast("float32").sum().item(), 4 * number, 1e-2)
    whole = Tensor(np.arange(4, dtype=np.int32)).realize()
    for limit in (2, 3, 5, 1, 1 << 40, -(1 << 40), 0, 3):
        assert (whole < limit).sum().item() == sum(each < limit for each in range(4))


def test_the_switch_compares_each_segment_with_its_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    with Context(SEGMENTS=2):
        power(STEPS, lambda step, a, v: (a, v))
    real = segments.noted

    def wrong(*args: Any) -> Any:
        found = real(*args)
        if found is not None and len(found.inputs) > 1:
            found.inputs = found.inputs[:1] * len(found.inputs)
        return found

    monkeypatch.setattr(segments, "noted", wrong)
    segments._known.clear()
    x, y = Tensor(numbers(5)).realize(), Tensor(numbers(5, seed=1)).realize()

    def step() -> None:
        (x * 2.0 - y).sum().item()

    with Context(SEGMENTS=2), pytest.raises(InternalError, match="segments"):
        of_use(step)


def test_a_number_that_is_equal_to_a_constant_of_another_call_is_not_that_constant() -> None:
    """The mean of four is their sum times 0.25: one node, as long as the number is 0.25."""
    random = np.random.default_rng(4)
    for number in [0.3, 0.35, 0.25, 0.4, 0.45, 0.25, 0.25, 0.25, 0.6, 0.7, 0.25, 0.8] * 2:
        rows = random.normal(size=(6, 4)).astype(np.float32)
        x = Tensor(rows)
        scaled, mean = x.sum(1) * number, x.mean(1)
        exact = rows.astype(np.float64)
        np.testing.assert_allclose(scaled.numpy(), exact.sum(1) * number, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(mean.numpy(), exact.mean(1), rtol=1e-4, atol=1e-5)
