"""Schedules of one optimizer together, inside others, and after the program changed a rate."""

from __future__ import annotations

from typing import Any

import pytest

import tilegrad.torch as ours

CASES: dict[str, Any] = {
    "two": lambda s, o: [s.StepLR(o, 4), s.ExponentialLR(o, 0.9)],
    "least": lambda s, o: [s.CosineAnnealingLR(o, 4, eta_min=0.03), s.LinearLR(o, 0.1, 1.0, 6)],
    "product": lambda s, o: [s.MultiplicativeLR(o, lambda t: 1 / (1 + t)), s.StepLR(o, 3)],
    "whole": lambda s, o: [s.LambdaLR(o, lambda t: 1 / (1 + t)), s.StepLR(o, 3, 0.5)],
    "chain": lambda s, o: [
        s.ChainedScheduler([
            s.CosineAnnealingLR(o, 5, eta_min=0.02), s.LinearLR(o, 0.3, total_iters=6)
        ])
    ],
    "sequence": lambda s, o: [
        s.SequentialLR(o, [s.ConstantLR(o, 0.1), s.ExponentialLR(o, 0.9), s.StepLR(o, 2)], [3, 7])
    ],
    "sequence and stairs": lambda s, o: [
        s.SequentialLR(o, [s.LinearLR(o, 0.1), s.CosineAnnealingLR(o, 6, 0.01)], [3]),
        s.StepLR(o, 4, 0.5),
    ],
}  # fmt: skip


def _rates(torch: Any, name: str, halved: int, stored: int) -> list[float]:
    """The rates of twelve steps: halved by the program in one, stored and loaded in another."""
    weight = torch.nn.Parameter(torch.ones(2))

    def made() -> tuple[Any, list[Any]]:
        optimizer = torch.optim.SGD([{"params": [weight], "lr": 0.1}], lr=0.3)
        return optimizer, CASES[name](torch.optim.lr_scheduler, optimizer)

    optimizer, schedules = made()
    rates = []
    for step in range(12):
        (weight * weight).sum().backward()
        optimizer.step()
        for each in schedules:
            each.step()
        if step == halved:
            optimizer.param_groups[0]["lr"] *= 0.5
        rates.append(float(optimizer.param_groups[0]["lr"]))
        if step == stored:
            states = [each.state_dict() for each in (optimizer, *schedules)]
            optimizer, schedules = made()
            # In an order of its own: the rates are the optimizer's.
            for each, state in reversed(list(zip((optimizer, *schedules), states))):
                each.load_state_dict(state)
    return rates


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("halved", "stored"), [(-1, -1), (2, 4), (5, 4)])
def test_rates_are_those_of_pytorch(name: str, halved: int, stored: int) -> None:
    torch = pytest.importorskip("torch")
    expected = _rates(torch, name, halved, stored)
    assert _rates(ours, name, halved, stored) == pytest.approx(expected, rel=1e-5, abs=2e-7)
