"""A leaf that was written many times: what was computed from each of its values has a gradient."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tilegrad
from tilegrad import Context, Tensor

VALUES = np.array([[0.5, 1.5, -0.75], [1.0, 0.25, 2.0]], "f4")
MANY = 9


def _through_an_alias(w: Tensor) -> None:
    w.detach().mul_(2)


def _through_a_view(w: Tensor) -> None:
    w.flatten().detach().mul_(2)


def _row_by_row(w: Tensor) -> None:
    rows = w.detach()
    rows[0] = rows[0] * 2
    rows[1].mul_(2)


def _assigned(w: Tensor) -> None:
    w.assign(w.detach() * 2)


def _without_gradients(w: Tensor) -> None:
    with tilegrad.no_grad():
        w *= 2


WRITES = (_through_an_alias, _through_a_view, _row_by_row, _assigned, _without_gradients)


@pytest.mark.parametrize("templates", [0, 1])
@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("is_memory", [False, True])
@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
def test_what_was_computed_before_many_writes(
    write: Callable[[Tensor], None], is_memory: bool, is_read: bool, templates: int
) -> None:
    with Context(TEMPLATES=templates):
        w = Tensor(VALUES).requires_grad_()
        if is_memory:
            w.realize()
        first = w * 3
        for _ in range(MANY):
            write(w)
            if is_read:
                w.tolist()
        (first.sum() + w.sum()).backward()
        assert w.grad is not None
        np.testing.assert_array_equal(w.grad.numpy(), np.full((2, 3), 4.0))
        np.testing.assert_array_equal(w.detach().numpy(), VALUES * 2**MANY)
        np.testing.assert_array_equal(first.detach().numpy(), VALUES * 3)


@pytest.mark.parametrize("templates", [0, 1])
@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
def test_losses_of_all_steps(write: Callable[[Tensor], None], templates: int) -> None:
    """They are gathered, and differentiated together at the end."""
    with Context(TEMPLATES=templates):
        w = Tensor(VALUES).requires_grad_()
        losses = []
        for step in range(MANY):
            losses.append((w * (step + 1)).sum())
            losses[-1].item()
            write(w)
        Tensor.stack(*losses).sum().backward()
        assert w.grad is not None
        total = sum(range(1, MANY + 1))
        np.testing.assert_array_equal(w.grad.numpy(), np.full((2, 3), float(total)))
