"""Polynomials with integer coefficients over numbered unknowns: relations between sizes.

A polynomial maps a product of unknowns (their numbers in order, with repeats) to its coefficient,
which is never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "Polynomial", "add", "constant", "evaluate", "is_constant", "lower_each", "multiply", "narrow",
    "product", "range_of", "replace", "scale", "solve", "unknown", "unknowns",
]  # fmt: skip

Polynomial = Mapping[tuple[int, ...], int]


def constant(value: int) -> Polynomial:
    return {(): value} if value else {}


def unknown(number: int) -> Polynomial:
    return {(number,): 1}


def unknowns(polynomial: Polynomial) -> set[int]:
    """The numbers of its unknowns."""
    return {number for factors in polynomial for number in factors}


def is_constant(polynomial: Polynomial) -> bool:
    return not any(polynomial)


def add(left: Polynomial, right: Polynomial) -> Polynomial:
    found = {factors: left.get(factors, 0) + right.get(factors, 0) for factors in {**left, **right}}
    return {factors: value for factors, value in found.items() if value}


def scale(polynomial: Polynomial, by: int) -> Polynomial:
    return {factors: value * by for factors, value in polynomial.items()} if by else {}


def multiply(left: Polynomial, right: Polynomial) -> Polynomial:
    found: dict[tuple[int, ...], int] = {}
    for ours, first in left.items():
        for theirs, second in right.items():
            factors = tuple(sorted(ours + theirs))
            found[factors] = found.get(factors, 0) + first * second
    return {factors: value for factors, value in found.items() if value}


def product(polynomials: Iterable[Polynomial]) -> Polynomial:
    total = constant(1)
    for each in polynomials:
        total = multiply(total, each)
    return total


def evaluate(polynomial: Polynomial, values: Mapping[int, int] | Sequence[int]) -> int:
    """The value at `values` of the unknowns."""
    total = 0
    for factors, value in polynomial.items():
        for number in factors:
            value *= values[number]
        total += value
    return total


def range_of(polynomial: Polynomial, low: Sequence[int], high: Sequence[int]) -> tuple[int, int]:
    """Bounds of the value where the unknowns, never negative, lie between `low` and `high`."""
    least = most = 0
    for factors, value in polynomial.items():
        smallest = largest = value
        for number in factors:
            smallest, largest = smallest * low[number], largest * high[number]
        least += min(smallest, largest)
        most += max(smallest, largest)
    return least, most


def replace(polynomial: Polynomial, number: int, by: Polynomial) -> Polynomial:
    """`polynomial` with `by` for an unknown."""
    total: Polynomial = {}
    for factors, value in polynomial.items():
        rest = tuple([other for other in factors if other != number])
        term: Polynomial = {rest: value}
        for _ in range(len(factors) - len(rest)):
            term = multiply(term, by)
        total = add(total, term)
    return total


def solve(left: Polynomial, right: Polynomial) -> tuple[int, Polynomial] | None:
    """An unknown and the value that makes `left` equal to `right`; None where no unknown is alone
    in a term with the factor 1 or -1.
    """
    difference = add(left, scale(right, -1))
    alone = [
        factors[0]
        for factors, value in difference.items()
        if len(factors) == 1
        and abs(value) == 1
        and not any(factors[0] in other for other in difference if other != factors)
    ]
    if not alone:
        return None
    number = max(alone)
    sign = difference[(number,)]
    rest = {factors: value for factors, value in difference.items() if factors != (number,)}
    return number, scale(rest, -sign)


def narrow(size: Polynomial, low: list[int], high: list[int]) -> None:
    """Narrow the bounds of an unknown so that `size`, a number and a multiple of it, is not
    negative.
    """
    if len(unknowns(size)) != 1 or any(len(factors) > 1 for factors in size):
        return
    (number,) = unknowns(size)
    by, more = size[(number,)], size.get((), 0)
    if by > 0:
        low[number] = max(low[number], -(more // by))
    else:
        high[number] = min(high[number], more // -by)


def lower_each(behind: Polynomial, high: list[int]) -> None:
    """Lower the upper bound of each unknown so that `behind`, a number less multiples of them, is
    not negative where the others are 0: the elements behind a slice with a position and a length.
    """
    if any(len(factors) > 1 or (factors and by > 0) for factors, by in behind.items()):
        return
    for number in unknowns(behind):
        high[number] = min(high[number], behind.get((), 0) // -behind[(number,)])
