"""Device memory: a `Buffer` is a number of elements on a device.

Memory is taken from the device's allocator when a buffer is first used and goes back to it when the
buffer dies, which may be anywhere, inside an allocation too, since the garbage collector chooses
the moment. Everything here may be called from any thread.

Memory that the host can reach may be lent: `lend` gives it, without a copy, to somebody who is to
see its value for good. A writer of a buffer calls `before_write` first, which leaves lent memory to
its readers and goes on in other memory. Memory that somebody else owns may be `fixed`: it is read
in place and never written to, so that a buffer over it goes on in other memory before its first
write.

`before_write` also counts the writes to memory that is watched: a cache of results of a value
compares the buffer's `version`.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
import weakref
from collections.abc import Sequence
from typing import Any, ClassVar

from tilegrad.base.dtype import DType
from tilegrad.base.errors import DeviceError, InternalError
from tilegrad.base.forks import held_at_fork
from tilegrad.base.origin import Entry
from tilegrad.base.trace import GlobalCounters
from tilegrad.runtime.allocator import LRUAllocator, size_class

__all__ = ["Buffer", "LRUAllocator", "address_of", "over", "size_class"]


class _PyBuffer(ctypes.Structure):
    """The structure that Python's buffer protocol fills in."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


def address_of(memory: memoryview) -> int:
    """Where contiguous memory of the host begins, which may be read-only; it is valid as long as
    `memory`.
    """
    found = _PyBuffer()
    api = ctypes.pythonapi
    api.PyObject_GetBuffer(ctypes.py_object(memory), ctypes.byref(found), 0)
    address = found.buf or 0
    api.PyBuffer_Release(ctypes.byref(found))
    return address


_blank = object.__new__
# Bytes that are copied in less time than a view of them takes to make.
_MOST_COPIED = 1 << 16


