"""Gradients through writes to slices, where a parameter below was written to before: the graph
that is kept stands on the parameter's memory, and the writes in it have run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilegrad.torch as torch


def _slice(o: Any, value: Any) -> None:
    o[:2] = value


def _twice(o: Any, value: Any) -> None:
    o[2:] = value * 5
    o[:2] = value


def _rows(o: Any, value: Any) -> None:
    o.index_add_(0, torch.tensor([0, 1]), value)


def _view(o: Any, value: Any) -> None:
    o.view(2, 2)[0].copy_(value)


# The factor of each write in the sum of squares.
WRITES: dict[str, tuple[Callable[[Any, Any], None], int]] = {
    "slice": (_slice, 1), "twice": (_twice, 26), "rows": (_rows, 1), "view": (_view, 1),
}  # fmt: skip


@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("name", WRITES)
def test_gradient_of_a_slice_below_an_updated_parameter(
    name: str, is_read: bool, is_kept: bool
) -> None:
    write, factor = WRITES[name]
    weight, scale = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.zeros(2))
    for step in range(1, 4):
        with torch.no_grad():
            scale.copy_(torch.ones(2) * step)
        written = torch.zeros(4)
        write(written, weight * (scale * 10))
        loss = written.square().sum()
        if not is_kept:
            del written
        if is_read:
            assert loss.item() == factor * 200 * step**2
        weight.grad = scale.grad = None
        loss.backward()
        assert weight.grad.tolist() == [factor * 200.0 * step**2] * 2
        assert scale.grad.tolist() == [factor * 200.0 * step] * 2
