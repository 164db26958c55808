"""Gradients of what was computed from a leaf that nobody holds any more: of a layer that was made
for one call, of a tensor of a function that returned.
"""

from typing import Any

import pytest

import tilegrad.torch as torch
from tilegrad.torch import nn


def _layer() -> nn.Linear:
    """y[i] = x[0] + x[1] + x[2] + 1 of each row x."""
    layer = nn.Linear(3, 4)
    nn.init.ones_(layer.weight)
    nn.init.ones_(layer.bias)
    return layer


def _loss_of_a_leaf() -> Any:
    leaf = torch.ones(3, requires_grad=True)
    return (leaf * 3).sum()


@pytest.mark.parametrize("step", range(3))
def test_backward_asks_for_no_leaf_that_is_held(step: int) -> None:
    loss = _layer()(torch.ones(2, 3)).sum()
    assert loss.requires_grad
    loss.backward()
    assert loss.item() == 32
    both = _loss_of_a_leaf() + _loss_of_a_leaf()
    both.backward()
    assert both.item() == 18


@pytest.mark.parametrize("step", range(3))
def test_hooks_above_are_called(step: int) -> None:
    y = _layer()(torch.ones(2, 3))
    seen: list[Any] = []
    y.register_hook(lambda gradient: seen.append(gradient.tolist()))
    y.retain_grad()
    (y * 5).sum().backward()
    assert seen == [[[5.0] * 4] * 2]
    assert y.grad.tolist() == seen[0]


@pytest.mark.parametrize("step", range(3))
def test_hooks_above_are_called_beside_a_leaf_that_is_held(step: int) -> None:
    weight = torch.full((4,), 2.0, requires_grad=True)
    y = _layer()(torch.ones(2, 3))
    seen: list[Any] = []
    y.register_hook(lambda gradient: seen.append(gradient.tolist()))
    (y * weight).sum().backward()
    assert seen == [[[2.0] * 4] * 2]
    assert weight.grad is not None
    assert weight.grad.tolist() == [8.0] * 4


def test_what_requires_no_gradient_is_refused() -> None:
    for value in (torch.ones(3) * 2, _layer()(torch.ones(2, 3)).detach()):
        with pytest.raises(RuntimeError, match="nothing below this tensor requires a gradient"):
            value.sum().backward()
