"""The ordering rule of assignment: whoever was written before an assignment reads the old value,
whoever was written after it the new one, whatever is computed first.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.schedule.plans import plan
from tests.schedule.writes import wrote_alone
from tests.tensor.helpers import close
from tilegrad import Context, GlobalCounters, Tensor
from tilegrad.engine.run.leaf_memory import buffer_of
from tilegrad.runtime.buffer import Buffer
from tilegrad.tensor.storage import memory


def line(size: int = 6) -> tuple[Tensor, np.ndarray]:
    array = np.arange(size, dtype=np.float32)
    return Tensor(array.copy()).realize(), array


def memory_of(tensor: Tensor) -> Buffer:
    return buffer_of(memory.base_of(tensor.uop))


@pytest.mark.parametrize("noopt", [0, 1])
@pytest.mark.parametrize("order", list(itertools.permutations(["before", "x", "after"])))
def test_readers_before_and_after(order: tuple[str, ...], noopt: int) -> None:
    """In every order of realization, and all at once."""
    with Context(NOOPT=noopt):
        for together in (False, True):
            x, old = line()
            before = x * 10
            x.assign(x + 1)
            after = x * 100
            named = {"before": before, "x": x, "after": after}
            values = [named[name] for name in order]
            if together:
                Tensor.realize(*values)
            else:
                for value in values:
                    value.realize()
            close(before, old * 10)
            close(x, old + 1)
            close(after, (old + 1) * 100)


def test_a_reader_that_was_not_asked_for_still_reads_the_old_value() -> None:
    x, old = line()
    pending, moved, deep = x * 2, x[1:4], (x + 1).sum()
    x.assign(x * 0).realize()
    close(pending, old * 2)
    # A view is an alias.
    close(moved, old[1:4] * 0)
    close(deep, (old + 1).sum())
    close(x, old * 0)


@pytest.mark.parametrize("noopt", [0, 1])
@pytest.mark.usefixtures("by_nodes")
def test_two_tensors_swap(noopt: int) -> None:
    with Context(NOOPT=noopt):
        x, first = line()
        y, second = Tensor(-first).realize(), -first
        places = memory_of(x), memory_of(y)
        old_x, old_y = x + 0, y + 0
        x.assign(old_y)
        y.assign(old_x)
        Tensor.realize(x, y)
        close(x, second)
        close(y, first)
        assert (memory_of(x), memory_of(y)) == places


def test_three_tensors_rotate() -> None:
    arrays = [np.float32([place, place + 10]) for place in range(3)]
    tensors = [Tensor(array.copy()).realize() for array in arrays]
    old = [tensor * 1 for tensor in tensors]
    for place, tensor in enumerate(tensors):
        tensor.assign(old[(place + 1) % 3])
    Tensor.realize(*tensors)
    for place, tensor in enumerate(tensors):
        close(tensor, arrays[(place + 1) % 3])


@pytest.mark.parametrize("noopt", [0, 1])
@pytest.mark.parametrize("shift", [1, 2, 3, 5])
@pytest.mark.parametrize("up", [True, False])
def test_a_window_moves_over_itself(shift: int, up: bool, noopt: int) -> None:
    """Where the elements read and written overlap, all are read before one is written."""
    with Context(NOOPT=noopt):
        x, array = line(8)
        source = slice(0, 8 - shift) if up else slice(shift, 8)
        target = slice(shift, 8) if up else slice(0, 8 - shift)
        x[target] = x[source]
        expected = array.copy()
        expected[target] = array[source].copy()
        close(x, expected)


@pytest.mark.parametrize(
    "move",
    [
        pytest.param(lambda x: x.T, id="transposed"),
        pytest.param(lambda x: x[::-1], id="rows reversed"),
        pytest.param(lambda x: x[:, ::-1], id="columns reversed"),
        pytest.param(lambda x: x[1:2] * 1.0 + x, id="one row read by all"),
        pytest.param(lambda x: x.sum() + x, id="all read by all"),
        pytest.param(lambda x: x + x.T, id="at two places"),
    ],
)
@pytest.mark.usefixtures("by_nodes")
def test_what_is_read_elsewhere_is_read_first(move: object) -> None:
    assert callable(move)
    array = np.arange(16, dtype=np.float32).reshape(4, 4)
    x = Tensor(array.copy()).realize()
    place = memory_of(x)
    x.assign(move(x)).realize()
    close(x, np.asarray(move(array)))
    assert memory_of(x) is place


def test_assignments_that_need_one_another_are_one_run() -> None:
    """Each sees what was written before it: a pair of states and what they are used for."""
    rate, moment, weight = [Tensor(np.float32([value])).realize() for value in (0.5, 2, 10)]
    rate.assign(rate * 0.5)
    moment.assign(moment * 0.5 + 1)
    weight.assign(weight - rate * moment)
    weight.realize()
    assert [rate.item(), moment.item(), weight.item()] == [0.25, 2.0, 9.5]


def test_windows_are_written_apart_and_over_each_other() -> None:
    x, array = line(10)
    x[2:5] = x[2:5] + 100
    whole = x * 1
    x[4:8] = x[0:4] * 2
    x[::2] = 0
    array[2:5] += 100
    close(whole, array)
    array[4:8] = array[0:4] * 2
    array[::2] = 0
    close(x, array)


def test_a_view_follows_its_memory() -> None:
    x, array = line()
    window, rows = x[2:5], x.reshape(2, 3)
    pending = window * 1
    window.assign(window + 50)
    array[2:5] += 50
    close(x, array)
    close(rows, array.reshape(2, 3))
    close(pending, np.float32([2, 3, 4]))


def test_what_is_asked_for_anyway_is_no_late_reader() -> None:
    """A window of a value that is computed beside an assignment needs no kernel of its own."""
    x, array = line()
    part = (x * 2).contiguous()[1:3]
    x.assign(x + 1)
    before = GlobalCounters.kernel_count
    Tensor.realize(part, x)
    assert GlobalCounters.kernel_count - before == 2
    close(part, array[1:3] * 2)
    close(x, array + 1)


@pytest.mark.usefixtures("by_nodes")
def test_a_writer_stands_behind_every_reader_of_the_old_value() -> None:
    """In the schedule itself: kernels that load a buffer come before the one that overwrites it."""
    x = Tensor.empty(64)
    total, shifted = x.sum(), x.flip(0) * 2
    written = x.assign(x + 1)
    schedule = plan(written, total, shifted)
    target = schedule.outputs[0]
    writers = [step for step, item in enumerate(schedule.items) if item.buffers[0] == target]
    readers = [step for step, item in enumerate(schedule.items) if target in item.buffers[1:]]
    assert len(writers) == 1
    assert len(readers) == 2
    assert max(readers) < writers[0]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "read", "flip", "window", "cross", "realize"]),
        st.integers(0, 1),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=8,
)


@pytest.mark.parametrize("segments", [0, 1])
@settings(max_examples=25)
@given(STEPS)
def test_random_programs_mean_what_numpy_means(
    segments: int, steps: list[tuple[str, int, int]]
) -> None:
    """Two buffers, written whole, in part and from each other; readers are kept to the end."""
    with Context(SEGMENTS=segments):
        arrays = [np.arange(6, dtype=np.float32), np.arange(6, dtype=np.float32) * 10]
        tensors = [Tensor(array.copy()).realize() for array in arrays]
        places = [memory_of(tensor) for tensor in tensors]
        pending: list[tuple[Tensor, np.ndarray]] = []
        for kind, which, number in steps:
            x, array, other = tensors[which], arrays[which], 1 - which
            if wrote_alone(kind, number, x, array):
                continue
            if kind == "cross":
                x.assign(tensors[other] - x)
                array[:] = arrays[other] - array
            elif kind == "read":
                pending.append((x * 2 + tensors[other], array * 2 + arrays[other]))
            else:
                x.realize()
        for value, expected in reversed(pending):
            close(value, expected)
        for tensor, array, place in zip(tensors, arrays, places, strict=True):
            close(tensor, array)
            # Small tensors take other memory where assignments wait.
            assert segments or memory_of(tensor) is place
