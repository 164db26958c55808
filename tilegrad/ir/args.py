"""The arguments of ops that need more than a number: frozen, hashable, and printed as text that
reads back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

__all__ = ["STEP", "BufferArg", "CustomArg", "KernelArg", "KernelInfo", "LoopArg", "RandArg"]

STEP = "step"
"""The name of the variable that holds the number of a loop's step."""


class BufferArg(NamedTuple):
    """A leaf of the tensor graph: memory number `slot` of `size` elements on `device`. In a graph
    that is planned for many sizes `size` may depend on lengths (`ir.lengths`).

    A tuple, whose hash takes no call of Python: there is one for each result of each run.
    """

    slot: int
    device: str
    size: Any


@dataclass(frozen=True)
class RandArg:
    """A draw of random words: its shape, and the (seed, offset) that fix its numbers."""

    shape: tuple[Any, ...]
    seed: int
    offset: int
    device: str


@dataclass(frozen=True)
class CustomArg:
    """A Python function as a step: its name, the shape of what it makes, and the function itself,
    from the bytes of whole row-major values to those of one. `gradient` is as KernelArg's.
    """

    name: str
    shape: tuple[int, ...]
    function: Callable[[Sequence[memoryview]], bytes | memoryview] = field(repr=False)
    gradient: Callable[[Any, Any], Sequence[Any]] | None = field(default=None, repr=False)


@dataclass(frozen=True, repr=False)
class KernelArg:
    """A kernel written by hand as a step: its name, the shape of what it makes, and its graph.

    Parameter 0 of the graph is what it makes, the others are the sources in order. `gradient` takes
    the gradient of its value and the node, and gives those of the sources.
    """

    name: str
    shape: tuple[int, ...]
    ast: Any
    gradient: Callable[[Any, Any], Sequence[Any]] | None = None

    def __repr__(self) -> str:
        return f"KernelArg({self.name!r}, {self.shape!r}, {self.ast.key!r})"


@dataclass(frozen=True, repr=False)
class LoopArg:
    """A loop over the steps 0 to `length` - 1, or from the last to the first if it `is_reversed`.

    `body` is a SINK of the next value of each carry, then of what each step gives besides. Its
    leaf BUFFER -1 - i stands for source i of the loop: of `carries` the value that the step finds,
    of `stacks` the step's row (of the first axis), of all others the whole.
    """

    body: Any
    length: int
    carries: int
    stacks: int
    is_reversed: bool = False

    @property
    def outputs(self) -> int:
        """How many PARTs there are."""
        return len(self.body.src) + self.carries

    def value(self, part: int) -> Any:
        """What a step adds to the part, or for a last value leaves as it."""
        count = len(self.body.src)
        return self.body.src[part if part < count else part - count]

    def shape(self, part: int) -> tuple[int, ...]:
        """The shape of a part: stacked values have an axis of steps in front."""
        one = tuple(self.value(part).shape)
        return one if part < self.carries else (self.length, *one)

    def __repr__(self) -> str:
        way = ", is_reversed=True" if self.is_reversed else ""
        numbers = f"{self.length}, {self.carries}, {self.stacks}"
        return f"LoopArg({self.body.key!r}, {numbers}{way})"


@dataclass(frozen=True)
class KernelInfo:
    """What a kernel's SINK knows: its name, the printed order of its ranges (by number), and the
    Opts applied.
    """

    name: str = ""
    order: tuple[int, ...] = ()
    opts: tuple[Any, ...] = ()

    @property
    def overlaps(self) -> bool:
        """Whether parts of an axis overlap, so that some elements are stored twice: the Opt has
        made sure that both times it is the same value, so chunks may do it at once.
        """
        return any(opt.op.name == "OVERLAP" for opt in self.opts)
