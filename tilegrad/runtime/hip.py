"""AMD's GPUs through `libamdhip64`, the library of ROCm that every driver comes with.

Only used functions are declared. A handle is an address on the GPU, a program a function of a
module. Launches go into one stream in their order; a copy waits for those before it.

The arguments of a kernel are one block of eight-byte words (`render.amdgpu`), which the library
takes as it is.
"""

from __future__ import annotations

import ctypes
import os
import struct
import time
import weakref
from collections.abc import Sequence
from typing import Any

from tilegrad.base.errors import DeviceError, OutOfMemoryError, TilegradError
from tilegrad.base.libraries import open_declared
from tilegrad.runtime.buffer import address_of
from tilegrad.runtime.interface import Interface
from tilegrad.runtime.protocol import Dims, Runtime
from tilegrad.runtime.watchdog import Watchdog

__all__ = [
    "HipProgram",
    "HipRuntime",
    "HipSourceRuntime",
    "gpu_architectures",
    "open_library",
    "visible_architectures",
]

_LIBRARIES = ("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5")
_TO_DEVICE, _TO_HOST, _ON_DEVICE = 1, 2, 3
_OUT_OF_MEMORY, _NOT_READY = 2, 600
# An event that only tells whether the stream has come to it.
_UNTIMED = 2
# After these (hipErrorECCNotCorrectable, IllegalAddress, LaunchTimeOut, Assert, LaunchFailure) the
# context is lost, with all memory in it.
_LOST = frozenset({214, 700, 702, 710, 719})
# The list `extra` of a launch: what follows is the block, what follows its size, the end.
_BLOCK, _BLOCK_BYTES, _END = 1, 2, 3
_TOPOLOGY = "/sys/class/kfd/kfd/topology/nodes"

_P, _SIZE, _INT, _WORD = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_uint
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "hipInit": (_WORD,),
    "hipGetDeviceCount": (_P,),
    "hipSetDevice": (_INT,),
    "hipDeviceGetPCIBusId": (ctypes.c_char_p, _INT, _INT),
    "hipStreamCreate": (_P,),
    "hipEventCreateWithFlags": (_P, _WORD),
    "hipEventRecord": (_P, _P),
    "hipEventQuery": (_P,),
    "hipMalloc": (_P, _SIZE),
    "hipFree": (_P,),
    "hipMemcpy": (_P, _P, _SIZE, _INT),
    "hipModuleLoadData": (_P, _P),
    "hipModuleUnload": (_P,),
    "hipModuleGetFunction": (_P, _P, ctypes.c_char_p),
    "hipModuleLaunchKernel": (_P, *(_WORD,) * 7, _P, _P, _P),
    "hipGetErrorString": (_INT,),
}


def open_library(kind: str = "AMD") -> Any:
    """The library with the used functions declared, for a device of this kind.

    Raises DeviceError where there is none, or an old one.
    """
    library = open_declared(
        kind,
        _LIBRARIES,
        _FUNCTIONS,
        "install ROCm's HIP runtime (hip-runtime-amd)"
        + (", or use AMD:KFD, which needs the kernel's driver only" if kind == "AMD" else "")
        + f"; NULL:{kind} compiles and runs nothing without it",
    )
    library.hipGetErrorString.restype = ctypes.c_char_p
    return library


def gpu_architectures(root: str = _TOPOLOGY) -> dict[int, str]:
    """The architecture of each GPU by the number of its node, as the kernel's driver lists them:
    version 90010 is gfx90a. Nodes without such a version are processors.
    """
    return {number: arch for number, (arch, _) in _gpus(root).items()}


def visible_architectures(library: Any, root: str = _TOPOLOGY) -> list[str]:
    """The architectures of the GPUs that the library counts, in its order: HIP_VISIBLE_DEVICES and
    its like hide some of those that the kernel's driver lists.
    """
    gpus = list(_gpus(root).values())
    count, text = ctypes.c_int(), ctypes.create_string_buffer(64)
    if library.hipInit(0) or library.hipGetDeviceCount(ctypes.byref(count)):
        return []
    at = {address: arch for arch, address in gpus}
    found = []
    for number in range(count.value):
        name = b"" if library.hipDeviceGetPCIBusId(text, 64, number) else text.value
        arch = at.get(name.decode().lower()) or (gpus[number][0] if number < len(gpus) else "")
        if not arch:
            break
        found.append(arch)
    return found


