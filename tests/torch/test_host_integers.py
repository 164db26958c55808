"""Elements and rows of tensors in memory, and integers made of them: the values and the views are
PyTorch's, and a loop over them runs no kernel for what only has to be picked.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
from tilegrad import Context, GlobalCounters
from tilegrad.base.trace import counters

theirs = pytest.importorskip("torch")

# Kernels are counted: the switches that compare two ways run both.
ONCE = Context(TEMPLATES=1, SEGMENTS=1, SIZES=1)
INTEGERS = np.array([5, -7, 0, 3, -128, 127, 2, 9], np.int64)
OPERATIONS: list[Callable[[Any], Any]] = [
    lambda i: i + 1, lambda i: 1 + i, lambda i: 3 - i, lambda i: i * 5, lambda i: -i,
    lambda i: i // 3, lambda i: i % 4, lambda i: i > 2, lambda i: i == 3, lambda i: (i + 1) * 2 - 3,
    lambda i: i & 6, lambda i: i ^ 5, lambda i: i << 2, lambda i: i.abs(), lambda i: i.clamp(0, 4),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(OPERATIONS)))
@pytest.mark.parametrize("dtype", ["int64", "int32", "int8", "uint8"])
def test_integers_computed_from_elements_are_pytorchs(number: int, dtype: str) -> None:
    """Also where they wrap around, and where the call is known by its template."""
    operation = OPERATIONS[number]
    array = INTEGERS.astype(dtype)
    own, other = torch.from_numpy(array), theirs.from_numpy(array)
    for index in range(len(array)):
        found, expected = operation(own[index]), operation(other[index])
        assert found.item() == expected.item()
        assert type(found.item()) is type(expected.item())
    assert int(operation(own[3])) == int(operation(other[3]))


def test_elements_compare_as_the_floats_that_they_are() -> None:
    values = np.array([0.1, np.nan, -0.0, np.inf, 0.1 + 1e-8], np.float32)
    for index in range(len(values)):
        for compare in (operator.gt, operator.lt, operator.eq, operator.ne):
            own = compare(torch.from_numpy(values)[index], 0.1)
            assert bool(own) is bool(compare(theirs.from_numpy(values)[index], 0.1))


def test_a_counter_that_is_read_at_each_step_counts_on() -> None:
    count, whole = torch.tensor(0), torch.zeros(3, dtype=torch.int64)
    for step in range(1, 40):
        count = count + 1
        whole = whole + 2
        assert count.item() == step
        assert whole[step % 3].item() == 2 * step


def test_integers_of_tensors_are_bounds_of_slices() -> None:
    """`get_batch` of a language model, written as in nanoGPT."""
    data = np.arange(500, dtype=np.int64) * 7 % 61
    starts = np.random.default_rng(3).integers(0, 480, (60, 4))
    own, other = torch.from_numpy(data), theirs.from_numpy(data)
    for row in starts:
        ix, expected = torch.from_numpy(row), theirs.from_numpy(row)
        for shift in (0, 1):
            found = torch.stack([own[i + shift : i + shift + 8] for i in ix])
            wanted = theirs.stack([other[i + shift : i + shift + 8] for i in expected])
            np.testing.assert_array_equal(found.numpy(), wanted.numpy())


@ONCE
def test_what_is_picked_of_memory_takes_no_kernel() -> None:
    table = torch.from_numpy(np.arange(1200, dtype=np.float32).reshape(30, 40))
    order = torch.from_numpy(np.random.default_rng(1).permutation(30))
    table[0].tolist()
    before = GlobalCounters.kernel_count
    for row, i in zip(table, order):
        assert row[3].item() == row.tolist()[3]
        assert table[i, 2].item() == 40.0 * int(i) + 2
        assert table[:, int(i) + 1].tolist()[2] == 81.0 + int(i)
        assert table[i : i + 2].numpy().shape[1] == 40
    assert GlobalCounters.kernel_count == before


@pytest.mark.parametrize("is_constant", [False, True])
def test_slices_at_new_positions_compile_nothing(is_constant: bool) -> None:
    """Of an array, and of a constant such as `arange`."""
    x = torch.arange(700.0) if is_constant else torch.from_numpy(np.arange(700, dtype=np.float32))
    for step in range(60):
        if step == 8:
            before = counters.schedules
        at = step * 11
        found = (x[at : at + 16] * 2 + x[at]).sum().item()
        assert found == 2 * sum(range(at, at + 16)) + 16 * at
    assert counters.schedules == before


def _step(rng: np.random.Generator, whole: Any, views: list[Any], number: float) -> None:
    """One of the things that programs do with a tensor and its views."""
    which, at = rng.integers(8), int(rng.integers(5))
    target = views[at % len(views)] if views else whole
    if which == 0:
        views.append(whole[at])
    elif which == 1:
        views.append(whole[at : at + 2])
    elif which == 2:
        views.append(whole[:, at % 3])
    elif which == 3:
        target[...] = number
    elif which == 4:
        target += number
    elif which == 5:
        whole[at, at % 3] = number
    elif which == 6:
        whole *= 0.5
    else:
        views.append(target[0] if target.ndim > 1 else target[1:])
    del views[:-4]


@pytest.mark.parametrize("seed", range(40))
def test_views_of_memory_see_what_is_written_as_numpys_do(seed: int) -> None:
    array = np.random.default_rng(seed).normal(size=(6, 3)).astype(np.float32)
    own, other = torch.from_numpy(array.copy()), array.copy()
    if seed % 2:
        own = (own + 0).contiguous()
        own.tolist()
    own_views: list[Any] = []
    other_views: list[Any] = []
    rngs = [np.random.default_rng(seed + 1000) for _ in range(2)]
    for step in range(25):
        _step(rngs[0], own, own_views, step * 0.25)
        _step(rngs[1], other, other_views, step * 0.25)
        if step % 3 == seed % 3:
            for mine, wanted in zip(own_views, other_views):
                np.testing.assert_allclose(mine.numpy(), wanted, rtol=1e-6)
            np.testing.assert_allclose(own.numpy(), other, rtol=1e-6)


def test_a_view_that_is_trained_has_the_gradient_of_its_elements() -> None:
    x = torch.from_numpy(np.arange(6, dtype=np.float32).reshape(3, 2))
    row = x[1]
    row.requires_grad_()
    (row * x[2]).sum().backward()
    assert row.grad is not None
    assert row.grad.tolist() == [4.0, 5.0]
    assert x.grad is None


@ONCE
def test_elements_updated_by_what_is_computed_of_others_plan_nothing_new() -> None:
    """Tabular Q-learning: other elements at each step, by `+=` and by `=`."""
    rng = np.random.default_rng(5)
    own, other = torch.zeros(12, 4), np.zeros((12, 4), np.float32)
    for step in range(80):
        if step == 40:
            before = counters.schedules
        state, action, following = (int(rng.integers(most)) for most in (12, 4, 12))
        reward = np.float32(rng.random())
        if step % 3:
            own[state, action] += 0.5 * (
                float(reward) + 0.75 * own[following].max() - own[state, action]
            )
            other[state, action] += np.float32(0.5) * (
                reward + np.float32(0.75) * other[following].max() - other[state, action]
            )
        else:
            own[state, action] = own[following].mean() + float(reward)
            other[state, action] = other[following].mean() + reward
        if step % 5 == 0:
            np.testing.assert_allclose(own.numpy(), other, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(own.numpy(), other, rtol=1e-5, atol=1e-6)
    # The steps of each kind, once their numbers have changed.
    assert counters.schedules - before <= 2
