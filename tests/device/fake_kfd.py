"""A driver of AMD's GPUs and a GPU, for tests: memory is this process's, and what is in the ring
runs as the kernels' LLVM text on this processor.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import re
import struct
from dataclasses import replace
from typing import Any

from tests.device.amd_on_cpu import BlockRuntime, compiled_on_cpu
from tilegrad.device import amd
from tilegrad.device.backend import Backend
from tilegrad.hardware import amd_target
from tilegrad.runtime.code_object import loaded_symbols
from tilegrad.runtime.kfd import REQUESTS, KfdRuntime, Node
from tilegrad.runtime.pm4 import command_processor_of
from tilegrad.runtime.protocol import Dims

__all__ = ["NODE", "CommandProcessor", "Gpu", "device_over"]

NODE = Node(gpu_id=0x1234, render_minor=128, saved_bytes=0x8000, control_bytes=0x1000)


class Gpu:
    """A driver and a GPU: memory is host memory, and a store to the doorbell runs what is in the
    ring up to there.
    """

    def __init__(self, room: int = 64 << 20):
        self.room = room
        self.opened: list[str] = []
        self.log: list[tuple[str, tuple[int, ...]]] = []
        self.blocks: dict[int, int] = {}
        self.mapped: set[int] = set()
        self.memory: list[Any] = []
        self.texts: dict[bytes, tuple[str, str]] = {}
        self.loaded: dict[str, Any] = {}
        self.packets: list[bytes] = []
        self.is_stuck = False
        self.queue: tuple[int, ...] = ()
        self.read = 0

    def open(self, path: str) -> int:
        self.opened.append(path)
        return 10 + len(self.opened)

    def reserve(self, nbytes: int) -> int:
        self.memory.append(mmap.mmap(-1, nbytes))
        return ctypes.addressof(ctypes.c_char.from_buffer(self.memory[-1]))

    def map(self, address: int, nbytes: int, file: int, offset: int) -> int:
        if address:
            assert file == 12 and offset == self.blocks[address]
            return address
        assert file == 11 and offset == 0xC000_0000_0000_0000
        self.doorbell = self.reserve(nbytes)
        return self.doorbell

    def ioctl(self, file: int, request: int, data: bytearray) -> None:
        name, layout = next(
            (name, layout)
            for name, (number, _, layout) in REQUESTS.items()
            if number == request & 0xFF
        )
        values = list(layout.unpack(data))
        self.log.append((name, tuple(values)))
        if name == "ALLOC_MEMORY_OF_GPU":
            if values[1] > self.room:
                raise OSError(errno.ENOMEM, "Cannot allocate memory")
            self.room -= values[1]
            values[2:4] = len(self.blocks) + 1, values[0] ^ 0xFFF000
            self.blocks[values[0]] = values[3]
        elif name == "MAP_MEMORY_TO_GPU":
            (gpu,) = struct.unpack("<I", ctypes.string_at(values[1], 4))
            assert gpu == NODE.gpu_id and values[2] == 1
            self.mapped.add(values[0])
        elif name == "UNMAP_MEMORY_FROM_GPU":
            self.mapped.remove(values[0])
        elif name == "FREE_MEMORY_OF_GPU":
            assert values[0] not in self.mapped
        elif name == "CREATE_QUEUE":
            self.queue = tuple(values)
            values[3], values[9] = 0xC000_0000_0000_0010, 1
        data[:] = layout.pack(*values)

    def ring(self, address: int, value: int) -> None:
        """The doorbell lies at the offset within its pages that the driver gave."""
        assert address == self.doorbell + 0x10
        written = ctypes.c_uint64.from_address(self.queue[1]).value
        assert written == value + 1
        if self.is_stuck:
            return
        while self.read <= value:
            place = self.queue[0] + self.read * 64 % self.queue[4]
            packet = ctypes.string_at(place, 64)
            ctypes.memset(place, 1, 1)
            self.run(packet)
            self.read += 1
            ctypes.c_uint64.from_address(self.queue[2]).value = self.read

    def run(self, packet: bytes) -> None:
        self.packets.append(packet)
        header, _, *rest = struct.unpack("<2H3HH3I2I3QQ", packet)
        try:
            if header & 0xFF:
                assert header & 0xFF == 2
                local, sizes, descriptor = rest[:3], rest[4:7], rest[9]
                entry = descriptor + struct.unpack("<q", ctypes.string_at(descriptor + 16, 8))[0]
                blocks = tuple(size // lanes for size, lanes in zip(sizes, local, strict=True))
                self.compute(entry, rest[10], blocks, tuple(local))
            else:
                self.run_own_kind(packet)
        finally:
            signal = ctypes.c_int64.from_address(rest[12] + 8)
            signal.value -= 1

    def run_own_kind(self, packet: bytes) -> None:
        """A packet of the vendor's own kind."""
        raise AssertionError(f"no packet of the specification: {packet.hex()}")

    def compute(self, entry: int, arguments: int, blocks: Dims, lanes: Dims) -> None:
        """Run the kernel whose code is at an address."""
        called, text = self.texts[ctypes.string_at(entry, 64)]
        (found,) = re.findall(r"define amdgpu_kernel void @\w+\((.*)\) #0", text)
        count = len([each for each in found.split(", ") if each])
        host = BlockRuntime()
        if text not in self.loaded:
            waits = b"waits" if "s.barrier" in text else b""
            self.loaded[text] = host.load(called, waits + b"\0" + compiled_on_cpu(text))
        words = struct.unpack(f"<{count}q", ctypes.string_at(arguments, 8 * count))
        host.launch(self.loaded[text], words, (), blocks, lanes)

    def names(self) -> list[str]:
        return [name for name, _ in self.log]


