"""Random ops: what each makes of the words of the stream, after the same formulas in NumPy.

The stream itself is threefry-2x32 with 20 rounds, written here once more. So every number that a
seed gives is compared, in every dtype; that they are distributed as they should be is tested in
tests/tensor/test_random_distributions.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tests.conformance.case import Case
from tests.conformance.values import FLOATS, INTEGERS, check
from tilegrad import Tensor
from tilegrad.base.dtype import DType, dtypes
from tilegrad.tensor.indexing.generator import generator

__all__ = ["draw_cases"]

WIDE = (dtypes.float32, dtypes.float64)
SEED = 1 << 63 | 12345
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


class Stream:
    """The words of a seed from a place on."""

    def __init__(self, seed: int, place: int):
        self.keys = [seed & 0xFFFFFFFF, seed >> 32]
        self.keys.append(self.keys[0] ^ self.keys[1] ^ 0x1BD11BDA)
        self.place = place

    def words(self, *shape: int) -> np.ndarray:
        count = math.prod(shape)
        place = np.arange(self.place, self.place + count, dtype=np.uint64)
        self.place += count
        block = place // np.uint64(2)
        keys = [np.uint32(key) for key in self.keys]
        with np.errstate(over="ignore"):
            x0 = (block & np.uint64(0xFFFFFFFF)).astype(np.uint32) + keys[0]
            x1 = (block >> np.uint64(32)).astype(np.uint32) + keys[1]
            for step in range(5):
                for bits in _ROTATIONS[step % 2]:
                    x0 = x0 + x1
                    x1 = (x1 << np.uint32(bits) | x1 >> np.uint32(32 - bits)) ^ x0
                x0 = x0 + keys[(step + 1) % 3]
                x1 = x1 + keys[(step + 2) % 3] + np.uint32(step + 1)
        return np.where(place % np.uint64(2) == 0, x0, x1).reshape(shape)

    def uniform(self, dtype: DType, *shape: int) -> np.ndarray:
        """0 <= x < 1, with as many bits as `dtype` holds."""
        if dtype is dtypes.float64:
            high, low = self.words(2, *shape).astype(np.float64) // np.reshape(
                [32.0, 64.0], (2, *[1] * len(shape))
            )
            return np.asarray(high * 2.0**-27 + low * 2.0**-53)
        bits = {dtypes.float32: 24, dtypes.half: 11, dtypes.bfloat16: 8}[dtype]
        return (self.words(*shape) >> np.uint32(32 - bits)) * 2.0**-bits

    def normal(self, dtype: DType, *shape: int) -> np.ndarray:
        """Box and Muller's, of numbers in at least float32."""
        radius, angle = self.uniform(_wide(dtype), 2, *shape)
        return np.sqrt(-2 * np.log1p(-radius)) * np.cos(2 * np.pi * angle)

    def below(self, count: int, *shape: int) -> np.ndarray:
        """Integers from 0 to count - 1: the upper word of a product."""
        return (self.words(*shape).astype(np.uint64) * np.uint64(count) >> np.uint64(32)).astype(
            np.float64
        )

    def order(self, count: int) -> np.ndarray:
        high, low = self.words(2, count).astype(np.uint64)
        return np.argsort(high << np.uint64(32) | low, kind="stable")

    def gamma(self, dtype: DType, alpha: float, *shape: int) -> np.ndarray:
        """Marsaglia and Tsang's, the first good one of ten."""
        d = (alpha + 1 if alpha < 1 else alpha) - 1 / 3
        normal = self.normal(dtype, 10, *shape)
        level = 1 - self.uniform(_wide(dtype), 10, *shape)
        cube = (1 + normal / math.sqrt(9 * d)) ** 3
        with np.errstate(invalid="ignore"):
            right = normal * normal / 2 + d - d * cube + d * np.log(cube)
        is_good = (cube > 0) & (np.log(level) < right)
        first = np.argmax(is_good, 0)
        made = d * np.take_along_axis(cube, first[None], 0)[0]
        shrunk = np.log1p(-self.uniform(_wide(dtype), *shape))
        return made * np.exp(shrunk / alpha) if alpha < 1 else made


def _wide(dtype: DType) -> DType:
    return dtypes.float64 if dtype is dtypes.float64 else dtypes.float32


@dataclass(frozen=True)
class Draw:
    """An op, and what it makes of a stream; `ulp` is how far a float may be off, in units of the
    last place or, with `of_one`, of a number near 1. `place` is where in the stream it begins.
    """

    name: str
    pattern: str
    ours: Callable[[DType], Tensor]
    theirs: Callable[[Stream, DType], Any]
    dtypes: tuple[DType, ...]
    ulp: float = 0.0
    place: int = 0
    of_one: bool = False


