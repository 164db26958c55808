"""Windows of memory at one place after the other: one plan serves all places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilegrad import Context, GlobalCounters, Tensor, dtypes, jit
from tilegrad.base.trace import counters
from tilegrad.ir.args import BufferArg
from tilegrad.ir.op import Ops
from tilegrad.ir.slices import find_slices
from tilegrad.ir.uop import UOp


def array(*shape: int) -> Any:
    count = int(np.prod(shape))
    return np.arange(count, dtype=np.float32).reshape(shape) % 251


def work() -> tuple[int, int]:
    return counters.schedules, counters.compiles


def test_from_the_second_place_on_nothing_is_made() -> None:
    values = array(4099)
    data = Tensor(values).realize()
    for place in (3, 17):
        (data[place : place + 23] * 2.5).realize()
    before = work()
    for place in (0, 1, 64, 1000, 4099 - 23):
        got = (data[place : place + 23] * 2.5).numpy()
        np.testing.assert_array_equal(got, values[place : place + 23] * np.float32(2.5))
    assert work() == before


@pytest.mark.usefixtures("nothing_known")
def test_a_call_that_moves_is_known_in_the_graph_of_the_second_step() -> None:
    """The first step of a loop has a graph of its own. The second one's has both slices, and is
    the graph of all further ones, wherever they begin.
    """
    values = array(400) / 251
    series, w, weights = Tensor(values).realize(), Tensor(np.zeros(32, np.float32)), np.zeros(32)
    before = counters.schedules
    for step in range(12):
        seen, comes = series[step : step + 32], series[step + 32]
        error = (seen * w).sum() - comes
        w = w - 0.01 * error * seen
        expected = values[step : step + 32] @ weights - values[step + 32]
        weights = weights - 0.01 * expected * values[step : step + 32]
        np.testing.assert_allclose(error.item(), expected, rtol=1e-4, atol=1e-5)
    assert counters.schedules - before <= 2


def test_windows_of_every_kind() -> None:
    """Columns, rows, blocks, turned and reversed ones have NumPy's values."""
    values = array(24, 30, 5)
    data = Tensor(values).realize()
    rng = np.random.default_rng(5)
    for _ in range(5):
        i, j, k = (int(rng.integers(0, high)) for high in (20, 25, 5))
        picks = [
            (data[i], values[i]),
            (data[:, j], values[:, j]),
            (data[i : i + 4, j : j + 5, k], values[i : i + 4, j : j + 5, k]),
            (data[i : i + 4].flip(0), values[i : i + 4][::-1]),
            (data.permute(2, 0, 1)[k, i : i + 3], values.transpose(2, 0, 1)[k, i : i + 3]),
            (data.reshape(-1)[i * 7 : i * 7 + 50 : 3], values.reshape(-1)[i * 7 : i * 7 + 50 : 3]),
            (
                data[i : i + 3].pad(((1, 2), (0, 0), (0, 0))),
                np.pad(values[i : i + 3], ((1, 2), (0, 0), (0, 0))),
            ),
        ]
        for got, expected in picks:
            np.testing.assert_array_equal((got + 1).numpy(), expected + 1)
            np.testing.assert_allclose(
                (got * 2).sum().numpy(), (expected.astype(np.float64) * 2).sum(), rtol=1e-6
            )


def test_many_windows_in_one_graph_share_a_kernel() -> None:
    """A loop over the columns, as a user writes a recurrent layer."""
    steps, width = 12, 16
    inputs, weight = array(4, steps, width) / 251, array(width, width) / 4096
    xs, w = Tensor(inputs).realize(), Tensor(weight).realize()
    before = work()
    h, expected = Tensor.zeros(4, width), np.zeros((4, width))
    for step in range(steps):
        h = (xs[:, step] + h @ w).tanh()
        expected = np.tanh(inputs[:, step] + expected @ weight.astype(np.float64))
    np.testing.assert_allclose(h.numpy(), expected, rtol=1e-5)
    schedules, compiles = work()
    assert schedules - before[0] == 1 and compiles - before[1] <= 5


def test_random_batches_of_a_text() -> None:
    values = np.random.default_rng(3).integers(0, 90, 5000).astype(np.int32)
    data = Tensor(values).realize()
    made = []
    for seed in range(4):
        places = np.random.default_rng(seed).integers(0, 4900, 16).tolist()
        before = work()
        batch = Tensor.stack([data[place : place + 33] for place in places])
        x, y = batch[:, :-1].contiguous(), batch[:, 1:].contiguous()
        Tensor.realize(x, y)
        made.append([now - then for now, then in zip(work(), before)])
        expected = np.stack([values[place : place + 33] for place in places])
        np.testing.assert_array_equal(x.numpy(), expected[:, :-1])
        np.testing.assert_array_equal(y.numpy(), expected[:, 1:])
    assert made[2:] == [[0, 0]] * 2


