"""What a piece of hardware can do, as data. Stages read a `Target`, never a device's name.

A matrix unit is data too: its shape, its dtypes, and for each operand which element each lane holds, so that one Opt
and one emulator serve `mma`, `simdgroup` and their kin.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilegrad.base.dtype import DType
from tilegrad.ir.op import Ops

__all__ = ["MatrixUnit", "Target"]

Position = tuple[int, int]


@dataclass(frozen=True)
class MatrixUnit:
    """A matrix multiply `c[m,n] += a[m,k] @ b[k,n]` done by `lanes` lanes together.

    `a_layout[lane][i]` is the (row, column) of element i that this lane holds of a (M x K), and so for b (K x N) and
    c (M x N). `synchronous` is False for units whose result must be waited for.
    """

    name: str
    m: int
    n: int
    k: int
    lanes: int
    dtype_in: DType
    dtype_out: DType
    a_layout: tuple[tuple[Position, ...], ...] = field(repr=False)
    b_layout: tuple[tuple[Position, ...], ...] = field(repr=False)
    c_layout: tuple[tuple[Position, ...], ...] = field(repr=False)
    synchronous: bool = True


@dataclass(frozen=True)
class Target:
    """Facts about hardware.

    Attributes:
        name: what messages and cache keys call it.
        vector_bytes: bytes of one vector register; 0 where arithmetic is scalar.
        memory_lanes: elements that one load or store may move at most, for targets with scalar arithmetic.
        registers: vector registers.
        shared_bytes: shared memory of a block; 0 where there are no blocks.
        has_locals: whether a launch has blocks of lanes.
        block_lanes: lanes of a block at most.
        threads: work items that run at once where a launch is split into chunks; 0 where it is not.
        cache_bytes: sizes of the caches from the nearest outward; the last is shared.
        has_mask: whether vector loads and stores take a gate per lane.
        has_fma: whether MULACC is one instruction, rounded once.
        matrix_units: the units that TC may use.
        missing: ops that lower.decompose must replace.
        missing_dtypes: dtypes that values cannot have in registers.
        isa: names of instruction set extensions or the architecture, for the compiler.
    """

    name: str
    vector_bytes: int = 0
    memory_lanes: int = 1
    registers: int = 16
    shared_bytes: int = 0
    has_locals: bool = False
    block_lanes: int = 1
    threads: int = 0
    cache_bytes: tuple[int, ...] = (32 << 10, 1 << 20, 16 << 20)
    has_mask: bool = False
    has_fma: bool = True
    matrix_units: tuple[MatrixUnit, ...] = ()
    missing: frozenset[Ops] = frozenset()
    missing_dtypes: frozenset[DType] = frozenset()
    isa: str = ""

    def lanes_of(self, dtype: DType) -> int:
        """How many elements of `dtype` one vector holds; 1 on a scalar target."""
        if self.vector_bytes:
            return max(1, self.vector_bytes // max(dtype.itemsize, 1))
        return self.memory_lanes

    @property
    def has_vectors(self) -> bool:
        """Whether arithmetic works on whole vectors."""
        return self.vector_bytes > 0

    def supports(self, dtype: DType) -> bool:
        return dtype.scalar not in self.missing_dtypes


