"""Gradients of calls at all sizes: what is recorded of a loss at a few sizes is one template for
all of them, as that of a method is (`tensor.calls.sized`).

A training loop whose batches have other lengths has the same calls in each step, as these have
templates of all sizes. Their gradients would be differentiated and recorded for each length, and
be other segments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tilegrad.base.forgetful_tables import Bounded
from tilegrad.ir.graph_templates import Template
from tilegrad.ir.sized_templates import SizedTemplate, sized_template
from tilegrad.ir.uop import UOp
from tilegrad.tensor.calls.sized import UNKNOWN, Pattern, Shapes, Sizes

__all__ = ["Backward", "Family", "SizedBackward"]

# Sizes at which a loss is differentiated, and the fewest of them: those that others of the calls
# are equal to are passed over.
_TRIED = (7, 12, 19, 33, 26, 53, 40, 11, 22, 9, 37, 14)
_NEEDED = 5
# Lengths that come before their gradients are looked at together, shapes that are compared, and
# attempts.
_MANY, _MOST_SEEN, _MOST_ATTEMPTS = 3, 8, 3
# The most that a size is taken to be: four times what was seen, or this.
_REACH = 1024
# Sizes that a pattern remembers.
_MOST_KNOWN = 64


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


class SizedBackward(Pattern):
    """The gradients of a loss at all sizes. `sizes` are those of what its calls stand on."""

    __slots__ = ("_bearers", "_first", "gradients")

    def __init__(
        self,
        sizes: Shapes,
        high: int,
        template: SizedTemplate,
        first: Backward,
        bearers: Sequence[UOp],
    ):
        others = frozenset(size for shape in sizes for size in shape if size > UNKNOWN)
        self.sizes, self.high, self.others, self.template = sizes, high, others, template
        # The steps have the origins of the bearers, which live as long as these.
        self._first, self._bearers = first, bearers
        self._refused = set()
        self.gradients: Bounded[Sizes, Backward] = Bounded(_MOST_KNOWN)

    def gradients_at(self, values: Sizes) -> Backward:
        """The gradients at these sizes."""
        found = self.gradients.get(values)
        if found is None:
            graph = self.template.at(values)
            found = Backward(graph, self._first.targets, self._first.constants, self)
            self.gradients.put(values, found)
        return found

    def graph_at(self, values: Sizes) -> Template:
        return self.gradients_at(values).graph


# The gradients of calls at other sizes of what they stand on; None if these are no such calls.
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
                return pattern.gradients_at(values)
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
        if not is_new or len(self.seen) < _MANY or self.attempts >= _MOST_ATTEMPTS:
            return found
        if any(pattern.meeting(shapes) is not None for pattern in self.patterns):
            # A size that is another one by chance.
            return found
        self.attempts += 1
        sizes, high = _in_common(self.seen)
        pattern = _pattern(sizes, high, differentiate, bearers)
        values = None if pattern is None else pattern.values(shapes)
        if pattern is None or values is None:
            return found
        made = pattern.gradients_at(values)
        # What was recorded for this size itself decides.
        if made.targets_alike(found) and made.graph.is_equal(found.graph):
            self.patterns.insert(0, pattern)
            return made
        return found


def _in_common(seen: Sequence[Shapes]) -> tuple[Shapes, int]:
    """The shape of each leaf, with an unknown where sizes differ, the same one where they differ
    alike; and the most that an unknown was.
    """
    unknowns: dict[tuple[int, ...], int] = {}
    sizes = tuple([
        tuple([
            column[0]
            if len({*column}) == 1
            else UNKNOWN - unknowns.setdefault(column, len(unknowns))
            for column in zip(*same)
        ])
        for same in zip(*seen)
    ])  # fmt: skip
    return sizes, max((size for column in unknowns for size in column), default=0)


def _pattern(
    sizes: Shapes, most: int, differentiate: Differentiate, bearers: Sequence[UOp]
) -> SizedBackward | None:
    """The gradients at all sizes; None if what is recorded at some has too little in common."""
    count = len({size for shape in sizes for size in shape if size <= UNKNOWN})
    if not 0 < count <= 2:
        return None
    made: list[Backward] = []
    examples: list[Sizes] = []
    for at in range(len(_TRIED)):
        if len(examples) + len(_TRIED) - at < _NEEDED + count:
            return None
        values = tuple([_TRIED[(at + 5 * unknown) % len(_TRIED)] for unknown in range(count)])
        shapes = tuple([
            tuple([size if size > UNKNOWN else values[UNKNOWN - size] for size in shape])
            for shape in sizes
        ])  # fmt: skip
        one = differentiate(shapes)
        if one is not None:
            if made and not one.targets_alike(made[0]):
                return None
            made.append(one)
            examples.append(values)
            if len(made) > _NEEDED + count:
                break
    if len(made) < _NEEDED + count:
        return None
    template = sized_template([each.graph for each in made], examples)
    if template is None:
        return None
    return SizedBackward(sizes, max(4 * most, _REACH), template, made[0], bearers)