class Buffer:
    """`size` elements of `dtype` on a device; the memory is taken at the first use and given back
    with the buffer.
    """

    # For who takes memory for a buffer, or gives it another one.
    _lock: ClassVar[Any] = held_at_fork(threading.RLock(), 65)
    # Attributes that few buffers set have defaults on the class: a run makes a buffer of each
    # result.
    base: Buffer | None = None
    offset = 0
    owner: object = None
    # The user's calls behind the value, for errors.
    origin: tuple[Entry, ...] = ()
    is_fixed = is_watched = is_counted = has_copies = False
    # Whether others may write the memory, though they are asked not to.
    is_exposed = False
    _version = 0
    _handle: Any = None
    # Size class and handle of memory that goes back with the buffer.
    _block: tuple[int, Any] | None = None
    # Keeps lent memory, as long as somebody looks at it.
    _holder: Any = None
    # A handle, and the elements there as the host sees them, for who looks at them often.
    elements: tuple[Any, Any] | None = None

    moves: ClassVar[int] = 0
    """How often a buffer has gone on in other memory: who keeps handles compares."""

    writes: ClassVar[int] = 0
    """How often a buffer was written that `has_copies`: who keeps some compares this first."""

    def __init__(self, allocator: LRUAllocator, size: int, dtype: DType):
        if size <= 0:
            raise InternalError(
                f"buffer: {size} elements on {allocator.device}",
                rule="an empty tensor has no buffer",
            )
        self.allocator = allocator
        self.size = size
        self.dtype = dtype
        self.nbytes = size * dtype.nbytes

    @staticmethod
    def from_memory(
        allocator: LRUAllocator, memory: memoryview, dtype: DType, *, is_fixed: bool = False
    ) -> Buffer:
        """A buffer over host memory that someone else owns; nothing is copied, and the owner
        lives as long. Memory that `is_fixed`, or is read-only, is never written to.

        Raises DeviceError if the device cannot reach host memory, or the memory is not contiguous.
        """
        if not memory.c_contiguous or memory.nbytes % dtype.itemsize:
            raise DeviceError(
                "buffer: this memory cannot be wrapped",
                memory=f"{memory.nbytes} bytes, contiguous {memory.c_contiguous}",
                dtype=dtype,
            )
        flat = memory.cast("B")
        handle = allocator.runtime.wrap(flat)
        if handle is None:
            raise DeviceError(
                f"buffer: {allocator.device} cannot reach host memory", remedy="copy it in"
            )
        buffer = Buffer(allocator, memory.nbytes // dtype.itemsize, dtype)
        buffer._handle = handle
        buffer.owner = flat
        buffer.is_fixed = is_fixed or flat.readonly
        return buffer

    @property
    def device(self) -> str:
        """The canonical name of the device."""
        return self.allocator.device

    @property
    def is_allocated(self) -> bool:
        return self._handle is not None or (self.base is not None and self.base.is_allocated)

    @property
    def handle(self) -> Any:
        """The handle that the runtime's `launch` takes; the first use takes the memory."""
        found = self._handle
        return found if found is not None else self._take()

    def to_write(self) -> Any:
        """The handle of memory that is about to be written."""
        if self.base is not None:
            self.base.to_write()
        return self.handle

    def _take(self) -> Any:
        with self._lock:
            if self._handle is None:
                if self.base is not None:
                    self._handle = self.allocator.runtime.view(
                        self.base.handle, self.offset, self.nbytes
                    )
                else:
                    self._block = self._taken()
                    self._handle = self._block[1]
            return self._handle

    def _taken(self) -> tuple[int, Any]:
        """New memory, as a size class and a handle."""
        nbytes = self.nbytes
        handle = self.allocator.allocate(nbytes)
        GlobalCounters.take_memory(nbytes)
        return size_class(nbytes), handle

    # At the end of the process modules may be gone: its functions are at hand.
    def __del__(self, note_change: Any = GlobalCounters.note_change) -> None:
        block = self._block
        if block is not None:
            note_change(-self.nbytes)
            # As `take_back` of a small block, without its frame.
            blocks = self.allocator.quick.get(block[0])
            if blocks is not None and len(blocks) < self.allocator.most_quick:
                blocks.append(block[1])
            else:
                self.allocator.take_back(block)

    def deallocate(self) -> None:
        """Give the memory back now; the next use takes new memory, with undefined content."""
        with self._lock:
            self._leave()
            block, self._block = self._block, None
            if block is not None:
                GlobalCounters.take_memory(-self.nbytes)
                self.allocator.take_back(block)
            self._handle = None

    def give_up(self) -> None:
        """Be without memory for good, as another device has the name: a use is a DeviceError."""
        self.allocator.close()
        for each in (self, self.base or self):
            each.deallocate()

    def view(self, offset: int, size: int, dtype: DType | None = None) -> Buffer:
        """`size` elements that start `offset` bytes inside this buffer, in the same memory.

        Raises InternalError if they do not lie inside.
        """
        dtype = dtype or self.dtype
        base = self.base or self
        made = Buffer(self.allocator, size, dtype)
        if offset < 0 or offset % dtype.itemsize or offset + made.nbytes > self.nbytes:
            raise InternalError(
                f"buffer: a view of {made.nbytes} bytes at byte {offset} leaves the buffer",
                buffer=f"{self.nbytes} bytes on {self.device}",
                dtype=dtype,
            )
        made.base = base
        made.offset = self.offset + offset
        return made

    def copy_in(self, data: bytes | bytearray | memoryview) -> Buffer:
        """Fill the buffer with exactly its number of bytes."""
        source = _flat(data)
        if source.nbytes != self.nbytes:
            raise InternalError(
                f"copy in: {source.nbytes} bytes into a buffer of {self.nbytes}", device=self.device
            )
        self.allocator.runtime.copy_in(self.to_write(), source)
        return self

    def copy_out(self, into: memoryview | None = None) -> memoryview:
        """The bytes, copied into fresh memory or `into`."""
        if into is None:
            target = memoryview(bytearray(self.nbytes))
        else:
            target = _flat(into)
            if target.nbytes != self.nbytes:
                raise InternalError(
                    f"copy out: a buffer of {self.nbytes} bytes into {target.nbytes}",
                    device=self.device,
                )
        self.allocator.runtime.copy_out(target, self.handle)
        return target

    def host_view(self) -> memoryview | None:
        """The memory itself, if the host can reach it, after all work on it; the view keeps the
        buffer alive.
        """
        runtime = self.allocator.runtime
        found = runtime.host_view(self.handle, self.nbytes)
        if found is None:
            return None
        runtime.synchronize()
        if found.readonly:
            return found
        holder = (ctypes.c_char * self.nbytes).from_buffer(found)
        holder._buffer = self  # type: ignore[attr-defined]
        return memoryview(holder).cast("B")

    def seen(self) -> bytes | memoryview | None:
        """The bytes for somebody who looks at them at once, and writes nothing: a copy of a few,
        else the memory itself; None where the host cannot reach it.
        """
        nbytes = self.nbytes
        if nbytes <= _MOST_COPIED:
            found = self.allocator.runtime.bytes_at(self.handle, nbytes)
            if found is not None:
                return found
        return self.host_view()

    # views and copies of the value

    @property
    def version(self) -> int:
        """Another number after every write to the memory since it is watched."""
        return (self.base or self)._version

    def watch(self, *, has_copies: bool = False) -> int:
        """The version; from now on writes are counted. `has_copies` if somebody keeps copies of the
        value, in another order, and compares `writes`.
        """
        root = self.base or self
        root.is_watched = True
        root.has_copies = root.has_copies or has_copies
        return root._version

    def count_writes(self) -> int:
        """As `watch`, for one who does not mind if the memory of a tensor becomes another one."""
        root = self.base or self
        root.is_counted = True
        return root._version

    def expose(self) -> None:
        """The memory's address goes to others who could write there unseen."""
        (self.base or self).is_exposed = True
        Buffer.writes += 1

    @property
    def is_private(self) -> bool:
        """Whether only its writers here can change the memory: it is the allocator's, or of a
        file that was mapped for reading, and was not exposed.
        """
        if (self.base or self).is_exposed:
            return False
        owner = (self.base or self).owner
        if not isinstance(owner, memoryview):
            return owner is None
        return owner.readonly and isinstance(owner.obj, (bytes, mmap.mmap))

    # memory that is lent

    def lend(self) -> memoryview | None:
        """The memory itself, read-only, with the value it has now for as long as somebody looks at
        it; None where the host cannot reach it, or where it is a part of another buffer's.
        """
        if self.base is not None:
            return None
        holder = self._holder() if self._holder is not None else None
        if holder is None:
            found = self.host_view()
            if found is None or found.readonly:
                return found
            holder = found.obj
            self._holder = weakref.ref(holder)
        return memoryview(holder).cast("B").toreadonly()

    @property
    def is_lent(self) -> bool:
        """Whether somebody looks at the memory."""
        return self._holder is not None and self._holder() is not None

    def before_write(self) -> None:
        """Before a write: count it, and if the memory is lent or fixed, leave it to its lookers or
        owner and go on in other memory with the same content.

        Raises OutOfMemoryError if there is none; the buffer is then as it was.
        """
        base = self.base
        root = self if base is None else base
        if root.is_watched or root.is_counted:
            root._version += 1
            if root.has_copies:
                Buffer.writes += 1
        holder = self._holder() if self._holder is not None else None
        if holder is None and not self.is_fixed:
            return
        with self._lock:
            runtime = self.allocator.runtime
            old = self._handle
            runtime.synchronize()
            block = self._taken()
            handle = block[1]
            if not runtime.transfer(handle, old, runtime, self.nbytes):
                view = runtime.host_view(old, self.nbytes)
                assert view is not None
                runtime.copy_in(handle, view)
            self._leave()
            self._handle, self._block, self.owner = handle, block, None
            self.is_fixed = False
            Buffer.moves += 1

    def _leave(self) -> None:
        """From now on lent memory goes back with its last looker, not with this buffer."""
        holder = self._holder() if self._holder is not None else None
        self._holder = None
        if holder is None:
            return
        block, self._block = self._block, None
        if block is not None:
            _return_with(holder, self.allocator, block, self.nbytes)
        holder._buffer = self.owner
        self.owner = None

    def __repr__(self) -> str:
        offset = "" if self.base is None else f", offset={self.offset}"
        return f"<Buffer {self.device} {self.size} {self.dtype!r}{offset}>"


def over(
    allocator: LRUAllocator, rows: Sequence[tuple[int, DType, int, int]], handles: Sequence[Any]
) -> list[Buffer]:
    """Buffers over what `allocator.allocate_all` gave for them: of each the number of elements, the
    dtype, the number of bytes, and the size class.
    """
    found: list[Buffer] = []
    total = 0
    for (size, dtype, nbytes, block), handle in zip(rows, handles):
        buffer = _blank(Buffer)
        buffer.allocator = allocator
        buffer.size = size
        buffer.dtype = dtype
        buffer.nbytes = nbytes
        buffer._handle = handle
        buffer._block = block, handle
        total += nbytes
        found.append(buffer)
    GlobalCounters.take_memory(total)
    return found


class _Return(weakref.ref[Any]):
    """Gives memory back with its holder: a weak reference, as `weakref.finalize` takes several
    times as long to make. It does nothing at the end of the process.
    """

    __slots__ = ("allocator", "block", "nbytes")
    allocator: LRUAllocator
    nbytes: int
    # Size class and handle.
    block: tuple[int, Any]

    def give_back(self) -> None:
        """Give the memory back."""
        if _returns.pop(id(self), None) is not None:
            GlobalCounters.take_memory(-self.nbytes)
            self.allocator.take_back(self.block)


# A reference that is gone calls nothing.
_returns: dict[int, _Return] = {}


def _return_with(
    holder: object, allocator: LRUAllocator, block: tuple[int, Any], nbytes: int
) -> None:
    """Let the memory `block` go back to the allocator with its holder."""
    found = _Return(holder, _Return.give_back)
    found.allocator, found.nbytes, found.block = allocator, nbytes, block
    _returns[id(found)] = found


def _flat(data: bytes | bytearray | memoryview) -> memoryview:
    view = memoryview(data)
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")
