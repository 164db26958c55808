"""In which order `einsum` multiplies more than two operands.

A product of several is computed two at a time, and the order decides the work: (AB)c costs n^3, but
A(Bc) n^2. The work of a pair is the product of the sizes of all its letters. Up to a few operands
the least total is found, over all ways to split a set in two; beyond, the cheapest pair is taken
first, of equal ones the pair whose result is smallest.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

__all__ = ["contraction_path", "work_of"]

# Operands up to which every order is weighed.
_WEIGHED = 8
Path = list[tuple[int, int]]


def work_of(letters: frozenset[str], sizes: Mapping[str, int]) -> int:
    """How many products a loop over `letters` makes."""
    work = 1
    for letter in letters:
        work *= sizes[letter]
    return work


def contraction_path(
    inputs: Sequence[frozenset[str]], output: frozenset[str], sizes: Mapping[str, int]
) -> Path:
    """Pairs of operands to multiply, in order; the result of a pair is one more operand, numbered
    after all before it.
    """
    if len(inputs) <= _WEIGHED:
        return _best(inputs, output, sizes)
    return _greedy(inputs, output, sizes)


def _best(
    inputs: Sequence[frozenset[str]], output: frozenset[str], sizes: Mapping[str, int]
) -> Path:
    """For each set of operands, smaller ones first, the cheapest way to split it in two."""
    count = len(inputs)
    whole = (1 << count) - 1
    axes_left: dict[int, frozenset[str]] = {}
    for some in range(1, whole + 1):
        mine = [inputs[i] for i in range(count) if some >> i & 1]
        others = [inputs[i] for i in range(count) if not some >> i & 1]
        axes_left[some] = frozenset().union(*mine) & output.union(*others)
    for i in range(count):
        axes_left[1 << i] = inputs[i]
    costs: dict[int, tuple[int, int]] = {1 << i: (0, 0) for i in range(count)}
    for some in range(1, whole + 1):
        if some in costs:
            continue
        best: tuple[int, int] | None = None
        subset = (some - 1) & some
        while subset > some ^ subset:
            rest = some ^ subset
            cost = (
                costs[subset][0]
                + costs[rest][0]
                + work_of(axes_left[subset] | axes_left[rest], sizes)
            )
            if best is None or cost < best[0]:
                best = cost, subset
            subset = (subset - 1) & some
        assert best is not None
        costs[some] = best
    path: Path = []
    numbers = itertools.count(count)

    def add(some: int) -> int:
        if some & (some - 1) == 0:
            return some.bit_length() - 1
        subset = costs[some][1]
        path.append((add(subset), add(some ^ subset)))
        return next(numbers)

    add(whole)
    return path


def _greedy(
    inputs: Sequence[frozenset[str]], output: frozenset[str], sizes: Mapping[str, int]
) -> Path:
    left = dict(enumerate(inputs))
    path: Path = []
    while len(left) > 1:
        options = []
        for one, other in itertools.combinations(left, 2):
            both = left[one] | left[other]
            rest = [letters for number, letters in left.items() if number not in (one, other)]
            made = both & output.union(*rest)
            options.append((work_of(both, sizes), work_of(made, sizes), one, other, made))
        _, _, one, other, made = min(options, key=lambda option: option[:4])
        del left[one], left[other]
        left[len(inputs) + len(path)] = made
        path.append((one, other))
    return path
