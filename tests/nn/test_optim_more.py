"""The optimizers of PyTorch beyond Adam and SGD, against their equations in NumPy; their options;
and the state in PyTorch's form.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tilegrad import Tensor, nn
from tilegrad.base.errors import ConfigError, DataError, ShapeError

Array = npt.NDArray[Any]
STEPS = 8
START = np.random.default_rng(0).normal(size=(4, 3))
GRADIENTS = np.random.default_rng(1).normal(size=(STEPS, 4, 3))


def moved(optimizer: nn.optim.Optimizer, gradients: Array = GRADIENTS) -> Array:
    """The first parameter after steps along `gradients`."""
    (p, *_) = optimizer.params
    with Tensor.train():
        for g in gradients:
            p.grad = Tensor(g.astype(p.dtype.name))
            optimizer.step()
    return np.asarray(p.numpy())


State = dict[str, Any]


def dampened(p: Array, g: Array, s: State, t: int) -> Array:
    g = g + 0.1 * p
    s["m"] = g if t == 1 else 0.9 * s["m"] + 0.7 * g
    return p - 0.1 * s["m"]


def amsgrad(p: Array, g: Array, s: State, t: int) -> Array:
    s["m"] = 0.9 * s.get("m", 0) + 0.1 * g
    s["v"] = 0.5 * s.get("v", 0) + 0.5 * g * g
    s["top"] = np.maximum(s.get("top", 0), s["v"])
    return p - 0.1 * s["m"] / (1 - 0.9**t) / (np.sqrt(s["top"] / (1 - 0.5**t)) + 1e-8)


def adamax(p: Array, g: Array, s: State, t: int) -> Array:
    g = g + 0.1 * p
    s["m"] = 0.9 * s.get("m", 0) + 0.1 * g
    s["u"] = np.maximum(0.999 * s.get("u", 0), np.abs(g) + 1e-8)
    return p - 0.1 / (1 - 0.9**t) * s["m"] / s["u"]


def nadam(p: Array, g: Array, s: State, t: int) -> Array:
    def share(t: int) -> float:
        return 0.9 * (1 - 0.5 * 0.96 ** (t * 0.1))

    p = p - 0.1 * 0.2 * p
    s["m"] = 0.9 * s.get("m", 0) + 0.1 * g
    s["v"] = 0.999 * s.get("v", 0) + 0.001 * g * g
    now = math.prod(share(i) for i in range(1, t + 1))
    ahead = (1 - share(t)) / (1 - now) * g + share(t + 1) / (1 - now * share(t + 1)) * s["m"]
    return p - 0.1 * ahead / (np.sqrt(s["v"] / (1 - 0.999**t)) + 1e-8)


def radam(p: Array, g: Array, s: State, t: int) -> Array:
    g = g + 0.1 * p
    s["m"] = 0.9 * s.get("m", 0) + 0.1 * g
    s["v"] = 0.999 * s.get("v", 0) + 0.001 * g * g
    k = 2 / (1 - 0.999) - 1
    r = k - 2 * t * 0.999**t / (1 - 0.999**t)
    step = s["m"] / (1 - 0.9**t)
    if r > 5:
        scale = np.sqrt((r - 4) * (r - 2) * k / ((k - 4) * (k - 2) * r))
        step = step * scale * np.sqrt(1 - 0.999**t) / (np.sqrt(s["v"]) + 1e-8)
    return p - 0.1 * step


def adadelta(p: Array, g: Array, s: State, t: int) -> Array:
    g = g + 0.1 * p
    s["v"] = 0.9 * s.get("v", 0) + 0.1 * g * g
    d = np.sqrt(s.get("a", 0) + 1e-6) / np.sqrt(s["v"] + 1e-6) * g
    s["a"] = 0.9 * s.get("a", 0) + 0.1 * d * d
    return p - 0.5 * d


def adagrad(p: Array, g: Array, s: State, t: int) -> Array:
    s["v"] = s.get("v", 0.25) + g * g
    return p - 0.1 / (1 + (t - 1) * 0.2) * g / (np.sqrt(s["v"]) + 1e-10)


def asgd(p: Array, g: Array, s: State, t: int) -> Array:
    eta = 0.1 / (1 + 0.2 * 0.1 * (t - 1)) ** 0.75
    p = p * (1 - 0.2 * eta) - eta * g
    s["ax"] = s.get("ax", 0) + (p - s.get("ax", 0)) / max(1, t - 1 - 3)
    return p


def rprop(p: Array, g: Array, s: State, t: int) -> Array:
    turn = np.sign(g * s.get("g", 0))
    factor = np.select([turn > 0, turn < 0], [1.2, 0.5], 1.0)
    s["size"] = np.clip(s.get("size", 0.1) * factor, 0.01, 0.15)
    s["g"] = np.where(turn < 0, 0, g)
    return p - np.sign(s["g"]) * s["size"]


def adafactor(p: Array, g: Array, s: State, t: int) -> Array:
    share = t**-0.8
    for name, axis in (("r", 1), ("c", 0)):
        mean = (g * g).mean(axis, keepdims=True)
        s[name] = s.get(name, 0) + (mean - s.get(name, 0)) * share
    v = s["r"] * s["c"] / s["r"].mean()
    u = g / np.sqrt(v)
    a = max(1e-3, np.sqrt((p * p).mean())) * min(0.1, 1 / math.sqrt(t))
    return p * (1 - 0.1 * 0.1) - a * u / max(1, np.sqrt((u * u).mean()) / 0.5)


def ascending(p: Array, g: Array, s: State, t: int) -> Array:
    return p + 0.1 * g


RULES: list[tuple[Any, Callable[..., Array]]] = [
    (lambda p: nn.optim.SGD(p, 0.1, 0.9, 0.1, dampening=0.3), dampened),
    (lambda p: nn.optim.SGD(p, 0.1, maximize=True, foreach=True, fused=False), ascending),
    (lambda p: nn.optim.Adam(p, 0.1, (0.9, 0.5), amsgrad=True), amsgrad),
    (lambda p: nn.optim.Adamax(p, 0.1, weight_decay=0.1), adamax),
    (lambda p: nn.optim.NAdam(p, 0.1, (0.9, 0.999), 1e-8, 0.2, 0.1, True), nadam),
    (lambda p: nn.optim.RAdam(p, 0.1, weight_decay=0.1), radam),
    (lambda p: nn.optim.Adadelta(p, 0.5, weight_decay=0.1), adadelta),
    (lambda p: nn.optim.Adagrad(p, 0.1, 0.2, initial_accumulator_value=0.25), adagrad),
    (lambda p: nn.optim.ASGD(p, 0.1, 0.2, t0=3), asgd),
    (lambda p: nn.optim.Rprop(p, 0.1, step_sizes=(0.01, 0.15)), rprop),
    (lambda p: nn.optim.Adafactor(p, 0.1, d=0.5, weight_decay=0.1), adafactor),
]


@pytest.mark.parametrize(("make", "rule"), RULES, ids=[rule.__name__ for _, rule in RULES])
def test_the_rule(make: Any, rule: Callable[..., Array]) -> None:
    p, state = START, State()
    for t, g in enumerate(GRADIENTS, start=1):
        p = rule(p, g, state, t)
    optimizer = make([Tensor(START)])
    np.testing.assert_allclose(moved(optimizer), p, rtol=1e-9)
    if rule is asgd:
        np.testing.assert_allclose(optimizer.ax[0].numpy(), state["ax"], rtol=1e-9)


def test_radam_keeps_its_digits_in_float32() -> None:
    """Just above r = 5 the formula as it is written would lose three of them."""
    p, state = START.copy(), State()
    for t, g in enumerate(GRADIENTS[:6], start=1):
        before, p = p, radam(p, g, state, t)
    optimizer = nn.optim.RAdam([Tensor(START.astype(np.float32))], 0.1, weight_decay=0.1)
    first = moved(optimizer, GRADIENTS[:5])
    last = moved(optimizer, GRADIENTS[5:6])
    np.testing.assert_allclose(last - first, p - before, rtol=2e-5, atol=1e-6)


def test_state_goes_to_another_optimizer_and_on() -> None:
    """In PyTorch's form, with options and counts."""
    whole = moved(nn.optim.NAdam([Tensor(START)], 0.1, weight_decay=0.1))
    first = nn.optim.NAdam([Tensor(START)], 0.1, weight_decay=0.1)
    half = moved(first, GRADIENTS[:4])
    state = first.state_dict()
    assert set(state["state"][0]) == {"step", "exp_avg", "exp_avg_sq"}
    assert (state["state"][0]["step"].item(), state["param_groups"][0]["params"]) == (4.0, [0])
    assert state["param_groups"][0]["lr"] == pytest.approx(0.1)
    second = nn.optim.NAdam([Tensor(half)])
    second.load_state_dict(state)
    np.testing.assert_allclose(moved(second, GRADIENTS[4:]), whole, rtol=1e-9)


