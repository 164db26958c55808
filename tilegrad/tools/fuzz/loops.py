# ruff: noqa: E501 - lines of a file that is written
"""Cases of another form: eager loops with a state, whose lengths, positions, numbers and branches
change from step to step.

State of one step is remembered for the next: templates of calls, segments of calls, plans for
ranges of sizes, numbers that became variables. A mistake there shows only after steps that are
alike, in one that differs. So the body of a loop is a few statements, and all that a statement may
see changes in patterns of its own. Each statement is written twice, with tensors and with NumPy in
float64, and what NumPy's line gives is compared at every step.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any

from tilegrad.tools.fuzz.changing import plainer
from tilegrad.tools.fuzz.modes import MODES
from tilegrad.tools.fuzz.statements import BOUND, STATEMENTS, Seen

__all__ = ["NAMES", "Loop", "Read", "Statement", "Steps", "allowed_errors", "is_capturable"]

_DATA = "data = lambda k, shape, more=0: (np.random.default_rng(k * 64 + more).integers(-16, 17, shape) / 8).astype('f4')"
# State before the first step: the lines with tensors and with NumPy.
_SETUP = {
    "m0": ("m0 = Tensor(data(900, (70, 4))).realize()", "M0 = data(900, (70, 4)).astype('f8')"),
    "m1": ("m1 = Tensor(data(901, (5, 60))).realize().T", "M1 = data(901, (5, 60)).T.astype('f8')"),
    "m2": ("m2 = Tensor(data(902, (3, 9, 4)))[1]", "M2 = data(902, (3, 9, 4))[1].astype('f8')"),
    "s0": ("s0 = Tensor(data(903, (6, 4)))", "S0 = data(903, (6, 4)).astype('f8')"),
    "s1": ("s1 = Tensor.zeros(4).contiguous()", "S1 = np.zeros(4)"),
    "s2": ("s2 = Tensor(data(905, (2, 5, 4)))[1]", "S2 = data(905, (2, 5, 4))[1].astype('f8')"),
    "s3": ("s3 = Tensor(data(907, (6, 4)))", "S3 = data(907, (6, 4)).astype('f8')"),
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
    "kept": ("kept = []", "KEPT = []"),
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
NAMES = tuple(_SETUP)
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
# Names that a captured function cannot have: the step, reads, random numbers, an optimizer.
_NOT_CAPTURED = re.compile(r"\bk\b|item\(|numpy\(|np\.|data\(|0625\]|drawn|kept|rand|o0|realize")


def is_capturable(kind: str) -> bool:
    """Whether a statement may stand in a captured function."""
    return _NOT_CAPTURED.search(STATEMENTS[kind].line) is None


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
        within: "function" where the loop stands in one, "threads" where several threads run that,
            "interleaved" where two such functions take steps by turns.
        captured_from: the statement from which on the body is a captured function, if it has one.
    """

    statements: tuple[Statement, ...]
    numbers: tuple[tuple[str, str], ...]
    reads: tuple[Read, ...]
    steps: int
    within: str = ""
    captured_from: int | None = None

    @property
    def firsts(self) -> tuple[int, ...]:
        """The first step of each run of the loop."""
        return (0, 3) if self.within == "interleaved" else (0,)

    def lines(self, mode: str) -> list[str]:
        """A file that fails. Raises ValueError for what is no loop."""
        allowed = allowed_errors(self)
        setup = [each for name in self._needed_setup() for each in _SETUP[name]]
        ours, function = self._ours()
        setup += ["later = []", *(["f = jit(f)"] if function else [])]
        text = "; ".join([*setup, ours, *function])
        lines = [f"{self._imports(text, mode)}; {_DATA}", _CHECK]
        body, after = self._body(ours, allowed)
        if not self.within:
            lines += [*function, "; ".join(setup), f"for k in range({self.steps}):"]
            return [*lines, *[f"    {each}" for each in body], *after]
        if function:
            raise ValueError("a captured function in a function")
        loop = ["; ".join(setup), f"for k in range(first, {self.steps}):"]
        if self.within == "interleaved":
            body[0] = f"yield; {body[0]}"
        loop += [*[f"    {each}" for each in body], *after]
        lines += ["def run(first):", *[f"    {each}" for each in loop]]
        if self.within == "function":
            return [*lines, "run(0)"]
        if self.within == "interleaved":
            lines[0] += "; from itertools import zip_longest"
            runs = ", ".join([f"run({first})" for first in self.firsts])
            return [*lines, f"list(zip_longest({runs}))"]
        lines[0] += "; from concurrent.futures import ThreadPoolExecutor"
        return [*lines, "list(ThreadPoolExecutor(3).map(run, [0, 0, 0]))"]

    def _imports(self, text: str, mode: str) -> str:
        switches = MODES[mode].switches
        names = ["Tensor", *[name for name in ("jit", "no_grad") if f"{name}(" in text]]
        imports = f"import os; os.environ.update({switches}); " if switches else ""
        imports += f"import numpy as np; from tilegrad import {', '.join(names)}"
        return imports + ("; from tilegrad.nn import optim" if "optim." in text else "")

    def _ours(self) -> tuple[str, list[str]]:
        """A step with tensors, and the line of the captured function, if there is one."""
        lines = [each.line(is_numpys=False) for each in self.statements]
        if (at := self.captured_from) is None:
            return "; ".join(lines), []
        made: set[str] = set()
        given: dict[str, None] = {}
        for each in self.statements[at:]:
            given.update(dict.fromkeys([name for name in each.args if name not in made]))
            if each.kind not in BOUND and STATEMENTS[each.kind].is_write:
                continue
            made.add(each.target)
        if not given or not made.intersection([read.name for read in self.reads]):
            raise ValueError("a captured function takes something, and something of it is read")
        # A capture that launches nothing is refused, so something is computed in any case.
        first = next(iter(given))
        numbers = dict.fromkeys([p for each in self.statements[at:] for p in each.params])
        args = ", ".join([*given, *[p for p in numbers if p in dict(self.numbers)]])
        found = [read.name for read in self.reads if read.name in made]
        found += [name for name in _SETUP if name in made and name not in found]
        results = ", ".join([*found, f"{first} * 3"])
        function = "; ".join([*lines[at:], f"return {results}"])
        call = f"{', '.join([*found, '_'])} = f({args})"
        return "; ".join([*lines[:at], call]), [f"def f({args}): {function}"]

    def _body(self, ours: str, allowed: Sequence[float]) -> tuple[list[str], list[str]]:
        """The lines of a step, and what comes after the loop."""
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
        theirs = "; ".join([each.line(is_numpys=True) for each in self.statements])
        body = ["; ".join([*numbers, ours]), theirs]
        if later:
            body[1] += f"; later += [{', '.join([_copied(each) for each in later])}]"
        if now:
            body.append(f"for each in ({', '.join(now)},){when}: check(k, *each)")
        return body, ["for each in later: check(k, *each)"] if later else []

    def smaller(self) -> Iterator[Loop]:
        """Simpler cases."""
        if self.within:
            yield replace(self, within="")
        if self.within in ("threads", "interleaved"):
            yield replace(self, within="function")
        if self.captured_from is not None:
            yield replace(self, captured_from=None)
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
            left = _without(self, at)
            yield _cut(left)
            # Another value instead of the one that is made.
            for name in self.statements[at].args:
                yield _cut(_renamed(left, self.statements[at].target, name))
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

    def is_still(self) -> bool:
        """Whether all steps are the same."""
        kinds = [STATEMENTS[each.kind] for each in self.statements]
        if any(kind.is_write or kind.changes or not kind.takes for kind in kinds):
            return False
        return not any("k" in text for _, text in self._needed_numbers())

    def _needed_numbers(self) -> list[tuple[str, str]]:
        used = {param for each in self.statements for param in each.params}
        # A number may be made of those that come before it.
        for name, text in reversed(self.numbers):
            if name in used:
                used |= set(_WORD.findall(text))
        return [each for each in self.numbers if each[0] in used]