def _gpus(root: str) -> dict[int, tuple[str, str]]:
    """The architecture of each GPU by its node, and where it is on the bus, as in 0000:03:00.0."""
    found: dict[int, tuple[str, str]] = {}
    try:
        nodes = sorted(os.listdir(root), key=int)
    except OSError:
        return found
    for node in nodes:
        with open(f"{root}/{node}/properties", encoding="ascii") as file:
            facts = dict(line.split() for line in file if len(line.split()) == 2)
        version = int(facts.get("gfx_target_version", "0"))
        if version:
            major, minor, step = version // 10000, version // 100 % 100, version % 100
            address = int(facts.get("location_id", "0"))
            bus, device, function = address >> 8 & 255, address >> 3 & 31, address & 7
            domain = int(facts.get("domain", "0"))
            found[int(node)] = (
                f"gfx{major}{minor:x}{step:x}",
                f"{domain:04x}:{bus:02x}:{device:02x}.{function}",
            )
    return found


class HipProgram:
    """A function of a loaded module; the module is unloaded with it."""

    __slots__ = ("__weakref__", "function", "interface", "name")

    def __init__(self, name: str, function: Any, unload: Any, module: Any):
        self.name, self.function = name, function
        self.interface: Interface | None = None
        weakref.finalize(self, unload, module).atexit = False


