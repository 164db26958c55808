"""AMD's GPUs without a library: the kernel driver's own interface, `/dev/kfd`.

Memory, address space and a queue come from ioctls (`linux/kfd_ioctl.h`); after that, a launch makes
no system call. It is a packet of 64 bytes in a ring, and a store to the doorbell, an address of the
GPU (`runtime.kfd_sequence`: one for all launches of a plan that runs again):

    ring      packets of the Architected Queuing Language ("HSA Platform System Architecture
              Specification" 1.2, section 2.9). The header is written last, as it says that the rest
              is there
    signal    a number in memory that the GPU counts down when a packet is done
    doorbell  is told the number of the last packet

Memory is the GPU's own, visible to the host (a large BAR), so a copy is a copy of bytes.
"""

from __future__ import annotations

import ctypes
import math
import os
import struct
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tilegrad.base.config import config
from tilegrad.base.errors import DeviceError, OutOfMemoryError
from tilegrad.runtime.buffer import address_of
from tilegrad.runtime.code_object import kernel_facts, loaded_symbols
from tilegrad.runtime.kfd_sequence import KfdSequence
from tilegrad.runtime.pm4 import CommandProcessor, KernelDescriptor
from tilegrad.runtime.protocol import Dims, Runtime

__all__ = ["REQUESTS", "KfdProgram", "KfdRuntime", "KfdSystem", "Node", "System", "dispatch_packet"]

# For each ioctl: the number, whether the driver writes too, and the structure (linux/kfd_ioctl.h).
REQUESTS: dict[str, tuple[int, bool, struct.Struct]] = {
    "CREATE_QUEUE": (0x02, True, struct.Struct("<4Q6I3Q2I")),
    "DESTROY_QUEUE": (0x03, True, struct.Struct("<2I")),
    "ACQUIRE_VM": (0x15, False, struct.Struct("<2I")),
    "ALLOC_MEMORY_OF_GPU": (0x16, True, struct.Struct("<4Q2I")),
    "FREE_MEMORY_OF_GPU": (0x17, False, struct.Struct("<Q")),
    "MAP_MEMORY_TO_GPU": (0x18, True, struct.Struct("<2Q2I")),
    "UNMAP_MEMORY_FROM_GPU": (0x19, True, struct.Struct("<2Q2I")),
}
_VRAM, _GTT = 1 << 0, 1 << 1
_WRITABLE, _EXECUTABLE, _PUBLIC, _NO_SUBSTITUTE = 1 << 31, 1 << 30, 1 << 29, 1 << 28
_QUEUE_MEMORY, _COHERENT, _UNCACHED = 1 << 27, 1 << 26, 1 << 25
_OF_GPU = _VRAM | _WRITABLE | _EXECUTABLE | _PUBLIC | _NO_SUBSTITUTE
_OF_HOST = _GTT | _WRITABLE | _EXECUTABLE | _NO_SUBSTITUTE | _COHERENT | _UNCACHED
_AQL_QUEUE, _PERCENTAGE, _PRIORITY = 2, 100, 7
_PAGE = 4096
_TOPOLOGY = "/sys/class/kfd/kfd/topology/nodes"

_PACKET = struct.Struct("<2H3HH3I2I3QQ")
_PACKETS, _ARGUMENT_BYTES = 1024, 1024
# A packet counts the lanes along an axis in 32 bits.
_MOST_LANES = (1 << 32) - 1
# A dispatch that waits for the packet before it, and whose memory all agents see before and after.
_HEADER = 2 | 1 << 8 | 2 << 9 | 2 << 11
_DIMENSIONS = 3
# Where the queue's record (amd_hsa_queue.h) counts packets written and read; a signal's value.
_WRITTEN, _READ, _SIGNAL_VALUE = 56, 128, 8
_SIGNAL = struct.Struct("<2q")
_USER_SIGNAL = 1


@dataclass(frozen=True)
class Node:
    """A GPU in the topology."""

    gpu_id: int
    render_minor: int
    saved_bytes: int
    control_bytes: int

    @staticmethod
    def read(number: int, root: str = _TOPOLOGY) -> Node:
        """The GPU of the node `number`.

        Raises DeviceError for a driver that does not say how large the memory for a queue's state
        is, as those before Linux 6.14.
        """
        with open(f"{root}/{number}/properties", encoding="ascii") as file:
            facts = dict(line.split() for line in file if len(line.split()) == 2)
        with open(f"{root}/{number}/gpu_id", encoding="ascii") as file:
            gpu_id = int(file.read())
        if "cwsr_size" not in facts:
            raise DeviceError(
                "AMD: the kernel's driver does not say how large a queue's state is",
                node=number,
                remedy="use a newer Linux, or ROCm's libamdhip64",
            )
        return Node(
            gpu_id,
            int(facts["drm_render_minor"]),
            int(facts["cwsr_size"]),
            int(facts["ctl_stack_size"]),
        )


