"""Streams of random numbers: that of all draws, and those of generators."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Self

from tilegrad.tensor.indexing.generator import generator as everyone

__all__ = ["Stream", "drawing", "go_on", "position"]


class Stream:
    """A stream of random numbers: its seed, and how many numbers were drawn from it."""

    # Whether this is the stream of all draws.
    is_everyones = False

    def __init__(self) -> None:
        self._seed, self._drawn = int.from_bytes(os.urandom(7), "little"), 0

    def manual_seed(self, seed: int) -> Self:
        """Begin the stream of `seed`; gives this generator."""
        self._seed, self._drawn = int(seed) % 2**64, 0
        return self

    def initial_seed(self) -> int:
        """The seed of the stream."""
        return self._seed

    def seed(self) -> int:
        """Begin a new stream; gives its seed."""
        self.manual_seed(int.from_bytes(os.urandom(7), "little"))
        return self._seed


def position() -> tuple[int, int]:
    """Where the stream of all draws is: its seed, and how many numbers were drawn."""
    return everyone.seed, everyone.drawn


def go_on(seed: int, drawn: int) -> None:
    """Go on with the stream of all draws from a position."""
    everyone.restart(seed)
    everyone.take(drawn)


@contextlib.contextmanager
def drawing(generator: Stream | None) -> Iterator[None]:
    """A block whose draws come from `generator`, or from the stream of all without one."""
    if generator is None or generator.is_everyones:
        yield
        return
    before = position()
    go_on(generator._seed, generator._drawn)
    try:
        yield
    finally:
        generator._seed, generator._drawn = position()
        go_on(*before)
