"""OpenCL devices, through `pyopencl`: GPUs of all vendors, and processors by PoCL.

    render    tilegrad.render.opencl   OpenCL C 1.2
    compile   the device's driver      its own binary, kept on disk by driver and device
    run       here                     buffers, one queue in order, events for times

`CL` is the first GPU there is, or the first device of another kind; `CL:1` the next one. `NULL:CL`
and `EMU:CL` describe a GPU that has all that OpenCL 1.2 makes optional. A processor gets loops
instead of blocks of lanes.

A handle is a `pyopencl.Buffer`; one inside another is a sub-buffer, which OpenCL allows at some
offsets only, so the target says at which.
"""

from __future__ import annotations

import functools
import math
import os
import shutil
import struct
import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilegrad.base.errors import DeviceError, OutOfMemoryError
from tilegrad.base.failed import refused
from tilegrad.base.forks import held_at_fork
from tilegrad.device.backend import Backend, require_number
from tilegrad.hardware import opencl_processor, opencl_target
from tilegrad.ir.uop import UOp
from tilegrad.runtime.interface import Interface, heading
from tilegrad.runtime.protocol import Dims, Runtime
from tilegrad.runtime.watchdog import Watchdog
from tilegrad.target import Target

__all__ = ["OpenCLProgram", "OpenCLRuntime", "backend", "opened"]

# Limits that kernels are shaped for; a device may have less, and more is not used.
_MOST_LANES, _MOST_SHARED = 256, 64 << 10
_OPTIONS = ("-cl-std=CL1.2",)
_EXACT_DIVISION = "-cl-fp32-correctly-rounded-divide-sqrt"
_INSTALL = (
    "install the driver of your GPU, or PoCL, which runs on processors: "
    "pip install pocl-binary-distribution, or on Debian apt-get install pocl-opencl-icd"
)


