"""Segments that come often are compared by code written for each: what it takes, and what not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.tensor.test_segments import close
from tilegrad import Context, Tensor
from tilegrad.tensor.calls import sized
from tilegrad.tensor.handle.waiting import this_thread
from tilegrad.tensor.storage import segments
from tilegrad.tensor.storage.signatures import WaitingCalls

Arrays = tuple[np.ndarray, ...]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    this_thread.pool.end()
    this_thread.pool.count_hit()
    with Context(TEMPLATES=1, SEGMENTS=1):
        yield


def array(*shape: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def walks(step: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> int:
    """How often `step` walks over calls."""
    count = 0
    real = WaitingCalls.__init__

    def see(self: WaitingCalls, *args: Any) -> None:
        nonlocal count
        count += 1
        real(self, *args)

    with monkeypatch.context() as patched:
        patched.setattr(WaitingCalls, "__init__", see)
        step()
    return count


def settled(step: Callable[..., object], *given: Any) -> None:
    """Run a step until code is written for it."""
    for _ in range(4 * segments._OFTEN):
        step(*given)


def test_a_segment_that_comes_often_takes_no_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = Tensor(array(5, 3)), Tensor(array(3, 4, seed=1))

    def step() -> float:
        return float((a @ b).relu().sum().item())

    settled(step)
    assert walks(step, monkeypatch) == 0
    np.testing.assert_allclose(
        step(), np.maximum(array(5, 3) @ array(3, 4, seed=1), 0).sum(), rtol=1e-5
    )


def test_a_segment_of_sizes_that_change_takes_no_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    w = Tensor(array(6, 2))

    def step(rows: int) -> None:
        x = array(rows, 6, seed=rows)
        close((Tensor(x) @ w).tanh().sum().item(), np.tanh(x @ array(6, 2)).sum(), 1e-3)

    for rows in range(3, 60):
        step(rows)
    assert walks(lambda: step(61), monkeypatch) == 0
    assert walks(lambda: step(77), monkeypatch) == 0


def test_a_segment_of_some_sizes_that_change_takes_no_walk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another layer's product, of other columns, makes a template for all of these as well."""
    sized._families.clear()
    first = Tensor(array(7, 3)).realize()
    for seed in range(40):
        x = array(4, 7, seed=seed)
        close((Tensor(x) @ first).relu().sum().item(), np.maximum(x @ array(7, 3), 0).sum(), 1e-3)
    w = Tensor(array(7, 2))

    def step(rows: int) -> None:
        x = array(rows, 7, seed=rows)
        close((Tensor(x) @ w).sin().sum().item(), np.sin(x @ array(7, 2)).sum(), 1e-3)

    for rows in range(3, 60):
        step(rows)
    assert walks(lambda: step(61), monkeypatch) == 0
    assert walks(lambda: step(77), monkeypatch) == 0


def pairs() -> list[Any]:
    """What a step that is known over two arrays of shape (4, 3) is then called with."""
    x, y = array(4, 3), array(4, 3, seed=1)
    whole = array(8, 3, seed=2)
    other = Tensor(x) + 1
    return [
        pytest.param(lambda: (Tensor(y), Tensor(x)), (y, x), id="other values"),
        pytest.param(lambda: (Tensor(x),) * 2, (x, x), id="one tensor twice"),
        pytest.param(lambda: (Tensor(x), Tensor(x).T.T), (x, x), id="a view"),
        pytest.param(
            lambda: (Tensor(whole)[:4], Tensor(whole)[4:]), (whole[:4], whole[4:]), id="slices"
        ),
        pytest.param(lambda: (Tensor(x[:1]), Tensor(y)), (x[:1], y), id="broadcast"),
        pytest.param(lambda: (Tensor(x[:2]), Tensor(y[:2])), (x[:2], y[:2]), id="other sizes"),
        pytest.param(
            lambda: (Tensor(x.astype("f8")), Tensor(y.astype("f8"))), (x, y), id="other dtype"
        ),
        pytest.param(lambda: (other, Tensor(y)), (x + 1, y), id="what waits"),
        pytest.param(lambda: (other.realize(), Tensor(y)), (x + 1, y), id="what was computed"),
        pytest.param(lambda: (Tensor.full((4, 3), 2.0), Tensor(y)), (2.0, y), id="constant"),
        pytest.param(lambda: (Tensor(x.tolist()), Tensor(y)), (x, y), id="a list"),
        pytest.param(
            lambda: (Tensor(x, requires_grad=True), Tensor(y)), (x, y), id="requires a gradient"
        ),
    ]


@pytest.mark.parametrize(("given", "arrays"), pairs())
def test_what_differs_from_what_came_often_is_right(
    given: Callable[[], tuple[Tensor, Tensor]], arrays: Arrays
) -> None:
    x, y = Tensor(array(4, 3)), Tensor(array(4, 3, seed=1))

    def step(a: Tensor, b: Tensor) -> tuple[Any, Any]:
        product = a * b
        total = (product + a).sum()
        return total.item(), product

    def check(a: Tensor, b: Tensor, one: Any, other: Any) -> None:
        total, product = step(a, b)
        close(total, (one * other + one + np.zeros_like(other)).sum(), 1e-4)
        close(product, one * other)

    settled(step, x, y)
    for _ in range(2):
        check(*given(), *arrays)
        check(x, y, array(4, 3), array(4, 3, seed=1))


def test_more_or_fewer_results_alive_than_often() -> None:
    x = Tensor(array(6))
    for step in range(8 * segments._OFTEN):
        double = x * 2
        triple = double + x if step % 7 else None
        total = (double.exp() if step % 5 else double).sum()
        wanted = np.exp(array(6) * 2) if step % 5 else array(6) * 2
        close(total.item(), wanted.sum())
        if triple is not None:
            close(triple, array(6) * 3)
        if step % 3 == 0:
            close(double, array(6) * 2)


def test_memory_that_was_written_to_is_another_value() -> None:
    x = Tensor(array(6))

    def step() -> float:
        return float((x * 2 + 1).sum().item())

    settled(step)
    for number in range(3):
        with Context(SEGMENTS=number % 2):
            x.assign(Tensor(array(6, seed=number + 5)))
        close(step(), (array(6, seed=number + 5) * 2 + 1).sum())
        x[0] = 7.0
        close(step(), (array(6, seed=number + 5)[1:] * 2 + 1).sum() + 15)


def test_a_number_that_is_another_one_is_no_constant() -> None:
    x = Tensor(array(6))
    for step in range(6 * segments._OFTEN):
        scale, shift = 0.3 + 0.01 * step, -1.5 if step % 11 else 0.0
        close((x * scale + shift).sum().item(), (array(6) * scale + shift).sum(), 1e-4)


def test_sums_of_another_switch_are_planned_by_it() -> None:
    x = Tensor(array(40))

    def step() -> float:
        return float((x * x).sum().item())

    settled(step)
    with Context(NOOPT=1):
        close(step(), (array(40) ** 2).sum())
    with Context(SEGMENTS=2):
        close(step(), (array(40) ** 2).sum())
    close(step(), (array(40) ** 2).sum())
