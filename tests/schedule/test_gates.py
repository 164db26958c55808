"""Gates of loads are as short as what they guard allows, and guard the same."""

from __future__ import annotations

import numpy as np
import pytest

from tilegrad import Tensor
from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import Ops
from tilegrad.ir.rules.sums import conjuncts
from tilegrad.ir.uop import UOp
from tilegrad.schedule.finish import shorten_gates

ROWS, SIZE = 6, 7


def picked(limit: int) -> tuple[UOp, list[UOp]]:
    """The store of table[row * SIZE + index[row]], guarded by the bounds of the index and then by
    `limit`; and its conditions.
    """
    row = UOp.range(ROWS, 0)
    indices = UOp(Ops.DEFINE_GLOBAL, dtypes.int32.ptr(ROWS), (), 2)
    index = indices.load(row, dtype=dtypes.int32)
    position = (index + (row * SIZE).cast(dtypes.int32)).cast(dtypes.index)
    conditions = [
        (index < 0).logical_not(),
        index < SIZE,
        (position < 0).logical_not(),
        position < limit,
    ]
    gate = conditions[0] & conditions[1] & conditions[2] & conditions[3]
    table = UOp(Ops.DEFINE_GLOBAL, dtypes.float32.ptr(ROWS * SIZE), (), 1)
    value = table.load(position, UOp.const(dtypes.float32, 0), gate, dtype=dtypes.float32)
    out = UOp(Ops.DEFINE_GLOBAL, dtypes.float32.ptr(ROWS), (), 0)
    return out.store(row, value), conditions


@pytest.mark.parametrize(("limit", "count"), [(ROWS * SIZE, 2), (ROWS * SIZE - 1, 3)])
def test_what_follows_from_the_indices_is_not_asked(limit: int, count: int) -> None:
    store, conditions = picked(limit)
    short = shorten_gates(store)
    gate = short.src[2].src[3]
    # The last one that is left is the first that does not follow.
    assert conjuncts(gate) == [*conditions[:2], *conditions[3:]][:count]


def test_gates_of_loops_alone_are_left() -> None:
    row = UOp.range(ROWS, 0)
    table = UOp(Ops.DEFINE_GLOBAL, dtypes.float32.ptr(ROWS), (), 1)
    gate = (row < 4) & (row < 5)
    value = table.load(row, UOp.const(dtypes.float32, 0), gate, dtype=dtypes.float32)
    store = UOp(Ops.DEFINE_GLOBAL, dtypes.float32.ptr(ROWS), (), 0).store(row, value)
    assert shorten_gates(store) is store


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 17), (5, 64), (9, 131)])
def test_elements_picked_along_an_axis(rows: int, columns: int, dtype: type) -> None:
    """What is found outside when the kernel runs is zero, and not the row's neighbour."""
    random = np.random.default_rng(rows * columns)
    table = random.normal(size=(rows, columns)).astype(np.float32)
    index = random.integers(-2 * columns, 2 * columns, (rows, columns)).astype(dtype)
    inside = (index >= -columns) & (index < columns)
    want = np.where(inside, np.take_along_axis(table, np.where(inside, index, 0), 1), 0)
    # Computed, so that the indices are known to the kernel alone.
    computed = Tensor(index).realize() * Tensor(np.ones(1, dtype)).realize()
    np.testing.assert_array_equal(Tensor(table).gather(1, computed).numpy(), want)


def test_rows_picked_by_what_was_picked() -> None:
    """A position and its gate go on reading the same: a gate inside of another is one of both."""
    table = np.zeros((3, 4), np.float32)
    for _ in range(2):
        x = Tensor(table)
        assert x.sort(0)[0].sort(0)[0].numpy().tolist() == table.tolist()
        table = table - 1
    random = np.random.default_rng(5)
    rows = random.normal(size=(6, 5)).astype(np.float32)
    order = np.stack([random.permutation(6) for _ in range(5)], 1).astype(np.int32)
    twice = Tensor(rows).gather(0, Tensor(order).gather(0, Tensor(order)))
    want = np.take_along_axis(rows, np.take_along_axis(order, order, 0), 0)
    np.testing.assert_array_equal(twice.numpy(), want)


@pytest.mark.parametrize("shape", [(), (1,), (20,)], ids=str)
def test_what_a_position_is_made_of_is_read_once(shape: tuple[int, ...]) -> None:
    """The value at the first place that is good, where both need one number of memory."""
    random = np.random.default_rng(7)
    scale = np.full(shape, 2.0, np.float32)
    first, second = random.random((2, 20)).astype(np.float32)
    s, a, b = (Tensor(each).realize() for each in (scale, first, second))
    places = Tensor.arange(20)
    position = (a * s > 1.5).where(places, 19).min(0)
    found = places.eq(position).where(b * s, 0.0).sum(0)
    assert found.item() == 2 * second[np.argmax(first * 2 > 1.5)]


def test_a_draw_whose_rate_is_one_number_of_memory() -> None:
    rate = Tensor.full((), 4.5).contiguous().realize()
    drawn = [rate.poisson().item() for _ in range(200)]
    assert all(each == int(each) >= 0 for each in drawn)
    assert abs(np.mean(drawn) - 4.5) < 4 * np.sqrt(4.5 / 200)
