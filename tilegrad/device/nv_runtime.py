"""Memory, launches and graphs of one NVIDIA GPU.

A handle is an address in the device's memory, an integer. All work goes to one stream, in order.
Bytes from and to the host pass through pinned memory, in two halves: one is filled while the other
travels. Several launches that come again and again become a CUDA graph.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from tilegrad.base.config import config
from tilegrad.base.errors import CompileError, DeviceError, OutOfMemoryError
from tilegrad.base.failed import write_failed
from tilegrad.base.forks import held_at_fork
from tilegrad.device.nv_clusters import launch, set_node
from tilegrad.device.nv_driver import Driver, is_loss
from tilegrad.device.nv_tensor_maps import Room, TensorMap, TensorMaps
from tilegrad.runtime.protocol import Dims, Runtime
from tilegrad.runtime.watchdog import Watchdog

__all__ = ["NVProgram", "NVRuntime", "heading"]

_HALF = 4 << 20
_LOG = 8192
# Calls after which a sequence becomes a graph, and launches that it has at least.
_CALLS, _LAUNCHES = 3, 2
_WORD = (1 << 64) - 1
# An event that only tells whether the stream has come to it.
_UNTIMED = 2


def heading(
    function: str,
    slots: Sequence[int],
    variables: int,
    block: Dims,
    asked: int = 0,
    maps: Sequence[str] = (),
    together: int = 1,
) -> str:
    """The line above a kernel's code: which memory a launch passes, how many integers, the lanes of
    a block, the bytes of shared memory that a launch asks for, tensor maps, and the blocks of a
    cluster, if there are any.
    """
    sizes = " ".join(map(str, block))
    rest = f" | {asked}" if asked or maps else ""
    rest += f" | {' '.join(maps)}" if maps else ""
    rest += f" | {together}" if together > 1 else ""
    return f"// {function}: {' '.join(map(str, slots))} | {variables} | {sizes}{rest}"


class NVProgram:
    """A kernel in the device's memory, with room for the arguments of a launch."""

    def __init__(self, name: str, head: str, module: Any, function: Any):
        self.name, self.module, self.function = name, module, function
        slots, variables, block, *rest = head.partition(":")[2].split("|")
        self.slots = tuple(map(int, slots.split()))
        self.variables = int(variables)
        self.block: Dims = tuple(map(int, block.split()))
        # Bytes of shared memory that a launch asks for.
        self.asked = int(rest[0]) if rest else 0
        texts = rest[1].split() if len(rest) > 1 else []
        self.maps = TensorMaps(tuple(map(TensorMap.read, texts)), name)
        # Blocks of a cluster.
        self.together = int(rest[2]) if len(rest) > 2 else 1
        # Which of the memory that a launch passes each map is of.
        self._mapped = [self.slots.index(each.slot) for each in self.maps.maps]
        self.lock = held_at_fork(threading.Lock(), 81)
        self.arguments = self.new_arguments()

    def new_arguments(self) -> Arguments:
        """Room for the arguments of a launch."""
        return Arguments(len(self.slots) + self.variables, len(self._mapped))

    def set(self, arguments: Arguments, numbers: Sequence[int], driver: Driver) -> None:
        """Set the arguments of a launch: `numbers`, and the tensor maps of memory among them.

        Raises DeviceError for memory that has none.
        """
        arguments.set(numbers)
        for number, position in enumerate(self._mapped):
            encoded = self.maps.encoded(driver, number, int(numbers[position]))
            arguments.maps.set(number, encoded)

    def picked(self, numbers: Sequence[int]) -> list[int]:
        """The handles and integers of a step that the kernel takes."""
        handles = len(numbers) - self.variables
        return [numbers[slot] for slot in self.slots] + [*numbers[handles:]]


class Arguments:
    """Words of 64 bits and tensor maps, and pointers to them as the driver wants them. An integer
    of 32 bits is read from the front of its word.
    """

    def __init__(self, count: int, maps: int = 0):
        self.words = (ctypes.c_uint64 * max(count, 1))()
        self.maps = Room(maps)
        start = ctypes.addressof(self.words)
        pointers = [*range(start, start + 8 * count, 8), *self.maps.addresses]
        self._pointers = (ctypes.c_void_p * max(len(pointers), 1))(*pointers)
        self.address = ctypes.addressof(self._pointers)
        self.count = count

    def set(self, numbers: Sequence[int]) -> None:
        for position, number in enumerate(numbers):
            self.words[position] = int(number) & _WORD


