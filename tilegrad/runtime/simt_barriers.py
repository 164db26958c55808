"""Barriers of copies in emulated programs: who has arrived, which bytes have come, and which lanes
have waited for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilegrad.runtime.simt_memory import CopyGroup, Race, TrackedMemory

__all__ = ["CopyBarriers"]


class CopyBarriers:
    """An array of barriers; one lane arrives at each of them in a phase.

    Copies land as the first lane waits for them. A lane that waits for a phase which has not ended
    would wait forever: lanes run in order, and the one that copies is of the first warp. In a
    cluster, another block's copies may come before the lane arrives; the barriers of its blocks are
    each other's `peers`.
    """

    def __init__(self, name: str, size: int):
        self.name, self.size = name, size
        self.start = self.lane = 0
        self.peers: Sequence[CopyBarriers] = (self,)
        self.clear()

    def clear(self) -> None:
        """A block begins."""
        self.ended = [0] * self.size
        self.open: list[CopyGroup | None] = [None] * self.size
        self.last: list[CopyGroup | None] = [None] * self.size

    def enter(self, start: int, lane: int) -> None:
        self.start, self.lane = start, lane

    def arrive(self, number: int, nbytes: int) -> None:
        """A phase begins, which copies of `nbytes` belong to."""
        group = self.open[number]
        if group is None:
            group = self.open[number] = CopyGroup(self.lane, nbytes)
        elif group.nbytes:
            raise Race(f"lane {self.lane} arrives twice in a phase of {self._text(number)}")
        group.nbytes = nbytes
        self._end(number, group)

    def copy(
        self, number: int, memory: TrackedMemory, index: int, values: Sequence[Any], nbytes: int
    ) -> None:
        """Begin to write `values`, which are `nbytes`, to `memory`."""
        group = self.open[number]
        if group is None:
            raise Race(
                f"lane {self.lane} copies in a phase of {self._text(number)} without arrival"
            )
        self._add(number, group, memory, index, values, nbytes)

    def share(
        self, number: int, memory: TrackedMemory, index: int, values: Sequence[Any], nbytes: int
    ) -> None:
        """Begin to write `values` to `memory` of each block of the cluster."""
        for barriers, peer in zip(self.peers, memory.peers, strict=True):
            group = barriers.open[number]
            if group is None:
                group = barriers.open[number] = CopyGroup(self.lane, 0)
            barriers._add(number, group, peer, index, values, nbytes)

    def _add(
        self,
        number: int,
        group: CopyGroup,
        memory: TrackedMemory,
        index: int,
        values: Sequence[Any],
        nbytes: int,
    ) -> None:
        memory.copy_in(group, index, values)
        group.copied += nbytes
        self._end(number, group)

    def _end(self, number: int, group: CopyGroup) -> None:
        """End the phase if a lane has arrived in it, and all bytes have come."""
        if group.nbytes and group.copied > group.nbytes:
            raise Race(
                f"copies in a phase of {self._text(number)} have {group.copied} bytes, where "
                f"{group.nbytes} are expected"
            )
        if group.copied == group.nbytes:
            self.ended[number] += 1
            self.last[number], self.open[number] = group, None

    def wait(self, number: int, parity: int) -> None:
        """Wait for the end of a phase of this parity."""
        if self.ended[number] % 2 == parity:
            group = self.open[number]
            what = "nobody has arrived in it"
            if group is not None:
                what = f"{group.copied} bytes are copied, {group.nbytes} are expected"
            raise Race(
                f"lane {self.lane} waits forever for a phase of {self._text(number)}: {what}"
            )
        if (last := self.last[number]) is not None:
            last.land(self.start, self.lane)

    def _text(self, number: int) -> str:
        return f"barrier {number} of {self.name}"
