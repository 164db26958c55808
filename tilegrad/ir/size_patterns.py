"""Sizes that change, told by a few shapes that came: numbers that stay, and unknowns.

A template of a method, the gradients of a loss, the lengths of a plan: each is computed for a few
values of the unknowns and interpolated between them (`ir.sized_templates`). A pattern says for
which shapes that is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

__all__ = [
    "TRIED", "UNKNOWN", "Shapes", "Sizes", "collected", "count_of_unknowns", "examples_of",
    "in_common", "shapes_at", "values_in",
]  # fmt: skip

Sizes = tuple[int, ...]
Shapes = tuple[tuple[int, ...], ...]
Made = TypeVar("Made")

# Unknown number k is written as this less k, where a number that stays is itself.
UNKNOWN = -(1 << 40)
# Sizes that are tried: those that others of a graph are equal to may be no examples.
TRIED = (7, 12, 19, 33, 26, 53, 40, 11, 5, 9, 6, 10, 15, 21, 29, 37, 45, 23, 14, 50)


def in_common(seen: Sequence[Shapes]) -> tuple[Shapes, list[Sizes]]:
    """The pattern of some shapes, with an unknown where they differ, the same one where they differ
    alike; and the value of each unknown in them.
    """
    unknowns: dict[Sizes, int] = {}
    sizes = tuple([
        tuple([
            column[0]
            if len({*column}) == 1
            else UNKNOWN - unknowns.setdefault(column, len(unknowns))
            for column in zip(*same)
        ])
        for same in zip(*seen)
    ])  # fmt: skip
    return sizes, [*unknowns]


def count_of_unknowns(pattern: Shapes) -> int:
    """How many unknowns a pattern has."""
    return len({size for shape in pattern for size in shape if size <= UNKNOWN})


def shapes_at(pattern: Shapes, values: Sizes) -> Shapes:
    """The shapes where the unknowns are `values`."""
    return tuple([
        tuple([size if size > UNKNOWN else values[UNKNOWN - size] for size in shape])
        for shape in pattern
    ])  # fmt: skip


def values_in(
    pattern: Shapes, shapes: Sequence[tuple[int, ...]], *, may_be_equal: bool = False
) -> Sizes | None:
    """The unknowns in some shapes; None if these are others, or two unknowns are one number that
    may not be.
    """
    found: dict[int, int] = {}
    for shape, own in zip(shapes, pattern):
        if len(shape) != len(own):
            return None
        for size, wanted in zip(shape, own):
            if wanted > UNKNOWN:
                if size != wanted:
                    return None
            elif found.setdefault(wanted, size) != size:
                return None
    values = (*found.values(),)
    return values if may_be_equal or len(values) < 2 or len({*values}) == len(values) else None


def examples_of(numbers: Sequence[int], above: Sequence[int]) -> list[Sizes]:
    """Values of unknowns, made of some numbers: for each unknown, those `above` it. Unknowns have
    different ones as long as there are enough numbers.
    """
    count = len(numbers)
    # Unknowns are some numbers apart, where all of them differ then.
    step = 3 if count % 3 or 3 * len(above) <= count else 1
    return [
        tuple([least + numbers[(at + step * n) % count] for n, least in enumerate(above)])
        for at in range(count)
    ]  # fmt: skip


def collected(
    examples: Sequence[Sizes], make: Callable[[Sizes], Made | None], needed: int, most: int
) -> tuple[list[Made], list[Sizes]] | None:
    """Results of `make` at some of the examples, up to `most`, and these examples; None if `make`
    gives fewer than `needed`.
    """
    found: list[Made] = []
    used: list[Sizes] = []
    for at, values in enumerate(examples):
        if len(found) + len(examples) - at < needed:
            return None
        one = make(values)
        if one is not None:
            found.append(one)
            used.append(values)
            if len(found) == most:
                break
    return (found, used) if len(found) >= needed else None
