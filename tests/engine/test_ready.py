"""The function that is written for a plan does what the loops do, and leaves to them what is not as
always; a number in memory is read in place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilegrad import Context, Device, GlobalCounters, Tensor, dtypes
from tilegrad.engine.run import ready


@pytest.fixture(autouse=True)
def _written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready, "_OFTEN", 1)


def _values(x: Tensor) -> Any:
    # A reduction between two others, so that the plan has memory that only the run needs.
    return ((x - x.sum(1, keepdim=True)).exp().sum(0) * 2 + x).numpy().copy()


def _expected(x: Any) -> Any:
    return np.exp(x - x.sum(1, keepdims=True)).sum(0) * 2 + x


def test_runs_with_and_without_blocks_that_wait_for_reuse() -> None:
    data = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32) * 0.1
    with Context(SEGMENTS=0):
        x = Tensor(data).realize()
        before = GlobalCounters.mem_used
        for step in range(6):
            if step % 2:
                Device["CPU"].allocator.flush()
            np.testing.assert_allclose(_values(x), _expected(data), rtol=1e-5)
        assert GlobalCounters.mem_used == before


def test_a_run_is_counted_as_by_loops() -> None:
    x = Tensor(np.ones((6, 5), np.float32)).realize()
    counts = []
    with Context(SEGMENTS=0):
        for _ in range(4):
            GlobalCounters.reset()
            ((x - x.sum(1, keepdim=True)).exp().sum(0) * 2 + x).realize()
            work = GlobalCounters
            counts.append((work.kernel_count, work.global_ops, work.global_mem))
    assert counts[0] == counts[-1]
    assert min(counts[0]) > 0


@pytest.mark.parametrize("dtype", [each for each in dtypes.all if each not in dtypes.fp8s], ids=str)
def test_a_number_in_memory_has_its_value(dtype: Any) -> None:
    value = {"bool": True, "float": -2.5}.get(dtype.kind, 7)
    if dtype.kind == "int":
        value = dtype.min + 3
    if dtype.kind == "uint":
        value = dtype.max - 3
    x = Tensor([value], dtype=dtype).realize()
    for found in (x.item(), x.reshape(()).item(), x.tolist()[0]):
        assert found == value
        assert type(found) is type(value)