class NVRuntime(Runtime):
    """One device, opened."""

    def __init__(self, driver: Driver, device: Any, name: str):
        self.driver, self.device, self.name = driver, device, name
        driver.context = driver.call("cuDevicePrimaryCtxRetain", device)
        driver.enter()
        self.stream = driver.call("cuStreamCreate", 1)  # not ordered with the default stream
        self._process = os.getpid()
        self._lock = held_at_fork(threading.RLock(), 82)
        self._halves: list[tuple[int, Any]] = []
        self._next = 0
        self._unused: list[Any] = []
        self.watchdog = Watchdog(name, self._mark, self._has_passed, self._unused.append)

    def _mark(self) -> Any:
        """An event behind all work of the stream."""
        driver = self.driver
        event = self._unused.pop() if self._unused else driver.call("cuEventCreate", _UNTIMED)
        driver.call("cuEventRecord", event, self.stream)
        return event

    def _has_passed(self, event: Any) -> bool:
        return self.driver.is_done("cuEventQuery", event)

    def _enter(self) -> Driver:
        """The driver, for this thread.

        Raises DeviceError in a fork of the process that opened the device.
        """
        if os.getpid() != self._process:
            raise DeviceError(
                f"{self.driver.kind}: {self.name} was opened before this process was forked",
                remedy="start the process anew (multiprocessing: spawn), or fork before",
            )
        self.driver.enter()
        return self.driver

    # memory

    def allocate(self, nbytes: int) -> int:
        try:
            return int(self._enter().call("cuMemAlloc", nbytes))
        except OutOfMemoryError as error:
            raise MemoryError(nbytes) from error

    def free(self, handle: Any, nbytes: int) -> None:
        # In a forked process the device is gone.
        if os.getpid() != self._process:
            return
        driver = self._enter()
        # The driver would wait for a kernel that does not end.
        if not self.watchdog.is_hung:
            driver.call("cuMemFree", handle)

    def view(self, handle: Any, offset: int, nbytes: int) -> int:
        return int(handle) + offset

    def _half(self) -> tuple[int, Any]:
        """The half whose bytes have travelled, and the event after its next journey."""
        driver = self.driver
        if not self._halves:
            start = int(driver.call("cuMemHostAlloc", 2 * _HALF, 0))
            self._halves = [
                (start + number * _HALF, driver.call("cuEventCreate", _UNTIMED))
                for number in (0, 1)
            ]
        self._next ^= 1
        address, event = self._halves[self._next]
        self.watchdog.wait_for(event)
        return address, event

    def copy_in(self, handle: Any, data: memoryview) -> None:
        driver = self._enter()
        source = (data if data.contiguous else memoryview(bytes(data))).cast("B")
        with self._lock:
            for start in range(0, source.nbytes, _HALF):
                chunk = source[start : start + _HALF]
                address, event = self._half()
                _view(address, chunk.nbytes)[:] = chunk
                driver.call(
                    "cuMemcpyHtoDAsync", int(handle) + start, address, chunk.nbytes, self.stream
                )
                driver.call("cuEventRecord", event, self.stream)

    def copy_out(self, data: memoryview, handle: Any) -> None:
        driver = self._enter()
        target = data.cast("B")
        waiting: list[tuple[int, int, int, Any]] = []
        with self._lock:
            # Where rows are shown, the wait for the launches has one of its own.
            is_shown = config.DEBUG >= 2 and not self.watchdog.is_idle
            launched = self.watchdog.mark() if is_shown else None
            for start in range(0, target.nbytes, _HALF):
                count = min(_HALF, target.nbytes - start)
                address, event = self._half()
                driver.call("cuMemcpyDtoHAsync", address, int(handle) + start, count, self.stream)
                driver.call("cuEventRecord", event, self.stream)
                waiting.append((start, count, address, event))
                if launched is not None:
                    self.waited(self.watchdog.wait(launched))
                    launched = None
                if len(waiting) == 2:
                    self._arrive(target, *waiting.pop(0))
            for journey in waiting:
                self._arrive(target, *journey)

    def _arrive(self, target: memoryview, start: int, count: int, address: int, event: Any) -> None:
        self.watchdog.wait_for(event)
        target[start : start + count] = _view(address, count)

    def transfer(self, target: Any, source: Any, source_runtime: Runtime, nbytes: int) -> bool:
        if not isinstance(source_runtime, NVRuntime):
            return False
        if source_runtime is self:
            self._enter().call("cuMemcpyDtoDAsync", target, source, nbytes, self.stream)
            return True
        source_runtime.synchronize()
        there = source_runtime.driver.context
        driver = self._enter()
        driver.call("cuMemcpyPeerAsync", target, driver.context, source, there, nbytes, self.stream)
        return True

    def synchronize(self) -> None:
        self._enter()
        self.waited(self.watchdog.wait())

    # programs

    def load(self, name: str, binary: bytes) -> NVProgram:
        """The kernel in the device's memory. PTX is compiled by the driver.

        Raises CompileError with the driver's message, and the file that keeps the source.
        """
        driver = self._enter()
        head, _, code = binary.partition(b"\n")
        module = self._module(name, code)
        function = driver.call("cuModuleGetFunction", module, name.encode())
        program = NVProgram(name, head.decode(), module, function)
        if program.asked:
            kind = driver.module.CUfunction_attribute
            most = kind.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            driver.call("cuFuncSetAttribute", function, most, program.asked)
        weakref.finalize(program, self._release, "cuModuleUnload", module)
        return program

    def _module(self, name: str, code: bytes) -> Any:
        driver = self.driver
        options = driver.module.CUjit_option
        # The driver writes into it: the bindings take nothing else here.
        log = bytes(_LOG)
        kinds = [
            options.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
            options.CU_JIT_ERROR_LOG_BUFFER,
        ]
        values = [_LOG, log]
        try:
            return self.with_room(
                lambda: driver.call("cuModuleLoadDataEx", code + b"\0", len(kinds), kinds, values)
            )
        except OutOfMemoryError:
            raise
        except DeviceError as error:
            said = log.rstrip(b"\0").decode(errors="replace").strip().splitlines()
            source = code.decode(errors="replace") if code.startswith(b".version") else ""
            details = {"source": write_failed("failed.ptx", source)} if source else {}
            raise CompileError(
                f"{driver.kind.lower()}: {said[0].strip() if said else error.headline}",
                kernel=name,
                device=self.name,
                **details,
            ) from None

    def _release(self, function: str, handle: Any) -> None:
        """Give a module or a graph back by a `function` of the driver."""
        if os.getpid() != self._process:
            return
        try:
            self._enter().call(function, handle)
        except DeviceError:
            # The context is lost, or the driver is shutting down: what it had went with it.
            return

    def launch(
        self,
        program: NVProgram,
        handles: Sequence[Any],
        variables: Sequence[int],
        global_size: Dims,
        local_size: Dims,
        wait: bool = False,
    ) -> float | None:
        driver = self._enter()
        numbers = [handles[slot] for slot in program.slots] + [*variables]
        if not wait:
            self._start(program, numbers, global_size, local_size)
            return None
        before, after = (driver.call("cuEventCreate", 0) for _ in range(2))
        try:
            driver.call("cuEventRecord", before, self.stream)
            self._start(program, numbers, global_size, local_size)
            driver.call("cuEventRecord", after, self.stream)
            self.watchdog.wait_for(after)
            return float(driver.call("cuEventElapsedTime", before, after)) * 1e-3
        finally:
            driver.call("cuEventDestroy", before)
            driver.call("cuEventDestroy", after)

    def _start(self, program: NVProgram, numbers: Sequence[int], blocks: Dims, lanes: Dims) -> None:
        with program.lock:
            program.set(program.arguments, numbers, self.driver)
            rest = program.asked, self.stream, program.arguments.address
            start = functools.partial(
                launch, self.driver, program.function, (*blocks, *lanes), rest, program.together
            )
            try:
                self.with_room(start)
            except OutOfMemoryError:
                raise
            except DeviceError as error:
                raise self.refused(program.name, error, blocks=blocks, lanes=lanes) from None
        self.watchdog.launched(program.name)

    def refused(self, kernels: str, error: DeviceError, **details: Any) -> DeviceError:
        """The error of a launch of `kernels`; of a lost device with those before it, too."""
        suspects = self.watchdog.suspects() if is_loss(error) else {}
        headline = f"{kernels}: {error.headline}"
        return DeviceError(headline, **details, **suspects, **error.details)

    def sequence(
        self, launches: Sequence[tuple[Any, int, Dims]], is_small: bool
    ) -> Callable[[Sequence[int]], None] | None:
        return _Sequence(self, launches).run


