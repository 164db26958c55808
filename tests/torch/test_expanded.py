"""Expanded views: what one number writes, and which writes reach all rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
from tilegrad.base.errors import ShapeError

ROW = np.array([[1.0, 2.0, 3.0]])
MAKE = [
    lambda: torch.tensor(ROW),
    lambda: torch.ones(1, 3) * torch.tensor(ROW),
    lambda: torch.arange(3.0).reshape(1, 3) + 1,
]


@pytest.mark.parametrize("make", MAKE)
@pytest.mark.parametrize("is_held", [True, False])
def test_a_row_of_an_expanded_view_is_all_its_rows(make: Any, is_held: bool) -> None:
    base = make()
    x = base.expand(2, 3)
    if not is_held:
        del base
    x[0] = 5
    assert x.tolist() == [[5.0] * 3] * 2
    x[1, 2] = 7
    x[0].add_(1)
    assert x.tolist() == [[6.0, 6.0, 8.0]] * 2
    if is_held:
        assert base.tolist() == [[6.0, 6.0, 8.0]]


@pytest.mark.parametrize("make", MAKE)
def test_one_number_is_written_once(make: Any) -> None:
    base = make()
    x = base.expand(2, 3)
    assert x.zero_() is x and x.tolist() == [[0.0] * 3] * 2
    x[:, 1].fill_(4)
    assert base.tolist() == [[0.0, 4.0, 0.0]]
    mask = torch.tensor([[True, False, False], [False, True, False]])
    assert x.masked_fill_(mask, 9).tolist() == [[9.0, 9.0, 0.0]] * 2
    x.masked_fill_(torch.tensor(True), 1.5)
    none = torch.ones(4, 1).expand(4, 0)
    assert none.masked_fill_(torch.zeros(4, 0, dtype=torch.bool), 1).fill_(2).shape == (4, 0)
    assert base.tolist() == [[1.5] * 3]


def test_gradients_of_a_filled_expanded_view() -> None:
    w = torch.tensor(ROW[0], requires_grad=True)
    y = (w * 2).expand(2, 3)
    y.masked_fill_(torch.tensor([[True, False, False], [False, False, True]]), 5.0)
    assert y.tolist() == [[5.0, 4.0, 5.0]] * 2
    y.sum().backward()
    # Two rows of the one number that is left, times 2.
    assert w.grad is not None and w.grad.tolist() == [0.0, 4.0, 0.0]


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.add_(1),
        lambda x: x.copy_(torch.ones(2, 3)),
        lambda x: x.__setitem__(slice(None), 7.0),
        lambda x: x.mul_(torch.tensor([[1.0], [2.0]])),
    ],
)
def test_other_writes_are_refused(write: Any) -> None:
    x = torch.tensor(ROW).expand(2, 3)
    with pytest.raises(ShapeError, match="several elements of this view"):
        write(x)
    np.testing.assert_array_equal(x.numpy(), np.repeat(ROW, 2, 0))


def test_a_copy_of_an_expanded_number_can_be_written_to() -> None:
    x = torch.zeros(1).expand(2, 3)
    assert not x.is_contiguous()
    y = x.contiguous()
    y.add_(torch.arange(6.0).reshape(2, 3))
    assert y.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert x.tolist() == [[0.0] * 3] * 2
