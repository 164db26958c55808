"""The arguments of ops that need more than a number: frozen, hashable, and printed as text that
reads back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["BufferArg", "KernelInfo", "RandArg"]


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
class KernelInfo:
    """What a kernel's SINK knows: its name, the printed order of its ranges (by number), and the
    Opts applied.
    """

    name: str = ""
    order: tuple[int, ...] = ()
    opts: tuple[Any, ...] = ()