def test_state_of_a_file_of_pytorch() -> None:
    """Arrays, lists, numbers of its own, options that are unknown here, no count for SGD."""
    state = {
        "state": {7: {"momentum_buffer": np.ones((2,), np.float32)}},
        "param_groups": [
            {"lr": 0.5, "momentum": 0.5, "dampening": 0.5, "foreach": None, "params": [7]}
        ],
    }
    optimizer = nn.optim.SGD([Tensor.zeros(2)])
    optimizer.load_state_dict(state)
    np.testing.assert_array_equal(moved(optimizer, np.ones((1, 2))), [-0.5, -0.5])
    adam = nn.optim.Adam([Tensor.zeros(2)])
    options = {"lr": 0.5, "betas": [0.5, 0.5], "params": [0]}
    adam.load_state_dict({"state": {}, "param_groups": [options]})
    assert (adam.param_groups[0]["betas"], adam.lr.item()) == ((0.5, 0.5), 0.5)


def test_state_that_does_not_fit() -> None:
    optimizer = nn.optim.SGD([Tensor.zeros(2)], 1.0, 0.5)
    for state, message in (
        ({"weight": 1}, "SGD.load_state_dict: no state of an optimizer"),
        (
            {"param_groups": [{"params": [0, 1]}]},
            r"groups of \[2\] parameters, the optimizer .* \[1",
        ),
    ):
        with pytest.raises(DataError, match=message):
            optimizer.load_state_dict(state)
    wrong = {"state": {0: {"momentum_buffer": np.ones(3)}}, "param_groups": [{"params": [0]}]}
    with pytest.raises(ShapeError, match=r"state of shape \(3,\) for \(2,\)"):
        optimizer.load_state_dict({**wrong, "param_groups": [{"params": [0], "lr": 0.25}]})
    assert optimizer.lr.item() == 1.0


