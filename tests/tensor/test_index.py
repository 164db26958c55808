"""Indexing by numbers, slices and integer tensors, gathering, scattering and writing in part,
against NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tensor.helpers import close, numbers
from tilegrad import Tensor, Variable, dtypes
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


# Keys with numbers beside a tensor of several positions, and what NumPy takes in two steps.
NUMBER_KEYS: list[tuple[tuple[Any, ...], Any]] = [
    ((1, None, ROW), X[1][None, ROW]),
    ((1, slice(None), ROW), X[1][:, ROW]),
    ((slice(None), 4, ROW), X[:, 4][:, ROW]),
    ((ROW, 2, slice(1, 4)), X[:, 2, 1:4][ROW]),
    ((ROW, slice(None), 2), X[:, :, 2][ROW]),
    ((3, ROW, slice(None)), X[3][ROW]),
    ((1, ROW, 3), X[1, :, 3][ROW]),
    ((2, None, 1, None, 5), X[2, None, 1, None, 5]),
]


@pytest.mark.parametrize(("key", "expected"), NUMBER_KEYS, ids=lambda part: str(part)[:30])
@pytest.mark.parametrize("kind", ["int64", "int32", "uint8"])
def test_a_tensor_without_axes_picks_first_as_a_number_does(
    key: tuple[Any, ...], expected: Any, kind: str
) -> None:
    """As in PyTorch: it is gone before the axes of the other tensors find their place."""
    ours = tuple(
        Tensor(part, dtype=kind if isinstance(part, int) else None)
        if isinstance(part, (int, np.ndarray))
        else part
        for part in key
    )
    close(Tensor(X)[ours], expected)
    written = Tensor(X).contiguous().realize()
    written[ours] = Tensor(np.arange(expected.size).reshape(expected.shape))
    close(written[ours], np.arange(expected.size).reshape(expected.shape))
    assert (written.numpy() != X).sum() <= expected.size


# Sequences as indices: each is an array, wherever it stands in the key.
SEQUENCE_KEYS: list[Any] = [
    [[0, 1], [1, 0]],
    [(0, 1), (2, 0)],
    [[[3]]],
    [],
    ((0, 2), (1, 3)),
    ((0, 2),),
    ((), 0),
    ([0, 2], (1, 3)),
    (((0,), (2,)), (1, 3)),
    (0, ((1, 2), (3, 4))),
    (slice(None), ((0, 1), (2, 3))),
    (Ellipsis, (0, -1)),
    ((0, 2), None, slice(None, None, 2)),
    ((True, False, True, False),),
    ((True, False, True, False), (1, 2)),
    ([np.int64(0), np.uint8(2)],),
    ([np.bool_(True), np.bool_(False)] * 2,),
    (range(2), (0, 1)),
]


@pytest.mark.parametrize("key", SEQUENCE_KEYS, ids=repr)
def test_nested_lists_and_tuples(key: Any) -> None:
    """As in NumPy, where tuples inside of a key are arrays too."""
    as_arrays = key if isinstance(key, tuple) else (key,)
    as_arrays = tuple(
        np.array(part, bool if part and isinstance(part[0], (bool, np.bool_)) else np.int64)
        if isinstance(part, (list, tuple, range))
        else part
        for part in as_arrays
    )
    close(Tensor(X)[key], X[as_arrays])
    written, mine = X.copy(), Tensor(X).contiguous().realize()
    written[as_arrays] = mine[key] = -7
    close(mine, written)


def test_a_list_that_is_no_array_stands_for_a_tuple() -> None:
    """As in PyTorch and tinygrad."""
    x, rows = Tensor(X), Tensor([0, 2])
    close(x[[rows, [1, 3]]], X[[0, 2], [1, 3]])
    close(x[[0, [1, 3]]], X[0, [1, 3]])
    close(x[[0, (1, 3), rows]], X[0, [1, 3], [0, 2]])
    close(x[[slice(1, 3), 0]], X[1:3, 0])
    close(x[[None, 0]], X[None, 0])
    close(x[[Ellipsis, 0]], X[..., 0])
    written, mine = X.copy(), x.contiguous().realize()
    written[[0, 2], [1, 3]] = mine[[rows, [1, 3]]] = 5
    close(mine, written)


@pytest.mark.parametrize("key", [True, False, np.True_, np.array(False), Tensor(True)], ids=repr)
def test_a_bool_is_no_index(key: Any) -> None:
    with pytest.raises(DTypeError, match="a bool is no index"):
        Tensor(X)[key]


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
    assert Tensor([1, 2, 3])[Tensor([0, 3, -4]) * 1].tolist() == [1, 0, 0]
    assert Tensor([[1, 2], [3, 4]])[Tensor([0, 1]), Tensor([2, 1]) * 1].tolist() == [0, 4]


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
    assert (Tensor([0, 2, 5]) * 1).one_hot(3).tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 0]]


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


@st.composite
def keys(draw: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Any index of an array of `shape`: numbers, slices, None, Ellipsis, integer arrays that
    broadcast, masks of one or two axes.
    """
    length, axis = draw(st.integers(1, 3)), 0
    parts: list[Any] = []
    dotted = False
    while axis < len(shape) and len(parts) < 6:
        size = shape[axis]
        kind = draw(st.sampled_from(["number", "slice", "none", "array", "mask", "dots", "end"]))
        if kind == "end":
            break
        if kind == "none":
            parts.append(None)
            continue
        if kind == "dots" and not dotted:
            dotted = True
            skipped = draw(st.integers(0, len(shape) - axis))
            parts.append((Ellipsis, skipped))
            axis += skipped
            continue
        if kind in ("number", "array") and size:
            index = st.integers(-size, size - 1)
            if kind == "number":
                parts.append(draw(index))
            else:
                count = draw(st.sampled_from([1, length]))
                parts.append(np.array(draw(st.lists(index, min_size=count, max_size=count))))
        elif kind == "mask" and not any(isinstance(part, np.ndarray) for part in parts):
            depth = draw(st.integers(1, min(2, len(shape) - axis)))
            sizes = shape[axis : axis + depth]
            bits = draw(st.lists(st.booleans(), min_size=1, max_size=1)) * int(np.prod(sizes))
            mask = np.array(bits, bool).reshape(sizes)
            # One true, or all: such masks go with every array beside them.
            if mask.size and length == 1:
                mask[:] = False
                mask.flat[draw(st.integers(0, mask.size - 1))] = True
            elif any(isinstance(part, np.ndarray) for part in parts) or not mask.size:
                continue
            else:
                length = int(mask.sum()) or 1
            parts.append(mask)
            axis += depth
            continue
        else:
            bound = st.none() | st.integers(-size - 2, size + 2)
            step = draw(st.integers(-3, 3).filter(bool))
            parts.append(slice(draw(bound), draw(bound), step))
        axis += 1
    if not dotted:
        parts.append((Ellipsis, len(shape) - axis))
    else:
        # What Ellipsis stands for is what is left.
        at = next(place for place, part in enumerate(parts) if isinstance(part, tuple))
        parts[at] = (Ellipsis, parts[at][1] + len(shape) - axis)
    return tuple(parts)