def test_windows_that_are_written_to() -> None:
    """Reads before and after an assignment to the memory see what stood there at the time."""
    values = array(40)
    data = Tensor(values).realize()
    for place in (0, 5, 11, 20, 33):
        before = data[place : place + 4] * 3
        data[place : place + 4] = Tensor(np.full(4, place, np.float32))
        after = data[place : place + 4] * 3
        Tensor.realize(before, after)
        np.testing.assert_array_equal(before.numpy(), values[place : place + 4] * 3)
        values[place : place + 4] = place
        np.testing.assert_array_equal(after.numpy(), values[place : place + 4] * 3)
    np.testing.assert_array_equal(data.numpy(), values)


def test_gradients_into_windows() -> None:
    values = array(9, 6)
    x = Tensor(values, requires_grad=True)
    x.realize()
    for row in range(6):
        x.grad = None
        (x[row : row + 3] ** 2).sum().backward()
        assert x.grad is not None
        expected = np.zeros((9, 6))
        expected[row : row + 3] = 2 * values[row : row + 3]
        np.testing.assert_array_equal(x.grad.numpy(), expected)


@pytest.mark.parametrize("is_inside", [False, True])
def test_captured_functions(is_inside: bool) -> None:
    values = array(64, 3)
    data = Tensor(values).realize()

    @jit
    def outside(x: Tensor) -> Tensor:
        return (x * 2).contiguous()

    @jit
    def inside(place: int) -> Tensor:
        return (data[place : place + 4] * 2).contiguous()

    for place in (0, 8, 3, 60, 8, 3, 0, 60):
        got = inside(place) if is_inside else outside(data[place : place + 4])
        np.testing.assert_array_equal(got.numpy(), values[place : place + 4] * 2)


def test_what_was_computed_at_one_place_is_not_taken_for_another() -> None:
    data = Tensor(array(100)).realize()
    kept = []
    for place in range(0, 90, 10):
        part = data[place : place + 5].sqrt()
        kept.append((place, part.realize(), (part + 1).sum()))
    for place, part, total in kept:
        expected = np.sqrt(array(100)[place : place + 5])
        np.testing.assert_allclose(part.numpy(), expected, rtol=1e-6)
        np.testing.assert_allclose(total.numpy(), (expected + 1).sum(), rtol=1e-6)


@Context(SEGMENTS=1)
def test_bytes_are_those_of_the_window() -> None:
    data = Tensor(array(100_000)).realize()
    for place in (0, 64, 128, 1024):
        before = GlobalCounters.global_mem
        (data[place : place + 32] * 2).realize()
        assert GlobalCounters.global_mem - before == 2 * 32 * 4


def test_places_that_are_written_to_stay_numbers() -> None:
    x = UOp(Ops.BUFFER, dtypes.float32, (), BufferArg(0, "CPU", 40))
    window = UOp(Ops.SHRINK, dtypes.float32, (x,), ((4, 8),))
    read = UOp(Ops.SHRINK, dtypes.float32, (x,), ((20, 24),))
    written = UOp(Ops.ASSIGN, dtypes.float32, (window, read))
    assert [each.start for each in find_slices(list(UOp.sink(read).toposort()))] == [20]
    assert find_slices(list(UOp.sink(written).toposort())) == []


def test_written_windows_at_moving_places_share_a_plan() -> None:
    x, array = Tensor(np.zeros((40, 8), np.float32)).realize(), np.zeros((40, 8), np.float32)
    plans_before = counters.schedules
    for place in [*range(0, 40, 3), 1, 38]:
        values = np.arange(8, dtype=np.float32) + place
        x[place] = Tensor(values)
        array[place] = values
        assert x.sum().item() == array.sum()
    assert counters.schedules - plans_before <= 3
    np.testing.assert_array_equal(x.numpy(), array)


def test_a_window_that_meets_another_of_its_memory_keeps_its_place() -> None:
    """What is read and what is written may overlap: that is asked of numbers."""
    x, array = Tensor(np.arange(64.0, dtype=np.float32)).realize(), np.arange(64.0)
    for place, other in ((0, 3), (8, 10), (10, 8), (5, 5), (20, 23), (31, 30)):
        x[place : place + 4] = x[other : other + 4].flip(0) + 1
        array[place : place + 4] = array[other : other + 4][::-1].copy() + 1
        np.testing.assert_array_equal(x.numpy(), array)


def test_a_window_that_is_read_where_it_is_written_moves() -> None:
    x, array = Tensor(np.arange(64.0, dtype=np.float32)).realize(), np.arange(64.0)
    for place in (0, 8, 3, 60, 17, 42):
        x[place : place + 4] = x[place : place + 4].flip(0) * 2
        array[place : place + 4] = array[place : place + 4][::-1].copy() * 2
        np.testing.assert_array_equal(x.numpy(), array)