def test_names_in_a_file() -> None:
    optimizer = nn.optim.Adam([Tensor.zeros(2)])
    names = ["lr", "step", "c1", "c2", "params.0", "m.0", "v.0"]
    assert list(nn.state.get_state_dict(optimizer)) == names
    optimizer.add_param_group({"params": Tensor.zeros(3), "lr": 0.5})
    assert list(nn.state.get_state_dict(optimizer))[:4] == ["lr.0", "lr.1", "step.0", "step.1"]


def test_a_group_that_is_added_later() -> None:
    a, b = Tensor.zeros(2), Tensor.zeros(2)
    optimizer = nn.optim.SGD([a], 0.5)
    moved(optimizer, np.ones((2, 2)))
    optimizer.add_param_group({"params": [a, b], "lr": 1.0, "momentum": 0.5})
    b.grad = Tensor.ones(2)
    moved(optimizer, np.ones((2, 2)))
    assert (a.tolist(), b.tolist()) == ([-2.0, -2.0], [-2.5, -2.5])
    with pytest.raises(ConfigError, match="SGD: a group has unknown options: momentun"):
        optimizer.add_param_group({"params": Tensor.zeros(1), "momentun": 1})


def test_a_closure_and_named_parameters() -> None:
    model = nn.Linear(2, 1, bias=False)
    optimizer = nn.optim.SGD(model.named_parameters(), 0.5)
    model.weight.assign(Tensor([[1.0, 2.0]])).realize()

    def loss() -> Tensor:
        optimizer.zero_grad()
        return model(Tensor([[1.0, 1.0]])).sum().backward()

    with Tensor.train():
        assert optimizer.step(loss).item() == 3.0
    assert model.weight.tolist() == [[0.5, 1.5]]
    optimizer.zero_grad(set_to_none=False)
    assert model.weight.grad is not None
    assert model.weight.grad.tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: nn.optim.SGD(p, 0.1, 0.9, nesterov=True, dampening=0.1), "no dampening"),
        (lambda p: nn.optim.Adam(p, 0.1, 0.9), "Adam: betas must be two numbers, not 0.9"),
        (lambda p: nn.optim.Adam(p, b1=0.9), "Adam: unknown options: b1"),
        (lambda p: nn.optim.Adam(p, differentiable=True), "differentiable=True is not supported"),
        (lambda p: nn.optim.Adadelta(p, rho=1.5), "Adadelta: rho must be at least 0"),
        (lambda p: nn.optim.Rprop(p, etas=(1.5, 1.2)), "Rprop: etas must be a factor below 1"),
        (lambda p: nn.optim.RAdam(p, betas=(0.9, 1.0)), "RAdam: b2 must be at least 0 and below 1"),
        (lambda p: nn.optim.Adafactor(p, d=0.0), "Adafactor: d must be above 0"),
    ],
)
def test_options_that_do_not_fit(make: Callable[[list[Tensor]], Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make([Tensor.ones(2)])


@pytest.mark.parametrize(
    ("name", "options"),
    [("ASGD", {"lr": 0.02, "lambd": 0.5, "t0": 2}), ("Rprop", {"lr": 0.05})],
)
def test_a_rate_that_a_schedule_moves_counts_when_pytorch_looks_at_it(
    name: str, options: dict[str, float]
) -> None:
    """ASGD's step leaves the next one its rate, and Rprop's first step looks at the rate then."""
    theirs = pytest.importorskip("torch")
    ours = importlib.import_module("tilegrad.torch")
    found = []
    for torch in (theirs, ours):
        weight = torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))

        def made(torch: Any = torch, weight: Any = weight) -> tuple[Any, Any]:
            optimizer = getattr(torch.optim, name)([weight], **options)
            return optimizer, torch.optim.lr_scheduler.LinearLR(optimizer, 0.2, total_iters=3)

        def steps(optimizer: Any, schedule: Any, weight: Any = weight) -> list[Any]:
            values = []
            for _ in range(3):
                optimizer.zero_grad()
                ((weight - 1) ** 4).sum().backward()
                optimizer.step()
                schedule.step()
                values.append(weight.detach().tolist())
            return values

        optimizer, schedule = made()
        values = steps(optimizer, schedule)
        states = optimizer.state_dict(), schedule.state_dict()
        optimizer, schedule = made()
        optimizer.load_state_dict(states[0])
        schedule.load_state_dict(states[1])
        found.append(values + steps(optimizer, schedule))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)


def decayed(late: dict[str, float] | None = None) -> Array:
    """A weight after three steps of Adagrad; before the second its options become `late`."""
    weight = Tensor([[1.0, -2.0, 0.5]], requires_grad=True)
    optimizer = nn.optim.Adagrad([weight], lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        ((weight - 1) * (weight - 1)).sum().backward()
        if late and step == 1:
            optimizer.param_groups[0].update(late)
        optimizer.step()
    return np.asarray(weight.numpy())


def test_an_option_that_counts_steps_comes_before_the_first() -> None:
    expected = decayed()
    with pytest.raises(ConfigError, match=r"counts steps(.|\n)*remedy: +give it when"):
        decayed({"lr_decay": 0.1})
    np.testing.assert_array_equal(decayed(), expected)
