# ruff: noqa: E501 - lines of a file that is written
"""Cases of another form: eager loops with a state, whose lengths, positions, numbers and branches
change from step to step.

What a loop did once is remembered for the next step: templates of calls, segments of calls, plans
for ranges of sizes, numbers that became variables. A mistake there shows only after steps that are
alike, in one that differs. So the body of a loop is a few statements, and all that a statement may
see changes in patterns of its own. Each statement is written twice, with tensors and with NumPy in
float64, and what NumPy's line gives is compared at every step.
"""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any

from tilegrad.tools.fuzz.changing import (
    changing_factor,
    changing_integer,
    following,
    plainer,
)
from tilegrad.tools.fuzz.modes import MODES
from tilegrad.tools.fuzz.statements import BOUND, STATEMENTS, Seen, StatementKind

__all__ = ["Loop", "drawn_loop"]

_DATA = "data = lambda k, shape, more=0: (np.random.default_rng(k * 64 + more).integers(-16, 17, shape) / 8).astype('f4')"
# What is there before the first step: the lines with tensors and with NumPy.
_SETUP = {
    "m0": ("m0 = Tensor(data(900, (70, 4))).realize()", "M0 = data(900, (70, 4)).astype('f8')"),
    "m1": ("m1 = Tensor(data(901, (5, 60))).realize().T", "M1 = data(901, (5, 60)).T.astype('f8')"),
    "m2": ("m2 = Tensor(data(902, (3, 9, 4)))[1]", "M2 = data(902, (3, 9, 4))[1].astype('f8')"),
    "s0": ("s0 = Tensor(data(903, (6, 4)))", "S0 = data(903, (6, 4)).astype('f8')"),
    "s1": ("s1 = Tensor.zeros(4).contiguous()", "S1 = np.zeros(4)"),
    "s2": ("s2 = Tensor(data(905, (2, 5, 4)))[1]", "S2 = data(905, (2, 5, 4))[1].astype('f8')"),
    "p0": (
        "p0 = Tensor(data(906, (4,))).requires_grad_(); o0 = optim.SGD([p0], lr=0.125, momentum=0.5)",
        "P0 = data(906, (4,)).astype('f8'); B0 = np.zeros(4)",
    ),
    "twice": ("twice = jit(lambda x: (x * 2).tanh() + x)", "TWICE = lambda x: np.tanh(x * 2) + x"),
    "mixed": (
        "mixed = jit(lambda x, y: (x * y).sum(-1) + y.mean())",
        "MIXED = lambda x, y: (x * y).sum(-1) + y.mean()",
    ),
    "scaled": ("scaled = jit(lambda x, c: x * c + 1)", "SCALED = lambda x, c: x * c + 1"),
    "drawn": ("drawn = [Tensor.zeros(9)]", "pass"),
    "picked": (
        "picked = jit(lambda x, i: (x[i] * 2 + x[0], x.sum(0)))",
        "PICKED = lambda x, i: (x[i] * 2 + x[0], x.sum(0))",
    ),
    "sloped": (
        "sloped = jit(lambda x, y: (x * y).sin().sum().gradient(x)[0])",
        "SLOPED = lambda x, y: np.cos(x * y) * y",
    ),
    "seen": ("seen = jit(lambda x: (s0 * 2)[:1] + x)", "SEEN = lambda x: (S0 * 2)[:1] + x"),
    "wrote": (
        "wrote = jit(lambda x: (s1.assign(s1 * 0.5 + x), x * s1)[1])",
        "WROTE = lambda x: (S1.__setitem__(..., S1 * 0.5 + x), x * S1)[1]",
    ),
    "viewed": (
        "viewed = jit(lambda x: (x.T, x[0], x * 2))",
        "VIEWED = lambda x: (x.T, x[0, ...], x * 2)",
    ),
    "lowered": (
        "lowered = jit(lambda x, y: (x.mul_(0.5), x[0] + y)[1])",
        "LOWERED = lambda x, y: (np.multiply(x, 0.5, x), x[0] + y)[1]",
    ),
}
_CHECK = (
    "def check(k, f, w, atol): f = f.numpy(); w = np.asarray(w); assert f.dtype.kind == w.dtype.kind, (k, f.dtype, w.dtype); "
    "np.testing.assert_allclose(f, w.astype(f.dtype), 1e-5, atol, err_msg=f'step {k}', strict=True)"
)
_NO_LOOP = (
    ValueError, IndexError, TypeError, KeyError, NameError, AttributeError, ArithmeticError,
    AssertionError,
)  # fmt: skip
_WORD = re.compile(r"[a-z]\w*")
_LARGEST = 1e3
_MOST_ELEMENTS = 3000
# Rounding of each value, relative to it, in the runs that say how far errors grow.
_ROUNDING = 2.0**-22
_MOST_ERROR = 0.01
_MOST_STATEMENTS, _MOST_TRIES = 12, 100
# While a loop is drawn some of its steps are enough.
_SAMPLED = 5
# What most loops have.
_COMMON = (
    "new", "new_of_one_size", "row", "slice", "sum", "product", "times", "beside_mean",
    "captured_view_of_what_changes",
)  # fmt: skip


