"""Recordings of one method at several sizes, and the template that they have in common: of all
sizes, or of those around one at which the method does the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilegrad.ir.size_patterns import Shapes, Sizes, collected, shapes_at
from tilegrad.ir.sized_templates import SizedTemplate, have_same_steps, sized_template
from tilegrad.tensor.calls.recorded import MethodTemplate
from tilegrad.tensor.calls.same_steps import same_around

__all__ = ["FEWEST", "are_alike", "recorded_around", "recorded_at"]

# The fewest examples of a template of several sizes.
FEWEST = 6


def recorded_at(
    sizes: Shapes, examples: Sequence[Sizes], record: Callable[[Shapes], MethodTemplate | None]
) -> tuple[SizedTemplate, MethodTemplate] | None:
    """The template of all sizes; None if there is none."""
    first: list[MethodTemplate] = []

    def make(values: Sizes) -> MethodTemplate | None:
        one = record(shapes_at(sizes, values))
        if one is None or one.waiting is None:
            return None
        first.append(one)
        # A result without a shape is an operand as it is.
        is_whole = all(one.graph.shape_of(result.slot) is not None for result in one.results)
        return one if is_whole and are_alike(one, first[0]) else None

    found = collected(examples, make, len(examples), len(examples))
    if found is None:
        return None
    template = sized_template([each.graph for each in found[0]], found[1])
    return None if template is None else (template, found[0][0])


def recorded_around(
    size: int,
    sizes: Shapes,
    allowed: Sequence[int],
    others: frozenset[int],
    record: Callable[[Shapes], MethodTemplate | None],
) -> tuple[int, int, tuple[SizedTemplate, MethodTemplate]] | None:
    """The least and the most size around `size` at which a method does the same, where it chooses
    by that, and the template of these; None if they are few.
    """

    def make(value: int) -> MethodTemplate | None:
        one = record(shapes_at(sizes, (value,)))
        return None if one is None or one.waiting is None else one

    def are_same(one: MethodTemplate, other: MethodTemplate) -> bool:
        return are_alike(one, other) and have_same_steps(one.graph, other.graph)

    found = same_around(size, allowed, others, make, are_same)
    if found is None or len(found.made) < FEWEST:
        return None
    if any(
        one.graph.shape_of(result.slot) is None
        for one in found.made.values()
        for result in one.results
    ):
        return None
    template = sized_template(
        [one.graph for one in found.made.values()], [(value,) for value in found.made]
    )
    return None if template is None else (found.low, found.high, (template, found.made[size]))


def are_alike(one: MethodTemplate, other: MethodTemplate) -> bool:
    """Whether two recordings differ in sizes only."""
    mine, theirs = [
        (len(each.results), each.is_one, each.has_view, each.has_reshape) for each in (one, other)
    ]
    return mine == theirs and all(
        mine[:4] == theirs[:4] and mine.dtype is theirs.dtype
        for mine, theirs in zip(one.results, other.results, strict=True)
    )