def _pyopencl() -> Any:
    """The module, imported when the first device is opened."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pyopencl
    except ImportError as error:
        raise DeviceError(
            f"CL: pyopencl cannot be imported: {error}",
            remedy=f"pip install 'tilegrad[opencl]'; then {_INSTALL}",
        ) from None
    return pyopencl


def _devices(cl: Any) -> list[Any]:
    """All devices of all platforms, GPUs first."""
    try:
        platforms = cl.get_platforms()
    except cl.Error:
        platforms = []
    found: list[Any] = []
    for platform in platforms:
        try:
            found += platform.get_devices()
        except cl.Error:
            # A driver without its hardware.
            continue
    return sorted(found, key=lambda device: not device.type & cl.device_type.GPU)


def _find(cl: Any, name: str) -> Any:
    """The device that a name asks for.

    Raises DeviceError where it is not there, or cannot compile.
    """
    found = _devices(cl)
    if not found:
        raise DeviceError("CL: no OpenCL driver has a device", remedy=_INSTALL)
    number = int(name.partition(":")[2] or 0)
    if number >= len(found):
        raise DeviceError(
            f"CL: there is no device {number}",
            found=", ".join(f"CL:{number} {each.name}" for number, each in enumerate(found)),
        )
    device = found[number]
    if "Portable Computing Language" in device.platform.name:
        _check_pocl(device)
    return device


def _check_pocl(device: Any) -> None:
    """Raises DeviceError where PoCL cannot compile anything on this machine."""
    if shutil.which("ld") is None:
        # It ends the process where it finds none.
        raise DeviceError(
            f"CL: {device.name} needs the linker ld to compile, which is not on the path",
            remedy="install it: on Debian apt-get install binutils",
        )
    # The version ends with the processor's name in LLVM. A processor newer than the LLVM within is
    # "generic", which PoCL hands to a compiler that knows no x86 processor of that name.
    if "x86_64" in device.version and device.version.endswith("-generic"):
        raise DeviceError(
            f"CL: PoCL cannot compile for this processor: its LLVM is older than {device.name}",
            found=device.platform.version.strip(),
            remedy="install a PoCL with a newer LLVM, or use DEVICE=CPU, which needs no driver",
        )


@dataclass(frozen=True)
class OpenCLProgram:
    """A kernel in the device's memory. It takes the memory of `slots`, and integers that are passed
    as `codes` say, in their order.
    """

    name: str
    kernel: Any
    slots: tuple[int, ...]
    codes: tuple[str, ...]
    lanes: int
    shared_bytes: int


class OpenCLRuntime(Runtime):
    """Memory, a queue and programs of one device."""

    def __init__(self, cl: Any, device: Any):
        self._cl, self.device = cl, device
        self._context = cl.Context([device])
        properties = cl.command_queue_properties.PROFILING_ENABLE
        self._queue = cl.CommandQueue(self._context, device, properties=properties)
        self._process = os.getpid()
        # A kernel's arguments are part of the kernel: two threads must not set them at once.
        self._lock = held_at_fork(threading.Lock(), 80)
        self._watchdog = Watchdog(device.name.strip(), self._mark, self._has_passed)

    def _mark(self) -> Any:
        """An event behind all work of the queue."""
        event = self._do(self._cl.enqueue_marker, self._queue)
        # The driver may hold work back until somebody asks for it.
        self._do(self._queue.flush)
        return event

    def _has_passed(self, event: Any) -> bool:
        status = int(self._do(getattr, event, "command_execution_status"))
        if status < 0:
            raise DeviceError(
                f"{self.device.name}: a kernel failed, with code {status}",
                rule="what was computed since the last read is lost",
                remedy="start the process anew",
            )
        return status == int(self._cl.command_execution_status.COMPLETE)

    # memory

    def allocate(self, nbytes: int) -> Any:
        self._require_own_process()
        cl = self._cl
        most = int(self.device.max_mem_alloc_size)
        if nbytes > most:
            raise OutOfMemoryError(
                f"allocate: a buffer of {nbytes} bytes is too large for {self.device.name}",
                limit=f"{most} bytes in one buffer",
                remedy="use smaller batches, or several tensors",
            )
        try:
            return cl.Buffer(self._context, cl.mem_flags.READ_WRITE, nbytes)
        except (cl.MemoryError, cl.RuntimeError) as error:
            raise MemoryError(nbytes) from error

    def free(self, handle: Any, nbytes: int) -> None:
        # The driver keeps it until launches under way have ended. In a forked process it is gone.
        if os.getpid() == self._process:
            handle.release()

    def copy_in(self, handle: Any, data: memoryview) -> None:
        source = data if data.contiguous else memoryview(bytes(data))
        if source.nbytes:
            self._settle()
            self._do(self._cl.enqueue_copy, self._queue, handle, source, is_blocking=True)

    def copy_out(self, data: memoryview, handle: Any) -> None:
        if data.nbytes:
            self._settle()
            self._do(self._cl.enqueue_copy, self._queue, data, handle, is_blocking=True)

    def view(self, handle: Any, offset: int, nbytes: int) -> Any:
        return self._do(handle.get_sub_region, offset, nbytes)

    def transfer(self, target: Any, source: Any, source_runtime: Runtime, nbytes: int) -> bool:
        if source_runtime is not self:
            return False
        self._do(self._cl.enqueue_copy, self._queue, target, source, byte_count=nbytes)
        self._watchdog.launched("a copy")
        return True

    def synchronize(self) -> None:
        self._require_own_process()
        self.waited(self._watchdog.wait())

    def _settle(self) -> None:
        """Wait for the commands in the queue, if there are any: a copy would wait without being
        watched.
        """
        if not self._watchdog.is_idle:
            self.synchronize()

    # programs

    @property
    def identity(self) -> str:
        """Identity of binaries: driver and device."""
        device = self.device
        return f"{device.platform.version} {device.driver_version} {device.name}"

    @functools.cached_property
    def options(self) -> tuple[str, ...]:
        """The compiler's options."""
        is_exact = (
            self.device.single_fp_config & self._cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT
        )
        return (*_OPTIONS, _EXACT_DIVISION) if is_exact else _OPTIONS

    def compile(self, source: str) -> bytes:
        """The driver's binary, after the source's first line."""
        program = self._cl.Program(self._context, source)
        self._build(program, source)
        (binary,) = program.get_info(self._cl.program_info.BINARIES)
        return source.partition("\n")[0].encode() + b"\n" + bytes(binary)

    def _build(self, program: Any, source: str) -> Any:
        try:
            with warnings.catch_warnings():
                # Remarks of the compiler about correct code.
                warnings.simplefilter("ignore")
                return program.build(list(self.options), [self.device], cache_dir=False)
        except self._cl.Error as error:
            kernel = source.partition(":")[0].removeprefix("// ")
            device = f"{self.device.name}, {self.device.platform.version}"
            raise refused("cl", str(error), source, "cl", kernel=kernel, device=device) from None

    def load(self, name: str, binary: bytes) -> OpenCLProgram:
        cl = self._cl
        head, _, code = binary.partition(b"\n")
        program = self._build(cl.Program(self._context, [self.device], [code]), "")
        kernel = cl.Kernel(program, name)
        info = cl.kernel_work_group_info
        return OpenCLProgram(
            name,
            kernel,
            *Interface.read(head.decode())[1:3],
            int(kernel.get_work_group_info(info.WORK_GROUP_SIZE, self.device)),
            int(kernel.get_work_group_info(info.LOCAL_MEM_SIZE, self.device)),
        )

    def launch(
        self,
        program: OpenCLProgram,
        handles: Sequence[Any],
        variables: Sequence[int],
        global_size: Dims,
        local_size: Dims,
        wait: bool = False,
    ) -> float | None:
        self._check_limits(program, local_size)
        numbers = [struct.pack(code, value) for code, value in zip(program.codes, variables)]
        sizes = tuple([blocks * lanes for blocks, lanes in zip(global_size, local_size)])
        arguments = [*[handles[slot] for slot in program.slots], *numbers]
        # Some drivers take the memory of a buffer when a kernel first uses it.
        event = self.with_room(lambda: self._enqueue(program, arguments, sizes, local_size))
        self._watchdog.launched(program.name)
        if not wait:
            return None
        self._watchdog.wait_for(event)
        return float(event.profile.end - event.profile.start) * 1e-9

    def _enqueue(
        self, program: OpenCLProgram, arguments: Sequence[Any], sizes: Dims, local_size: Dims
    ) -> Any:
        with self._lock:
            self._do(program.kernel.set_args, *arguments)
            return self._do(
                self._cl.enqueue_nd_range_kernel, self._queue, program.kernel, sizes, local_size
            )

    def _check_limits(self, program: OpenCLProgram, local_size: Dims) -> None:
        """Raise DeviceError if a block asks for more than the device has for this kernel."""
        lanes = math.prod(local_size)
        if lanes > program.lanes:
            raise DeviceError(
                f"{program.name}: {lanes} lanes in a block, local size {tuple(local_size)}",
                limit=f"{program.lanes} of this kernel on {self.device.name}",
            )
        if program.shared_bytes > self.device.local_mem_size:
            raise DeviceError(
                f"{program.name}: {program.shared_bytes} bytes of shared memory in a block",
                limit=f"{self.device.local_mem_size} on {self.device.name}",
            )

    def _require_own_process(self) -> None:
        """Raise DeviceError in a fork of the process that opened the device: a driver's threads are
        not in it, and a call would wait for ever.
        """
        if os.getpid() != self._process:
            raise DeviceError(
                f"CL: {self.device.name} was opened before this process was forked",
                remedy="start the process anew (multiprocessing: spawn), or fork before",
            )

    def _do(self, call: Any, *arguments: Any, **options: Any) -> Any:
        """A call of the driver; its errors in our words."""
        self._require_own_process()
        cl = self._cl
        try:
            return call(*arguments, **options)
        except cl.MemoryError as error:
            raise OutOfMemoryError(
                f"{self.device.name} has no room: {error}",
                remedy="free tensors that are no longer needed, or use smaller batches",
            ) from None
        except cl.Error as error:
            raise DeviceError(f"{self.device.name}: {error}") from None