@dataclass(frozen=True)
class Statement:
    """A statement: a kind, the names of the values that it takes, the numbers, and what its value
    is called.
    """

    kind: str
    args: tuple[str, ...]
    params: tuple[str, ...]
    target: str

    def line(self, is_numpys: bool) -> str:
        """The line with tensors, or with NumPy."""
        kind = STATEMENTS[self.kind]
        names = [each.upper() if is_numpys else each for each in (self.target, *self.args)]
        text = (kind.numpys if is_numpys else "") or kind.line
        made = text.format(**dict(zip("abc", names[1:])), **dict(zip("pqr", self.params)))
        return made if kind.is_write and self.kind not in BOUND else f"{names[0]} = {made}"


@dataclass(frozen=True)
class Read:
    """A value that is read: at every step, at each `every`th, or after the loop if that is 0."""

    name: str
    every: int = 1


@dataclass(frozen=True)
class Loop:
    """The body of a loop, and how often it runs.

    Attributes:
        statements: the body.
        numbers: names of numbers and, as expressions of the step `k`, their values.
        reads: what is read in a step, in this order.
        steps: how many there are.
        within: "function" where the loop stands in one, "threads" where several threads run that.
    """

    statements: tuple[Statement, ...]
    numbers: tuple[tuple[str, str], ...]
    reads: tuple[Read, ...]
    steps: int
    within: str = ""

    def lines(self, mode: str) -> list[str]:
        """A file that fails. Raises ValueError for what is no loop."""
        allowed = _allowed_errors(self)
        switches = MODES[mode].switches
        setup = [each for name in self._needed_setup() for each in _SETUP[name]]
        names = ["Tensor"]
        text = "; ".join([*setup, *[each.line(is_numpys=False) for each in self.statements]])
        names += [name for name in ("jit", "no_grad") if f"{name}(" in text]
        imports = f"import os; os.environ.update({switches}); " if switches else ""
        imports += f"import numpy as np; from tilegrad import {', '.join(names)}"
        if "optim." in text:
            imports += "; from tilegrad.nn import optim"
        numbers = [f"{name} = {value}" for name, value in self._needed_numbers()]
        now, later = [
            [
                f"({read.name}, {read.name.upper()}, {atol:.1e})"
                for read, atol in zip(self.reads, allowed, strict=True)
                if bool(read.every) is is_now
            ]
            for is_now in (True, False)
        ]
        rare = {read.every for read in self.reads if read.every > 1}
        when = f" if k % {min(rare)} == {min(rare) - 1} else ()" if rare else ""
        ours, theirs = [
            "; ".join([each.line(is_numpys) for each in self.statements])
            for is_numpys in (False, True)
        ]
        body = ["; ".join([*numbers, ours]), theirs]
        if later:
            body[1] += f"; later += [{', '.join([_copied(each) for each in later])}]"
        if now:
            body.append(f"for each in ({', '.join(now)},){when}: check(k, *each)")
        loop = ["; ".join([*setup, "later = []"]), f"for k in range({self.steps}):"]
        loop += [f"    {each}" for each in body]
        loop += ["for each in later: check(k, *each)"] if later else []
        lines = [f"{imports}; {_DATA}", _CHECK]
        if not self.within:
            return [*lines, *loop]
        lines += ["def run(number):", *[f"    {each}" for each in loop]]
        if self.within == "function":
            return [*lines, "run(0)"]
        lines[-len(loop) - 3] += "; from concurrent.futures import ThreadPoolExecutor"
        return [*lines, "list(ThreadPoolExecutor(3).map(run, range(3)))"]

    def smaller(self) -> Iterator[Loop]:
        """Simpler cases."""
        if self.within:
            yield replace(self, within="")
        if self.within == "threads":
            yield replace(self, within="function")
        for steps in (3, 6, 12, 25, 50):
            if steps < self.steps:
                yield replace(self, steps=steps)
        if self.steps > 3:
            yield replace(self, steps=self.steps - 1)
        for read in self.reads:
            if len(self.reads) > 1:
                yield _cut(replace(self, reads=(read,)))
        if any(read.every != 1 for read in self.reads):
            yield replace(self, reads=tuple([Read(read.name) for read in self.reads]))
        for at in range(len(self.statements) - 1, -1, -1):
            left = self.statements[:at] + self.statements[at + 1 :]
            yield _cut(replace(self, statements=left))
            # Another value instead of the one that is made.
            for name in self.statements[at].args:
                yield _cut(
                    _renamed(replace(self, statements=left), self.statements[at].target, name)
                )
        for number, (name, text) in enumerate(self.numbers):
            for value in plainer(text):
                numbers = (*self.numbers[:number], (name, value), *self.numbers[number + 1 :])
                yield replace(self, numbers=numbers)

    def kind(self) -> str:
        """Failures of one kind are reported once."""
        return f"loop {[each.kind for each in self.statements]}"

    def _needed_setup(self) -> list[str]:
        used = {name for each in self.statements for name in (*each.args, each.target)}
        used |= {read.name for read in self.reads}
        for each in self.statements:
            used |= set(_WORD.findall(each.line(is_numpys=False)))
        for name in [name for name in _SETUP if name in used]:
            used |= set(_WORD.findall(_SETUP[name][0]))
        return [name for name in _SETUP if name in used]

    def _needed_numbers(self) -> list[tuple[str, str]]:
        used = {param for each in self.statements for param in each.params}
        # A number may follow one that comes before it.
        for name, text in reversed(self.numbers):
            if name in used:
                used.add(text.partition(" ")[0])
        return [each for each in self.numbers if each[0] in used]


