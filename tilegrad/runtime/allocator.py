"""The memory behind buffers: an `LRUAllocator` keeps freed blocks by size class and hands the one
freed last to the next buffer of that class, which is likely still in a cache.

Blocks beyond the runtime's `cache_bytes` go back to the device, oldest first, and so do those that
wait for longer than KEEP_SECONDS; when the device has no room, all of them do, and the allocation
is tried once more.

Everything here may be called from any thread, and memory may come back at any moment, inside an
allocation too. So `take_back` only appends to a queue; the next allocation sorts it in.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Any

from tilegrad.base.config import config
from tilegrad.base.errors import InternalError, OutOfMemoryError
from tilegrad.base.forks import held_at_fork
from tilegrad.runtime.protocol import Runtime

__all__ = ["LRUAllocator", "reaper", "size_class"]

_MIN_BLOCK = 64
_MAX_STEP = 1 << 20
# Blocks from this size on are worth a look now and then.
_LARGE = 1 << 24


def size_class(nbytes: int) -> int:
    """The block size that serves a request: up to a sixteenth larger, at most by a megabyte."""
    step = min(max(_MIN_BLOCK, 1 << max(nbytes.bit_length() - 5, 0)), _MAX_STEP)
    return -(-nbytes // step) * step


class LRUAllocator:
    """The memory of one device. `used_bytes` is held by buffers, `cached_bytes` waits for reuse.

    While there are large blocks, a thread looks now and then for those that nobody has used for
    KEEP_SECONDS, and gives them back.
    """

    def __init__(self, device: str, runtime: Runtime):
        self.device = device
        self.runtime = runtime
        self.used_bytes = 0
        self.cached_bytes = 0
        self._lock = held_at_fork(threading.RLock(), 70)
        self._returned: deque[tuple[int, Any]] = deque()
        # Takes back the size class and the handle of a block. Safe at any moment, inside a garbage
        # collection too.
        self.take_back = self._returned.append
        # Freed blocks by serial number, oldest first, with the time when they were sorted in, and
        # the serial numbers of each size class.
        self._cached: OrderedDict[int, tuple[int, Any, float]] = OrderedDict()
        self._by_class: dict[int, list[int]] = {}
        self._serial = 0

    def allocate(self, nbytes: int) -> Any:
        """A handle to at least `nbytes` bytes, whose content is undefined.

        Raises InternalError for no bytes at all, OutOfMemoryError where the device has no room.
        """
        if nbytes <= 0:
            raise InternalError(
                f"allocate: {nbytes} bytes on {self.device}", rule="an empty tensor has no buffer"
            )
        size = size_class(nbytes)
        with self._lock:
            self._sort_in()
            handle = self._reuse(size)
            if handle is None:
                handle = self._fresh(size, nbytes)
            self.used_bytes += size
        if size >= _LARGE:
            reaper.look_after(self)
        return handle

    def allocate_all(self, sizes: Sequence[int]) -> list[Any] | None:
        """As `allocate` of blocks of `sizes`, which are size classes, at once; None where the
        device has no room for all.
        """
        found: list[Any] = []
        with self._lock:
            if self._returned or self.cached_bytes > self.runtime.cache_bytes:
                self._sort_in()
            for size in sizes:
                serials = self._by_class.get(size)
                if serials:
                    self.cached_bytes -= size
                    handle = self._cached.pop(serials.pop())[1]
                else:
                    try:
                        handle = self._fresh(size, size)
                    except OutOfMemoryError:
                        self._returned.extend(zip(sizes, found))
                        return None
                self.used_bytes += size
                found.append(handle)
        if sizes and max(sizes) >= _LARGE:
            reaper.look_after(self)
        return found

    def flush(self) -> int:
        """Give every block that waits for reuse back to the device; the number of bytes given
        back.
        """
        with self._lock:
            self._sort_in()
            before = self.cached_bytes
            if before:
                self.runtime.synchronize()
            self._shrink(0)
            return before - self.cached_bytes

    def free_idle(self, seconds: float) -> int:
        """Give back the blocks that have not been used for so long; the bytes that are left, used
        or kept.
        """
        with self._lock:
            self._sort_in()
            before = time.monotonic() - seconds
            idle = [serial for serial, each in self._cached.items() if each[2] <= before]
            if idle:
                self.runtime.synchronize()
            for serial in idle:
                self._drop(serial)
            return self.used_bytes + self.cached_bytes

    def forget_threads(self) -> None:
        """In a forked child: whoever held the lock is gone."""
        self._lock = threading.RLock()

    def _sort_in(self) -> None:
        now = time.monotonic() if self._returned else 0.0
        while self._returned:
            size, handle = self._returned.popleft()
            self.used_bytes -= size
            self._serial += 1
            self._cached[self._serial] = (size, handle, now)
            self._by_class.setdefault(size, []).append(self._serial)
            self.cached_bytes += size
        if self.cached_bytes > self.runtime.cache_bytes:
            self.runtime.synchronize()
            self._shrink(self.runtime.cache_bytes)

    def _shrink(self, limit: int) -> None:
        while self.cached_bytes > limit:
            self._drop(next(iter(self._cached)))

    def _drop(self, serial: int) -> None:
        size, handle, _ = self._cached.pop(serial)
        serials = self._by_class[size]
        serials.remove(serial)
        if not serials:
            del self._by_class[size]
        self.cached_bytes -= size
        self.runtime.free(handle, size)

    def _reuse(self, size: int) -> Any:
        serials = self._by_class.get(size)
        if not serials:
            return None
        self.cached_bytes -= size
        return self._cached.pop(serials.pop())[1]

    def _fresh(self, size: int, nbytes: int) -> Any:
        try:
            return self.runtime.allocate(size)
        except MemoryError:
            self.flush()
        try:
            return self.runtime.allocate(size)
        except OutOfMemoryError:
            raise
        except MemoryError:
            raise OutOfMemoryError(
                f"allocate: {nbytes} bytes do not fit on {self.device}",
                in_use=f"{self.used_bytes} bytes",
                remedy="free tensors that are no longer needed, or use smaller batches",
            ) from None


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
                left = [each.free_idle(seconds) for each in watched if seconds]
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


reaper = _Reaper()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: reaper.work.acquire(),
        after_in_parent=lambda: reaper.work.release(),
        after_in_child=lambda: reaper.forget_thread(),
    )
