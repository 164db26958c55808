"""Parameters that have no gradient in some steps, and options that change between steps: each
parameter counts the steps that it took part in, and divisors are those of this step's betas, as in
PyTorch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilegrad.torch as ours

_OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "Adam": ("Adam", {"lr": 0.1}),
    "amsgrad": ("Adam", {"lr": 0.1, "amsgrad": True, "weight_decay": 0.1}),
    "AdamW": ("AdamW", {"lr": 0.1}),
    "NAdam": ("NAdam", {"lr": 0.1}),
    "RAdam": ("RAdam", {"lr": 0.1, "betas": (0.5, 0.9)}),
    "Adamax": ("Adamax", {"lr": 0.1}),
    "dampened": ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}),
    "SGD": ("SGD", {"lr": 0.1, "momentum": 0.9}),
    "Adagrad": ("Adagrad", {"lr": 0.1, "lr_decay": 0.1}),
    "ASGD": ("ASGD", {"lr": 0.1, "lambd": 0.1, "t0": 2}),
    "Adafactor": ("Adafactor", {"lr": 0.1}),
    "RMSprop": ("RMSprop", {"lr": 0.1, "momentum": 0.5, "centered": True}),
    "Rprop": ("Rprop", {"lr": 0.1}),
    "Adadelta": ("Adadelta", {"lr": 1.0}),
}
# In each step, which of three parameters have a gradient.
_STEPS = ((0,), (0, 1), (0,), (1,), (0, 1, 2), (0, 1, 2), (0, 2), (0, 1, 2))


def _parameters(torch: Any) -> list[Any]:
    values = np.random.default_rng(5).normal(size=(3, 2, 2)).astype(np.float32)
    return [torch.nn.Parameter(torch.tensor(each)) for each in values]


def _step(torch: Any, optimizer: Any, parameters: Any, step: int) -> None:
    optimizer.zero_grad()
    losses = [(parameters[at] ** 2).sum() * (1 + at) for at in _STEPS[step % len(_STEPS)]]
    sum(losses).backward()
    optimizer.step()


def _agree(mine: Any, theirs: Any) -> None:
    for one, other in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), 2e-5, 1e-6)


@pytest.mark.parametrize("name", _OPTIMIZERS)
def test_a_parameter_counts_the_steps_that_it_took_part_in(name: str) -> None:
    torch = pytest.importorskip("torch")
    kind, options = _OPTIMIZERS[name]
    mine, theirs = _parameters(ours), _parameters(torch)
    optimizer = getattr(ours.optim, kind)(mine, **options)
    peer = getattr(torch.optim, kind)(theirs, **options)
    for step in range(len(_STEPS)):
        _step(ours, optimizer, mine, step)
        _step(torch, peer, theirs, step)
        _agree(mine, theirs)


@pytest.mark.parametrize("name", ["Adam", "NAdam", "RAdam", "dampened", "Adagrad"])
def test_the_steps_of_each_parameter_are_in_the_state(name: str) -> None:
    """PyTorch goes on with our state, and another optimizer of ours with PyTorch's."""
    torch = pytest.importorskip("torch")
    kind, options = _OPTIMIZERS[name]
    mine, theirs = _parameters(ours), _parameters(torch)
    optimizer = getattr(ours.optim, kind)(mine, **options)
    peer = getattr(torch.optim, kind)(theirs, **options)
    for step in range(5):
        _step(ours, optimizer, mine, step)
        _step(torch, peer, theirs, step)
    if kind != "SGD":
        steps = [each["step"].item() for each in optimizer.state_dict()["state"].values()]
        assert steps == [each["step"].item() for each in peer.state_dict()["state"].values()]
        assert steps == [4, 3, 1]
    again = getattr(ours.optim, kind)(mine, **options)
    state = peer.state_dict()
    states = {
        number: {
            key: ours.tensor(value.numpy()) if isinstance(value, torch.Tensor) else value
            for key, value in each.items()
        }
        for number, each in state["state"].items()
    }
    again.load_state_dict({**state, "state": states})
    for step in range(5, 8):
        _step(ours, again, mine, step)
        _step(torch, peer, theirs, step)
        _agree(mine, theirs)


@pytest.mark.parametrize("name", ["Adam", "AdamW", "NAdam", "RAdam", "Adamax"])
def test_the_divisors_are_those_of_this_steps_betas(name: str) -> None:
    torch = pytest.importorskip("torch")
    betas = ((0.5, 0.9), (0.9, 0.99), (0.9, 0.99), (0.0, 0.8), (0.9, 0.999), (0.8, 0.5))
    mine, theirs = _parameters(ours), _parameters(torch)
    optimizer = getattr(ours.optim, name)(mine, lr=0.1, betas=betas[0])
    peer = getattr(torch.optim, name)(theirs, lr=0.1, betas=betas[0])
    for step in range(len(betas)):
        optimizer.param_groups[0]["betas"] = betas[step % len(betas)]
        peer.param_groups[0]["betas"] = betas[step % len(betas)]
        _step(ours, optimizer, mine, 4)
        _step(torch, peer, theirs, 4)
        _agree(mine, theirs)


def test_a_group_without_gradients_counts_no_step() -> None:
    torch = pytest.importorskip("torch")
    mine, theirs = _parameters(ours), _parameters(torch)
    optimizer = ours.optim.Adam([{"params": [each]} for each in mine], lr=0.1)
    peer = torch.optim.Adam([{"params": [each]} for each in theirs], lr=0.1)
    for step in range(len(_STEPS)):
        _step(ours, optimizer, mine, step)
        _step(torch, peer, theirs, step)
        _agree(mine, theirs)


@pytest.mark.parametrize("b2", [0.7, 0.9, 0.999, 0.99999])
def test_radam_knows_how_many_terms_there_are(b2: float) -> None:
    """Beside PyTorch in float64, by a constant gradient: the step is the factor itself."""
    torch = pytest.importorskip("torch")
    w = ours.nn.Parameter(ours.zeros(1))
    v = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = ours.optim.RAdam([w], lr=1.0, betas=(0.9, b2))
    peer = torch.optim.RAdam([v], lr=1.0, betas=(0.9, b2))
    for _ in range(30):
        with ours.no_grad():
            w.zero_()
        with torch.no_grad():
            v.zero_()
        w.grad, v.grad = ours.ones(1), torch.ones(1, dtype=torch.float64)
        optimizer.step()
        peer.step()
        np.testing.assert_allclose(w.item(), v.item(), 1e-5)
