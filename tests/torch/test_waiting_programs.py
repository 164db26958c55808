"""Whole programs of kinds whose steps once made their nodes: checkpoints, sampled images, L-BFGS,
leapfrogs, writes that gradients flow through, picks by masks of any size. After the first steps no
step makes a node or a plan, and each step has PyTorch's values.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
from tests.torch.test_waiting import _Asked, asked  # noqa: F401  # a fixture
from tilegrad.base.trace import counters
from tilegrad.grad.regions import region_of
from tilegrad.torch.utils import checkpoint as checkpoints

_STEPS, _FIRST = 24, 14


def _data(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def _filled(torch: Any, module: Any) -> Any:
    with torch.no_grad():
        for number, each in enumerate(module.parameters()):
            each.copy_(torch.tensor(_data(number, *each.shape) * 0.4))
    return module


def _checkpoint(torch: Any) -> Callable[..., Any]:
    from importlib import import_module

    found: Callable[..., Any] = import_module(f"{torch.__name__}.utils.checkpoint").checkpoint
    return found


def _trained(torch: Any, parameters: Any, loss_of: Callable[[int], Any]) -> Iterator[list[float]]:
    optimizer = torch.optim.Adam(parameters, lr=1e-2)
    for step in range(_STEPS):
        optimizer.zero_grad()
        loss = loss_of(step)
        loss.backward()
        optimizer.step()
        yield [loss.item()]


def _checkpointed(torch: Any) -> Iterator[list[float]]:
    nn, checkpoint = torch.nn, _checkpoint(torch)
    block = nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 6), nn.GELU())
    net = _filled(torch, nn.ModuleList([block, nn.Linear(6, 2)]))

    def loss_of(step: int) -> Any:
        x = checkpoint(block, torch.tensor(_data(step, 4, 6)), use_reentrant=False)
        return net[1](checkpoint(lambda y: y + block(y), x, use_reentrant=False)).square().mean()

    return _trained(torch, net.parameters(), loss_of)


def _warped(torch: Any) -> Iterator[list[float]]:
    F = torch.nn.functional
    image, target = (torch.tensor(_data(seed, 2, 1, 6, 6)) for seed in (1, 2))
    theta = torch.tensor(np.eye(2, 3, dtype=np.float32)[None].repeat(2, 0), requires_grad=True)

    def loss_of(step: int) -> Any:
        grid = F.affine_grid(theta, (2, 1, 6, 6), align_corners=False)
        return F.mse_loss(F.grid_sample(image, grid, align_corners=False), target)

    return _trained(torch, [theta], loss_of)


def _newton(torch: Any) -> Iterator[list[float]]:
    nn = torch.nn
    net = _filled(torch, nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1)))
    optimizer = torch.optim.LBFGS(net.parameters(), lr=0.2, max_iter=3, history_size=4)
    for step in range(_STEPS):
        x = torch.tensor(_data(step // 8, 16, 3))

        def closure(x: Any = x) -> Any:
            optimizer.zero_grad()
            loss = (net(x) - x[:, :1].sin()).square().mean()
            loss.backward()
            return loss

        yield [optimizer.step(closure).item()]


def _leapfrog(torch: Any) -> Iterator[list[float]]:
    """A state of several tensors, two of one shape, that become leaves at each point."""
    x, y = torch.tensor(_data(0, 12, 3)), torch.tensor(_data(1, 12))
    state = {"w": torch.zeros(3), "b": torch.zeros(1), "s": torch.zeros(1)}

    def slope_at(state: Any) -> tuple[float, Any]:
        leaves = {name: each.detach().requires_grad_(True) for name, each in state.items()}
        rest = (x @ leaves["w"] + leaves["b"] - y) / leaves["s"].exp()
        energy = 0.5 * (rest * rest).sum() + 12 * leaves["s"].sum()
        energy.backward()
        return energy.item(), {name: each.grad for name, each in leaves.items()}

    for step in range(_STEPS):
        speed = {n: torch.tensor(_data(step, *each.shape)) for n, each in state.items()}
        before, slopes = slope_at(state)
        for _ in range(3):
            speed = {name: each - 0.01 * slopes[name] for name, each in speed.items()}
            state = {name: each + 0.02 * speed[name] for name, each in state.items()}
            after, slopes = slope_at(state)
        yield [before, after]


def _filled_by_steps(torch: Any) -> Iterator[list[float]]:
    nn = torch.nn
    cell = _filled(torch, nn.GRUCell(2, 3))

    def loss_of(step: int) -> Any:
        x, h = torch.tensor(_data(step, 4, 5, 2)), torch.zeros(4, 3)
        out = torch.zeros(4, 5, 3)
        for t in range(5):
            h = cell(x[:, t], h)
            out[:, t] = h
        # A part of a result that has a gradient takes a number.
        out[1, 2:4] = 0.5
        return (out - 0.1).square().mean()

    return _trained(torch, cell.parameters(), loss_of)


def _picked_by_masks(torch: Any, least: int = 10, most: int = 22) -> Iterator[list[float]]:
    """Mixture of experts: the sizes of the three parts change apart from one another. The second
    one is from `least` to less than `most`.
    """
    nn = torch.nn
    net = _filled(torch, nn.ModuleList([nn.Linear(7, 7) for _ in range(3)]))
    gate = _filled(torch, nn.Linear(7, 3))
    random = np.random.default_rng(5)

    def loss_of(step: int) -> Any:
        x = torch.tensor(_data(step, 60, 7))
        first, second = (int(random.integers(*each)) for each in ((10, 16), (least, most)))
        chosen = np.repeat([0, 1, 2], [first, second, 60 - first - second])
        shares, out = gate(x).softmax(-1), torch.zeros_like(x)
        for number, expert in enumerate(net):
            mask = torch.tensor(random.permutation(chosen) == number)
            out[mask] = expert(x[mask]) * shares[mask, number].unsqueeze(1)
        return (out - x).square().mean() + x.masked_select(x > 0).mean() * 0

    return _trained(torch, [*net.parameters(), *gate.parameters()], loss_of)


_PROGRAMS = {
    "checkpointed": _checkpointed, "warped": _warped, "newton": _newton, "leapfrog": _leapfrog,
    "filled by steps": _filled_by_steps,
}  # fmt: skip


@pytest.mark.row("M4.1")
@pytest.mark.parametrize("name", _PROGRAMS)
def test_later_steps_make_no_nodes(name: str, asked: _Asked) -> None:  # noqa: F811
    program = _PROGRAMS[name](torch)
    for _ in range(_FIRST):
        next(program)
    asked.count, plans = 0, counters.schedules
    for _ in range(_FIRST, _STEPS):
        next(program)
    assert (asked.count, counters.schedules - plans) == (0, 0)


@pytest.mark.parametrize("name", [*_PROGRAMS, "picked by masks"])
def test_each_step_has_the_values_of_pytorch(name: str) -> None:
    theirs = pytest.importorskip("torch")
    program = {**_PROGRAMS, "picked by masks": _picked_by_masks}[name]
    for mine, wanted in zip(program(torch), program(theirs), strict=True):
        # The line of L-BFGS is sensitive to the last bits.
        np.testing.assert_allclose(mine, wanted, rtol=2e-2 if name == "newton" else 2e-3, atol=1e-4)


def test_sizes_that_change_apart_are_differentiated_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tilegrad.tensor.calls.below import Below

    made: list[int] = []
    differentiated = Below.differentiated_in

    def noted(self: Below, family: Any) -> Any:
        made.append(len(made))
        return differentiated(self, family)

    monkeypatch.setattr(Below, "differentiated_in", noted)
    # No two sizes are one number, which are calls of another kind.
    program = _picked_by_masks(torch, least=16)
    counts = [len(made) for _ in program]
    # Sizes that never came before, and none of them is differentiated anew.
    assert counts[-1] == counts[_FIRST - 1]


def test_a_checkpoint_of_many_values_computes_them_again() -> None:
    checkpoints._made.clear()
    w = torch.tensor(_data(0, 4, 1 << 21), requires_grad=True)
    x = torch.tensor(_data(1, 2, 4), requires_grad=True)

    def wide(x: Any) -> Any:
        return (x @ w).tanh().sum(1)

    # Its values were not known before.
    first = checkpoints.checkpoint(wide, x, use_reentrant=False)
    second = checkpoints.checkpoint(wide, x * 2, use_reentrant=False)
    assert region_of(first.uop) is None and region_of(second.uop) is not None
    large = torch.tensor(_data(2, 1 << 17), requires_grad=True)
    assert region_of(checkpoints.checkpoint(lambda x: x.sin() * 2, large).uop) is not None


def test_a_graph_with_a_function_of_the_users_goes_to_another_process() -> None:
    class Passed(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return torch.round(x)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient

    graph = (Passed.apply(torch.tensor([1.5], requires_grad=True)) * 2).uop
    assert any(region_of(node) for node in graph.toposort())
    copied = pickle.loads(pickle.dumps(graph))
    assert str(copied) == str(graph)


def test_an_iteration_of_newton_is_three_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The direction, the tests whether to go on, and the loss at the new point; and one more loss
    in each step, of three iterations of which the last one asks for none.
    """
    asked_for: list[int] = []
    realize = torch.Tensor.realize

    def noted(*tensors: Any) -> Any:
        asked_for.append(len(tensors))
        return realize(*tensors)

    program = _newton(torch)
    for _ in range(4):
        next(program)
    from tilegrad import Tensor

    monkeypatch.setattr(Tensor, "realize", noted)
    next(program)
    # One tensor alone is memory when its values are read.
    assert 0 < sum(count > 1 for count in asked_for) <= 9
