"""Schedules against their formulas in NumPy, and inside a captured step; clipping and averages."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilegrad import Tensor, TinyJit, nn
from tilegrad.base.errors import CaptureError, ConfigError, DataError

S = nn.schedulers


def one_cycle(t: int, peak: float = 0.5, total: int = 12) -> float:
    up, low, last = 0.3 * total - 1, peak / 25, peak / 25 / 1e4
    first, end, begin, stop = (low, peak, 0.0, up) if t <= up else (peak, last, up, total - 1)
    return end + (first - end) / 2 * (1 + math.cos(math.pi * (t - begin) / (stop - begin)))


def restarts(t: int) -> float:
    start, length = 0, 2
    while t - start >= length:
        start, length = start + length, length * 2
    return 0.1 + 0.4 * (1 + math.cos(math.pi * (t - start) / length)) / 2


def cyclic(t: int) -> float:
    cycle, place = divmod(t, 5)
    height = place / 2 if place <= 2 else (5 - place) / 3
    return 0.1 + 0.4 * height * 0.5**cycle


def cosine(t: float) -> float:
    return (1 + math.cos(math.pi * t)) / 2


CASES: list[tuple[Callable[[Any], Any], Callable[[int], float]]] = [
    (lambda o: S.StepLR(o, 3, 0.5), lambda t: 0.5 * 0.5 ** (t // 3)),
    (lambda o: S.MultiStepLR(o, [5, 2], 0.5), lambda t: 0.5 * 0.5 ** ((t >= 2) + (t >= 5))),
    (lambda o: S.ConstantLR(o, 0.5, 4), lambda t: 0.25 if t < 4 else 0.5),
    (lambda o: S.LinearLR(o, 0.2, 1.0, 4), lambda t: 0.5 * (0.2 + 0.8 * min(t, 4) / 4)),
    (lambda o: S.ExponentialLR(o, 0.9), lambda t: 0.5 * 0.9**t),
    (lambda o: S.PolynomialLR(o, 8, 2.0), lambda t: 0.5 * (1 - min(t, 8) / 8) ** 2),
    (lambda o: S.CosineAnnealingLR(o, 6, 0.1), lambda t: 0.1 + 0.4 * cosine(t / 6)),
    (lambda o: S.CosineAnnealingWarmRestarts(o, 2, 2, 0.1), restarts),
    (
        lambda o: S.OneCycleLR(o, 0.5, epochs=3, steps_per_epoch=4),
        one_cycle,
    ),
    (lambda o: S.CyclicLR(o, 0.1, 0.5, 2, 3, "triangular2"), cyclic),
    (
        lambda o: S.WarmupCosineLR(o, 3, 9),
        lambda t: 0.5 * t / 3 if t < 3 else 0.5 * cosine(min((t - 3) / 6, 1)),
    ),
    (
        lambda o: S.SequentialLR(o, [S.LinearLR(o, 0.5, 1.0, 3), S.ExponentialLR(o, 0.5)], [3]),
        lambda t: 0.5 * (0.5 + 0.5 * t / 3) if t < 3 else 0.5 * 0.5 ** (t - 3),
    ),
    (lambda o: S.LambdaLR(o, lambda t: 1 / (1 + t)), lambda t: 0.5 / (1 + t)),
    (lambda o: S.MultiplicativeLR(o, lambda t: 0.5), lambda t: 0.5 * 0.5**t),
]


@pytest.mark.parametrize(("make", "rate"), CASES)
def test_rates(make: Callable[[Any], Any], rate: Callable[[int], float]) -> None:
    optimizer = nn.optim.SGD([Tensor.ones(2)], lr=0.5)
    schedule = make(optimizer)
    found = [optimizer.lr.item()]
    for _ in range(11):
        schedule.step()
        found.append(optimizer.lr.item())
    np.testing.assert_allclose(found, [rate(t) for t in range(12)], rtol=2e-6, atol=2e-7)
    assert schedule.last_epoch == 11
    assert schedule.get_last_lr() == [found[-1]]


def test_a_schedule_goes_on_inside_a_captured_step() -> None:
    """The count is a tensor: a replay counts too."""

    def train(wrap: Any) -> list[float]:
        p = Tensor.zeros(2).contiguous().realize()
        optimizer = nn.optim.SGD([p], lr=1.0)
        schedule = S.ExponentialLR(optimizer, 0.5)

        @Tensor.train()
        def step() -> Tensor:
            optimizer.zero_grad()
            p.sum().backward()
            optimizer.step()
            schedule.step()
            return (p + 0).realize()

        run = wrap(step)
        return [float(run().numpy()[0]) for _ in range(6)]

    expected = [-(2 - 0.5**t) for t in range(6)]
    assert train(lambda step: step) == expected
    assert train(TinyJit) == expected


def test_a_python_schedule_stands_outside_of_a_capture() -> None:
    p = Tensor.zeros(2).contiguous().realize()
    optimizer = nn.optim.SGD([p], lr=1.0)
    schedule = S.LambdaLR(optimizer, lambda t: 0.5**t)

    @TinyJit
    @Tensor.train()
    def step() -> Tensor:
        optimizer.zero_grad()
        p.sum().backward()
        optimizer.step()
        return (p + 0).realize()

    found = []
    for _ in range(5):
        found.append(float(step().numpy()[0]))
        schedule.step()
    assert found == [-(2 - 0.5**t) for t in range(5)]

    @TinyJit
    def wrong() -> Tensor:
        schedule.step()
        return (p + 0).realize()

    with pytest.raises(CaptureError, match=r"LambdaLR\.step: a Python function"):
        wrong()


@pytest.mark.parametrize("mode", ["min", "max"])
def test_reduce_on_plateau(mode: str) -> None:
    """Against the rule in Python, with a cooldown and a least rate."""
    optimizer = nn.optim.SGD([Tensor.ones(2)], lr=1.0)
    schedule = S.ReduceLROnPlateau(
        optimizer, mode, factor=0.5, patience=1, threshold=0.1, cooldown=2, min_lr=0.2
    )
    sign = 1.0 if mode == "min" else -1.0
    rate, best, bad, cooling = 1.0, math.inf, 0, 0
    for metric in [5, 4, 3.9, 3.8, 3.8, 3.8, 3.8, 3.8, 1, 1, 1, 1, 1, 1, 1, 1]:
        value = 10 - metric if mode == "max" else metric
        schedule.step(float(value))
        now = value * sign
        limit = best * (0.9 if best > 0 else 1.1) if math.isfinite(best) else best
        best, bad = (now, 0) if now < limit else (best, bad + 1)
        if cooling:
            cooling, bad = cooling - 1, 0
        if bad > 1:
            rate, bad, cooling = max(rate * 0.5, 0.2), 0, 2
        assert optimizer.lr.item() == pytest.approx(rate)
    assert rate < 0.5


def test_schedules_that_make_no_sense() -> None:
    optimizer = nn.optim.SGD([Tensor.ones(2)], lr=1.0)
    with pytest.raises(ConfigError, match="StepLR: step_size must be at least 1, not 0"):
        S.StepLR(optimizer, 0)
    with pytest.raises(ConfigError, match="SequentialLR: 1 schedulers need 0 milestones, not 1"):
        S.SequentialLR(optimizer, [S.StepLR(optimizer, 1)], [3])
    with pytest.raises(ConfigError, match="is no optimizer"):
        S.StepLR(Tensor.ones(1), 1)  # type: ignore[arg-type]


def test_gradients_are_clipped_by_their_norm() -> None:
    a, b = Tensor([3.0, 0.0]), Tensor([[4.0]])
    optimizer = nn.optim.SGD([a, b], lr=1.0)
    (a.square().sum() / 2 + b.square().sum() / 2).backward()
    norm = nn.utils.clip_grad_norm_([a, b], 1.0)
    with Tensor.train():
        optimizer.step()
    np.testing.assert_allclose(norm.item(), 5.0)
    np.testing.assert_allclose(a.numpy(), [2.4, 0.0], rtol=1e-5)
    np.testing.assert_allclose(b.numpy(), [[3.2]], rtol=1e-5)
    optimizer.zero_grad()
    a.sum().backward()
    assert nn.utils.clip_grad_norm_([a, b], 9.0, math.inf).item() == 1.0
    np.testing.assert_array_equal(a.grad.numpy(), [1.0, 1.0])  # type: ignore[union-attr]


def test_an_average_of_the_model() -> None:
    layer = nn.Linear(1, 1, bias=False)
    layer.weight.assign(Tensor([[1.0]])).realize()
    ema = nn.utils.EMA(layer, 0.5)
    for value in (3.0, 5.0):
        layer.weight.assign(Tensor([[value]])).realize()
        ema.update()
    assert ema.average["weight"].item() == 3.5
    with ema.applied():
        assert layer.weight.item() == 3.5
    assert layer.weight.item() == 5.0


def test_schedulers_at_once() -> None:
    """base times the factors of all."""
    optimizer = nn.optim.SGD([Tensor.ones(1)], lr=2.0)
    schedule = nn.schedulers.ChainedScheduler(
        [
            nn.schedulers.ConstantLR(optimizer, factor=0.5, total_iters=2),
            nn.schedulers.ExponentialLR(optimizer, gamma=0.5),
            nn.schedulers.StepLR(optimizer, step_size=3, gamma=0.1),
        ]
    )
    rates = [schedule.get_last_lr()[0]]
    for _ in range(4):
        schedule.step()
        rates.append(schedule.get_last_lr()[0])
    wanted = [2 * (0.5 if t < 2 else 1) * 0.5**t * 0.1 ** (t // 3) for t in range(5)]
    np.testing.assert_allclose(rates, wanted, rtol=1e-6)
    other = nn.optim.SGD([Tensor.ones(1)], lr=1.0)
    for schedulers, message in (
        ([], "there are no schedulers"),
        (
            [*schedule.schedulers, nn.schedulers.ConstantLR(other)],
            "schedulers of several optimizers",
        ),
        (
            [nn.schedulers.CosineAnnealingWarmRestarts(other, 2)],
            "CosineAnnealingWarmRestarts keeps state of its own",
        ),
    ):
        with pytest.raises(ConfigError, match=f"ChainedScheduler: {message}"):
            nn.schedulers.ChainedScheduler(schedulers)


@pytest.mark.parametrize(
    "make",
    [
        lambda opt: nn.schedulers.ExponentialLR(opt, 0.5),
        lambda opt: nn.schedulers.CosineAnnealingWarmRestarts(opt, 2, 2),
        lambda opt: nn.schedulers.LambdaLR(opt, lambda t: 1 / (1 + t)),
        lambda opt: nn.schedulers.MultiplicativeLR(opt, lambda t: 1 - 0.1 * t),
    ],
)
def test_a_scheduler_goes_on_from_its_state(make: Any) -> None:
    def rates(schedule: Any, steps: int) -> list[float]:
        return [(schedule.step(), schedule.get_last_lr()[0])[1] for _ in range(steps)]

    whole = rates(make(nn.optim.SGD([Tensor.ones(1)], lr=1.0)), 6)
    first = make(nn.optim.SGD([Tensor.ones(1)], lr=1.0))
    rates(first, 3)
    second = make(nn.optim.SGD([Tensor.ones(1)], lr=0.25))
    second.load_state_dict(first.state_dict())
    np.testing.assert_allclose(second.get_last_lr(), whole[2:3])
    np.testing.assert_allclose(rates(second, 3), whole[3:])
    with pytest.raises(DataError, match="0 rates for 1 groups"):
        second.load_state_dict({})


def test_a_plateau_goes_on_from_its_state() -> None:
    optimizer = nn.optim.SGD([Tensor.ones(1)], lr=1.0)
    first = nn.schedulers.ReduceLROnPlateau(optimizer, patience=1, factor=0.5)
    first.step(1.0)
    first.step(2.0)
    second = nn.schedulers.ReduceLROnPlateau(optimizer, patience=1, factor=0.5)
    second.load_state_dict(first.state_dict())
    second.step(2.0)
    assert optimizer.lr.item() == 0.5
    with pytest.raises(DataError, match=r"ReduceLROnPlateau\.load_state_dict: missing: best"):
        second.load_state_dict({})


def _chained(name: str, t: int, rate: float) -> float:
    """PyTorch's rules for step t of schedulers that go on from the rate there is."""
    if name == "stairs":
        return rate * 0.5 if t % 3 == 0 else rate
    if name == "milestones":
        return rate * 0.25 ** (t in (2, 5))
    if name == "constant":
        return rate / 0.5 if t == 4 else rate
    if name == "linear":
        return rate * (0.2 + 0.2 * t) / (0.2 + 0.2 * (t - 1)) if t <= 4 else rate
    if name == "exponential":
        return rate * 0.9
    if name == "factors":
        return rate / t
    if name == "polynomial":
        return rate * ((8 - t) / (9 - t)) ** 2 if t <= 8 else rate
    # From the least rate of a cosine no factor leads away.
    now, before = cosine(t / 6), cosine((t - 1) / 6)
    return rate + 0.9 * now if (t - 1) % 12 == 6 else 0.1 + (rate - 0.1) * now / before


