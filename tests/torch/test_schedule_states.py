"""States of schedules that move momentum: by PyTorch's keys, read and written."""

from __future__ import annotations

import math
from typing import Any

import pytest

import tilegrad.torch as torch
from tilegrad.torch import nn
from tilegrad.torch.optim import lr_scheduler

# What PyTorch 2.13 gives after three steps of OneCycleLR(sgd, 1.0, total_steps=10), and of
# CyclicLR(sgd, 0.1, 1.0, step_size_up=3, step_size_down=5, mode="exp_range", gamma=0.9).
_COUNTS = {
    "last_epoch": 3,
    "_step_count": 4,
    "_is_initial": False,
    "_get_lr_called_within_step": False,
}
_ONE_CYCLE: dict[str, Any] = {
    "total_steps": 10,
    "_schedule_phases": [
        {
            "end_step": 2.0,
            "start_lr": "initial_lr",
            "end_lr": "max_lr",
            "start_momentum": "max_momentum",
            "end_momentum": "base_momentum",
        },
        {
            "end_step": 9,
            "start_lr": "max_lr",
            "end_lr": "min_lr",
            "start_momentum": "base_momentum",
            "end_momentum": "max_momentum",
        },
    ],
    "_anneal_func_type": "cos",
    "cycle_momentum": True,
    "use_beta1": False,
    "base_lrs": [0.04],
    "_last_lr": [0.9504846320134737],
    **_COUNTS,
}
_CYCLES: dict[str, Any] = {
    "max_lrs": [1.0],
    "total_size": 8.0,
    "step_ratio": 0.375,
    "mode": "exp_range",
    "gamma": 0.9,
    "scale_mode": "iterations",
    "cycle_momentum": True,
    "use_beta1": False,
    "base_momentums": [0.8],
    "max_momentums": [0.9],
    "base_lrs": [0.1],
    "_last_lr": [0.7561000000000001],
    "_scale_fn_custom": None,
    **_COUNTS,
}


def _sgd() -> Any:
    return torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.5, momentum=0.5)


def _go_on(optimizer: Any, schedule: Any, count: int) -> list[tuple[float, float]]:
    found = []
    for _ in range(count):
        optimizer.step()
        schedule.step()
        group = optimizer.param_groups[0]
        found.append((group["lr"], group["momentum"]))
    return found


def _one_cycle_at(step: int) -> tuple[float, float]:
    high = (1 - math.cos(math.pi * step / 2)) / 2 if step <= 2 else None
    low = 0.04 if high is not None else 4e-6
    if high is None:
        high = (1 + math.cos(math.pi * (step - 2) / 7)) / 2
    return low + (1 - low) * high, 0.95 - 0.1 * high


def _cycles_at(step: int) -> tuple[float, float]:
    at = step % 8
    height = (at / 3 if at <= 3 else (8 - at) / 5) * 0.9**step
    return 0.1 + 0.9 * height, 0.9 - 0.1 * height


def _one_cycle(optimizer: Any) -> Any:
    return lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=10)


def _cycles(optimizer: Any) -> Any:
    return lr_scheduler.CyclicLR(
        optimizer, 0.1, 1.0, step_size_up=3, step_size_down=5, mode="exp_range", gamma=0.9
    )


@pytest.mark.parametrize(
    ("make", "expected", "at"),
    [(_one_cycle, _ONE_CYCLE, _one_cycle_at), (_cycles, _CYCLES, _cycles_at)],
)
def test_a_state_has_pytorchs_keys_and_values(make: Any, expected: Any, at: Any) -> None:
    optimizer = _sgd()
    schedule = make(optimizer)
    found = _go_on(optimizer, schedule, 3)
    assert found == [pytest.approx(at(step), rel=1e-5) for step in (1, 2, 3)]
    state = schedule.state_dict()
    assert state.keys() == expected.keys()
    rates = state.pop("_last_lr")
    assert rates == pytest.approx(expected["_last_lr"], rel=1e-6)
    assert state.pop("base_lrs") == pytest.approx(expected["base_lrs"], rel=1e-6)
    assert state == {key: expected[key] for key in state}


@pytest.mark.parametrize(
    ("make", "state", "at"),
    [
        (_one_cycle, _ONE_CYCLE, _one_cycle_at),
        (
            lambda optimizer: lr_scheduler.CyclicLR(optimizer, 0.01, 9.0, step_size_up=2),
            _CYCLES,
            _cycles_at,
        ),
    ],
)
def test_a_state_of_pytorchs_goes_on(make: Any, state: Any, at: Any) -> None:
    optimizer = _sgd()
    schedule = make(optimizer)
    schedule.load_state_dict(state)
    assert schedule.get_last_lr() == pytest.approx(state["_last_lr"])
    found = _go_on(optimizer, schedule, 6)
    assert found == [pytest.approx(at(step), rel=1e-5) for step in range(4, 10)]


def test_groups_say_where_one_cycle_goes_as_in_pytorch() -> None:
    optimizer = _sgd()
    lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=10)
    group = optimizer.param_groups[0]
    assert (group["max_lr"], group["min_lr"], group["initial_lr"]) == (1.0, 4e-6, 0.04)
    assert (group["base_momentum"], group["max_momentum"]) == (0.85, 0.95)
    other = _sgd()
    other.load_state_dict(optimizer.state_dict())
    schedule = lr_scheduler.OneCycleLR(other, 5.0, total_steps=7)
    other.load_state_dict(optimizer.state_dict())
    schedule.load_state_dict(_ONE_CYCLE)
    assert _go_on(other, schedule, 1) == [pytest.approx(_one_cycle_at(4), rel=1e-5)]


def test_phases_and_adams_betas_are_kept_too() -> None:
    def make(peak: float) -> tuple[Any, Any]:
        optimizer = torch.optim.Adam([nn.Parameter(torch.ones(1))], lr=0.5)
        return optimizer, lr_scheduler.OneCycleLR(
            optimizer, peak, epochs=4, steps_per_epoch=5, three_phase=True, anneal_strategy="linear"
        )

    optimizer, schedule = make(1.0)
    for _ in range(4):
        optimizer.step()
        schedule.step()
    state = schedule.state_dict()
    assert state["use_beta1"] is True
    assert [phase["end_step"] for phase in state["_schedule_phases"]] == [5.0, 10.0, 19]
    other, loaded = make(1.0)
    loaded.load_state_dict(state)
    other.step()
    loaded.step()
    # The top of the first phase, at step 5.
    assert other.param_groups[0]["lr"] == pytest.approx(1.0)
    assert other.param_groups[0]["betas"][0] == pytest.approx(0.85)
