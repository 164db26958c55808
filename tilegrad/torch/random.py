"""`torch.Generator`, and the seed of the stream that all draws come from."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any, Self

from tilegrad.tensor.indexing.random import generator as stream

__all__ = [
    "Generator", "drawing", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed",
    "set_rng_state",
]  # fmt: skip


class Generator:
    """A stream of random numbers of its own.

    >>> import tilegrad.torch as torch
    >>> first, second = (torch.Generator().manual_seed(3) for _ in range(2))
    >>> bool((torch.rand(2, generator=first) == torch.rand(2, generator=second)).all())
    True
    """

    def __init__(self, device: Any = "cpu"):
        self.device = device
        self._seed, self._drawn = int.from_bytes(os.urandom(7), "little"), 0

    def manual_seed(self, seed: int) -> Self:
        """Begin the stream of `seed`; gives this generator."""
        self._seed, self._drawn = int(seed) % 2**64, 0
        return self

    def initial_seed(self) -> int:
        """The seed of the stream."""
        return self._seed

    def seed(self) -> int:
        """Begin a stream that nobody has seen; gives its seed."""
        self.manual_seed(int.from_bytes(os.urandom(7), "little"))
        return self._seed

    def get_state(self) -> tuple[int, int]:
        """Where the stream is."""
        return self._seed, self._drawn

    def set_state(self, state: Sequence[int]) -> Self:
        """Go on from what `get_state` gave."""
        self._seed, self._drawn = state
        return self


@contextlib.contextmanager
def drawing(generator: Generator | None) -> Iterator[None]:
    """A block whose draws come from `generator`, or from the stream of all without one."""
    if generator is None:
        yield
        return
    before = get_rng_state()
    set_rng_state(generator.get_state())
    try:
        yield
    finally:
        generator.set_state(get_rng_state())
        set_rng_state(before)


def manual_seed(seed: int) -> None:
    """Begin the stream of `seed`. The numbers are not PyTorch's."""
    stream.restart(int(seed))


def seed() -> int:
    """Begin a stream that nobody has seen; gives its seed."""
    stream.restart(int.from_bytes(os.urandom(7), "little"))
    return stream.seed


def initial_seed() -> int:
    """The seed of the stream."""
    return stream.seed


def get_rng_state() -> tuple[int, int]:
    """Where the stream is."""
    return stream.seed, stream.drawn


def set_rng_state(new_state: Sequence[int]) -> None:
    """Go on from what `get_rng_state` gave."""
    stream.restart(new_state[0])
    stream.take(new_state[1])


@contextlib.contextmanager
def fork_rng(devices: Any = None, enabled: bool = True) -> Iterator[None]:
    """A block after which the stream is where it was before."""
    before = get_rng_state()
    try:
        yield
    finally:
        if enabled:
            set_rng_state(before)
