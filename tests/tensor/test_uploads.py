"""NumPy arrays are memory of a processor from the start: their values, and who sees them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tilegrad import Context, GlobalCounters, Tensor, dtypes
from tilegrad.base.errors import IndexBoundsError
from tilegrad.ir.uop import node_count

SMALL = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(autouse=True)
def waiting() -> Iterator[None]:
    with Context(TEMPLATES=1, SEGMENTS=1):
        yield


@pytest.mark.parametrize("shape", [(3, 4), (300, 400)])
def test_an_array_makes_no_node(shape: tuple[int, ...]) -> None:
    array = np.zeros(shape, np.float32)
    Tensor(array)
    before = node_count()
    x = Tensor(array)
    assert node_count() == before
    assert (x.shape, x.dtype, x.device, x.requires_grad) == (shape, dtypes.float32, "CPU", None)
    assert x.uop.shape == shape


@pytest.mark.parametrize(
    "array",
    [
        SMALL.T,
        SMALL[::2, ::-1],
        SMALL.astype(">f4"),
        SMALL.astype(np.float16),
        SMALL.astype(np.int64) - 7,
        SMALL.astype(np.uint8),
        SMALL > 5,
        np.asfortranarray(SMALL),
        np.broadcast_to(SMALL[:1], (5, 4)),
        SMALL.view(np.matrix),
        np.array([np.nan, -0.0, np.inf, 1e-45], np.float32),
        SMALL[:0],
        np.float32(3.5),
        np.array(2),
        np.zeros((1 << 14) + 1, np.float32),
        np.arange(1 << 11),
        np.arange(1 << 17, dtype=np.int32).reshape(256, -1).T,
        np.arange(1 << 17, dtype=np.float64).reshape(64, 2, -1)[::3, 1, ::-2],
        np.arange(1 << 17) % 3 == 1,
    ],
    ids=lambda array: f"{array.dtype.str}{array.shape}",
)
def test_arrays_of_all_layouts_have_their_values(array: Any) -> None:
    x = Tensor(array)
    np.testing.assert_array_equal(x.numpy(), np.asarray(array))
    assert x.numpy().dtype == np.asarray(array).dtype.newbyteorder("=")
    np.testing.assert_array_equal((x + x).numpy(), np.asarray(array) + np.asarray(array))


def test_the_array_may_change_afterwards() -> None:
    array = SMALL.copy()
    x = Tensor(array)
    array[:] = -1
    np.testing.assert_array_equal(x.numpy(), SMALL)


@pytest.mark.parametrize("wanted", [None, False, True])
def test_whether_a_gradient_is_wanted_is_as_it_was_said(wanted: bool | None) -> None:
    x = Tensor(SMALL, requires_grad=wanted)
    assert x.requires_grad is wanted and x.is_leaf


def test_a_gradient_may_be_asked_for_later() -> None:
    x = Tensor(SMALL)
    x.requires_grad_()
    (x * x).sum().backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), 2 * SMALL)
    y = Tensor(SMALL)
    (found,) = (y * 3).sum().gradient(y)
    np.testing.assert_array_equal(found.numpy(), np.full_like(SMALL, 3))


def test_views_and_writes_are_aliases() -> None:
    x = Tensor(SMALL)
    row, column = x[1], x.T[2]
    x[1, 2] = 100.0
    row += 1
    expected = SMALL.copy()
    expected[1, 2] = 100
    expected[1] += 1
    for ours, theirs in ((x, expected), (row, expected[1]), (column, expected[:, 2])):
        np.testing.assert_array_equal(ours.numpy(), theirs)


def test_two_tensors_of_one_array_are_two() -> None:
    x, y = Tensor(SMALL), Tensor(SMALL)
    x += 1
    np.testing.assert_array_equal(y.numpy(), SMALL)
    np.testing.assert_array_equal(x.numpy(), SMALL + 1)


@pytest.mark.usefixtures("nothing_known")
def test_bytes_are_counted_and_given_back() -> None:
    used, moved = GlobalCounters.mem_used, GlobalCounters.global_mem
    x = Tensor(SMALL)
    assert GlobalCounters.mem_used == used + SMALL.nbytes
    assert GlobalCounters.global_mem == moved + SMALL.nbytes
    del x
    assert GlobalCounters.mem_used == used


@pytest.mark.parametrize("count", [2, 5000])
def test_indices_out_of_range_are_found_where_they_are_used(count: int) -> None:
    table, indices = Tensor(SMALL), np.arange(count) % 3
    inside = Tensor(indices)
    indices[-1] = 3
    outside = Tensor(indices)
    for _ in range(4):
        np.testing.assert_array_equal(table[inside].numpy(), SMALL[np.arange(count) % 3])
        with pytest.raises(IndexBoundsError):
            table[outside]


def test_another_thread_reads_what_this_one_made() -> None:
    made = [Tensor(SMALL) for _ in range(8)]
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend((x * 2).numpy() for x in made))
    thread.start()
    thread.join()
    assert len(found) == 8
    for each in found:
        np.testing.assert_array_equal(each, SMALL * 2)


def test_a_copy_that_is_to_be_seen_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    with Context(DEBUG=2):
        (Tensor(SMALL) + 1).realize()
    assert "copy" in capsys.readouterr().out
