"""Gradients through slices that were written one after the other, where the memory was read before:
what steps have read is found in what the memory holds now.

The expected gradients are central differences of the same programs in NumPy.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.fresh import forget
from tilegrad import Context, Tensor, dtypes
from tilegrad.engine.realize import noted_writes
from tilegrad.engine.realize.noted_writes import box_of
from tilegrad.engine.run.leaf_memory import buffers
from tilegrad.ir.op import Ops

START = np.array([[0.3, 0.2, -0.1], [0.1, -0.4, 0.25], [0.2, 0.1, 0.3]])
STEPS = 4
Values = Any
Program = Callable[[Values, Values, Callable[[Values], None]], Values]


def one_after_the_other(w: Values, out: Values, look: Callable[[Values], None]) -> Values:
    """Each row of the row before."""
    for t in range(STEPS):
        out[t + 1] = tanh((out[t] + 1) @ w)
        look(out)
    return (out * out).sum()


def of_all_before(w: Values, out: Values, look: Callable[[Values], None]) -> Values:
    """Each row of all rows before, as the stages of a Runge-Kutta method."""
    out[0] = tanh(w.sum(0) + 0.5)
    for t in range(STEPS):
        out[t + 1] = tanh((out[: t + 1] * 0.5).sum(0) @ w + 0.3)
        look(out)
    return (out * out).sum()


def along_columns(w: Values, out: Values, look: Callable[[Values], None]) -> Values:
    """Columns of the transposed memory, from the last to the first."""
    rows = out.T
    for t in reversed(range(STEPS)):
        rows[:, t] = tanh(w @ (rows[:, t + 1] + 1))
        look(out)
    return (out * out).sum()


def of_flipped_rows(w: Values, out: Values, look: Callable[[Values], None]) -> Values:
    for t in range(STEPS):
        out[t + 1] = tanh((flipped(out)[STEPS - t] * 2 + 0.5) @ w)
        look(out)
    return (out * out).sum()


def two_memories(w: Values, out: Values, look: Callable[[Values], None]) -> Values:
    other = out * 0.5
    for t in range(STEPS):
        out[t + 1] = tanh((other[t] + 1) @ w)
        other[t + 1] = tanh(out[t + 1] @ w) + other[t]
        look(other)
    return (out * other).sum()


def overlapping(w: Values, out: Values, look: Callable[[Values], None]) -> Values:
    """Each row of its neighbours, in place: what a step read is nowhere any more, and is computed
    again.
    """
    for _ in range(STEPS):
        out[1:-1] += tanh((out[2:] - 0.5 * out[1:-1] * out[:-2]) @ w)
        look(out)
        out[:, 1:] = out[:, :-1] * out[:, 1:] + 0.25
        look(out)
    return (out * out).sum()


PROGRAMS = (
    one_after_the_other, of_all_before, along_columns, of_flipped_rows, two_memories, overlapping,
)  # fmt: skip


def tanh(x: Values) -> Values:
    return np.tanh(x) if isinstance(x, np.ndarray) else x.tanh()


def flipped(x: Values) -> Values:
    return x[::-1] if isinstance(x, np.ndarray) else x.flip(0)


def expected(program: Program) -> np.ndarray:
    """Central differences, in float64."""
    found = np.zeros_like(START)
    step = 1e-6
    for position in itertools.product(range(3), range(3)):
        values = []
        for sign in (1, -1):
            w = START.copy()
            w[position] += sign * step
            values.append(program(w, 0.2 * np.ones((STEPS + 1, 3)), lambda out: None))
        found[position] = (values[0] - values[1]) / (2 * step)
    return found


def gradient(program: Program, when: str) -> np.ndarray:
    w = Tensor(START, dtype=dtypes.float64, requires_grad=True)
    out = (Tensor.ones(STEPS + 1, 3, dtype=dtypes.float64) * 0.2).contiguous()
    loss = program(w, out, lambda of: of.sum().item() if when == "each step" else None)
    if when != "never":
        loss.item()
    loss.backward()
    assert w.grad is not None
    return w.grad.numpy()


@pytest.mark.parametrize("when", ["never", "at the end", "each step"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_was_read_is_found_in_what_is_there(program: Program, when: str) -> None:
    wanted = expected(program)
    # Several times, as the calls of a loop that comes again make no nodes.
    for _ in range(4):
        np.testing.assert_allclose(gradient(program, when), wanted, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    ("program", "when"),
    [
        (one_after_the_other, "never"),
        (one_after_the_other, "each step"),
        (overlapping, "at the end"),
        pytest.param(one_after_the_other, "at the end", marks=pytest.mark.nightly),
        pytest.param(overlapping, "never", marks=pytest.mark.nightly),
        pytest.param(overlapping, "each step", marks=pytest.mark.nightly),
    ],
)
def test_gradients_of_gradients(program: Program, when: str) -> None:
    """Of the sum of the squares of a gradient."""

    def squares(w: np.ndarray) -> float:
        total, step = 0.0, 1e-4
        for position in itertools.product(range(3), range(3)):
            values = []
            for sign in (1, -1):
                moved = w.copy()
                moved[position] += sign * step
                start = 0.2 * np.ones((STEPS + 1, 3))
                values.append(program(moved, start, lambda out: None))
            total += ((values[0] - values[1]) / (2 * step)) ** 2
        return total

    w = Tensor(START, dtype=dtypes.float64, requires_grad=True)
    out = (Tensor.ones(STEPS + 1, 3, dtype=dtypes.float64) * 0.2).contiguous()
    loss = program(w, out, lambda of: of.sum().item() if when == "each step" else None)
    if when != "never":
        loss.item()
    (first,) = loss.gradient(w)
    if when == "each step":
        first.sum().item()
    (first * first).sum().backward()
    assert w.grad is not None
    for position in ((0, 0), (1, 2), (2, 1)):
        moved = [START.copy(), START.copy()]
        moved[0][position] += 1e-4
        moved[1][position] -= 1e-4
        wanted = (squares(moved[0]) - squares(moved[1])) / 2e-4
        assert w.grad.numpy()[position] == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("when", ["never", "at the end", "each step"])
@pytest.mark.parametrize("program", [one_after_the_other, overlapping])
def test_nothing_is_kept_of_it(program: Program, when: str) -> None:
    forget()
    before, noted = len(buffers()), len(noted_writes._later)
    for _ in range(5):
        gradient(program, when)
    gc.collect()
    assert len(buffers()) == before
    assert len(noted_writes._later) == noted


@pytest.mark.parametrize("is_constant", [False, True])
def test_a_slice_that_was_written_again(is_constant: bool) -> None:
    """PyTorch refuses this one; what was read is still known, or computed again."""
    w = Tensor(START, dtype=dtypes.float64, requires_grad=True)
    if is_constant:
        out = Tensor.ones(3, 3, dtype=dtypes.float64).contiguous().realize()
    else:
        out = (Tensor(np.full((3, 3), 0.5)) * 2).realize()
    read = (out[0] * 1.5).exp() @ w
    out[1] = read
    out.sum().item()
    loss = (out * out).sum()
    loss.item()
    out[0] = Tensor.zeros(3, dtype=dtypes.float64)
    out.sum().item()
    loss.backward()
    assert w.grad is not None
    row = np.exp(np.full(3, 1.5))
    np.testing.assert_allclose(w.grad.numpy(), 2 * np.outer(row, row @ START), rtol=1e-12)


def test_a_later_write_outside_of_the_graph_counts() -> None:
    def run(row: int) -> Tensor:
        w = Tensor(START, dtype=dtypes.float64, requires_grad=True)
        out = Tensor.ones(4, 3, dtype=dtypes.float64).contiguous().realize()
        out[1] = (out[0] + 1).exp() @ w
        loss = (out[1] * out[1]).sum()
        loss.item()
        out.detach()[row] = 7.0
        out.sum().item()
        loss.backward()
        assert w.grad is not None
        return w.grad

    row = np.exp(np.full(3, 2.0))
    # The loss is the sum of squares of row @ w.
    wanted = 2 * np.outer(row, row @ START)
    # PyTorch refuses the second one; what was read is kept here.
    for written in (3, 0, 3, 0):
        np.testing.assert_allclose(run(written).numpy(), wanted, rtol=1e-12)


def test_random_boxes_hold_what_their_views_see() -> None:
    random = np.random.default_rng(3)
    for _ in range(300):
        sizes = tuple(int(each) for each in random.integers(1, 5, size=random.integers(1, 4)))
        seen = np.arange(np.prod(sizes)).reshape(sizes)
        moves: list[Any] = []
        for _ in range(random.integers(0, 5)):
            kind = random.integers(0, 4)
            if kind == 0:
                starts = [int(random.integers(0, size)) for size in seen.shape]
                ends = [int(random.integers(s + 1, n + 1)) for s, n in zip(starts, seen.shape)]
                moves.append((Ops.SHRINK, tuple(zip(starts, ends))))
                seen = seen[tuple(slice(s, e) for s, e in zip(starts, ends))]
            elif kind == 1:
                order = tuple(int(each) for each in random.permutation(seen.ndim))
                moves.append((Ops.PERMUTE, order))
                seen = seen.transpose(order)
            elif kind == 2:
                which = tuple(bool(each) for each in random.integers(0, 2, size=seen.ndim))
                moves.append((Ops.FLIP, which))
                seen = np.flip(seen, [axis for axis, is_it in enumerate(which) if is_it])
            else:
                long = [size for size in seen.shape if size != 1]
                at = int(random.integers(0, len(long) + 1))
                shape = (*long[:at], 1, *long[at:]) if random.integers(2) else (seen.size,)
                moves.append((Ops.RESHAPE, shape))
                seen = seen.reshape(shape)
        box = np.zeros(sizes, bool)
        box_found = box_of(moves, sizes)
        box[tuple(slice(first, end) for first, end in box_found)] = True
        assert box.reshape(-1)[seen.reshape(-1)].all()
        if all(op is not Ops.RESHAPE for op, _ in moves):
            assert box.sum() == seen.size


@pytest.mark.parametrize("when", ["at the end", "each step"])
@pytest.mark.parametrize("program", [one_after_the_other, overlapping])
def test_with_templates_and_segments_compared(program: Program, when: str) -> None:
    wanted = expected(program)
    for switches in ({"TEMPLATES": 2}, {"SEGMENTS": 2}, {"SIZES": 2}, {"TEMPLATES": 0}):
        with Context(**switches):
            for _ in range(3):
                found = gradient(program, when)
                np.testing.assert_allclose(found, wanted, rtol=1e-7, atol=1e-9)