def in_two_steps(key: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """An index as one by numbers and slices, and then one by arrays: PyTorch's order."""
    first: list[Any] = []
    second: list[Any] = []
    for part in key:
        if isinstance(part, tuple):
            first += [slice(None)] * part[1]
            second += [slice(None)] * part[1]
        elif isinstance(part, np.ndarray):
            first += [slice(None)] * (part.ndim if part.dtype == bool else 1)
            second.append(part)
        else:
            first.append(part)
            second += [] if isinstance(part, int) else [slice(None)]
    # With Ellipsis a view even of one element.
    return (*first, Ellipsis), tuple(second)


def check_any_index(data: st.DataObject) -> None:
    """Reading and writing by any index is what NumPy does."""
    shape = tuple(data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=3)))
    key = data.draw(keys(shape))
    array = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)
    first, second = in_two_steps(key)
    as_tensors = data.draw(st.booleans())
    ours = tuple(
        Ellipsis if isinstance(part, tuple)
        else Tensor(part) if isinstance(part, np.ndarray) and as_tensors
        else part
        for part in key
    )  # fmt: skip
    x = Tensor(array)
    try:
        expected = array[first][second]
    except IndexError:
        with pytest.raises(IndexError):
            x[ours].realize()
        return
    close(x[ours], expected)
    values = -1 - np.arange(expected.size, dtype=np.int32).reshape(expected.shape)
    array[first][second] = values
    x[ours] = Tensor(values)
    close(x, array)
    array[first][second] = 7
    x[ours] = 7
    close(x, array)


