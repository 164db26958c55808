"""Slices of memory whose offsets change from step to step: one segment serves all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.engine.test_price import calls_of, in_a_process
from tests.tensor.helpers import numbers
from tilegrad import Context, Tensor
from tilegrad.base.errors import IndexBoundsError
from tilegrad.base.trace import counters

# What is read of a vector of 60 and a matrix (20, 7), for two offsets.
READS: dict[str, Callable[[Any, Any, int, int], Any]] = {
    "slice": lambda v, m, i, j: (v[i : i + 9] * 2).sum(),
    "element": lambda v, m, i, j: v[i] * 3 + v[j],
    "equal at times": lambda v, m, i, j: (v[i : i + 4] * v[j : j + 4]).sum(),
    "beside a fixed one": lambda v, m, i, j: (v[i : i + 4] - v[3:7] * 2).sum(),
    "beside all": lambda v, m, i, j: (v[i : i + 4] * v.sum()).sum(),
    "rows": lambda v, m, i, j: (m[i : i + 3] * m[j]).sum(),
    "two axes": lambda v, m, i, j: (m[i : i + 2, j % 4 : j % 4 + 3] * 0.5).sum(),
    "column": lambda v, m, i, j: (m[:, j % 7] + m[i, j % 7]).sum(),
    "from the end": lambda v, m, i, j: (v[-i - 1] + v[-9 - j : -1 - j] * 2).sum(),
    "of a transpose": lambda v, m, i, j: (m.T[:, i] * 2 + m[i]).sum(),
    "of a slice": lambda v, m, i, j: (v[5:50][i : i + 3] * 2).sum(),
    "a step": lambda v, m, i, j: (v[i : i + 9 : 2] * 2).sum(),
    "reshaped": lambda v, m, i, j: (m.reshape(10, 14)[i % 9] * 2 + m[0, 0]).sum(),
}


@pytest.mark.parametrize("segments", [1, 2])
@pytest.mark.parametrize("name", READS)
def test_slices_are_where_numpy_has_them(name: str, segments: int) -> None:
    read = READS[name]
    vector, matrix = numbers(60).astype(np.float32), numbers(20, 7, seed=1).astype(np.float32)
    v, m = Tensor(vector.copy()).realize(), Tensor(matrix.copy()).realize()
    offsets = [(3, 3), (4, 5), (5, 7), (3, 9), (8, 8), (12, 1), (0, 0), (1, 0), (9, 3), (16, 16)]
    with Context(SEGMENTS=segments):
        for i, j in offsets * 2:
            expected = read(vector.astype(np.float64), matrix.astype(np.float64), i, j)
            found = read(v, m, i, j)
            np.testing.assert_allclose(np.sum(found.item()), expected, rtol=1e-4, atol=1e-4)


def test_slices_of_what_is_written() -> None:
    array = numbers(30).astype(np.float32)
    x = Tensor(array.copy()).realize()
    for step in range(16):
        x[step] = x[step + 3] * 0.5 + x[step : step + 4].sum()
        array[step] = array[step + 3] * 0.5 + array[step : step + 4].sum()
        np.testing.assert_allclose(x.sum().item(), array.sum(), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(x.numpy(), array, rtol=1e-4)


def test_views_of_slices_that_are_read_beside_a_write() -> None:
    array = numbers(40).astype(np.float32)
    x, total = Tensor(array.copy()).realize(), Tensor(np.zeros(4, np.float32)).realize()
    expected = np.zeros(4, np.float32)
    for step in range(12):
        seen = x[step : step + 4]
        total += seen
        expected += array[step : step + 4]
        np.testing.assert_array_equal(
            seen.reshape(2, 2).T.numpy(), array[step : step + 4].reshape(2, 2).T
        )
    np.testing.assert_allclose(total.numpy(), expected, rtol=1e-5)


def test_gradients_go_to_the_slice() -> None:
    array = numbers(20)
    x = Tensor(array, requires_grad=True)
    for step in range(8):
        x.grad = None
        (x[step : step + 5] ** 2).sum().backward()
        expected = np.zeros(20)
        expected[step : step + 5] = 2 * array[step : step + 5]
        assert x.grad is not None
        np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-5)


def test_an_offset_out_of_range_is_an_error() -> None:
    x = Tensor(numbers(12)).realize()
    for step in range(12):
        np.testing.assert_allclose((x[step] * 2).item(), numbers(12)[step] * 2, rtol=1e-5)
    for index in (12, -13):
        with pytest.raises(IndexBoundsError):
            _ = x[index] * 2


def test_a_loop_over_offsets_is_planned_twice() -> None:
    series = Tensor(numbers(90)).realize()
    w = Tensor(np.zeros(13, np.float32)).realize()
    start = counters.schedules
    for step in range(20):
        seen, comes = series[step : step + 13], series[step + 13]
        error = (seen * w).sum() - comes
        w = w - 0.01 * error * seen
        error.item()
    assert counters.schedules - start <= 3


def calls_of_reads() -> int:
    x = Tensor(numbers(400)).realize()
    step = [0]

    def read() -> None:
        step[0] += 1
        (x[step[0] : step[0] + 32] * 2).sum().item()

    with Context(SEGMENTS=1):
        return calls_of(read)


def test_a_read_of_a_slice_costs_few_calls() -> None:
    """In a process of its own: templates of other tests may serve these sizes."""
    # 320 where the nodes were looked up.
    assert in_a_process(calls_of_reads) <= 150
