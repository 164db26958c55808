"""Templates for all sizes: of a method that is called with one size after the other.

A template (`tensor.calls.templates`) is one of certain shapes. When a call comes that differs in
sizes only from one before the last run, the method is recorded at a few sizes, and what these have
in common is the template of all sizes up to a bound (`ir.sized_templates`). That takes several
times as long as the call: layers of a network, which differ from each other within one run, have
templates of their own sizes. Sizes 0 and 1 stretch, and a size that is equal to another one in the
call may be taken for that: such calls have templates of their own, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from tilegrad.base.recent import Bounded, Recent
from tilegrad.base.trace import GlobalCounters
from tilegrad.ir.graph_templates import Template
from tilegrad.ir.size_patterns import (
    UNKNOWN,
    Shapes,
    Sizes,
    count_of_unknowns,
    examples_of,
    in_common,
    values_in,
)
from tilegrad.ir.sized_templates import SizedTemplate
from tilegrad.tensor.calls.arguments import DEFAULTS
from tilegrad.tensor.calls.recorded import MethodTemplate, Result, WaitingKind, recorded
from tilegrad.tensor.calls.sized_recordings import (
    FEWEST,
    are_alike,
    recorded_around,
    recorded_at,
)
from tilegrad.tensor.handle.kinds import next_number
from tilegrad.tensor.handle.waiting import this_thread

__all__ = ["Pattern", "of_sizes", "patterns_made", "skeleton_of"]

# Methods are recorded at sizes from 2 to this, or to four times what was seen; then to more.
_REACH = 256
_MOST_REACH = 1 << 22
# Elements of an operand while a method is recorded: beyond, positions need 64 bits.
_MOST_ELEMENTS = 1 << 30
# Sizes that a method may look at: small, odd, prime, a power of two, many.
_EXAMPLES = (3, 16, 5, 31, 64, 2, 47, 8, 21, 32, 13)
# The most examples of a pattern.
_MOST_EXAMPLES = 8
# With more sizes that change independently there would be many examples.
_MOST_UNKNOWNS = 2
# More patterns than these have no template: a method is not recorded again and again.
_MOST_PATTERNS = 16
# Shapes of a method that are remembered, the last that are compared with a new one, and recordings
# in vain after which no more are made.
_MOST_SEEN, _MOST_COMPARED, _MOST_FAILURES = 64, 16, 3
# Calls without a pattern after which one is looked for at powers of two only: a window that moves
# has other bounds in each call, and no size that changes.
_MOST_VAIN = 16
# Sizes whose templates a pattern remembers.
_MOST_KNOWN = 64
Made = TypeVar("Made", bound="HasGraph")


class HasGraph(Protocol):
    """An object with a template of all sizes."""

    @property
    def graph(self) -> Template:
        """The template at one size."""


class Pattern(Generic[Made]):
    """Sizes of a call's operands, as numbers that stay and unknowns; and the results for operands
    of such sizes.

    Attributes:
        sizes: for each axis of each operand, and for the integers among the arguments, the number,
            or the unknown (`ir.size_patterns`).
        low, high: the least and the most that an unknown may be.
        others: the numbers that an unknown may not be, as they are in the call beside it: the
            method may do something else then, as far as is known (`admits`).
        template: the template of all sizes.
        example: what was made at one size.
        known: what is made at some sizes.
    """

    __slots__ = ("_refused", "example", "high", "known", "low", "others", "sizes", "template")

    def __init__(
        self,
        sizes: Shapes,
        high: int,
        others: frozenset[int],
        template: SizedTemplate,
        example: Made,
        low: int = 2,
    ):
        self.sizes, self.high, self.others, self.template = sizes, high, others, template
        self.low = low
        self.example = example
        self._refused: set[int] = set()
        self.known: Bounded[Sizes, Made] = Bounded(_MOST_KNOWN)

    def values(self, shapes: Sequence[tuple[int, ...]]) -> Sizes | None:
        """The unknowns in a call whose operands have these shapes; None if it is no such call."""
        # As `_read`, without its frame: each call of new sizes comes by.
        values = values_in(self.sizes, shapes)
        for value in values or ():
            if not self.low <= value <= self.high:
                return None
        return values if values is not None and self.others.isdisjoint(values) else None

    def meeting(self, shapes: Sequence[tuple[int, ...]]) -> Sizes | None:
        """The unknowns in such a call where one is equal to another number of the call by chance;
        None for any other call.
        """
        values = self._read(shapes)
        return values if values is not None and self._meets(values) else None

    def admits(self, values: Sizes, made: Made | None) -> bool:
        """Whether what was recorded of a call where unknowns meet other numbers is the same as at
        any sizes: from now on they may.
        """
        is_same = made is not None and self._is_same(values, made)
        self._note_meeting(values, is_same=is_same)
        return is_same

    def refuses(self, values: Sizes) -> bool:
        """Whether such a call was recorded before, and is another one."""
        return not self._refused.isdisjoint(values)

    def _meets(self, values: Sizes) -> bool:
        """Whether unknowns meet numbers that they have not been seen to meet without harm."""
        return not self.others.isdisjoint(values)

    def _note_meeting(self, values: Sizes, *, is_same: bool) -> None:
        met = self.others.intersection(values)
        if is_same:
            self.others -= met
        else:
            self._refused |= met

    def _read(self, shapes: Sequence[tuple[int, ...]]) -> Sizes | None:
        values = values_in(self.sizes, shapes)
        for value in values or ():
            if not self.low <= value <= self.high:
                return None
        return values

    def at(self, values: Sizes) -> Made:
        """The result for these sizes."""
        return self.known.get(values) or self.known.put(values, self.made(self.template.at(values)))

    def has_one_shape(self, slot: int) -> bool:
        """Whether the node of a slot has the same shape at all sizes."""
        count = count_of_unknowns(self.sizes)
        return len({self.template.shape_of(slot, each) for each in _apart(count)}) == 1

    def graph_at(self, values: Sizes) -> Template:
        """The graph of the results at these sizes."""
        return self.at(values).graph

    def _is_same(self, values: Sizes, made: Made) -> bool:
        """Whether a recording at some sizes is what the template gives there."""
        raise NotImplementedError

    def made(self, template: Template) -> Made:
        """The example, of another template."""
        raise NotImplementedError


class MethodPattern(Pattern[MethodTemplate]):
    """The calls of a method that differ in sizes only.

    Attributes:
        numbers: those of its calls among all, for each result.
        family: those calls.
        kinds: the common kind of calls at some sizes that came, where no more was asked for.
    """

    __slots__ = ("family", "kinds", "numbers")

    def __init__(self, family: _Family, *rest: Any):
        super().__init__(*rest)
        self.family = family
        self.numbers = [next_number() for _ in self.example.results]
        self.kinds: Bounded[Sizes, WaitingKind] = Bounded(_MOST_KNOWN)

    def at(self, values: Sizes) -> MethodTemplate:
        """The calls of the method at these sizes."""
        made = self.known.get(values)
        if made is None:
            kind = self.kinds.get(values)
            template = self.template.at(values) if kind is None else kind.template
            made = self.known.put(values, self.made(template))
        return made

    def kind_that_came(self, values: Sizes) -> WaitingKind | None:
        """The common facts of calls with one result at these sizes; None if there was none."""
        made = self.known.get(values)
        if made is not None and made.waiting is not None:
            return made.waiting[0]
        return self.kinds.get(values)

    def kind_at(self, values: Sizes) -> WaitingKind:
        """The same, for sizes that come for the first time: a length that grows by one does so at
        each step, and no more is made for it.
        """
        waiting = self.example.waiting
        assert waiting is not None
        kind = waiting[0]
        template, shape = self.template.at(values), self.template.shape_of(kind.slot, values)
        assert shape is not None
        return self.kinds.put(values, kind.at(template, shape, self.numbers[0], self))

    def _is_same(self, values: Sizes, made: MethodTemplate) -> bool:
        is_alike = made.waiting is not None and are_alike(made, self.example)
        return is_alike and made.graph.is_equal(self.template.at(values))

    def made(self, template: Template) -> MethodTemplate:
        example = self.example
        results: list[Result] = []
        waiting: list[WaitingKind] = []
        assert example.waiting is not None
        for result, kind, number in zip(example.results, example.waiting, self.numbers):
            shape = template.shape_of(result.slot)
            assert shape is not None
            results.append(Result(*result[:4], shape, result.dtype))
            waiting.append(kind.at(template, shape, number, self))
        return MethodTemplate(template, (*results,), *example[2:7], (*waiting,), example[8])


class _Family:
    """Calls of a method that differ in sizes only: some shapes that came, the last first, each with
    how many kernels had run by then, and the patterns that were found.
    """

    __slots__ = ("failures", "is_recorded", "patterns", "seen", "vain")

    def __init__(self) -> None:
        # While a call is recorded: a method that calls itself makes no pattern of the inner call,
        # which would be recorded in turn, and so on.
        self.is_recorded = False
        self.seen: dict[Shapes, int] = {}
        self.patterns: list[MethodPattern] = []
        # Recordings that had nothing in common.
        self.failures = 0
        # Calls without a pattern since there was one.
        self.vain = 0

    def find(self, shapes: Sequence[tuple[int, ...]]) -> tuple[MethodPattern, Sizes] | None:
        """The pattern for a call whose operands have these shapes, and its unknowns. Where there
        are several, it is the one with the fewest unknowns: equal calls have one pattern, whatever
        came between.
        """
        for pattern in self.patterns:
            values = pattern.values(shapes)
            if values is not None:
                return pattern, values
        return None

    def others(self) -> list[Shapes]:
        """The last shapes before the last run. Those since then are sizes of one program, as the
        layers of a network have them, and each may well come back as it is; where they are many,
        they are taken for sizes that change, too.
        """
        launched = GlobalCounters.kernel_count
        last = list(self.seen)[: -_MOST_COMPARED - 1 : -1]
        found = [each for each in last if self.seen[each] != launched]
        return found if len(last) - len(found) < _MOST_COMPARED else last

    def note(self, shapes: Shapes) -> None:
        """Remember the shapes of a call that has no pattern."""
        if len(self.seen) >= _MOST_SEEN:
            del self.seen[next(iter(self.seen))]
        self.seen[shapes] = GlobalCounters.kernel_count

    def add(self, pattern: MethodPattern) -> None:
        """Have one more pattern. One that goes further takes the place of a shorter one."""
        rest = [
            each
            for each in self.patterns
            if each.sizes != pattern.sizes or each.low < pattern.low or each.high > pattern.high
        ]
        self.patterns = sorted([pattern, *rest], key=lambda each: count_of_unknowns(each.sizes))


_families: Recent[tuple[Any, ...], _Family] = Recent(lambda: 1024)


# How many patterns were found.
_count = [0]


def patterns_made() -> int:
    """How many patterns were found so far, of all methods."""
    return _count[0]


# By a signature without sizes and bounds of slices, how many of these bounds came.
_slices: Recent[tuple[Any, ...], list[int]] = Recent(lambda: 1024)
_MOST_SLICES = 32


def _changes_often(rest: Sequence[Any]) -> bool:
    """Whether a slice has been another one so often that no pattern is looked for."""
    without = rest[0], *[each for each in rest if each.__class__ is not int]
    count = _slices.setdefault(without, [0])
    count[0] += 1
    return count[0] > _MOST_SLICES


def skeleton_of(key: Sequence[Any]) -> tuple[Any, ...]:
    """A signature without the sizes of its operands and the integers among its arguments."""
    defaults = key[DEFAULTS]
    rest = [len(each) if each.__class__ is tuple and each is not defaults else each for each in key]
    for at, each in enumerate(key):
        if each is int:
            rest[at + 1] = None
    return (*rest,)


def of_sizes(
    key: Sequence[Any], operands: Sequence[Any], method: Any, args: Any, kwargs: Any
) -> MethodTemplate | None:
    """The template of `method` for operands of these sizes, if it is known for all sizes. `key` is
    the signature of the call.
    """
    integers = [key[at + 1] for at, each in enumerate(key) if each is int]
    shapes: Shapes = (*[operand.shape for operand in operands], tuple(integers))
    bounds = [each for at, kind in enumerate(key) if kind is slice for each in key[at + 1 : at + 4]]
    skeleton = skeleton_of(key)
    family = _families.get(skeleton)
    if family is None:
        if slice in skeleton and _changes_often(skeleton):
            return None
        family = _families.setdefault(skeleton, _Family())
    served = family.find(shapes)
    if served is not None:
        return served[0].at(served[1])
    for pattern in family.patterns:
        values = pattern.meeting(shapes)
        if values is not None:
            # A size that is another one by chance; no pattern is made for it.
            if family.is_recorded or pattern.refuses(values):
                return None
            family.is_recorded = True
            try:
                made = recorded(method, [*operands], args, kwargs)
            finally:
                family.is_recorded = False
            return pattern.at(values) if pattern.admits(values, made) else None
    # The sizes of calls within a recording are those at which that is made.
    is_full = len(family.patterns) >= _MOST_PATTERNS or bool(this_thread.stand_ins)
    if is_full or family.is_recorded or family.failures >= _MOST_FAILURES or shapes in family.seen:
        return None
    found = None
    vain = family.vain
    if vain < _MOST_VAIN or not vain & (vain - 1):
        fixed = frozenset(abs(each) for each in bounds if each is not None)
        family.is_recorded = True
        try:
            found = _pattern(family, shapes, fixed, operands, method, args, kwargs)
        finally:
            family.is_recorded = False
    family.vain = vain + 1 if found is None else 0
    family.note(shapes)
    if found is None:
        return None
    values = found.values(shapes)
    return None if values is None else found.at(values)


def _pattern(
    family: _Family,
    shapes: Shapes,
    bounds: frozenset[int],
    operands: Sequence[Any],
    method: Any,
    args: Any,
    kwargs: Any,
) -> MethodPattern | None:
    """The pattern of a call and an earlier one of its family, recorded at some sizes. At a size
    among the `bounds` of its slices a slice is whole.
    """
    common = [_unknowns(before, shapes) for before in family.others()]
    found = [each for each in common if each is not None]
    if not found:
        return None
    # The pattern in which the fewest sizes change is most likely the same line of a program.
    sizes, seen = min(found, key=lambda each: len(each[1]))
    others = bounds.union(size for shape in sizes for size in shape if size > UNKNOWN)
    high = min(max(4 * max(map(max, seen)), _REACH), _MOST_REACH)
    examples = _examples(len(seen), high, others)
    is_small = all(
        math.prod(high if size <= UNKNOWN else size for size in shape) < _MOST_ELEMENTS
        for shape in sizes[:-1]
    )

    def record(given: Shapes) -> MethodTemplate | None:
        integers = iter(given[-1])
        return recorded(
            method,
            [*operands],
            [_with_integers(each, integers) for each in args],
            {name: _with_integers(each, integers) for name, each in kwargs.items()},
            shapes=given[:-1],
        )

    if examples is None or not is_small:
        return None
    both = recorded_at(sizes, examples, record)
    low = 2
    if both is None:
        around = None
        if len(seen) == 1:
            allowed = [value for (value,) in examples]
            around = recorded_around(seen[0][-1], sizes, allowed, others, record)
        if around is None:
            family.failures += 1
            return None
        low, high, both = around
    made = MethodPattern(family, sizes, high, others, *both, low)
    family.add(made)
    _count[0] += 1
    return made


def _apart(count: int) -> list[Sizes]:
    """Values of unknowns; a polynomial of low degree that is not constant differs among them."""
    return examples_of(_EXAMPLES, [0] * count)


def _unknowns(before: Shapes, now: Shapes) -> tuple[Shapes, list[Sizes]] | None:
    """The sizes of two calls, with unknowns for those that differ, and these; None if the calls
    have no pattern.
    """
    sizes, unknowns = in_common([before, now])
    if not unknowns or len(unknowns) > _MOST_UNKNOWNS:
        return None
    of_operands = {size for shape in sizes[:-1] for size in shape}
    seen = [number for each in unknowns for number in each]
    if any(size <= UNKNOWN and size not in of_operands for size in sizes[-1]):
        # An integer that is no size of an operand may be a position, which has bounds.
        return None
    is_apart = not any(number in of_operands for number in seen)
    is_large = min(seen) >= 2 and max(seen) <= _MOST_REACH
    return (sizes, unknowns) if is_apart and is_large else None


def _examples(count: int, high: int, others: frozenset[int]) -> list[Sizes] | None:
    """Sizes at which to record."""
    allowed = [each for each in _EXAMPLES if each not in others and each < high]
    allowed = allowed[: _MOST_EXAMPLES - 1]
    if high not in others:
        allowed.append(high)
    return None if len(allowed) < FEWEST else examples_of(allowed, [0] * count)


def _with_integers(value: Any, integers: Iterator[int]) -> Any:
    """An argument with other integers, in order."""
    kind = value.__class__
    if kind is int:
        return next(integers)
    if isinstance(value, (tuple, list)):
        return kind([_with_integers(each, integers) for each in value])
    return value
