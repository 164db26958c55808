"""Polynomials of unknowns: arithmetic on them is arithmetic on their values."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from tilegrad.ir import polynomial as poly
from tilegrad.ir.polynomial import Polynomial


def _some(rng: random.Random) -> Polynomial:
    total = poly.constant(rng.randint(-3, 3))
    for _ in range(rng.randint(0, 3)):
        factors = [poly.unknown(rng.randrange(3)) for _ in range(rng.randint(1, 2))]
        total = poly.add(total, poly.scale(poly.product(factors), rng.randint(-3, 3)))
    return total


@given(st.integers(0, 2**48))
def test_values_follow_the_arithmetic(seed: int) -> None:
    rng = random.Random(seed)
    left, right = _some(rng), _some(rng)
    values = [rng.randint(0, 5) for _ in range(3)]
    a, b = poly.evaluate(left, values), poly.evaluate(right, values)
    assert poly.evaluate(poly.add(left, right), values) == a + b
    assert poly.evaluate(poly.multiply(left, right), values) == a * b
    assert poly.evaluate(poly.scale(left, -2), values) == -2 * a
    changed = [values[0], b, values[2]]
    assert poly.evaluate(poly.replace(left, 1, right), values) == poly.evaluate(left, changed)


@given(st.integers(0, 2**48))
def test_equal_polynomials_are_equal_whatever_their_order(seed: int) -> None:
    rng = random.Random(seed)
    left, right = _some(rng), _some(rng)
    assert poly.multiply(left, right) == poly.multiply(right, left)
    assert poly.add(left, poly.scale(left, -1)) == poly.constant(0) == {}


@given(st.integers(0, 2**48))
def test_bounds_hold_every_value(seed: int) -> None:
    rng = random.Random(seed)
    size = _some(rng)
    low = [rng.randint(0, 3) for _ in range(3)]
    high = [least + rng.randint(0, 3) for least in low]
    least, most = poly.range_of(size, low, high)
    values = [rng.randint(*pair) for pair in zip(low, high, strict=True)]
    assert least <= poly.evaluate(size, values) <= most


@given(st.integers(0, 2**48))
def test_what_is_solved_makes_both_equal(seed: int) -> None:
    rng = random.Random(seed)
    left, right = _some(rng), _some(rng)
    found = poly.solve(left, right)
    if found is not None:
        number, by = found
        assert number not in poly.unknowns(by)
        assert poly.replace(left, number, by) == poly.replace(right, number, by)


def test_an_equation_without_a_lone_unknown_is_not_solved() -> None:
    n, m = poly.unknown(0), poly.unknown(1)
    assert poly.solve(poly.scale(n, 2), poly.scale(m, 3)) is None
    assert poly.solve(poly.multiply(n, m), poly.constant(6)) is None
    assert poly.solve(poly.add(n, poly.constant(1)), m) == (1, poly.add(n, poly.constant(1)))
