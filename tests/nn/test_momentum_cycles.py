"""Schedulers that move momentum against the rate, by default, as PyTorch does."""

import math
from typing import Any

import numpy as np
import pytest

from tilegrad import Tensor, jit, nn
from tilegrad.base.errors import ConfigError

S = nn.schedulers


def one_cycle(t: int, total: int = 12, low: float = 0.85, high: float = 0.95) -> float:
    """Down in 0.3 * total - 1 steps, up in the rest, along half a cosine each."""
    turn = 0.3 * total - 1
    first, last, share = (
        (high, low, t / turn) if t <= turn else (low, high, (t - turn) / (total - 1 - turn))
    )
    return last + (first - last) / 2 * (1 + math.cos(math.pi * share))


def triangle(t: int, up: int = 2, low: float = 0.8, high: float = 0.9) -> float:
    place = t % (2 * up)
    return high - (high - low) * (place if place <= up else 2 * up - place) / up


def momentum_of(optimizer: Any) -> Any:
    group = optimizer.param_groups[0]
    return group["betas"][0] if "betas" in group else group["momentum"]


def trajectory(optimizer: Any, scheduler: Any, count: int) -> list[float]:
    found = []
    for _ in range(count):
        found.append(momentum_of(optimizer).item())
        scheduler.step()
    return found


@pytest.mark.parametrize("kind", ["SGD", "RMSprop", "Adam", "NAdam", "Lion"])
def test_one_cycle_moves_momentum_or_the_first_beta(kind: str) -> None:
    optimizer = getattr(nn.optim, kind)([Tensor([1.0])], lr=0.1)
    scheduler = S.OneCycleLR(optimizer, 0.5, total_steps=12)
    expected = [one_cycle(t) for t in range(12)]
    np.testing.assert_allclose(trajectory(optimizer, scheduler, 12), expected, rtol=1e-6)


def test_cyclic_rates_move_momentum() -> None:
    optimizer = nn.optim.SGD([Tensor([1.0])], lr=0.1)
    scheduler = S.CyclicLR(optimizer, 0.1, 0.5, 2)
    expected = [triangle(t) for t in range(9)]
    np.testing.assert_allclose(trajectory(optimizer, scheduler, 9), expected, rtol=1e-6)


def test_the_step_uses_the_momentum_of_its_moment() -> None:
    """m = momentum * m + g, p = p - lr * m, with the rate and momentum of each step."""
    w = Tensor([1.0])
    optimizer = nn.optim.SGD([w], lr=0.1)
    scheduler = S.CyclicLR(optimizer, 0.1, 0.3, 2)
    value, m = 1.0, 0.0

    @jit
    def step() -> Tensor:
        optimizer.zero_grad()
        loss = (w * 3.0).sum().backward()
        optimizer.step()
        scheduler.step()
        return loss.realize()

    with Tensor.train():
        for t in range(7):
            step()
            m = triangle(t) * m + 3.0
            place = t % 4
            value -= (0.1 + 0.2 * (place if place <= 2 else 4 - place) / 2) * m
            assert w.item() == pytest.approx(value, rel=1e-5)


def test_adam_divides_by_the_power_of_the_moved_beta() -> None:
    w = Tensor([1.0])
    optimizer = nn.optim.Adam([w], lr=0.1, eps=0.0)
    scheduler = S.CyclicLR(optimizer, 0.1, 0.1, 2)
    value, m, v = 1.0, 0.0, 0.0
    with Tensor.train():
        for t in range(5):
            optimizer.zero_grad()
            g = 2.0 * (t + 1)
            (w * g).sum().backward()
            optimizer.step()
            scheduler.step()
            b1, b2 = triangle(t), 0.999
            m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
            value -= 0.1 * (m / (1 - b1 ** (t + 1))) / math.sqrt(v / (1 - b2 ** (t + 1)))
            assert w.item() == pytest.approx(value, rel=1e-4)


def test_momentum_stays_without_cycle_momentum() -> None:
    optimizer = nn.optim.SGD([Tensor([1.0])], lr=0.1, momentum=0.5)
    S.OneCycleLR(optimizer, 0.5, total_steps=12, cycle_momentum=False).step()
    assert momentum_of(optimizer) == 0.5


def test_each_group_has_its_own_ends() -> None:
    groups = [{"params": [Tensor([1.0])]}, {"params": [Tensor([1.0])]}]
    optimizer = nn.optim.SGD(groups, lr=0.1)
    S.CyclicLR(optimizer, [0.1, 0.2], [0.3, 0.8], 2, base_momentum=[0.5, 0.6]).step()
    rates = [group["lr"].item() for group in optimizer.param_groups]
    momenta = [group["momentum"].item() for group in optimizer.param_groups]
    np.testing.assert_allclose(rates, [0.2, 0.5], rtol=1e-6)
    np.testing.assert_allclose(momenta, [0.7, 0.75], rtol=1e-6)


def test_cyclic_rates_take_a_scale_of_their_own() -> None:
    optimizer = nn.optim.SGD([Tensor([1.0])], lr=0.1)
    scheduler = S.CyclicLR(optimizer, 0.0, 1.0, 1, scale_fn=lambda cycle: 1 / cycle)
    found = []
    for _ in range(6):
        found.append(optimizer.lr.item())
        scheduler.step()
    np.testing.assert_allclose(found, [0, 1, 0, 1 / 2, 0, 1 / 3], rtol=1e-6)


def test_an_optimizer_without_momentum_is_refused() -> None:
    optimizer = nn.optim.Adagrad([Tensor([1.0])], lr=0.1)
    with pytest.raises(ConfigError, match="Adagrad: there is no momentum to cycle"):
        S.OneCycleLR(optimizer, 0.5, total_steps=12)
    S.OneCycleLR(optimizer, 0.5, total_steps=12, cycle_momentum=False)


def test_a_file_holds_the_moved_momentum_as_a_number() -> None:
    optimizer = nn.optim.Adam([Tensor([1.0])], lr=0.1)
    scheduler = S.CyclicLR(optimizer, 0.1, 0.5, 2)
    scheduler.step()
    saved = optimizer.state_dict()
    assert saved["param_groups"][0]["betas"] == pytest.approx((0.85, 0.999))
    scheduler.step()
    optimizer.load_state_dict(saved)
    assert momentum_of(optimizer).item() == pytest.approx(0.85)


def test_momentum_rests_while_another_scheduler_of_a_sequence_runs() -> None:
    optimizer = nn.optim.SGD([Tensor([1.0])], lr=0.1)
    cycle = S.CyclicLR(optimizer, 0.1, 0.5, 2)
    rest = S.ExponentialLR(optimizer, 0.5)
    found = trajectory(optimizer, S.SequentialLR(optimizer, [cycle, rest], [2]), 4)
    np.testing.assert_allclose(found, [0.9, 0.85, 0.85, 0.85], rtol=1e-6)
