"""Positions at which a loop picks elements of what it has computed are inputs of one graph:
however many come, few graphs are planned. NumPy has what is expected, of views and gradients too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.tensor.helpers import close, numbers
from tilegrad import Context, Tensor
from tilegrad.base.trace import counters

Key = Any

# Positions that leave and come back, the ends of the axes among them.
POSITIONS = [3, 1, 4, 0, 5, 3, 3, 2, 0, 1, 5, 4, 0, 2]
A = numbers(6, 7, 8, seed=1)
PICKS: dict[str, Callable[[int], Key]] = {
    "number": lambda i: i,
    "negative number": lambda i: -1 - i,
    "two numbers": lambda i: (i, (i * 5) % 7),
    "number, all, number": lambda i: (i, slice(None), (i * 3) % 8),
    "last axis": lambda i: (..., i),
    "slice": lambda i: slice(i, i + 1),
    "slices": lambda i: (slice(i // 2, i // 2 + 3), slice(i, i + 2)),
    "number and slice": lambda i: (i, slice(i, i + 2)),
    "fixed and changing": lambda i: (2, slice(1, 4), i),
    "integer of NumPy": lambda i: np.int64(i),
    "slice by NumPy": lambda i: (slice(None), slice(np.int32(i), np.int32(i) + 2)),
}


@pytest.fixture(autouse=True)
def _nothing_on_disk(nothing_known: None) -> Iterator[None]:
    """No graph has come before, so that plans can be counted."""
    with Context(DISABLE_COMPILER_CACHE=1):
        yield


def _plans(step: Callable[[int], None]) -> int:
    before = counters.schedules
    for position in POSITIONS:
        step(position)
    return counters.schedules - before


@pytest.mark.parametrize("name", PICKS)
def test_picks_of_what_waits_are_few_plans(name: str) -> None:
    pick = PICKS[name]
    x = Tensor(A).realize()

    def step(i: int) -> None:
        y = x * (i + 0.25)
        close((y[pick(i)] * 2).tanh(), np.tanh(A[pick(i)] * np.float32(i + 0.25) * 2))

    assert _plans(step) <= 3


@pytest.mark.parametrize("name", PICKS)
def test_gradients_through_picks_are_few_plans(name: str) -> None:
    pick = PICKS[name]
    w = Tensor(A, requires_grad=True)

    def step(i: int) -> None:
        picked = (w * 0.5).exp()[pick(i)]
        (picked * picked).sum().backward()
        wanted = np.zeros_like(A)
        wanted[pick(i)] = np.exp(A[pick(i)])
        assert w.grad is not None
        close(w.grad, wanted)
        w.grad = None

    # The memory of the parameter, a cut, and the first two steps with an input, which store others.
    assert _plans(step) <= 6


def test_rows_of_a_parameter_are_picked_with_few_plans() -> None:
    w = Tensor(A, requires_grad=True)

    def step(i: int) -> None:
        (w[i] * 3).sum().backward()
        wanted = np.zeros_like(A)
        wanted[i] = 3
        assert w.grad is not None
        close(w.grad, wanted)
        w.grad = None

    assert _plans(step) <= 4


def test_narrow_and_select_are_picks() -> None:
    x = Tensor(A).realize()

    def step(i: int) -> None:
        y = x + 0.3
        wanted = A + np.float32(0.3)
        close(y.narrow(1, i, 2).sum(), wanted[:, i : i + 2].sum())
        close(y.select(2, i).sum(), wanted[:, :, i].sum())

    assert _plans(step) <= 6


def test_several_picks_of_one_step_may_be_equal() -> None:
    """Numbers that are equal in one step are others in the next."""
    x = Tensor(A[0]).realize()

    def step(i: int) -> None:
        total, wanted = Tensor(0.0), 0.0
        y = x * 1.5
        for at in (i, i * i % 6, 5 - i, 3):
            y = y + 1
            total = total + y[at].sum()
            wanted += (A[0] * 1.5)[at].sum()
        close(total, np.float32(wanted + 8 * (1 + 2 + 3 + 4)))

    assert _plans(step) <= 6


def test_what_a_step_picks_one_after_the_other_stays_a_cut() -> None:
    """A loop over the positions of a tensor picks the same ones in each step: no position is a
    number of its kernels.
    """
    x = Tensor(A).realize()
    for _ in range(4):
        y = (x * 2).exp()
        total = Tensor(0.0)
        for i in range(6):
            total = total + y[i].max()
        close(total, np.exp(A * 2).max((1, 2)).sum())
    assert y[5].uop.op.name == "RESHAPE"


def test_a_length_and_a_position_that_change() -> None:
    data = numbers(40, 3, seed=2)

    def step(i: int) -> None:
        n = 8 + 3 * i
        y = Tensor(data[:n]) * 2
        close(y[i].exp(), np.exp(data[i] * 2))

    assert _plans(step) <= 5


@pytest.mark.parametrize("written", ["view", "whole"])
def test_a_pick_is_a_view(written: str) -> None:
    x = Tensor(A).realize()
    for i in POSITIONS:
        whole = x + 1
        part = whole[i]
        wanted = A + 1
        if written == "view":
            part += 2.5
            wanted[i] += 2.5
        else:
            whole *= 3.0
            wanted *= 3
        close(part, wanted[i])
        close(whole, wanted)
        part[0] = 9.0
        wanted[i, 0] = 9
        close(whole.sum(), wanted.sum())


def test_a_view_of_a_pick() -> None:
    x = Tensor(A).realize()

    def step(i: int) -> None:
        part = (x * 2)[i].T.reshape(4, -1)
        close(part + 1, (A * 2)[i].T.reshape(4, -1) + 1)

    assert _plans(step) <= 3


def test_what_is_not_picked_may_be_nan() -> None:
    a = np.array([np.nan, 1.0, np.inf, -2.0, -0.0, 5.0], np.float32)
    x = Tensor(a).realize()
    for i in POSITIONS:
        y = x * 1.0
        np.testing.assert_array_equal((y[i] * 2).numpy(), a[i] * 2)
        assert np.signbit((x / 1.5)[4].item())


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float64, np.bool_])
def test_other_dtypes(dtype: Any) -> None:
    a = (numbers(6, 4, seed=3) * 5).astype(dtype)
    x = Tensor(a).realize()
    for i in POSITIONS:
        y = x.logical_not() if dtype is np.bool_ else x + x
        wanted = ~a if dtype is np.bool_ else a + a
        np.testing.assert_array_equal(y[i].numpy(), wanted[i])