# Registers that begin a group, by their number in gc_9_4_2_offset.h and 0x2000, or that in
# gc_10_1_0_offset.h, gc_10_3_0_offset.h and gc_11_0_0_offset.h and 0x1260 (navi10_ip_offset.h).
NAMES = {
    0x2E04: "START_X", 0x2E07: "NUM_THREAD_X", 0x2E0C: "PGM_LO", 0x2E12: "PGM_RSRC1",
    0x2E15: "RESOURCE_LIMITS", 0x2E18: "TMPRING_SIZE", 0x2E40: "USER_DATA_0",
}  # fmt: skip
NAMES_OF = {"gfx9": NAMES | {0x2E2D: "PGM_RSRC3"}, "gfx1": NAMES | {0x2E28: "PGM_RSRC3"}}
# What an ACQUIRE_MEM empties at least: TCL1 and the scalar cache; GLK, GLV and GL1.
EMPTIED = {"gfx9": 0x08400000, "gfx1": 0x380}


class CommandProcessor(Gpu):
    """As `Gpu`, of an architecture: it reads PM4 as Linux has it (soc15d.h and gc_9_4_2_offset.h;
    nvd.h and gc_11_0_0_offset.h). A launch begins whenever it likes: all that nothing waits for run
    in the wrong order, and what a launch reads of the one before it is seen behind an ACQUIRE_MEM
    only.
    """

    def __init__(self, arch: str = "gfx90a") -> None:
        super().__init__()
        self.arch, self.family = arch, arch[:4]
        self.registers: dict[str, list[int]] = {}
        self.begun: list[tuple[int, int, Dims, Dims]] = []
        self.is_seen = True
        self.jumps: list[list[int]] = []

    def run_own_kind(self, packet: bytes) -> None:
        header, kind, opcode, low, high, size, rest = struct.unpack_from("<2H5I", packet)
        assert (header, kind, rest) == (0x1500, 1, 10) and packet[24:56] == bytes(32)
        assert opcode == 0xC0023F00 and size >> 23 == 1 and low % 4 == 0
        count = size & 0xFFFFF
        data = ctypes.string_at(high << 32 | low, 4 * count)
        self.jumps.append([*struct.unpack(f"<{count}I", data)])
        words = iter(self.jumps[-1])
        for word in words:
            assert word >> 30 == 3
            self.take(word >> 8 & 0xFF, [next(words) for _ in range((word >> 16 & 0x3FFF) + 1)])
        assert not self.begun and self.is_seen, "nothing waits for the last launch"

    def take(self, opcode: int, words: list[int]) -> None:
        if opcode == 0x76:  # SET_SH_REG
            self.registers[NAMES_OF[self.family][words[0] + 0x2C00]] = words[1:]
        elif opcode == 0x15:  # DISPATCH_DIRECT, of warps of 32 lanes from gfx10 on
            assert words[3] == (0b101 if self.family == "gfx9" else 0x8005)
            assert self.registers["START_X"] == [0, 0, 0]
            assert self.registers["TMPRING_SIZE"] == self.registers["RESOURCE_LIMITS"] == [0]
            low, high = self.registers["PGM_LO"]
            data = self.registers["USER_DATA_0"]
            first, second = self.registers["PGM_RSRC1"]
            # As many scalars as the kernel expects, the address of its arguments last. LLVM pads
            # those of gfx11, and three positions, to 16 (its feature UserSGPRInit16Bug).
            assert len(data) == (2 if self.arch.startswith("gfx11") else second >> 1 & 31)
            assert len(data) <= second >> 1 & 31
            # gfx90a and gfx11 have bits there.
            assert first and (self.registers["PGM_RSRC3"] != [0] or self.arch.startswith("gfx10"))
            lanes = tuple(self.registers["NUM_THREAD_X"])
            self.begun.append(
                ((high << 32 | low) << 8, data[-1] << 32 | data[-2], tuple(words[:3]), lanes)
            )
            assert self.is_seen, "caches have what was there before the last launch"
        elif opcode == 0x46:  # EVENT_WRITE: CS_PARTIAL_FLUSH
            assert words == [0x407]
            self.is_seen = self.is_seen and not self.begun
            while self.begun:
                self.compute(*self.begun.pop())
        else:  # ACQUIRE_MEM
            caches = words.pop(0) if self.family == "gfx9" else words.pop()
            ahead = [] if self.family == "gfx9" else [0]
            assert opcode == 0x58 and words == [*ahead, 0xFFFFFFFF, 0xFFFFFF, 0, 0, 10]
            least = EMPTIED[self.family]
            assert caches & least == least and not self.begun
            self.is_seen = True


def device_over(
    gpu: Gpu, name: str = "FAKEKFD", arch: str = "gfx942", has_pm4: bool = False
) -> Backend:
    processor = command_processor_of(arch) if has_pm4 else None
    described = amd.backend(f"AMD:{arch}", KfdRuntime(NODE, gpu, processor))
    target = replace(amd_target(arch), matrix_units=())

    def compile_source(text: str) -> bytes:
        binary = described.compile(text)
        image, symbols = loaded_symbols(binary)
        kernel = next(each for each in symbols if not each.endswith(".kd"))
        gpu.texts[image[symbols[kernel] : symbols[kernel] + 64]] = kernel, text
        return binary

    return replace(
        described, name=name, target=target, compile=compile_source, compiler=str(id(gpu)),
        _allocators=[],
    )  # fmt: skip
