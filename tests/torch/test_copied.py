"""`copy.copy` is an alias, and what one `copy.deepcopy` makes are aliases where what it copies is,
as in PyTorch.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as ours


def _view(torch: Any) -> list[Any]:
    x = torch.arange(4.0)
    v = x[1:3]
    whole, part = copy.deepcopy([x, v])
    part.fill_(9)
    return [x, v, whole, part]


def _turned(torch: Any) -> list[Any]:
    x = torch.arange(6.0).reshape(2, 3)
    turned, whole, column = copy.deepcopy([x.T, x, x[:, 1]])
    turned[2, 1] = 9
    column[0] = 7
    return [x, turned, whole, column]


def _stretched(torch: Any) -> list[Any]:
    x = torch.arange(3.0)
    stretched, row = copy.deepcopy((x.unsqueeze(0).expand(2, 3), x))
    row[0] = 5
    return [x, stretched, row]


def _written(torch: Any) -> list[Any]:
    x = torch.arange(6.0)
    v = x[2:4]
    v += 1
    whole, part = copy.deepcopy([x, v])
    v += 1
    part *= 2
    return [x, v, whole, part]


def _read(torch: Any) -> list[Any]:
    x = torch.arange(6.0) * 2
    v = x[2:4]
    total = v.sum().item()
    part, whole = copy.deepcopy((v, x))
    whole[2] = total
    return [x, v, whole, part]


def _leaf(torch: Any) -> list[Any]:
    w = torch.ones(3, requires_grad=True)
    both = copy.deepcopy({"w": w, "v": w.detach()[1:]})
    both["v"].fill_(5)
    (both["w"] * both["w"]).sum().backward()
    assert w.grad is None
    return [w, both["w"], both["v"], both["w"].grad]


def _tied(torch: Any) -> list[Any]:
    """A state dict has aliases of one parameter under two names."""
    first, second = torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False)
    second.weight = first.weight
    model = torch.nn.Sequential(first, second)
    with torch.no_grad():
        first.weight.fill_(2.0)
    state = copy.deepcopy(model.state_dict())
    state["0.weight"].fill_(1.0)
    return [*state.values(), first.weight]


def _parameter(torch: Any) -> list[Any]:
    """A parameter is copied by itself."""
    w = torch.nn.Parameter(torch.ones(2))
    flat = w.data.view(-1)
    copied, other = copy.deepcopy((w, flat))
    other.fill_(3.0)
    return [w, flat, copied, other]


def _shallow(torch: Any) -> list[Any]:
    x, w = torch.arange(4.0), torch.ones(2, requires_grad=True)
    y, v = copy.copy(x), copy.copy(w)
    y += 1
    (v * 3).sum().backward()
    assert w.grad is None
    with torch.no_grad():
        w.fill_(2)
    return [x, y, w, v, v.grad]


@pytest.mark.parametrize(
    "program",
    [_view, _turned, _stretched, _written, _read, _leaf, _tied, _parameter, _shallow],
)
def test_what_a_copy_shares(program: Callable[[Any], list[Any]]) -> None:
    torch = pytest.importorskip("torch")
    for _ in range(3):
        for mine, theirs in zip(program(ours), program(torch), strict=True):
            np.testing.assert_array_equal(mine.detach().numpy(), theirs.detach().numpy())


def test_a_result_has_no_copy() -> None:
    w = ours.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="created explicitly"):
        copy.copy(w * 2)


def test_the_copy_of_a_parameter_begins_without_a_gradient() -> None:
    """In PyTorch 2.13 the copy of a parameter has none, that of another leaf has its own: an
    average of the weights, or a model that goes on from a copy, does not add to old gradients.
    """
    layer = ours.nn.Linear(2, 2)
    leaf = ours.ones(1, 2, requires_grad=True)
    layer(leaf).sum().backward()
    assert layer.weight.grad is not None and copy.deepcopy(layer).weight.grad is None
    assert leaf.grad is not None
    again = copy.deepcopy(leaf)
    np.testing.assert_array_equal(again.grad.numpy(), leaf.grad.numpy())
