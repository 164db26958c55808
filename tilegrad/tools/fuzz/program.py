"""A program: a list of steps; each makes a value of earlier values.

A step is an instruction's name, the numbers of the steps that it takes, and parameters that are
plain data. So a smaller program is made by leaving steps out, and a program is written as lines of
Python that need nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

__all__ = ["FIRST", "GIVEN", "SIZES", "Call", "Program", "Step", "needed", "needed_steps", "roots"]

# How a program's inputs come to be: a word, and the tensor of an array's text.
GIVEN = {
    "data": "Tensor({})",
    "lazy": "Tensor({}).clone()",
    "realized": "Tensor({}).clone().realize()",
    "window": "Tensor(np.stack([{0}] * 2))[1]",
}
# Sizes that differ from call to call come again after this many.
SIZES = 4


class Call(NamedTuple):
    """A call of a program: which one, and the size of axes that is another one at each."""

    number: int
    growing: int = 0

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape that an input has at this call."""
        more = self.number % SIZES
        return tuple([size + more if size == self.growing else size for size in shape])


FIRST = Call(0)


@dataclass(frozen=True)
class Step:
    """One instruction: `name` of the values numbered `args`, with `params`."""

    name: str
    args: tuple[int, ...] = ()
    params: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Program:
    """Steps, and how they are run.

    Attributes:
        reads: the values that are read at the end, in this order.
        calls: how often it runs, each time with other data.
        threads: whether the calls run at the same time, each in a thread.
        given: a word of GIVEN: the inputs wait on the host, are computed, in memory, or a slice.
        growing: inputs' axes of this size are longer at later calls, if it is not 0.
        with_gradients: the inputs are leaves that require gradients, and every other call runs
            under `no_grad`.
    """

    steps: tuple[Step, ...]
    reads: tuple[int, ...]
    calls: int = 1
    threads: bool = False
    given: str = "data"
    growing: int = 0
    with_gradients: bool = False


def roots(steps: Sequence[Step], views: Iterable[str]) -> list[int]:
    """For each step the one whose memory its value may be a view of; `views` names instructions."""
    names = frozenset(views)
    found: list[int] = []
    for number, step in enumerate(steps):
        found.append(found[step.args[0]] if step.name in names else number)
    return found


def needed(program: Program, views: Iterable[str] = (), writes: Iterable[str] = ()) -> Program:
    """The program without the steps that what is read does not need.

    `writes` names the instructions that change the memory of their first operand: such a step is
    needed if any value of that memory is.
    """
    steps = program.steps
    order = sorted(needed_steps(program, views, writes))
    position = {number: at for at, number in enumerate(order)}
    chosen = [
        replace(steps[number], args=tuple([position[a] for a in steps[number].args]))
        for number in order
    ]
    return replace(program, steps=tuple(chosen), reads=tuple([position[n] for n in program.reads]))


def needed_steps(
    program: Program, views: Iterable[str] = (), writes: Iterable[str] = ()
) -> set[int]:
    """The numbers of the steps that what is read needs, as `needed` says."""
    steps, writing = program.steps, frozenset(writes)
    of = roots(steps, [*views, *writing])
    wanted, stack = set(program.reads), list(program.reads)
    while stack:
        number = stack.pop()
        more = list(steps[number].args)
        more += [n for n, s in enumerate(steps) if s.name in writing and of[n] == of[number]]
        fresh = [each for each in more if each not in wanted]
        wanted.update(fresh)
        stack.extend(fresh)
    return wanted