def _copied(read: str) -> str:
    """What is read, in memory that nobody writes to."""
    ours, theirs, allowed = read[1:-1].split(", ")
    return f"({ours} * 1, {theirs} * 1, {allowed})"


def _renamed(loop: Loop, name: str, other: str) -> Loop:
    def new(each: str) -> str:
        return other if each == name else each

    statements = [
        replace(each, args=tuple(map(new, each.args)), target=new(each.target))
        for each in loop.statements
    ]
    reads = dict.fromkeys([replace(read, name=new(read.name)) for read in loop.reads])
    return replace(loop, statements=tuple(statements), reads=tuple(reads))


def _cut(loop: Loop) -> Loop:
    """The loop without the values that nothing needs, and reads of what is not there."""
    made = {each.target for each in loop.statements}
    reads = tuple([read for read in loop.reads if read.name in made or read.name in _SETUP])
    needed = {read.name for read in reads}
    statements: list[Statement] = []
    for each in reversed(loop.statements):
        kind = STATEMENTS[each.kind]
        if each.target in needed or kind.is_write or kind.changes:
            statements.insert(0, each)
            needed.update(each.args)
    return replace(loop, statements=tuple(statements), reads=reads)


class _Steps:
    """The loop with NumPy.

    Attributes:
        seen: by name the shapes and kinds of a value, in all steps.
        results: for each step the values that are read.
    """

    def __init__(self, loop: Loop, seed: int | None = None, every: int = 1):
        import numpy as np

        self.seen: dict[str, tuple[list[tuple[int, ...]], set[str]]] = {}
        self.results: list[list[Any]] = []
        self._random = None if seed is None else np.random.default_rng(seed)
        names: dict[str, Any] = {"np": np}
        with np.errstate(all="ignore"):
            try:
                exec(_code("; ".join([_DATA, *[each for _, each in _SETUP.values()]])), names)
                for k in range(0, loop.steps, every):
                    self._step(loop, k, names)
            except _NO_LOOP as error:
                raise ValueError(str(error)) from None

    def _step(self, loop: Loop, k: int, names: dict[str, Any]) -> None:
        names["k"] = k
        for name in _SETUP:
            self._note(name, names)
        for name, text in loop.numbers:
            names[name] = eval(_value(text), names)
        for each in loop.statements:
            exec(_code(each.line(is_numpys=True)), names)
            self._check(each.target, names)
        self.results.append([names[read.name.upper()] * 1 for read in loop.reads])

    def _check(self, name: str, names: dict[str, Any]) -> None:
        """Look at a value, and round it as another program might."""
        import numpy as np

        value = np.asarray(names[name.upper()])
        if not 0 < value.size <= _MOST_ELEMENTS:
            raise ValueError("too many elements, or none")
        if value.dtype.kind != "b" and not abs(value).max() <= _LARGEST:
            raise ValueError("too large numbers")
        if self._random is not None and value.dtype.kind == "f":
            noise = 1 + _ROUNDING * self._random.uniform(-1, 1, value.shape)
            if value.base is None and value.ndim:
                value *= noise
            elif value.base is None:
                names[name.upper()] = value * noise
        self._note(name, names)

    def _note(self, name: str, names: Mapping[str, Any]) -> None:
        value = names.get(name.upper())
        if value is None or callable(value):
            return
        shapes, kinds = self.seen.setdefault(name, ([], set()))
        shapes.append(getattr(value, "shape", ()))
        dtype = getattr(value, "dtype", None)
        kinds.add("p" if name == "p0" else dtype.kind if dtype is not None else "?")

    def of(self, name: str) -> Seen | None:
        """What a value was; None if that was of several kinds."""
        shapes, kinds = self.seen[name]
        if len(kinds) != 1:
            return None
        (kind,) = kinds
        return Seen(name, tuple(shapes), kind, is_state=name in _SETUP)


