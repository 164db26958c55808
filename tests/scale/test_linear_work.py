"""Products with one-hot rows read the rows that they pick, and running reductions of constants take
one pass: operations are counted, not timed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilegrad import GlobalCounters, Tensor

PICKED = np.arange(50) * 17 % 1000


def operations(make: Callable[[], Tensor]) -> tuple[int, Any]:
    """Operations of computing a value, and the value."""
    value = make()
    GlobalCounters.reset()
    value.realize()
    return GlobalCounters.global_ops, value.numpy()


@pytest.mark.parametrize("size", [1000, 100_000])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@pytest.mark.parametrize("way", ["one_hot", "choice", "sum"])
def test_a_product_with_one_hot_rows_is_a_gather(size: int, dtype: Any, way: str) -> None:
    table = (np.random.default_rng(3).standard_normal((size, 4)) * 100).astype(dtype)
    held, rows = Tensor(table).realize(), Tensor(PICKED).realize()

    def product() -> Tensor:
        if way == "choice":
            hits = rows.reshape(50, 1) == Tensor.arange(size)
            return hits.where(Tensor.ones(1, dtype=held.dtype), 0) @ held
        hits = rows.one_hot(size).cast(held.dtype)
        return hits @ held if way == "one_hot" else (hits.unsqueeze(-1) * held).sum(1)

    count, found = operations(product)
    assert count < 50 * 4 * 10
    np.testing.assert_array_equal(found, table[PICKED])


def test_a_row_that_is_not_there_is_zero() -> None:
    table, rows = Tensor(np.ones((5, 3), np.float32)).realize(), Tensor([4, 7, -1]).realize()
    hits = rows.reshape(3, 1) == Tensor.arange(5)
    found = (hits.cast("float32") @ table).tolist()
    assert found == [[1, 1, 1], [0, 0, 0], [0, 0, 0]]


RUNNING: dict[str, Callable[..., Any]] = {
    "cumsum": np.cumsum,
    "cumprod": np.cumprod,
    "cummax": np.maximum.accumulate,
    "cummin": np.minimum.accumulate,
}
CONSTANTS: dict[str, tuple[Callable[[int], Tensor], Callable[[int], Any]]] = {
    "arange": (lambda size: Tensor.arange(size), np.arange),
    "linspace": (lambda size: Tensor.linspace(1, 0, size), lambda size: np.linspace(1, 0, size)),
    "ones": (lambda size: Tensor.ones(size), np.ones),
}


def running(x: Tensor, name: str) -> Tensor:
    found = getattr(x, name)(0)
    made: Tensor = found.values if isinstance(found, tuple) else found
    return made


@pytest.mark.parametrize("constant", CONSTANTS)
@pytest.mark.parametrize("name", RUNNING)
def test_a_running_reduction_of_a_constant_takes_one_pass(name: str, constant: str) -> None:
    make, values = CONSTANTS[constant]
    for size in (100, 100_000, 1_000_000):
        count, found = operations(lambda size=size: running(make(size), name))
        assert count <= 30 * size
        if size == 100 and not (name == "cumprod" and constant == "arange"):
            wanted = RUNNING[name](values(size).astype(np.float64))
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