def _copied(read: str) -> str:
    """The values that are read, in memory that is never written."""
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


def _without(loop: Loop, at: int) -> Loop:
    """The loop without a statement."""
    first = loop.captured_from
    if first is not None and at < first:
        first -= 1
    statements = loop.statements[:at] + loop.statements[at + 1 :]
    return replace(loop, statements=statements, captured_from=first)


def _cut(loop: Loop) -> Loop:
    """The loop without unused values and without reads of values that are gone."""
    made = {each.target for each in loop.statements}
    reads = tuple([read for read in loop.reads if read.name in made or read.name in _SETUP])
    needed = {read.name for read in reads}
    for at in range(len(loop.statements) - 1, -1, -1):
        each = loop.statements[at]
        kind = STATEMENTS[each.kind]
        if each.target in needed or kind.is_write or kind.changes:
            needed.update(each.args)
        else:
            loop = _without(loop, at)
    return replace(loop, reads=reads)


class Steps:
    """The loop with NumPy.

    Attributes:
        seen: by name the shapes and kinds of a value, in all steps.
        results: for each step the values that are read.
    """

    def __init__(self, loop: Loop, seed: int | None = None, every: int = 1, first: int = 0):
        import numpy as np

        self.seen: dict[str, tuple[list[tuple[int, ...]], set[str]]] = {}
        self.results: list[list[Any]] = []
        self._random = None if seed is None else np.random.default_rng(seed)
        names: dict[str, Any] = {"np": np}
        with np.errstate(all="ignore"):
            try:
                exec(_code("; ".join([_DATA, *[each for _, each in _SETUP.values()]])), names)
                for k in range(first, loop.steps, every):
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
        """The kind and shapes of a value; None if it was of several kinds."""
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


def allowed_errors(loop: Loop) -> list[float]:
    """How far what is read may be from what NumPy says, by two runs with other rounding."""
    if not loop.statements or not loop.reads:
        raise ValueError("nothing is read")
    for each in loop.statements:
        for name, takes in zip(each.args, STATEMENTS[each.kind].takes):
            if (name == "p0") is not (takes == "p"):
                raise ValueError("a parameter, or none")
    found = [0.0] * len(loop.reads)
    for first in loop.firsts:
        exact = Steps(loop, first=first).results
        others = [Steps(loop, seed, first=first).results for seed in (1, 2)]
        for at in range(len(loop.reads)):
            found[at] = max(found[at], _allowed_error(exact, others, at))
    return found


def _allowed_error(
    exact: Sequence[Sequence[Any]], others: Sequence[Sequence[Sequence[Any]]], at: int
) -> float:
    """The same of one value that is read."""
    import numpy as np

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
    return allowed
