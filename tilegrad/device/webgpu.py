"""WebGPU devices, through `wgpu` (wgpu-py): GPUs of all vendors by Vulkan, Metal and Direct3D 12,
and processors by Mesa's lavapipe.

    render    tilegrad.render.wgsl   WGSL
    compile   the driver             when a program is loaded; WGSL itself is what is kept on disk
    run       here                   buffers, one queue, timestamps

`WEBGPU` is the first GPU there is, or the first adapter of another kind; `WEBGPU:1` the next one.
`NULL:WEBGPU` and `EMU:WEBGPU` describe an adapter with no more than every one has.

A handle is a buffer, an offset and a number of bytes. Launches gather in one command buffer, which
is submitted before the host touches memory, and when it has grown long.
"""

from __future__ import annotations

import functools
import importlib.metadata
import math
import os
import struct
import threading
import time
from collections.abc import Sequence
from typing import Any

from tilegrad.base.errors import CompileError, DeviceError, OutOfMemoryError
from tilegrad.base.failed import write_failed
from tilegrad.base.forks import held_at_fork
from tilegrad.device.backend import Backend, require_number
from tilegrad.device.webgpu_adapters import find_adapter, most_iterations, wgpu_module
from tilegrad.device.webgpu_handles import (
    Binding,
    WebGPUMemory,
    WebGPUProgram,
    bindings,
    cause_of,
    rounded_up,
)
from tilegrad.hardware import webgpu_target
from tilegrad.ir.uop import UOp
from tilegrad.runtime.protocol import Dims, Runtime
from tilegrad.target import Target

__all__ = ["WebGPURuntime", "backend"]

# Limits that kernels are shaped for; an adapter may have less, and more is not used.
_MOST_LANES, _MOST_SHARED, _MOST_BUFFERS = 256, 64 << 10, 32
_HALF, _DOUBLE, _TIMES = "shader-f16", ("shader-f64", "shader-int64"), "timestamp-query"
_LIMITS = (
    "max-buffer-size",
    "max-storage-buffer-binding-size",
    "max-storage-buffers-per-shader-stage",
    "max-compute-workgroup-storage-size",
    "max-compute-invocations-per-workgroup",
    "max-compute-workgroup-size-x",
    "max-compute-workgroup-size-y",
    "max-compute-workgroup-size-z",
)
# Sizes of buffers: a multiple of the largest element of an array, a vector of four words.
_UNIT, _WORD = 16, 4
# Launches of one command buffer, the bytes between the integers that two of them take, and launches
# whose memory is remembered.
_MOST_WAITING, _RECORD, _MOST_GROUPS = 256, 256, 4096


