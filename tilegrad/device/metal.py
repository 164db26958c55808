"""Apple's GPUs through the framework Metal, called as Objective-C by ctypes.

    render    tilegrad.render.metal     the Metal shading language
    compile   the system                which keeps what it made of a text
    run       here                      shared memory, one queue, a command buffer for each launch;
                                        one for those of a captured function, which are encoded
                                        once (metal_sequence)

`METAL` is the GPU that the system prefers. `NULL:METAL` and `EMU:METAL` need none.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from tilegrad.base.errors import CompileError, DeviceError, OutOfMemoryError
from tilegrad.base.failed import refused
from tilegrad.device.backend import Backend, require_number
from tilegrad.device.metal_handles import MetalLaunch, MetalMemory, MetalProgram
from tilegrad.device.metal_queue import MetalQueue
from tilegrad.device.metal_sequence import MetalSequence
from tilegrad.hardware import metal_target
from tilegrad.ir.uop import UOp
from tilegrad.runtime.buffer import address_of
from tilegrad.runtime.interface import Interface, heading
from tilegrad.runtime.objective_c import Count, Object, ObjectiveC, open_metal
from tilegrad.runtime.protocol import Dims, Runtime

__all__ = ["MetalRuntime", "backend", "opened"]

# MTLGPUFamilyApple9, of the M3. On the M1 and M2, indirect commands are reported to find their
# pipelines only where an encoder has dispatched these; later ones need no such thing (tinygrad,
# pull requests 6313 and 10366).
_FAMILY = 1009


class MetalRuntime(Runtime):
    """Memory, a queue and programs of one GPU."""

    def __init__(self, objc: ObjectiveC, device: int):
        self.objc, self.device = objc, device
        with objc.pool():
            self.title = objc.text(objc.send(device, "name"))
        self.queue = MetalQueue(objc, device, self.title, lambda seconds: self.waited(seconds))
        self._most_bytes = objc.send(device, "maxBufferLength", result=Count)
        self._has_indirect = objc.answers(device, "supportsFamily:") and objc.send(
            device, "supportsFamily:", ctypes.c_ssize_t(_FAMILY), result=ctypes.c_bool
        )

    # memory

    def allocate(self, nbytes: int) -> MetalMemory:
        self.queue.require_own_process()
        if nbytes > self._most_bytes:
            raise OutOfMemoryError(
                f"allocate: a buffer of {nbytes} bytes is too large for {self.title}",
                limit=f"{self._most_bytes} bytes in one buffer",
                remedy="use smaller batches, or several tensors",
            )
        return self.queue.new_buffer(nbytes)

    def free(self, handle: MetalMemory, nbytes: int) -> None:
        # A command buffer under way keeps its operands itself.
        self.queue.give_back(handle.buffer)

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
        self.queue.require_own_process()
        function = source.partition(":")[0].removeprefix("// ")
        with self.objc.pool():
            self.queue.release(self._compiled(function, source))
        return source.encode()

    def load(self, name: str, binary: bytes) -> MetalProgram:
        """The kernel of a text, below the line that says what it takes.

        Raises CompileError with the system's first message.
        """
        self.queue.require_own_process()
        objc, source = self.objc, binary.decode()
        interface = Interface.read(source.partition("\n")[0])
        with objc.pool():
            library = self._compiled(name, source)
            try:
                function = objc.send(library, "newFunctionWithName:", self._string(name))
            finally:
                self.queue.release(library)
            if not function:
                raise CompileError(f"metal: the text has no kernel {name}", device=self.title)
            error = Object()
            try:
                pipeline = self._indirect_pipeline(function) if self._has_indirect else 0
                is_indirect = bool(pipeline)
                pipeline = pipeline or objc.send(
                    self.device,
                    "newComputePipelineStateWithFunction:error:",
                    Object(function),
                    ctypes.pointer(error),
                )
            finally:
                self.queue.release(function)
            if not pipeline:
                raise self._refusal(name, source, error)
        lanes = objc.send(pipeline, "maxTotalThreadsPerThreadgroup", result=Count)
        return MetalProgram(interface, pipeline, lanes, is_indirect, self.queue.give_back)

    def _indirect_pipeline(self, function: int) -> int:
        """The pipeline of a function for indirect commands; 0 if the system makes none of it."""
        objc, nothing = self.objc, Object()
        descriptor = objc.send(objc.class_named("MTLComputePipelineDescriptor"), "new")
        try:
            objc.send(descriptor, "setComputeFunction:", Object(function), result=None)
            objc.send(
                descriptor, "setSupportIndirectCommandBuffers:", ctypes.c_bool(True), result=None
            )
            found: int = objc.send(
                self.device,
                "newComputePipelineStateWithDescriptor:options:reflection:error:",
                Object(descriptor),
                Count(0),
                ctypes.pointer(nothing),
                ctypes.pointer(nothing),
            )
        finally:
            self.queue.release(descriptor)
        return found

    def _string(self, text: str) -> Object:
        """An NSString, which the pool gives back."""
        objc = self.objc
        return Object(
            objc.send(
                objc.class_named("NSString"),
                "stringWithUTF8String:",
                ctypes.c_char_p(text.encode()),
            )
        )

    def _compiled(self, name: str, source: str) -> int:
        """The library of a text. Its sums and products keep their order and rounding."""
        objc, error = self.objc, Object()
        options = objc.send(objc.class_named("MTLCompileOptions"), "new")
        try:
            objc.send(options, "setFastMathEnabled:", ctypes.c_bool(False), result=None)
            library: int = objc.send(
                self.device,
                "newLibraryWithSource:options:error:",
                self._string(source),
                Object(options),
                ctypes.pointer(error),
            )
        finally:
            self.queue.release(options)
        if not library:
            raise self._refusal(name, source, error)
        return library

    def _refusal(self, name: str, source: str, error: Object) -> CompileError:
        """The error for a text that the system refuses, by its first message."""
        log = self.objc.description(error.value or 0)
        return refused("metal", log, source, "metal", kernel=name, device=self.title)

    def launch(
        self,
        program: MetalProgram,
        handles: Sequence[MetalMemory],
        variables: Sequence[int],
        global_size: Dims,
        local_size: Dims,
        wait: bool = False,
    ) -> float | None:
        self.queue.require_own_process()
        with self.queue.lock:
            self.queue.commit([MetalLaunch(program, handles, variables, global_size, local_size)])
            return self.queue.time_of_last() if wait else None

    def sequence(
        self, launches: Sequence[tuple[Any, int, Dims]], is_small: bool
    ) -> Callable[[Sequence[Any]], None]:
        """The launches as few command buffers. Each sees the writes of those before it."""
        return MetalSequence(self.queue, launches).run

    # waiting

    def synchronize(self) -> None:
        self.queue.require_own_process()
        self.queue.wait_for_last()


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
