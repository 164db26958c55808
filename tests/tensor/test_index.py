"""Indexing by numbers, slices and integer tensors, gathering, scattering and writing in part,
against NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tensor.helpers import close, numbers
from tilegrad import Tensor, dtypes
from tilegrad.base.errors import DTypeError, IndexBoundsError, ShapeError

X = np.arange(120, dtype=np.int32).reshape(4, 5, 6)

KEYS: list[Any] = [
    1,
    -1,
    (1, 2, 3),
    (slice(None), -2),
    slice(1, 3),
    slice(None, None, 2),
    slice(None, None, -1),
    slice(None, None, -3),
    slice(10, 0, -2),
    slice(-3, -1),
    slice(3, 1),
    (Ellipsis, 0),
    (0, Ellipsis),
    (Ellipsis, slice(1, 4), slice(None, None, 2)),
    None,
    (slice(None), None, 2),
    (None, Ellipsis, None),
    (1, None, slice(4, None, -2), None, -1),
    Ellipsis,
    (),
]


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_numbers_and_slices(key: Any) -> None:
    close(Tensor(X)[key], X[key])


ROW, COLUMN = np.array([0, 2, 3]), np.array([[1], [-1]])
TENSOR_KEYS: list[Any] = [
    ROW,
    COLUMN,
    [0, 2],
    (slice(None), ROW),
    (Ellipsis, ROW),
    (ROW, ROW),
    (ROW, COLUMN),
    (slice(None), ROW, COLUMN),
    (ROW, slice(None), ROW),
    (ROW, slice(1, 4), COLUMN),
    (ROW, None, slice(None, None, -1)),
    (slice(1, 3), ROW, slice(None, None, 2)),
    (None, ROW, Ellipsis),
    np.array(2),
    np.array([], np.int32),
    np.array([1, 255], np.uint8) % 4,
    np.array([3, 0], np.int64),
]


@pytest.mark.parametrize("key", TENSOR_KEYS, ids=repr)
def test_integer_tensors(key: Any) -> None:
    parts = key if isinstance(key, tuple) else (key,)
    ours = tuple(Tensor(part) if isinstance(part, np.ndarray) else part for part in parts)
    theirs = tuple(
        np.asarray(part, np.intp) if isinstance(part, (np.ndarray, list)) else part
        for part in parts
    )
    close(Tensor(X)[ours], X[theirs])


def test_a_number_picks_before_tensors_do() -> None:
    """PyTorch's rule: the result of x[0, :, rows] is that of x[0][:, rows]."""
    close(Tensor(X)[0, :, Tensor(ROW)], X[0][:, ROW])


@given(data=st.data())
def test_any_slice(data: st.DataObject) -> None:
    bound = st.none() | st.integers(-8, 8)
    step = data.draw(st.integers(-4, 4).filter(bool))
    key = slice(data.draw(bound), data.draw(bound), step)
    found = Tensor.arange(6)[key]
    assert found.tolist() == list(range(6))[key]


def test_outside_in_data_is_zero() -> None:
    assert Tensor([1, 2, 3])[Tensor([0, 3, -4])].tolist() == [1, 0, 0]
    assert Tensor([[1, 2], [3, 4]])[Tensor([0, 1]), Tensor([2, 1])].tolist() == [0, 4]


@pytest.mark.row("R3.7")
def test_rows_of_a_table() -> None:
    table = numbers(10, 3)
    index = np.array([[7, 0], [9, 9]])
    close(Tensor(table).embedding(Tensor(index)), table[index])
    close(Tensor(table).index_select(1, Tensor([2, 0])), table[:, [2, 0]])
    close(Tensor(X).take(Tensor(index)), X.take(index))


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_gather(axis: int) -> None:
    index = np.random.default_rng(0).integers(0, 4, (3, 4, 2))
    window = X[
        tuple(slice(None) if a == axis % 3 else slice(0, n) for a, n in enumerate(index.shape))
    ]
    close(Tensor(X).gather(axis, Tensor(index)), np.take_along_axis(window, index, axis))


def test_one_hot() -> None:
    assert Tensor([0, 2, 5]).one_hot(3).tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 0]]


@pytest.mark.parametrize("axis", [0, 1])
def test_scatter_add(axis: int) -> None:
    index = np.array([[0, 2, 0], [1, 1, 2]])
    values, base = numbers(2, 3), numbers(3, 3, seed=1)
    expected = base.copy()
    for place in np.ndindex(index.shape):
        at = list(place)
        at[axis] = index[place]
        expected[tuple(at)] += values[place]
    close(Tensor(base).scatter_add(axis, Tensor(index), Tensor(values)), expected)


def test_masked_select_has_the_size_that_is_asked_for() -> None:
    x = Tensor([5, 1, 7, 3])
    assert x.masked_select(x > 2, 3).tolist() == [5, 7, 3]
    assert x.masked_select(x > 2, 2).tolist() == [5, 7]
    assert x.masked_select(x > 2, 5, -1).tolist() == [5, 7, 3, -1, -1]


def test_indices_that_do_not_fit_raise() -> None:
    x = Tensor(X)
    with pytest.raises(IndexBoundsError, match="index 4 is out of range for axis 0 of size 4"):
        x[4]
    with pytest.raises(IndexBoundsError, match="index -6 is out of range for axis 1 of size 5"):
        x[:, -6]
    with pytest.raises(IndexBoundsError, match="getitem: 4 indices for 3 axes"):
        x[0, 0, 0, 0]
    with pytest.raises(IndexBoundsError, match="more than one Ellipsis"):
        x[..., 0, ...]
    with pytest.raises(IndexBoundsError, match="slice step is 0"):
        x[::0]
    with pytest.raises(DTypeError, match="an index must be an integer, not 'a'"):
        x["a"]
    with pytest.raises(DTypeError, match="an index must be an integer, not float32"):
        x[Tensor([0.5])]
    with pytest.raises(DTypeError, match="a bool mask would give a size that only its values tell"):
        x[x > 3]
    with pytest.raises(ShapeError, match=r"getitem: shapes do not broadcast: \(2,\) and \(3,\)"):
        x[Tensor([0, 1]), Tensor([0, 1, 2])]
    with pytest.raises(
        ShapeError, match=r"gather: index \(9, 1\) does not fit \(4, 5\) beside axis 1"
    ):
        x[:, :, 0].gather(1, Tensor.zeros(9, 1, dtype=dtypes.int))
    with pytest.raises(DTypeError, match="gather: an index must be an integer, not float32"):
        x.gather(0, Tensor.zeros(1, 1, 1))


def test_picked_rows_are_joined_and_padded() -> None:
    """The index of a picked row is read where the row is: not beyond its end, in the border."""
    table, index = numbers(5, 2), np.array([4, 0, 2])
    ours, place = Tensor(table).realize(), Tensor(index).realize()
    picked = table[index]
    close(ours[place].pad(((1, 2), (0, 1))), np.pad(picked, ((1, 2), (0, 1))))
    close(ours[place].cat(ours[place[:2]]), np.concatenate([picked, table[index[:2]]]))