class WebGPURuntime(Runtime):
    """Memory, a queue and programs of one adapter."""

    def __init__(self, wgpu: Any, adapter: Any):
        self._wgpu, self.adapter = wgpu, adapter
        self.name = str(adapter.info["device"])
        self.features = sorted({_HALF, *_DOUBLE, _TIMES} & set(adapter.features))
        limits = {name: adapter.limits[name] for name in _LIMITS if name in adapter.limits}
        self.device = self._guarded(
            adapter.request_device_sync,
            required_features=self.features,
            required_limits=limits,
        )
        self.limits = self.device.limits
        self._process = os.getpid()
        self._lock = held_at_fork(threading.RLock(), 80)
        self._serial = 0
        self._groups: dict[Any, Any] = {}
        self._encoder: Any = None
        self._pass: Any = None
        self._waiting = 0
        self._records = bytearray(_RECORD * _MOST_WAITING)
        self._record_buffer = self.device.create_buffer(
            size=len(self._records),
            usage=wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_DST | wgpu.BufferUsage.COPY_SRC,
        )
        self._record_layout = self.device.create_bind_group_layout(
            entries=[
                {
                    "binding": 0,
                    "visibility": wgpu.ShaderStage.COMPUTE,
                    "buffer": {"type": "uniform", "has_dynamic_offset": True},
                }
            ]
        )
        resource = {"buffer": self._record_buffer, "offset": 0, "size": _RECORD}
        self._record_group = self.device.create_bind_group(
            layout=self._record_layout, entries=[{"binding": 0, "resource": resource}]
        )
        self._clock: Any = None
        # Memory for slices that have none, by slot and first byte.
        self._spare: dict[tuple[int, int], WebGPUMemory] = {}

    # memory

    def allocate(self, nbytes: int) -> WebGPUMemory:
        self._require_own_process()
        size, most = rounded_up(nbytes, _UNIT), int(self.limits["max-buffer-size"])
        if size > most:
            raise OutOfMemoryError(
                f"allocate: a buffer of {nbytes} bytes is too large for {self.name}",
                limit=f"{most} bytes in one buffer",
                remedy="use smaller batches, or several tensors",
            )
        usage = self._wgpu.BufferUsage
        with self._lock:
            try:
                buffer = self.device.create_buffer(
                    size=size, usage=usage.STORAGE | usage.COPY_SRC | usage.COPY_DST
                )
            except (self._wgpu.GPUOutOfMemoryError, MemoryError) as error:
                raise MemoryError(nbytes) from error
            except self._wgpu.GPUError as error:
                raise DeviceError(f"{self.name}: {cause_of(error)}") from None
            self._serial += 1
            return WebGPUMemory(buffer, 0, nbytes, self._serial)

    def free(self, handle: WebGPUMemory, nbytes: int) -> None:
        if os.getpid() != self._process:
            return
        with self._lock:
            # Submitted work keeps the buffer alive; work that is not yet submitted would miss it.
            self._submit()
            handle.buffer.destroy()

    def copy_in(self, handle: WebGPUMemory, data: memoryview) -> None:
        source = memoryview(bytes(data) if not data.c_contiguous else data).cast("B")
        if not source.nbytes:
            return
        with self._lock:
            self._submit()
            whole, end = source.nbytes // _WORD * _WORD, source.nbytes
            queue, buffer = self.device.queue, handle.buffer
            if whole:
                self._guarded(queue.write_buffer, buffer, handle.offset, source[:whole])
            if whole < end:
                # Bytes behind the last one may be another's.
                at = handle.offset + whole
                word = bytearray(self._guarded(queue.read_buffer, buffer, at, _WORD))
                word[: end - whole] = source[whole:]
                self._guarded(queue.write_buffer, buffer, at, word)

    def copy_out(self, data: memoryview, handle: WebGPUMemory) -> None:
        if not data.nbytes:
            return
        with self._lock:
            self._submit()
            size = rounded_up(data.nbytes, _WORD)
            found = self._guarded(self.device.queue.read_buffer, handle.buffer, handle.offset, size)
        data.cast("B")[:] = memoryview(found).cast("B")[: data.nbytes]

    def view(self, handle: WebGPUMemory, offset: int, nbytes: int) -> WebGPUMemory:
        return WebGPUMemory(
            handle.buffer, handle.offset + offset, nbytes, handle.serial, is_view=True
        )

    def transfer(
        self, target: WebGPUMemory, source: WebGPUMemory, source_runtime: Runtime, nbytes: int
    ) -> bool:
        is_odd = nbytes % _WORD and target.is_view
        if source_runtime is not self or source.serial == target.serial or is_odd:
            return False
        with self._lock:
            self._end_pass()
            self._guarded(
                self._commands().copy_buffer_to_buffer,
                source.buffer,
                source.offset,
                target.buffer,
                target.offset,
                rounded_up(nbytes, _WORD),
            )
        return True

    def synchronize(self) -> None:
        began = time.perf_counter()
        self._drain()
        self.waited(time.perf_counter() - began)

    def _drain(self) -> None:
        """Wait for all launches and copies."""
        with self._lock:
            self._submit()
            # A read waits for all that was submitted before.
            self._guarded(self.device.queue.read_buffer, self._record_buffer, 0, _WORD)

    # programs

    @property
    def identity(self) -> str:
        """Identity of a cached program beside its source."""
        return f"wgpu {importlib.metadata.version('wgpu')} {', '.join(self.features)}"

    def compile(self, source: str) -> bytes:
        """The source itself, once it is known to be right."""
        self._module(source)
        return source.encode()

    def _module(self, source: str) -> Any:
        self._require_own_process()
        with self._lock:
            try:
                return self.device.create_shader_module(code=source)
            except self._wgpu.GPUError as error:
                raise self._refused(source, error) from None

    def _refused(self, source: str, error: Exception) -> CompileError:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        first = next((line for line in lines if "error: " in line), cause_of(error))
        return CompileError(
            f"webgpu: {first.rpartition('error: ')[2].strip()}",
            kernel=source.partition(":")[0].removeprefix("// "),
            device=self.name,
            source=write_failed("failed.wgsl", source),
        )

    def load(self, name: str, binary: bytes) -> WebGPUProgram:
        source = binary.decode()
        head = source.partition("\n")[0].partition(":")[2]
        bound, _, count = head.partition("|")
        takes, variables = bindings(bound), int(count)
        module = self._module(source)
        with self._lock:
            try:
                layout = self.device.create_bind_group_layout(
                    entries=[
                        {
                            "binding": number,
                            "visibility": self._wgpu.ShaderStage.COMPUTE,
                            "buffer": {"type": "storage"},
                        }
                        for number in range(len(takes))
                    ]
                )
                records = [self._record_layout] if variables >= 0 else []
                pipeline = self.device.create_compute_pipeline(
                    layout=self.device.create_pipeline_layout(
                        bind_group_layouts=[layout, *records]
                    ),
                    compute={"module": module},
                )
            except self._wgpu.GPUError as error:
                raise self._refused(source, error) from None
        return WebGPUProgram(name, pipeline, layout, takes, variables)

    # launches

    def launch(
        self,
        program: WebGPUProgram,
        handles: Sequence[WebGPUMemory],
        variables: Sequence[int],
        global_size: Dims,
        local_size: Dims,
        wait: bool = False,
    ) -> float | None:
        from tilegrad.render.wgsl_walk import MOST_BLOCKS, launch_shape

        self._require_own_process()
        blocks = launch_shape(global_size)
        self._check_lanes(program, local_size)
        if max(blocks) > MOST_BLOCKS:
            raise DeviceError(
                f"{program.name}: {math.prod(global_size)} blocks",
                limit=f"{MOST_BLOCKS} along each of two axes",
            )
        with self._lock:
            if wait:
                return self._timed(program, handles, variables, blocks)
            if self._pass is None:
                self._pass = self._commands().begin_compute_pass()
            self._dispatch(self._pass, program, handles, variables, blocks)
            if self._waiting == _MOST_WAITING:
                self._submit()
        return None

    def _dispatch(
        self,
        encoder: Any,
        program: WebGPUProgram,
        handles: Sequence[WebGPUMemory],
        variables: Sequence[int],
        blocks: Dims,
    ) -> None:
        group = self._group(program, [self._bound(each, handles) for each in program.bindings])
        encoder.set_pipeline(program.pipeline)
        encoder.set_bind_group(0, group)
        if program.variables >= 0:
            at = self._waiting * _RECORD
            words = [0, *[value & (1 << 64) - 1 for value in variables]]
            struct.pack_into(f"<{len(words)}Q", self._records, at, *words)
            encoder.set_bind_group(1, self._record_group, [at])
        self._guarded(encoder.dispatch_workgroups, *blocks)
        self._waiting += 1

    def _bound(self, binding: Binding, handles: Sequence[WebGPUMemory]) -> WebGPUMemory:
        """The memory of a binding. A slice behind the end of the memory is never touched: it has
        other memory, as something must be bound.
        """
        found = binding.of(handles[binding.slot])
        if found is None:
            key = binding.slot, binding.first
            found = self._spare.get(key) or self._spare.setdefault(key, self.allocate(_UNIT))
        return found

    def _group(self, program: WebGPUProgram, memory: list[WebGPUMemory]) -> Any:
        """The memory of a launch as the driver takes it."""
        key = (program.layout, *[(each.serial, each.offset, each.nbytes) for each in memory])
        found = self._groups.get(key)
        if found is not None:
            return found
        most = int(self.limits["max-storage-buffer-binding-size"])
        entries = []
        for number, each in enumerate(memory):
            size = min(rounded_up(each.nbytes, _UNIT), each.buffer.size - each.offset)
            if size > most:
                raise DeviceError(
                    f"{program.name}: {each.nbytes} bytes in one buffer of a kernel",
                    limit=f"{most} on {self.name}",
                    remedy="use smaller batches, or several tensors",
                )
            resource = {"buffer": each.buffer, "offset": each.offset, "size": size}
            entries.append({"binding": number, "resource": resource})
        if len(self._groups) >= _MOST_GROUPS:
            self._groups.clear()
        made = self._guarded(self.device.create_bind_group, layout=program.layout, entries=entries)
        self._groups[key] = made
        return made

    def _check_lanes(self, program: WebGPUProgram, local_size: Dims) -> None:
        """Raise DeviceError if a block asks for more lanes than the device has."""
        most = int(self.limits["max-compute-invocations-per-workgroup"])
        if math.prod(local_size) > most:
            raise DeviceError(
                f"{program.name}: {math.prod(local_size)} lanes in a block, "
                f"local size {tuple(local_size)}",
                limit=f"{most} on {self.name}",
            )

    def _timed(
        self,
        program: WebGPUProgram,
        handles: Sequence[WebGPUMemory],
        variables: Sequence[int],
        blocks: Dims,
    ) -> float:
        """Run a program alone, and give its seconds by the device's clock where it has one."""
        self._drain()
        writes = {}
        if _TIMES in self.features:
            if self._clock is None:
                self._clock = self._make_clock()
            writes = {
                "timestamp_writes": {
                    "query_set": self._clock[0],
                    "beginning_of_pass_write_index": 0,
                    "end_of_pass_write_index": 1,
                }
            }
        start = time.perf_counter()
        encoder = self._commands()
        running = encoder.begin_compute_pass(**writes)
        self._dispatch(running, program, handles, variables, blocks)
        running.end()
        if writes:
            encoder.resolve_query_set(self._clock[0], 0, 2, self._clock[1], 0)
        self._drain()
        seconds = time.perf_counter() - start
        if writes:
            ticks = self._guarded(self.device.queue.read_buffer, self._clock[1], 0, 16)
            begin, end = struct.unpack("<2Q", ticks)
            # WebGPU's ticks are nanoseconds.
            seconds = (end - begin) * 1e-9 if end > begin else seconds
        return seconds

    def _make_clock(self) -> tuple[Any, Any]:
        usage = self._wgpu.BufferUsage
        return (
            self.device.create_query_set(type="timestamp", count=2),
            self.device.create_buffer(size=256, usage=usage.QUERY_RESOLVE | usage.COPY_SRC),
        )

    # the queue

    def _commands(self) -> Any:
        """The command buffer that is being written."""
        self._require_own_process()
        if self._encoder is None:
            self._encoder = self._guarded(self.device.create_command_encoder)
        return self._encoder

    def _end_pass(self) -> None:
        if self._pass is not None:
            running, self._pass = self._pass, None
            running.end()

    def _submit(self) -> None:
        """Hand over the launches."""
        self._require_own_process()
        if self._encoder is None:
            return
        self._end_pass()
        encoder, self._encoder = self._encoder, None
        count, self._waiting = self._waiting, 0
        queue = self.device.queue
        if count:
            records = memoryview(self._records)[: count * _RECORD]
            self._guarded(queue.write_buffer, self._record_buffer, 0, records)
        self._guarded(queue.submit, [self._guarded(encoder.finish)])

    def _require_own_process(self) -> None:
        """Raise DeviceError in a fork of the process that opened the device: a driver's threads are
        not in it, and a call would wait for ever.
        """
        if hasattr(self, "_process") and os.getpid() != self._process:
            raise DeviceError(
                f"WEBGPU: {self.name} was opened before this process was forked",
                remedy="start the process anew (multiprocessing: spawn), or fork before",
            )

    def _guarded(self, call: Any, *arguments: Any, **options: Any) -> Any:
        """A call of the driver; its errors in our words."""
        self._require_own_process()
        wgpu = self._wgpu
        try:
            return call(*arguments, **options)
        except wgpu.GPUOutOfMemoryError as error:
            raise OutOfMemoryError(
                f"{self.name} has no room: {cause_of(error)}",
                remedy="free tensors that are no longer needed, or use smaller batches",
            ) from None
        except (wgpu.GPUError, RuntimeError) as error:
            self._encoder = self._pass = None
            self._waiting = 0
            text = cause_of(error)
            if "lost" in text.lower():
                raise DeviceError(
                    f"{self.name}: the device is lost: {text}",
                    remedy="tensors on it are gone: start the process anew",
                ) from None
            raise DeviceError(f"{self.name}: {text}") from None


