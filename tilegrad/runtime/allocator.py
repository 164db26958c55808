"""The memory behind buffers: an `LRUAllocator` keeps freed blocks by size class and hands the one
freed last to the next buffer of that class, which is likely still in a cache.

Blocks beyond the runtime's `cache_bytes` go back to the device, oldest first, and so do those that
wait for longer than KEEP_SECONDS; when the device has no room, all of them do, and the allocation
is tried once more.

Everything here may be called from any thread, and memory may come back at any moment, inside an
allocation too. So `take_back` only appends: to a queue that the next allocation sorts in, or, of
small blocks, to a list of their class from which the next allocation takes them without a lock.
"""

from __future__ import annotations

import functools
import os
import threading
import time
import weakref
from bisect import insort
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar

from tilegrad.base.config import config
from tilegrad.base.errors import DeviceError, InternalError, OutOfMemoryError, TilegradError
from tilegrad.base.forks import held_at_fork
from tilegrad.runtime.protocol import Runtime

__all__ = ["FreeList", "LRUAllocator", "reaper", "size_class"]

_MIN_BLOCK = 64
_MAX_STEP = 1 << 20
# The most blocks of each small size class that wait to be handed on without a lock.
_MOST_QUICK = 64
# Blocks from this size on are worth a look now and then.
_LARGE = 1 << 24


