"""PM4, the packets of the command processor of AMD's GPUs, as far as launches need them.

A packet of type 3 is a header (opcode, words behind it less one) and its words. A launch writes the
registers of the compute unit's dispatcher, each group of neighbours by one SET_SH_REG, and begins
by DISPATCH_DIRECT. Launches do not wait for each other: between two of them an EVENT_WRITE waits
for all lanes, and an ACQUIRE_MEM empties the caches that would still have what was there before.
Such packets lie anywhere in memory, as an indirect buffer; a packet of the queue jumps to it and
counts the signal down behind its end.

Where it is written: opcodes, headers and fields in Linux, drivers/gpu/drm/amd/amdgpu/soc15d.h, and
nvd.h for gfx10 and gfx11; registers in .../include/asic_reg/gc (gc_9_4_2_offset.h,
gc_10_1_0_offset.h, gc_10_3_0_offset.h, gc_11_0_0_offset.h); a launch as such packets in
gfx_v9_4_2.c (gfx_v9_4_2_run_shader), an ACQUIRE_MEM of all memory in gfx_v9_0.c, gfx_v10_0.c and
gfx_v11_0.c (emit_mem_sync); the packet of the queue in AMD's ROCR-Runtime, AqlQueue::ExecutePM4;
what a kernel asks for in LLVM's "User Guide for AMDGPU Backend", sections "Kernel Descriptor" and
"Initial Kernel Execution State".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tilegrad.runtime.protocol import Dims

__all__ = [
    "MOST_WORDS", "CommandProcessor", "KernelDescriptor", "command_processor_of", "jump_packet",
    "launch_words", "wait_words",
]  # fmt: skip

# Architectures of gfx9 of one die. The dies of gfx942 share a launch, which its queue arranges and
# nothing published says how.
_OF_ONE_DIE = frozenset({"gfx900", "gfx906", "gfx908", "gfx90a"})

_DISPATCH_DIRECT, _INDIRECT_BUFFER, _EVENT_WRITE = 0x15, 0x3F, 0x46
_ACQUIRE_MEM, _SET_SH_REG = 0x58, 0x76
# Numbers of registers, from the first one that SET_SH_REG writes, 0x2C00.
_START_X, _THREADS_X, _PROGRAM, _RESOURCES_1 = 0x204, 0x207, 0x20C, 0x212
_LIMITS, _SCRATCH, _USER_DATA = 0x215, 0x218, 0x240
# DISPATCH_DIRECT: a compute shader, whose blocks are counted from 0; of warps of 32 lanes.
_INITIATOR, _OF_32_LANES = 1 << 0 | 1 << 2, 1 << 15
# All lanes have ended: event 7, CS_PARTIAL_FLUSH, of the kind 4.
_LANES_ENDED = 7 | 4 << 8
_ALL_BYTES, _ALL_BYTES_HIGH, _POLL = 0xFFFFFFFF, 0xFFFFFF, 10
_VALID = 1 << 23
MOST_WORDS = (1 << 20) - 1
"""Words that a jump counts."""

_DESCRIPTOR = struct.Struct("<3I4xq20x3IHHI")
_BUFFER_OF_SCRATCH, _ARGUMENTS, _HAS_32_LANES = 1 << 0, 1 << 3, 1 << 10
# Shared memory in the second word of resources: in units of 128 words, from bit 15 on.
_SHARED_UNIT, _SHARED_BIT = 512, 15
# A queue's packet of AMD's own kind, that waits for the one before it and whose memory all agents
# see before and after; its format; the words behind its four.
_VENDOR_HEADER, _JUMP_FORMAT, _REST = 1 << 8 | 2 << 9 | 2 << 11, 1, 10
_JUMP = struct.Struct("<2H4II32xQ")


@dataclass(frozen=True)
class CommandProcessor:
    """Facts that differ between the command processors of architectures.

    Attributes:
        resources_3: the number of the register for a kernel's third word of resources.
        of_lanes: bits of the caches that would have what was there before a launch: those of lanes.
            The second-level cache is right for all of one GPU.
        of_all: with these, instructions, and that cache: what it has is written to memory, then
            forgotten.
        has_own_word: whether these bits are the last word of an ACQUIRE_MEM, and not the first.
    """

    resources_3: int
    of_lanes: int
    of_all: int
    has_own_word: bool


def _bits(*numbers: int) -> int:
    return sum(1 << number for number in numbers)


# TCL1 and the scalar cache; instructions, and TC written back and emptied.
_GFX9 = CommandProcessor(0x22D, _bits(22, 27), _bits(18, 22, 23, 27, 29), has_own_word=False)
# GLK, GLV and GL1; all instructions, GLM and GL2 written back and emptied.
_GFX10 = CommandProcessor(0x228, _bits(7, 8, 9), _bits(0, 4, 5, 7, 8, 9, 14, 15), has_own_word=True)


def command_processor_of(arch: str) -> CommandProcessor | None:
    """The command processor of a GPU, if launches can be written for it."""
    if arch in _OF_ONE_DIE:
        return _GFX9
    return _GFX10 if arch.startswith(("gfx10", "gfx11")) else None


@dataclass(frozen=True)
class KernelDescriptor:
    """Contents of the 64 bytes beside a kernel's code.

    Attributes:
        entry: bytes from the descriptor to the code.
        resources: the three words that registers hold.
        has_scratch_words: whether the first four words of a lane's scalars describe scratch memory.
        is_plain: whether its other scalars are the address of the arguments and positions only.
        has_32_lanes: whether its warps have 32 lanes, and not 64.
    """

    entry: int
    resources: tuple[int, int, int]
    has_scratch_words: bool
    is_plain: bool
    has_32_lanes: bool = False

    @staticmethod
    def read(data: bytes) -> KernelDescriptor:
        """The descriptor at the beginning of `data`."""
        _, scratch, _, entry, third, first, second, asked, preload, _ = _DESCRIPTOR.unpack(
            data[: _DESCRIPTOR.size]
        )
        is_plain = not scratch and not preload
        is_plain = is_plain and asked & ~(_BUFFER_OF_SCRATCH | _HAS_32_LANES) == _ARGUMENTS
        has_scratch_words, has_32_lanes = asked & _BUFFER_OF_SCRATCH, asked & _HAS_32_LANES
        words = (first, second, third)
        return KernelDescriptor(entry, words, bool(has_scratch_words), is_plain, bool(has_32_lanes))


def _packet(opcode: int, *words: int) -> list[int]:
    return [3 << 30 | (len(words) - 1) << 16 | opcode << 8, *words]


def _registers(first: int, *values: int) -> list[int]:
    return _packet(_SET_SH_REG, first, *values)


def _halves(address: int) -> tuple[int, int]:
    return address & 0xFFFFFFFF, address >> 32


def launch_words(
    processor: CommandProcessor,
    kernel: KernelDescriptor,
    code: int,
    shared: int,
    arguments: int,
    blocks: Dims,
    lanes: Dims,
) -> list[int]:
    """The packets of one launch: addresses of code, which lies at 256 bytes, and of arguments;
    bytes of shared memory; blocks, and lanes of each.
    """
    first, second, third = kernel.resources
    second |= -(-shared // _SHARED_UNIT) << _SHARED_BIT
    scratch = (0, 0, 0, 0) if kernel.has_scratch_words else ()
    initiator = _INITIATOR | (_OF_32_LANES if kernel.has_32_lanes else 0)
    return [
        *_registers(_PROGRAM, *_halves(code >> 8)),
        *_registers(_RESOURCES_1, first, second),
        *_registers(processor.resources_3, third),
        *_registers(_SCRATCH, 0),
        *_registers(_LIMITS, 0),
        *_registers(_START_X, 0, 0, 0),
        *_registers(_THREADS_X, *lanes),
        *_registers(_USER_DATA, *scratch, *_halves(arguments)),
        *_packet(_DISPATCH_DIRECT, *blocks, initiator),
    ]


def wait_words(processor: CommandProcessor, is_end: bool) -> list[int]:
    """Words that wait for the launches before them, and let those behind see their writes; at the
    beginning and the end of an indirect buffer (`is_end`), everyone.
    """
    caches = processor.of_all if is_end else processor.of_lanes
    bytes_ = (_ALL_BYTES, _ALL_BYTES_HIGH, 0, 0, _POLL)
    words = (0, *bytes_, caches) if processor.has_own_word else (caches, *bytes_)
    return [*_packet(_EVENT_WRITE, _LANES_ENDED), *_packet(_ACQUIRE_MEM, *words)]


def jump_packet(address: int, words: int, signal: int) -> bytes:
    """The packet of a queue that runs an indirect buffer of `words` words."""
    jump = _packet(_INDIRECT_BUFFER, *_halves(address), words | _VALID)
    return _JUMP.pack(_VENDOR_HEADER, _JUMP_FORMAT, *jump, _REST, signal)
