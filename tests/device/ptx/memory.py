"""Memory that checks each access: where, how aligned, and by whom since the last barrier."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.device.ptx.parse import PTXError

__all__ = ["FAR", "MOST_LANES", "GlobalMemory", "SharedMemory"]

Array = np.ndarray[Any, Any]
_BASE = 0x7F0000000000
# More lanes than a block has.
MOST_LANES = 1 << 11
# What the number of a lane is more by where it is of another block of the cluster.
FAR = 1 << 10
_GAP = 512


def _aligned(addresses: Array, size: int, what: str) -> None:
    wrong = addresses % size != 0
    if wrong.any():
        raise PTXError(f"{what}: address {int(addresses[wrong][0]):#x} is no multiple of {size}")


class GlobalMemory:
    """Allocations with gaps between; addresses are numbers, as a driver gives them."""

    def __init__(self) -> None:
        self._bytes = np.full(1 << 20, 0xA5, np.uint8)
        self._end = 0
        self.live: dict[int, int] = {}
        self._table: tuple[Array, Array] | None = None

    def marks(self) -> Array:
        """For each byte, whether something holds of it: of none yet."""
        return np.zeros(self._bytes.size, bool)

    def allocate(self, nbytes: int) -> int:
        start = self._end
        self._end = -(-(start + nbytes) // _GAP) * _GAP + _GAP
        if self._end > self._bytes.size:
            grown = np.full(max(2 * self._bytes.size, self._end), 0xA5, np.uint8)
            grown[: self._bytes.size] = self._bytes
            self._bytes = grown
        self.live[_BASE + start] = nbytes
        self._table = None
        return _BASE + start

    def free(self, address: int) -> None:
        del self.live[address]
        self._table = None
        if not self.live:
            self._end = 0

    def offsets(self, addresses: Array, size: int, what: str) -> Array:
        """Positions in the bytes of accesses of `size` bytes.

        Raises PTXError for one outside of what is allocated, or not aligned.
        """
        _aligned(addresses, size, what)
        if self._table is None:
            starts = np.array(sorted(self.live), np.uint64)
            ends = starts + np.array([self.live[int(each)] for each in starts], np.uint64)
            self._table = starts, ends
        starts, ends = self._table
        if not starts.size:
            raise PTXError(f"{what}: nothing is allocated")
        place = np.searchsorted(starts, addresses, side="right") - 1
        known = np.maximum(place, 0)
        wrong = (place < 0) | (addresses + np.uint64(size) > ends[known])
        if wrong.any():
            raise PTXError(f"{what}: address {int(addresses[wrong][0]):#x} is outside all memory")
        return (addresses - np.uint64(_BASE)).astype(np.int64)

    def read(self, offsets: Array, kind: Any) -> Array:
        found: Array = self._bytes.view(kind)[offsets // np.dtype(kind).itemsize]
        return found

    def write(self, offsets: Array, values: Array) -> None:
        self._bytes.view(values.dtype)[offsets // values.itemsize] = values

    def window(self, address: int, nbytes: int) -> Array:
        """The bytes themselves, for the host."""
        (offset,) = self.offsets(np.array([address], np.uint64), 1, "copy")
        self.offsets(np.array([address + max(nbytes, 1) - 1], np.uint64), 1, "copy")
        return self._bytes[offset : offset + nbytes]


class SharedMemory:
    """The shared memory of each block. Between two barriers, bytes that one lane wrote may be
    touched by no other, and bytes that one read may be written by no other.
    """

    def __init__(self, blocks: int, nbytes: int, together: int = 1):
        self.blocks, self.nbytes = blocks, -(-max(nbytes, 16) // 16) * 16
        # Bytes that a lane of the block has touched since its cluster has met.
        self._touched = np.zeros(blocks * self.nbytes if together > 1 else 0, bool)
        self._stored = np.zeros(blocks, bool)
        self._size = nbytes
        self._bytes = np.full(blocks * self.nbytes, 0xFF, np.uint8)
        self._writer = np.full(blocks * self.nbytes, -1, np.int64)
        self._reader = np.full(blocks * self.nbytes, -1, np.int64)
        self._flying = np.zeros(blocks * self.nbytes, bool)
        # Owners, places and bytes, and how many groups the owners have closed since.
        self._copies: list[tuple[Array, Array, Array, Array]] = []
        # By byte, the copy of a box that wrote it since the last barrier; of each copy its bytes,
        # and the lanes that have waited for it.
        self._fill = np.full(blocks * self.nbytes, -1, np.int64)
        self._fills: list[tuple[Array, Array]] = []
        self._shown: list[set[int]] = []
        self._opaque = np.zeros(blocks * self.nbytes, bool)
        # By byte, the lane that wrote it without a fence to what reads by itself.
        self._unpublished = np.full(blocks * self.nbytes, -1, np.int64)

    def reserve(self, block: int, address: int, size: int) -> None:
        """Bytes that no plain access may touch: those of an mbarrier."""
        (place,) = self._places(np.array([block]), np.array([address]), size, "mbarrier.init")
        self._opaque[place : place + size] = True

    def fill(self, block: int, lane: int, addresses: Array, values: Array, what: str) -> int:
        """Begin to write `values`, a row of bytes for each address, as units write that are no
        lanes: the number of the copy.
        """
        places = self._places(np.full(addresses.size, block), addresses, values.shape[1], what)
        every = places[:, None] + np.arange(values.shape[1])
        if (self._unpublished[every] >= 0).any():
            raise PTXError(f"{what}: writes what lanes wrote without fence.proxy.async")
        if lane >= FAR and self._touched[every].any():
            raise PTXError(f"{what}: writes what another block touched since the cluster met")
        self._claim(every, np.full(addresses.size, lane), what)
        number = len(self._fills)
        self._flying[every], self._fill[every] = True, number
        self._fills.append((every, values))
        self._shown.append(set())
        return number

    def arrive_at(self, number: int) -> None:
        """A copy has landed."""
        every, values = self._fills[number]
        self._bytes[every] = values
        self._flying[every] = False

    def show(self, numbers: list[int], block: int, lanes: Array) -> None:
        """Lanes have waited for these copies."""
        for number in numbers:
            self._shown[number].update((block * MOST_LANES + lanes).tolist())

    def _check_fills(self, every: Array, owner: Array, what: str) -> None:
        """An error where lanes read what a copy brought for which they have not waited."""
        if not self._fills:
            return
        fills = self._fill[every]
        for number in np.unique(fills[fills >= 0]):
            readers = owner[(fills == number).any(1)]
            if not self._shown[number].issuperset(readers.tolist()):
                raise PTXError(f"{what}: reads what a copy brought without waiting for its phase")

    def publish(self, block: Array, lane: Array) -> None:
        """These lanes have come to a fence.proxy.async."""
        fenced = np.isin(self._unpublished, lane + block * MOST_LANES)
        self._unpublished[fenced] = -1

    def published(self, block: Array, addresses: Array, size: int, what: str) -> None:
        """An error where somebody wrote and came to no such fence."""
        every = self._places(block, addresses, size, what)[:, None] + np.arange(size)
        if (self._unpublished[every] >= 0).any():
            raise PTXError(f"{what}: reads what was written without fence.proxy.async")

    def copy(self, block: Array, lane: Array, addresses: Array, values: Array, what: str) -> None:
        """Begin to write `values`, a row of bytes for each address. Until its lane has waited, what
        is there is no value.
        """
        places = self._places(block, addresses, values.shape[1], what)
        every = places[:, None] + np.arange(values.shape[1])
        self._claim(every, lane, what)
        self._flying[every] = True
        owner = lane + block * MOST_LANES
        self._copies.append((owner, every, values, np.zeros(owner.size, np.int64)))

    def commit(self, block: Array, lane: Array) -> None:
        """What these lanes have begun to copy, and have not committed, is a group."""
        for owner, _, _, closed in self._copies:
            closed[np.isin(owner, lane + block * MOST_LANES)] += 1

    def land(self, block: Array, lane: Array, what: str, but: int | None = None) -> None:
        """The copies of these lanes have come, but for the latest `but` groups and what is in no
        group; without `but` all.
        """
        waited = lane + block * MOST_LANES
        left = []
        for owner, every, values, closed in self._copies:
            done = np.isin(owner, waited) & (but is None or closed > but)
            self._claim(every[done], owner[done] % MOST_LANES, what)
            self._bytes[every[done]] = values[done]
            self._stored[owner[done] // MOST_LANES] = True
            self._unpublished[every[done]] = owner[done][:, None]
            self._flying[every[done]] = False
            if not done.all():
                left.append((owner[~done], every[~done], values[~done], closed[~done]))
        self._copies = left

    def _claim(self, every: Array, lane: Array, what: str) -> None:
        """Note that lanes write; an error where others have touched the bytes."""
        for touched, verb in ((self._writer[every], "wrote"), (self._reader[every], "read")):
            if ((touched != -1) & (touched != lane[:, None])).any():
                raise PTXError(f"{what}: writes what another lane {verb} since the last barrier")
        self._writer[every], self._reader[every], self._fill[every] = lane[:, None], -1, -1
        self._touch(every)
        if (self._writer[every] != lane[:, None]).any():
            raise PTXError(f"{what}: two lanes write one address")

    def _touch(self, every: Array) -> None:
        if self._touched.size:
            self._touched[every] = True

    def has_stored(self, block: Array) -> bool:
        """Whether lanes of these blocks have stored since their cluster has met."""
        return bool(self._stored[block].any())

    def meet_all(self, blocks: Array) -> None:
        """The clusters of these blocks have met."""
        self._touched.reshape(self.blocks, -1)[blocks] = False
        self._stored[blocks] = False

    def meet(self, blocks: Array) -> None:
        """The lanes of these blocks have met at a barrier."""
        self._writer.reshape(self.blocks, -1)[blocks] = -1
        self._reader.reshape(self.blocks, -1)[blocks] = -1
        # One lane that has waited tells all that it meets.
        fills = self._fill.reshape(self.blocks, -1)
        for block in np.flatnonzero(blocks) if self._fills else ():
            own = fills[block]
            for number in np.unique(own[own >= 0]):
                if self._shown[number]:
                    own[own == number] = -1

    def _places(self, block: Array, addresses: Array, size: int, what: str) -> Array:
        _aligned(addresses, size, what)
        wrong = addresses.astype(np.int64) + size > self._size
        if wrong.any():
            raise PTXError(
                f"{what}: {int(addresses[wrong][0])} is outside {self._size} bytes of shared memory"
            )
        places = block * self.nbytes + addresses.astype(np.int64)
        if self._opaque[places].any():
            raise PTXError(f"{what}: touches an mbarrier")
        return places

    def read(
        self,
        block: Array,
        lane: Array,
        addresses: Array,
        kind: Any,
        what: str,
        home: Array | None = None,
    ) -> Array:
        """The bits at addresses of `block`. `home` are the lanes in the launch that read, where
        they are of another block; `lane` is then more by FAR.
        """
        size = np.dtype(kind).itemsize
        places = self._places(block, addresses, size, what)
        every = places[:, None] + np.arange(size)
        if self._flying[every].any():
            raise PTXError(f"{what}: reads what an asynchronous copy has not brought yet")
        self._check_fills(every, lane + block * MOST_LANES if home is None else home, what)
        writers = np.where(self._fill[every] >= 0, -1, self._writer[every])
        if ((writers >= 0) & (writers != lane[:, None])).any():
            raise PTXError(f"{what}: reads what another lane wrote since the last barrier")
        self._touch(every)
        readers = self._reader[every]
        self._reader[every] = np.where(
            (readers == -1) | (readers == lane[:, None]), lane[:, None], -2
        )
        found: Array = self._bytes.view(kind)[places // size]
        return found

    def free_reads(
        self, block: int, addresses: Array, size: int, reader: int, lanes: Array
    ) -> None:
        """What lane `reader` of another block has read is free: one of `lanes` may write it, if it
        is the only one that has waited.
        """
        places = block * self.nbytes + addresses.astype(np.int64)
        every = places[:, None] + np.arange(size)
        heir = int(lanes[0]) if lanes.size == 1 else -1
        self._reader[every] = np.where(self._reader[every] == reader, heir, self._reader[every])

    def write(self, block: Array, lane: Array, addresses: Array, values: Array, what: str) -> None:
        places = self._places(block, addresses, values.itemsize, what)
        every = places[:, None] + np.arange(values.itemsize)
        self._claim(every, lane, what)
        self._unpublished[every] = (lane + block * MOST_LANES)[:, None]
        self._stored[block] = True
        self._bytes.view(values.dtype)[places // values.itemsize] = values
