"""Programs that are simpler than a program: the first ones by most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tilegrad.tools.fuzz.instructions import INSTRUCTIONS, VIEW_NAMES, WRITE_NAMES
from tilegrad.tools.fuzz.meaning import meaning
from tilegrad.tools.fuzz.program import Program, Step, needed

__all__ = ["simpler"]


def _cut(program: Program) -> Program:
    return needed(program, VIEW_NAMES, WRITE_NAMES)


def simpler(program: Program) -> Iterator[Program]:
    """Some of them are no programs."""
    last = len(program.steps) - 1
    if program.threads:
        yield replace(program, threads=False)
    if program.given != "data":
        yield replace(program, given="data")
    if program.growing:
        yield replace(program, growing=0)
    if program.with_gradients:
        yield replace(program, with_gradients=False)
    for calls in range(1, program.calls):
        yield replace(program, calls=calls)
    for number in range(last + 1):
        if program.reads != (number,):
            smaller = _cut(replace(program, reads=(number,)))
            if len(smaller.steps) < last + 1:
                yield smaller
    for number in program.reads:
        if len(program.reads) > 1:
            yield _cut(replace(program, reads=(number,)))
            left = tuple([each for each in program.reads if each != number])
            yield _cut(replace(program, reads=left))
    for number in range(last, -1, -1):
        for arg in program.steps[number].args:
            yield _without(program, number, arg)
    yield from _constants(program)
    yield from _inputs(program)
    yield from _parameters(program)


def _without(program: Program, number: int, arg: int) -> Program:
    """The program with value `arg` instead of value `number`."""

    def other(each: int) -> int:
        return arg if each == number else each

    steps = [
        # A write is replaced by a copy of its operand's name.
        replace(step, args=tuple([other(each) for each in step.args]))
        for step in program.steps
    ]
    if program.steps[number].name in WRITE_NAMES:
        steps[number] = Step("reshape_to_itself", (arg,))
    reads = tuple(dict.fromkeys([other(each) for each in program.reads]))
    return _dropped(replace(program, steps=tuple(steps), reads=reads))


def _dropped(program: Program) -> Program:
    """The program without steps of no known name, which nothing takes."""
    known = [n for n, step in enumerate(program.steps) if step.name in INSTRUCTIONS]
    position = {number: at for at, number in enumerate(known)}
    steps = [
        replace(program.steps[n], args=tuple([position[a] for a in program.steps[n].args]))
        for n in known
    ]
    reads = tuple([position[n] for n in program.reads])
    return _cut(replace(program, steps=tuple(steps), reads=reads))


def _changed(program: Program, number: int, step: Step) -> Program:
    steps = (*program.steps[:number], step, *program.steps[number + 1 :])
    return replace(program, steps=steps)


def _constants(program: Program) -> Iterator[Program]:
    """A computed value as an input."""
    try:
        values = meaning(program)
    except ValueError:
        return
    for number, step in enumerate(program.steps):
        value = values[number]
        if step.name == "input" or value.dtype == "bool" or value.is_symbolic:
            continue
        flat = value.array.ravel().tolist()
        if value.is_float:
            flat = [float(each) for each in value.array.astype("f4").ravel()]
        params = (flat, value.array.shape, value.dtype, value.is_wild)
        yield _cut(_changed(program, number, Step("input", (), params)))


def _inputs(program: Program) -> Iterator[Program]:
    for number, step in enumerate(program.steps):
        if step.name != "input":
            continue
        values, shape, dtype, is_wild = step.params
        for size, axis in sorted([(size, axis) for axis, size in enumerate(shape)], reverse=True):
            for less in (1, 2, size // 2):
                if less < size:
                    other = (*shape[:axis], less, *shape[axis + 1 :])
                    count = len(values) // size * less
                    yield _changed(
                        program, number, Step("input", (), (values[:count], other, dtype, is_wild))
                    )
        if len({repr(each) for each in values}) > 1 or any(each != each for each in values):
            for plain in (0, 1, 3, -3, *values[:6]):
                fill = float(plain) if dtype == "float32" else int(plain)
                if fill >= 0 or not dtype.startswith("u"):
                    fresh = ([fill] * len(values), shape, dtype, is_wild)
                    yield _changed(program, number, Step("input", (), fresh))


def _parameters(program: Program) -> Iterator[Program]:
    for number, step in enumerate(program.steps):
        if step.name == "input":
            continue
        for at, param in enumerate(step.params):
            for other in _plainer(param):
                params = (*step.params[:at], other, *step.params[at + 1 :])
                yield _changed(program, number, replace(step, params=params))


def _plainer(param: Any) -> Sequence[Any]:
    if isinstance(param, bool) or not isinstance(param, int):
        return [param[:1]] if isinstance(param, list) and len(param) > 1 else []
    return [other for other in (0, 1) if other < abs(param)]