def _view(address: int, nbytes: int) -> memoryview:
    """Pinned memory as bytes."""
    return memoryview((ctypes.c_ubyte * nbytes).from_address(address)).cast("B")


class _Sequence:
    """Launches that are made together: one by one at first, then as a CUDA graph whose nodes get
    new arguments where these have changed.
    """

    def __init__(self, runtime: NVRuntime, launches: Sequence[tuple[Any, int, Dims]]):
        self.runtime, self.launches = runtime, launches
        self._names = ", ".join(dict.fromkeys([program.name for program, _, _ in launches]))
        self._calls = 0
        self._exec: Any = None
        self._nodes: list[tuple[Any, Any, Arguments, list[int]]] = []
        self._lock = held_at_fork(threading.Lock(), 83)

    def run(self, numbers: Sequence[int]) -> None:
        runtime = self.runtime
        driver = runtime._enter()
        with self._lock:
            self._calls += 1
            by_launch = self._arguments_of(numbers)
            if len(self.launches) < _LAUNCHES or self._calls < _CALLS:
                for (program, _, blocks), own in zip(self.launches, by_launch):
                    runtime._start(program, own, blocks, program.block)
                return
            if self._exec is None:
                self._build(driver, by_launch)
            else:
                self._renew(driver, by_launch)
            try:
                runtime.with_room(lambda: driver.call("cuGraphLaunch", self._exec, runtime.stream))
            except DeviceError as error:
                raise runtime.refused(self._names, error) from None
        runtime.watchdog.launched(self._names)

    def _arguments_of(self, numbers: Sequence[int]) -> list[list[int]]:
        found, start = [], 0
        for program, count, _ in self.launches:
            found.append(program.picked(numbers[start : start + count]))
            start += count
        return found

    def _build(self, driver: Driver, by_launch: Sequence[list[int]]) -> None:
        graph = driver.call("cuGraphCreate", 0)
        try:
            before: list[Any] = []
            for (program, _, blocks), own in zip(self.launches, by_launch):
                arguments = program.new_arguments()
                program.set(arguments, own, driver)
                parameters = self._parameters(driver, program, blocks, arguments)
                node = driver.call("cuGraphAddKernelNode", graph, before, len(before), parameters)
                set_node(driver, node, program.together)
                self._nodes.append((node, parameters, arguments, own))
                before = [node]
            self._exec = self.runtime.with_room(lambda: driver.call("cuGraphInstantiate", graph, 0))
            weakref.finalize(self, self.runtime._release, "cuGraphExecDestroy", self._exec)
        finally:
            driver.call("cuGraphDestroy", graph)

    @staticmethod
    def _parameters(driver: Driver, program: NVProgram, blocks: Dims, arguments: Arguments) -> Any:
        found = driver.module.CUDA_KERNEL_NODE_PARAMS()
        found.func = program.function
        found.gridDimX, found.gridDimY, found.gridDimZ = blocks
        found.blockDimX, found.blockDimY, found.blockDimZ = program.block
        found.sharedMemBytes = program.asked
        found.kernelParams = arguments.address
        return found

    def _renew(self, driver: Driver, by_launch: Sequence[list[int]]) -> None:
        """Give each node whose arguments have changed the new ones."""
        for position, own in enumerate(by_launch):
            node, parameters, arguments, old = self._nodes[position]
            if own != old:
                program, _, _ = self.launches[position]
                program.set(arguments, own, driver)
                driver.call("cuGraphExecKernelNodeSetParams", self._exec, node, parameters)
                self._nodes[position] = (node, parameters, arguments, own)
