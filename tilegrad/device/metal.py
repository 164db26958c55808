"""Apple's GPUs through the framework Metal, called as Objective-C by ctypes.

    render    tilegrad.render.metal     the Metal shading language
    compile   the system                which keeps what it made of a text
    run       here                      shared memory, one queue, a command buffer for each launch;
                                        one for those of a captured function

`METAL` is the GPU that the system prefers. `NULL:METAL` and `EMU:METAL` need none.
"""

from __future__ import annotations

import ctypes
import math
import os
import struct
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tilegrad.base.errors import CompileError, DeviceError, OutOfMemoryError
from tilegrad.base.failed import refused
from tilegrad.base.forks import held_at_fork
from tilegrad.device.backend import Backend, require_number
from tilegrad.hardware import metal_target
from tilegrad.ir.uop import UOp
from tilegrad.runtime.buffer import address_of
from tilegrad.runtime.interface import Interface, heading
from tilegrad.runtime.objective_c import Count, Object, ObjectiveC, open_metal
from tilegrad.runtime.protocol import Dims, Runtime

__all__ = ["MetalMemory", "MetalProgram", "MetalRuntime", "backend", "opened"]

# MTLResourceStorageModeShared: host and GPU see the same bytes.
_SHARED = 0
# MTLCommandBufferStatusError, and of its errors MTLCommandBufferErrorOutOfMemory.
_FAILED, _NO_ROOM = 5, 8
# A queue holds 64 command buffers; a launch beyond them would wait for the first.
_MOST_PENDING = 32
# Launches of one command buffer: the GPU begins while the next ones are encoded, and the system
# ends a command buffer that keeps the GPU for seconds.
_MOST_TOGETHER = 32


class _Size(ctypes.Structure):
    """MTLSize."""

    _fields_ = [(name, ctypes.c_size_t) for name in ("width", "height", "depth")]


@dataclass(frozen=True)
class MetalMemory:
    """Bytes of a buffer from an offset on."""

    buffer: int
    address: int
    offset: int

    def __add__(self, nbytes: int) -> MetalMemory:
        """What begins `nbytes` behind it."""
        return replace(self, offset=self.offset + nbytes)


class _Launch(NamedTuple):
    program: MetalProgram
    handles: Sequence[MetalMemory]
    variables: Sequence[int]
    blocks: Dims
    lanes: Dims


class MetalProgram:
    """A kernel, compiled for the GPU; it is given back with the last reference."""

    __slots__ = ("__weakref__", "interface", "lanes", "pipeline")

    def __init__(
        self, interface: Interface, pipeline: int, lanes: int, release: Callable[[int], object]
    ):
        self.interface, self.pipeline, self.lanes = interface, pipeline, lanes
        weakref.finalize(self, release, pipeline).atexit = False


