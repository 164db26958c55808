"""Hooks on gradients inside of a checkpoint see, and change, what they do without one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilegrad.torch as torch
from tilegrad.torch import nn
from tilegrad.torch.utils.checkpoint import checkpoint


class Watched:
    """A layer with hooks, and a list of what they saw."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.layer = nn.Linear(2, 2)
        with torch.no_grad():
            self.layer.weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
            self.layer.bias.copy_(torch.zeros(2))
        self.layer.register_full_backward_pre_hook(
            lambda module, given: self.seen.append(("before", given[0].tolist()))
        )
        self.layer.register_full_backward_hook(
            lambda module, made, given: self.seen.append(("after", made[0].tolist()))
        )

    def double(self, gradient: Any) -> Any:
        self.seen.append(("tensor", gradient.tolist()))
        return gradient * 2

    def gradients(self, function: Callable[[Any], Any], call: Callable[..., Any]) -> list[Any]:
        x = torch.tensor([[0.5, -0.25]], requires_grad=True)
        call(function, x).sum().backward()
        return [x.grad.tolist(), self.layer.weight.grad.tolist()]

    def inside(self, x: Any) -> Any:
        y = x * 3
        if y.requires_grad:
            y.register_hook(self.double)
        return self.layer(y) * 0.5

    def alone(self, x: Any) -> Any:
        return self.layer(x)

    def nested(self, x: Any) -> Any:
        return checkpoint(self.inside, x + 1.0, use_reentrant=False) * 2


# By the chain rule: the weight is W = [[1, 2], [3, 4]], x = [0.5, -0.25].
_EXPECTED = {
    "inside": (
        [("before", [[0.5, 0.5]]), ("after", [[2.0, 3.0]]), ("tensor", [[2.0, 3.0]])],
        [[[12.0, 18.0]], [[0.75, -0.375], [0.75, -0.375]]],
    ),
    "alone": (
        [("before", [[1.0, 1.0]]), ("after", [[4.0, 6.0]])],
        [[[4.0, 6.0]], [[0.5, -0.25], [0.5, -0.25]]],
    ),
    "nested": (
        [("before", [[1.0, 1.0]]), ("after", [[4.0, 6.0]]), ("tensor", [[4.0, 6.0]])],
        [[[24.0, 36.0]], [[4.5, 2.25], [4.5, 2.25]]],
    ),
}


def _checkpointed(function: Callable[[Any], Any], x: Any) -> Any:
    return checkpoint(function, x, use_reentrant=False)


@pytest.mark.parametrize("name", list(_EXPECTED))
@pytest.mark.parametrize("call", [lambda function, x: function(x), _checkpointed])
def test_hooks_inside_run_once(name: str, call: Callable[..., Any]) -> None:
    watched = Watched()
    seen, expected = _EXPECTED[name]
    assert watched.gradients(getattr(watched, name), call) == expected
    assert watched.seen == seen


def test_hooks_run_once_in_each_of_several_passes() -> None:
    watched = Watched()
    x = torch.tensor([[0.5, -0.25]], requires_grad=True)
    loss = checkpoint(watched.inside, x, use_reentrant=False).sum()
    for times in (1, 2):
        loss.backward(retain_graph=True)
        assert watched.seen == _EXPECTED["inside"][0] * times


def test_a_hook_that_was_removed_does_not_run() -> None:
    found: list[Any] = []

    def inside(x: Any) -> Any:
        y = x * 3
        y.register_hook(found.append).remove()
        return y * y

    x = torch.tensor([2.0], requires_grad=True)
    checkpoint(inside, x, use_reentrant=False).backward()
    assert (x.grad.tolist(), found) == ([36.0], [])
