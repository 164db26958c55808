"""Launches that are made together, again and again: as command buffers that are encoded anew at
first, then as indirect commands, which are encoded once.

A command is encoded again where its memory has changed. Nothing may change what the GPU still
executes, so there are up to two copies of the commands: one takes new arguments while the other
is under way. Integers, which an indirect command cannot hold, are in memory of their own.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from typing import Any

from tilegrad.device.metal_handles import MetalLaunch, MetalMemory, MetalProgram, Size
from tilegrad.device.metal_queue import MetalQueue
from tilegrad.runtime.objective_c import Count, Object
from tilegrad.runtime.protocol import Dims

__all__ = ["MetalSequence"]

# From which call on launches are indirect commands, and of how many.
_CALLS, _LAUNCHES = 3, 2
_COPIES = 2
# Launches of one command buffer: the GPU begins while the next ones are encoded, and the system
# ends a command buffer that keeps the GPU for seconds.
_MOST_TOGETHER = 32
# MTLIndirectCommandTypeConcurrentDispatch.
_DISPATCHES = 1 << 5
# The buffers that a command may have (Metal feature set tables: entries of the argument table).
_MOST_ENTRIES = 31
# Where an integer may begin in memory: the largest alignment of the constant address space (Metal
# feature set tables).
_NUMBER_BYTES = 256


class MetalSequence:
    """Launches of one GPU, of each its program, how many arguments it takes, and its blocks."""

    def __init__(self, queue: MetalQueue, launches: Sequence[tuple[Any, int, Dims]]):
        self._queue, self._launches = queue, launches
        self._calls = 0
        self._copies: list[_Commands] = []
        self._is_indirect = len(launches) >= _LAUNCHES and all(
            program.is_indirect and program.entries <= _MOST_ENTRIES for program, _, _ in launches
        )

    def run(self, given: Sequence[Any]) -> None:
        """Make the launches, with all their memory and integers one after the other."""
        queue = self._queue
        queue.require_own_process()
        launches = self._with(given)
        with queue.lock:
            self._calls += 1
            if self._is_indirect and self._calls >= _CALLS:
                found = self._commands_of(launches)
                if found is not None:
                    found.execute()
                    return
                self._is_indirect = False
            for first in range(0, len(launches), _MOST_TOGETHER):
                queue.commit(launches[first : first + _MOST_TOGETHER])

    def _with(self, given: Sequence[Any]) -> list[MetalLaunch]:
        made, start = [], 0
        for program, count, blocks in self._launches:
            own = given[start : start + count]
            memory = own[: count - len(program.interface.codes)]
            block = program.interface.block
            made.append(MetalLaunch(program, memory, own[len(memory) :], blocks, block))
            start += count
        return made

    def _commands_of(self, launches: Sequence[MetalLaunch]) -> _Commands | None:
        """Commands with these arguments; None if the GPU has no room for such."""
        queue = self._queue
        for copy in self._copies:
            if copy.is_as(launches):
                return copy
        for copy in self._copies:
            if queue.has_ended(copy.last):
                copy.renew(launches)
                return copy
        if len(self._copies) < _COPIES:
            made = _Commands.made(queue, launches)
            if made is not None:
                self._copies.append(made)
                return made
        if not self._copies:
            return None
        oldest = min(self._copies, key=lambda copy: copy.last)
        queue.wait_for(oldest.last)
        oldest.renew(launches)
        return oldest


class _Commands:
    """Indirect commands, and the arguments that they have.

    Attributes:
        last: the number of the last command buffer that executes them.
    """

    def __init__(self, queue: MetalQueue, handle: int, numbers: MetalMemory | None, count: int):
        self._queue, self._handle, self._numbers = queue, handle, numbers
        self._launches: list[MetalLaunch | None] = [None] * count
        self._chunks: list[tuple[list[MetalProgram], int, Any]] = []
        self.last = 0
        objects = [handle] if numbers is None else [handle, numbers.buffer]
        for each in objects:
            weakref.finalize(self, queue.give_back, each).atexit = False

    @classmethod
    def made(cls, queue: MetalQueue, launches: Sequence[MetalLaunch]) -> _Commands | None:
        """Commands of these launches; None if the GPU has no room for them."""
        count = sum(len(launch.numbers) for launch in launches)
        try:
            numbers = queue.new_buffer(count * _NUMBER_BYTES) if count else None
        except MemoryError:
            return None
        handle = _new_commands(queue, len(launches))
        if not handle:
            if numbers is not None:
                queue.give_back(numbers.buffer)
            return None
        found = cls(queue, handle, numbers, len(launches))
        found.renew(launches)
        return found

    def is_as(self, launches: Sequence[MetalLaunch]) -> bool:
        """Whether the commands have the arguments of `launches`."""
        return all(
            known is not None
            and known.memories == launch.memories
            and known.numbers == launch.numbers
            for known, launch in zip(self._launches, launches)
        )

    def renew(self, launches: Sequence[MetalLaunch]) -> None:
        """Give the commands the arguments of `launches`; nothing executes them meanwhile."""
        number, moved = 0, False
        with self._queue.objc.pool():
            for position, launch in enumerate(launches):
                known = self._launches[position]
                if known is None or known.numbers != launch.numbers:
                    self._write(number, launch.numbers)
                if known is None or known.memories != launch.memories:
                    self._encode(position, launch, number)
                    moved = True
                self._launches[position] = launch
                number += len(launch.numbers)
        if moved:
            self._chunks = [
                self._chunk(launches[first : first + _MOST_TOGETHER], first)
                for first in range(0, len(launches), _MOST_TOGETHER)
            ]

    def _chunk(
        self, launches: Sequence[MetalLaunch], first: int
    ) -> tuple[list[MetalProgram], int, Any]:
        """For commands that share a command buffer: programs, the first one, and all buffers."""
        buffers = dict.fromkeys([each.buffer for launch in launches for each in launch.memories])
        if self._numbers is not None:
            buffers[self._numbers.buffer] = None
        return [launch.program for launch in launches], first, (Object * len(buffers))(*buffers)

    def _write(self, number: int, packed: Sequence[bytes]) -> None:
        """Store integers, the first at this number among those of all commands."""
        for position, each in enumerate(packed, number):
            assert self._numbers is not None
            address = self._numbers.address + position * _NUMBER_BYTES
            ctypes.memmove(address, each, len(each))

    def _encode(self, position: int, launch: MetalLaunch, number: int) -> None:
        """One command: it waits for those before it, as a launch does."""
        objc, numbers = self._queue.objc, self._numbers
        command = objc.send(self._handle, "indirectComputeCommandAtIndex:", Count(position))
        objc.send(command, "reset", result=None)
        if position:
            objc.send(command, "setBarrier", result=None)
        objc.send(command, "setComputePipelineState:", Object(launch.program.pipeline), result=None)
        entries = [(memory.buffer, memory.offset) for memory in launch.memories]
        if numbers is not None:
            own = range(number, number + len(launch.numbers))
            entries += [(numbers.buffer, each * _NUMBER_BYTES) for each in own]
        for entry, (buffer, offset) in enumerate(entries):
            objc.send(
                command,
                "setKernelBuffer:offset:atIndex:",
                Object(buffer),
                Count(offset),
                Count(entry),
                result=None,
            )
        objc.send(
            command,
            "concurrentDispatchThreadgroups:threadsPerThreadgroup:",
            Size(*launch.blocks),
            Size(*launch.lanes),
            result=None,
        )

    def execute(self) -> None:
        """Hand them over, as few command buffers."""
        for programs, first, resources in self._chunks:
            self.last = self._queue.committed + 1
            self._queue.execute(programs, self._handle, first, resources)


def _new_commands(queue: MetalQueue, count: int) -> int:
    """An indirect command buffer for `count` launches; 0 if the GPU makes none."""
    objc = queue.objc
    descriptor = objc.send(objc.class_named("MTLIndirectCommandBufferDescriptor"), "new")
    try:
        for selector, value in (
            ("setCommandTypes:", Count(_DISPATCHES)),
            ("setInheritPipelineState:", ctypes.c_bool(False)),
            ("setInheritBuffers:", ctypes.c_bool(False)),
            ("setMaxKernelBufferBindCount:", Count(_MOST_ENTRIES)),
        ):
            objc.send(descriptor, selector, value, result=None)
        found: int = objc.send(
            queue.device,
            "newIndirectCommandBufferWithDescriptor:maxCommandCount:options:",
            Object(descriptor),
            Count(count),
            Count(0),
        )
    finally:
        objc.send(descriptor, "release", result=None)
    return found
