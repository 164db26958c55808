"""Where a kernel's arrays lie in shared memory of NVIDIA's, and whether its launch asks for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tilegrad.base.dtype import AddressSpace, Pointer
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import memory_of
from tilegrad.ir.uop import UOp

__all__ = ["SWIZZLED", "SharedLayout", "shared_layout", "swizzled"]

# Bytes of a group of rows that are swizzled among themselves (PTX ISA, "Swizzling Modes": patterns
# of 128-byte swizzling repeat after 1024 bytes).
SWIZZLED = 1024
# Bytes of shared memory that a kernel has without asking (CUDA C++ Programming Guide, table of
# technical specifications per compute capability, and "Shared Memory" of each).
_UNASKED = 48 << 10
# Bytes that arrays begin at a multiple of: those of one access.
_VECTOR = 16


@dataclass(frozen=True)
class SharedLayout:
    """Where arrays of shared memory begin, those with swizzled rows at a multiple of 8 rows of 128
    bytes, and how many bytes all take. `is_asked` says that a launch must ask for them.
    """

    starts: Mapping[UOp, int]
    nbytes: int
    is_asked: bool


def swizzled(program: Iterable[UOp]) -> set[UOp]:
    """The arrays that a matrix unit reads by itself."""
    return {memory_of(node.src[1]) for node in program if node.op is Ops.DESCRIPTOR}


def shared_layout(program: Sequence[UOp]) -> SharedLayout:
    """The arrays of a program in shared memory: those with swizzled rows first, so that nothing is
    left between them.
    """
    rows = swizzled(program)
    arrays = [node for node in program if node.op is Ops.DEFINE_LOCAL and _is_shared(node)]
    starts: dict[UOp, int] = {}
    end = 0
    for node in sorted(arrays, key=lambda each: each not in rows):
        alignment = SWIZZLED if node in rows else _VECTOR
        starts[node] = -(-end // alignment) * alignment
        pointer = node.dtype
        assert isinstance(pointer, Pointer)
        end = starts[node] + pointer.size * pointer.base.nbytes
    # The memory of units that add in a memory of their own is declared beside these arrays.
    has_more = any(node.op is Ops.WMMA and node.arg.columns for node in program)
    is_asked = end + SWIZZLED * has_more > _UNASKED
    return SharedLayout(starts, end + SWIZZLED * (is_asked and bool(rows)), is_asked)


def _is_shared(node: UOp) -> bool:
    return isinstance(node.dtype, Pointer) and node.dtype.space is AddressSpace.SHARED