def _target(runtime: WebGPURuntime) -> Target:
    limits, features, info = runtime.limits, runtime.features, runtime.adapter.info
    # A processor shares its cache anyway, and runs the code between two barriers lane by lane.
    is_processor = info["adapter_type"] == "CPU"
    shared_bytes = 0 if is_processor else int(limits["max-compute-workgroup-storage-size"])
    return webgpu_target(
        has_half=_HALF in features,
        has_double=all(name in features for name in _DOUBLE),
        block_lanes=min(int(limits["max-compute-invocations-per-workgroup"]), _MOST_LANES),
        shared_bytes=min(shared_bytes, _MOST_SHARED),
        most_buffers=min(int(limits["max-storage-buffers-per-shader-stage"]), _MOST_BUFFERS),
        bound_bytes=int(limits["max-storage-buffer-binding-size"]),
        most_iterations=most_iterations(info),
    )


def _render_for(target: Target, function: str, program: Sequence[UOp]) -> str:
    from tilegrad.render.wgsl import WGSLRenderer

    return f"{WGSLRenderer(target).render(function, program)}\n"


def backend(name: str, runtime: Runtime | None = None) -> Backend:
    """The device `name`; `runtime` stands for the hardware.

    Raises DeviceError where wgpu, a driver or the device is not there.
    """
    require_number(name)
    if runtime is not None:
        target = webgpu_target()
        render = functools.partial(_render_for, target)
        return Backend(name, target, render, str.encode, runtime, compiler="text")
    wgpu = wgpu_module()
    adapter = find_adapter(wgpu, name)
    found = WebGPURuntime(wgpu, adapter)
    target = _target(found)
    render = functools.partial(_render_for, target)
    hardware = f"{found.name} ({adapter.info['backend_type']}, {adapter.info['description']})"
    return Backend(
        name, target, render, found.compile, found, compiler=found.identity, hardware=hardware
    )
