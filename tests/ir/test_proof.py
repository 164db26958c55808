"""Claims of ir.proof and ir.counterexample hold for values of the variables, by brute force."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ir.values import evaluate
from tilegrad.base.dtype import dtypes
from tilegrad.ir import Axis, Ops, UOp
from tilegrad.ir.counterexample import find_collision, find_outside
from tilegrad.ir.proof import are_apart, bounds_under, lane_of, linear

x, y, z = (UOp.variable(name, 0, 5) for name in "xyz")


def points(*variables: UOp) -> Iterator[dict[UOp, int]]:
    for values in itertools.product(*(range(v.vmin, v.vmax + 1) for v in variables)):
        yield dict(zip(variables, values))


def random_sum(rng: random.Random) -> UOp:
    total = UOp.const(dtypes.index, rng.randint(-5, 5))
    for variable in rng.sample((x, y, z), rng.randint(1, 3)):
        total = total + variable * rng.choice((-3, -1, 1, 1, 2, 4))
    return total


def random_index(rng: random.Random) -> UOp:
    index = random_sum(rng)
    kind = rng.randrange(5)
    if kind == 0:
        return index // rng.choice((2, 3)) + random_sum(rng)
    if kind == 1:
        return index % rng.choice((2, 4)) + random_sum(rng)
    if kind == 2:
        return (random_sum(rng) < 0).where(index, random_sum(rng))
    return index.maximum(random_sum(rng)) if kind == 3 else index


def random_condition(rng: random.Random) -> UOp:
    parts = []
    for _ in range(rng.randint(1, 4)):
        test = random_sum(rng) < rng.randint(-3, 8)
        parts.append(test.logical_not() if rng.random() < 0.4 else test)
    condition = parts[0]
    for part in parts[1:]:
        condition = condition & part
    return condition


@given(st.integers(0, 2**32))
def test_bounds_under_a_condition_hold(seed: int) -> None:
    rng = random.Random(seed)
    index, condition = random_index(rng), random_condition(rng)
    if rng.random() < 0.3:
        index = random_condition(rng).where(index, random_index(rng))
    low, high = bounds_under(index, condition)
    for point in points(x, y, z):
        if evaluate(condition, point):
            assert low <= evaluate(index, point) <= high


def at_least(node: UOp, limit: int) -> UOp:
    return (node < limit).logical_not()


@pytest.mark.parametrize(
    ("index", "condition", "bounds"),
    [
        (x, x < 3, (0, 2)),
        (x - 1, at_least(x, 1), (0, 4)),
        (x - 1, x * -1 < 0, (0, 4)),
        (x * 4 + y, (x < 2) & (y < 4), (0, 7)),
        (x + y - 1, at_least(x + y, 1) & (x + y < 5), (0, 3)),
        ((x + y - 1) * 4 + z, at_least(x + y, 1) & (x + y < 5), (0, 17)),
        ((x + y) // 2, x + y < 4, (0, 1)),
        (x, x + y * 2 < 2, (0, 1)),
        (x * 3, x.eq(2), (6, 6)),
        (x, y < x, (1, 5)),
        (x * -1, x < 3, (-2, 0)),
        (x, (x < 2) & at_least(x, 4), (1, 0)),
        (x, x.ne(2), (0, 5)),
        (x, (x < 3) & (UOp.const(dtypes.index, 4) + 3 < 7), (1, 0)),
        (x % 4, at_least(x, 4), (0, 1)),
        (x.cast(dtypes.int), x < 3, (0, 2)),
        ((x < 3).where(x + 1, 0), x < 9, (0, 3)),
        ((x < 3).where(x, x * -1), at_least(x, 2), (-5, 2)),
        ((x < 3).where(x, 9), x < 2, (0, 1)),
    ],
)
def test_bounds_under(index: UOp, condition: UOp, bounds: tuple[int, int]) -> None:
    assert bounds_under(index, condition) == bounds


def test_bounds_follow_from_extents() -> None:
    """A range is below its extent also where that is symbolic, as in a shortened loop."""
    start = (1 - x).maximum(0)
    inner = UOp.range(-(x - 4).maximum(-3) - start, 1)
    part = UOp.range(-(y * 4 - 13).maximum(-4), 2)
    assert bounds_under(start + inner) == (0, 2)
    assert bounds_under(x + start + inner) == (0, 3)
    assert bounds_under(y * 4 + part) == (0, 12)
    assert bounds_under(y * 8 + part * 2, y < 3) == (0, 22)
    for index in (start + inner, x + start + inner, y * 4 + part, part - inner * 2 + y):
        low, high = bounds_under(index)
        for point in points(x, y):
            for i, k in itertools.product(range(4), range(4)):
                point |= {inner: i, part: k}
                if all(point[loop] < evaluate(loop.src[0], point) for loop in (inner, part)):
                    assert low <= evaluate(index, point) <= high


def test_linear_reads_lowered_forms() -> None:
    v = UOp.variable("v", 0, 9, dtypes.int)
    node = UOp(Ops.MULACC, dtypes.int, (v, v * 0 + 3, (v << 2).alu(Ops.SUB, v.alu(Ops.NEG))))
    assert linear(v << 2) == ({v: 4}, 0)
    assert linear((v << 2).alu(Ops.SUB, v.alu(Ops.NEG)) + 7) == ({v: 5}, 7)
    assert linear(v.cast(dtypes.long) * 2) == ({v: 2}, 0)
    assert linear(node)[0]
    # a sum that may wrap around is a term of its own
    wide = UOp(Ops.LOAD, dtypes.int, (UOp(Ops.DEFINE_GLOBAL, dtypes.int.ptr(4), (), 0), v))
    assert linear(wide + 1) == ({wide + 1: 1}, 0)


def test_lane_of() -> None:
    v = UOp.variable("v", 0, 9, dtypes.int)
    lanes = UOp.stack([UOp.const(dtypes.int, number) for number in (3, 5)])
    total = UOp.stack([v, v]) * lanes + UOp.const(dtypes.int.vec(2), 1)
    assert lane_of(total, 1) is v * 5 + 1
    assert lane_of(total < lanes, 0) is (v * 3 + 1 < 3)


G, L, S = (
    UOp.range(4, 0, Axis.GLOBAL),
    UOp.range(8, 1, Axis.LOCAL),
    UOp.range(3, 2, Axis.LOOP),
)


@given(st.integers(0, 2**32))
def test_apart_means_apart(seed: int) -> None:
    """A proof is right, a counterexample is one, and on a small grid one of the two is found."""
    rng = random.Random(seed)
    scales = [rng.choice((0, 1, 2, 3, 4, 8, 9, -4, 24)) for _ in range(3)]
    index = G * scales[0] + L * scales[1] + S * scales[2]
    axes, width = rng.choice(([G], [L], [G, L])), rng.choice((1, 1, 2))
    places: dict[int, tuple[int, ...]] = {}
    meets = False
    for point in points(G, L, S):
        here = tuple(point[axis] for axis in axes)
        for place in range(evaluate(index, point), evaluate(index, point) + width):
            meets = meets or places.setdefault(place, here) != here
    found = find_collision(index, None, axes, width)
    assert (found is not None) == meets
    if are_apart(index, axes, width):
        assert not meets


def test_digits_are_apart() -> None:
    assert are_apart(G * 8 + L, [G, L])
    assert are_apart(G * 24 + L * 3 + S, [G, L])
    assert are_apart(L * -1 + G * 8, [G, L])
    assert are_apart(G * 2 + S * 8, [G])
    assert not are_apart(G + L, [G, L])
    assert not are_apart(L, [G])
    assert not are_apart(G + S * 2, [G])
    assert not are_apart(G, [G], 2)
    assert are_apart(G * 2, [G], 2)


def test_gate_hides_a_collision() -> None:
    zero = UOp.const(dtypes.index, 0)
    assert find_collision(zero, None, [G]) == "ridx0 = 0 and ridx0 = 1"
    assert find_collision(zero, G.eq(2), [G]) is None
    assert find_collision(G // 2, G % 2 < 1, [G]) is None


def test_a_variable_is_one_number_for_all_lanes() -> None:
    start, end = UOp.variable("start", 0, 1), UOp.variable("end", 2, 4)
    lane = UOp.range(end - start, 9)
    assert find_collision(start + lane, None, [lane]) is None
    assert find_collision(start + lane // 2, None, [lane]) is not None


def outside(index: UOp, gate: UOp | None, size: int) -> str | None:
    """Where the search found `index` to be outside."""
    found = find_outside([(index, gate)], size)
    assert found is None or found[0] is index
    return None if found is None else found[1]


def test_counterexample_of_an_index() -> None:
    assert outside(x + y, None, 11) is None
    assert outside(x + y, None, 10) == "x = 5, y = 5"
    assert outside(x * 2, x < 3, 5) is None
    assert outside(x - 1, None, 5) == "x = 0"


def test_several_indices_are_searched_at_once() -> None:
    lanes = [(x + lane, None if lane < 2 else x < 4) for lane in range(4)]
    assert find_outside(lanes, 7) is None
    found = find_outside(lanes, 6)
    assert found is not None and found[0] is lanes[3][0] and found[1] == "x = 3"
    assert find_outside(lanes[:3], 6) == (lanes[1][0], "x = 5")


def test_counterexamples_respect_symbolic_extents() -> None:
    """A range below n is never n, whatever n is."""
    n = UOp.variable("n", 1, 5)
    r = UOp.range(n, 0)
    assert outside(n - r - 1, None, 5) is None
    assert outside(n - r, None, 5) == "n = 5, ridx0 = 0"


def test_long_shared_terms_in_a_branch() -> None:
    """What two branches share is computed whichever is taken."""
    node = x
    for _ in range(12):
        node = (node % 7) * 3 + node % 5
    index = (y < 3).where(node, x) + (z < 3).where(x, node)
    high = max(evaluate(index, point) for point in points(x, y, z))
    assert outside(index, None, high + 1) is None
    assert outside(index, None, high) is not None


def test_large_grids_are_sampled() -> None:
    wide = UOp.variable("wide", 0, 10**6)
    assert outside(wide, None, 10**6) == "wide = 1000000"
    assert outside(wide, wide < 100, 100) is None
    axes = [UOp.range(1 << 12, 0, Axis.GLOBAL), UOp.range(1 << 12, 1, Axis.LOCAL)]
    assert find_collision(axes[0] + axes[1], None, axes) is not None
    assert find_collision((axes[0] % 64) * (1 << 14) + axes[1], None, axes[1:]) is None


def test_words_that_wrap_are_not_searched() -> None:
    """A random word scaled to 0..9 stays below 10, though its sum is more than 32 bits hold."""
    seed = UOp.variable("seed", 0, 2**32 - 1)
    word = seed.cast(dtypes.uint32) + seed.cast(dtypes.uint32)
    scaled = (word.cast(dtypes.int64) * 10) >> 32
    assert outside(scaled, None, 10) is None
    halved = seed.cast(dtypes.uint32) >> 1
    assert outside(halved, None, 2**31) is None
    assert outside(halved, None, 2**31 - 1) is not None


def test_what_is_not_arithmetic_is_not_searched() -> None:
    value = UOp(Ops.LOAD, dtypes.float, (UOp(Ops.DEFINE_GLOBAL, dtypes.float.ptr(4), (), 0), x))
    assert outside(x, value < 1.0, 2) is None
    assert outside(value.cast(dtypes.index), None, 2) is None
    assert find_collision(value.cast(dtypes.index), None, [x]) is None
