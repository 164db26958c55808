"""What a line picks, under `no_grad` and for the next step: values, gradients, and no new nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilegrad.torch as torch
import tilegrad.torch.nn.functional as F
from tests.engine.test_price import in_a_process
from tests.torch.nodes_made import noted_expansions
from tilegrad import Context, Tensor
from tilegrad.torch import nn


def _pick(x: Any) -> Any:
    return x[0]


def test_a_pick_under_no_grad_requires_no_gradient_whatever_was_picked_before() -> None:
    for step in range(3):
        x = torch.tensor([[[1.0 + step, 2.0]] * 3] * 2)
        ordered = x.sort(0)[0]
        later = ordered[1:]
        assert all(each.tolist() for each in (x, ordered, later, _pick(later)))
    for step in range(3):
        leaf = torch.tensor([[[1.0, 2.0 + step]] * 3] * 2, requires_grad=True)
        with torch.no_grad():
            picked = _pick(leaf)
        assert not picked.requires_grad
        (leaf * leaf).sum().backward()
        assert leaf.grad.tolist() == (leaf.detach() * 2).tolist()


def _nodes_made(parameters: list[Any], loss_of: Callable[[], Any]) -> list[int]:
    """How often nodes were made, before and after the last of 14 steps."""
    made = noted_expansions()
    with Context(TEMPLATES=1, SEGMENTS=1, SIZES=1):
        optimizer, before = torch.optim.SGD(parameters, lr=0.01), 0
        for step in range(14):
            before = len(made) if step == 10 else before
            loss = loss_of()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item()
    return [before, len(made)]


def nodes_of_detached_choices() -> list[int]:
    table, layer, targets = nn.Embedding(6, 4), nn.Linear(4, 6), torch.tensor([3, 1, 4])

    def loss_of() -> Any:
        chosen, loss = torch.ones(3, dtype=torch.int64), torch.zeros(())
        for _ in range(3):
            scores = layer(table(chosen).tanh())
            loss = loss + F.cross_entropy(scores, targets)
            chosen = scores.topk(1)[1].squeeze(-1).detach()
        return loss

    return _nodes_made([*table.parameters(), *layer.parameters()], loss_of)


def nodes_of_triangles() -> list[int]:
    weight, factor = nn.Parameter(torch.ones(3, 2)), 2 * torch.eye(3)
    return _nodes_made(
        [weight],
        lambda: torch.linalg.solve_triangular(factor, weight, upper=False).square().mean(),
    )


def nodes_of_transforms() -> list[int]:
    weight = nn.Parameter(torch.ones(3, 8))
    return _nodes_made([weight], lambda: Tensor.irfft(Tensor.rfft(weight)).square().mean())


def nodes_of_inverses() -> list[int]:
    """Solutions whose values are looked at at once, for their errors."""
    weight, unit = nn.Parameter(torch.ones(3, 3)), torch.eye(3)

    def loss_of() -> Any:
        factor = torch.linalg.cholesky(weight @ weight.mT + unit)
        return (torch.linalg.inv(factor) + torch.linalg.solve(factor, unit)).square().mean()

    return _nodes_made([weight], loss_of)


@pytest.mark.parametrize(
    "steps",
    [nodes_of_detached_choices, nodes_of_triangles, nodes_of_transforms, nodes_of_inverses],
)
def test_steps_with_detached_indices_triangles_transforms_and_inverses_make_no_nodes(
    steps: Callable[[], list[int]],
) -> None:
    before, after = in_a_process(steps)
    assert before == after


def test_a_detached_index_is_what_it_was_detached_from() -> None:
    chosen = torch.tensor([[3.0, 9.0, 5.0]]).argmax(-1)
    for _ in range(3):
        alias = chosen.detach()
        assert alias.tolist() == chosen.tolist() and not alias.requires_grad
        assert alias.data_ptr() == chosen.data_ptr()
        alias += 1
        assert alias.tolist() == chosen.tolist()
