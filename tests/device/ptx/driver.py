"""A CUDA driver without a GPU: memory and launches are those of the PTX interpreter, and each call
is recorded. It has the functions of `cuda.bindings.driver` that the device uses, with their
arguments checked: what a real driver would refuse is an AssertionError here.
"""

from __future__ import annotations

import ctypes
import enum
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.device.ptx import tiles
from tests.device.ptx.machine import run
from tests.device.ptx.memory import GlobalMemory
from tests.device.ptx.parse import MAP, PTXError, parse

__all__ = ["CUresult", "FakeDriver"]


class CUresult(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803
    CUDA_ERROR_NOT_READY = 600
    CUDA_ERROR_INVALID_PTX = 218
    CUDA_ERROR_ILLEGAL_ADDRESS = 700


OK = CUresult.CUDA_SUCCESS


class _Node(SimpleNamespace):
    pass


class _Map:
    """A tensor map at a multiple of its size."""

    def __init__(self, data: bytes):
        size = tiles.MAP_BYTES
        self._room = (ctypes.c_ubyte * (2 * size))()
        self.address = -(-ctypes.addressof(self._room) // size) * size
        ctypes.memmove(self.address, data, size)


class FakeDriver:
    """`module` of the device: one GPU."""

    CUresult = CUresult
    CUjit_option = SimpleNamespace(CU_JIT_ERROR_LOG_BUFFER=5, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES=6)
    CUdevice_attribute = SimpleNamespace(
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR=75,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR=76,
    )
    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8)
    CUDA_KERNEL_NODE_PARAMS = SimpleNamespace
    CUlaunchConfig = SimpleNamespace
    CUlaunchAttributeID = SimpleNamespace(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION=4)

    @staticmethod
    def CUlaunchAttributeValue() -> Any:
        return SimpleNamespace(clusterDim=SimpleNamespace())

    @staticmethod
    def CUlaunchAttribute() -> Any:
        return SimpleNamespace(value=FakeDriver.CUlaunchAttributeValue())

    def __init__(self, arch: tuple[int, int] = (8, 0), version: int = 13000, room: int = 1 << 30):
        self.arch, self.version, self.room = arch, version, room
        self.calls: list[tuple[Any, ...]] = []
        self.memory = GlobalMemory()
        self.pinned: dict[int, Any] = {}
        self.modules: dict[int, Any] = {}
        self.functions: dict[int, Any] = {}
        # Shared memory that launches of a function may ask for.
        self.asked: dict[int, int] = {}
        self.events: dict[int, str] = {}
        # When each event was recorded, and since when the stream goes no further.
        self.order: dict[int, int] = {}
        self.stuck: int | None = None
        self.graphs: dict[int, list[_Node]] = {}
        self.executables: dict[int, list[_Node]] = {}
        self.context: int | None = None
        self.fail: dict[str, CUresult] = {}
        # Functions that are called by their addresses.
        self.thunks: list[Any] = []
        self._serial = 1000

    def _next(self) -> int:
        self._serial += 1
        return self._serial

    def names(self) -> list[str]:
        """The functions called, in their order."""
        return [call[0] for call in self.calls]

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        if not name.startswith("cu"):
            return found

        def recorded(*arguments: Any) -> Any:
            self.calls.append((name, *arguments))
            if name in self.fail:
                return (self.fail[name], *[None] * 2)[: 2 if name != "cuInit" else 1]
            if name.startswith(("cuMem", "cuStream", "cuEvent", "cuModule", "cuLaunch", "cuGraph")):
                assert self.context is not None, f"{name} without a context"
            return found(*arguments)

        return recorded

    # devices and contexts

    def cuInit(self, flags: int) -> Any:
        assert flags == 0
        return (OK,)

    def cuDriverGetVersion(self) -> Any:
        return OK, self.version

    def cuDeviceGetCount(self) -> Any:
        return OK, 1

    def cuDeviceGet(self, number: int) -> Any:
        assert number == 0
        return OK, 7

    def cuDeviceGetName(self, length: int, device: int) -> Any:
        assert device == 7
        return OK, b"Imaginary GPU\0".ljust(length, b"\0")

    def cuDeviceGetAttribute(self, kind: int, device: int) -> Any:
        return OK, self.arch[kind - 75]

    def cuDevicePrimaryCtxRetain(self, device: int) -> Any:
        return OK, 99

    def cuCtxSetCurrent(self, context: int) -> Any:
        self.context = context
        return (OK,)

    # memory

    def cuMemAlloc(self, nbytes: int) -> Any:
        if sum(self.memory.live.values()) + nbytes > self.room:
            return CUresult.CUDA_ERROR_OUT_OF_MEMORY, None
        return OK, self.memory.allocate(nbytes)

    def cuMemFree(self, address: int) -> Any:
        assert address in self.memory.live, "memory is freed that is not allocated"
        self.memory.free(address)
        return (OK,)

    def cuMemHostAlloc(self, nbytes: int, flags: int) -> Any:
        room = (ctypes.c_ubyte * nbytes)()
        self.pinned[ctypes.addressof(room)] = room
        return OK, ctypes.addressof(room)

    def _host(self, address: int, nbytes: int) -> memoryview:
        for start, room in self.pinned.items():
            if start <= address and address + nbytes <= start + len(room):
                return memoryview(room).cast("B")[address - start : address - start + nbytes]
        raise AssertionError("an asynchronous copy of memory that is not pinned")

    def cuMemcpyHtoDAsync(self, target: int, source: int, nbytes: int, stream: int) -> Any:
        self.memory.window(target, nbytes)[:] = bytearray(self._host(source, nbytes))
        return (OK,)

    def cuMemcpyDtoHAsync(self, target: int, source: int, nbytes: int, stream: int) -> Any:
        self._host(target, nbytes)[:] = self.memory.window(source, nbytes).tobytes()
        return (OK,)

    def cuMemcpyDtoDAsync(self, target: int, source: int, nbytes: int, stream: int) -> Any:
        self.memory.window(target, nbytes)[:] = self.memory.window(source, nbytes).copy()
        return (OK,)

    # streams and events

    def cuStreamCreate(self, flags: int) -> Any:
        return OK, self._next()

    def cuEventCreate(self, flags: int) -> Any:
        made = self._next()
        self.events[made] = "made"
        return OK, made

    def cuEventRecord(self, event: int, stream: int) -> Any:
        assert event in self.events
        self.events[event] = "recorded"
        self.order[event] = len(self.calls)
        return (OK,)

    def cuEventQuery(self, event: int) -> Any:
        assert event in self.events
        is_after = self.stuck is not None and self.order.get(event, 0) >= self.stuck
        return (CUresult.CUDA_ERROR_NOT_READY if is_after else OK,)

    def cuEventElapsedTime(self, before: int, after: int) -> Any:
        assert self.events[before] == self.events[after] == "recorded"
        return OK, 0.25

    def cuEventDestroy(self, event: int) -> Any:
        del self.events[event]
        return (OK,)

    # tensor maps

    def cuGetProcAddress(self, symbol: bytes, version: int, flags: int) -> Any:
        assert (symbol, flags) == (b"cuTensorMapEncodeTiled", 0) and 12000 <= version
        if version > self.version:
            return CUresult.CUDA_ERROR_INVALID_VALUE, None, None
        if not self.thunks:
            self.thunks.append(tiles.ENCODE(self._encode))
        return OK, ctypes.cast(self.thunks[0], ctypes.c_void_p).value, 0

    def _encode(
        self, map_: int, kind: int, rank: int, address: int, sizes: Any, strides: Any, box: Any,
        steps: Any, interleave: int, swizzle: int, promotion: int, fill: int,
    ) -> int:  # fmt: skip
        """As C calls it: an assertion here would reach nobody, so all that is wrong is an error."""
        rows = sizes[:rank], strides[: rank - 1], box[:rank]
        self.calls.append(("cuTensorMapEncodeTiled", kind, rank, address, *rows))
        known = any(start <= address < start + size for start, size in self.memory.live.items())
        plain = (interleave, swizzle, promotion, fill) == (0, 3, 2, 0) and kind in (0, 1)
        if map_ % tiles.MAP_BYTES or not known or not plain or steps[:rank] != [1] * rank:
            return int(CUresult.CUDA_ERROR_INVALID_VALUE)
        try:
            made = tiles.TensorMap(kind + 1, address, *map(tuple, rows))
        except PTXError:
            return int(CUresult.CUDA_ERROR_INVALID_VALUE)
        ctypes.memmove(map_, made.packed(), tiles.MAP_BYTES)
        return int(OK)

    # modules and launches

    def cuModuleLoadDataEx(self, image: bytes, count: int, kinds: Any, values: Any) -> Any:
        assert count == len(kinds) == len(values)
        assert image.endswith(b"\0"), "a text ends with a zero"
        try:
            found = parse(image[:-1].decode())
        except PTXError as error:
            text = f"ptxas application ptx input; fatal : {error}".encode()[: values[0] - 1] + b"\0"
            assert isinstance(values[1], bytes) and len(values[1]) == values[0]
            ctypes.memmove(values[1], text, len(text))
            return CUresult.CUDA_ERROR_INVALID_PTX, None
        made = self._next()
        self.modules[made] = found
        return OK, made

    def cuModuleGetFunction(self, module: int, name: bytes) -> Any:
        made = self._next()
        self.functions[made] = (module, self.modules[module][name.decode()])
        return OK, made

    def cuModuleUnload(self, module: int) -> Any:
        del self.modules[module]
        return (OK,)

    def cuFuncSetAttribute(self, function: int, kind: int, value: int) -> Any:
        known = {80: 163 << 10, 90: 227 << 10, 100: 227 << 10}
        most = known.get(self.arch[0] * 10 + self.arch[1], 64 << 10)
        # Less what the kernel declares.
        arrays = self.functions[function][1].arrays.values()
        most -= sum(nbytes for space, _, nbytes in arrays if space == "shared")
        assert kind == 8 and function in self.functions and 0 <= value <= most
        self.asked[function] = value
        return (OK,)

    def _launch(
        self, function: int, grid: Any, block: Any, pointers: int, asked: int, together: int = 1
    ) -> None:
        module, entry = self.functions[function]
        assert together == entry.together, "clusters of another size than the kernel's"
        assert module in self.modules, "a launch of a kernel that is unloaded"
        count = len(entry.parameters)
        words = (ctypes.c_void_p * count).from_address(pointers) if count else ()
        values = []
        for (_, kind), word in zip(entry.parameters, words):
            size = tiles.MAP_BYTES if kind == MAP else int(kind[1:]) // 8
            assert kind != MAP or word % tiles.MAP_BYTES == 0, "a map lies anywhere"
            values.append(int.from_bytes(ctypes.string_at(word, size), "little"))
        assert asked <= self.asked.get(function, 0)
        run(entry, self.memory, values, grid, block, asked)

    def cuLaunchKernel(self, function: int, *rest: Any) -> Any:
        gx, gy, gz, bx, by, bz, shared, _, pointers, extra = rest
        assert extra == 0
        assert bx * by * bz <= 1024 and gx < 2**31 and max(gy, gz) <= 65535
        self._launch(function, (gx, gy, gz), (bx, by, bz), pointers, shared)
        return (OK,)

    def cuLaunchKernelEx(self, config: Any, function: int, pointers: int, extra: int) -> Any:
        assert extra == 0 and len(config.attrs) == config.numAttrs and self.arch >= (9, 0)
        grid = (config.gridDimX, config.gridDimY, config.gridDimZ)
        block = (config.blockDimX, config.blockDimY, config.blockDimZ)
        assert grid[0] < 2**31 and max(grid[1:]) <= 65535 and np.prod(block) <= 1024
        together = 1
        for attribute in config.attrs:
            together = _cluster(attribute.id, attribute.value)
        self._launch(function, grid, block, pointers, config.sharedMemBytes, together)
        return (OK,)

    # graphs

    def cuGraphKernelNodeSetAttribute(self, node: int, kind: int, value: Any) -> Any:
        every = [each for nodes in self.graphs.values() for each in nodes]
        (found,) = (each for each in every if each.number == node)
        found.together = _cluster(kind, value)
        return (OK,)

    def cuGraphCreate(self, flags: int) -> Any:
        made = self._next()
        self.graphs[made] = []
        return OK, made

    def cuGraphAddKernelNode(self, graph: int, before: Any, count: int, parameters: Any) -> Any:
        nodes = self.graphs[graph]
        assert [*before] == [node.number for node in nodes[-1:]] and count == len(before)
        node = _Node(number=self._next(), parameters=_copy(self, parameters), together=1)
        nodes.append(node)
        return OK, node.number

    def cuGraphInstantiate(self, graph: int, flags: int) -> Any:
        made = self._next()
        self.executables[made] = self.graphs[graph]
        return OK, made

    def cuGraphExecKernelNodeSetParams(self, executable: int, node: int, parameters: Any) -> Any:
        (found,) = (each for each in self.executables[executable] if each.number == node)
        found.parameters = _copy(self, parameters)
        return (OK,)

    def cuGraphDestroy(self, graph: int) -> Any:
        del self.graphs[graph]
        return (OK,)

    def cuGraphExecDestroy(self, executable: int) -> Any:
        del self.executables[executable]
        return (OK,)

    def cuGraphLaunch(self, executable: int, stream: int) -> Any:
        for node in self.executables[executable]:
            each = node.parameters
            pointers = (ctypes.c_void_p * max(len(each.words), 1))(
                *[
                    word.address if isinstance(word, _Map) else ctypes.addressof(word)
                    for word in each.words
                ]
            )
            grid = (each.gridDimX, each.gridDimY, each.gridDimZ)
            block = (each.blockDimX, each.blockDimY, each.blockDimZ)
            asked = each.sharedMemBytes
            address = ctypes.addressof(pointers)
            self._launch(each.func, grid, block, address, asked, node.together)
        return (OK,)


def _cluster(kind: int, value: Any) -> int:
    """The blocks of a cluster, of the attribute of a launch."""
    size = value.clusterDim
    assert kind == 4 and (size.y, size.z) == (1, 1) and 1 < size.x <= 8
    return int(size.x)


def _copy(driver: FakeDriver, parameters: Any) -> Any:
    """A driver takes the arguments when it is told of them, not when they are launched."""
    _, entry = driver.functions[parameters.func]
    count = len(entry.parameters)
    pointers = (ctypes.c_void_p * max(count, 1)).from_address(parameters.kernelParams)
    words = [
        _Map(ctypes.string_at(pointers[i], tiles.MAP_BYTES))
        if kind == MAP
        else ctypes.c_uint64(ctypes.c_uint64.from_address(pointers[i]).value)
        for i, (_, kind) in enumerate(entry.parameters)
    ]
    return SimpleNamespace(**vars(parameters), words=words)