@functools.lru_cache(1 << 12)
def size_class(nbytes: int) -> int:
    """The block size that serves a request: up to a sixteenth larger, at most by a megabyte."""
    step = min(max(_MIN_BLOCK, 1 << max(nbytes.bit_length() - 5, 0)), _MAX_STEP)
    return -(-nbytes // step) * step


class LRUAllocator:
    """The memory of one device. `used_bytes` is held by buffers, `cached_bytes` waits for reuse.

    While there are large blocks, a thread looks now and then for those that were not used for
    KEEP_SECONDS, and gives them back.
    """

    # Blocks up to this size are handed on without a lock. Said here, as blocks may come back when
    # the names of the module are gone.
    _small = 1 << 16

    describe: ClassVar[Callable[[LRUAllocator], str]] = staticmethod(lambda allocator: "")
    """Owners of the memory, for errors: `engine.run.in_use` knows the user's lines."""

    on_wait: ClassVar[Callable[[str, float], None]] = staticmethod(lambda device, seconds: None)
    """Is told how long the host has waited for the queue of a device: `engine.run.report`."""

    def __init__(self, device: str, runtime: Runtime):
        self.device = device
        self.runtime = runtime
        self._lock = held_at_fork(threading.RLock(), 70)
        if hasattr(runtime, "__dict__"):
            runtime.relieve = self.flush  # type: ignore[method-assign]
            runtime.in_use = self.in_use  # type: ignore[method-assign]
            runtime.waited = self._waited  # type: ignore[method-assign]
        # Bytes that the runtime gave and has not had back, and their handles by id: a cycle of
        # objects dies at once, and a handle whose finalizer has run with its buffer's would be
        # handed on.
        self._taken_bytes = 0
        self._handles: dict[int, Any] = {}
        # Whether another device has taken the name.
        self._is_closed = False
        # Small blocks that wait, in a list for each size class, and the most of each class.
        # Appending to a list and popping from it are single steps of the interpreter.
        self.quick: dict[int, list[Any]] = {}
        self.most_quick = min(_MOST_QUICK, runtime.cache_bytes >> 20)
        self._returned: deque[tuple[int, Any]] = deque()
        # The other blocks that wait, by serial number, oldest first, with the time when they were
        # sorted in, and the serial numbers of each size class.
        self._cached: OrderedDict[int, tuple[int, Any, float]] = OrderedDict()
        self._sorted_bytes = 0
        self._by_class: dict[int, list[int]] = {}
        self._serial = 0

    @property
    def cached_bytes(self) -> int:
        """The bytes that wait for reuse."""
        quick = [size * len(blocks) for size, blocks in self.quick.copy().items()]
        return self._sorted_bytes + sum(quick)

    @property
    def used_bytes(self) -> int:
        """The bytes that buffers hold, or that came back since the last allocation."""
        return self._taken_bytes - self.cached_bytes

    def allocate(self, nbytes: int) -> Any:
        """A handle to at least `nbytes` bytes, whose content is undefined.

        Raises InternalError for no bytes at all, OutOfMemoryError where the device has no room.
        """
        if nbytes <= 0:
            raise InternalError(
                f"allocate: {nbytes} bytes on {self.device}", rule="an empty tensor has no buffer"
            )
        if self._is_closed:
            raise DeviceError(
                f"{self.device}: the tensor was made before this name was registered anew, and its "
                "memory is another device's",
                remedy="make it anew from its values, or give the new device another name",
            )
        return self._allocate(size_class(nbytes), nbytes)

    def allocate_all(self, sizes: Sequence[int]) -> list[Any] | None:
        """As `allocate` of blocks of `sizes`, which are size classes, at once; None where the
        device has no room for all.
        """
        found: list[Any] = []
        quick = self.quick
        try:
            for size in sizes:
                blocks = quick.get(size)
                if blocks:
                    try:
                        found.append(blocks.pop())
                        continue
                    except IndexError:
                        # Another thread took the last one.
                        pass
                found.append(self._allocate(size, size))
        except OutOfMemoryError:
            for block in zip(sizes, found):
                self.take_back(block)
            return None
        return found

    def take_back(self, block: tuple[int, Any]) -> None:
        """Take the size class and the handle of a block that is free again. Safe at any
        moment, inside a garbage collection too.
        """
        size, handle = block
        if size <= self._small:
            blocks = self.quick.get(size)
            if blocks is None:
                blocks = self.quick.setdefault(size, [])
            if len(blocks) < self.most_quick:
                blocks.append(handle)
                return
        self._returned.append(block)

    def close(self) -> None:
        """Take no more memory: another device has the name, whose kernels do not find it."""
        self._is_closed = True

    def flush(self) -> int:
        """Give every block that waits for reuse back to the device; the number of bytes given
        back.
        """
        with self._lock:
            self._sort_in_all()
            before = self._sorted_bytes
            if before:
                self.runtime.synchronize()
            self._shrink(0)
            return before - self._sorted_bytes

    def free_idle(self, seconds: float) -> int:
        """Give back the blocks that have not been used for so long; the bytes that are left, used
        or kept. Small ones count from now on.
        """
        with self._lock:
            self._sort_in_all()
            before = time.monotonic() - seconds
            idle = [serial for serial, each in self._cached.items() if each[2] <= before]
            if idle:
                self.runtime.synchronize()
            for serial in idle:
                self._drop(serial)
            return self._taken_bytes

    def _waited(self, seconds: float) -> None:
        LRUAllocator.on_wait(self.device, seconds)

    def forget_threads(self) -> None:
        """In a forked child: the thread that held the lock is gone."""
        self._lock = threading.RLock()

    def _allocate(self, size: int, nbytes: int) -> Any:
        """A block of size class `size`, for `nbytes`."""
        blocks = self.quick.get(size)
        if blocks:
            try:
                return blocks.pop()
            except IndexError:
                # Another thread took the last one.
                pass
        with self._lock:
            self._sort_in()
            handle = self._reuse(size)
            if handle is None:
                handle = self._fresh(size, nbytes)
        if size >= _LARGE:
            reaper.look_after(self)
        return handle

    def _sort_in(self) -> None:
        now = time.monotonic() if self._returned else 0.0
        while self._returned:
            size, handle = self._returned.popleft()
            self._serial += 1
            self._cached[self._serial] = (size, handle, now)
            self._by_class.setdefault(size, []).append(self._serial)
            self._sorted_bytes += size
        if self._sorted_bytes > self.runtime.cache_bytes:
            self.runtime.synchronize()
            self._shrink(self.runtime.cache_bytes)

    def _sort_in_all(self) -> None:
        """As `_sort_in`, with the small blocks that wait in lists of their class."""
        for size, blocks in self.quick.copy().items():
            with suppress(IndexError):
                while True:
                    self._returned.append((size, blocks.pop()))
        self._sort_in()

    def _shrink(self, limit: int) -> None:
        while self._sorted_bytes > limit:
            self._drop(next(iter(self._cached)))

    def _drop(self, serial: int) -> None:
        size, handle, _ = self._cached.pop(serial)
        serials = self._by_class[size]
        serials.remove(serial)
        if not serials:
            del self._by_class[size]
        self._sorted_bytes -= size
        self._taken_bytes -= size
        self._handles.pop(id(handle), None)
        self.runtime.free(handle, size)

    def _reuse(self, size: int) -> Any:
        serials = self._by_class.get(size)
        if not serials:
            return None
        self._sorted_bytes -= size
        return self._cached.pop(serials.pop())[1]

    def _fresh(self, size: int, nbytes: int) -> Any:
        handle: Any = None
        try:
            handle = self.runtime.allocate(size)
        except MemoryError:
            self.flush()
        try:
            if handle is None:
                handle = self.runtime.allocate(size)
        except OutOfMemoryError:
            raise
        except MemoryError:
            raise self._no_room(nbytes) from None
        self._taken_bytes += size
        self._handles[id(handle)] = handle
        return handle

    def in_use(self) -> dict[str, str]:
        """How much buffers hold, and the largest of them, for errors."""
        details = {"in_use": f"{self.used_bytes} bytes"}
        if largest := LRUAllocator.describe(self):
            details["largest"] = largest
        return details

    def _no_room(self, nbytes: int) -> OutOfMemoryError:
        return OutOfMemoryError(
            f"allocate: {nbytes} bytes do not fit on {self.device}",
            **self.in_use(),
            remedy="free tensors that are no longer needed, or use smaller batches",
        )


class _Reaper:
    """The thread that gives idle blocks back. It ends when no allocator has a large block."""

    def __init__(self) -> None:
        # Held while it works: a fork waits, so that a child never finds an allocator locked by it.
        self.work = threading.Lock()
        self._allocators: weakref.WeakSet[LRUAllocator] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._seconds = 0

    def look_after(self, allocator: LRUAllocator) -> None:
        """From now on idle blocks of `allocator` go back, by the KEEP_SECONDS of the caller."""
        seconds = config.KEEP_SECONDS
        if self._thread is not None and seconds == self._seconds and allocator in self._allocators:
            return
        with self._lock:
            self._seconds = seconds
            self._allocators.add(allocator)
            if self._thread is None and seconds:
                self._thread = threading.Thread(
                    target=self._run, name="tilegrad memory", daemon=True
                )
                self._thread.start()

    def _run(self) -> None:
        while True:
            time.sleep(max(self._seconds / 4, 0.05))
            with self.work:
                # A list made under the lock: no allocator is added meanwhile.
                with self._lock:
                    watched = list(self._allocators)
                    seconds = self._seconds
                left = [_left(each, seconds) for each in watched if seconds]
            with self._lock:
                if max(left, default=0) < _LARGE and seconds == self._seconds:
                    self._thread = None
                    self._allocators.clear()
                    return

    def forget_thread(self) -> None:
        """In a forked child the thread is gone; the next large block starts another."""
        self.work = threading.Lock()
        self._lock = threading.Lock()
        self._thread = None
        for allocator in list(self._allocators):
            allocator.forget_threads()


def _left(allocator: LRUAllocator, seconds: float) -> int:
    """Bytes that `free_idle` leaves. Blocks of a device that is lost, or that does not answer,
    stay: its users get an error, and the memory of the others is released all the same.
    """
    try:
        return allocator.free_idle(seconds)
    except InternalError:
        raise
    except TilegradError:
        return _LARGE


reaper = _Reaper()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: reaper.work.acquire(),
        after_in_parent=lambda: reaper.work.release(),
        after_in_child=lambda: reaper.forget_thread(),
    )


class FreeList:
    """The bytes from `start` up to `end`, in steps of `align`.

    The free bytes are stretches by their starts, joined where they meet.
    """

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
