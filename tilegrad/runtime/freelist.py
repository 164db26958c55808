"""Which bytes of a memory are free: stretches by their starts, joined where they meet."""

from __future__ import annotations

from bisect import insort

__all__ = ["FreeList"]


class FreeList:
    """The bytes from `start` up to `end`, in steps of `align`."""

    def __init__(self, start: int, end: int, align: int = 64):
        self.align = align
        self._free = [(start, end - start)]

    def take(self, nbytes: int) -> int:
        """Where `nbytes` bytes lie that were free, as near to the start as there is room.

        Raises MemoryError where there is none.
        """
        size = nbytes + -nbytes % self.align
        for number, (start, room) in enumerate(self._free):
            if room >= size:
                rest = [(start + size, room - size)] if room > size else []
                self._free[number : number + 1] = rest
                return start
        raise MemoryError(nbytes)

    def give_back(self, start: int, nbytes: int) -> None:
        """Give back a range that `take(nbytes)` gave."""
        insort(self._free, (start, nbytes + -nbytes % self.align))
        joined: list[tuple[int, int]] = []
        for offset, room in self._free:
            if joined and sum(joined[-1]) == offset:
                joined[-1] = (joined[-1][0], joined[-1][1] + room)
            else:
                joined.append((offset, room))
        self._free = joined