class MetalRuntime(Runtime):
    """Memory, a queue and programs of one GPU."""

    def __init__(self, objc: ObjectiveC, device: int):
        self._objc, self._device = objc, device
        with objc.pool():
            self.title = self._text(objc.send(device, "name"))
        self._queue = objc.send(device, "newCommandQueue")
        self._most_bytes = objc.send(device, "maxBufferLength", result=Count)
        # Command buffers under way, in their order.
        self._pending: deque[tuple[str, int]] = deque()
        self._lock = held_at_fork(threading.RLock(), 80)
        self._process = os.getpid()

    def _text(self, string: int) -> str:
        """The characters of an NSString."""
        found = self._objc.send(string, "UTF8String", result=ctypes.c_char_p) if string else b""
        return (found or b"").decode(errors="replace")

    def _release(self, handle: int) -> None:
        # In a forked process the framework must not be called.
        if os.getpid() == self._process:
            self._objc.send(handle, "release", result=None)

    def _require_own_process(self) -> None:
        """Raise DeviceError in a fork of the process that opened the device."""
        if os.getpid() != self._process:
            raise DeviceError(
                f"METAL: {self.title} was opened before this process was forked",
                remedy="start the process anew (multiprocessing: spawn), or fork before",
            )

    # memory

    def allocate(self, nbytes: int) -> MetalMemory:
        self._require_own_process()
        if nbytes > self._most_bytes:
            raise OutOfMemoryError(
                f"allocate: a buffer of {nbytes} bytes is too large for {self.title}",
                limit=f"{self._most_bytes} bytes in one buffer",
                remedy="use smaller batches, or several tensors",
            )
        buffer = self._objc.send(
            self._device, "newBufferWithLength:options:", Count(nbytes), Count(_SHARED)
        )
        if not buffer:
            raise MemoryError(nbytes)
        return MetalMemory(buffer, self._objc.send(buffer, "contents"), 0)

    def free(self, handle: MetalMemory, nbytes: int) -> None:
        # A command buffer under way keeps what it uses.
        self._release(handle.buffer)

    def copy_in(self, handle: MetalMemory, data: memoryview) -> None:
        source = data if data.contiguous else memoryview(bytes(data))
        self.synchronize()
        if source.nbytes:
            ctypes.memmove(handle.address + handle.offset, address_of(source), source.nbytes)

    def copy_out(self, data: memoryview, handle: MetalMemory) -> None:
        self.synchronize()
        if data.nbytes:
            ctypes.memmove(address_of(data), handle.address + handle.offset, data.nbytes)

    def view(self, handle: MetalMemory, offset: int, nbytes: int) -> MetalMemory:
        return handle + offset

    def transfer(
        self, target: MetalMemory, source: Any, source_runtime: Runtime, nbytes: int
    ) -> bool:
        if source_runtime is not self:
            return False
        self.synchronize()
        ctypes.memmove(target.address + target.offset, source.address + source.offset, nbytes)
        return True

    # programs

    def compile(self, source: str) -> bytes:
        """The source itself, once it is known to be right; the system keeps what it made of it.

        Raises CompileError with the system's first message.
        """
        self._require_own_process()
        function = source.partition(":")[0].removeprefix("// ")
        with self._objc.pool():
            self._release(self._compiled(function, source))
        return source.encode()

    def load(self, name: str, binary: bytes) -> MetalProgram:
        """The kernel of a text, below the line that says what it takes.

        Raises CompileError with the system's first message.
        """
        self._require_own_process()
        objc, source = self._objc, binary.decode()
        interface = Interface.read(source.partition("\n")[0])
        with objc.pool():
            library = self._compiled(name, source)
            try:
                function = objc.send(library, "newFunctionWithName:", self._string(name))
            finally:
                self._release(library)
            if not function:
                raise CompileError(f"metal: the text has no kernel {name}", device=self.title)
            error = Object()
            try:
                pipeline = objc.send(
                    self._device,
                    "newComputePipelineStateWithFunction:error:",
                    Object(function),
                    ctypes.pointer(error),
                )
            finally:
                self._release(function)
            if not pipeline:
                raise self._refusal(name, source, error)
        lanes = objc.send(pipeline, "maxTotalThreadsPerThreadgroup", result=Count)
        return MetalProgram(interface, pipeline, lanes, self._release)

    def _string(self, text: str) -> Object:
        """An NSString, which the pool gives back."""
        objc = self._objc
        return Object(
            objc.send(
                objc.class_named("NSString"),
                "stringWithUTF8String:",
                ctypes.c_char_p(text.encode()),
            )
        )

    def _compiled(self, name: str, source: str) -> int:
        """The library of a text. Its sums and products keep their order and rounding."""
        objc, error = self._objc, Object()
        options = objc.send(objc.class_named("MTLCompileOptions"), "new")
        try:
            objc.send(options, "setFastMathEnabled:", ctypes.c_bool(False), result=None)
            library: int = objc.send(
                self._device,
                "newLibraryWithSource:options:error:",
                self._string(source),
                Object(options),
                ctypes.pointer(error),
            )
        finally:
            self._release(options)
        if not library:
            raise self._refusal(name, source, error)
        return library

    def _refusal(self, name: str, source: str, error: Object) -> CompileError:
        """What the system says against a text, by its first error."""
        log = self._description(error.value or 0)
        return refused("metal", log, source, "metal", kernel=name, device=self.title)

    def _description(self, error: int) -> str:
        return self._text(self._objc.send(error, "localizedDescription")) if error else ""

    def launch(
        self,
        program: MetalProgram,
        handles: Sequence[MetalMemory],
        variables: Sequence[int],
        global_size: Dims,
        local_size: Dims,
        wait: bool = False,
    ) -> float | None:
        self._require_own_process()
        with self._lock:
            self._commit([_Launch(program, handles, variables, global_size, local_size)])
            return self._wait_for_last() if wait else None

    def sequence(
        self, launches: Sequence[tuple[Any, int, Dims]], is_small: bool
    ) -> Callable[[Sequence[Any]], None]:
        """The launches as few command buffers. What one of them has written, the next one sees."""

        def run(given: Sequence[Any]) -> None:
            self._require_own_process()
            made, start = [], 0
            for program, count, blocks in launches:
                codes, block = program.interface.codes, program.interface.block
                own = given[start : start + count]
                memory = own[: count - len(codes)]
                made.append(_Launch(program, memory, own[len(memory) :], blocks, block))
                start += count
            with self._lock:
                for first in range(0, len(made), _MOST_TOGETHER):
                    self._commit(made[first : first + _MOST_TOGETHER])

        return run

    def _commit(self, launches: Sequence[_Launch]) -> None:
        """Hand over launches as one command buffer, which runs them one after the other."""
        objc = self._objc
        for launch in launches:
            self._check_limits(launch.program, launch.lanes)
        with objc.pool():
            commands: int = objc.send(self._queue, "commandBuffer")
            encoder = objc.send(commands, "computeCommandEncoder")
            try:
                for launch in launches:
                    self._encode(encoder, launch)
            finally:
                # An encoder that goes without it ends the process.
                objc.send(encoder, "endEncoding", result=None)
            # It outlives the pool: whoever waits for it gives it back.
            objc.send(commands, "retain")
            objc.send(commands, "commit", result=None)
        names = dict.fromkeys([launch.program.interface.name for launch in launches])
        self._pending.append((", ".join(names), commands))
        if len(self._pending) >= _MOST_PENDING:
            began = time.perf_counter()
            self._finish(*self._pending.popleft())
            self.waited(time.perf_counter() - began)

    def _encode(self, encoder: int, launch: _Launch) -> None:
        """The kernel, its arguments, memory first, then integers, and its blocks."""
        program, handles, variables, blocks, lanes = launch
        objc, (_, slots, codes, _) = self._objc, program.interface
        objc.send(encoder, "setComputePipelineState:", Object(program.pipeline), result=None)
        for number, slot in enumerate(slots):
            memory = handles[slot]
            objc.send(
                encoder,
                "setBuffer:offset:atIndex:",
                Object(memory.buffer),
                Count(memory.offset),
                Count(number),
                result=None,
            )
        for number, (code, value) in enumerate(zip(codes, variables), len(slots)):
            packed = struct.pack(code, value)
            objc.send(
                encoder,
                "setBytes:length:atIndex:",
                ctypes.c_char_p(packed),
                Count(len(packed)),
                Count(number),
                result=None,
            )
        objc.send(
            encoder,
            "dispatchThreadgroups:threadsPerThreadgroup:",
            _Size(*blocks),
            _Size(*lanes),
            result=None,
        )

    def _check_limits(self, program: MetalProgram, local_size: Dims) -> None:
        """Raise DeviceError if a block has more lanes than the GPU runs of this kernel."""
        if math.prod(local_size) > program.lanes:
            raise DeviceError(
                f"{program.interface.name}: {math.prod(local_size)} lanes in a block, local size "
                f"{tuple(local_size)}",
                limit=f"{program.lanes} of this kernel on {self.title}",
            )

    # waiting

    def synchronize(self) -> None:
        self._require_own_process()
        with self._lock:
            if self._pending:
                began = time.perf_counter()
                self._wait_for_last()
                self.waited(time.perf_counter() - began)

    def _wait_for_last(self) -> float:
        """Wait for all launches, and give the seconds of the last one."""
        seconds = 0.0
        while self._pending:
            seconds = self._finish(*self._pending.popleft())
        return seconds

    def _finish(self, name: str, commands: int) -> float:
        """Wait for a launch, and give its seconds.

        Raises DeviceError, or OutOfMemoryError, if it failed.
        """
        objc = self._objc
        try:
            with objc.pool():
                objc.send(commands, "waitUntilCompleted", result=None)
                if objc.send(commands, "status", result=Count) == _FAILED:
                    raise self._failure(name, objc.send(commands, "error"))
                start, end = (
                    objc.send(commands, moment, result=ctypes.c_double)
                    for moment in ("GPUStartTime", "GPUEndTime")
                )
        finally:
            self._release(commands)
        return float(end - start)

    def _failure(self, name: str, error: int) -> DeviceError | OutOfMemoryError:
        said = self._description(error) or "no message"
        if error and self._objc.send(error, "code", result=Count) == _NO_ROOM:
            return OutOfMemoryError(
                f"{self.title} has no room: {said}",
                kernel=name,
                remedy="free tensors that are no longer needed, or use smaller batches",
            )
        return DeviceError(f"{self.title}: {name}: {said}")


