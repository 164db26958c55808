"""Kernels over slices at many offsets of one graph are one: a loop over rows has few kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilegrad import Context, Tensor, jit
from tilegrad.base.trace import counters

RNG = np.random.default_rng(5)


def rows_by_steps(w: Any, h: Any, steps: int) -> Any:
    """What a recurrent network writes, row after row."""
    out = Tensor.zeros(steps, *h.shape).contiguous()
    for t in range(steps):
        h = (h @ w).tanh()
        out[t] = h
    return out


def expected_rows(w: Any, h: Any, steps: int) -> Any:
    found = []
    for _ in range(steps):
        h = np.tanh(h @ w)
        found.append(h)
    return np.stack(found)


def compiled(steps: int, size: int) -> int:
    """The number of kernels that a new plan of `steps` steps compiles; its results are checked."""
    w, h = RNG.random((size, size)).astype("f") / size, RNG.random((3, size)).astype("f")
    before = counters.compiles
    found = rows_by_steps(Tensor(w), Tensor(h), steps)
    np.testing.assert_allclose(
        found.numpy(), expected_rows(w.astype("f8"), h.astype("f8"), steps), rtol=1e-5, atol=1e-7
    )
    return counters.compiles - before


# The sizes are no other test's, so that no kernel is known.
@pytest.mark.parametrize("size", [16, 19])
def test_a_loop_of_writes_has_few_kernels(size: int) -> None:
    with Context(TEMPLATES=1, SEGMENTS=1, SIZES=1, PARALLEL=0):
        assert compiled(13, size) <= 8
        assert compiled(26, size) <= 8


def test_the_gradient_of_a_loop_of_writes() -> None:
    """Backpropagation through time, by hand in float64."""
    size, steps = 18, 12
    w, h = RNG.random((size, size)).astype("f") / size, RNG.random((3, size)).astype("f")
    weight = RNG.random((steps, 3, size)).astype("f")
    given = Tensor(w).requires_grad_()
    before = counters.compiles
    with Context(PARALLEL=0):
        (rows_by_steps(given, Tensor(h), steps) * Tensor(weight)).sum().backward()
        assert given.grad is not None
        found = given.grad.numpy()
    assert counters.compiles - before <= 20
    rows = expected_rows(w.astype("f8"), h.astype("f8"), steps)
    total, above = np.zeros((size, size)), np.zeros((3, size))
    for t in reversed(range(steps)):
        inner = (weight[t] + above) * (1 - rows[t] ** 2)
        total += (rows[t - 1] if t else h).T @ inner
        above = inner @ w.T
    np.testing.assert_allclose(found, total, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("device", ["CPU", "CLANG", "EMU"])
@pytest.mark.parametrize("length", [4, 5])
def test_slices_that_are_read_at_many_offsets(length: int, device: str) -> None:
    values = RNG.random(8 * length).astype("f")
    x = Tensor(values, device=device).realize()
    # Each maximum takes the one before, so that they are kernels of their own.
    found, expected = x[:length].contiguous(), values[:length].astype("f8")
    for start in range(length, 8 * length, length):
        found = (found.sum() + x[start : start + length]).contiguous()
        expected = expected.sum() + values[start : start + length]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)


def test_offsets_with_nothing_in_common_and_captures() -> None:
    """Odd offsets, the largest that fits among them; a replay takes the same ones."""
    values = RNG.random((6, 31)).astype("f")
    starts = [1, 2, 5, 11, 17, 24]

    @jit
    def gathered(x: Any) -> Any:
        found = x[0, :7].contiguous()
        for row, start in enumerate(starts):
            found = (found.sum() * 0.01 + x[row, start : start + 7]).contiguous()
        return found

    for _ in range(5):
        values += 1
        expected = values[0, :7].astype("f8")
        for row, start in enumerate(starts):
            expected = expected.sum() * 0.01 + values[row, start : start + 7]
        np.testing.assert_allclose(gathered(Tensor(values)).numpy(), expected, rtol=1e-5)


def test_a_row_that_is_computed_from_the_row_before() -> None:
    """Such kernels read the memory that they write: their offsets stay numbers."""
    out = Tensor.zeros(9, 20).contiguous()
    out[0] = 1
    for t in range(8):
        out[t + 1] = out[t] * 1.5 + t
    expected = [1.0]
    for t in range(8):
        expected.append(expected[-1] * 1.5 + t)
    np.testing.assert_allclose(out.numpy(), np.repeat(np.array(expected)[:, None], 20, 1))
