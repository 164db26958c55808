"""The queue of one of Apple's GPUs: command buffers, their order, and waiting for them."""

from __future__ import annotations

import ctypes
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tilegrad.base.errors import DeviceError, OutOfMemoryError
from tilegrad.base.forks import held_at_fork
from tilegrad.device.metal_handles import MetalLaunch, MetalMemory, MetalProgram, Size
from tilegrad.runtime.objective_c import Count, Object, ObjectiveC
from tilegrad.runtime.protocol import Dims

__all__ = ["MetalQueue"]

# MTLResourceStorageModeShared: host and GPU see the same bytes.
_SHARED = 0
# MTLCommandBufferStatusCompleted and Error, and of its errors MTLCommandBufferErrorOutOfMemory.
_COMPLETED, _FAILED, _NO_ROOM = 4, 5, 8
# MTLCommandBufferErrorAccessRevoked, of a process whose kernels failed too often, and
# DeviceRemoved.
_LOST = frozenset({4, 11})
# MTLResourceUsageRead and Write.
_READ_AND_WRITE = 3
# A queue holds 64 command buffers; a launch beyond them would wait for the first.
_MOST_PENDING = 32


class _Range(ctypes.Structure):
    """NSRange."""

    _fields_ = [(name, ctypes.c_size_t) for name in ("location", "length")]


class _Pending(NamedTuple):
    """A command buffer under way, and the names of its kernels."""

    names: str
    commands: int