@settings(max_examples=25)
@given(data=st.data())
def test_any_index(data: st.DataObject) -> None:
    check_any_index(data)


@pytest.mark.nightly
@settings(max_examples=100)
@given(data=st.data())
def test_any_index_often(data: st.DataObject) -> None:
    check_any_index(data)


def test_masks_pick_and_write() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
    x = Tensor(array)
    close(x[x > 0], array[array > 0])
    close(x[x > 100], array[array > 100])
    rows = np.array([True, False, True])
    close(x[Tensor(rows)], array[rows])
    close(x[rows, 1:], array[rows, 1:])
    close(x[[True, False, True], [0, 3]], array[rows, [0, 3]])
    x[x < 0] = Tensor([10.0, 20.0, 30.0, 40.0, 50.0])
    array[array < 0] = [10, 20, 30, 40, 50]
    close(x, array)
    x[Tensor(rows)] = Tensor([[1.0, 2.0, 3.0, 4.0]])
    array[rows] = [[1, 2, 3, 4]]
    close(x, array)
    x[Tensor(rows), 2] += 1
    array[rows, 2] += 1
    close(x, array)


def test_an_index_outside_writes_nothing() -> None:
    x = Tensor([[1, 2], [3, 4]]).realize()
    x[Tensor([0, 2]) * 1, Tensor([1, 0])] = Tensor([7, 8])
    assert x.tolist() == [[1, 7], [3, 4]]
    x[Tensor([-3]) * 1] = 9
    assert x.tolist() == [[1, 7], [3, 4]]


def test_a_gradient_goes_where_an_element_was_picked() -> None:
    x = Tensor(numbers(3, 4))
    mask = x > 0
    (found,) = (x[mask] * 2).sum().gradient(x)
    close(found, mask.numpy() * np.float32(2))


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
    with pytest.raises(IndexBoundsError, match="index 5 is out of range for axis 1 of size 5"):
        x[:, [0, 5]]
    with pytest.raises(IndexBoundsError, match="index -5 is out of range for axis 0 of size 4"):
        x[np.array([[1, -5]])]
    with pytest.raises(IndexBoundsError, match="a mask of size 4 does not fit axis 1 of size 5"):
        x[:, [True, False, True, False]]
    with pytest.raises(IndexBoundsError, match="a mask of size 3 does not fit axis 0 of size 4"):
        x[Tensor([True, False, True])] = 0
    with pytest.raises(DTypeError, match=r"an index must be an integer, not 0\.5"):
        x[[0.5]]
    with pytest.raises(DTypeError, match="a bool is no index"):
        x[True]
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


def test_symbolic_integers_pick_and_write_beside_tensors() -> None:
    array = np.zeros((3, 4), np.float32)
    x = Tensor(array)
    place = Variable("place", 0, 2)
    for at in (1, 2):
        bound = place.bind(at)
        x[bound, Tensor([0, 3])] = Tensor([5.0, 6.0]) + at
        array[at, [0, 3]] = [5 + at, 6 + at]
        x[bound] = x[bound] + 1
        array[at] += 1
        x[bound, 1:3] = 7
        array[at, 1:3] = 7
        close(x[bound, Tensor([3, 1])], array[at, [3, 1]])
    close(x, array)


@pytest.mark.parametrize("size", [1, 3])
def test_what_was_picked_is_picked_from(size: int) -> None:
    """The place of a lane is taken from a vector of them, with a remainder in it: never outside."""
    array = np.random.default_rng(0).standard_normal((2, 4, size), np.float32)
    places = np.array([0, -1, 0])
    picked = Tensor(array).index_select(2, Tensor(places))
    largest = picked.gather(1, picked.argmax(1, keepdim=True))
    np.testing.assert_array_equal(largest.numpy(), array[..., places].max(1, keepdims=True))


def test_gather_by_an_index_that_is_a_sum_and_waits() -> None:
    """From the third call on the sum has a template, and is no node when it is looked at."""
    table = numbers(4, 3)
    rows = np.array([[0, 1, 2], [1, 0, 1]])
    x, first, other = Tensor(table).realize(), Tensor(rows).realize(), Tensor(rows[::-1].copy())
    for _ in range(4):
        index = first + other
        close(x.gather(0, index), np.take_along_axis(table, rows + rows[::-1], 0))
