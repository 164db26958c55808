"""Training over the batches of a data set, epoch after epoch: however a batch is taken, its step is
the one that is known, in the last epoch as in the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
from tilegrad import Context
from tilegrad.tensor.handle import waiting
from tilegrad.torch.utils.data import DataLoader, TensorDataset

ROWS, SIZE, COLUMNS, RATE = 360, 5, 4, 0.05
_random = np.random.default_rng(11)
X = _random.normal(size=(ROWS, COLUMNS)).astype(np.float32)
Y = _random.normal(size=(ROWS, 1)).astype(np.float32)
STARTS = range(0, ROWS, SIZE)
Batches = Iterator[tuple[Any, Any]]


def slices(x: Any, y: Any) -> Batches:
    for at in STARTS:
        yield x[at : at + SIZE], y[at : at + SIZE]


def narrow(x: Any, y: Any) -> Batches:
    for at in STARTS:
        yield x.narrow(0, at, SIZE), y.narrow(0, at, SIZE)


def split(x: Any, y: Any) -> Batches:
    return zip(x.split(SIZE), y.split(SIZE))


def chunk(x: Any, y: Any) -> Batches:
    return zip(x.chunk(len(STARTS)), y.chunk(len(STARTS)))


def rows_of_a_view(x: Any, y: Any) -> Batches:
    several, values = x.view(-1, SIZE, COLUMNS), y.view(-1, SIZE, 1)
    for at in range(len(STARTS)):
        yield several[at], values[at]


def iterated(x: Any, y: Any) -> Batches:
    return zip(x.view(-1, SIZE, COLUMNS), y.view(-1, SIZE, 1))


def columns(x: Any, y: Any) -> Batches:
    turned = x.t().contiguous()
    for at in STARTS:
        yield turned[:, at : at + SIZE].t(), y[at : at + SIZE]


def by_a_tensor(x: Any, y: Any) -> Batches:
    order = torch.from_numpy(np.arange(ROWS))
    for at in STARTS:
        yield x[order[at : at + SIZE]], y[order[at : at + SIZE]]


def by_an_array(x: Any, y: Any) -> Batches:
    order = np.arange(ROWS)
    for at in STARTS:
        yield x[order[at : at + SIZE]], y[order[at : at + SIZE]]


def by_a_list(x: Any, y: Any) -> Batches:
    for at in STARTS:
        picked = list(range(at, at + SIZE))
        yield x[picked], y[picked]


def selected(x: Any, y: Any) -> Batches:
    order = torch.from_numpy(np.arange(ROWS))
    for at in STARTS:
        yield (each.index_select(0, order[at : at + SIZE]) for each in (x, y))


def loaded(x: Any, y: Any) -> Batches:
    yield from DataLoader(TensorDataset(x, y), batch_size=SIZE)


def expected(epochs: int) -> list[float]:
    """The losses of a linear layer, in float64."""
    weight, losses = np.zeros((COLUMNS, 1)), []
    for _ in range(epochs):
        for at in STARTS:
            x, y = (each[at : at + SIZE].astype(np.float64) for each in (X, Y))
            error = x @ weight - y
            losses.append(float((error**2).mean()))
            weight -= RATE * 2 * x.T @ error / SIZE
    return losses


KINDS = [
    slices, narrow, split, chunk, rows_of_a_view, iterated, columns, by_a_tensor, by_an_array,
    by_a_list, selected, loaded,
]  # fmt: skip


@pytest.mark.parametrize("batches", KINDS)
def test_each_epoch_runs_the_known_step(
    batches: Callable[[Any, Any], Batches], monkeypatch: pytest.MonkeyPatch
) -> None:
    vain: list[int] = []
    count = waiting.Pool.count_miss
    monkeypatch.setattr(waiting.Pool, "count_miss", lambda pool: vain.append(0) or count(pool))
    waiting.this_thread.pool.count_hit()
    x, y = torch.tensor(X), torch.tensor(Y)
    weight = torch.zeros(COLUMNS, 1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=RATE)
    losses = []
    with Context(TEMPLATES=1, SEGMENTS=1):
        for epoch in range(5):
            if epoch == 2:
                vain.clear()
            for some, values in batches(x, y):
                optimizer.zero_grad()
                loss = ((some @ weight - values) ** 2).mean()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
    np.testing.assert_allclose(losses, expected(5), rtol=1e-4)
    # Of 216 steps, those that begin an epoch may be others.
    assert len(vain) <= 6
    assert not waiting.this_thread.pool.pause
