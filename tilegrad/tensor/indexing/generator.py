"""The stream of random words, and draws from it.

A draw is words offset, offset + 1, ... of one stream (threefry, see schedule/random_words.py) that
the seed names; the offset is taken from a counter shared by all threads. So `manual_seed(0)` gives
the same numbers on every device, in one kernel or several, and whatever is realized first. A forked
process draws from a stream of its own.
"""

from __future__ import annotations

import contextvars
import hashlib
import math
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import DTypeError
from tilegrad.ir.args import RandArg
from tilegrad.ir.op import Ops
from tilegrad.ir.placement import Group, Placement
from tilegrad.ir.uop import UOp
from tilegrad.tensor.handle.core import compute

__all__ = ["Generator", "draw", "draws_of", "generator"]


class Generator:
    """The position in the stream of random words: `seed`, and how many words have been drawn."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.seed = int.from_bytes(os.urandom(8), "little")
        self.drawn = self.forks = 0

    def restart(self, seed: int) -> None:
        """Begin the stream of `seed`.

        Raises DTypeError if that is no integer.
        """
        if not isinstance(seed, int):
            raise DTypeError(f"manual_seed: a seed must be an integer, not {seed!r}")
        with self._lock:
            self.seed, self.drawn, self.forks = seed & (2**64 - 1), 0, 0

    def take(self, words: int) -> tuple[int, int]:
        """(seed, offset) of the next `words` words, which are handed out once."""
        with self._lock:
            offset = self.drawn
            self.drawn += words
            return self.seed, offset

    def count_fork(self) -> None:
        """Before a fork, in the thread that forks: the child's number."""
        with self._lock:
            self.forks += 1
            _forking.number = self.forks

    def leave_parent(self) -> None:
        """In a forked child: go on in a stream of its own, which the parent's position and the
        child's number decide. The holder of the lock is gone.
        """
        self._lock = threading.Lock()
        text = f"{self.seed} {self.drawn} {_forking.number}"
        self.seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
        self.drawn = self.forks = 0


class _Forking(threading.local):
    """On the thread that forks: the number of the child."""

    number = 0


_forking = _Forking()
generator = Generator()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=generator.count_fork, after_in_child=generator.leave_parent)
# Where draws are noted while somebody asks for them.
_noted: contextvars.ContextVar[tuple[set[UOp], ...]] = contextvars.ContextVar(
    "tilegrad_draws", default=()
)


@contextmanager
def draws_of() -> Iterator[set[UOp]]:
    """The draws that this thread makes while this is entered."""
    found: set[UOp] = set()
    token = _noted.set((*_noted.get(), found))
    try:
        yield found
    finally:
        _noted.reset(token)


def draw(shape: tuple[int, ...], device: str) -> UOp:
    """The next random words of the stream, in `shape`."""
    seed, offset = generator.take(math.prod(shape))
    group = device if isinstance(device, Group) else None
    first = device if group is None else group[0]
    node = compute(Ops.RAND, dtypes.uint32, (), RandArg(shape, seed, offset, first))
    for noted in _noted.get():
        noted.add(node)
    if group is None:
        return node
    return compute(Ops.SHARD, dtypes.uint32, (node,), Placement(group))
