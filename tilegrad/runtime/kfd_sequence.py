"""Several launches of an AMD GPU as one call; where its command processor is known, as one packet.

From the third run on, the launches of a plan are PM4 packets in memory (`runtime.pm4`), which are
written once: a run writes arguments, and one packet of the queue that jumps there. There are two
copies, so that one takes new arguments while the GPU runs the other.
"""

from __future__ import annotations

import struct
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tilegrad.base.forks import held_at_fork
from tilegrad.runtime.pm4 import (
    MOST_WORDS,
    CommandProcessor,
    jump_packet,
    launch_words,
    wait_words,
)
from tilegrad.runtime.protocol import Dims

__all__ = ["KfdQueue", "KfdSequence"]

_CALLS, _COPIES = 3, 2
_WORD, _ALIGNMENT = 4, 64


class KfdQueue(Protocol):
    """The GPU's queue, as far as launches need it."""

    processor: CommandProcessor | None
    signal: int

    def launch(
        self,
        program: Any,
        handles: Sequence[int],
        variables: Sequence[int],
        global_size: Dims,
        local_size: Dims,
    ) -> float | None: ...

    def host_memory(self, nbytes: int) -> int:
        """Memory of the host that the GPU reads."""
        ...

    def free(self, handle: int, nbytes: int) -> None: ...

    def submit(self, name: str, packet: bytes) -> int:
        """Put a packet into the queue; how many there were with it."""
        ...

    def wait_until(self, count: int) -> None:
        """Wait for that many packets."""
        ...

    def store(self, address: int, data: bytes) -> None: ...


@dataclass
class _PacketsInMemory:
    """The packets in memory, their words, where arguments begin, and the last run's packet."""

    address: int
    words: int
    arguments: list[int]
    count: int = 0


class KfdSequence:
    """Launches of programs, each with its number of arguments and its blocks."""

    def __init__(self, queue: KfdQueue, launches: Sequence[tuple[Any, int, Dims]]):
        self._queue, self._launches = queue, launches
        self._name = ", ".join(dict.fromkeys([program.name for program, _, _ in launches]))
        self._calls = 0
        self._copies: list[_PacketsInMemory] = []
        self._lock = held_at_fork(threading.Lock(), 83)
        self._is_one_packet = (
            queue.processor is not None
            and len(launches) > 1
            and all(program.kernel.is_plain for program, _, _ in launches)
        )

    def run(self, numbers: Sequence[int]) -> None:
        """All launches, of the handles and integers `numbers`, one launch after the other."""
        with self._lock:
            self._calls += 1
            if not self._is_one_packet or self._calls < _CALLS:
                self._launch_each(numbers)
                return
            if len(self._copies) < _COPIES:
                made = self._made()
                if made is None:
                    self._is_one_packet = False
                    self._launch_each(numbers)
                    return
                self._copies.append(made)
            copy = self._copies[self._calls % len(self._copies)]
            self._queue.wait_until(copy.count)
            start = 0
            for (_, count, _), address in zip(self._launches, copy.arguments):
                own = [number & (1 << 64) - 1 for number in numbers[start : start + count]]
                self._queue.store(address, struct.pack(f"<{count}Q", *own))
                start += count
            packet = jump_packet(copy.address, copy.words, self._queue.signal)
            copy.count = self._queue.submit(self._name, packet)

    def _launch_each(self, numbers: Sequence[int]) -> None:
        start = 0
        for program, count, blocks in self._launches:
            # Integers are words of 64 bits, as addresses are.
            own = [number & (1 << 64) - 1 for number in numbers[start : start + count]]
            self._queue.launch(program, own, (), blocks, program.block)
            start += count

    def _made(self) -> _PacketsInMemory | None:
        """Packets in new memory, with room for arguments behind them; None where they are too many
        for a jump, or there is no memory.
        """
        words = len(self._written([0] * len(self._launches)))
        if words > MOST_WORDS:
            return None
        begins, size = [], _aligned(_WORD * words)
        for _, count, _ in self._launches:
            begins.append(size)
            size = _aligned(size + 8 * count)
        try:
            base = self._queue.host_memory(size)
        except MemoryError:
            return None
        weakref.finalize(self, self._queue.free, base, size).atexit = False
        arguments = [base + begin for begin in begins]
        self._queue.store(base, struct.pack(f"<{words}I", *self._written(arguments)))
        return _PacketsInMemory(base, words, arguments)

    def _written(self, arguments: Sequence[int]) -> list[int]:
        """The packets, with arguments at these addresses."""
        processor = self._queue.processor
        assert processor is not None
        found = wait_words(processor, is_end=True)
        for number, ((program, _, blocks), address) in enumerate(zip(self._launches, arguments)):
            if number:
                found += wait_words(processor, is_end=False)
            facts = (program.kernel, program.code, program.shared)
            found += launch_words(processor, *facts, address, blocks, program.block)
        return found + wait_words(processor, is_end=True)


def _aligned(size: int) -> int:
    return size + -size % _ALIGNMENT
