"""Assignment: in place, after everyone who needs the old value, in part, and refusals."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from tests.tensor.helpers import close, numbers
from tilegrad import Device, Tensor, dtypes
from tilegrad.base.errors import DeviceError, DTypeError, ShapeError
from tilegrad.base.trace import counters
from tilegrad.ir import Ops
from tilegrad.tensor.storage import memory


def base(tensor: Tensor) -> object:
    """The memory of a realized tensor, by its address in the engine."""
    from tilegrad.engine.run.leaf_memory import buffer_of

    return buffer_of(memory.base_of(tensor.uop))


def test_assignment_to_a_large_tensor_is_lazy_and_keeps_the_memory() -> None:
    count = (1 << 18) + 8
    x = Tensor.arange(count).float().contiguous().realize()
    expected = np.arange(count, dtype=np.float32)
    before = base(x)
    assert x.assign(x * 2) is x
    assert x.uop.op is Ops.ASSIGN
    np.testing.assert_array_equal(x.numpy(), expected * 2)
    assert base(x) is before
    x.assign(x + 1)
    x.assign(x * 10)
    np.testing.assert_array_equal(x.numpy(), (expected * 2 + 1) * 10)
    assert base(x) is before


def test_assignment_to_a_small_tensor_is_lazy_and_lets_arrays_be() -> None:
    x = Tensor([1.0, 2.0, 3.0]).realize()
    array, before = x.numpy(), counters.schedules
    assert x.assign(x * 2) is x
    x.assign(x + 1)
    assert counters.schedules == before
    assert x.tolist() == [3.0, 5.0, 7.0]
    assert array.tolist() == [1.0, 2.0, 3.0]


def test_pending_readers_get_the_old_value() -> None:
    x = Tensor([1.0, 2.0]).realize()
    pending = x + 100
    x.assign(x * 2).realize()
    assert pending.tolist() == [101.0, 102.0]
    assert x.tolist() == [2.0, 4.0]


def test_assignment_may_move_its_own_elements() -> None:
    x = Tensor(np.arange(6, dtype=np.float32)).realize()
    x.assign(x.flip(0)).realize()
    assert x.tolist() == [5, 4, 3, 2, 1, 0]
    y = Tensor(numbers(3, 3)).realize()
    expected = y.numpy().T.copy()
    close(y.assign(y.T), expected)


def test_what_has_no_memory_takes_the_value() -> None:
    x = Tensor([1.0, 2.0]) * 2
    x.assign(Tensor([7.0, 8.0]))
    assert x.tolist() == [7.0, 8.0]
    state = Tensor.zeros(2)
    for _ in range(3):
        state.assign(state + 1).realize()
    assert state.tolist() == [3.0, 3.0]


def test_equal_tensors_do_not_share_what_is_written() -> None:
    source = Tensor([1.0, 2.0])
    a, b, c = source * 3, source * 3, source * 3
    assert a.uop is b.uop
    for tensor in (a, b, c):
        tensor.realize()
    a.assign(a + 1).realize()
    assert (a.tolist(), b.tolist(), c.tolist()) == ([4.0, 7.0], [3.0, 6.0], [3.0, 6.0])
    b.assign(b + 2).realize()
    assert (a.tolist(), b.tolist(), c.tolist()) == ([4.0, 7.0], [5.0, 8.0], [3.0, 6.0])
    c[0] = 0
    assert (a.tolist(), b.tolist(), c.tolist()) == ([4.0, 7.0], [5.0, 8.0], [0.0, 6.0])


def test_constants_in_memory_are_one_tensors_own() -> None:
    c, d = Tensor.zeros(2).contiguous().realize(), Tensor.zeros(2).contiguous().realize()
    c += 5
    c.realize()
    assert (c.tolist(), d.tolist()) == ([5.0, 5.0], [0.0, 0.0])


def test_a_window_of_borrowed_memory_writes_to_its_base_and_not_to_the_owner() -> None:
    source = Tensor([1.0, 2.0, 3.0])
    owner, borrower = source * 3, source * 3
    owner.realize()
    borrower.realize()
    window = borrower[1:]
    window.assign(Tensor([0.0, 0.0]))
    assert (owner.tolist(), window.tolist()) == ([3.0, 6.0, 9.0], [0.0, 0.0])
    assert borrower.tolist() == [3.0, 0.0, 0.0]
    owner[0] = 7
    assert (owner.tolist(), borrower.tolist()) == ([7.0, 6.0, 9.0], [3.0, 0.0, 0.0])


def test_clones_and_deep_copies_are_their_own() -> None:
    x = Tensor([1.0, 2.0]).realize()
    copies = [x.clone(), x.clone(), copy.deepcopy(x)]
    copies[0] += 1
    assert [c.tolist() for c in copies] == [[2.0, 3.0], [1.0, 2.0], [1.0, 2.0]]
    assert x.tolist() == [1.0, 2.0]


def test_in_place_operators() -> None:
    x = Tensor([8.0, 9.0]).realize()
    kept = x
    x += 1
    x -= 2
    x *= 3
    x /= 3
    x **= 2
    x //= 2
    x %= 20
    assert x is kept
    assert x.tolist() == [4.0, 12.0]
    n = Tensor([6, 5]).realize()
    n &= 4
    n |= 1
    n ^= 2
    n <<= 2
    n >>= 1
    assert n.tolist() == [14, 14]


def test_writing_in_part() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    x = Tensor(array)
    for key, value in [
        ((slice(1, 3),), -1.0),
        ((0, 2), 50.0),
        ((slice(None), slice(None, None, 2)), np.float32([[7, 8]])),
        ((slice(None, None, -1), 1), np.float32([1, 2, 3])),
        ((Ellipsis,), 3.0),
        ((1,), np.arange(4, dtype=np.float32)),
    ]:
        x[key] = Tensor(value) if isinstance(value, np.ndarray) else value
        array[key] = value
        close(x, array)


def test_writing_in_part_reads_before_it_writes() -> None:
    x = Tensor(np.arange(6, dtype=np.int32)).realize()
    pending = x * 10
    x[1:] = x[:-1]
    assert x.tolist() == [0, 0, 1, 2, 3, 4]
    assert pending.tolist() == [0, 10, 20, 30, 40, 50]


def test_writing_by_integer_tensors_and_masks() -> None:
    array = np.arange(12, dtype=np.int32).reshape(3, 4)
    x = Tensor(array)
    x[Tensor([2, 0])] = Tensor([[100], [200]])
    array[[2, 0]] = [[100], [200]]
    close(x, array)
    x[:, Tensor([1, 3])] = -5
    array[:, [1, 3]] = -5
    close(x, array)
    x[x > 50] = 0
    array[array > 50] = 0
    close(x, array)
    y = Tensor([0, 0, 0]).realize()
    y[[1, 1, 1]] = Tensor([7, 8, 9])
    assert y.tolist() == [0, 9, 0]


def test_a_window_of_a_realized_tensor_writes_through() -> None:
    x = Tensor(np.arange(6, dtype=np.int32)).realize()
    window = x[1:3]
    other = x.reshape(2, 3)
    pending = x + 0
    window.assign(Tensor([70, 80]))
    assert x.tolist() == [0, 70, 80, 3, 4, 5]
    assert other.tolist() == [[0, 70, 80], [3, 4, 5]]
    assert window.tolist() == [70, 80]
    assert pending.tolist() == [0, 1, 2, 3, 4, 5]


def test_any_other_view_of_a_realized_tensor_writes_through() -> None:
    x = Tensor(np.arange(6, dtype=np.int32)).realize()
    rows, pending, same = x.reshape(2, 3), x * 2, x.detach()
    rows.T.assign(Tensor([[0, 30], [10, 40], [20, 50]]))
    assert x.tolist() == [0, 10, 20, 30, 40, 50]
    assert rows.tolist() == [[0, 10, 20], [30, 40, 50]]
    assert same.tolist() == [0, 10, 20, 30, 40, 50]
    assert pending.tolist() == [0, 2, 4, 6, 8, 10]
    rows += 1
    assert x.tolist() == [1, 11, 21, 31, 41, 51]
    x[::-1].assign(x)
    assert x.tolist() == [51, 41, 31, 21, 11, 1]
    # A value that no one else holds is its own.
    alone = Tensor([1, 2]).realize().reshape(2, 1)
    assert alone.assign(alone + 1).tolist() == [[2], [3]]


def test_a_view_of_what_is_not_in_memory_writes_through() -> None:
    x = Tensor([1.0, 2.0]) * 2
    view = x.reshape(2, 1)
    view.assign(view + 1)
    assert (x.tolist(), view.tolist()) == ([3.0, 5.0], [[3.0], [5.0]])


def test_a_view_of_what_waits_for_an_assignment() -> None:
    x = Tensor([1.0, 2.0, 3.0]).realize()
    before, place = x[:2], base(x)
    x.assign(x + 1)
    after = x.reshape(3, 1)
    x[1:].assign(Tensor([10.0, 20.0]))
    after[:1].assign(Tensor([[-1.0]]))
    before[1:] = 7
    assert x.uop.op is Ops.AFTER
    assert (x.tolist(), base(x) is place) == ([-1.0, 7.0, 20.0], True)
    assert (before.tolist(), after.tolist()) == ([-1.0, 7.0], [[-1.0], [7.0], [20.0]])


def test_what_does_not_fit_raises_and_changes_nothing() -> None:
    x = Tensor([1.0, 2.0]).realize()
    with pytest.raises(ShapeError, match=r"assign: shapes differ: \(2,\) and \(3,\)"):
        x.assign(Tensor([1.0, 2.0, 3.0]))
    with pytest.raises(DTypeError, match="assign: dtypes differ: float32 and int32"):
        x.assign(Tensor([1, 2]))
    with pytest.raises(
        DeviceError, match=f"assign: operands are on two devices: {Device.DEFAULT} and CPU:1"
    ):
        x.assign(Tensor([1.0, 2.0], device="CPU:1"))
    with pytest.raises(ShapeError, match=r"expand: \(3,\) does not stretch to \(2,\)"):
        x[:] = Tensor([1.0, 2.0, 3.0])
    n = Tensor([1]).realize()
    with pytest.raises(DTypeError, match="assign: dtypes differ: int32 and float32"):
        n += 0.5
    assert (x.tolist(), n.tolist()) == ([1.0, 2.0], [1])


def test_replace_takes_any_graph() -> None:
    x = Tensor([1.0])
    x.replace(Tensor([[1, 2]]))
    assert (x.shape, x.dtype) == ((1, 2), dtypes.int32)


def test_writing_in_part_takes_axes_of_size_1_in_front() -> None:
    x = Tensor.zeros(2, 3).contiguous()
    x[0] = Tensor([[[1.0, 2.0, 3.0]]])
    x[1, [0, 2]] = Tensor([[5.0, 6.0]])
    assert x.tolist() == [[1, 2, 3], [5, 0, 6]]


def test_an_equal_graph_is_computed_anew_after_the_memory_of_the_first_was_written() -> None:
    a = Tensor([1.0, 2.0, 3.0])
    held = a * 2
    above = held + 1
    x = (a * 2).realize()
    x[1] = 5.0
    assert x.tolist() == [2, 5, 6]
    # The node that `held` keeps alive was computed in memory that has another value now.
    y = a * 2
    y[0] = 7.0
    assert (y.tolist(), (a * 2).tolist(), held.tolist()) == ([7, 4, 6], [2, 4, 6], [2, 4, 6])
    assert (above.tolist(), x.tolist()) == ([3, 5, 7], [2, 5, 6])


@pytest.mark.parametrize("is_lazy", [True, False])
def test_a_value_read_between_two_writes_to_a_row_leaves_the_second_one_there(
    is_lazy: bool,
) -> None:
    """The run of that value kept a copy of the row, and the second write went to the copy."""
    table = np.arange(8, dtype="f4").reshape(2, 4)
    whole = Tensor(table) if is_lazy else Tensor(table).clone().realize()
    row = whole[1]
    row[Tensor([2])] = 7
    doubled = row * 2
    row[Tensor([1])] = 9
    part = row[1:3]
    assert doubled.tolist() == [8, 10, 14, 14]
    assert part.tolist() == [9, 7]
    assert whole.tolist() == [[0, 1, 2, 3], [4, 9, 7, 7]]


@pytest.mark.parametrize("is_realized", [False, True])
def test_a_picked_row_is_what_it_was_when_what_it_was_computed_from_is_written(
    is_realized: bool,
) -> None:
    array = numbers(4, 3)
    x = Tensor(array).clone()
    if is_realized:
        x.realize()
    y = x + 1
    x[Tensor([-1])] = 0
    y[Tensor([1])] = 5
    picked = y[(-1,)], y[[0, 1]]
    del y
    expected = array + 1
    expected[1] = 5
    array[-1] = 0
    np.testing.assert_array_equal(x.numpy(), array)
    np.testing.assert_array_equal(picked[0].numpy(), expected[-1])
    np.testing.assert_array_equal(picked[1].numpy(), expected[[0, 1]])
