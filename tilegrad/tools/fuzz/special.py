# ruff: noqa: E501 - tables: one operation a line
"""Cases of another form than programs: long reductions, and random numbers under `jit`."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilegrad.tools.fuzz.modes import MODES

__all__ = ["Draws", "Long", "drawn_draws", "drawn_long"]

# Functions of x along an axis: a line of tilegrad, the same in NumPy, and the value that the error
# is a share of.
_LONG = {
    "sum": ("t.sum({axis})", "x.sum({axis})", "abs(x).sum({axis})"),
    "mean": ("t.mean({axis})", "x.mean({axis})", "abs(x).mean({axis})"),
    "var": ("t.var({axis})", "x.var({axis}, ddof=1)", "x.var({axis}) + 1e-6 * (x * x).mean({axis})"),
    "norm": ("t.square().sum({axis}).sqrt()", "(x * x).sum({axis}) ** 0.5", "(x * x).sum({axis}) ** 0.5"),
    "max": ("t.max({axis})", "x.max({axis})", "0 * x.max({axis})"),
    "logsumexp": ("t.logsumexp({axis})", "np.log(np.exp(x).sum({axis}))", "np.log(np.exp(x).sum({axis}))"),
    "cumsum": ("t.cumsum({axis})", "x.cumsum({axis})", "abs(x).cumsum({axis})"),
    "elementwise": ("t * 2 + 1", "x * 2 + 1", "abs(x) * 2 + 1"),
    "gradient of a broadcast": (
        "(lambda w: (w * t).sum().gradient(w)[0])(Tensor.zeros(1, 1))",
        "x.sum().reshape(1, 1)", "abs(x).sum().reshape(1, 1)",
    ),
}  # fmt: skip
_DATA = {
    "uniform": "np.random.default_rng({seed}).random({shape}, 'f4')",
    "normal": "np.random.default_rng({seed}).standard_normal({shape}, 'f4')",
    "tenths": "np.full({shape}, 0.1, 'f4')",
    "far from 0": "np.random.default_rng({seed}).random({shape}, 'f4') + 100",
}
_DRAWS = (
    "Tensor.rand(5)", "Tensor.randn(3, 4)", "Tensor.randint(7, low=-3, high=50)",
    "Tensor.rand(70) * v", "Tensor.uniform(4, low=-1, high=3)", "Tensor.randperm(9)",
    "Tensor.ones(40).dropout(0.5) + v", "(Tensor.rand(6) < v * 0 + 0.5)",
)  # fmt: skip


@dataclass(frozen=True)
class Long:
    """A reduction of many elements, whose error may grow with the logarithm of their number."""

    op: str
    data: str
    shape: tuple[int, int]
    axis: int
    seed: int

    def lines(self, mode: str) -> list[str]:
        """A file that fails."""
        switches = MODES[mode].switches
        lines = [f"import os; os.environ.update({switches})"] if switches else []
        ours, numpys, size = [text.format(axis=self.axis) for text in _LONG[self.op]]
        data = _DATA[self.data].format(seed=self.seed, shape=self.shape)
        made = f"lambda t: {ours}"
        if MODES[mode].is_captured:
            made = f"jit({made})"
        return [
            *lines,
            "import numpy as np; from tilegrad import Tensor, jit",
            f"x = ({data}).astype('f8')",
            f"f = {made}",
            "for _ in range(3): found = f(Tensor(x.astype('f4'))).numpy()",
            f"allowed = 1e-7 * (8 + 2 * np.log2({self.shape[self.axis]})) * ({size})",
            f"assert (abs(found - ({numpys})) <= allowed).all(), (found, {numpys})",
        ]

    def smaller(self) -> Iterator[Long]:
        """Simpler cases."""
        for other in (1, 2):
            if self.shape[1 - self.axis] > other:
                sizes = [other, other]
                sizes[self.axis] = self.shape[self.axis]
                yield replace(self, shape=(sizes[0], sizes[1]))
        for divisor in (64, 8, 2):
            count = self.shape[self.axis] // divisor
            if count:
                sizes = list(self.shape)
                sizes[self.axis] = count
                yield replace(self, shape=(sizes[0], sizes[1]))
        if self.data != "tenths":
            yield replace(self, data="tenths")

    def kind(self) -> str:
        """Failures of one kind are reported once."""
        return f"long {self.op} of {self.data} along {self.axis}"


@dataclass(frozen=True)
class Draws:
    """Random numbers of a captured function: those that the function draws without `jit`."""

    draws: tuple[str, ...]
    seed: int

    def lines(self, mode: str) -> list[str]:
        """A file that fails. Other instructions look at the numbers without `jit`."""
        switches = MODES[mode].switches
        lines = [f"import os; os.environ.update({switches})"] if switches else []
        return [
            *lines,
            "import numpy as np; from tilegrad import Tensor, jit",
            "def f(v):",
            f"    return [each * 1 for each in ({', '.join(self.draws)}, Tensor.rand(64))] + [v * 3]",
            "def run(f): return [[r.numpy() for r in f(Tensor([1.0 + k]))] for k in range(4)]",
            f"Tensor.manual_seed({self.seed}); wanted = run(f)",
            f"Tensor.manual_seed({self.seed}); found = run(jit(f))",
            "for a, b in zip(found, wanted):",
            "    for c, d in zip(a, b): np.testing.assert_array_equal(c, d)",
            # Six coins may fall alike twice, and 64 numbers not.
            "assert all((a[-2] != b[-2]).any() for a, b in zip(found, found[1:]))",
        ]

    def smaller(self) -> Iterator[Draws]:
        """Simpler cases."""
        for number in range(len(self.draws)):
            if len(self.draws) > 1:
                yield replace(self, draws=self.draws[:number] + self.draws[number + 1 :])

    def kind(self) -> str:
        """Failures of one kind are reported once."""
        return f"draws {self.draws}"


def drawn_long(chance: random.Random) -> Long:
    """A long case."""
    axis = chance.randrange(2)
    sizes = [chance.choice((1, 2, 3, 5)), chance.choice((1, 2, 3, 5))]
    sizes[axis] = chance.choice((100_000, 131_072, 250_001, 1_000_000))
    return Long(
        chance.choice(list(_LONG)), chance.choice(list(_DATA)), (sizes[0], sizes[1]), axis,
        chance.randrange(100),
    )  # fmt: skip


def drawn_draws(chance: random.Random) -> Draws:
    """A case of random numbers."""
    return Draws(tuple(chance.sample(_DRAWS, chance.randrange(1, 5))), chance.randrange(1000))
