"""Shapes with unknowns: what is common to some shapes describes each of them, and no others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilegrad.ir.size_patterns import (
    UNKNOWN,
    collected,
    count_of_unknowns,
    examples_of,
    in_common,
    shapes_at,
    values_in,
)


@given(first=st.integers(2, 99), second=st.integers(2, 99), other=st.integers(100, 999))
def test_a_pattern_has_the_shapes_that_it_was_found_in(first: int, second: int, other: int) -> None:
    """The unknown stands at both axes that changed alike, and is read from either shape."""
    seen = [((4, n), (n, 8)) for n in (first, second)]
    pattern, unknowns = in_common(seen)
    if first == second:
        assert pattern == seen[0]
        assert unknowns == []
        return
    assert pattern == ((4, UNKNOWN), (UNKNOWN, 8))
    assert unknowns == [(first, second)]
    assert count_of_unknowns(pattern) == 1
    assert [values_in(pattern, each) for each in seen] == [(first,), (second,)]
    assert shapes_at(pattern, (other,)) == ((4, other), (other, 8))


@pytest.mark.parametrize(
    "shapes",
    [
        ((4, 5), (6, 8)),  # one unknown is two numbers
        ((3, 5), (5, 8)),  # a number that stays is another
        ((4, 5, 1), (5, 8)),  # more axes
    ],
)
def test_other_shapes_have_no_unknowns(shapes: tuple[tuple[int, ...], ...]) -> None:
    pattern, _ = in_common([((4, 7), (7, 8)), ((4, 9), (9, 8))])
    assert values_in(pattern, shapes) is None


def test_two_unknowns_that_are_one_number_are_not_read() -> None:
    """What they would mean there was never seen."""
    pattern, _ = in_common([((3, 5),), ((4, 7),)])
    assert values_in(pattern, ((6, 9),)) == (6, 9)
    assert values_in(pattern, ((6, 6),)) is None
    assert values_in(pattern, ((6, 6),), may_be_equal=True) == (6, 6)


def test_examples_differ_in_each_unknown_and_lie_above() -> None:
    found = examples_of((7, 12, 19, 33), [0, 100])
    assert found == [(7, 133), (12, 107), (19, 112), (33, 119)]


def test_examples_are_collected_until_there_are_enough() -> None:
    """Those where nothing is made are passed over; none is tried once too few are left."""
    tried: list[int] = []

    def even(values: tuple[int, ...]) -> int | None:
        tried.append(values[0])
        return None if values[0] % 2 else values[0] * 10

    examples = [(n,) for n in range(1, 9)]
    assert collected(examples, even, 2, 3) == ([20, 40, 60], [(2,), (4,), (6,)])
    assert tried == [1, 2, 3, 4, 5, 6]
    tried.clear()
    assert collected(examples, even, 7, 8) is None
    assert tried == [1, 2, 3]
