"""Training steps as PyTorch's users write them, captured whole, step by step against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilegrad import jit
from tilegrad import torch as ours
from tilegrad.capture.jit import Jit

Wrap = Callable[[Callable[..., Any]], Any]


def _model(torch: Any) -> Any:
    """A network with the same weights in both libraries; no bias stands before a normalisation,
    whose gradient is rounding alone.
    """
    nn = torch.nn
    body = nn.Sequential(nn.Linear(5, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU())
    model = nn.Sequential(body, nn.Dropout(0.0), nn.Linear(8, 3))
    numbers = np.random.default_rng(3)
    with torch.no_grad():
        for each in model.parameters():
            value = numbers.standard_normal(tuple(each.shape)) * 0.4
            each.copy_(torch.tensor(value.astype(np.float32)))
    return model


def _batches(torch: Any, count: int) -> list[tuple[Any, Any]]:
    numbers = np.random.default_rng(4)
    return [
        (
            torch.tensor(numbers.standard_normal((6, 5)).astype(np.float32)),
            torch.tensor(numbers.integers(0, 3, 6)),
        )
        for _ in range(count)
    ]


def _state(model: Any) -> list[list[float]]:
    return [each.detach().flatten().tolist() for each in model.state_dict().values()]


def plain(torch: Any, wrap: Wrap) -> list[Any]:
    """The loop of the tutorials, its scheduler outside."""
    model = _model(torch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)

    @wrap
    def step(x: Any, y: Any) -> Any:
        model.train()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    found: list[Any] = []
    for x, y in _batches(torch, 9):
        found += [step(x, y).item(), _state(model)]
        scheduler.step()
    return [*found, step]


def clipped(torch: Any, wrap: Wrap) -> list[Any]:
    """Gradients cleared by the model, a penalty over its parameters, and a norm that is clipped."""
    model = _model(torch)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    @wrap
    def step(x: Any, y: Any) -> Any:
        model.train()
        model.zero_grad()
        penalty = sum(each.pow(2).sum() for each in model.parameters())
        loss = torch.nn.functional.cross_entropy(model(x), y) + 1e-2 * penalty
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return loss.detach(), norm

    found: list[Any] = []
    for x, y in _batches(torch, 6):
        loss, norm = step(x, y)
        found += [loss.item(), norm.item(), _state(model)]
    return [*found, step]


def averaged(torch: Any, wrap: Wrap) -> list[Any]:
    """A second model follows the first, by name; each call evaluates, too."""
    model, average = _model(torch), _model(torch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)

    @wrap
    def step(x: Any, y: Any) -> Any:
        model.train()
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        own = dict(model.named_parameters())
        with torch.no_grad():
            for name, each in average.named_parameters():
                each.mul_(0.9).add_(own[name], alpha=0.1)
            average.eval()
            return loss.detach(), average(x)

    found: list[Any] = []
    for x, y in _batches(torch, 6):
        loss, values = step(x, y)
        found += [loss.item(), values.flatten().tolist(), _state(average)]
    return [*found, step]


def by_hand(torch: Any, wrap: Wrap) -> list[Any]:
    """Gradients by `torch.autograd.grad`, parameters updated in place, layers by `modules()`."""
    model = _model(torch)

    @wrap
    def step(x: Any, y: Any) -> Any:
        for layer in model.modules():
            layer.train(not isinstance(layer, torch.nn.BatchNorm1d))
        loss = torch.nn.functional.cross_entropy(model(x), y)
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for each, gradient in zip(model.parameters(), gradients, strict=True):
                each -= 0.1 * gradient
        return loss.detach()

    found: list[Any] = []
    for x, y in _batches(torch, 6):
        found += [step(x, y).item(), _state(model)]
    return [*found, step]


def changed(torch: Any, wrap: Wrap) -> list[Any]:
    """A model that is frozen, given another layer, and trained on, between the calls."""
    model = _model(torch)
    other = torch.nn.Linear(8, 3)
    with torch.no_grad():
        for each in other.parameters():
            each.fill_(0.25)

    @wrap
    def step(x: Any, y: Any) -> Any:
        model.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        with torch.no_grad():
            for each in model.parameters():
                if each.grad is not None:
                    each.sub_(each.grad, alpha=0.1)
        return loss.detach()

    found: list[Any] = []
    for call, (x, y) in enumerate(_batches(torch, 16)):
        if call == 4:
            model[0][0].weight.requires_grad_(False)
        if call == 8:
            model[2] = other
        if call == 12:
            model.eval()
        found += [step(x, y).item(), _state(model)]
    return [*found, step]


def _flat(value: Any) -> list[float]:
    stack, found = [value], []
    while stack:
        each = stack.pop()
        if isinstance(each, list):
            stack += each
        else:
            found.append(float(each))
    return found


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(
    ("program", "captures"),
    [(plain, 1), (clipped, 1), (averaged, 1), (by_hand, 1), (changed, 5)],
    ids=lambda each: getattr(each, "__name__", str(each)),
)
def test_a_step_is_captured_and_every_call_agrees(
    program: Callable[[Any, Wrap], list[Any]], captures: int
) -> None:
    torch = pytest.importorskip("torch")
    *meant, _ = program(torch, lambda function: function)
    *found, step = program(ours, jit)
    assert isinstance(step, Jit)
    assert step.captures == captures
    np.testing.assert_allclose(_flat(found), _flat(meant), rtol=2e-4, atol=2e-5)