def _target(cl: Any, device: Any, *, has_blocks: bool) -> Target:
    extensions = device.extensions.split()
    described = opencl_target(
        has_half="cl_khr_fp16" in extensions, has_double="cl_khr_fp64" in extensions
    )
    view_bytes = max(int(device.mem_base_addr_align) // 8, described.view_bytes)
    described = replace(described, view_bytes=view_bytes)
    if not has_blocks:
        return opencl_processor(described, int(device.max_compute_units))
    return replace(
        described,
        shared_bytes=min(int(device.local_mem_size), _MOST_SHARED),
        block_lanes=min(int(device.max_work_group_size), _MOST_LANES),
    )


def _render_for(target: Target, function: str, program: Sequence[UOp]) -> str:
    """The text, below the line that says what a launch passes."""
    from tilegrad.render.opencl import OpenCLRenderer
    from tilegrad.render.opencl_vectors import OpenCLVectorRenderer

    renderer = OpenCLVectorRenderer if target.has_vectors else OpenCLRenderer
    return f"{heading(function, program)}\n{renderer(target).render(function, program)}\n"


def backend(name: str, runtime: Runtime | None = None) -> Backend:
    """The device `name`; `runtime` stands for the hardware.

    Raises DeviceError where pyopencl, a driver or the device is not there.
    """
    require_number(name)
    if runtime is not None:
        target = opencl_target()
        render = functools.partial(_render_for, target)
        return Backend(name, target, render, str.encode, runtime, compiler="text")
    return opened(name)


def opened(name: str, *, has_blocks: bool | None = None) -> Backend:
    """The device `name` of a driver. Its kernels have blocks of lanes if it is no processor, or as
    `has_blocks` says.

    Raises DeviceError where pyopencl, a driver or the device is not there.
    """
    cl = _pyopencl()
    device = _find(cl, name)
    if has_blocks is None:
        has_blocks = not device.type & cl.device_type.CPU
    found, target = OpenCLRuntime(cl, device), _target(cl, device, has_blocks=has_blocks)
    render = functools.partial(_render_for, target)
    hardware = f"{device.name.strip()} ({device.platform.name})"
    return Backend(
        name, target, render, found.compile, found, compiler=found.identity, hardware=hardware
    )
