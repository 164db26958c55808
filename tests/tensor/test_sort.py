"""Sorting and selecting, against NumPy: order, ties, NaN, extremes, axes, gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.tensor.helpers import numbers
from tilegrad import Tensor, TinyJit, dtypes
from tilegrad.base.errors import IndexBoundsError, ShapeError

KINDS: list[Any] = [
    np.bool_, np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64,
    np.float16, np.float32, np.float64,
]  # fmt: skip


def drawn(kind: Any, *shape: int, seed: int = 0) -> np.ndarray:
    """Values with ties and the extremes of the dtype."""
    generator = np.random.default_rng(seed)
    if kind is np.bool_:
        return generator.integers(0, 2, shape).astype(bool)
    if np.issubdtype(kind, np.floating):
        limits = [np.inf, -np.inf, -0.0, 0.0, np.finfo(kind).max, np.finfo(kind).tiny, 1, 1, -2]
        values = generator.normal(size=shape)
    else:
        limits = [np.iinfo(kind).min, np.iinfo(kind).max, 0, 1]
        values = generator.integers(0, 50, shape)
    array = values.astype(kind)
    flat = array.reshape(-1)
    flat[: len(limits)] = np.array(limits, kind)[: flat.size]
    return generator.permuted(array, axis=-1)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_short_rows(kind: Any) -> None:
    array = drawn(kind, 3, 13)
    values, order = Tensor(array).sort()
    np.testing.assert_array_equal(values.numpy(), np.sort(array, kind="stable"))
    np.testing.assert_array_equal(order.numpy(), np.argsort(array, kind="stable"))
    assert (values.dtype, order.dtype) == (Tensor(array).dtype, dtypes.int32)


@pytest.mark.parametrize("kind", [np.uint8, np.float16, np.float32, np.int64])
def test_long_rows(kind: Any) -> None:
    """Rows of no round length, longer than all pairs are compared of."""
    array = drawn(kind, 2, 1731)
    values, order = Tensor(array).sort()
    np.testing.assert_array_equal(values.numpy(), np.sort(array, kind="stable"))
    np.testing.assert_array_equal(order.numpy(), np.argsort(array, kind="stable"))


def test_a_row_in_parts() -> None:
    array = np.random.default_rng(1).integers(-500, 500, 40_001).astype(np.int32)
    order = Tensor(array).argsort().numpy()
    np.testing.assert_array_equal(order, np.argsort(array, kind="stable"))
    # Equal elements keep their order downward too.
    down = Tensor(array).argsort(descending=True).numpy()
    np.testing.assert_array_equal(down, np.argsort(-array, kind="stable"))


@pytest.mark.parametrize("size", [9, 1500])
def test_nan_counts_as_largest(size: int) -> None:
    array = numbers(2, size)
    array[:, ::4] = np.nan
    array[:, 1] = -np.nan
    np.testing.assert_array_equal(Tensor(array).sort()[0].numpy(), np.sort(array))
    order = Tensor(array).argsort(descending=True).numpy()
    nans = np.isnan(array).sum(1)
    for row in range(2):
        assert np.isnan(array[row][order[row][: nans[row]]]).all()
        kept = array[row][order[row][nans[row] :]]
        np.testing.assert_array_equal(kept, np.sort(kept)[::-1])
    best = Tensor(array).topk(2)[0].numpy()
    assert np.isnan(best).all()


def test_along_any_axis() -> None:
    array = drawn(np.int32, 3, 4, 5)
    for axis in (0, 1, -1):
        values, order = Tensor(array).sort(axis, descending=True)
        np.testing.assert_array_equal(values.numpy(), -np.sort(-array.astype(np.int64), axis))
        picked = np.take_along_axis(array, order.numpy().astype(int), axis)
        np.testing.assert_array_equal(picked, values.numpy())


def test_of_little() -> None:
    zero = Tensor(5.0).sort()
    assert (zero[0].item(), zero[1].item()) == (5.0, 0)
    assert Tensor(2).topk(1)[0].tolist() == 2
    assert Tensor(2).topk(0)[1].tolist() == []
    assert [part.shape for part in Tensor.zeros(2, 0, 3).sort(1)] == [(2, 0, 3)] * 2
    assert [part.tolist() for part in Tensor([[7], [8]]).sort()] == [[[7], [8]], [[0], [0]]]
    assert [part.shape for part in Tensor.zeros(2, 3).topk(0)] == [(2, 0)] * 2
    # Of a constant, which has no memory.
    assert Tensor.arange(5).sort(descending=True)[0].tolist() == [4, 3, 2, 1, 0]


@pytest.mark.parametrize(("size", "k"), [(11, 3), (11, 11), (1600, 4)])
@pytest.mark.parametrize("largest", [True, False])
def test_topk(size: int, k: int, largest: bool) -> None:
    array = np.random.default_rng(2).integers(-99, 99, (2, size)).astype(np.int32)
    values, order = Tensor(array).topk(k, largest=largest)
    expected = np.argsort(-array if largest else array, kind="stable")[:, :k]
    np.testing.assert_array_equal(order.numpy(), expected)
    np.testing.assert_array_equal(values.numpy(), np.take_along_axis(array, expected, 1))


def test_topk_of_worst_values_prefers_elements_to_fill() -> None:
    array = np.full(5003, -np.inf, np.float32)
    array[4000] = 1
    values, order = Tensor(array).topk(3)
    assert values.tolist() == [1, -np.inf, -np.inf]
    assert order.tolist() == [4000, 0, 1]


def test_gradients_go_to_what_was_picked() -> None:
    array = numbers(2, 6)
    weights = np.arange(1, 13, dtype=np.float32).reshape(2, 6)
    x = Tensor(array)
    values, _ = x.sort()
    expected = np.empty_like(array)
    np.put_along_axis(expected, np.argsort(array), weights, 1)
    (found,) = (values * Tensor(weights)).sum().gradient(x)
    np.testing.assert_array_equal(found.numpy(), expected)
    best, _ = x.topk(2, dim=0)
    (found,) = (best[0] * 3 + best[1]).sum().gradient(x)
    expected = np.where(array == array.max(0), 3, 1).astype(np.float32)
    np.testing.assert_array_equal(found.numpy(), expected)


def test_what_cannot_be_sorted_raises() -> None:
    x = Tensor.zeros(2, 3)
    with pytest.raises(IndexBoundsError, match="argsort: axis 2 is out of range for 2 axes"):
        x.sort(2)
    with pytest.raises(ShapeError, match="topk: k is 4, axis 1 has 3 elements"):
        x.topk(4)


def test_captured() -> None:
    @TinyJit
    def step(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        values, order = x.sort(descending=True)
        return values.realize(), order.realize(), x.topk(3)[0].realize()

    for seed in range(4):
        array = numbers(1800, seed=seed)
        values, order, best = step(Tensor(array).realize())
        expected = np.sort(array)[::-1]
        np.testing.assert_array_equal(values.numpy(), expected)
        np.testing.assert_array_equal(array[order.numpy()], expected)
        np.testing.assert_array_equal(best.numpy(), expected[:3])


def test_rows_of_one_element() -> None:
    """Three gates in a vector of four, which are repeated as they are, not as a word."""
    for dtype in (np.int32, np.float64, np.bool_):
        x = np.array([[3], [0], [1]], dtype)
        values, places = Tensor(x).sort()
        np.testing.assert_array_equal(values.numpy(), x)
        assert places.tolist() == [[0], [0], [0]]