@functools.lru_cache(4096)
def _code(text: str) -> CodeType:
    return compile(text, "<loop>", "exec")


@functools.lru_cache(4096)
def _value(text: str) -> CodeType:
    return compile(text, "<number>", "eval")


def _allowed_errors(loop: Loop) -> list[float]:
    """How far what is read may be from what NumPy says, by two runs with other rounding."""
    import numpy as np

    if not loop.statements or not loop.reads:
        raise ValueError("nothing is read")
    for each in loop.statements:
        for name, takes in zip(each.args, STATEMENTS[each.kind].takes):
            if (name == "p0") is not (takes == "p"):
                raise ValueError("a parameter, or none")
    exact = _Steps(loop).results
    others = [_Steps(loop, seed).results for seed in (1, 2)]
    found: list[float] = []
    for at in range(len(loop.reads)):
        most, largest = 0.0, 0.0
        for step, values in enumerate(exact):
            value = np.asarray(values[at], "f8")
            largest = max(largest, float(abs(value).max()))
            for other in others:
                rounded = np.asarray(other[step][at], "f8")
                if rounded.shape != value.shape:
                    raise ValueError("rounding decides about shapes")
                most = max(most, float(abs(rounded - value).max()))
        allowed = 8 * most + 1e-6 * (1 + largest)
        if not allowed <= _MOST_ERROR * (1 + largest):
            raise ValueError("nothing is left of the digits")
        found.append(allowed)
    return found


class _Numbers:
    """The numbers of a loop that is drawn."""

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
        name, text = f"n{len(self.made)}", changing_integer(self._chance, low, high)
        if fit and self._chance.random() < 0.3:
            text = following(self._chance, self._chance.choice(fit), text)
        self.made.append((name, text))
        self._bounds[name] = low, high
        return name

    def factor(self) -> str:
        """The name of a number of any kind."""
        name, text = f"n{len(self.made)}", changing_factor(self._chance)
        if self._factors and self._chance.random() < 0.3:
            text = following(self._chance, self._chance.choice(self._factors), text)
        self.made.append((name, text))
        self._factors.append(name)
        return name


def drawn_loop(chance: random.Random) -> Loop:
    """A loop."""
    while True:
        loop = _drawn(chance)
        if loop is not None:
            return loop


def _drawn(chance: random.Random) -> Loop | None:
    numbers = _Numbers(chance)
    steps = chance.choice((30, 45, 60, 60, 100, 150))
    loop = Loop((), (), (), steps)
    states = chance.sample([name for name in _SETUP if name[1:].isdigit()], chance.randint(1, 4))
    states = list(dict.fromkeys(["m0", *states])) if chance.random() < 0.6 else states
    kinds = _chosen(chance)
    if "p0" in states:
        kinds += [kind for kind in STATEMENTS.values() if "p" in kind.takes]
    wanted = min(chance.randint(3, _MOST_STATEMENTS), chance.randint(3, _MOST_STATEMENTS))
    known: list[Seen] = []
    ran = _Steps(loop, every=_SAMPLED)
    for _ in range(_MOST_TRIES):
        if len(loop.statements) >= wanted:
            break
        names = [*states, *dict.fromkeys([each.target for each in loop.statements])]
        known = [each for name in names if (each := ran.of(name)) is not None]
        statement = _next(chance, numbers, kinds, known, len(loop.statements))
        if statement is None:
            continue
        longer = replace(
            loop, statements=(*loop.statements, statement), numbers=tuple(numbers.made)
        )
        try:
            ran = _Steps(longer, every=_SAMPLED)
        except ValueError:
            continue
        loop = longer
    if len(loop.statements) < 3:
        return None
    within = chance.choices(("", "function", "threads"), (0.6, 0.33, 0.07))[0]
    loop = replace(loop, reads=_reads(chance, loop), within=within)
    try:
        _allowed_errors(loop)
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
    """What is read: what nothing else takes, states, and a few others, in any order."""
    taken = {name for each in loop.statements for name in each.args}
    made = list(dict.fromkeys([each.target for each in loop.statements]))
    found = [name for name in made if name not in taken or name in _SETUP]
    rest = [name for name in made if name not in found]
    found += chance.sample(rest, min(len(rest), chance.choice((0, 0, 1, 2))))
    if chance.random() < 0.3:
        found = chance.sample(found, 1)
    chance.shuffle(found)
    rare = chance.choice((1, 1, 1, 3, 7))
    every = [0 if chance.random() < 0.15 else rare for _ in found]
    return tuple([Read(name, step) for name, step in zip(found, every)])
