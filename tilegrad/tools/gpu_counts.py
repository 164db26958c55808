"""Counts of the emulator for a GPU kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["SECTOR", "WARP", "Counts"]

# Lanes of a warp, and bytes of a sector (CUDA C++ Programming Guide, device memory accesses).
WARP, SECTOR = 32, 32


@dataclass
class Counts:
    """Counts of the watched blocks.

    Attributes:
        blocks: how many were run, of how many that the launch has.
        requests, sectors: of global memory, and what they moved.
        used_bytes: of those sectors, the bytes that a lane asked for.
        touched_bytes: distinct bytes of global memory, which no kernel can do without.
        buffer_bytes: of all buffers of the kernel; 0 where that is not known.
        shared_requests, conflicts: of shared memory, and the times that banks made a warp wait.
        instructions: per lane, by kind, where loops have constant extents.
        unit_products: multiply-adds of a warp by one matrix instruction, of operands of 16 bits.
        copies: of a lane from global to shared memory that go on at the same time.
        lanes: of a block.
        grid: blocks along each axis of the launch, the fastest first.
        strips: of each memory, the axes of the grid that its accesses depend on, and the distinct
            bytes that a block touches.
    """

    blocks: tuple[int, int]
    requests: int = 0
    sectors: int = 0
    used_bytes: int = 0
    touched_bytes: int = 0
    buffer_bytes: int = 0
    shared_requests: int = 0
    conflicts: int = 0
    instructions: Mapping[str, int] = field(default_factory=dict)
    unit_products: float = 16 * 8 * 16
    copies: int = 0
    lanes: int = 1
    grid: tuple[int, int, int] = (1, 1, 1)
    strips: Mapping[str, tuple[frozenset[int], int]] = field(default_factory=dict)

    @property
    def moved_bytes(self) -> int:
        return self.sectors * SECTOR

    @property
    def sector_use(self) -> float:
        """The share of the moved bytes that lanes asked for."""
        return self.used_bytes / self.moved_bytes if self.sectors else 1.0

    def distinct_bytes(self, together: int) -> int:
        """Bytes that blocks touch when `together` of them run at a time, each byte once for all
        that run at the same time: what reaches the memory where a cache holds no more than that.
        """
        x, y, z = self.grid
        blocks = x * y * z
        total = 0
        for axes, nbytes in self.strips.values():
            for first in range(0, blocks, together):
                wave = range(first, min(first + together, blocks))
                positions = ((at % x, at // x % y, at // x // y) for at in wave)
                total += nbytes * len(
                    {tuple(position[axis] for axis in axes) for position in positions}
                )
        return total
