"""WebAssembly: an object becomes a module that an engine takes, and `node` runs it.

LLVM's object is nearly a module: what it imports, the memory and the pointer to the top of the
stack, stands in it as it will stay. `module` adds what a linker would, the export of the kernel,
and leaves out what only a linker reads. The layout is that of the "WebAssembly Core Specification"
and, for the table of symbols, of the tool conventions' "Linking".

`NodeRuntime` keeps one `node` process, whose memory all modules share. Bytes go through pipes: a
message is a header of four words and what it is about, the answer a word, 0 or the length of an
error's text. A trap is an error of that launch only.
"""

from __future__ import annotations

import os
import struct
import subprocess
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from tilegrad.base.errors import DataError, DeviceError
from tilegrad.base.forks import held_at_fork
from tilegrad.runtime.allocator import FreeList
from tilegrad.runtime.protocol import Dims, Runtime

__all__ = ["NodeProgram", "NodeRuntime", "module"]

_MAGIC = b"\0asm\1\0\0\0"
_CUSTOM, _IMPORT, _EXPORT, _DATA = 0, 2, 7, 11
# Custom sections have the number 0 and may stand anywhere; the others are ordered by number.
_GLOBAL = 6
_SYMBOL_TABLE, _FUNCTION_SYMBOL, _HAS_NAME = 8, 0, 0x40
_UNDEFINED = 0x10
_OFFERED = frozenset({"__linear_memory", "__stack_pointer", "__indirect_function_table"})


class _Reader:
    """Numbers and names out of bytes."""

    def __init__(self, data: bytes, start: int = 0):
        self.data, self.at = data, start

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def number(self) -> int:
        """An unsigned LEB128."""
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def name(self) -> str:
        size = self.number()
        self.at += size
        return self.data[self.at - size : self.at].decode()


