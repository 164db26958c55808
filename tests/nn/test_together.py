"""The update of a parameter as one call: what it must not change, and how many calls it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilegrad import Context, Tensor, nn
from tilegrad.nn.optim import together
from tilegrad.tensor.calls import postponed, templates

_OPTIMIZERS: dict[str, Any] = {
    "adam": lambda params: nn.optim.Adam(params, lr=0.05),
    "amsgrad": lambda params: nn.optim.Adam(params, lr=0.05, amsgrad=True, weight_decay=0.1),
    "adamw": lambda params: nn.optim.AdamW(params, lr=0.05),
    "momentum": lambda params: nn.optim.SGD(params, lr=0.05, momentum=0.9, nesterov=True),
    "rmsprop": lambda params: nn.optim.RMSprop(params, lr=0.05, momentum=0.5, centered=True),
    "adagrad": lambda params: nn.optim.Adagrad(params, lr=0.05),
    "nadam": lambda params: nn.optim.NAdam(params, lr=0.05),
    "rprop": lambda params: nn.optim.Rprop(params, lr=0.05),
}


def _adam(p: Any, g: Any, state: list[Any], step: int, **o: Any) -> Any:
    """One step, in float64; the divisors are of this step's betas, as PyTorch has it."""
    g = (-g if o["maximize"] else g) + o["weight_decay"] * p
    b1, b2 = o["betas"]
    state[0] = b1 * state[0] + (1 - b1) * g
    state[1] = b2 * state[1] + (1 - b2) * g * g
    mean, square = state[0] / (1 - b1**step), state[1] / (1 - b2**step)
    return p - o["lr"] * mean / (np.sqrt(square) + o["eps"])


def test_options_that_change_count_from_the_next_step_on() -> None:
    options: dict[str, Any] = {
        "lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.0, "maximize": False,
    }  # fmt: skip
    changes: dict[int, dict[str, Any]] = {
        3: {"lr": 0.3}, 5: {"weight_decay": 0.2}, 7: {"betas": (0.5, 0.9)}, 9: {"maximize": True},
        11: {"eps": 0.1}, 13: {"weight_decay": 0.0, "maximize": False}, 15: {"lr": 0.01},
    }  # fmt: skip
    values = [np.linspace(-1, 2, 6).reshape(2, 3), np.linspace(1, 3, 4)]
    params = [Tensor(each.astype(np.float32), requires_grad=True) for each in values]
    states = [[0.0, 0.0] for _ in values]
    optimizer = nn.optim.Adam(params, lr=0.1, betas=(0.9, 0.99))
    with Tensor.train():
        for step in range(18):
            for name, value in changes.get(step, {}).items():
                options[name] = optimizer.param_groups[0][name] = value
            optimizer.zero_grad()
            Tensor.stack(*[(each.square() * each).sum() for each in params]).sum().backward()
            optimizer.step()
            for at, p in enumerate(values):
                values[at] = _adam(p, 3 * p * p, states[at], step + 1, **options)
                np.testing.assert_allclose(params[at].numpy(), values[at], rtol=2e-4, atol=2e-5)


class _Stubborn(nn.optim.SGD):
    """A formula of the user's, which counts."""

    count = 0

    def _update(self, index: int, value: Tensor, gradient: Tensor) -> Any:
        self.count += 1
        return value - self._scaled(index, gradient) * (self.count % 2), []


def test_a_formula_of_the_users_is_computed_each_time() -> None:
    p = Tensor([1.0, 2.0], requires_grad=True)
    optimizer = _Stubborn([p], lr=0.5)
    expected = np.array([1.0, 2.0])
    with Tensor.train():
        for step in range(6):
            optimizer.zero_grad()
            p.sum().backward()
            optimizer.step()
            expected = expected - 0.5 * ((step + 1) % 2)
            np.testing.assert_allclose(p.numpy(), expected)
    assert optimizer.count == 6


@pytest.mark.parametrize("name", _OPTIMIZERS)
def test_a_step_is_a_few_calls(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters of equal shapes share a template, and a step calls methods for the counts of its
    group and for the gradients alone, not for each parameter.
    """
    count = 0
    waiting = postponed.postponed

    def counted(*args: Any) -> Any:
        nonlocal count
        count += 1
        return waiting(*args)

    with Context(TEMPLATES=1, SEGMENTS=1), Tensor.train():
        params = [Tensor(np.full((3, 4), 0.5, np.float32), requires_grad=True) for _ in range(6)]
        optimizer = _OPTIMIZERS[name](params)
        for step in range(6):
            optimizer.zero_grad()
            Tensor.stack(*[each.square().sum() for each in params]).sum().backward()
            if step == 5:
                for module in (postponed, templates):
                    monkeypatch.setattr(module, "postponed", counted)
            optimizer.step()
            monkeypatch.undo()
    assert count <= 12, "two for each parameter"
    moved = [each.numpy() for each in params]
    for each in moved[1:]:
        np.testing.assert_array_equal(each, moved[0])


def test_what_is_no_template_is_computed_by_methods() -> None:
    """A parameter of more than a megabyte is written in place."""
    large = Tensor(np.ones((600, 600), np.float32), requires_grad=True)
    small = Tensor(np.ones(3, np.float32), requires_grad=True)
    optimizer = nn.optim.Adam([large, small], lr=0.5)
    with Context(TEMPLATES=1, SEGMENTS=1), Tensor.train():
        for _ in range(4):
            optimizer.zero_grad()
            (large.sum() + small.sum()).backward()
            # Gradients of ones are constants.
            assert together.move_together(optimizer, 0, {}) is None
            optimizer.step()
    np.testing.assert_allclose(large.numpy(), 1 - 4 * 0.5, rtol=1e-5)
    np.testing.assert_allclose(small.numpy(), 1 - 4 * 0.5, rtol=1e-5)