def run(draw: Draw, dtype: DType) -> None:
    Tensor.manual_seed(SEED)
    generator.drawn = draw.place
    stream = Stream(SEED, draw.place)
    found, expected = draw.ours(dtype), draw.theirs(stream, dtype)
    assert found.dtype is dtype
    values = found.float().numpy() if dtype is dtypes.bfloat16 else found.numpy()
    magnitude = 1.0 if draw.of_one else 0.0
    check(values, expected, dtype, ulp=draw.ulp, magnitude=magnitude)
    assert generator.drawn == stream.place, "another number of words was taken"


SHAPES = {"scalar": (), "row": (7,), "grid": (3, 5, 2), "long": (3000,), "empty": (0, 3)}
P = np.linspace(0.05, 0.95, 24).reshape(4, 6)
WEIGHTS = np.array([[1.0, 0.0, 3.0, 0.5], [2.0, 2.0, 0.25, 1.0]])


def uniform_draws() -> Iterator[Draw]:
    def bits(shape: tuple[int, ...]) -> Any:
        return (
            lambda dtype: Tensor.random_bits(*shape),
            lambda stream, dtype: stream.words(*shape).astype(np.float64),
        )

    for pattern, shape in SHAPES.items():
        yield Draw("random_bits", pattern, *bits(shape), (dtypes.uint32,))
        yield Draw("rand", pattern, lambda dtype, shape=shape: Tensor.rand(*shape, dtype=dtype),
                   lambda stream, dtype, shape=shape: stream.uniform(dtype, *shape),
                   FLOATS)  # fmt: skip
        yield Draw("randint", pattern,
                   lambda dtype, shape=shape: Tensor.randint(*shape, low=3, high=90, dtype=dtype),
                   lambda stream, dtype, shape=shape: 3 + stream.below(87, *shape),
                   INTEGERS)  # fmt: skip
    for pattern, place in (("odd-place", 3), ("far", 2**33 + 1)):
        yield Draw("random_bits", pattern, *bits((9,)), (dtypes.uint32,), place=place)
        yield Draw("rand", pattern, lambda dtype: Tensor.rand(9, dtype=dtype),
                   lambda stream, dtype: stream.uniform(dtype, 9), FLOATS, place=place)  # fmt: skip
    yield Draw("uniform", "between", lambda dtype: Tensor.uniform(40, low=-3, high=5, dtype=dtype),
               lambda stream, dtype: stream.uniform(dtype, 40) * 8 - 3, WIDE, 1,
               of_one=True)  # fmt: skip
    yield Draw("bernoulli", "of each", lambda dtype: Tensor(P).cast(dtype).bernoulli(),
               lambda stream, dtype: stream.uniform(dtypes.float32, 4, 6) < P, WIDE)  # fmt: skip


def shaped_draws() -> Iterator[Draw]:
    for pattern in ("row", "grid", "long"):
        shape = SHAPES[pattern]
        yield Draw("randn", pattern, lambda dtype, shape=shape: Tensor.randn(*shape, dtype=dtype),
                   lambda stream, dtype, shape=shape: stream.normal(dtype, *shape), FLOATS, 14,
                   of_one=True)  # fmt: skip
        yield Draw("exponential", pattern,
                   lambda dtype, shape=shape: Tensor.exponential(*shape, scale=2.0, dtype=dtype),
                   lambda stream, dtype, shape=shape: -2 * np.log1p(-stream.uniform(dtype, *shape)),
                   WIDE, 5)  # fmt: skip
    yield Draw("normal", "moved", lambda dtype: Tensor.normal(50, mean=5, std=0.5, dtype=dtype),
               lambda stream, dtype: stream.normal(dtype, 50) / 2 + 5, WIDE, 4)  # fmt: skip
    limit = math.sqrt(6 / (5 + 12))
    yield Draw("glorot_uniform", "matrix", lambda dtype: Tensor.glorot_uniform(5, 12, dtype=dtype),
               lambda stream, dtype: (2 * stream.uniform(dtype, 5, 12) - 1) * limit, WIDE, 2,
               of_one=True)  # fmt: skip
    he = 1 / math.sqrt((1 + 0.01**2) * 12)
    yield Draw("kaiming_uniform", "matrix",
               lambda dtype: Tensor.kaiming_uniform(5, 12, dtype=dtype),
               lambda stream, dtype: (2 * stream.uniform(dtype, 5, 12) - 1) * math.sqrt(6) * he,
               WIDE, 2, of_one=True)  # fmt: skip
    yield Draw("kaiming_normal", "matrix", lambda dtype: Tensor.kaiming_normal(5, 12, dtype=dtype),
               lambda stream, dtype: stream.normal(dtype, 5, 12) * math.sqrt(2) * he, WIDE, 8,
               of_one=True)  # fmt: skip
    for alpha in (0.3, 1.0, 2.5):
        yield Draw("gamma", f"alpha {alpha:g}",
                   lambda dtype, alpha=alpha: Tensor.gamma(60, alpha=alpha, dtype=dtype),
                   lambda stream, dtype, alpha=alpha: stream.gamma(dtype, alpha, 60), WIDE,
                   60)  # fmt: skip

    def ratio(stream: Stream, dtype: DType) -> Any:
        one, other = stream.gamma(dtype, 2.0, 60), stream.gamma(dtype, 0.7, 60)
        return one / (one + other)

    yield Draw("beta", "both", lambda dtype: Tensor.beta(60, alpha=2.0, beta=0.7, dtype=dtype),
               ratio, WIDE, 60)  # fmt: skip


