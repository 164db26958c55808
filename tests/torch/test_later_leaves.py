"""Tensors that are marked after something was computed from them, which is a constant then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch

VALUES = np.float32([1, 2, 3])
MADE: dict[str, Callable[[], Any]] = {
    "a list": lambda: torch.tensor([1.0, 2.0, 3.0]),
    "an array": lambda: torch.tensor(VALUES.copy()),
    "memory of an array": lambda: torch.from_numpy(VALUES.copy()),
    "a constant": lambda: torch.full((3,), 2.0),
    "a count": lambda: torch.arange(1.0, 4.0),
    "computed": lambda: torch.tensor([1.0, 2.0, 3.0]) * 2 - 1,
    "computed and read": lambda: read(torch.tensor([1.0, 2.0, 3.0]) * 2 - 1),
    "a clone": lambda: torch.tensor([1.0, 2.0, 3.0]).clone(),
    "a view": lambda: torch.tensor([0.0, 1.0, 2.0, 3.0])[1:],
    "a long array": lambda: torch.tensor(np.arange(3_000, dtype=np.float32) / 3_000),
    "a large array": lambda: torch.tensor(np.arange(300_000, dtype=np.float32) / 300_000),
    "detached": lambda: torch.nn.Parameter(torch.tensor([1.0, 2.0, 3.0])).detach(),
}


def read(x: Any) -> Any:
    x.sum().item()
    return x


def in_place(x: Any) -> Any:
    y = x * 2
    x.add_(1)
    return y


def without_gradients(x: Any) -> Any:
    with torch.no_grad():
        return torch.exp(x)


def as_array(x: Any) -> Any:
    x.numpy()
    return x


USED: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "nothing": (lambda x: torch.ones(1), lambda x: 1.0),
    "a product": (lambda x: x * 2, lambda x: x * 2),
    "a square that is read": (lambda x: read(x**2), lambda x: x**2),
    "an array": (lambda x: as_array(x * 3), lambda x: x * 3),
    "a view": (lambda x: x.view(-1) * 1, lambda x: x),
    "without gradients": (without_gradients, np.exp),
    "before a write": (in_place, lambda x: (x - 1) * 2),
}


@pytest.mark.parametrize("used", USED)
@pytest.mark.parametrize("made", MADE)
def test_what_was_computed_before_the_mark_is_a_constant(made: str, used: str) -> None:
    """The gradient of sum((x - y)**2), where y was computed from x, is 2 (x - y)."""
    use, expected = USED[used]
    for step in range(5):
        x = MADE[made]()
        y = use(x)
        if step % 2:
            x.requires_grad_()
        else:
            x.requires_grad = True
        ((x - y) ** 2).sum().backward()
        values = x.detach().numpy().astype(np.float64)
        np.testing.assert_allclose(
            x.grad.numpy(), 2 * (values - expected(values)), rtol=1e-4, atol=1e-5
        )
        assert x.is_leaf and not y.requires_grad
        with torch.no_grad():
            x -= 0.5 * x.grad
        np.testing.assert_allclose(x.detach().numpy(), expected(values), rtol=1e-4, atol=1e-5)


def test_views_see_what_is_written_to_a_leaf_that_was_marked_late() -> None:
    x = torch.tensor([1.0, 2.0, 3.0])
    part, twice = x[1:], x * 2
    x.requires_grad_()
    with torch.no_grad():
        x.mul_(10)
    assert part.tolist() == [20.0, 30.0] and twice.tolist() == [2.0, 4.0, 6.0]
    with torch.no_grad():
        part[0] = -1.0
    assert x.tolist() == [10.0, -1.0, 30.0]


def test_a_parameter_that_is_frozen_and_thawed_keeps_its_place_in_an_optimizer() -> None:
    layer = torch.nn.Linear(2, 1)
    with torch.no_grad():
        layer.weight.fill_(1.0)
        layer.bias.fill_(0.0)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    x = torch.tensor([[1.0, 2.0]])
    for is_trained in (True, False, True, True):
        layer.weight.requires_grad_(is_trained)
        optimizer.zero_grad()
        layer(x).sum().backward()
        optimizer.step()
    np.testing.assert_allclose(layer.weight.tolist(), [[1 - 0.3, 1 - 0.6]], rtol=1e-5)
    np.testing.assert_allclose(layer.bias.tolist(), [-0.4], rtol=1e-5)
