"""A hook on one result is not called for another one that is computed in the same way, as in
PyTorch; whether the program reads what it computes, and in equal steps.
"""

from __future__ import annotations

from typing import Any

import pytest

import tilegrad.torch as ours


def _hooked(torch: Any, reads: bool) -> list[Any]:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    found: list[Any] = []
    for _ in range(3):
        one = x * 2
        one.register_hook(lambda gradient: gradient * 10)
        one.register_hook(lambda gradient: found.append(gradient.tolist()))
        if reads:
            found.append(one.tolist())
        other = x * 2
        if reads:
            found.append(other.tolist())
        other.sum().backward(retain_graph=True)
        found.append(x.grad.tolist())
        (one * 3 + other).sum().backward()
        found.append(x.grad.tolist())
    return found


def _retained(torch: Any, reads: bool) -> list[Any]:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    found: list[Any] = []
    for _ in range(3):
        one, before = x.exp(), x.sin()
        one.retain_grad()
        other = x.exp()
        if reads:
            found += [one.tolist(), other.tolist()]
        (one * before + other * 2).sum().backward()
        found += [one.grad.tolist(), other.grad is None, x.grad.tolist()]
    return found


def _module(torch: Any, reads: bool) -> list[Any]:
    """The activations of a layer that is called twice on equal inputs, as a siamese network is."""
    layer = torch.nn.Linear(2, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        layer.bias.zero_()
    x = torch.ones(1, 2)
    found: list[Any] = []
    one = layer(x)
    one.register_hook(lambda gradient: found.append(gradient.tolist()))
    other = layer(x)
    if reads:
        found.append((one - other).tolist())
    (one.sum() * 2 + other.sum() * 5).backward()
    return [*found, layer.weight.grad.tolist()]


@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize("program", [_hooked, _retained, _module])
def test_what_is_computed_in_the_same_way_is_not_watched(program: Any, reads: bool) -> None:
    torch = pytest.importorskip("torch")
    mine, theirs = program(ours, reads), program(torch, reads)
    assert _rounded(mine) == _rounded(theirs)


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return round(value, 4)
