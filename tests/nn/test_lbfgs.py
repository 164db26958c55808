"""L-BFGS on functions whose lowest points are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilegrad import Tensor, nn
from tilegrad.base.errors import ConfigError
from tilegrad.base.trace import counters


def minimised(start: Any, loss_of: Any, steps: int, **options: Any) -> tuple[list[float], Any, int]:
    """The losses before each step, the parameter after, and how often the loss was computed."""
    p = Tensor(np.array(start))
    optimizer = nn.optim.LBFGS([p], **options)
    calls = 0

    def closure() -> Tensor:
        nonlocal calls
        calls += 1
        optimizer.zero_grad()
        return loss_of(p).backward()

    with Tensor.train():
        losses = [optimizer.step(closure).item() for _ in range(steps)]
    return losses, p.numpy(), calls


def rosenbrock(p: Tensor) -> Tensor:
    a, b = p[:-1], p[1:]
    return (100 * (b - a * a).square() + (1 - a).square()).sum()


def test_a_curved_valley() -> None:
    """Rosenbrock's function in four dimensions, whose lowest point is (1, 1, 1, 1)."""
    losses, found, _ = minimised(
        [-1.2, 1.0, -1.2, 1.0], rosenbrock, 3, max_iter=40, line_search_fn="strong_wolfe"
    )
    assert losses[0] == pytest.approx(532.4)
    np.testing.assert_allclose(found, np.ones(4), atol=1e-4)


def test_a_quadratic_is_solved_and_nothing_is_compiled_after_the_first_steps() -> None:
    """The history is shorter than the iterations are many, so that the oldest step goes."""
    scale = np.array([1.0, 4.0, 9.0, 16.0, 25.0])

    def loss_of(p: Tensor) -> Tensor:
        return ((p - Tensor(scale)).square() * Tensor(scale)).sum()

    options = {"line_search_fn": "strong_wolfe", "history_size": 4}
    _, found, _ = minimised(np.zeros(5), loss_of, 1, max_iter=40, **options)
    np.testing.assert_allclose(found, scale, rtol=1e-4)
    before = counters.compiles
    _, again, _ = minimised(np.ones(5), loss_of, 1, max_iter=40, **options)
    np.testing.assert_allclose(again, scale, rtol=1e-4)
    assert counters.compiles - before <= 1


def test_without_a_line_search_the_first_step_goes_along_the_gradient() -> None:
    """By lr / |gradient|_1; one call of the closure for each iteration."""
    losses, found, calls = minimised(
        [3.0, -4.0], lambda p: p.square().sum() * 0.5, 1, lr=0.5, max_iter=1
    )
    assert losses == [12.5] and calls == 1
    np.testing.assert_allclose(found, np.array([3.0, -4.0]) * (1 - 0.5 / 7))


def test_the_best_place_of_a_line_is_not_looked_at_twice() -> None:
    """With so few calls each of them has to tell something new; PyTorch reaches 0.03."""
    losses, _, calls = minimised(
        [-1.0, 1.5], rosenbrock, 4, max_iter=10, line_search_fn="strong_wolfe"
    )
    assert losses[3] < 0.03 and calls <= 4 * 14


def test_parameters_of_a_model() -> None:
    """A regression that has an exact answer."""
    draw = np.random.default_rng(0)
    x, truth = draw.normal(size=(32, 3)), np.array([[1.0, -2.0, 0.5]])
    model = nn.Linear(3, 1).double()
    optimizer = nn.optim.LBFGS(model.parameters(), line_search_fn="strong_wolfe")
    target = Tensor(x @ truth.T + 0.25)

    @Tensor.train()
    def step() -> Tensor:
        def closure() -> Tensor:
            optimizer.zero_grad()
            return nn.functional.mse_loss(model(Tensor(x)), target).backward()

        first: Tensor = optimizer.step(closure)
        return first

    step()
    step()
    np.testing.assert_allclose(model.weight.numpy(), truth, atol=1e-4)
    assert model.bias is not None
    np.testing.assert_allclose(model.bias.numpy(), [0.25], atol=1e-4)


def test_what_is_refused() -> None:
    p = Tensor.ones(2)
    with pytest.raises(ConfigError, match="LBFGS: unknown line_search_fn 'armijo'"):
        nn.optim.LBFGS([p], line_search_fn="armijo")
    with pytest.raises(ConfigError, match="LBFGS: all parameters are one group"):
        nn.optim.LBFGS([{"params": [p]}, {"params": [Tensor.ones(1)]}])
    with Tensor.train(), pytest.raises(ConfigError, match=r"LBFGS\.step: needs a closure"):
        nn.optim.LBFGS([p]).step()