def _leb(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _sections(data: bytes) -> Iterator[tuple[int, bytes]]:
    reader = _Reader(data, len(_MAGIC))
    while reader.at < len(data):
        number, size = reader.byte(), reader.number()
        if reader.at + size > len(data):
            raise DataError("the object is damaged", bytes=len(data), needs=reader.at + size)
        yield number, data[reader.at : reader.at + size]
        reader.at += size


def module(data: bytes) -> bytes:
    """The object `data` as a module that exports each function that it defines.

    Raises DataError for what is no such object or holds data, DeviceError for one that needs a
    function of some library.
    """
    if data[: len(_MAGIC)] != _MAGIC:
        raise DataError("not a WebAssembly object", begins=data[:8])
    try:
        sections = list(_sections(data))
        exports: list[bytes] = []
        for number, body in sections:
            if number == _IMPORT:
                _check_imports(body)
            elif number == _DATA:
                raise DataError("the object holds data, which no kernel has", bytes=len(body))
            elif number == _CUSTOM:
                reader = _Reader(body)
                if reader.name() == "linking":
                    exports = list(_exported(body, reader.at))
    except (IndexError, UnicodeDecodeError) as error:
        raise DataError("the object is damaged", found=error) from None
    body = _leb(len(exports)) + b"".join(exports)
    others = [(number, content) for number, content in sections if number not in (_CUSTOM, _EXPORT)]
    before = [each for each in others if each[0] <= _GLOBAL]
    after = [each for each in others if each[0] > _GLOBAL]
    return _MAGIC + b"".join(
        bytes([number]) + _leb(len(content)) + content
        for number, content in (*before, (_EXPORT, body), *after)
    )


def _check_imports(body: bytes) -> None:
    reader = _Reader(body)
    for _ in range(reader.number()):
        space, name, kind = reader.name(), reader.name(), reader.byte()
        if space != "env" or name not in _OFFERED:
            raise DeviceError(f"an object needs {name!r}, which is nowhere", known=sorted(_OFFERED))
        if kind == 1:
            reader.byte()
        if kind in (1, 2):
            has_most = reader.byte() & 1
            for _ in range(1 + has_most):
                reader.number()
        else:
            reader.number()
            reader.number()


def _exported(body: bytes, start: int) -> Iterator[bytes]:
    """The entries of the export section, from the functions that the table of symbols defines."""
    reader = _Reader(body, start)
    reader.number()  # the version
    while reader.at < len(body):
        kind, size = reader.byte(), reader.number()
        end = reader.at + size
        if kind == _SYMBOL_TABLE:
            for _ in range(reader.number()):
                what, flags, index = reader.byte(), reader.number(), reader.number()
                if flags & _UNDEFINED and not flags & _HAS_NAME:
                    continue
                name = reader.name().encode()
                if what == _FUNCTION_SYMBOL and not flags & _UNDEFINED:
                    yield _leb(len(name)) + name + b"\0" + _leb(index)
        reader.at = end


# The lowest bytes are the stack, which grows downwards; what lies at 0 is nothing.
_STACK_BYTES, _MOST_BYTES, _PAGE = 4 << 20, (1 << 32) - (1 << 16), 1 << 16
_HEADER = struct.Struct("<4Q")
_WORD = struct.Struct("<Q")
_WRITE, _READ, _LOAD, _LAUNCH, _UNLOAD, _GROW = range(1, 7)

_RUNNER = f"""
const fs = require("fs");
const memory = new WebAssembly.Memory({{initial: {_STACK_BYTES // _PAGE}, maximum: 65535}});
const stack = new WebAssembly.Global({{value: "i32", mutable: true}}, {_STACK_BYTES});
const env = {{__linear_memory: memory, __stack_pointer: stack}};
const kernels = new Map();
function take(bytes) {{
  for (let done = 0; done < bytes.length;) {{
    let got = 0;
    try {{ got = fs.readSync(0, bytes, done, bytes.length - done); }}
    catch (error) {{ if (error.code === "EAGAIN") continue; throw error; }}
    if (got === 0) process.exit(0);
    done += got;
  }}
  return bytes;
}}
function give(bytes) {{
  for (let done = 0; done < bytes.length;) {{
    try {{ done += fs.writeSync(1, bytes, done, bytes.length - done); }}
    catch (error) {{ if (error.code !== "EAGAIN") throw error; }}
  }}
}}
function word(number) {{ return new Uint8Array(new BigUint64Array([BigInt(number)]).buffer); }}
function answer(what, a, b, c) {{
  const bytes = () => new Uint8Array(memory.buffer, a, b);
  if (what === {_WRITE}) {{ take(bytes()); }}
  else if (what === {_READ}) {{ give(word(0)); give(bytes()); return; }}
  else if (what === {_LOAD}) {{
    const code = take(new Uint8Array(b)), name = Buffer.from(take(new Uint8Array(c))).toString();
    const instance = new WebAssembly.Instance(new WebAssembly.Module(code), {{env}});
    kernels.set(a, instance.exports[name]);
  }} else if (what === {_LAUNCH}) {{
    const kernel = kernels.get(a);
    stack.value = {_STACK_BYTES};
    for (let chunk = 0; chunk < c; chunk++) kernel(b, BigInt(chunk));
  }} else if (what === {_UNLOAD}) {{ kernels.delete(a); }}
  else if (what === {_GROW}) {{
    const more = Math.ceil((a - memory.buffer.byteLength) / {_PAGE});
    if (more > 0) memory.grow(more);
  }}
  give(word(0));
}}
while (true) {{
  const head = new BigUint64Array(take(new Uint8Array({_HEADER.size})).buffer);
  try {{ answer(...Array.from(head, Number)); }}
  catch (error) {{
    const text = Buffer.from(String(error));
    give(word(text.length));
    give(text);
  }}
}}
"""


class NodeProgram:
    """A kernel of an instance in the `node` process; it goes with this."""

    __slots__ = ("__weakref__", "name", "number")

    def __init__(self, name: str, number: int):
        self.name, self.number = name, number


class NodeRuntime(Runtime):
    """Memory and launches of one `node` process; a handle is an offset in its memory."""

    is_timed = False
    cache_bytes = 1 << 28

    def __init__(self, node: str) -> None:
        self._node = node
        self._lock = held_at_fork(threading.RLock(), 66)
        self._free = FreeList(_STACK_BYTES, _MOST_BYTES)
        self._end = _STACK_BYTES
        self._process: subprocess.Popen[bytes] | None = None
        self._count = 0
        self._owner = os.getpid()
        self._arguments = 0
        self._dropped: list[int] = []

    def allocate(self, nbytes: int) -> int:
        with self._lock:
            self._started()
            return self._take(nbytes)

    def _take(self, nbytes: int) -> int:
        found = self._free.take(nbytes)
        end = found + nbytes + -nbytes % _PAGE
        if end > self._end:
            try:
                self._ask(_GROW, end)
            except DeviceError:
                self._free.give_back(found, nbytes)
                raise MemoryError(nbytes) from None
            self._end = end
        return found

    def free(self, handle: int, nbytes: int) -> None:
        with self._lock:
            self._free.give_back(handle, nbytes)

    def copy_in(self, handle: int, data: memoryview) -> None:
        source = data.cast("B") if data.contiguous else memoryview(bytes(data))
        with self._lock:
            self._ask(_WRITE, handle, source.nbytes, payload=source)

    def copy_out(self, data: memoryview, handle: int) -> None:
        with self._lock:
            self._ask(_READ, handle, data.nbytes)
            self._read(data.cast("B"))

    def view(self, handle: int, offset: int, nbytes: int) -> int:
        return handle + offset

    def load(self, name: str, binary: bytes) -> NodeProgram:
        code = module(binary)
        with self._lock:
            self._count += 1
            program = NodeProgram(name, self._count)
            text = name.encode()
            self._ask(_LOAD, self._count, len(code), len(text), payload=code + text)
        finalizer = weakref.finalize(program, self._dropped.append, program.number)
        finalizer.atexit = False
        return program

    def launch(
        self,
        program: NodeProgram,
        handles: Sequence[int],
        variables: Sequence[int],
        global_size: Dims,
        local_size: Dims,
        wait: bool = False,
    ) -> float | None:
        count = len(handles) + len(variables)
        words = struct.pack(f"<{count}q", *handles, *variables)
        with self._lock:
            began = time.perf_counter()
            while self._dropped:
                self._ask(_UNLOAD, self._dropped.pop())
            if len(words) > _PAGE:
                raise DeviceError(f"{program.name}: {count} arguments", most=_PAGE // 8)
            if words:
                self._ask(_WRITE, self._arguments, len(words), payload=words)
            try:
                self._ask(_LAUNCH, program.number, self._arguments, global_size[0])
            except DeviceError as error:
                raise DeviceError(f"{program.name}: {error.headline}") from None
            return time.perf_counter() - began

    def _started(self) -> subprocess.Popen[bytes]:
        if os.getpid() != self._owner:
            raise DeviceError(
                "node: a forked process shares this device with its parent",
                remedy="start the process anew (spawn)",
            )
        if self._process is None:
            self._process = subprocess.Popen(
                [self._node, "-e", _RUNNER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
            )
            weakref.finalize(self, _end, self._process)
            self._arguments = self._take(_PAGE)
        return self._process

    def _ask(
        self, what: int, a: int = 0, b: int = 0, c: int = 0, payload: bytes | memoryview = b""
    ) -> None:
        """A message, and its answer.

        Raises DeviceError with the answer's text where it is an error.
        """
        process = self._started()
        assert process.stdin is not None
        header = _HEADER.pack(what, a, b, c)
        try:
            for message in (header, payload):
                rest = memoryview(message)
                while rest.nbytes:
                    rest = rest[process.stdin.write(rest) or 0 :]
        except BrokenPipeError:
            raise _ended(process.poll()) from None
        answer = bytearray(_WORD.size)
        self._read(memoryview(answer))
        (size,) = _WORD.unpack(answer)
        if size:
            text = bytearray(size)
            self._read(memoryview(text))
            raise DeviceError(f"node: {text.decode(errors='replace')}")

    def _read(self, into: memoryview) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        while into.nbytes:
            got = self._process.stdout.readinto(into)  # type: ignore[attr-defined]
            if not got:
                raise _ended(self._process.wait())
            into = into[got:]


def _ended(code: int | None) -> DeviceError:
    return DeviceError(
        "node: the process has ended",
        code=code,
        rule="the device's memory was in it, and is lost",
        remedy="start this process anew",
    )


def _end(process: subprocess.Popen[Any]) -> None:
    """Without input it ends by itself."""
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
