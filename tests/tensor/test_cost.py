"""How the cost of picking, sorting and joining grows, by what kernels are estimated to do.

A table eight times as long must cost what is read of it: the same for picked rows, eight times as
much (and a logarithm) for what looks at every element.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tilegrad import GlobalCounters, Tensor, dtypes

SMALL, LARGE = 1 << 12, 1 << 15


def floats(*shape: int) -> Tensor:
    return Tensor.empty(*shape)


def integers(*shape: int) -> Tensor:
    return Tensor.empty(*shape, dtype=dtypes.int32)


def cost(program: Callable[[int], Any], size: int) -> tuple[int, int]:
    """Operations and bytes of the program; inputs count for nothing."""
    made = program(size)
    before = GlobalCounters.global_ops, GlobalCounters.global_mem
    first, *others = made if isinstance(made, tuple) else (made,)
    first.realize(*others)
    return GlobalCounters.global_ops - before[0], GlobalCounters.global_mem - before[1]


PICKED: dict[str, Callable[[int], Any]] = {
    "gather": lambda size: floats(size, 4).gather(0, integers(64, 4)),
    "embedding": lambda size: floats(size, 4).embedding(integers(64)),
    "rows and columns": lambda size: floats(size, 8)[integers(64, 1), integers(4)],
    "columns": lambda size: floats(16, size)[:, integers(32)],
    "masked_select of few": lambda size: floats(size)[:64].masked_select(floats(64) > 0, 16),
}


@pytest.mark.parametrize("name", list(PICKED))
def test_what_is_picked_costs_what_is_read(name: str) -> None:
    small, large = cost(PICKED[name], SMALL), cost(PICKED[name], LARGE)
    # The second size makes a plan for all sizes, which asks whether a position is in the memory.
    assert large[0] <= 1.25 * small[0]
    assert large[1] <= small[1]


WHOLE: dict[str, Callable[[int], Any]] = {
    "one_hot": lambda size: integers(size).one_hot(16),
    "argmax": lambda size: floats(size).argmax(),
    "cumsum": lambda size: floats(size).cumsum(0),
    "logcumsumexp": lambda size: floats(size).logcumsumexp(0),
    "sort": lambda size: floats(size).sort(),
    "topk": lambda size: floats(size).topk(5),
    "masked_select": lambda size: floats(size).masked_select(floats(size) > 0, 64),
    "nonzero": lambda size: floats(size).nonzero(64),
    "unique": lambda size: integers(size).unique(size=8),
    "searchsorted": lambda size: floats(size).searchsorted(floats(size)),
    "bincount": lambda size: integers(size).bincount(size=size),
    "scatter": lambda size: floats(size).scatter(0, integers(size), floats(size)),
    "scatter_reduce": lambda size: floats(size).scatter_reduce(
        0, integers(size), floats(size), "amax"
    ),
    "gradient of embedding": lambda size: _gradient_of_embedding(size),
}


def _gradient_of_embedding(size: int) -> Any:
    table = floats(size, 4)
    return (table.embedding(integers(64)) * floats(64, 4)).sum().gradient(table)[0]


# These are made of others that are measured in every run.
RARELY = ("unique", "nonzero", "scatter_reduce", "logcumsumexp")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.nightly] * (name in RARELY)) for name in WHOLE],
)
def test_what_looks_at_all_grows_with_it(name: str) -> None:
    small, large = cost(WHOLE[name], SMALL), cost(WHOLE[name], LARGE)
    # Eight times as much. Sorting and searching have a logarithm, and small sizes another way; a
    # long fold goes in two steps. The square would be 64.
    limit = 17 if name in ("topk", "sort", "searchsorted", "unique", "argmax") else 10
    assert large[0] <= limit * small[0]
    # The second size makes a search for all sizes, which has the steps of the longest row: loads of
    # the others stand behind a gate, and are counted.
    assert large[1] <= (1.5 if name == "searchsorted" else 1) * limit * small[1]


def test_writing_by_index_reads_the_indices() -> None:
    def written(size: int) -> Tensor:
        x = floats(size).contiguous().realize()
        x[integers(64)] = 1.0
        return x

    before = GlobalCounters.global_ops
    written(SMALL)
    between = GlobalCounters.global_ops
    written(LARGE)
    assert GlobalCounters.global_ops - between <= between - before


def test_joining_many_tensors_is_not_quadratic() -> None:
    def joined(count: int) -> Tensor:
        parts = [floats(4) for _ in range(count)]
        return parts[0].stack(*parts[1:])

    small, large = cost(joined, 60), cost(joined, 240)
    # Four times as many, perhaps in one level more of groups. The square would be 16.
    assert large[0] <= 8 * small[0]
    assert large[1] <= 8 * small[1]


@pytest.mark.nightly
def test_joining_1500_tensors() -> None:
    parts = [floats(4) for _ in range(1500)]
    ops, nbytes = cost(lambda _: parts[0].stack(*parts[1:]), 0)
    assert ops <= 100 * 4 * 1500
    assert nbytes <= 16 * 16 * 1500
