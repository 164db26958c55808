"""`torch.Generator`, and the seed of the stream that all draws come from."""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from typing import Any, Self

from tilegrad.base.dtype import dtypes
from tilegrad.tensor.indexing.generator import generator as stream
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch import device_names
from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.streams import Stream, go_on, position
from tilegrad.torch.tensor import Tensor, as_ours

__all__ = [
    "Generator", "default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed",
    "seed", "set_rng_state",
]  # fmt: skip


class Generator(Stream):
    """A stream of random numbers of its own.

    >>> import tilegrad.torch as torch
    >>> first, second = (torch.Generator().manual_seed(3) for _ in range(2))
    >>> bool((torch.rand(2, generator=first) == torch.rand(2, generator=second)).all())
    True
    """

    def __init__(self, device: Any = "cpu"):
        super().__init__()
        self.device = device_names.device(device)

    def get_offset(self) -> int:
        """Raises RuntimeError: only streams of a GPU have offsets."""
        raise RuntimeError("CPU Generator does not use offset; get_state() tells where it is")

    def set_offset(self, offset: int) -> Self:
        """Raises RuntimeError: only streams of a GPU have offsets."""
        raise RuntimeError("CPU Generator does not use offset; set_state() lets it go on")

    def graphsafe_get_state(self) -> Self:
        """Raises NotImplementedError: only streams of a GPU have such a state."""
        raise NotImplementedError("graphsafe_get_state: write get_state() or clone_state()")

    def graphsafe_set_state(self, state: Generator) -> Self:
        """Raises NotImplementedError: only streams of a GPU have such a state."""
        raise NotImplementedError("graphsafe_set_state: write set_state(state.get_state())")

    def clone_state(self) -> Generator:
        """Another generator, which goes on as this one does."""
        return Generator().set_state(self.get_state())

    def get_state(self) -> Tensor:
        """Where the stream is: 16 bytes."""
        return _packed(self._seed, self._drawn)

    def set_state(self, new_state: Any) -> Self:
        """Go on from what `get_state` gave."""
        self._seed, self._drawn = _unpacked(new_state)
        return self


class _Everyones(Generator):
    """The stream that all draws come from without a generator."""

    is_everyones = True

    def manual_seed(self, seed: int) -> Self:
        stream.restart(int(seed))
        return self

    def initial_seed(self) -> int:
        return stream.seed

    def seed(self) -> int:
        return self.manual_seed(int.from_bytes(os.urandom(7), "little")).initial_seed()

    def get_state(self) -> Tensor:
        return get_rng_state()

    def set_state(self, new_state: Any) -> Self:
        set_rng_state(new_state)
        return self


default_generator: Generator = _Everyones()
"""The generator of all draws that name no other."""


def _packed(*numbers: int) -> Tensor:
    """Numbers of 64 bits as bytes, in a tensor: files take it, and so do `cpu()` and `byte()`."""
    made: Tensor = as_ours(OurTensor([*struct.pack("<2Q", *numbers)], dtype=dtypes.uint8))
    return made


def _unpacked(state: Any) -> tuple[int, int]:
    """The two numbers of a state.

    Raises TypeError for what is no tensor of bytes, RuntimeError for another length.
    """
    if not isinstance(state, OurTensor) or state.dtype is not dtypes.uint8:
        raise TypeError("RNG state must be a torch.ByteTensor")
    if state.numel() != 16:
        raise RuntimeError("RNG state is wrong size: a state of tilegrad.torch has 16 bytes")
    seed, drawn = struct.unpack("<2Q", bytes(state.tolist()))
    return seed, drawn


def manual_seed(seed: int) -> Generator:
    """Begin the stream of `seed`; gives its generator. The numbers are not PyTorch's."""
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Begin a new stream; gives its seed."""
    return default_generator.seed()


def initial_seed() -> int:
    """The seed of the stream."""
    return stream.seed


def get_rng_state() -> Tensor:
    """Where the stream is: 16 bytes."""
    return _packed(*position())


def set_rng_state(new_state: Any) -> None:
    """Go on from what `get_rng_state` gave."""
    go_on(*_unpacked(new_state))


@contextlib.contextmanager
def fork_rng(devices: Any = None, enabled: bool = True) -> Iterator[None]:
    """A block after which the stream is where it was before."""
    before = position()
    try:
        yield
    finally:
        if enabled:
            go_on(*before)


refuse_others(__name__)
