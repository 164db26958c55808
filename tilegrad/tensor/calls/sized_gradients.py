"""Gradients of calls at all sizes: what is recorded of a loss at a few sizes is one template for
all of them, as that of a method is (`tensor.calls.sized`).

A training loop whose batches have other lengths has the same calls in each step, as these have
templates of all sizes. Their gradients would be differentiated and recorded for each length, and
be other segments.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tilegrad.ir.graph_templates import Template
from tilegrad.ir.size_patterns import (
    TRIED,
    UNKNOWN,
    Shapes,
    Sizes,
    collected,
    examples_of,
    in_common,
    shapes_at,
    values_in,
)
from tilegrad.ir.sized_templates import sized_template
from tilegrad.ir.uop import UOp
from tilegrad.tensor.calls.sized import Pattern

__all__ = ["Backward", "Family", "SizedBackward"]

# The fewest sizes at which a loss is differentiated, for one unknown.
_NEEDED = 6
# Lengths that come before their gradients are looked at together, shapes that are compared, and
# attempts.
_MANY, _MOST_SEEN, _MOST_ATTEMPTS = 3, 8, 3
# Sizes that change apart from one another, such as those that masks pick from a batch. The examples
# of more are alike.
_MOST_UNKNOWNS = 8
# The most that a size is taken to be: four times what was seen, or this.
_REACH = 1024


class Backward(NamedTuple):
    """The gradients of a loss: a template over what its calls stand on, and for each target the
    number of its gradient, the position of the target among the inputs, and the slot of the
    gradient. Those that are `constants` are here with the position of the target.
    """

    graph: Template
    targets: tuple[tuple[int, int, int], ...]
    constants: tuple[tuple[int, UOp], ...]
    pattern: SizedBackward | None = None

    def targets_alike(self, other: Backward) -> bool:
        """Whether the gradients are of the same targets, and stand in the same slots."""
        mine, theirs = [
            [(position, slot) for _, position, slot in each.targets] for each in (self, other)
        ]
        return mine == theirs and self.constants == other.constants


class SizedBackward(Pattern[Backward]):
    """The gradients of a loss at all sizes. `sizes` are those of the leaves of its calls."""

    __slots__ = ("_differ", "_equal", "bearers")
    # The steps have the origins of these, which live as long as they.
    bearers: Sequence[UOp]

    def __init__(self, *rest: Any):
        super().__init__(*rest)
        # Pairs of unknowns that may be equal by chance, and those that make other gradients then.
        self._equal: set[tuple[int, int]] = set()
        self._differ: set[tuple[int, int]] = set()

    def values(self, shapes: Sequence[tuple[int, ...]]) -> Sizes | None:
        """As `Pattern.values`. Unknowns may be equal as well, once that made no difference."""
        values = self._read(shapes)
        return None if values is None or self._meets(values) else values

    def refuses(self, values: Sizes) -> bool:
        """Whether such a loss was recorded before, and has other gradients."""
        return super().refuses(values) or not self._differ.isdisjoint(_equal_pairs(values))

    def _meets(self, values: Sizes) -> bool:
        return super()._meets(values) or not self._equal.issuperset(_equal_pairs(values))

    def _note_meeting(self, values: Sizes, *, is_same: bool) -> None:
        super()._note_meeting(values, is_same=is_same)
        (self._equal if is_same else self._differ).update(_equal_pairs(values))

    def _is_same(self, values: Sizes, made: Backward) -> bool:
        """Whether the gradients are the same nodes. Constants of lengths that are equal may be one
        in the recording and two in the template: they are one in the graph.
        """
        numbers: dict[Any, int] = {}
        expected = self.template.at(values).numbered(numbers)
        found = made.graph.numbered(numbers)
        return (
            [(position, expected[slot]) for _, position, slot in self.example.targets]
            == [(position, found[slot]) for _, position, slot in made.targets]
        ) and made.constants == self.example.constants

    def _read(self, shapes: Sequence[tuple[int, ...]]) -> Sizes | None:
        values = values_in(self.sizes, shapes, may_be_equal=True)
        return values if all(self.low <= each <= self.high for each in values or ()) else None

    def made(self, template: Template) -> Backward:
        return Backward(template, self.example.targets, self.example.constants, self)


def _equal_pairs(values: Sizes) -> list[tuple[int, int]]:
    """The unknowns that are one number."""
    if len({*values}) == len(values):
        return []
    pairs = itertools.combinations(range(len(values)), 2)
    return [(one, two) for one, two in pairs if values[one] == values[two]]


# The gradients of calls over leaves of other sizes; None if these are no such calls.
Differentiate = Callable[[Shapes], Backward | None]


class Family:
    """Losses whose calls differ in sizes only: shapes that came, and patterns that were found."""

    __slots__ = ("attempts", "patterns", "seen")

    def __init__(self) -> None:
        self.seen: list[Shapes] = []
        self.patterns: list[SizedBackward] = []
        self.attempts = 0

    def known(self, shapes: Shapes) -> Backward | None:
        """The gradients at these sizes, if there is a pattern for them."""
        for pattern in self.patterns:
            values = pattern.values(shapes)
            if values is not None:
                return pattern.at(values)
        return None

    def note(
        self,
        shapes: Shapes,
        found: Backward,
        differentiate: Differentiate,
        bearers: Sequence[UOp],
    ) -> Backward:
        """Note shapes that no pattern is for, and what was `found` for them; that, or what a new
        pattern gives.
        """
        is_new = shapes not in self.seen
        self.seen = [shapes, *[each for each in self.seen if each != shapes]][:_MOST_SEEN]
        for pattern in self.patterns:
            values = pattern.meeting(shapes)
            if values is not None:
                # A size that is another one by chance: mostly that is no matter.
                is_same = not pattern.refuses(values) and pattern.admits(values, found)
                return pattern.at(values) if is_same else found
        if not is_new or len(self.seen) < _MANY or self.attempts >= _MOST_ATTEMPTS:
            return found
        self.attempts += 1
        new = _pattern(self.seen, differentiate)
        values = None if new is None else new.values(shapes)
        if new is None or values is None:
            return found
        new.bearers = bearers
        made = new.at(values)
        # A recording for this size itself decides.
        if made.targets_alike(found) and made.graph.is_equal(found.graph):
            self.patterns.insert(0, new)
            return made
        return found


def _pattern(seen: Sequence[Shapes], differentiate: Differentiate) -> SizedBackward | None:
    """The gradients at all sizes; None if what is recorded at some has too little in common."""
    sizes, unknowns = in_common(seen)
    count = len(unknowns)
    if not 0 < count <= _MOST_UNKNOWNS:
        return None
    needed = _NEEDED + count
    others = frozenset(size for shape in sizes for size in shape if size > UNKNOWN)
    # A size that is another one of the loss is an exception, not an example.
    tried = [number for number in TRIED if number not in others]
    found = collected(
        examples_of(tried, [0] * count),
        lambda values: differentiate(shapes_at(sizes, values)),
        needed - 1,
        needed,
    )
    if found is None or not all(each.targets_alike(found[0][0]) for each in found[0]):
        return None
    template = sized_template([each.graph for each in found[0]], found[1])
    if template is None:
        return None
    most = max(size for each in unknowns for size in each)
    return SizedBackward(sizes, max(4 * most, _REACH), others, template, found[0][0])
