"""Programs for another processor, run by `qemu-user`: one emulator process, and memory that it
shares with this one.

The memory is a file without a name, mapped here anywhere and over there at `BASE`. A handle is an
address over there. Code lies in the first part of the file, data in the rest, so a launch is one
message through a pipe: the address of the kernel, of its arguments, and the number of chunks. The
    answers come from a program of a few instructions (`runner_text`), which is compiled like a
    kernel: no compiler, linker or C library of the other processor is needed.

A kernel that crashes ends the emulator. The memory outlives it, the next launch starts another.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import struct
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from tilegrad.base.errors import DeviceError
from tilegrad.base.forks import held_at_fork
from tilegrad.runtime.allocator import FreeList
from tilegrad.runtime.buffer import address_of
from tilegrad.runtime.link import AARCH64, RISCV, Linked, executable, link
from tilegrad.runtime.protocol import Dims, Runtime

__all__ = ["BASE", "GuestMemory", "GuestProgram", "GuestRuntime", "runner_text"]

BASE = 1 << 32
"""Where the shared memory lies over there."""

# A program of this many pages is never met; the emulator keeps a record of every page.
_CODE_BYTES, _DATA_BYTES = 256 << 20, 3 << 30
_RUNNER_BASE = 0x401000
_PAGE = mmap.PAGESIZE
_REMOVE = 9  # madvise: give the file's pages back
_MESSAGE = struct.Struct("<QQQQ")
_ANSWER = 8

# A system call as a C function: its number, then six arguments. Linux on both processors takes the
# number in one register (x8, a7) and the arguments in the first ones.
_SYSTEM_CALL = {
    AARCH64: struct.pack(
        "<9I",
        0xAA0003E8,  # mov x8, x0
        *(0xAA0003E0 | number + 1 << 16 | number for number in range(6)),
        0xD4000001,  # svc #0
        0xD65F03C0,  # ret
    ),
    RISCV: struct.pack(
        "<9I",
        0x00050893,  # mv a7, a0
        *(0x13 | number + 1 << 15 | number << 7 for number in range(10, 16)),
        0x00000073,  # ecall
        0x00008067,  # ret
    ),
}  # fmt: skip


def runner_text() -> str:
    """The program over there, as LLVM IR. Its first message is the descriptor, the address and the
    size of the shared memory, each further one a launch; without one it ends.
    """
    # Numbers of Linux's table for all newer processors: read, write, exit, mmap.
    return f"""