_CHAINED: dict[str, tuple[Callable[[Any], Any], float]] = {
    "stairs": (lambda o: S.StepLR(o, 3, 0.5), 1.0),
    "milestones": (lambda o: S.MultiStepLR(o, [2, 5], 0.25), 1.0),
    "constant": (lambda o: S.ConstantLR(o, 0.5, 4), 0.5),
    "linear": (lambda o: S.LinearLR(o, 0.2, 1.0, 4), 0.2),
    "exponential": (lambda o: S.ExponentialLR(o, 0.9), 1.0),
    "factors": (lambda o: S.MultiplicativeLR(o, lambda t: 1 / t), 1.0),
    "polynomial": (lambda o: S.PolynomialLR(o, 8, 2.0), 1.0),
    "cosine": (lambda o: S.CosineAnnealingLR(o, 6, 0.1), 1.0),
}


@pytest.mark.parametrize("first", _CHAINED)
@pytest.mark.parametrize("second", _CHAINED)
def test_schedulers_of_one_optimizer_all_have_their_effect(first: str, second: str) -> None:
    optimizer = nn.optim.SGD([Tensor.ones(2)], lr=1.0)
    names = [first, second] if first != second else [first]
    made = [_CHAINED[name][0](optimizer) for name in names]
    rate = math.prod(_CHAINED[name][1] for name in names)
    assert optimizer.lr.item() == pytest.approx(rate)
    for t in range(1, 11):
        for each, name in zip(made, names, strict=True):
            each.step()
            rate = _chained(name, t, rate)
        if t == 7:
            # The program has a word, too.
            optimizer.param_groups[0]["lr"] = rate = 0.3 * rate
        assert optimizer.lr.item() == pytest.approx(rate, rel=1e-4, abs=1e-7), t


def test_schedulers_chained_in_a_capture_and_in_their_state() -> None:
    optimizer = nn.optim.SGD([Tensor.ones(2)], lr=1.0)
    stairs, decay = S.StepLR(optimizer, 2, 0.5), S.ExponentialLR(optimizer, 0.9)

    @TinyJit
    def step() -> Tensor:
        stairs.step()
        decay.step()
        return optimizer.lr.realize()

    for t in range(1, 8):
        step()
        assert optimizer.lr.item() == pytest.approx(0.5 ** (t // 2) * 0.9**t)
    other = nn.optim.SGD([Tensor.ones(2)], lr=1.0)
    mine = S.StepLR(other, 2, 0.5), S.ExponentialLR(other, 0.9)
    for new, old in zip(mine, (stairs, decay), strict=True):
        new.load_state_dict(old.state_dict())
    for t in range(8, 11):
        for new in mine:
            new.step()
        assert other.lr.item() == pytest.approx(0.5 ** (t // 2) * 0.9**t)
