"""Steps of loops in which something changes beside what is read, or two sizes do: each is a segment
that has run before, so no node is made and nothing is planned. The oracle is NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
from tests.engine.test_price import in_a_process
from tilegrad.base.trace import counters

_TABLE = np.random.default_rng(7).normal(size=(40, 64)).astype(np.float32)


def a_number_that_nobody_asks_for() -> list[Any]:
    """Each step holds an element of what waits, and reads something else."""
    table, found = torch.tensor(_TABLE), []
    for step in range(24):
        before = counters.visits
        table = table.roll(1, 0).tanh()
        held = (table.cumsum(1) * 2)[:, 3 + step]
        total = table.sum(1).argmax().item()
        found.append((total, held.shape == (40,), counters.visits - before))
    x, checked = _TABLE, []
    for total, is_right, visits in found:
        x = np.tanh(np.roll(x, 1, 0))
        checked.append((is_right and bool(x.sum(1).argmax() == total), visits))
    return checked


def slices_of_memory_of_several_lengths() -> list[Any]:
    """Memory that is read whole, and up to one position after the other."""
    found = []
    for total in (30, 36, 33, 39):
        table = torch.tensor(_TABLE[:total].copy())
        for at in range(total - 14, total):
            before = counters.visits
            value = (
                table[:at].cumsum(0).abs().sum(1).argmax() + table.exp().sum(1).argmax()
            ).item()
            now = _TABLE[:total].astype(np.float64)
            wanted = np.abs(np.cumsum(now[:at], 0)).sum(1).argmax() + np.exp(now).sum(1).argmax()
            found.append((bool(value == wanted), counters.visits - before))
    return found


@pytest.mark.row("M4.1")
@pytest.mark.parametrize(
    ("run", "later"),
    [
        (a_number_that_nobody_asks_for, 16),
        (slices_of_memory_of_several_lengths, 27),
    ],
)
def test_later_steps_make_no_nodes(run: Any, later: int) -> None:
    found = in_a_process(run)
    assert all(is_right for is_right, _ in found)
    assert [visits for _, visits in found[-later:]] == [0] * later