class System(Protocol):
    """Calls of the operating system."""

    def open(self, path: str) -> int: ...

    def ioctl(self, file: int, request: int, data: bytearray) -> None: ...

    def reserve(self, nbytes: int) -> int:
        """Addresses that nothing else takes, without memory."""
        ...

    def map(self, address: int, nbytes: int, file: int, offset: int) -> int:
        """Memory of a file at `address`, or anywhere for 0."""
        ...

    def ring(self, address: int, value: int) -> None:
        """Store to a doorbell, after everything that was stored before."""
        ...


class KfdSystem:
    """The one there is, on Linux."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.mmap.restype = ctypes.c_void_p
        self._libc.mmap.argtypes = (
            ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_int64,
        )  # fmt: skip

    def open(self, path: str) -> int:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def ioctl(self, file: int, request: int, data: bytearray) -> None:
        import fcntl

        fcntl.ioctl(file, request, data, True)

    def _mmap(self, address: int, nbytes: int, rights: int, flags: int, file: int, at: int) -> int:
        found = self._libc.mmap(address, nbytes, rights, flags, file, at)
        if found in (None, ctypes.c_void_p(-1).value):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return int(found)

    def reserve(self, nbytes: int) -> int:
        # Private, without a file, and counted nowhere.
        return self._mmap(0, nbytes, 0, 0x4022, -1, 0)

    def map(self, address: int, nbytes: int, file: int, offset: int) -> int:
        return self._mmap(address, nbytes, 3, 0x11 if address else 0x01, file, offset)

    def ring(self, address: int, value: int) -> None:
        # x86-64 keeps the order of stores; ctypes makes this one at once.
        ctypes.c_uint64.from_address(address).value = value


def dispatch_packet(
    global_size: Dims, local_size: Dims, shared: int, descriptor: int, arguments: int, signal: int
) -> bytes:
    """A kernel dispatch: sizes in lanes, addresses of descriptor, arguments and signal."""
    sizes = [blocks * lanes for blocks, lanes in zip(global_size, local_size, strict=True)]
    return _PACKET.pack(
        _HEADER, _DIMENSIONS, *local_size, 0, *sizes, 0, shared, descriptor, arguments, 0, signal
    )


class KfdProgram:
    """A kernel in the GPU's memory, which goes back with it."""

    __slots__ = (
        "__weakref__", "block", "code", "descriptor", "kernel", "lanes", "name", "shared",
    )  # fmt: skip

    def __init__(
        self, name: str, descriptor: int, kernel: KernelDescriptor, facts: dict[str, object]
    ):
        self.name, self.descriptor, self.kernel = name, descriptor, kernel
        self.code = descriptor + kernel.entry
        shared, lanes = facts[".group_segment_fixed_size"], facts[".max_flat_workgroup_size"]
        assert isinstance(shared, int) and isinstance(lanes, int)
        # Bytes of shared memory, and the most lanes of a block.
        self.shared, self.lanes = shared, lanes
        # The lanes of each block, where the kernel is made for these only.
        block = facts.get(".reqd_workgroup_size")
        self.block: Dims | None = tuple(block) if isinstance(block, list) else None