def _render(function: str, program: Sequence[UOp]) -> str:
    from tilegrad.render.metal import MetalRenderer

    return MetalRenderer().render(function, program)


def _render_headed(function: str, program: Sequence[UOp]) -> str:
    """The text, below the line that says what a launch passes."""
    return f"{heading(function, program)}\n{_render(function, program)}"


def backend(name: str, runtime: Runtime | None = None) -> Backend:
    """The device `name`; `runtime` stands for the hardware.

    Raises DeviceError where there is no GPU of Apple's.
    """
    require_number(name)
    if runtime is not None:
        return Backend(name, metal_target(), _render, str.encode, runtime, compiler="text")
    return opened(name, open_metal())


def opened(name: str, objc: Any) -> Backend:
    """The device `name` of the frameworks that `objc` calls.

    Raises DeviceError where the system has no GPU.
    """
    if number := name.partition(":")[2]:
        raise DeviceError(
            f"METAL: there is no device {number}", found="METAL, the GPU that the system prefers"
        )
    device = objc.system_device()
    if not device:
        raise DeviceError(
            "METAL: the system has no GPU that runs kernels",
            remedy="use CPU; NULL:METAL compiles and runs nothing",
        )
    runtime = MetalRuntime(objc, device)
    return Backend(
        name,
        metal_target(),
        _render_headed,
        runtime.compile,
        runtime,
        compiler="Metal shading language",
        hardware=runtime.title,
    )
