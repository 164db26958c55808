"""Caches that are written by slices and read up to a length: values beside NumPy's, whoever else
looks at the memory, and how much a step plans and copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
from tests.engine.test_price import in_a_process
from tilegrad import Tensor
from tilegrad.base.trace import counters

HEADS, WIDTH = 2, 8


def _normal(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def _scores(q: Any, keys: Any) -> Any:
    """The scores of one row against all keys."""
    return q @ keys.swapaxes(-1, -2)


def _orders() -> Iterator[Any]:
    random = np.random.default_rng(5)
    yield [(at, at + 1) for at in range(24)]
    yield [(at, 24 - at) for at in range(23)]
    yield [(int(random.integers(0, 40)), int(random.integers(1, 40))) for _ in range(40)]


@pytest.mark.parametrize("make", [torch.tensor, Tensor], ids=["torch", "tensor"])
@pytest.mark.parametrize("size", [40, 1200])
@pytest.mark.parametrize("order", list(_orders()), ids=["growing", "shrinking", "any"])
@pytest.mark.parametrize("is_number", [False, True], ids=["slice", "number"])
def test_values_are_those_of_numpy(make: Any, size: int, order: Any, is_number: bool) -> None:
    """A row is written and a prefix read at each step, small memory and large."""
    memory = np.zeros((HEADS, size, WIDTH), np.float32)
    cache, weight = make(memory.copy()), _normal(1, WIDTH, WIDTH)
    with torch.no_grad():
        for step, (at, length) in enumerate(order):
            row = _normal(step, HEADS, 1, WIDTH)
            expected = row @ weight
            memory[:, at : at + 1] = expected
            given = make(row) @ make(weight)
            if is_number:
                cache[:, at] = given[:, 0]
            else:
                cache[:, at : at + 1] = given
            scores = given @ cache[:, :length].transpose(-1, -2)
            np.testing.assert_allclose(
                scores.numpy(), _scores(expected, memory[:, :length]), rtol=2e-4, atol=1e-5
            )
    np.testing.assert_allclose(cache.numpy(), memory, rtol=1e-4, atol=1e-5)


def test_who_waits_for_the_old_value_gets_it() -> None:
    """A sum of what was there is read after many writes."""
    cache = torch.tensor(_normal(2, 300, 64))
    memory = _normal(2, 300, 64)
    waiting, expected = [], []
    with torch.no_grad():
        for at in range(12):
            row = torch.tensor(_normal(at, 1, 64)) * 2
            cache[at : at + 1] = row
            memory[at : at + 1] = _normal(at, 1, 64) * 2
            waiting.append((cache[: at + 2] * 3).sum(0))
            expected.append((memory[: at + 2] * 3).sum(0))
        for mine, theirs in zip(reversed(waiting), reversed(expected)):
            np.testing.assert_allclose(mine.numpy(), theirs, rtol=1e-4, atol=1e-4)


def test_views_see_what_is_written() -> None:
    """Views made before a write look at the memory after it; a clone does not."""
    cache = torch.tensor(_normal(3, 300, 64))
    view, turned, kept = cache[4:9], cache.T, cache.clone()
    before = _normal(3, 300, 64)
    after = before.copy()
    with torch.no_grad():
        for at in range(10):
            cache[at : at + 1] = torch.tensor(_normal(at + 50, 1, 64)) + 1
            after[at : at + 1] = _normal(at + 50, 1, 64) + 1
            np.testing.assert_array_equal(view.numpy(), after[4:9])
            np.testing.assert_array_equal(turned.numpy(), after.T)
    np.testing.assert_array_equal(kept.numpy(), before)


def test_an_array_that_was_given_out_keeps_its_values() -> None:
    """What `numpy()` of the memory gave is a value, not a view of a later one."""
    cache = Tensor(_normal(4, 300, 64)).realize()
    for at in range(8):
        seen = cache.numpy()
        copied = seen.copy()
        cache[at : at + 1] = Tensor(_normal(at, 1, 64)) + 1
        np.testing.assert_array_equal(seen, copied)
        np.testing.assert_array_equal(cache[at].numpy(), _normal(at, 1, 64)[0] + 1)


def test_a_gradient_goes_to_what_was_there() -> None:
    """A loss that was made of the memory before a write has the gradient of the old value."""
    cache, weight = torch.tensor(_normal(5, 300, 64)), torch.tensor(_normal(6, 64))
    weight.requires_grad_(True)
    before = _normal(5, 300, 64)
    loss = (cache[:7] @ weight).sum()
    with torch.no_grad():
        for at in range(6):
            cache[at : at + 1] = torch.tensor(_normal(at, 1, 64)) + 1
    loss.backward()
    np.testing.assert_allclose(weight.grad.numpy(), before[:7].sum(0), rtol=1e-4, atol=1e-5)


def test_a_slice_of_itself() -> None:
    """The value may be a view of the memory that is written."""
    cache = torch.tensor(_normal(7, 300, 64))
    memory = _normal(7, 300, 64)
    with torch.no_grad():
        for at in range(8):
            cache[at + 1 : at + 4] = cache[at : at + 3]
            memory[at + 1 : at + 4] = memory[at : at + 3].copy()
    np.testing.assert_array_equal(cache.numpy(), memory)


def test_a_value_of_another_dtype_or_shape() -> None:
    """The value is converted and stretched as by PyTorch; one that does not fit is an error."""
    cache = torch.tensor(_normal(8, 300, 64))
    with torch.no_grad():
        cache[3:5] = torch.arange(64)
        cache[7:9, 2:4] = torch.tensor([[1.5], [2.5]], dtype=torch.float64) * 2
        cache[11] = torch.tensor(_normal(9, 1, 1, 64)) * 1
        with pytest.raises(RuntimeError):
            cache[1:3] = torch.ones(5, 64) * torch.tensor(2.0)
    found = cache.numpy()
    np.testing.assert_array_equal(found[3:5], np.tile(np.arange(64.0), (2, 1)))
    np.testing.assert_array_equal(found[7:9, 2:4], [[3, 3], [5, 5]])
    np.testing.assert_array_equal(found[11], _normal(9, 1, 1, 64)[0, 0])


def _decoded(size: int) -> tuple[int, int, int]:
    """Plans and kernels of the last steps of a decoder, and how often its memory moved."""
    keys, weight = torch.zeros(HEADS, size, 64), torch.tensor(_normal(1, 64, 64) * 0.1)
    x = torch.tensor(_normal(2, HEADS, 1, 64))
    moved, before, last = 0, (0, 0), None
    with torch.no_grad():
        for at in range(60):
            if at == 20:
                before = counters.schedules, counters.compiles
            keys[:, at : at + 1] = x @ weight
            seen = keys[:, : at + 1]
            x = ((x @ seen.transpose(1, 2)).softmax(-1) @ seen + x).tanh()
            x.sum().item()
            buffer = None if keys._call is None else keys._call.value.buffer
            moved += at > 20 and buffer is not last
            last = buffer
    return counters.schedules - before[0], counters.compiles - before[1], moved


def decoded_small() -> tuple[int, int, int]:
    return _decoded(128)


def decoded_large() -> tuple[int, int, int]:
    return _decoded(2048)


@pytest.mark.parametrize("run", [decoded_small, decoded_large], ids=["small", "large"])
def test_later_steps_plan_and_copy_nothing(run: Any) -> None:
    """No length and no position is part of a plan, and the memory stays where it is."""
    assert in_a_process(run) == (0, 0, 0)
