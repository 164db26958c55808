"""Memory of one value on several devices: a buffer for each, which has a range of its elements or
all of them.

It stands where a `Buffer` does for code that reads a value, or asks how large it is. Kernels only
ever see the buffers of the devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from tilegrad.base.dtype import DType
from tilegrad.base.errors import InternalError
from tilegrad.base.origin import Entry
from tilegrad.runtime.buffer import Buffer

__all__ = ["GroupBuffer"]


class _NoRuntime:
    """The host looks at no number in place."""

    number_types: ClassVar[dict[DType, Any]] = {}


class _NoAllocator:
    """No single device has the memory."""

    runtime = _NoRuntime()
    device = ""


class GroupBuffer:
    """`size` elements on the devices of `shards`, which are None where a device has nothing.
    `bounds` are the ranges that they have, none if each has all.
    """

    allocator = _NoAllocator()
    base: None = None
    _handle: None = None
    # Who writes asks by `before_write` what there is to do on each device.
    is_watched = True
    is_fixed = has_copies = is_private = False
    _holder: None = None
    origin: tuple[Entry, ...] = ()

    def __init__(
        self,
        shards: Sequence[Buffer | None],
        bounds: Sequence[tuple[int, int]],
        size: int,
        dtype: DType,
    ):
        self.shards, self.bounds = tuple(shards), tuple(bounds)
        self.size, self.dtype = size, dtype
        self.nbytes = size * dtype.nbytes

    @property
    def device(self) -> str:
        """The devices that have elements."""
        return ", ".join([shard.device for shard in self.shards if shard is not None])

    @property
    def is_allocated(self) -> bool:
        return all(shard.is_allocated for shard in self.shards if shard is not None)

    def copy_out(self, into: memoryview | None = None) -> memoryview:
        """The bytes of the whole value, in fresh memory of the host or `into`."""
        target = memoryview(bytearray(self.nbytes)) if into is None else into.cast("B")
        if target.nbytes != self.nbytes:
            raise InternalError(f"copy out: {self.nbytes} bytes into {target.nbytes}")
        if not self.bounds:
            first = next(shard for shard in self.shards if shard is not None)
            return first.copy_out(target)
        width = self.dtype.nbytes
        for shard, (start, end) in zip(self.shards, self.bounds):
            if shard is not None:
                shard.copy_out(target[start * width : end * width])
        return target

    def host_view(self) -> None:
        """No memory of the host has all of the value."""
        return None

    def lend(self) -> None:
        """As `host_view`."""
        return None

    def expose(self) -> None:
        """The memory of each device goes to others."""
        for shard in self.shards:
            if shard is not None:
                shard.expose()

    def before_write(self) -> None:
        """As of a buffer, of each."""
        for shard in self.shards:
            if shard is not None:
                shard.before_write()

    @property
    def is_lent(self) -> bool:
        return any(shard.is_lent for shard in self.shards if shard is not None)

    @property
    def version(self) -> int:
        """Another number after every write to the memory since it is watched."""
        return sum(shard.version for shard in self.shards if shard is not None)

    def watch(self) -> int:
        """As of a buffer."""
        return sum(shard.watch() for shard in self.shards if shard is not None)

    def count_writes(self) -> int:
        """As of a buffer."""
        return sum(shard.count_writes() for shard in self.shards if shard is not None)

    def __repr__(self) -> str:
        return f"<GroupBuffer {self.device} {self.size} {self.dtype!r}>"
