"""Choosing elements by their values, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.tensor.helpers import close, numbers
from tilegrad import Tensor, TinyJit, dtypes
from tilegrad.base.errors import CaptureError, ShapeError
from tilegrad.base.trace import counters


@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 0), (1, 1, 5)])
def test_nonzero(shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(-1, 2, shape).astype(np.int32)
    expected = np.stack(np.nonzero(array), 1).astype(np.int32)
    close(Tensor(array).nonzero(), expected)
    wide = np.full((9, len(shape)), -5, np.int32)
    wide[: len(expected)] = expected[:9]
    close(Tensor(array).nonzero(size=9, fill_value=-5), wide)


def test_nonzero_of_little() -> None:
    assert Tensor(3.0).nonzero().shape == (1, 0)
    assert Tensor(0.0).nonzero().shape == (0, 0)
    assert Tensor([0.0, -0.0]).nonzero().shape == (0, 1)
    assert Tensor([True]).nonzero().tolist() == [[0]]
    assert Tensor.zeros(2, 0, 3).nonzero(size=2, fill_value=-1).tolist() == [[-1] * 3] * 2
    assert Tensor.zeros(2, 0, 3).nonzero().shape == (0, 3)
    with pytest.raises(ShapeError, match="nonzero: size -1 is negative"):
        Tensor([1]).nonzero(size=-1)


def test_nonzero_with_a_size_is_an_index_and_is_captured() -> None:
    table = numbers(3, 4)
    x = Tensor(table).realize()

    @TinyJit
    def step(mask: Tensor) -> Tensor:
        return x[mask.nonzero(size=2)[:, 0], 1:3].realize()

    @TinyJit
    def unsized(mask: Tensor) -> Tensor:
        return x[mask].realize()

    for bits in ([True, False, True], [False, True, True], [True, True, False]):
        mask = Tensor(bits).realize()
        close(step(mask), table[np.array(bits), 1:3])
    mask = Tensor([True, False, True]).realize()
    unsized(mask)
    with pytest.raises(CaptureError):
        unsized(mask)


def test_another_number_of_them_finds_them_by_the_same_kernels() -> None:
    """Only what gathers them has kernels for their number."""
    x = Tensor(numbers(7, 9)).realize()
    assert x[Tensor(np.arange(7) < 3)].shape == (3, 9)
    for count in (2, 5):
        mask = Tensor(np.arange(7) < count).realize()
        before = counters.compiles
        assert mask.nonzero().realize().shape == (count, 1)
        assert counters.compiles - before <= 1
        assert x[mask].realize().shape == (count, 9)


def test_masked_select() -> None:
    array = np.array([[-0.0, np.inf], [np.nan, 4.0]], np.float32)
    mask = np.array([[True, True], [False, True]])
    found = Tensor(array).masked_select(Tensor(mask)).numpy()
    np.testing.assert_array_equal(found, array[mask])
    assert np.signbit(found[0])
    # A mask stretches as an operand does.
    close(Tensor(array).masked_select(Tensor([False, True])), array[:, 1])
    # And so does what it selects from.
    close(Tensor(array[0]).masked_select(Tensor(mask)), np.broadcast_to(array[0], (2, 2))[mask])
    assert Tensor(7).masked_select(Tensor(mask)).tolist() == [7, 7, 7]
    truth = Tensor([True, False, True])
    assert truth.masked_select(Tensor([False, True, True]), 3, 1).tolist() == [False, True, True]
    assert Tensor([1.0]).masked_select(Tensor([False])).shape == (0,)
    assert Tensor([], dtype=dtypes.int32).masked_select(Tensor([]), 2, 7).tolist() == [7, 7]
    x = Tensor([1.0, 2.0, 3.0])
    (gradient,) = (x.masked_select(x > 1, 4) * Tensor([1.0, 5, 7, 9])).sum().gradient(x)
    assert gradient.tolist() == [0.0, 1.0, 5.0]


ARRAYS: dict[str, Any] = {
    "integers": np.array([[3, 1, 3], [-2, 1, 3]], np.int32),
    "floats": np.array([np.nan, 2.0, -0.0, np.inf, 0.0, np.nan, 2.0], np.float32),
    "bools": np.array([True, False, True]),
    "one": np.array([7], np.int64),
    "nothing": np.array([], np.float32),
}


@pytest.mark.parametrize("name", list(ARRAYS))
def test_unique(name: str) -> None:
    array = ARRAYS[name]
    values, inverse, counts = Tensor(array).unique(return_inverse=True, return_counts=True)
    expected = np.unique(array, return_inverse=True, return_counts=True)
    np.testing.assert_array_equal(values.numpy(), expected[0])
    np.testing.assert_array_equal(inverse.numpy().ravel(), expected[1].ravel())
    np.testing.assert_array_equal(counts.numpy(), expected[2])
    assert inverse.shape == array.shape
    assert (inverse.dtype, counts.dtype) == (dtypes.int32, dtypes.int32)


def test_unique_of_a_given_size() -> None:
    x = Tensor([3, 1, 3, 9])
    values, counts = x.unique(return_counts=True, size=5, fill_value=-1)
    assert (values.tolist(), counts.tolist()) == ([1, 3, 9, -1, -1], [1, 2, 1, 0, 0])
    values, inverse = x.unique(return_inverse=True, size=2)
    assert (values.tolist(), inverse.tolist()) == ([1, 3], [1, 0, 1, 2])
    assert x.unique(size=0).shape == (0,)
