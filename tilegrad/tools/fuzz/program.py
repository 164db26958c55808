"""A program: a list of steps, each of which makes a value of values made before.

A step is an instruction's name, the numbers of the steps that it takes, and parameters that are
plain data. So a smaller program is made by leaving steps out, and a program is written as lines of
Python that need nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Program", "Step", "needed"]


@dataclass(frozen=True)
class Step:
    """One instruction: `name` of the values numbered `args`, with `params`."""

    name: str
    args: tuple[int, ...] = ()
    params: tuple[Any, ...] = ()


Program = tuple[Step, ...]


def needed(program: Sequence[Step], last: int) -> Program:
    """The steps that step number `last` needs, which is then the last one."""
    wanted, stack = {last}, [last]
    while stack:
        for number in program[stack.pop()].args:
            if number not in wanted:
                wanted.add(number)
                stack.append(number)
    order = sorted(wanted)
    place = {number: at for at, number in enumerate(order)}
    return tuple(
        [
            Step(program[n].name, tuple([place[a] for a in program[n].args]), program[n].params)
            for n in order
        ]
    )
