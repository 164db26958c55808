"""What a replay of a captured function costs beside its kernels.

    python bench/jit.py

The kernels do next to nothing. "alone" is the native call for the same batch, so that a replay less
that is what checks, inputs and results cost; rows that say "per" are differences between two sizes.
Each figure is a median of samples, with the least one beside it; `bench/results/jit.json` keeps the
last run.
"""

from __future__ import annotations

import datetime
import json
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilegrad import Tensor, jit, nn
from tilegrad.base.config import config
from tilegrad.compile.llvm import host_target
from tilegrad.nn.state import get_parameters

ROOT = Path(__file__).parent
Figure = tuple[float, float]


def sample(run: Callable[[], object], per: int = 100, *, count: int = 30) -> Figure:
    """Nanoseconds of one call of `run`: median and least of `count` rows of `per` calls."""
    found = []
    for _ in range(count):
        start = time.perf_counter_ns()
        for _ in range(per):
            run()
        found.append((time.perf_counter_ns() - start) / per)
    return statistics.median(found), min(found)


def less(one: Figure, other: Figure, by: float = 1) -> Figure:
    return (one[0] - other[0]) / by, (one[1] - other[1]) / by


def ready(function: Any, *args: Any) -> Any:
    """The captured function, replayed a few times."""
    for _ in range(5):
        function(*args)
    return function


def alone(function: Any) -> Figure:
    """The kernels of a captured function, called as a replay calls them, and nothing else."""
    program = function._entries[0][1].program
    switches = config.current()
    return sample(lambda: program.run(switches))


def vector(value: float = 1.0, size: int = 16) -> Tensor:
    return Tensor([value] * size).realize()


def chain(length: int) -> Any:
    """A function of `length` kernels."""

    def run(x: Tensor) -> Tensor:
        for _ in range(length):
            x = (x + 1).realize()
        return x

    return ready(jit(run), vector())


def inputs(figures: dict[str, Figure]) -> None:
    x, others = vector(), [vector(n) for n in range(100)]
    one = ready(jit(lambda x: x + 1), x)
    kernel = alone(one)
    figures["one kernel, alone"] = kernel
    figures["one kernel, replay"] = sample(lambda: one(x))
    figures["one kernel, replay without its kernel"] = less(figures["one kernel, replay"], kernel)
    turn = iter(others * 1000)
    figures["another input at each call"] = sample(lambda: one(next(turn)))
    held: list[Tensor] = []

    def keep() -> None:
        held.append(one(x))
        if len(held) > 50:
            held.clear()

    figures["results that are kept"] = sample(keep)
    import numpy as np

    array = np.ones(16, np.float32)
    figures["an array to a tensor, and replay"] = sample(lambda: one(Tensor(array)))
    figures["an array to a tensor"] = sample(lambda: Tensor(array))
    figures["a window of a tensor (one more kernel)"] = sample(lambda: one(vector_base[2:18]), 20)


vector_base = vector(size=64)


def kernels(figures: dict[str, Figure]) -> None:
    x = vector()
    sizes = {}
    for length in (10, 110):
        function = chain(length)
        sizes[length] = less(sample(lambda: function(x)), alone(function))  # noqa: B023
        figures[f"{length} kernels, replay without its kernels"] = sizes[length]
    figures["per kernel"] = less(sizes[110], sizes[10], 100)


def guards(figures: dict[str, Figure]) -> None:
    """Ten numbers of each of many objects."""
    x = vector()
    names = " + ".join(f"part.value{n}" for n in range(9))

    def reader(count: int) -> Any:
        parts = [Part() for _ in range(count // 10)]
        text = f"lambda x: x + sum([{names} for part in parts])"
        return ready(jit(eval(text, {"parts": parts})), x)

    few, many = reader(10), reader(1010)
    least, most = sample(lambda: few(x)), sample(lambda: many(x))
    figures["per guard"] = less(most, least, 1000)


class Part:
    def __init__(self) -> None:
        for n in range(9):
            setattr(self, f"value{n}", float(n))


def state(figures: dict[str, Figure]) -> None:
    x = vector()

    def writer(count: int) -> Any:
        held = [vector() for _ in range(count)]

        def run(x: Tensor) -> Tensor:
            written = [each.assign(each + x) for each in held]
            Tensor.realize(*written)
            return x + 1

        return ready(jit(run), x)

    few, many = writer(10), writer(110)
    least = less(sample(lambda: few(x)), alone(few))
    most = less(sample(lambda: many(x)), alone(many))
    figures["per tensor assigned"] = less(most, least, 100)


class Net:
    def __init__(self) -> None:
        self.first, self.second = nn.Linear(64, 128), nn.Linear(128, 10)
        self.norm = nn.BatchNorm(128)

    def __call__(self, x: Tensor) -> Tensor:
        return self.second(self.norm(self.first(x)).relu().dropout(0.2))


def training(figures: dict[str, Figure]) -> None:
    """Steps on the digits' shapes: a row without capture, with it, and the kernels alone."""
    images, labels = Tensor.rand(1000, 64).realize(), Tensor.randint(1000, high=10).realize()
    model = Net()
    optimizer = nn.optim.Adam(get_parameters(model))

    @Tensor.train()
    def step() -> Tensor:
        optimizer.zero_grad()
        picked = Tensor.randint(64, high=1000)
        loss = model(images[picked]).sparse_categorical_crossentropy(labels[picked]).backward()
        optimizer.step()
        return loss

    for _ in range(3):
        step()
    figures["training step, plain"] = sample(step, 5, count=10)
    captured = jit(step)
    captured()
    figures["training step, capture"] = sample(captured, 1, count=1)
    ready(captured)
    figures["training step, replay"] = sample(captured)
    figures["training step, kernels alone"] = alone(captured)


def measure() -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    for subject in (inputs, kernels, guards, state, training):
        subject(figures)
    return figures


def main() -> None:
    figures = measure()
    for name, (median, least) in figures.items():
        print(f"{name:42} {median:14,.1f} ns   least {least:14,.1f}")
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    record = {
        "machine": f"{host_target()[1]}, {platform.machine()}, {platform.system()}",
        "commit": commit,
        "date": datetime.date.today().isoformat(),
        "figures": {
            name: {"median_ns": round(m, 1), "least_ns": round(b, 1)}
            for name, (m, b) in figures.items()
        },
    }
    (ROOT / "results").mkdir(exist_ok=True)
    (ROOT / "results" / "jit.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
