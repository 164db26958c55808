"""Training steps through functions that few programs use make no nodes and no plans either, and
have PyTorch's losses.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
from tests.engine.test_price import in_a_process
from tests.torch.nodes_made import noted_expansions
from tilegrad import Context, GlobalCounters
from tilegrad.base.dtype import dtypes
from tilegrad.base.trace import counters
from tilegrad.tensor.calls.number_tables import number_table
from tilegrad.torch.nn import functional as F

_STEPS, _SETTLED = 10, 6
_X = np.random.default_rng(0).uniform(0.1, 1, (4, 6)).astype(np.float32)


def _kind(y: Any) -> Any:
    """Four integers from 0 to 3 that follow from the data."""
    return (y[:, 0] * 40).long() % 4


def _with_sums(torch: Any, x: Any, y: Any) -> Any:
    sums = torch.zeros(4, 6)
    for distance in range(3):
        sums.index_put_((_kind(y.roll(distance, 0)), torch.arange(4)), x[0, :4], accumulate=True)
    return sums


def _stepped(torch: Any, x: Any, y: Any) -> Any:
    """A leaf that shares the storage of what waits."""
    z = y * 2
    leaf = z.detach().requires_grad_(True)
    (leaf * leaf * z).sum().backward()
    return x * leaf.grad + z


_IMAGES: dict[str, Callable[..., Any]] = {
    "interpolate": lambda x, y, **_: F.interpolate(
        x.view(1, 1, 4, 6), size=(7, 9), mode="bicubic", align_corners=False
    ),
    "antialias": lambda x, y, **_: F.interpolate(
        x.view(1, 1, 4, 6), size=(3, 4), mode="bilinear", antialias=True
    ),
}
_POOLS: dict[str, Callable[..., Any]] = {
    "adaptive_max": lambda x, y, **_: F.adaptive_max_pool2d(x.view(1, 1, 4, 6) * y, (3, 4)),
    "adaptive_max with indices": lambda x, y, **_: F.adaptive_max_pool2d(
        x.view(1, 1, 4, 6) * y, (3, 4), return_indices=True
    )[0],
    "adaptive_avg": lambda x, y, **_: F.adaptive_avg_pool1d((x * y)[None], 4),
}
_INDICES: dict[str, Callable[..., Any]] = {
    "bag": lambda x, y, torch, **_: F.embedding_bag(_kind(y), x, torch.tensor([0, 2])),
    "largest of bag": lambda x, y, torch, **_: F.embedding_bag(
        _kind(y), x, torch.tensor([0, 2]), mode="max"
    ),
    "put": lambda x, y, torch, **_: _with_sums(torch, x, y),
    "bincount": lambda x, y, torch, **_: x * torch.bincount(_kind(y), weights=y[:, 0], minlength=6),
    "histc": lambda x, y, torch, **_: x * torch.histc(y, 6, 0, 1),
    "narrow": lambda x, y, torch, **_: (x * y).narrow(1, 1, 3),
    "quantiles": lambda x, y, torch, **_: torch.quantile(x * y, torch.tensor([0.1, 0.5]), dim=1),
    "cummin": lambda x, y, torch, **_: (x * y).cummin(1)[0],
    "pdist": lambda x, y, torch, **_: F.pdist(x * y),
}
_OTHERS: dict[str, Callable[..., Any]] = {
    "ctc": lambda x, y, torch, **_: F.ctc_loss(
        (x * y).view(4, 1, 6).log_softmax(2), _kind(y)[None, :2] + 1, [4], [2], zero_infinity=True
    ),
    "leaf of an alias": lambda x, y, torch, **_: _stepped(torch, x, y),
}


def _losses(
    library: Any, method: Callable[..., Any], count: Callable[[], Any] = lambda: None
) -> Iterator[tuple[float, Any]]:
    """The losses of training steps over new data of one shape, and what is counted after each."""
    random = np.random.default_rng(1)
    x = library.tensor(_X, requires_grad=True)
    optimizer = library.optim.SGD([x], 0.01)
    for _ in range(_STEPS):
        y = library.tensor(random.uniform(0.1, 1, (4, 6)).astype(np.float32))
        loss = method(x, y, torch=library).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item(), count()


def _counted(methods: dict[str, Callable[..., Any]]) -> dict[str, tuple[list[float], int, int]]:
    """For each method its losses, and how often nodes and plans were made once it had settled."""
    made = noted_expansions()
    found = {}
    with Context(TEMPLATES=1, SEGMENTS=1, SIZES=1):
        for name, method in methods.items():
            steps = [*_losses(torch, method, lambda: (len(made), counters.schedules))]
            before, after = steps[_SETTLED - 1][1], steps[-1][1]
            losses = [loss for loss, _ in steps]
            found[name] = losses, after[0] - before[0], after[1] - before[1]
    return found


def of_images() -> dict[str, tuple[list[float], int, int]]:
    return _counted(_IMAGES)


def of_pools() -> dict[str, tuple[list[float], int, int]]:
    return _counted(_POOLS)


def of_indices() -> dict[str, tuple[list[float], int, int]]:
    return _counted(_INDICES)


def of_others() -> dict[str, tuple[list[float], int, int]]:
    return _counted(_OTHERS)


_GROUPS = {of_images: _IMAGES, of_pools: _POOLS, of_indices: _INDICES, of_others: _OTHERS}
_ran = functools.lru_cache(maxsize=4)(in_a_process)


@pytest.mark.row("M4.1")
@pytest.mark.parametrize("group", _GROUPS)
def test_steps_of_seldom_functions_make_no_nodes_and_no_plans(group: Callable[[], Any]) -> None:
    found = {name: counts for name, (_, *counts) in _ran(group).items()}
    assert found == {name: [0, 0] for name in _GROUPS[group]}


@pytest.mark.parametrize("group", _GROUPS)
def test_losses_of_seldom_functions_are_those_of_pytorch(group: Callable[[], Any]) -> None:
    theirs = pytest.importorskip("torch")
    names = {**globals(), "torch": theirs, "F": theirs.nn.functional}
    for name, (losses, *_) in _ran(group).items():
        method = FunctionType(_GROUPS[group][name].__code__, names)
        expected = [loss for loss, _ in _losses(theirs, method)]
        np.testing.assert_allclose(losses, expected, rtol=2e-4, err_msg=name)


def puts_at_changing_positions() -> list[list[int]]:
    """The plans, how often nodes were made, and the bytes in use, at some steps of many."""
    made = noted_expansions()
    random = np.random.default_rng(2)
    sums, found = torch.zeros(32, 4), []
    expected = np.zeros((32, 4), np.float32)
    with Context(TEMPLATES=1, SEGMENTS=1, SIZES=1):
        for step in range(1, 1001):
            rows, values = random.integers(0, 32, 8), random.integers(0, 9, (8, 4))
            sums.index_put_(
                (torch.tensor(rows),), torch.tensor(values.astype(np.float32)), accumulate=True
            )
            np.add.at(expected, rows, values)
            if step % 10 == 0:
                assert sums.sum().item() == expected.sum()
            if step in (200, 1000):
                found.append([counters.schedules, len(made), GlobalCounters.mem_used])
    assert sums.tolist() == expected.tolist()
    return found


def test_sums_put_at_changing_positions_are_bounded_in_plans_and_memory() -> None:
    settled, after = in_a_process(puts_at_changing_positions)
    assert after[:2] == settled[:2]
    assert after[2] <= settled[2] + (1 << 16)


def group_of_results() -> list[list[int]]:
    """The plans, how often nodes were made and the runs, of each step that asks for two results."""
    made = noted_expansions()
    found = []
    x = torch.tensor(_X)
    with Context(TEMPLATES=1, SEGMENTS=1, SIZES=1):
        for step in range(16):
            x = x * 0.5 + step
            wide = x @ x.T + 0
            first, second = wide.sum(1), wide @ x
            first.realize(second)
            found.append([counters.schedules, len(made)])
            expected = x.numpy() @ x.numpy().T
            np.testing.assert_allclose(first.numpy(), expected.sum(1), rtol=1e-3)
            np.testing.assert_allclose(second.numpy(), expected @ x.numpy(), rtol=1e-3)
            x = (x - step) / x.abs().max()
    return found


def test_two_results_that_are_asked_for_together_make_no_nodes() -> None:
    steps = in_a_process(group_of_results)
    assert steps[-1] == steps[8]


def test_tables_of_numbers_that_are_equal_have_their_own_bits() -> None:
    table = torch.tensor([1.0])
    for values in ([0.0, 1.0], [-0.0, 1.0]):
        found = number_table(table, values, dtypes.float32).numpy()
        np.testing.assert_array_equal(np.signbit(found), np.signbit(values))