class HipRuntime(Runtime):
    """GPU number `device`, through `library`."""

    kind = "AMD"

    def __init__(self, library: Any, device: int = 0):
        self._library, self._device = library, device
        self._process = os.getpid()
        self._call("hipInit", 0)
        count = ctypes.c_int()
        self._call("hipGetDeviceCount", ctypes.byref(count))
        if device >= count.value:
            raise DeviceError(f"{self.kind}: there is no GPU number {device}", found=count.value)
        self._call("hipSetDevice", device)
        self._stream = ctypes.c_void_p()
        self._call("hipStreamCreate", ctypes.byref(self._stream))
        self._unused: list[ctypes.c_void_p] = []
        self._watchdog = Watchdog(self.kind, self._mark, self._has_passed, self._unused.append)

    def _call(self, name: str, *arguments: Any) -> None:
        """Raises OutOfMemoryError, or DeviceError with the library's text."""
        if os.getpid() != self._process:
            raise DeviceError(
                f"{self.kind}: the GPU was opened before this process was forked",
                remedy="start the process anew (multiprocessing: spawn), or fork before",
            )
        self._check(name, getattr(self._library, name)(*arguments))

    def _check(self, name: str, code: int) -> None:
        if code == _OUT_OF_MEMORY:
            raise OutOfMemoryError(
                f"{self.kind}: {name}: the device has no room",
                remedy="free tensors that are no longer needed, or use smaller batches",
            )
        if code:
            text = self._library.hipGetErrorString(code) or b"unknown"
            details = {}
            if code in _LOST:
                details = {
                    "rule": "the device's memory is lost for this process",
                    "remedy": "start the process anew; AMD_LOG_LEVEL=3 shows the library's calls",
                }
            raise DeviceError(f"{self.kind}: {name}: {text.decode()}", code=code, **details)

    def _mark(self) -> ctypes.c_void_p:
        """An event behind all work of the stream."""
        if self._unused:
            event = self._unused.pop()
        else:
            event = ctypes.c_void_p()
            self._call("hipEventCreateWithFlags", ctypes.byref(event), _UNTIMED)
        self._call("hipEventRecord", event, self._stream)
        return event

    def _has_passed(self, event: ctypes.c_void_p) -> bool:
        code = self._library.hipEventQuery(event)
        if code != _NOT_READY:
            self._check("hipEventQuery", code)
        return bool(code != _NOT_READY)

    def allocate(self, nbytes: int) -> int:
        self._call("hipSetDevice", self._device)
        address = ctypes.c_void_p()
        try:
            self._call("hipMalloc", ctypes.byref(address), nbytes)
        except OutOfMemoryError as error:
            raise MemoryError(nbytes) from error
        if not address.value:
            raise MemoryError(nbytes)
        return address.value

    def free(self, handle: int, nbytes: int) -> None:
        # In a forked process the GPU is gone; a kernel that does not end may still write.
        if os.getpid() != self._process or self._watchdog.is_hung:
            return
        self._settle()
        self._call("hipFree", handle)

    def copy_in(self, handle: int, data: memoryview) -> None:
        source = data if data.contiguous else memoryview(bytes(data))
        self._settle()
        self._call("hipMemcpy", handle, address_of(source), source.nbytes, _TO_DEVICE)

    def copy_out(self, data: memoryview, handle: int) -> None:
        self._settle()
        self._call("hipMemcpy", address_of(data), handle, data.nbytes, _TO_HOST)

    def view(self, handle: int, offset: int, nbytes: int) -> int:
        return handle + offset

    def transfer(self, target: Any, source: Any, source_runtime: Runtime, nbytes: int) -> bool:
        if not isinstance(source_runtime, HipRuntime):
            return False
        source_runtime._settle()
        self._settle()
        self._call("hipMemcpy", target, source, nbytes, _ON_DEVICE)
        # It may return before the bytes are there.
        self._watchdog.launched("a copy")
        return True

    def load(self, name: str, binary: bytes) -> HipProgram:
        self._call("hipSetDevice", self._device)
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.with_room(lambda: self._call("hipModuleLoadData", ctypes.byref(module), binary))
        try:
            self._call("hipModuleGetFunction", ctypes.byref(function), module, name.encode())
        except TilegradError:
            self._library.hipModuleUnload(module)
            raise
        return HipProgram(name, function, self._library.hipModuleUnload, module)

    def launch(
        self,
        program: HipProgram,
        handles: Sequence[int],
        variables: Sequence[int],
        global_size: Dims,
        local_size: Dims,
        wait: bool = False,
    ) -> float | None:
        words = struct.pack(
            f"<{len(handles) + len(variables)}q",
            *(handle - (handle >> 63 << 64) for handle in handles),
            *variables,
        )
        block = ctypes.create_string_buffer(words, len(words))
        size = ctypes.c_size_t(len(words))
        extra = (ctypes.c_void_p * 5)(
            _BLOCK, ctypes.addressof(block), _BLOCK_BYTES, ctypes.addressof(size), _END
        )
        return self._launch(program, (*global_size, *local_size), None, extra, wait)

    def _launch(
        self, program: HipProgram, sizes: Dims, parameters: Any, extra: Any, wait: bool
    ) -> float | None:
        began = time.perf_counter()
        self._call("hipSetDevice", self._device)
        arguments = (program.function, *sizes, 0, self._stream, parameters, extra)
        try:
            self.with_room(lambda: self._call("hipModuleLaunchKernel", *arguments))
        except DeviceError as error:
            # An earlier launch may be why a device is lost.
            is_lost = error.details.get("code") in _LOST
            raise DeviceError(
                f"{program.name}: {error.headline}",
                blocks=sizes[:3],
                lanes=sizes[3:],
                **(self._watchdog.suspects() if is_lost else {}),
                **error.details,
            ) from None
        self._watchdog.launched(program.name)
        if not wait:
            return None
        event = self._mark()
        self._watchdog.wait_for(event)
        self._unused.append(event)
        return time.perf_counter() - began

    def synchronize(self) -> None:
        self._call("hipSetDevice", self._device)
        self.waited(self._watchdog.wait())

    def _settle(self) -> None:
        """Wait for the launches, if there were any: a copy would wait without being watched."""
        self._call("hipSetDevice", self._device)
        if not self._watchdog.is_idle:
            self.synchronize()


class HipSourceRuntime(HipRuntime):
    """As `HipRuntime`, of kernels that a C++ compiler made: their first line says what they take,
    and each argument is passed by its address.
    """

    kind = "HIP"

    def load(self, name: str, binary: bytes) -> HipProgram:
        head, _, code = binary.partition(b"\n")
        program = super().load(name, code)
        program.interface = Interface.read(head.decode())
        return program

    def launch(
        self,
        program: HipProgram,
        handles: Sequence[int],
        variables: Sequence[int],
        global_size: Dims,
        local_size: Dims,
        wait: bool = False,
    ) -> float | None:
        assert program.interface is not None
        _, slots, codes, _ = program.interface
        words = [struct.pack("<Q", handles[slot]) for slot in slots]
        words += [struct.pack(code, value) for code, value in zip(codes, variables, strict=True)]
        # The library copies them before it returns.
        buffers = [ctypes.create_string_buffer(word, len(word)) for word in words]
        pointers = (ctypes.c_void_p * max(len(buffers), 1))(*map(ctypes.addressof, buffers))
        return self._launch(program, (*global_size, *local_size), pointers, None, wait)
