"""Old values beside newer ones: what an unfinished expression read before an assignment is kept,
also where nobody but a later expression holds it.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.schedule.plans import plan
from tests.schedule.writes import wrote_alone
from tests.tensor.helpers import close
from tilegrad import Context, Tensor
from tilegrad.schedule.items import Reason


def line(size: int = 6) -> tuple[Tensor, np.ndarray]:
    array = np.arange(size, dtype=np.float32)
    return Tensor(array.copy()).realize(), array


@pytest.mark.parametrize("noopt", [0, 1])
def test_the_newest_of_several_assignments_is_read(noopt: int) -> None:
    with Context(NOOPT=noopt):
        x, array = line()
        x += 1
        x *= 10
        assert x.sum().item() == ((array + 1) * 10).sum()


def test_each_reader_reads_its_version() -> None:
    x, array = line()
    first = x.assign(x + 1) + 100
    second = x.assign(x * 10) + 200
    x.assign(x - 5)
    Tensor.realize(second, x, first)
    close(first, array + 101)
    close(second, (array + 1) * 10 + 200)
    close(x, (array + 1) * 10 - 5)


@pytest.mark.parametrize("noopt", [0, 1])
def test_an_old_value_beside_a_new_one(noopt: int) -> None:
    with Context(NOOPT=noopt):
        x, array = line()
        doubled = x * 2
        x.assign(x + 1)
        mixed = x.flip(0) - doubled
        del doubled
        close(mixed, (array + 1)[::-1] - array * 2)


def test_a_middle_value_beside_what_a_newer_one_became() -> None:
    x, array = line()
    x.assign(x + 1)
    tripled = x * 3
    x.assign(x * 10)
    mixed = tripled + x.sum()
    del tripled
    close(mixed, (array + 1) * 3 + ((array + 1) * 10).sum())


def test_an_old_value_is_assigned_after_a_newer_one() -> None:
    x, array = line()
    doubled = x * 2
    x.assign(x + 1)
    x.assign(doubled)
    del doubled
    close(x, array * 2)


def test_a_copy_is_of_the_version_that_is_read() -> None:
    """What reads a middle value, and must wait for what an older one is needed for."""
    (x, array), (y, other) = line(), line()
    x.assign(x + 1)
    held = x * 2 + y
    y.assign(y + 3)
    read = x * 2 + y.flip(0)
    x.assign(x * 0.5 - held)
    del held
    close(read, (array + 1) * 2 + (other + 3)[::-1])
    close(x, (array + 1) * 0.5 - ((array + 1) * 2 + other))


def test_a_window_that_was_read_is_written_in_place() -> None:
    x, array = line()
    x[0:2] = x[1:3]
    x[1:3] = x[1:3]
    array[0:2] = array[1:3].copy()
    close(x, array)


@pytest.mark.usefixtures("by_nodes")
def test_what_is_kept_is_kept_once_and_has_a_reason() -> None:
    """The old elements are copied before they are overwritten; without them, nothing is."""
    x = Tensor.empty(64)
    doubled = x * 2
    written = x.assign(x + 1)
    schedule = plan(written - doubled)
    keep, write, last = schedule.items
    target = write.buffers[0]
    assert keep.buffers[1:] == (target,)
    assert set(last.buffers[1:]) == {target, keep.buffers[0]}
    assert {edge.reason for edge in schedule.edges} == {Reason.OVERWRITTEN, Reason.ASSIGNED}
    assert len(plan(written - 1).items) == 2


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "keep", "mix", "read", "flip", "total", "window", "realize"]),
        st.integers(0, 1),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=60)
@given(STEPS)
def test_random_programs_mean_what_numpy_means(steps: list[tuple[str, int, int]]) -> None:
    """Expressions over old values are held by nobody once they were used in another."""
    arrays = [np.arange(6, dtype=np.float32), np.arange(6, dtype=np.float32) * 10]
    tensors = [Tensor(array.copy()).realize() for array in arrays]
    pending: list[tuple[Tensor, np.ndarray]] = []
    held: tuple[Tensor, np.ndarray] | None = None
    for kind, which, number in steps:
        x, array, other = tensors[which], arrays[which], 1 - which
        if wrote_alone(kind, number, x, array):
            continue
        if kind == "total":
            x.assign(x * 0.25 + tensors[other].sum() * 0.25)
            array[:] = array * 0.25 + arrays[other].sum() * 0.25
        elif kind == "keep":
            held = (x * 2 + tensors[other], array * 2 + arrays[other])
        elif kind == "mix" and held is not None:
            x.assign(x * 0.5 - held[0])
            array[:] = array * 0.5 - held[1]
            held = None
        elif kind == "read":
            pending.append((x * 2 + tensors[other].flip(0), array * 2 + arrays[other][::-1]))
        else:
            x.realize()
    for value, expected in reversed(pending):
        close(value, expected, atol=1e-3)
    for tensor, array in zip(tensors, arrays, strict=True):
        close(tensor, array, atol=1e-3)
