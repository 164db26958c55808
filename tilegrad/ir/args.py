"""The arguments of ops that need more than a number: frozen, hashable, and printed as text that
reads back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["BufferArg", "CustomArg", "KernelArg", "KernelInfo", "RandArg"]


@dataclass(frozen=True)
class BufferArg:
    """A leaf of the tensor graph: memory number `slot` of `size` elements on `device`."""

    slot: int
    device: str
    size: int


@dataclass(frozen=True)
class RandArg:
    """A draw of random words: its shape, and the (seed, offset) that fix its numbers."""

    shape: tuple[int, ...]
    seed: int
    offset: int
    device: str


@dataclass(frozen=True)
class CustomArg:
    """A Python function as a step: its name, the shape of what it makes, and the function itself,
    from the bytes of whole row-major values to those of one.
    """

    name: str
    shape: tuple[int, ...]
    function: Callable[[Sequence[memoryview]], bytes | memoryview] = field(repr=False)


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


@dataclass(frozen=True)
class KernelInfo:
    """What a kernel's SINK knows: its name, the printed order of its ranges (by number), and the
    Opts applied.
    """

    name: str = ""
    order: tuple[int, ...] = ()
    opts: tuple[Any, ...] = ()
