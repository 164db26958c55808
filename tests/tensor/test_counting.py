"""Searching and counting, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.tensor.helpers import close, numbers
from tilegrad import Tensor, dtypes
from tilegrad.base.errors import DTypeError, IndexBoundsError, ShapeError


@pytest.mark.parametrize("size", [1, 16, 17, 32, 100])
def test_searchsorted(size: int) -> None:
    generator = np.random.default_rng(size)
    row = np.sort(generator.integers(-9, 9, size)).astype(np.int32)
    values = generator.integers(-11, 11, (4, 7)).astype(np.int32)
    x = Tensor(row)
    for side in ("left", "right"):
        expected = np.searchsorted(row, values, side).astype(np.int32)  # type: ignore[call-overload]
        close(x.searchsorted(Tensor(values), side=side), expected)
    close(Tensor(values).bucketize(x, right=True), np.digitize(values, row).astype(np.int32))


def test_searchsorted_of_floats_rows_and_little() -> None:
    row = np.array([-np.inf, -1, 0, 0, 2.5, np.inf, np.nan], np.float32)
    values = np.array([np.nan, np.inf, -np.inf, -0.0, 2.4, 1e30], np.float32)
    close(Tensor(row).searchsorted(Tensor(values)), np.searchsorted(row, values).astype(np.int32))
    rows = np.sort(numbers(3, 20), axis=1)
    wanted = numbers(3, 4, seed=1)
    expected = np.stack([np.searchsorted(r, v) for r, v in zip(rows, wanted)]).astype(np.int32)
    close(Tensor(rows).searchsorted(Tensor(wanted)), expected)
    # Integers among floats are compared as floats.
    assert Tensor([1, 2, 3]).searchsorted(2.5).item() == 2
    assert Tensor([1, 2, 3]).searchsorted(Tensor([])).shape == (0,)
    assert Tensor([]).searchsorted(Tensor([1.0, 2.0])).tolist() == [0, 0]
    assert Tensor([0.0, 1.0]).bucketize([0.5]).tolist() == [0, 1]
    assert Tensor(3.0).bucketize([0.5, 2.0]).item() == 2


def test_bincount() -> None:
    array = np.array([[3, 0, 3], [1, 5, 0]], np.int32)
    x = Tensor(array)
    close(x.bincount(), np.bincount(array.ravel()).astype(np.int32))
    close(x.bincount(minlength=9), np.bincount(array.ravel(), minlength=9).astype(np.int32))
    close(x.bincount(size=4), np.bincount(array.ravel())[:4].astype(np.int32))
    weights = numbers(2, 3)
    w = Tensor(weights)
    (gradient,) = (x.bincount(w) * Tensor.arange(6)).sum().gradient(w)
    close(gradient, array.astype(np.float32))
    close(x.bincount(w), np.bincount(array.ravel(), weights.ravel()).astype(np.float32))
    assert Tensor([200, 7], dtype=dtypes.uint8).bincount(size=201)[200].item() == 1
    assert Tensor([], dtype=dtypes.int32).bincount(minlength=2).tolist() == [0, 0]
    assert Tensor([-1, 0]).bincount(size=2).tolist() == [1, 0]


@pytest.mark.parametrize("bins", [1, 4, 7, 40])
@pytest.mark.parametrize("limits", [None, (-1.0, 1.5), (0.25, 0.25)])
def test_histogram(bins: int, limits: Any) -> None:
    array = np.random.default_rng(bins).normal(size=200)
    # On edges that are exact, the ends among them.
    array[:4] = -1.0, 1.5, 0.25, 0.0
    counts, edges = Tensor(array).histogram(bins, limits)
    expected, where = np.histogram(array, bins, limits)
    close(edges, where, rtol=1e-12)
    close(counts, expected.astype(np.int32))


def test_histogram_of_edges_weights_and_densities() -> None:
    array = np.array([0.0, 0.5, 1.0, 2.0, 3.0, np.nan, -1.0], np.float32)
    edges = np.array([0, 0.5, 2, 3], np.float32)
    close(Tensor(array).histogram(edges)[0], np.histogram(array, edges)[0].astype(np.int32))
    weights = numbers(7)
    found = Tensor(array).histogram(edges, weights=Tensor(weights), density=True)[0]
    close(found, np.histogram(array, edges, weights=weights, density=True)[0].astype(np.float32))
    whole = np.array([1, 2, 2, 9], np.int32)
    close(Tensor(whole).histogram(4)[0], np.histogram(whole, 4)[0].astype(np.int32))
    assert Tensor([]).histogram(2)[0].tolist() == [0, 0]
    assert Tensor([5.0]).histogram(2)[1].tolist() == [4.5, 5.0, 5.5]


def test_what_does_not_fit_raises() -> None:
    x = Tensor([[1, 2], [3, 4]])
    with pytest.raises(
        ShapeError, match=r"searchsorted: rows of \(2, 2\) do not go with values of"
    ):
        x.searchsorted(Tensor([[1]]))
    with pytest.raises(DTypeError, match="searchsorted: unknown side 'middle'"):
        x[0].searchsorted(1, side="middle")
    with pytest.raises(ShapeError, match=r"bucketize: boundaries are a vector, not \(2, 2\)"):
        x.bucketize(x)
    with pytest.raises(DTypeError, match="bincount: integers are needed, not float32"):
        x.float().bincount()
    with pytest.raises(IndexBoundsError, match="bincount: an element is -1"):
        (x - 2).bincount()
    with pytest.raises(ShapeError, match=r"bincount: weights \(2,\) of values \(2, 2\)"):
        x.bincount(x[0])
    with pytest.raises(ShapeError, match="histogram: 0 intervals"):
        x.histogram(0)
    with pytest.raises(DTypeError, match=r"histogram: no intervals from 2\.0 to 1\.0"):
        x.histogram(3, (2, 1))
