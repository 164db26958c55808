"""What a replay of a captured function costs beside its kernels.

    python bench/jit.py

The kernels do next to nothing. "alone" is the native call for the same batch, so that a replay less
that is what checks, inputs and results cost; rows that say "per" are differences between two sizes.
What is subtracted takes turns with what it is subtracted from. Each figure is a median of samples,
with quartiles and the least one beside it; `bench/results/jit.json` keeps the last run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from common import Taker, in_turns, measure_and_keep, nanoseconds

from tilegrad import Tensor, jit, nn
from tilegrad.base.config import config
from tilegrad.nn.state import get_parameters

# Nanoseconds of one call, round by round.
Samples = list[float]


def sampled(count: int, calls: int = 100, **works: Callable[[], object]) -> list[Samples]:
    """A call of each, in turns: `count` samples of `calls` calls."""
    takers: dict[str, Taker] = {
        name: nanoseconds(work, calls=calls) for name, work in works.items()
    }
    return list(in_turns(takers, count).values())


def less(one: Samples, other: Samples, *, by: float = 1) -> Samples:
    return [(a - b) / by for a, b in zip(one, other, strict=True)]


def ready(function: Any, *args: Any) -> Any:
    """The captured function, replayed a few times."""
    for _ in range(5):
        function(*args)
    return function


def alone(function: Any) -> Callable[[], object]:
    """The kernels of a captured function, called as a replay calls them, and nothing else."""
    program = function._entries[0][1].program
    switches = config.current()
    return lambda: program.run(switches)


def vector(value: float = 1.0, size: int = 16) -> Tensor:
    return Tensor([value] * size).realize()


def chain(length: int) -> Any:
    """A function of `length` kernels."""

    def run(x: Tensor) -> Tensor:
        for _ in range(length):
            x = (x + 1).realize()
        return x

    return ready(jit(run), vector())


def inputs(figures: dict[str, Samples], count: int) -> None:
    x, base, others = vector(), vector(size=64), [vector(n) for n in range(100)]
    one = ready(jit(lambda x: x + 1), x)
    turn = iter(others * (count + 1))
    held: list[Tensor] = []

    def keep_results() -> None:
        held.append(one(x))
        if len(held) > 50:
            held.clear()

    import numpy as np

    array = np.ones(16, np.float32)
    kernel, replay, other, kept, copied, made = sampled(
        count,
        kernel=alone(one),
        replay=lambda: one(x),
        other=lambda: one(next(turn)),
        kept=keep_results,
        copied=lambda: one(Tensor(array)),
        made=lambda: Tensor(array),
    )
    figures["one kernel, alone"] = kernel
    figures["one kernel, replay"] = replay
    figures["one kernel, replay without its kernel"] = less(replay, kernel)
    figures["another input at each call"] = other
    figures["results that are kept"] = kept
    figures["an array to a tensor, and replay"] = copied
    figures["an array to a tensor"] = made
    (window,) = sampled(count, 20, window=lambda: one(base[2:18]))
    figures["a window of a tensor (one more kernel)"] = window


def kernels(figures: dict[str, Samples], count: int) -> None:
    x = vector()
    few, many = chain(10), chain(110)
    replays = sampled(
        count, few=lambda: few(x), alone=alone(few), many=lambda: many(x), others=alone(many)
    )
    short, long = less(*replays[:2]), less(*replays[2:])
    figures["10 kernels, replay without its kernels"] = short
    figures["110 kernels, replay without its kernels"] = long
    figures["per kernel"] = less(long, short, by=100)


def guards(figures: dict[str, Samples], count: int) -> None:
    """Ten numbers of each of many objects."""
    x = vector()
    names = " + ".join(f"part.value{n}" for n in range(9))

    def reader(numbers: int) -> Any:
        parts = [Part() for _ in range(numbers // 10)]
        text = f"lambda x: x + sum([{names} for part in parts])"
        return ready(jit(eval(text, {"parts": parts})), x)

    few, many = reader(10), reader(1010)
    least, most = sampled(count, few=lambda: few(x), many=lambda: many(x))
    figures["per guard"] = less(most, least, by=1000)


class Part:
    def __init__(self) -> None:
        for n in range(9):
            setattr(self, f"value{n}", float(n))


def state(figures: dict[str, Samples], count: int) -> None:
    x = vector()

    def writer(number: int) -> Any:
        held = [vector() for _ in range(number)]

        def run(x: Tensor) -> Tensor:
            written = [each.assign(each + x) for each in held]
            Tensor.realize(*written)
            return x + 1

        return ready(jit(run), x)

    few, many = writer(10), writer(110)
    replays = sampled(
        count, few=lambda: few(x), alone=alone(few), many=lambda: many(x), others=alone(many)
    )
    figures["per tensor assigned"] = less(less(*replays[2:]), less(*replays[:2]), by=100)


class Net:
    def __init__(self) -> None:
        self.first, self.second = nn.Linear(64, 128), nn.Linear(128, 10)
        self.norm = nn.BatchNorm(128)

    def __call__(self, x: Tensor) -> Tensor:
        return self.second(self.norm(self.first(x)).relu().dropout(0.2))


def training(figures: dict[str, Samples], count: int) -> None:
    """Steps on the digits' shapes: a row without capture, with it, and the kernels alone."""
    images, labels = Tensor.rand(1000, 64).realize(), Tensor.randint(1000, high=10).realize()
    model = Net()
    optimizer = nn.optim.Adam(get_parameters(model))

    def step() -> Tensor:
        optimizer.zero_grad()
        picked = Tensor.randint(64, high=1000)
        loss = model(images[picked]).sparse_categorical_crossentropy(labels[picked]).backward()
        optimizer.step()
        return loss

    for _ in range(3):
        step()
    (figures["training step, plain"],) = sampled(-(-count // 3), 5, plain=step)
    captured = jit(step)
    captured()
    (figures["training step, capture"],) = sampled(1, 1, capture=captured)
    ready(captured)
    replay, kernel = sampled(count, replay=captured, kernel=alone(captured))
    figures["training step, replay"] = replay
    figures["training step, kernels alone"] = kernel


def measure(count: int) -> dict[str, Samples]:
    figures: dict[str, Samples] = {}
    for subject in (inputs, kernels, guards, state, training):
        subject(figures, count)
    return figures


if __name__ == "__main__":
    measure_and_keep("jit", __doc__, measure, 30)
