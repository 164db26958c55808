"""A file as a device: `DISK:path`.

    render, compile   none: a file holds values, and is copied to a device that computes
    run               the mapped file

Memory on this device is the file itself, from its first byte: to write a tensor to it is to write
the file, which is made, or made longer, by a write of a tensor of more bytes than it has. Nothing
is ever cut off, and reading changes nothing: what is not there cannot be read. Two tensors of one
file see the same bytes.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass

from tilegrad.base.dtype import DType
from tilegrad.base.errors import DataError, DeviceError
from tilegrad.device.backend import Backend
from tilegrad.device.host import HostMemory
from tilegrad.ir.uop import UOp
from tilegrad.runtime.allocator import LRUAllocator
from tilegrad.runtime.buffer import Buffer
from tilegrad.runtime.protocol import Runtime
from tilegrad.target import Target

__all__ = ["FileBackend", "FileMemory", "backend", "is_file", "mapped"]

_KIND = "DISK"
_PREFIX = f"{_KIND}:"


def is_file(name: str) -> bool:
    """Whether a device is a file."""
    return name.startswith(_PREFIX)


def mapped(path: str, nbytes: int | None = None, *, is_made: bool = False) -> memoryview:
    """The file at `path` as memory: all of it to read, or its first `nbytes`, to write as well
    where that is allowed. With `is_made` the file is made, or made longer, if need be.

    Raises DataError if the file cannot be opened, has fewer bytes, or there is no room for it.
    """
    try:
        if nbytes is None:
            with open(path, "rb") as file:
                if not os.fstat(file.fileno()).st_size:
                    return memoryview(b"")
                return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        handle, access = _opened(path, is_made)
        try:
            if (size := os.fstat(handle).st_size) < nbytes:
                if not is_made:
                    raise DataError(
                        f"{_KIND}: the file has fewer bytes than the tensor",
                        file=path,
                        tensor=f"{nbytes} bytes",
                        found=f"{size} bytes",
                        remedy="a write makes the file longer; reading does not",
                    )
                if hasattr(os, "posix_fallocate"):
                    # A full disk is told now, not by the kernel when a page is first touched.
                    os.posix_fallocate(handle, 0, nbytes)
                else:
                    os.ftruncate(handle, nbytes)
            return memoryview(mmap.mmap(handle, nbytes, access=access))
        finally:
            os.close(handle)
    except (OSError, ValueError, OverflowError) as error:
        is_absent = isinstance(error, FileNotFoundError) and nbytes is not None
        remedy = {"remedy": "a write makes the file; reading does not"} if is_absent else {}
        raise DataError(
            f"{_KIND}: cannot open the file: {getattr(error, 'strerror', None) or error}",
            file=path,
            bytes="all" if nbytes is None else nbytes,
            **remedy,
        ) from error


def _opened(path: str, is_made: bool) -> tuple[int, int]:
    """The file and how it may be mapped: to be written, but where only reading is allowed."""
    flags = getattr(os, "O_BINARY", 0)
    try:
        return os.open(path, os.O_RDWR | flags | (os.O_CREAT if is_made else 0), 0o666), (
            mmap.ACCESS_WRITE
        )
    except PermissionError:
        if is_made:
            raise
        return os.open(path, os.O_RDONLY | flags), mmap.ACCESS_READ


class FileBuffer(Buffer):
    """The first elements of a file, which is mapped when it is first read or written."""

    def __init__(self, allocator: LRUAllocator, size: int, dtype: DType, path: str):
        super().__init__(allocator, size, dtype)
        self.path = path

    def _take(self) -> memoryview:
        with self._lock:
            if self._handle is None:
                self._handle = mapped(self.path, self.nbytes)
            return self._handle  # type: ignore[no-any-return]

    def to_write(self) -> memoryview:
        with self._lock:
            if self._handle is None or self._handle.readonly:
                self._handle = mapped(self.path, self.nbytes, is_made=True)
            return self._handle  # type: ignore[no-any-return]

    @property
    def is_private(self) -> bool:
        """Others may write the file."""
        return False


class FileMemory(HostMemory):
    """The mapped file; a handle is a memoryview."""

    def host_view(self, handle: memoryview, nbytes: int) -> memoryview | None:
        # Memory that may still be written is copied for those who look at it.
        return handle[:nbytes] if handle.readonly else None


@dataclass(frozen=True, eq=False)
class FileBackend(Backend):
    """A device whose buffers are the file."""

    path: str = ""

    def buffer(self, size: int, dtype: DType) -> Buffer:
        """The first `size` elements of the file, which need not be there before it is written.

        Raises DataError for a folder.
        """
        if os.path.isdir(self.path):
            raise DataError(f"{_KIND}: cannot open the file: Is a directory", file=self.path)
        return FileBuffer(self.allocator, size, dtype, self.path)

    def whole(self, dtype: DType) -> Buffer | None:
        """All of the file, to read; None if it is empty."""
        memory = mapped(self.path)
        return Buffer.from_memory(self.allocator, memory, dtype) if memory.nbytes else None


def _render(name: str, program: Sequence[UOp]) -> str:
    raise DeviceError(
        f"{_KIND}: {name} cannot run in a file",
        remedy="move the tensor first: .to('CPU')",
    )


def _compile(source: str) -> bytes:
    raise DeviceError(f"{_KIND}: a file runs nothing")


def backend(name: str, runtime: Runtime | None = None) -> Backend:
    """The file that `name` gives behind the colon."""
    if not is_file(name):
        raise DeviceError(f"{_KIND}: a file is needed", rule=f"{_KIND}:path")
    memory = runtime or FileMemory()
    return FileBackend(name, Target("file"), _render, _compile, memory, path=name.partition(":")[2])
