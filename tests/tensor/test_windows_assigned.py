"""Assignment to a part of a tensor: when it runs, who sees it, and what it touches."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tensor.helpers import close
from tilegrad import GlobalCounters, Tensor, Variable, jit
from tilegrad.engine.run.leaf_memory import buffer_of
from tilegrad.ir import Ops
from tilegrad.tensor.storage import memory
from tilegrad.tensor.storage.writes import is_put_off


def line(size: int = 6) -> tuple[Tensor, np.ndarray]:
    array = np.arange(size, dtype=np.float32)
    return Tensor(array.copy()).realize(), array


def place_of(tensor: Tensor) -> object:
    return buffer_of(memory.base_of(tensor.uop))


def test_nothing_runs_before_a_value_is_asked_for() -> None:
    x, array = line()
    other, place = x.reshape(2, 3), place_of(x)
    before = GlobalCounters.kernel_count
    x[1:3] = 7.0
    x[4:].assign(x[:2] + 1)
    old = x * 2
    x[0] = x.sum()
    assert GlobalCounters.kernel_count == before
    assert all(memory.version_of(each.uop).op is Ops.AFTER for each in (x, other))
    array[1:3] = 7
    array[4:] = array[:2] + 1
    close(old, array * 2)
    array[0] = array.sum()
    close(other, array.reshape(2, 3))
    assert x.uop.op is Ops.BUFFER
    assert place_of(x) is place
    close(x, array)


def test_one_kernel_writes_the_window_alone() -> None:
    """A cache that grows by a row at a place known when it runs: a step stores that row in place,
    in a capture as outside.
    """
    room, width = 256, 16
    keys, values = [Tensor.zeros(room, width).contiguous().realize() for _ in range(2)]
    places = place_of(keys), place_of(values)

    def step(row: Tensor, place: Variable) -> Tensor:
        keys[place : place + 1].assign(row)
        values[place] = row.reshape(width) * 2
        return (keys[: place + 1].max(0) + values[: place + 1].max(0)).realize()

    expected = np.zeros((room, width), np.float32)
    captured = jit(step)
    for number, run in enumerate((step, captured, captured, captured, step)):
        rows = np.random.default_rng(number).random((1, width), np.float32)
        row = Tensor(rows).realize()
        kernels, touched = GlobalCounters.kernel_count, GlobalCounters.global_mem
        result = run(row, Variable("place", 0, room - 1).bind(number))
        if run is step:
            # The two writes, joined, and what reads them.
            assert GlobalCounters.kernel_count - kernels <= 3
        assert GlobalCounters.global_mem - touched < keys.nbytes() * 3
        expected[number] = rows[0]
        close(result, expected[: number + 1].max(0) * 3)
    close(keys, expected)
    close(values, expected * 2)
    assert (place_of(keys), place_of(values)) == places


def test_each_write_has_its_own_values_of_variables() -> None:
    x = Tensor.zeros(8).contiguous().realize()
    place = Variable("place", 0, 7)
    for number in range(5):
        x[place.bind(number)] = number + 1.0
    assert x.tolist() == [1, 2, 3, 4, 5, 0, 0, 0]
    sums = []
    for number in range(5):
        x[place.bind(number)] = 10.0 * number
        sums.append(x[: place.bind(number) + 1].sum())
    assert [each.item() for each in reversed(sums)] == [100, 60, 30, 10, 0]
    assert x.tolist() == [0, 10, 20, 30, 40, 0, 0, 0]


def test_sums_of_what_is_overwritten_each_have_their_own_values_of_variables() -> None:
    """All of them are one node, whose values the write must not mix up."""
    x = Tensor.arange(8).cast("float32").realize()
    count = Variable("count", 1, 8)
    sums = [x[: count.bind(number)].sum() + 0.5 for number in (3, 5, 3, 8)]
    x.assign(x * 10)
    x[: count.bind(2)] = 7.0
    sums.append(x[: count.bind(4)].sum())
    assert [each.item() for each in reversed(sums)] == [7 + 7 + 20 + 30, 28.5, 3.5, 10.5, 3.5]
    assert x.tolist() == [7, 7, 20, 30, 40, 50, 60, 70]


def test_many_writes_do_not_wait_for_ever() -> None:
    x, array = line(48)
    before = GlobalCounters.kernel_count
    for number in range(1, 48):
        x[number] = x[number - 1] * 0.5 + 1
        array[number] = array[number - 1] * 0.5 + 1
    assert 0 < GlobalCounters.kernel_count - before < 47
    close(x, array)
    # A value is written where it is computed, as what it reads is no part of the window. The last
    # one before the waiting ones ran was still held, and so was computed for itself, too.
    assert GlobalCounters.kernel_count - before <= 48


def test_gradients_flow_to_what_was_written() -> None:
    v = Tensor([1.0, 2.0], requires_grad=True)
    w = Tensor([3.0], requires_grad=True)
    z = Tensor.ones(2, 3).contiguous().realize()
    z[0, :2] = v * v
    z.T[2:, 1].assign(w * 5)
    z[0, 1:] = w * 2
    (z * z).sum().backward()
    assert v.grad is not None and w.grad is not None
    # z is [[1, 6, 6], [1, 1, 15]]: of v * v, one element is left.
    assert v.grad.tolist() == [4.0, 0.0]
    assert w.grad.tolist() == [2 * 6 * 2 * 2 + 2 * 15 * 5.0]


def test_a_failing_step_of_a_write_leaves_it_waiting() -> None:
    x, _ = line()

    def refuse(values: np.ndarray) -> np.ndarray:
        raise OSError("no")

    x[1:3] = Tensor([1.0, 2.0]).apply(refuse)
    for _ in range(2):
        with pytest.raises(OSError, match="no"):
            x.numpy()
    assert is_put_off(x) or memory.version_of(x.uop).op is Ops.AFTER


VIEWS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[np.ndarray], np.ndarray]]] = {
    "window": (lambda x: x[1:4], lambda a: a[1:4]),
    "rows": (lambda x: x.reshape(2, -1), lambda a: a.reshape(2, -1)),
    "turned": (lambda x: x[::-1], lambda a: a[::-1]),
    "columns": (lambda x: x.reshape(2, -1).T, lambda a: a.reshape(2, -1).T),
    "apart": (lambda x: x.detach()[2:], lambda a: a[2:]),
}
PROGRAM = st.lists(
    st.tuples(
        st.sampled_from(["view", "write", "part", "move", "pick", "whole", "read", "realize"]),
        st.integers(0, 4),
        st.integers(0, 3),
    ),
    min_size=2,
    max_size=9,
)


@settings(max_examples=60)
@given(PROGRAM)
def test_random_programs_of_views_mean_what_numpy_means(
    program: list[tuple[str, int, int]],
) -> None:
    """What is written is seen by all that look at the same memory; what was computed before is not
    changed.
    """
    array = np.arange(6, dtype=np.float32)
    x = Tensor(array.copy()).realize()
    place, wholes = place_of(x), 0
    views: list[tuple[Tensor, np.ndarray]] = []
    pending: list[tuple[Tensor, np.ndarray]] = []
    for kind, which, number in program:
        seen, values = views[which % len(views)] if views else (x, array)
        if kind == "view":
            ours, theirs = list(VIEWS.values())[which]
            views.append((ours(x), theirs(array)))
        elif kind == "write":
            wholes += seen is x
            seen.assign(seen * 2 + number)
            values[...] = values * 2 + number
        elif kind == "part":
            wholes += seen is x
            seen[:2] = number
            values[:2] = number
        elif kind == "move":
            wholes += 1
            x[number : number + 2] = x[1:3] + 1
            array[number : number + 2] = array[1:3] + 1
        elif kind == "pick":
            wholes += 1
            x[Tensor([number, 5])] = x[Tensor([0, 1])] - 1
            array[[number, 5]] = array[[0, 1]] - 1
        elif kind == "whole":
            wholes += 1
            x.assign(x.flip(0) * 0.5)
            array[...] = array[::-1] * np.float32(0.5)
        elif kind == "read":
            pending.append((seen.sum() + x, values.sum() + array))
        else:
            seen.realize()
    for value, expected in [*reversed(pending), *views, (x, array)]:
        close(value, expected, atol=1e-3)
    # A tensor that nobody looks at takes other memory with what is assigned to parts of it.
    assert place_of(x) is place or wholes


def test_a_gradient_that_needs_a_tensor_between_two_writes_that_wait() -> None:
    """A new tensor has its first memory, in its own shape, computed for the gradient; the slice
    that is written next is one of that memory.
    """
    array = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)
    x, values = Tensor(array), array.astype(np.float64)
    x[2:4] = x[3:4] * 0.5
    values[2:4] = values[3:4] * 0.5
    weight = Tensor(array, requires_grad=True)
    (weight * x.detach()).tanh().sum().backward()
    assert weight.grad is not None
    turned = x.T
    turned.mul_(2.0)
    close(weight.grad, (1 - np.tanh(array * values) ** 2) * values, atol=1e-4)
    close(x, values * 2, atol=1e-4)
    close(turned, values.T * 2, atol=1e-4)


@pytest.mark.parametrize("second", [np.s_[::2, 0:1:2], np.s_[0:1, 0:1], np.s_[1:, 1]])
def test_a_copy_of_a_view_whose_base_is_gone_is_no_part_of_that(second: tuple[slice, ...]) -> None:
    array = np.arange(8.0, dtype=np.float32).reshape(2, 2, 2)
    view, expected = Tensor(array.copy())[1], array[1].copy()
    view[0:1, 0:1] = -1
    expected[0:1, 0:1] = -1
    turned, expected_turned = view.flip(0), expected[::-1].copy()
    turned[second] = 9
    expected_turned[second] = 9
    close(view, expected)
    close(turned, expected_turned)
