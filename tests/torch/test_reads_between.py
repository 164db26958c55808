"""Gradients through results that are read one after another before `backward`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
from tests.fresh import forget
from tests.tensor.helpers import numbers

F = torch.nn.functional


def _copied(values: np.ndarray) -> Any:
    made = torch.randn(*values.shape).requires_grad_()
    with torch.no_grad():
        made.copy_(torch.from_numpy(values.copy()))
    return made


def _filled(values: np.ndarray) -> Any:
    made = torch.nn.Parameter(torch.zeros(*values.shape))
    made.data = torch.from_numpy(values.copy())
    return made


def _stepped(values: np.ndarray) -> Any:
    """A parameter whose last update was not read."""
    made = torch.from_numpy(values + 1).requires_grad_()
    made.sum().backward()
    torch.optim.SGD([made], lr=1.0).step()
    made.grad = None
    return made


@pytest.mark.parametrize(
    ("make", "count"), [(_copied, 2), (_copied, 3), (_copied, 5), (_filled, 3), (_stepped, 3)]
)
def test_each_of_several_results_is_read_before_backward(
    make: Callable[[np.ndarray], Any], count: int
) -> None:
    """As an actor and a critic do: values of all steps, each looked at, then their losses. The
    first loop of its kind runs in another way than later ones.
    """
    forget()
    a, b, inputs = numbers(8, 4, seed=1), numbers(1, 8, seed=2), numbers(count, 4, seed=3)
    first, second = make(a), make(b)
    values = []
    for x in inputs:
        found = F.relu(F.linear(torch.from_numpy(x.copy()), first))
        values.append(F.linear(found, second))
    hidden = np.maximum(inputs.astype(np.float64) @ a.T, 0)
    losses = []
    for step, value in enumerate(values):
        assert value.item() == pytest.approx((hidden[step] @ b[0]).item(), rel=1e-4)
        losses.append((value * float(step + 1)).sum())
    torch.stack(losses).sum().backward()
    weights = np.arange(1, count + 1)
    np.testing.assert_allclose(second.grad.numpy()[0], weights @ hidden, rtol=1e-4, atol=1e-5)
    back = (weights[:, None] * b) * (hidden > 0)
    np.testing.assert_allclose(first.grad.numpy(), back.T @ inputs, rtol=1e-4, atol=1e-5)


def test_a_loss_weighed_by_another_number_in_each_step() -> None:
    """A policy's gradient: the sum over the classes' logarithms times a return, which is a number
    of Python. Along the classes the gradient that comes down is that number.
    """
    forget()
    weight, x = numbers(3, 4, seed=1).astype(np.float64), numbers(2, 4, seed=2)
    w = torch.from_numpy(weight.astype(np.float32)).requires_grad_()
    optimizer = torch.optim.SGD([w], lr=0.01)
    for step in range(6):
        logits = F.linear(torch.from_numpy(x.copy()), w)
        earned = 1.5 - step * logits.sum().item()
        expected = x.astype(np.float64) @ weight.T
        assert earned == pytest.approx(1.5 - step * expected.sum(), rel=1e-3)
        optimizer.zero_grad()
        (-F.log_softmax(logits, -1) * earned).sum().backward()
        optimizer.step()
        shares = np.exp(expected) / np.exp(expected).sum(1, keepdims=True)
        weight -= 0.01 * (earned * (3 * shares - 1)).T @ x
        np.testing.assert_allclose(w.detach().numpy(), weight, rtol=1e-3, atol=1e-4)
