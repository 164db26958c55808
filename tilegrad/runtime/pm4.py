"""PM4, the packets of the command processor of AMD's GPUs, as far as launches need them.

A packet of type 3 is a header (opcode, words behind it less one) and its words. A launch writes the
registers of the compute unit's dispatcher, each group of neighbours by one SET_SH_REG, and begins
by DISPATCH_DIRECT. Launches do not wait for each other: between two of them an EVENT_WRITE waits
for all lanes, and an ACQUIRE_MEM empties the caches that would still have what was there before.
Such packets lie anywhere in memory, as an indirect buffer; a packet of the queue jumps to it and
counts the signal down behind its end.

Where it is written: opcodes, headers and fields in Linux, drivers/gpu/drm/amd/amdgpu/soc15d.h;
registers in .../include/asic_reg/gc/gc_9_4_2_offset.h; a launch as such packets in gfx_v9_4_2.c
(gfx_v9_4_2_run_shader), an ACQUIRE_MEM of all memory in gfx_v9_0.c (gfx_v9_0_emit_mem_sync); the
packet of the queue in AMD's ROCR-Runtime, AqlQueue::ExecutePM4; what a kernel asks for in LLVM's
"User Guide for AMDGPU Backend", sections "Kernel Descriptor" and "Initial Kernel Execution State".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tilegrad.runtime.protocol import Dims

__all__ = ["MOST_WORDS", "KernelDescriptor", "jump_packet", "knows", "launch_words", "wait_words"]

# Architectures of one die whose registers are those below. The dies of gfx942 share a launch, which
# its queue arranges and nothing published says how; later ones have other registers and caches.
_ARCHITECTURES = frozenset({"gfx900", "gfx906", "gfx908", "gfx90a"})

_DISPATCH_DIRECT, _INDIRECT_BUFFER, _EVENT_WRITE = 0x15, 0x3F, 0x46
_ACQUIRE_MEM, _SET_SH_REG = 0x58, 0x76
# Numbers of registers, from the first one that SET_SH_REG writes, 0x2C00.
_START_X, _THREADS_X, _PROGRAM, _RESOURCES_1 = 0x204, 0x207, 0x20C, 0x212
_LIMITS, _SCRATCH, _RESOURCES_3, _USER_DATA = 0x215, 0x218, 0x22D, 0x240
# DISPATCH_DIRECT: a compute shader, whose blocks are counted from 0.
_INITIATOR = 1 << 0 | 1 << 2
# All lanes have ended: event 7, CS_PARTIAL_FLUSH, of the kind 4.
_LANES_ENDED = 7 | 4 << 8
# Vector and scalar caches: what the second-level cache holds is right for all of one GPU. For
# others, instructions, and that cache: what it has is written to memory, then forgotten.
_OF_LANES = 1 << 22 | 1 << 27
_OF_ALL = _OF_LANES | 1 << 29 | 1 << 18 | 1 << 23
_ALL_BYTES, _ALL_BYTES_HIGH, _POLL = 0xFFFFFFFF, 0xFFFFFF, 10
_VALID = 1 << 23
MOST_WORDS = (1 << 20) - 1
"""Words that a jump counts."""

_DESCRIPTOR = struct.Struct("<3I4xq20x3IHHI")
_BUFFER_OF_SCRATCH, _ARGUMENTS = 1 << 0, 1 << 3
# Shared memory in the second word of resources: in units of 128 words, from bit 15 on.
_SHARED_UNIT, _SHARED_BIT = 512, 15
# A queue's packet of AMD's own kind, that waits for the one before it and whose memory all agents
# see before and after; its format; the words behind its four.
_VENDOR_HEADER, _JUMP_FORMAT, _REST = 1 << 8 | 2 << 9 | 2 << 11, 1, 10
_JUMP = struct.Struct("<2H4II32xQ")


def knows(arch: str) -> bool:
    """Whether launches can be written for a GPU of this architecture."""
    return arch in _ARCHITECTURES


@dataclass(frozen=True)
class KernelDescriptor:
    """Contents of the 64 bytes beside a kernel's code.

    Attributes:
        entry: bytes from the descriptor to the code.
        resources: the three words that registers hold.
        has_scratch_words: whether the first four words of a lane's scalars describe scratch memory.
        is_plain: whether its other scalars are the address of the arguments and positions only.
    """

    entry: int
    resources: tuple[int, int, int]
    has_scratch_words: bool
    is_plain: bool

    @staticmethod
    def read(data: bytes) -> KernelDescriptor:
        """The descriptor at the beginning of `data`."""
        _, scratch, _, entry, third, first, second, asked, preload, _ = _DESCRIPTOR.unpack(
            data[: _DESCRIPTOR.size]
        )
        is_plain = not scratch and not preload
        is_plain = is_plain and asked & ~_BUFFER_OF_SCRATCH == _ARGUMENTS
        return KernelDescriptor(
            entry, (first, second, third), bool(asked & _BUFFER_OF_SCRATCH), is_plain
        )


def _packet(opcode: int, *words: int) -> list[int]:
    return [3 << 30 | (len(words) - 1) << 16 | opcode << 8, *words]


def _registers(first: int, *values: int) -> list[int]:
    return _packet(_SET_SH_REG, first, *values)


def _halves(address: int) -> tuple[int, int]:
    return address & 0xFFFFFFFF, address >> 32


def launch_words(
    kernel: KernelDescriptor, code: int, shared: int, arguments: int, blocks: Dims, lanes: Dims
) -> list[int]:
    """The packets of one launch: addresses of code, which lies at 256 bytes, and of arguments;
    bytes of shared memory; blocks, and lanes of each.
    """
    first, second, third = kernel.resources
    second |= -(-shared // _SHARED_UNIT) << _SHARED_BIT
    scratch = (0, 0, 0, 0) if kernel.has_scratch_words else ()
    return [
        *_registers(_PROGRAM, *_halves(code >> 8)),
        *_registers(_RESOURCES_1, first, second),
        *_registers(_RESOURCES_3, third),
        *_registers(_SCRATCH, 0),
        *_registers(_LIMITS, 0),
        *_registers(_START_X, 0, 0, 0),
        *_registers(_THREADS_X, *lanes),
        *_registers(_USER_DATA, *scratch, *_halves(arguments)),
        *_packet(_DISPATCH_DIRECT, *blocks, _INITIATOR),
    ]


def wait_words(is_end: bool) -> list[int]:
    """Words that wait for the launches before them, and let those behind see their writes; at the
    beginning and the end of an indirect buffer (`is_end`), everyone.
    """
    caches = _OF_ALL if is_end else _OF_LANES
    return [
        *_packet(_EVENT_WRITE, _LANES_ENDED),
        *_packet(_ACQUIRE_MEM, caches, _ALL_BYTES, _ALL_BYTES_HIGH, 0, 0, _POLL),
    ]


def jump_packet(address: int, words: int, signal: int) -> bytes:
    """The packet of a queue that runs an indirect buffer of `words` words."""
    jump = _packet(_INDIRECT_BUFFER, *_halves(address), words | _VALID)
    return _JUMP.pack(_VENDOR_HEADER, _JUMP_FORMAT, *jump, _REST, signal)