class KfdRuntime(Runtime):
    """A GPU through `system`. A handle is an address, the same for GPU and host; `processor` is its
    command processor, if packets for it are known.
    """

    def __init__(self, node: Node, system: System, processor: CommandProcessor | None = None):
        self._node, self._system, self.processor = node, system, processor
        try:
            self._file = system.open("/dev/kfd")
            self._render = system.open(f"/dev/dri/renderD{node.render_minor}")
        except OSError as error:
            raise DeviceError(
                f"AMD: {error}", remedy="load amdgpu, and join the groups render and video"
            ) from None
        self._blocks: dict[int, tuple[int, int]] = {}  # address -> bytes, the driver's handle
        self._request("ACQUIRE_VM", self._render, node.gpu_id)
        self._ring = self._block(_PACKETS * _PACKET.size, _OF_HOST | _QUEUE_MEMORY)
        self._record = self._block(_PAGE, _OF_HOST)
        self.signal = self._block(_PAGE, _OF_HOST)
        self._arguments = self._block(_PACKETS * _ARGUMENT_BYTES, _OF_HOST)
        ctypes.memset(self._record, 0, _PAGE)
        ctypes.memmove(self.signal, _SIGNAL.pack(_USER_SIGNAL, 0), _SIGNAL.size)
        # A packet of type 1 is none: the GPU stops there.
        ctypes.memmove(self._ring, bytes([1, *bytes(63)]) * _PACKETS, _PACKETS * _PACKET.size)
        self._doorbell = self._make_queue()
        self._count = 0
        # The kernels of the packets that the ring holds.
        self._kernels: deque[str] = deque(maxlen=_PACKETS)

    def _request(self, name: str, *values: int) -> tuple[int, ...]:
        """An ioctl; the structure as the driver left it.

        Raises MemoryError where there is no room, DeviceError for another refusal.
        """
        number, both, layout = REQUESTS[name]
        data = bytearray(layout.pack(*values))
        request = (3 if both else 1) << 30 | layout.size << 16 | ord("K") << 8 | number
        try:
            self._system.ioctl(self._file, request, data)
        except OSError as error:
            if name == "ALLOC_MEMORY_OF_GPU":
                raise MemoryError(name) from None
            raise DeviceError(f"AMD: {name}: {error}", gpu=self._node.gpu_id) from None
        return layout.unpack(data)

    def _block(self, nbytes: int, flags: int) -> int:
        """Memory that GPU and host reach at one address."""
        size = nbytes + -nbytes % _PAGE
        address = self._system.reserve(size)
        gpu = self._node.gpu_id
        _, _, handle, offset, _, _ = self._request(
            "ALLOC_MEMORY_OF_GPU", address, size, 0, 0, gpu, flags
        )
        self._system.map(address, size, self._render, offset)
        devices = (ctypes.c_uint32 * 1)(gpu)
        self._request("MAP_MEMORY_TO_GPU", handle, ctypes.addressof(devices), 1, 0)
        self._blocks[address] = (size, handle)
        return address

    def _give_back(self, address: int) -> None:
        _, handle = self._blocks.pop(address)
        devices = (ctypes.c_uint32 * 1)(self._node.gpu_id)
        self._request("UNMAP_MEMORY_FROM_GPU", handle, ctypes.addressof(devices), 1, 0)
        self._request("FREE_MEMORY_OF_GPU", handle)

    def _make_queue(self) -> int:
        """The address of the doorbell."""
        node = self._node
        end_of_pipe = self._block(_PAGE, _OF_GPU)
        saved = self._block(node.saved_bytes, _OF_HOST)
        found = self._request(
            "CREATE_QUEUE", self._ring, self._record + _WRITTEN, self._record + _READ, 0,
            _PACKETS * _PACKET.size, node.gpu_id, _AQL_QUEUE, _PERCENTAGE, _PRIORITY, 0,
            end_of_pipe, _PAGE, saved, node.saved_bytes, node.control_bytes,
        )  # fmt: skip
        offset = found[3]
        page = self._system.map(0, 2 * _PAGE, self._file, offset & -2 * _PAGE)
        return page + (offset & (2 * _PAGE - 1))

    # memory

    def allocate(self, nbytes: int) -> int:
        return self._block(nbytes, _OF_GPU)

    def free(self, handle: int, nbytes: int) -> None:
        # Memory that a kernel that does not end may still write stays allocated.
        if self._is_hung and self._pending():
            return
        self._drain()
        self._give_back(handle)

    def copy_in(self, handle: int, data: memoryview) -> None:
        source = data if data.contiguous else memoryview(bytes(data))
        self.synchronize()
        ctypes.memmove(handle, address_of(source), source.nbytes)

    def copy_out(self, data: memoryview, handle: int) -> None:
        self.synchronize()
        ctypes.memmove(address_of(data), handle, data.nbytes)

    def view(self, handle: int, offset: int, nbytes: int) -> int:
        return handle + offset

    # programs

    def load(self, name: str, binary: bytes) -> KfdProgram:
        image, symbols = loaded_symbols(binary)
        facts = kernel_facts(binary, name)
        if facts[".private_segment_fixed_size"]:
            raise DeviceError(
                f"{name}: its lanes need scratch memory, which the queue has none of",
                nbytes=facts[".private_segment_fixed_size"],
                remedy="use the device AMD, which launches by libamdhip64",
            )
        base = self.with_room(lambda: self._room_for(name, len(image)))
        ctypes.memmove(base, image, len(image))
        at = symbols[f"{name}.kd"]
        program = KfdProgram(name, base + at, KernelDescriptor.read(image[at:]), facts)
        weakref.finalize(program, self.free, base, len(image)).atexit = False
        return program

    def _room_for(self, name: str, nbytes: int) -> int:
        """Memory for the code of a program."""
        try:
            return self.allocate(nbytes)
        except MemoryError:
            raise OutOfMemoryError(
                f"{name}: {nbytes} bytes of code do not fit on AMD",
                remedy="free tensors that are no longer needed, or use smaller batches",
            ) from None

    def launch(
        self,
        program: KfdProgram,
        handles: Sequence[int],
        variables: Sequence[int],
        global_size: Dims,
        local_size: Dims,
        wait: bool = False,
    ) -> float | None:
        words = struct.pack(f"<{len(handles)}Q{len(variables)}q", *handles, *variables)
        if math.prod(local_size) > program.lanes:
            # The GPU would say nothing, and the queue would stop.
            raise DeviceError(
                f"{program.name}: {math.prod(local_size)} lanes in a block, local size "
                f"{tuple(local_size)}",
                limit=f"{program.lanes} of this kernel",
            )
        widths = [blocks * lanes for blocks, lanes in zip(global_size, local_size)]
        if max(widths) > _MOST_LANES:
            raise DeviceError(
                f"{program.name}: {max(widths)} lanes along an axis, in blocks of "
                f"{tuple(local_size)}",
                limit=f"{_MOST_LANES} in one launch",
                remedy="use smaller batches, or several tensors",
            )
        if len(words) > _ARGUMENT_BYTES:
            raise DeviceError(
                f"{program.name}: {len(words) // 8} arguments", most=_ARGUMENT_BYTES // 8
            )
        self._make_room()
        began = time.perf_counter()
        arguments = self._arguments + self._count % _PACKETS * _ARGUMENT_BYTES
        ctypes.memmove(arguments, words, len(words))
        packet = dispatch_packet(
            global_size, local_size, program.shared, program.descriptor, arguments, self.signal
        )
        self.submit(program.name, packet)
        if not wait:
            return None
        self._drain()
        return time.perf_counter() - began

    def sequence(
        self, launches: Sequence[tuple[Any, int, Dims]], is_small: bool
    ) -> Callable[[Sequence[int]], None] | None:
        if any(program.block is None for program, _, _ in launches):
            return None
        return KfdSequence(self, launches).run

    # the queue

    def _make_room(self) -> None:
        """Wait where every slot of the ring, and of the arguments, was used once."""
        if self._count and self._count % _PACKETS == 0:
            self.synchronize()

    def submit(self, name: str, packet: bytes) -> int:
        """Put a packet of 64 bytes, which counts the signal down, into the ring; the packets so
        far. `name` is that of its kernels.
        """
        self._make_room()
        if not self._pending():
            ctypes.c_int64.from_address(self.signal + _SIGNAL_VALUE).value = 0
            self._base = self._count
        address = self._ring + self._count % _PACKETS * _PACKET.size
        ctypes.memmove(address + 4, packet[4:], _PACKET.size - 4)
        ctypes.memmove(address, packet[:4], 4)
        self._count += 1
        self._kernels.append(name)
        written = ctypes.c_uint64.from_address(self._record + _WRITTEN)
        written.value = self._count
        self._system.ring(self._doorbell, self._count - 1)
        return self._count

    def host_memory(self, nbytes: int) -> int:
        """Memory of the host that the GPU reads, at one address for both."""
        return self._block(nbytes, _OF_HOST)

    def store(self, address: int, data: bytes) -> None:
        """Write to memory that the host sees."""
        ctypes.memmove(address, data, len(data))

    def wait_until(self, count: int) -> None:
        """Wait until the queue has finished that number of packets."""
        if self._count - self._pending() < count:
            self._drain(self._count - count)

    _base = 0
    _is_hung = False

    def _pending(self) -> int:
        """Packets that are not done. The GPU takes one from the signal for each that is."""
        done = -ctypes.c_int64.from_address(self.signal + _SIGNAL_VALUE).value
        return self._count - self._base - done

    def synchronize(self) -> None:
        """Wait for all packets, as `_drain`."""
        if self._pending():
            began = time.perf_counter()
            self._drain()
            self.waited(time.perf_counter() - began)

    def _drain(self, left: int = 0) -> None:
        """Wait for all packets but the last `left`.

        Raises DeviceError where the GPU makes no progress for HANG_SECONDS, and from then on at
        once while that kernel runs.
        """
        pending, since = self._pending(), time.monotonic()
        patience = config.HANG_SECONDS
        while pending > left:
            now = self._pending()
            if now != pending:
                pending, since, self._is_hung = now, time.monotonic(), False
            elif patience and (self._is_hung or time.monotonic() - since > patience):
                self._is_hung = True
                raise DeviceError(
                    f"AMD: {self._kernels[-pending]} has not ended for {patience} s",
                    packets=pending,
                    rule="memory that it may still write to stays allocated",
                    remedy="start the process anew; TILEGRAD_HANG_SECONDS=0 waits for ever",
                )
            else:
                time.sleep(1e-5)
