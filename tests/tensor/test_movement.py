"""Movement, joins and pieces, against NumPy; none of them runs a kernel of its own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tensor.helpers import check, close, numbers
from tilegrad import Tensor
from tilegrad.base.errors import DTypeError, IndexBoundsError, ShapeError

X = numbers(2, 3, 4)


@pytest.mark.parametrize("shape", [(24,), (4, 6), (-1, 2), (2, -1, 4), (1, 24, 1)])
def test_reshape(shape: tuple[int, ...]) -> None:
    check(lambda x: x.reshape(shape), None, X)
    check(lambda x: x.reshape(*shape), None, X)
    close(Tensor(X).view(shape), X.reshape(shape))


def test_flatten_unflatten_squeeze_unsqueeze() -> None:
    close(Tensor(X).flatten(), X.reshape(-1))
    close(Tensor(X).flatten(1), X.reshape(2, 12))
    close(Tensor(X).flatten(0, 1), X.reshape(6, 4))
    close(Tensor(X).unflatten(-1, (2, -1)), X.reshape(2, 3, 2, 2))
    close(Tensor(X).unsqueeze(1).squeeze(1), X)
    close(Tensor(X).unsqueeze(-1), X[..., None])
    close(Tensor(X[:, :1]).squeeze(), X[:, 0])
    assert Tensor(3.0).flatten().shape == (1,)


@pytest.mark.parametrize("order", [(2, 0, 1), (0, 2, 1), (-1, -2, -3)])
def test_permute(order: tuple[int, ...]) -> None:
    check(lambda x: x.permute(order), lambda x: x.transpose(order), X)


def test_transpose() -> None:
    close(Tensor(X).transpose(1, 2), X.swapaxes(1, 2))
    close(Tensor(X).transpose(), X.swapaxes(0, 1))
    close(Tensor(X).T, X.T)
    close(Tensor(X).movedim(0, -1), np.moveaxis(X, 0, -1))


def test_expand() -> None:
    close(Tensor(X[:, :1]).expand(2, 5, 4), np.broadcast_to(X[:, :1], (2, 5, 4)))
    close(Tensor(X[:, :1]).expand(-1, 5, -1), np.broadcast_to(X[:, :1], (2, 5, 4)))
    close(Tensor(X).expand(3, 2, 3, 4), np.broadcast_to(X, (3, 2, 3, 4)))
    close(Tensor(X[0, 0]).expand_as(Tensor(X)), np.broadcast_to(X[0, 0], X.shape))
    assert Tensor(1.5).expand(2).tolist() == [1.5, 1.5]


@pytest.mark.parametrize("axes", [(0,), (1, 2), (-1,)])
def test_flip(axes: tuple[int, ...]) -> None:
    check(lambda x: x.flip(axes), lambda x: np.flip(x, axes), X)
    check(lambda x: x.flip(*axes), lambda x: np.flip(x, axes), X)


def test_pad_counts_from_the_last_axis_or_per_axis() -> None:
    close(Tensor(X).pad((1, 2)), np.pad(X, ((0, 0), (0, 0), (1, 2))))
    close(Tensor(X).pad((1, 2, 0, 1)), np.pad(X, ((0, 0), (0, 1), (1, 2))))
    close(Tensor(X).pad(((1, 0), None, (0, 2))), np.pad(X, ((1, 0), (0, 0), (0, 2))))
    close(
        Tensor(X).pad((1, 2), value=-1.5), np.pad(X, ((0, 0), (0, 0), (1, 2)), constant_values=-1.5)
    )
    close(Tensor(X).pad((-1, 1)), np.pad(X[:, :, 1:], ((0, 0), (0, 0), (0, 1))))
    close(Tensor(X).pad(1), np.pad(X, 1))


@pytest.mark.parametrize(
    ("mode", "twin"), [("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")]
)
def test_pad_with_itself(mode: str, twin: str) -> None:
    close(Tensor(X).pad((2, 1, 0, 2), mode=mode), np.pad(X, ((0, 0), (0, 2), (2, 1)), mode=twin))


@pytest.mark.parametrize(("mode", "twin"), [("reflect", "reflect"), ("replicate", "edge")])
@pytest.mark.parametrize("amounts", [(-2, 3), (3, -2), (-3, 2), (2, -3), (-4, 2), (2, -4)])
def test_a_border_is_of_the_whole_axis_where_the_other_end_is_cut(
    amounts: tuple[int, int], mode: str, twin: str
) -> None:
    before, after = amounts
    grown = np.pad(X, ((0, 0), (0, 0), (max(before, 0), max(after, 0))), mode=twin)
    expected = grown[..., max(-before, 0) : grown.shape[-1] - max(-after, 0)]
    close(Tensor(X).pad(amounts, mode=mode), expected)


@pytest.mark.row("F2.5")
def test_a_border_is_zero_whatever_was_computed_inside() -> None:
    close(Tensor(X).exp().pad((1, 1)), np.pad(np.exp(X), ((0, 0), (0, 0), (1, 1))))
    close((Tensor(X) * 2).pad((1, 1)) + 1, np.pad(X * 2, ((0, 0), (0, 0), (1, 1))) + 1)
    close(Tensor(X).pad((1, 1)).exp(), np.exp(np.pad(X, ((0, 0), (0, 0), (1, 1)))))


def test_shrink_and_narrow() -> None:
    close(Tensor(X).shrink(((0, 1), None, (1, 3))), X[:1, :, 1:3])
    close(Tensor(X).narrow(1, 1, 2), X[:, 1:3])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_cat_and_stack(axis: int) -> None:
    y, z = numbers(2, 3, 4, seed=1), numbers(2, 3, 4, seed=2)
    parts = [Tensor(X), Tensor(y), Tensor(z)]
    close(parts[0].cat(*parts[1:], dim=axis), np.concatenate([X, y, z], axis))
    close(Tensor.stack(*parts, dim=axis), np.stack([X, y, z], axis))


def test_a_number_among_tensors_to_join_is_named() -> None:
    x = Tensor([1.0, 2.0])
    for others in ([3], [x, x, 3], [3, x, x]):
        with pytest.raises(DTypeError, match="cannot use an int"):
            x.cat(*others)
        with pytest.raises(DTypeError, match="cannot use an int"):
            x.stack(*others)


def test_cat_meets_in_one_dtype_and_keeps_bits() -> None:
    joined = Tensor([1, 2]).cat(Tensor([0.5]))
    close(joined, np.float32([1, 2, 0.5]))
    values = np.float32([-0.0, np.nan, np.inf])
    assert np.signbit(Tensor(values).cat(Tensor([1.0])).numpy()[0])
    close(Tensor(values > 0).cat(Tensor(values < 1)), np.concatenate([values > 0, values < 1]))
    close(Tensor(X).cat(Tensor.zeros(0, 3, 4)), X)


def test_split_chunk_unbind() -> None:
    for ours, theirs in zip(Tensor(X).split(3, dim=2), np.split(X, [3], 2)):
        close(ours, theirs)
    for ours, theirs in zip(Tensor(X).split([1, 2], dim=1), np.split(X, [1], 1)):
        close(ours, theirs)
    assert [part.shape for part in Tensor(np.arange(7)).chunk(3)] == [(3,), (3,), (1,)]
    for ours, theirs in zip(Tensor(X).unbind(1), np.moveaxis(X, 1, 0)):
        close(ours, theirs)


def test_repeat_interleave_roll() -> None:
    close(Tensor(X).repeat(2, 1, 3), np.tile(X, (2, 1, 3)))
    close(Tensor(X).repeat(2, 1, 1, 2), np.tile(X, (2, 1, 1, 2)))
    close(Tensor(X).repeat_interleave(2, 1), np.repeat(X, 2, 1))
    close(Tensor(X).repeat_interleave(3), np.repeat(X, 3))
    for shift, axis in [(1, 0), (-1, 2), (5, 1), ((1, 2), (0, 2))]:
        close(Tensor(X).roll(shift, axis), np.roll(X, shift, axis))
    close(Tensor(X).roll(7), np.roll(X, 7))


@pytest.mark.parametrize("diagonal", [0, 1, -1, 3, -4])
def test_triangles(diagonal: int) -> None:
    check(lambda x: x.tril(diagonal), lambda x: np.tril(x, diagonal), X)
    check(lambda x: x.triu(diagonal), lambda x: np.triu(x, diagonal), X)


def test_diagonals() -> None:
    vector, matrix = numbers(3), numbers(3, 5)
    check(lambda x: x.diag(), np.diag, vector)
    for offset in (0, 1, -1, 4, -2):
        close(Tensor(matrix).diagonal(offset), np.diagonal(matrix, offset))
    close(Tensor(X).diagonal(0, 2, 1), np.diagonal(X, 0, 2, 1))


@pytest.mark.row("M1.3", "S1.1")
def test_movement_alone_is_only_a_graph() -> None:
    x = Tensor(X).realize()
    moved = x.T.T
    assert moved.shape == X.shape
    close(moved, X)


def test_no_change_is_the_tensor_itself() -> None:
    x = Tensor(X)
    assert x.reshape(2, 3, 4) is x
    assert x.permute(0, 1, 2) is x
    assert x.expand(2, 3, 4) is x
    # These copy, where they change anything.
    assert x.pad((0, 0)) is not x
    assert x.pad((0, 0)).uop is x.flip([]).uop is x.uop


@settings(max_examples=25)
@given(data=st.data())
def test_chains_of_movement_agree(data: st.DataObject) -> None:
    """Random chains of seven movement ops, down to one element or to none, over memory."""
    array = np.arange(1, 25, dtype=np.int32).reshape(2, 3, 4)
    tensor = Tensor(array).realize()
    for _ in range(7):
        if not array.ndim:
            array, tensor = array.reshape(1, 1), tensor.reshape(1, 1)
        axis = data.draw(st.integers(0, array.ndim - 1))
        kind = data.draw(
            st.sampled_from(
                ["flip", "swap", "pad", "shrink", "flat", "stride", "tile", "pick", "last", "one"]
            )
        )
        size = array.shape[axis]
        if kind == "flip":
            array, tensor = np.flip(array, axis), tensor.flip(axis)
        elif kind == "swap":
            array, tensor = array.swapaxes(0, axis), tensor.transpose(0, axis)
        elif kind == "pad":
            array = np.pad(array, [(1, 2) if a == axis else (0, 0) for a in range(array.ndim)])
            tensor = tensor.pad([(1, 2) if a == axis else (0, 0) for a in range(tensor.ndim)])
        elif kind == "shrink" and size > 2:
            array, tensor = array.take(range(1, size), axis), tensor.narrow(axis, 1, size - 1)
        elif kind == "flat" and array.ndim > 1:
            array, tensor = array.reshape(array.shape[0], -1), tensor.flatten(1)
        elif kind == "stride":
            key = (slice(None),) * axis + (
                slice(None, None, data.draw(st.sampled_from([2, -2, 3]))),
            )
            array, tensor = array[key], tensor[key]
        elif kind == "tile" and array.size < 200:
            counts = [2 if a == axis else 1 for a in range(array.ndim)]
            array, tensor = np.tile(array, counts), tensor.repeat(counts)
        elif kind in ("pick", "last", "one") and size:
            key = (slice(None),) * axis + (
                -1 if kind == "last" else data.draw(st.integers(0, size - 1)),
            )
            if kind == "one":
                key = tuple(data.draw(st.integers(0, max(size - 1, 0))) for size in array.shape)
            if array.size:
                array, tensor = array[key], tensor[key]
    close(tensor, array)


def test_an_element_of_padding_is_zero() -> None:
    x = Tensor(np.array([7.0, 8.0], np.float32)).realize()
    assert [x.pad((2, 2))[at].item() for at in range(6)] == [0, 0, 7, 8, 0, 0]
    assert [[x.diag()[i, j].item() for j in range(2)] for i in range(2)] == [[7, 0], [0, 8]]
    assert (x.pad((0, 2))[2:3].sum() + x.pad((1, 0))[0]).item() == 0
    # None of two rows of three, padded back.
    assert Tensor(X[0]).realize()[:0].pad((0, 0, 1, 1))[1, 2].item() == 0


@pytest.mark.row("M2.4")
def test_movement_that_does_not_fit_raises() -> None:
    x = Tensor(X)
    with pytest.raises(ShapeError, match=r"reshape: \(2, 3, 4\) has 24 elements, \(5, 5\) has 25"):
        x.reshape(5, 5)
    with pytest.raises(
        ShapeError, match=r"reshape: \(2, 3, 4\) has 24 elements, \(-1, 7\) has a multiple of 7"
    ):
        x.reshape(-1, 7)
    with pytest.raises(ShapeError, match="more than one size is -1"):
        x.reshape(-1, -1)
    with pytest.raises(ShapeError, match="reshape: size -2 is negative"):
        x.reshape(-2, 12)
    with pytest.raises(ShapeError, match=r"permute: \(0, 0, 1\) does not name each of 3 axes once"):
        x.permute(0, 0, 1)
    with pytest.raises(ShapeError, match=r"expand: \(2, 3, 4\) does not stretch to \(2, 5, 4\)"):
        x.expand(2, 5, 4)
    with pytest.raises(IndexBoundsError, match="flip: axis 3 is out of range for 3 axes"):
        x.flip(3)
    with pytest.raises(
        ShapeError, match=r"shrink: slice \(1, 5\) of axis 1 is not inside its size 3"
    ):
        x.shrink((None, (1, 5), None))
    with pytest.raises(ShapeError, match="pad: 3 amounts for 3 axes"):
        x.pad((1, 2, 3))
    with pytest.raises(ShapeError, match="pad: unknown mode 'mirror'"):
        x.pad((1, 1), mode="mirror")
    with pytest.raises(ShapeError, match="cat: shapes differ beside axis 0"):
        x.cat(Tensor(X[:, :2]))
    with pytest.raises(ShapeError, match=r"stack: shapes differ: \(2, 3, 4\) and \(2, 2, 4\)"):
        x.stack(Tensor(X[:, :2]))
    with pytest.raises(
        ShapeError, match=r"split: \(1, 1\) does not add up to the size 3 of axis 1"
    ):
        x.split([1, 1], dim=1)


def test_shapes_and_orders_under_their_names() -> None:
    x = Tensor([[1, 2, 3], [4, 5, 6]])
    assert (
        x.reshape(shape=(3, 2)).tolist()
        == x.view(shape=(3, 2)).tolist()
        == [[1, 2], [3, 4], [5, 6]]
    )
    assert x.reshape(shape=-1).shape == (6,)
    assert x.permute(order=(1, 0)).tolist() == x.permute(dims=(1, 0)).tolist() == x.T.tolist()
    assert x[:1].expand(shape=(2, 3)).tolist() == [[1, 2, 3]] * 2
    assert x.flip(axis=0).tolist() == x.flip(dims=(0,)).tolist() == [[4, 5, 6], [1, 2, 3]]
    assert x.repeat(repeats=(1, 2)).tolist() == [[1, 2, 3] * 2, [4, 5, 6] * 2]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "float32"])
@pytest.mark.parametrize("factor", [-1, 3, "row"])
def test_a_triangle_of_joined_rows_times_something(dtype: str, factor: int | str) -> None:
    """One rule moved the border out of the product of integers, and another back into it."""
    x = np.array([[1, 2]], dtype)
    by = np.array([[3, 5]], dtype) if factor == "row" else np.array(factor).astype(dtype)
    expected = np.triu(np.concatenate([x, x]) * by)
    rows = Tensor(x)
    np.testing.assert_array_equal((rows.cat(rows, dim=0) * Tensor(by)).triu().numpy(), expected)
    column = rows[:, :1]
    joined = (column.cat(column, dim=0) * Tensor(by.ravel()[:1])).triu()
    np.testing.assert_array_equal(joined.numpy(), expected[:, :1])