def poisson(rate: float, count: int) -> Callable[[Stream, DType], Any]:
    """By the table of chances; the words for large rates are drawn all the same."""

    def theirs(stream: Stream, dtype: DType) -> Any:
        level = stream.uniform(dtypes.float64, count)
        stream.place += 2 * 2 * 32 * count
        chances = [math.exp(k * math.log(rate) - rate - math.lgamma(k + 1)) for k in range(56)]
        return (level[:, None] >= np.cumsum(chances)).sum(1)

    return theirs


def chosen(stream: Stream, dtype: DType) -> Any:
    """Places in the running sums of the weights."""
    sums = np.cumsum(WEIGHTS, 1)
    level = stream.uniform(dtypes.float32, 2, 30) * sums[:, -1:]
    return (level[:, :, None] >= sums[:, None]).sum(2)


def ordered(stream: Stream, dtype: DType) -> Any:
    """The first of exponential clocks."""
    clocks = -np.log1p(-stream.uniform(dtypes.float32, 2, 4))
    with np.errstate(divide="ignore"):
        waits = np.where(WEIGHTS > 0, clocks / WEIGHTS, np.inf)
    return np.argsort(waits, 1)[:, :3]


def chosen_draws() -> Iterator[Draw]:
    places = (dtypes.int32,)
    weights = Tensor(WEIGHTS.astype(np.float32))
    for count in (1, 6, 100):
        yield Draw("randperm", f"{count}", lambda dtype, n=count: Tensor.randperm(n, dtype=dtype),
                   lambda stream, dtype, n=count: stream.order(n),
                   (dtypes.int32, dtypes.int64))  # fmt: skip
    yield Draw("permutation", "rows",
               lambda dtype: Tensor.permutation(Tensor.arange(24).reshape(8, 3)),
               lambda stream, dtype: np.arange(24).reshape(8, 3)[stream.order(8)],
               places)  # fmt: skip
    yield Draw("choice", "again", lambda dtype: Tensor.choice(5, 4, 6),
               lambda stream, dtype: stream.below(5, 24).reshape(4, 6), places)  # fmt: skip
    yield Draw("choice", "once", lambda dtype: Tensor.choice(9, 4, replace=False),
               lambda stream, dtype: stream.order(9)[:4], places)  # fmt: skip
    yield Draw("multinomial", "again", lambda dtype: weights.multinomial(30, replacement=True),
               chosen, places)  # fmt: skip
    yield Draw("multinomial", "once", lambda dtype: weights.multinomial(3), ordered, places)
    for rate in (0.5, 4.0):
        yield Draw("poisson", f"rate {rate:g}",
                   lambda dtype, rate=rate: Tensor([rate], dtype=dtype).expand(50).poisson(),
                   poisson(rate, 50), WIDE)  # fmt: skip

    def dropped(stream: Stream, dtype: DType) -> Any:
        return np.where(stream.uniform(dtypes.float32, 40) >= 0.25, 1 / 0.75, 0)

    def drop(dtype: DType) -> Tensor:
        with Tensor.train():
            return Tensor.ones(40, dtype=dtype).dropout(0.25)

    yield Draw("dropout", "quarter", drop, dropped, WIDE, 1)


def draw_cases() -> Iterator[Case]:
    draws = [*uniform_draws(), *shaped_draws(), *chosen_draws()]
    for number, draw in enumerate(draws):
        for place, dtype in enumerate(draw.dtypes):
            often = place == number % len(draw.dtypes)
            small = draw.pattern in ("row", "once", "6") and draw.ulp == 0
            check_it = partial(run, draw, dtype)
            yield Case("random", draw.name, draw.pattern.replace(" ", "-"), dtype, check_it, often,
                       small)  # fmt: skip
