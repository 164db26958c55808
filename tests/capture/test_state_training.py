"""Captured functions that train: gradients and optimizer steps are state."""

from __future__ import annotations

from typing import Any

import pytest

from tests.capture.helpers import full
from tilegrad import Tensor, jit, nn
from tilegrad.base.errors import TilegradError
from tilegrad.nn.state import get_parameters


def test_gradients_are_state() -> None:
    weight = full(2, 2)
    weight.requires_grad = True

    @jit
    def step(x: Tensor) -> Tensor:
        weight.grad = None
        loss = (weight * x).sum()
        loss.backward()
        return loss

    held = []
    for n in range(5):
        assert step(full(n, 2)).item() == 4 * n
        held.append(weight.grad)
        assert weight.grad is not None and weight.grad.tolist() == [n] * 2
    assert [each.tolist() for each in held] == [[n] * 2 for n in range(5)]
    assert step.captures == 1


def test_gradients_accumulate() -> None:
    """As they do without capture, where nobody forgets them."""
    weight = full(2, 2)
    weight.requires_grad = True

    @jit
    def step(x: Tensor) -> Tensor:
        return (weight * x).sum().backward()

    total = 0.0
    for n in range(8):
        if n == 5:
            weight.grad, total = None, 0.0
        step(full(n, 2))
        total += n
        assert weight.grad is not None and weight.grad.tolist() == [total] * 2


def test_an_optimizer_step_alone() -> None:
    """Gradients are computed outside, and come as new tensors each time."""
    weights = [full(1, 2), full(1, 2)]
    for each in weights:
        each.requires_grad = True
    optimizer = nn.optim.SGD([weights[0]], lr=0.5)
    twin = nn.optim.SGD([weights[1]], lr=0.5)
    captured = jit(optimizer.step)
    with Tensor.train():
        for n in range(6):
            for weight, step in ((weights[0], captured), (weights[1], twin.step)):
                weight.grad = None
                (weight * full(n, 2)).sum().backward()
                step()
            assert weights[0].tolist() == weights[1].tolist()
    assert captured.captures == 1


class Net:
    def __init__(self) -> None:
        self.first = nn.Linear(8, 16)
        self.norm = nn.BatchNorm(16)
        self.second = nn.Linear(16, 4)

    def __call__(self, x: Tensor) -> Tensor:
        return self.second(self.norm(self.first(x)).relu().dropout(0.3))


@pytest.mark.row("M4.14")
@pytest.mark.parametrize("kind", ["SGD", "Adam", pytest.param("AdamW", marks=pytest.mark.nightly)])
def test_a_training_step(kind: str) -> None:
    """Losses, weights, statistics and gradients are those of a run without capture, bit for bit."""

    def train(is_captured: bool) -> list[Any]:
        Tensor.manual_seed(3)
        images = Tensor.rand(64, 8).realize()
        labels = Tensor.randint(64, high=4).realize()
        model = Net()
        options = {"momentum": 0.9} if kind == "SGD" else {}
        optimizer = getattr(nn.optim, kind)(get_parameters(model), lr=0.01, **options)

        @Tensor.train()
        def step() -> Tensor:
            optimizer.zero_grad()
            picked = Tensor.randint(16, high=64)
            loss = model(images[picked]).sparse_categorical_crossentropy(labels[picked])
            loss.backward()
            optimizer.step()
            return loss

        run = jit(step) if is_captured else step
        losses = []
        for n in range(7):
            if n == 4:
                optimizer.lr = 0.1
            losses.append(run().item())
        state = [*optimizer.params, *optimizer.buffers]
        return [
            losses,
            [each.tolist() for each in state],
            [p.grad.tolist() for p in optimizer.params],
        ]

    assert train(False) == train(True)


def test_evaluation_after_captured_training() -> None:
    Tensor.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = nn.optim.SGD([model.weight, model.bias], lr=0.1)
    x, y = Tensor.rand(32, 4).realize(), Tensor.rand(32, 1).realize()

    @jit
    def train() -> Tensor:
        with Tensor.train():
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean().backward()
            optimizer.step()
            return loss

    evaluate = jit(lambda: (model(x) - y).square().mean())
    for _ in range(5):
        loss = train().item()
        after = evaluate().item()
        assert after < loss
        assert after == pytest.approx((model(x) - y).square().mean().item())
    assert (train.captures, evaluate.captures) == (1, 1)


def test_a_gradient_through_a_result_of_a_replay_is_refused() -> None:
    """There is no graph of it: without a word the weight would have no gradient."""
    weight, other = full(2, 2), full(3, 2)
    weight.requires_grad = other.requires_grad = True
    scaled = jit(lambda x: weight * x)
    for n in range(1, 7):
        weight.grad = other.grad = None
        made = scaled(full(n, 2))
        loss = made.sum() if n % 2 else (made * other).sum()
        if n < 3:
            loss.backward()
            assert weight.grad is not None
            assert weight.grad.tolist() == [n * (1 if n % 2 else 3)] * 2
            continue
        with pytest.raises(TilegradError, match="replay"):
            loss.backward()
        assert (made.detach() * other).sum().gradient(other)[0].tolist() == [2 * n] * 2
        # The result itself may be asked for.
        assert (made * made).sum().gradient(made)[0].tolist() == [4 * n] * 2


def test_results_of_replays_without_gradients_are_numbers() -> None:
    weight, other = full(2, 2), full(3, 2)
    other.requires_grad = True
    scaled = jit(lambda x: weight * x)
    for n in range(6):
        other.grad = None
        (scaled(full(n, 2)) * other).sum().backward()
        assert other.grad is not None and other.grad.tolist() == [2 * n] * 2