declare i64 @system_call(i64, i64, i64, i64, i64, i64, i64)
define void @_start() nounwind {{
entry:
  %job = alloca [4 x i64], align 16
  %at = ptrtoint ptr %job to i64
  %p1 = getelementptr i64, ptr %job, i64 1
  %p2 = getelementptr i64, ptr %job, i64 2
  call i64 @system_call(i64 63, i64 0, i64 %at, i64 {_MESSAGE.size}, i64 0, i64 0, i64 0)
  %file = load volatile i64, ptr %job
  %base = load volatile i64, ptr %p1
  %size = load volatile i64, ptr %p2
  call i64 @system_call(i64 222, i64 %base, i64 %size, i64 7, i64 17, i64 %file, i64 0)
  br label %next
next:
  call i64 @system_call(i64 64, i64 1, i64 %at, i64 {_ANSWER}, i64 0, i64 0, i64 0)
  %got = call i64 @system_call(i64 63, i64 0, i64 %at, i64 {_MESSAGE.size}, i64 0, i64 0, i64 0)
  %more = icmp eq i64 %got, {_MESSAGE.size}
  br i1 %more, label %work, label %end
work:
  %kernel = load volatile ptr, ptr %job
  %args = load volatile ptr, ptr %p1
  %chunks = load volatile i64, ptr %p2
  br label %loop
loop:
  %chunk = phi i64 [0, %work], [%after, %loop]
  call void %kernel(ptr %args, i64 %chunk)
  %after = add i64 %chunk, 1
  %again = icmp slt i64 %after, %chunks
  br i1 %again, label %loop, label %next
end:
  call i64 @system_call(i64 93, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0)
  unreachable
}}
"""


_SUPPORT = """
define ptr @memset(ptr %to, i32 %value, i64 %size) nounwind {
entry:
  %byte = trunc i32 %value to i8
  %some = icmp ne i64 %size, 0
  br i1 %some, label %loop, label %end
loop:
  %i = phi i64 [0, %entry], [%n, %loop]
  %p = getelementptr i8, ptr %to, i64 %i
  store volatile i8 %byte, ptr %p
  %n = add i64 %i, 1
  %more = icmp ult i64 %n, %size
  br i1 %more, label %loop, label %end
end:
  ret ptr %to
}
define ptr @memmove(ptr %to, ptr %from, i64 %size) nounwind {
entry:
  %a = ptrtoint ptr %to to i64
  %b = ptrtoint ptr %from to i64
  %ahead = icmp ugt i64 %a, %b
  %last = sub i64 %size, 1
  %start = select i1 %ahead, i64 %last, i64 0
  %step = select i1 %ahead, i64 -1, i64 1
  %some = icmp ne i64 %size, 0
  br i1 %some, label %loop, label %end
loop:
  %i = phi i64 [%start, %entry], [%n, %loop]
  %left = phi i64 [%size, %entry], [%rest, %loop]
  %p = getelementptr i8, ptr %to, i64 %i
  %q = getelementptr i8, ptr %from, i64 %i
  %byte = load volatile i8, ptr %q
  store volatile i8 %byte, ptr %p
  %n = add i64 %i, %step
  %rest = sub i64 %left, 1
  %more = icmp ne i64 %rest, 0
  br i1 %more, label %loop, label %end
end:
  ret ptr %to
}
define ptr @memcpy(ptr %to, ptr %from, i64 %size) nounwind {
  %same = call ptr @memmove(ptr %to, ptr %from, i64 %size)
  ret ptr %same
}
"""


class GuestMemory:
    """A file of `nbytes` without a name, and which of its bytes are free. It takes the memory of
    the pages that were written.
    """

    def __init__(self, nbytes: int):
        self.nbytes = nbytes
        if hasattr(os, "memfd_create"):
            self.file = os.memfd_create("tilegrad")
        else:
            self.file, path = tempfile.mkstemp()
            os.unlink(path)
        os.ftruncate(self.file, nbytes)
        self.map = mmap.mmap(self.file, nbytes)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        weakref.finalize(self, os.close, self.file)
        self._code = FreeList(0, _CODE_BYTES, _PAGE)
        self._data = FreeList(_CODE_BYTES, nbytes)

    def take(self, nbytes: int, *, is_code: bool = False) -> int:
        """The offset of `nbytes` bytes. Code is on pages of its own, and its pages are used once:
        the emulator keeps what it made of them.

        Raises MemoryError where there is no room.
        """
        return (self._code if is_code else self._data).take(nbytes)

    def give_back(self, offset: int, nbytes: int, *, is_code: bool = False) -> None:
        """Give back a range that `take` gave; whole pages of it go back to the system."""
        first, last = offset + -offset % _PAGE, (offset + nbytes) // _PAGE * _PAGE
        if last > first:
            self.map.madvise(_REMOVE, first, last - first)
        if not is_code:
            self._data.give_back(offset, nbytes)


class GuestProgram:
    """A kernel in the shared memory; its pages go back with it."""

    __slots__ = ("__weakref__", "address", "name")

    def __init__(self, name: str, linked: Linked, memory: GuestMemory):
        offset = linked.base - BASE
        memory.map[offset : offset + len(linked.image)] = linked.image
        self.name, self.address = name, linked.symbols[name]
        size = len(linked.image) + -len(linked.image) % _PAGE
        give_back = weakref.finalize(self, memory.give_back, offset, size, is_code=True)
        give_back.atexit = False


class GuestRuntime(Runtime):
    """Memory shared with an emulator, and launches over there. `command` starts the emulator with
    a program file, `compile_text` makes an object for its processor of LLVM IR.
    """

    is_timed = False
    cache_bytes = 1 << 28

    def __init__(
        self, command: Sequence[str], machine: int, compile_text: Callable[[str], bytes]
    ) -> None:
        self._command, self._machine, self._compile = tuple(command), machine, compile_text
        self._lock = held_at_fork(threading.RLock(), 66)
        self._memory: GuestMemory | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        self._support: bytes | None = None
        self._runner: bytes | None = None
        self._arguments = 0

    @property
    def memory(self) -> GuestMemory:
        if self._memory is None:
            with self._lock:
                if self._memory is None:
                    memory = GuestMemory(_CODE_BYTES + _DATA_BYTES)
                    self._arguments = memory.take(_PAGE)
                    self._memory = memory
        return self._memory

    def allocate(self, nbytes: int) -> int:
        with self._lock:
            return BASE + self.memory.take(nbytes)

    def free(self, handle: int, nbytes: int) -> None:
        with self._lock:
            self.memory.give_back(handle - BASE, nbytes)

    def _here(self, handle: int) -> int:
        return self.memory.address + handle - BASE

    def copy_in(self, handle: int, data: memoryview) -> None:
        source = data if data.contiguous else memoryview(bytes(data))
        ctypes.memmove(self._here(handle), address_of(source), source.nbytes)

    def copy_out(self, data: memoryview, handle: int) -> None:
        ctypes.memmove(address_of(data), self._here(handle), data.nbytes)

    def view(self, handle: int, offset: int, nbytes: int) -> int:
        return handle + offset

    def load(self, name: str, binary: bytes) -> GuestProgram:
        with self._lock:
            if self._support is None:
                self._support = self._compile(_SUPPORT)
            # The size does not depend on the address.
            size = len(self._linked(binary, BASE).image)
            base = BASE + self.memory.take(size, is_code=True)
            return GuestProgram(name, self._linked(binary, base), self.memory)

    def _linked(self, binary: bytes, base: int) -> Linked:
        """The object alone where it calls nothing, else with the functions that it may call."""
        try:
            return link([binary], self._machine, base, {})
        except DeviceError:
            assert self._support is not None
            return link([binary, self._support], self._machine, base, {})

    def launch(
        self,
        program: GuestProgram,
        handles: Sequence[int],
        variables: Sequence[int],
        global_size: Dims,
        local_size: Dims,
        wait: bool = False,
    ) -> float | None:
        words = struct.pack(
            f"<{len(handles) + len(variables)}q",
            *handles,
            *((value + (1 << 63)) % (1 << 64) - (1 << 63) for value in variables),
        )
        with self._lock:
            memory, process = self.memory, self._started()
            if len(words) > _PAGE:
                raise DeviceError(f"{program.name}: {len(words) // 8} arguments", most=_PAGE // 8)
            memory.map[self._arguments : self._arguments + len(words)] = words
            began = time.perf_counter()
            message = _MESSAGE.pack(program.address, BASE + self._arguments, global_size[0], 0)
            self._send(process, message, program.name)
            return time.perf_counter() - began

    def _started(self) -> subprocess.Popen[bytes]:
        """The emulator, with the memory mapped."""
        if os.getpid() != self._owner:
            raise DeviceError(
                f"{self._command[0]}: a forked process shares this device's memory with its parent",
                remedy="start the process anew (spawn)",
            )
        if self._process is not None and self._process.poll() is None:
            return self._process
        if self._runner is None:
            self._runner = self._built_runner()
        handle, path = tempfile.mkstemp(prefix="tilegrad-", suffix=".elf")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(self._runner)
            os.chmod(path, 0o700)
            process = subprocess.Popen(
                [*self._command, path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                pass_fds=(self.memory.file,),
            )
            self._process = process
            message = _MESSAGE.pack(self.memory.file, BASE, self.memory.nbytes, 0)
            self._send(process, message, "the runner")
        except OSError as error:
            raise DeviceError(f"{self._command[0]} cannot be started: {error}") from None
        finally:
            os.unlink(path)
        weakref.finalize(self, _end, process)
        return process

    def _built_runner(self) -> bytes:
        """The program file: the system call, then the compiled runner."""
        call = _SYSTEM_CALL[self._machine]
        start = len(call) + -len(call) % _PAGE
        runner = link(
            [self._compile(runner_text())],
            self._machine,
            _RUNNER_BASE + start,
            {"system_call": _RUNNER_BASE},
        )
        image = call.ljust(start, b"\0") + runner.image
        whole = Linked(_RUNNER_BASE, image, runner.symbols, runner.flags)
        return executable(whole, self._machine, "_start")

    def _send(self, process: subprocess.Popen[bytes], message: bytes, name: str) -> None:
        """One message, and its answer.

        Raises DeviceError where the emulator ended instead.
        """
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(message)
            answer = process.stdout.read(_ANSWER)
        except BrokenPipeError:
            answer = b""
        if len(answer or b"") == _ANSWER:
            return
        code = process.wait()
        self._process = None
        _close(process)
        try:
            how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        except ValueError:
            how = f"ended by signal {-code}"
        raise DeviceError(
            f"{name}: the emulator {how}",
            command=" ".join(self._command),
            remedy="memory is kept, and the next launch starts the emulator again",
        )


def _close(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


def _end(process: subprocess.Popen[Any]) -> None:
    """Without input the runner ends by itself."""
    _close(process)
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
