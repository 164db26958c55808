"""Loops from a seed (`loops.py`): long ones of many kinds of statements, and short ones.

A short loop has two to five statements of few kinds, and its numbers stay for some steps, change,
and come back. So each statement meets what it left behind, and little else is there that could
keep it from that: another plan, another segment, a number that is no longer known.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from tilegrad.tools.fuzz.changing import (
    changing_factor,
    changing_integer,
    following,
    recurring_factor,
    recurring_integer,
)
from tilegrad.tools.fuzz.loops import (
    NAMES,
    Loop,
    Read,
    Statement,
    Steps,
    is_capturable,
)
from tilegrad.tools.fuzz.statements import BOUND, STATEFUL, STATEMENTS, Seen, StatementKind
from tilegrad.tools.fuzz.themes import of_a_theme

__all__ = ["drawn_loop", "drawn_short_loop"]

_MOST_STATEMENTS, _MOST_OF_SHORT, _MOST_TRIES = 12, 8, 100
_STATES = [name for name in NAMES if name[1:].isdigit()]
# Those that statements write to.
_WRITTEN = ("s0", "s0", "s2", "s3", "m0", "s1")
# While a loop is drawn some of its steps are enough.
_SAMPLED = 5
# Statements of a short loop that pick from memory, and their use.
_PICKS = (
    "row", "column", "slice", "slice_and_length", "first", "columns", "transposed", "element",
    "some_rows", "last",
)  # fmt: skip
_PLAIN = (
    "times", "plus", "sum", "product", "sum_of", "mean", "beside_mean", "share", "affine", "tanh",
)  # fmt: skip
_SOURCES = [kind for kind in STATEMENTS.values() if not kind.takes]
_PAIRS = [
    kind for kind in STATEMENTS.values()
    if len(kind.takes) == 2 and "f" in kind.takes[0] and not (kind.is_write or kind.changes)
]  # fmt: skip
# Statements of most loops.
_COMMON = (
    "new", "new_of_one_size", "row", "slice", "sum", "product", "times", "beside_mean",
    "captured_view_of_what_changes",
)  # fmt: skip


class _Numbers:
    """The numbers of a loop that is drawn."""

    follow = 0.3

    def __init__(self, chance: random.Random):
        self._chance = chance
        self.made: list[tuple[str, str]] = []
        self._bounds: dict[str, tuple[int, int]] = {}
        self._factors: list[str] = []

    def integer(self, low: int, high: int) -> str:
        """The name of an integer, now and then of one that is used elsewhere."""
        fit = [name for name, (a, b) in self._bounds.items() if low <= a and b <= high]
        if fit and self._chance.random() < 0.4:
            return self._chance.choice(fit)
        name, text = f"n{len(self.made)}", self._new_integer(low, high)
        if fit and self._chance.random() < self.follow:
            text = following(self._chance, self._chance.choice(fit), text)
        self.made.append((name, text))
        self._bounds[name] = low, high
        return name

    def factor(self) -> str:
        """The name of a number of any kind."""
        name, text = f"n{len(self.made)}", self._new_factor()
        if self._factors and self._chance.random() < self.follow:
            text = following(self._chance, self._chance.choice(self._factors), text)
        self.made.append((name, text))
        self._factors.append(name)
        return name

    def _new_integer(self, low: int, high: int) -> str:
        return changing_integer(self._chance, low, high)

    def _new_factor(self) -> str:
        return changing_factor(self._chance)


class _RecurringNumbers(_Numbers):
    """The numbers of a short loop: more often one is equal to another one for a while."""

    follow = 0.5

    def _new_integer(self, low: int, high: int) -> str:
        return recurring_integer(self._chance, low, high)

    def _new_factor(self) -> str:
        lengths = [name for name, (low, _) in self._bounds.items() if low > 0]
        return recurring_factor(self._chance, lengths)


def drawn_loop(chance: random.Random) -> Loop:
    """A loop."""
    while True:
        loop = _drawn(chance)
        if loop is not None:
            return loop


def drawn_short_loop(chance: random.Random) -> Loop:
    """A loop of few statements, whose numbers come back."""
    while True:
        loop = _drawn_short(chance)
        if loop is not None:
            return loop


def _drawn(chance: random.Random) -> Loop | None:
    numbers = _Numbers(chance)
    steps = chance.choice((30, 45, 60, 60, 100, 150))
    states = chance.sample(_STATES, chance.randint(1, 4))
    states = list(dict.fromkeys(["m0", *states])) if chance.random() < 0.6 else states
    kinds = _chosen(chance)
    if "p0" in states:
        kinds += [kind for kind in STATEMENTS.values() if "p" in kind.takes]
    wanted = min(chance.randint(3, _MOST_STATEMENTS), chance.randint(3, _MOST_STATEMENTS))
    loop = _grown(chance, Loop((), (), (), steps), numbers, states, kinds, wanted, _SAMPLED)
    if len(loop.statements) < 3:
        return None
    within = chance.choices(("", "function", "threads"), (0.6, 0.33, 0.07))[0]
    return _sound(replace(loop, reads=_reads(chance, loop), within=within))


def _drawn_short(chance: random.Random) -> Loop | None:
    numbers = _RecurringNumbers(chance)
    kinds = _few_kinds(chance)
    states = _few_states(chance, kinds)
    loop = Loop((), (), (), chance.choice((16, 24, 32, 40)))
    within = chance.choices(("", "function", "interleaved"), (0.7, 0.15, 0.15))[0]
    # Given values are made or picked before anything is computed with them.
    first = [*_SOURCES, *[STATEMENTS[name] for name in _PICKS]]
    loop = _grown(chance, loop, numbers, states, first, chance.choice((0, 1, 1, 2, 2)), 1)
    made = [each.target for each in loop.statements]
    if not within and chance.random() < 0.2:
        loop = replace(loop, captured_from=len(made))
        kinds = [kind for kind in kinds if is_capturable(kind.name) and "p" not in kind.takes]
    if len(made) == 2 and chance.random() < 0.4:
        pairs = [kind for kind in _PAIRS if loop.captured_from is None or is_capturable(kind.name)]
        loop = _grown(chance, loop, numbers, (), pairs, 3, 1)
    wanted = len(loop.statements) + chance.choice((2, 3, 3, 4, 5))
    loop = _grown(chance, loop, numbers, states, kinds, min(wanted, _MOST_OF_SHORT), 1)
    if len(loop.statements) < _MOST_OF_SHORT and chance.random() < 0.3:
        loop = _with_twin(chance, loop)
    if len(loop.statements) < 2 or loop.is_still():
        return None
    return _sound(replace(loop, reads=_reads(chance, loop), within=within))


def _with_twin(chance: random.Random, loop: Loop) -> Loop:
    """The loop with one of its statements once more, of another value: what was noted of the first
    may be taken for that.
    """
    ones = [each for each in loop.statements if len(each.args) == 1 and each.target[0] == "v"]
    if not ones:
        return loop
    first, ran = chance.choice(ones), Steps(loop)
    own = ran.of(first.args[0])
    names = [each.target for each in loop.statements]
    seen = [ran.of(name) for name in names if name not in (first.target, first.args[0])]
    # Its numbers were drawn for values of such shapes.
    others = [
        each.name
        for each in seen
        if own and each and each.shapes == own.shapes and each.kind == own.kind
    ]
    if not others:
        return loop
    twin = replace(first, args=(chance.choice(others),), target=f"v{len(loop.statements)}")
    longer = replace(loop, statements=(*loop.statements, twin))
    try:
        Steps(longer)
    except ValueError:
        return loop
    return longer


def _few_kinds(chance: random.Random) -> list[StatementKind]:
    """Statements of a short loop."""
    if chance.random() < 0.75:
        return of_a_theme(chance)
    kinds = chance.sample(list(STATEMENTS.values()), chance.choice((1, 2, 3)))
    kinds += chance.sample(STATEFUL, chance.choice((1, 1, 2, 3)))
    kinds += [STATEMENTS[name] for name in _PLAIN if chance.random() < 0.3]
    return kinds


def _few_states(chance: random.Random, kinds: Sequence[StatementKind]) -> list[str]:
    """Values before the first step: those that the statements need, and others."""
    states = chance.sample(_STATES, chance.choice((0, 1, 1)))
    if chance.random() < 0.15:
        # Two of one shape.
        states += ["s0", "s3"]
    if any("p" in kind.takes for kind in kinds):
        states.append("p0")
    if any(kind.is_write or kind.changes for kind in kinds):
        states.append(chance.choice(_WRITTEN))
    return list(dict.fromkeys(states)) or [chance.choice(_STATES)]


def _grown(
    chance: random.Random,
    loop: Loop,
    numbers: _Numbers,
    states: Sequence[str],
    kinds: Sequence[StatementKind],
    wanted: int,
    every: int,
) -> Loop:
    """The loop with statements of `kinds` until it has as many as wanted, if that comes soon."""
    ran = Steps(loop, every=every)
    for _ in range(_MOST_TRIES if kinds else 0):
        if len(loop.statements) >= wanted:
            break
        names = [*states, *dict.fromkeys([each.target for each in loop.statements])]
        known = [each for name in names if (each := ran.of(name)) is not None]
        statement = _next(chance, numbers, kinds, known, len(loop.statements))
        if statement is None:
            continue
        statements = (*loop.statements, statement)
        longer = replace(loop, statements=statements, numbers=tuple(numbers.made))
        try:
            ran = Steps(longer, every=every)
        except ValueError:
            continue
        loop = longer
    return loop


def _sound(loop: Loop) -> Loop | None:
    """The loop, if NumPy can say what it gives."""
    writes = [each for each in loop.statements if STATEMENTS[each.kind].is_write]
    bound = {each.target for each in writes if each.kind in BOUND}
    captured = {each.target for each in writes if each.kind.startswith("captured_")}
    if bound & captured:
        # A captured function that writes to what is made anew again and again is refused.
        return None
    try:
        loop.lines("loops")
    except ValueError:
        return None
    return loop


def _chosen(chance: random.Random) -> list[StatementKind]:
    """Some kinds of statements: with few a loop has pairs that one with all kinds hardly has."""
    kinds = list(STATEMENTS.values())
    if chance.random() < 0.3:
        return kinds
    sources = [kind for kind in kinds if not kind.takes]
    others = [kind for kind in kinds if kind.takes]
    common = [STATEMENTS[name] for name in _COMMON if chance.random() < 0.5]
    return [*common, *chance.sample(sources, 3), *chance.sample(others, chance.choice((8, 16, 40)))]


def _next(
    chance: random.Random,
    numbers: _Numbers,
    kinds: Sequence[StatementKind],
    known: Sequence[Seen],
    number: int,
) -> Statement | None:
    (kind,) = chance.choices(kinds, [kind.weight for kind in kinds])
    given: list[Seen] = []
    for at, takes in enumerate(kind.takes):
        fit = [each for each in known if each.kind in takes]
        if (kind.is_write or kind.changes) and not at:
            fit = [each for each in fit if each.is_state and each.name not in ("m1", "m2")]
        if at:
            fit = [each for each in fit if _suit(kind, given[0], each)] or fit
        if not fit:
            return None
        # Values just made more often, and now and then one twice.
        weights = [1.0 + 2.0 * index / len(fit) for index in range(len(fit))]
        given += chance.choices(fit, weights)
    try:
        params = kind.draw(chance, numbers, given)
    except IndexError:
        return None
    if params is None:
        return None
    args = tuple([each.name for each in given])
    target = args[0] if kind.is_write else f"v{number}"
    return Statement(kind.name, args, params, target)


def _suit(kind: StatementKind, first: Seen, other: Seen) -> bool:
    """Whether two values suit each other, as far as the last step says."""
    shapes = first.shapes[-1], other.shapes[-1]
    if kind.is_alike:
        return shapes[0] == shapes[1]
    if kind.is_write:
        return len(shapes[0]) > len(shapes[1])
    return all(m == n or 1 in (m, n) for m, n in zip(shapes[0][::-1], shapes[1][::-1]))


def _reads(chance: random.Random, loop: Loop) -> tuple[Read, ...]:
    """Names that are read: values that nothing else takes, states, and a few others, in any
    order.
    """
    taken = {name for each in loop.statements for name in each.args}
    made = list(dict.fromkeys([each.target for each in loop.statements]))
    found = [name for name in made if name not in taken or name in NAMES]
    rest = [name for name in made if name not in found]
    found += chance.sample(rest, min(len(rest), chance.choice((0, 0, 1, 2))))
    if chance.random() < 0.3:
        found = chance.sample(found, 1)
    chance.shuffle(found)
    rare = chance.choice((1, 1, 1, 1, 1, 2, 3, 7))
    every = [0 if chance.random() < 0.15 else rare for _ in found]
    return tuple([Read(name, step) for name, step in zip(found, every)])
