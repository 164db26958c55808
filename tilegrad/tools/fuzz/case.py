"""A case: a program or something of another form, its file, and the cases that are simpler."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from tilegrad.tools.fuzz.chains import drawn_chain
from tilegrad.tools.fuzz.draw import draw
from tilegrad.tools.fuzz.drawn_loops import drawn_loop, drawn_short_loop
from tilegrad.tools.fuzz.modes import MODES
from tilegrad.tools.fuzz.program import Program
from tilegrad.tools.fuzz.script import script
from tilegrad.tools.fuzz.simpler import simpler
from tilegrad.tools.fuzz.special import drawn_draws, drawn_long

__all__ = ["Case", "Programmed", "drawn_case"]


class Case(Protocol):
    """A program to run, and to make smaller where it fails."""

    def lines(self, mode: str) -> list[str]:
        """A file that fails. Raises ValueError for what is no case."""

    def smaller(self) -> Iterator[Case]:
        """Simpler cases."""

    def kind(self) -> str:
        """Failures of one kind are reported once."""


@dataclass(frozen=True)
class Programmed:
    """The case of a program."""

    program: Program

    def lines(self, mode: str) -> list[str]:
        """A file that fails."""
        return script(self.program, mode)

    def smaller(self) -> Iterator[Case]:
        """Simpler cases."""
        for program in simpler(self.program):
            yield Programmed(program)

    def kind(self) -> str:
        """Failures of one kind are reported once."""
        return f"{[step.name for step in self.program.steps]}"


def drawn_case(seed: int, mode: str) -> Case:
    """The case of a seed."""
    chance = random.Random(seed)
    what = chance.random()
    how = MODES[mode]
    if how.is_looped:
        return drawn_short_loop(chance) if how.is_short else drawn_loop(chance)
    if what < 0.04 and how.most_elements >= 3000:
        return drawn_long(chance)
    if what < 0.12 and how.is_captured:
        return drawn_draws(chance)
    if what > 0.9 and not how.is_torch:
        return drawn_chain(chance)
    while True:
        case = Programmed(draw(chance.randrange(2**60), mode))
        try:
            case.lines(mode)
        except ValueError:
            continue
        return case
