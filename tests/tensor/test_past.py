"""A gradient whose way was given back, as values were read in between, is an error; never None, and
never a part of itself. With `requires_grad` it is exact, however often values are read.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

import numpy as np
import pytest

from tests.tensor.helpers import close, numbers
from tilegrad import Context, Tensor
from tilegrad.base.errors import TilegradError
from tilegrad.tensor.handle.waiting import this_thread
from tilegrad.tensor.storage import past

_READS: list[Callable[[Tensor], object]] = [
    Tensor.realize,
    Tensor.numpy,
    Tensor.tolist,
    lambda y: y.sum().item(),
]


@pytest.mark.parametrize("read", _READS[:3], ids=["realize", "numpy", "tolist"])
def test_the_gradient_through_a_value_that_was_read_is_refused(
    read: Callable[[Tensor], object],
) -> None:
    x = Tensor([1.0, 2.0])
    y = x * x
    read(y)
    with pytest.raises(TilegradError, match="requires_grad=True"):
        y.sum().gradient(x)


@pytest.mark.parametrize("read", _READS, ids=["realize", "numpy", "tolist", "sum"])
@pytest.mark.parametrize("steps", [1, 3, 4, 5, 9])
def test_a_gradient_after_reads_is_right_or_refused(
    read: Callable[[Tensor], object], steps: int
) -> None:
    """What other values are computed from is known for three runs."""
    x = Tensor([0.5, 2.0]).realize()
    y, slope, value = x, np.ones(2), np.array([0.5, 2.0])
    for _ in range(steps):
        # By the weight `x` too: a part of the way is always left.
        y, slope, value = y * x * 0.5, (slope * [0.5, 2.0] + value) * 0.5, value * [0.25, 1.0]
        read(y)
    total = (y * 2).sum()
    if read is _READS[3] and steps <= 3:
        (found,) = total.gradient(x)
        close(found, slope * 2, 1e-4)
    else:
        with pytest.raises(TilegradError, match="given back"):
            total.gradient(x)


def test_a_part_of_a_gradient_is_refused() -> None:
    x = Tensor([0.5, 2.0])
    y = (x * x).realize()
    with pytest.raises(TilegradError, match="given back"):
        (y * x).sum().gradient(x)


def test_the_past_of_the_past_is_known() -> None:
    x = Tensor([0.5, 2.0]).realize()
    y = x
    for _ in range(12):
        y = (y * 1.5).realize()
    with pytest.raises(TilegradError, match="given back"):
        y.sum().gradient(x)


def test_what_a_value_does_not_depend_on_has_no_gradient() -> None:
    x, z = Tensor([1.0, 2.0]).realize(), Tensor([3.0]).realize()
    y = (x * x).realize()
    assert (y * 2).sum().gradient(z) == [None]


def test_what_was_detached_is_no_way() -> None:
    x = Tensor([1.0, 2.0]).realize()
    data = (x * 3).realize().detach()
    made = (x.detach() * 3).realize()
    (found,) = (x * data + made).sum().gradient(x)
    close(found, [3.0, 6.0])


def test_a_value_that_was_read_is_differentiated_as_a_target() -> None:
    x = Tensor([1.0, 2.0]).realize()
    y = (x * x).realize()
    (found,) = (y * y).sum().gradient(y)
    close(found, [2.0, 8.0])


def test_backward_refuses_what_required_a_gradient_too_late() -> None:
    x = Tensor([1.0, 2.0]).realize()
    y = (x * x).realize()
    x.requires_grad = True
    with pytest.raises(TilegradError, match="given back"):
        (y + x).sum().backward()


def test_the_past_of_a_loop_has_a_constant_size() -> None:
    x, y = Tensor([0.5, 2.0]).realize(), Tensor([1.0, 1.0])
    sizes = []
    for _ in range(40):
        y = (y * x).realize()
        found = past.pasts[y.uop.arg.slot]
        sizes.append((len(found.nodes), len(found.links)))
    assert max(sizes[10:]) <= max(sizes[:10])


def test_a_long_loop_keeps_the_runs_of_its_last_steps_only() -> None:
    """Of each run a record was kept, by way of the past of the state before it."""
    x, y = Tensor([0.5, 2.0]).realize(), Tensor([1.0, 1.0]).realize()
    counts = []
    this_thread.pool.end()
    this_thread.pool.count_hit()
    with Context(TEMPLATES=1, SEGMENTS=1):
        for step in range(400):
            y = y * x
            y = y / y.sum()
            y.max().item()
            if step in (199, 399):
                gc.collect()
                counts.append(sum(type(each) is past._Run for each in gc.get_objects()))
    assert counts[0] > 0
    assert counts[1] <= counts[0] + 64


def test_gradients_through_time_are_exact_though_each_state_is_read() -> None:
    steps = 50
    w0, u0 = numbers(4, 4) * 0.4, numbers(3, 4, seed=1) * 0.5
    data = numbers(steps, 2, 3, seed=2)
    w, u = Tensor(w0, requires_grad=True), Tensor(u0, requires_grad=True)
    hidden, states = Tensor.zeros(2, 4), [np.zeros((2, 4))]
    for step in range(steps):
        hidden = (hidden @ w + Tensor(data[step]) @ u).tanh()
        states.append(np.tanh(states[-1] @ w0.astype(np.float64) + data[step] @ u0))
        close(hidden, states[-1], 1e-3)
    (hidden * hidden).sum().backward()
    flow, gw, gu = 2 * states[-1], np.zeros((4, 4)), np.zeros((3, 4))
    for step in reversed(range(steps)):
        inner = flow * (1 - states[step + 1] ** 2)
        gw, gu = gw + states[step].T @ inner, gu + data[step].T @ inner
        flow = inner @ w0.T
    assert w.grad is not None and u.grad is not None
    close(w.grad, gw, 2e-3)
    close(u.grad, gu, 2e-3)


@pytest.mark.parametrize("steps", range(1, 8))
def test_the_gradient_of_a_chain_of_values_that_were_read_is_refused(steps: int) -> None:
    """However many of its values the runs between the reads have computed beside."""
    weights = Tensor(numbers(4, 4, seed=1)).realize()
    state = first = Tensor(numbers(4, 4)).realize()
    for _ in range(steps):
        a = state @ weights
        b = a.softmax(1) @ weights
        read = b.exp().sum()
        read.item()
        state = b
        del a
    with pytest.raises(TilegradError, match="its graph was given back"):
        read.gradient(first)


def test_what_is_two_kept_values_away_is_refused() -> None:
    first, weights = Tensor(numbers(4, 4)).realize(), Tensor(numbers(4, 4, seed=1)).realize()
    state = first
    for _ in range(9):
        a = state @ weights
        b = a.softmax(1) @ weights
        read = b.exp().sum()
        read.item()
        state = b
        del a
    with pytest.raises(TilegradError, match="graph was given back"):
        read.gradient(first)