class MetalQueue:
    """Launches on a GPU that have not ended.

    Args:
        objc: the framework.
        device: the GPU, whose queue it is.
        title: the name of the queue in errors.
        waited: told how long the host has waited.

    Attributes:
        committed: how many command buffers there were; the last one has this number.
    """

    def __init__(self, objc: ObjectiveC, device: int, title: str, waited: Callable[[float], None]):
        self.objc, self.device, self.title, self._waited = objc, device, title, waited
        self._queue = objc.send(device, "newCommandQueue")
        # Command buffers under way, in their order, and how many there were and have ended.
        self._pending: deque[_Pending] = deque()
        self.committed = self._ended = 0
        # The last command buffer that executes indirect commands, and objects that are given back
        # when the one of their number has ended.
        self._indirect = 0
        self._leaving: deque[tuple[int, int]] = deque()
        self.lock = held_at_fork(threading.RLock(), 80)
        self._process = os.getpid()

    def require_own_process(self) -> None:
        """Raise DeviceError in a fork of the process that opened the device."""
        if os.getpid() != self._process:
            raise DeviceError(
                f"METAL: {self.title} was opened before this process was forked",
                remedy="start the process anew (multiprocessing: spawn), or fork before",
            )

    def release(self, handle: int) -> None:
        """Give back an object that nothing under way uses."""
        # In a forked process the framework must not be called.
        if os.getpid() == self._process:
            self.objc.send(handle, "release", result=None)

    def give_back(self, handle: int) -> None:
        """Release an object that indirect commands may use, which a command buffer does not keep:
        behind the last one that executes such.
        """
        with self.lock:
            if self._indirect > self._ended:
                self._leaving.append((self._indirect, handle))
            else:
                self.release(handle)

    def new_buffer(self, nbytes: int) -> MetalMemory:
        """Memory that host and GPU see.

        Raises MemoryError if there is none.
        """
        objc, size = self.objc, (Count(nbytes), Count(_SHARED))
        buffer = objc.send(self.device, "newBufferWithLength:options:", *size)
        if not buffer and self._leaving:
            self.wait_for_last()
            buffer = objc.send(self.device, "newBufferWithLength:options:", *size)
        if not buffer:
            raise MemoryError(nbytes)
        return MetalMemory(buffer, objc.send(buffer, "contents"), 0)

    def commit(self, launches: Sequence[MetalLaunch]) -> None:
        """Hand over launches as one command buffer, which runs them one after the other."""
        for launch in launches:
            self._check_limits(launch.program, launch.lanes)

        def encode(encoder: int) -> None:
            for launch in launches:
                self._encode(encoder, launch)

        self._hand_over([launch.program for launch in launches], encode)

    def execute(
        self, programs: Sequence[MetalProgram], indirect: int, first: int, resources: Any
    ) -> None:
        """Hand over indirect commands from `first` on, one for each of the programs, as one command
        buffer. `resources` is an array of all buffers that they use.
        """
        objc = self.objc

        def encode(encoder: int) -> None:
            objc.send(
                encoder,
                "useResources:count:usage:",
                ctypes.cast(resources, ctypes.POINTER(Object)),
                Count(len(resources)),
                Count(_READ_AND_WRITE),
                result=None,
            )
            objc.send(
                encoder,
                "executeCommandsInBuffer:withRange:",
                Object(indirect),
                _Range(first, len(programs)),
                result=None,
            )

        # Memory that is released from now on waits for it.
        self._indirect = self.committed + 1
        self._hand_over(programs, encode)

    def _hand_over(self, programs: Sequence[MetalProgram], encode: Callable[[int], None]) -> None:
        """Commit the commands that `encode` writes with an encoder as one command buffer."""
        objc = self.objc
        with objc.pool():
            commands: int = objc.send(self._queue, "commandBuffer")
            encoder = objc.send(commands, "computeCommandEncoder")
            try:
                encode(encoder)
            finally:
                # An encoder that goes without it ends the process.
                objc.send(encoder, "endEncoding", result=None)
            # It outlives the pool: the thread that waits for it gives it back.
            objc.send(commands, "retain")
            objc.send(commands, "commit", result=None)
        names = dict.fromkeys([program.interface.name for program in programs])
        self._pending.append(_Pending(", ".join(names), commands))
        self.committed += 1
        if len(self._pending) >= _MOST_PENDING:
            began = time.perf_counter()
            self._finish()
            self._waited(time.perf_counter() - began)

    def _encode(self, encoder: int, launch: MetalLaunch) -> None:
        """The kernel, its arguments, memory first, then integers, and its blocks."""
        objc = self.objc
        objc.send(encoder, "setComputePipelineState:", Object(launch.program.pipeline), result=None)
        for number, memory in enumerate(launch.memories):
            objc.send(
                encoder,
                "setBuffer:offset:atIndex:",
                Object(memory.buffer),
                Count(memory.offset),
                Count(number),
                result=None,
            )
        for number, packed in enumerate(launch.numbers, len(launch.memories)):
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
            Size(*launch.blocks),
            Size(*launch.lanes),
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

    def has_ended(self, number: int) -> bool:
        """Whether a command buffer has ended, without waiting for it.

        Raises DeviceError, or OutOfMemoryError, if it or one before it failed.
        """
        while self._pending and self._ended < number:
            with self.objc.pool():
                status = self.objc.send(self._pending[0].commands, "status", result=Count)
            if status < _COMPLETED:
                return False
            self._finish()
        return True

    def wait_for(self, number: int) -> None:
        """Wait for a command buffer.

        Raises DeviceError, or OutOfMemoryError, if it or one before it failed.
        """
        began = time.perf_counter()
        while self._pending and self._ended < number:
            self._finish()
        self._waited(time.perf_counter() - began)

    def wait_for_last(self) -> None:
        """Wait for all launches.

        Raises DeviceError, or OutOfMemoryError, if one failed.
        """
        with self.lock:
            if self._pending:
                self.wait_for(self.committed)

    def time_of_last(self) -> float:
        """Wait for all launches, and give the seconds of the last one."""
        seconds = 0.0
        while self._pending:
            seconds = self._finish()
        return seconds

    def _finish(self) -> float:
        """Wait for the oldest command buffer under way, and give its seconds.

        Raises DeviceError, or OutOfMemoryError, if it failed.
        """
        objc = self.objc
        names, commands = self._pending.popleft()
        try:
            with objc.pool():
                objc.send(commands, "waitUntilCompleted", result=None)
                if objc.send(commands, "status", result=Count) == _FAILED:
                    raise self._failure(names, objc.send(commands, "error"))
                start, end = (
                    objc.send(commands, moment, result=ctypes.c_double)
                    for moment in ("GPUStartTime", "GPUEndTime")
                )
        finally:
            self.release(commands)
            self._ended += 1
            while self._leaving and self._leaving[0][0] <= self._ended:
                self.release(self._leaving.popleft()[1])
        return float(end - start)

    def _failure(self, name: str, error: int) -> DeviceError | OutOfMemoryError:
        said = self.objc.description(error) or "no message"
        code = self.objc.send(error, "code", result=Count) if error else 0
        if code == _NO_ROOM:
            return OutOfMemoryError(
                f"{self.title} has no room: {said}",
                kernel=name,
                remedy="free tensors that are no longer needed, or use smaller batches",
            )
        if code in _LOST:
            return DeviceError(
                f"{self.title}: the device is lost: {said}",
                kernel=name,
                remedy="tensors on it are gone: start the process anew",
            )
        return DeviceError(f"{self.title}: {name}: {said}")
