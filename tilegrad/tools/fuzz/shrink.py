"""A program that fails, made small while it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tilegrad.tools.fuzz.program import Program, Step, needed
from tilegrad.tools.fuzz.run import meaning

__all__ = ["shrink"]


def shrink(program: Program, fails: Callable[[Program], bool], most: int = 300) -> Program:
    """The smallest program found that `fails`; it is asked at most `most` times."""
    asked = 0
    improved = True
    while improved and asked < most:
        improved = False
        for smaller in _smaller(program):
            try:
                meaning(smaller)
            except ValueError:
                continue
            asked += 1
            if fails(smaller):
                program, improved = smaller, True
                break
            if asked >= most:
                break
    return program


def _smaller(program: Program) -> Iterator[Program]:
    """Programs that are simpler: the first ones by most."""
    last = len(program) - 1
    for number in range(last):
        yield needed(program, number)
    for number in range(last, -1, -1):
        for arg in program[number].args:
            yield _without(program, number, arg)
    values, _ = meaning(program)
    for number, step in enumerate(program[:-1]):
        if step.name != "input":
            value = values[number]
            dtype = "float32" if value.dtype.kind == "f" else "int32"
            constant = Step("input", (), (value.ravel().tolist(), value.shape, dtype))
            yield needed((*program[:number], constant, *program[number + 1 :]), last)
    for number, step in enumerate(program):
        if step.name == "input" and len(set(step.params[0])) > 1:
            for plain in (0, 1, -3):
                changed = Step("input", (), ([plain] * len(step.params[0]), *step.params[1:]))
                yield (*program[:number], changed, *program[number + 1 :])


def _without(program: Program, number: int, arg: int) -> Program:
    """The program with value `arg` in the place of value `number`."""
    if number == len(program) - 1:
        return needed(program, arg)
    steps = [
        Step(step.name, tuple([arg if each == number else each for each in step.args]), step.params)
        for step in program
    ]
    return needed(steps, len(steps) - 1)
