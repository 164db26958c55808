"""A time from counts: what a kernel takes on a GPU at least, by the limits of its units.

Each limit is a rate of the hardware, from its maker's papers (`RATES`), and a count of
`tools.gpu_report`. A kernel takes the longest of them, and a launch:

    memory    bytes that cross from and to global memory, by its bandwidth: what blocks ask for, but
              no more than all buffers have where the second-level cache holds these, as what one
              block has read another finds there; else what blocks that run together do not share
    cache     what blocks ask for, by the bandwidth of the second-level cache
    latency   the same bytes, where too few are asked for at a time to reach the bandwidth
    issue     instructions of all warps, by the four that a multiprocessor starts in a cycle
    floats    float operations and multiply-adds, by the lanes for them
    functions powers of two by the units for them
    matrix    products on matrix units
    shared    requests to shared memory and waits for its banks, one a cycle

Nothing of it was measured here. Larger buffers are taken to be in that cache only as far as blocks
that run at the same time read them, two on each multiprocessor, and nothing of earlier ones. The
model knows no clock that falls with the power drawn, and no registers: it says what cannot be
beaten, and which limit binds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilegrad.base.errors import ConfigError
from tilegrad.tools.gpu_counts import WARP, Counts

__all__ = ["RATES", "Rates", "Time", "predicted"]


@dataclass(frozen=True)
class Rates:
    """Rates of a GPU in a second, or of a multiprocessor in a cycle.

    Attributes:
        name: the product.
        multiprocessors, clock: how many, and their boost clock in Hz.
        bandwidth: bytes a second from global memory.
        latency: cycles from asking global memory to the answer.
        warps: that a multiprocessor holds.
        issue: instructions of warps that a multiprocessor starts in a cycle.
        floats: lanes of float32.
        functions: lanes of approximated functions (CUDA C++ Programming Guide, "Throughput of
            Native Arithmetic Instructions").
        products: multiply-adds of float16 on matrix units.
        cache: bytes that the second-level cache answers in a cycle (A100's white paper, "A100 L2
            cache"; its maker says nothing of the H100's, for which it is taken too).
        launch: seconds from one kernel's end to the next one's start in a stream.
    """

    name: str
    multiprocessors: int
    clock: float
    bandwidth: float
    latency: int
    warps: int
    issue: int
    floats: int
    products: int
    launch: float = 3e-6
    functions: int = 16
    cache: int = 5120
    cache_bytes: int = 40 << 20


# NVIDIA A100 and H100 Tensor Core GPU Architecture (white papers: tables of the SXM products) for
# counts, clocks, bandwidths and rates; latencies as measured by Jia et al., "Dissecting the NVIDIA
# Volta GPU Architecture via Microbenchmarking", and Luo et al., "Benchmarking and Dissecting the
# Nvidia Hopper GPU Architecture", rounded. B200: 2,250 TFLOP/s of float16 and 7.7 TB/s (NVIDIA HGX
# B200 data sheet), which are 4,096 multiply-adds a cycle of 148 multiprocessors each at 1.86 GHz;
# its maker says nothing of its caches and latencies, for which the H100's are taken.
RATES: Mapping[str, Rates] = {
    "sm_80": Rates("A100 SXM 40 GB", 108, 1.41e9, 1.555e12, 470, 64, 4, 64, 1024),
    "sm_90": Rates("H100 SXM", 132, 1.755e9, 3.35e12, 480, 64, 4, 128, 2048, cache_bytes=50 << 20),
    "sm_100": Rates("B200", 148, 1.86e9, 7.7e12, 480, 64, 4, 128, 4096, cache_bytes=50 << 20),
}
# Loads of a lane that wait at the same time, where its program has that many one after the other.
_IN_FLIGHT = 4
# Blocks that a multiprocessor runs at the same time, of kernels whose blocks share what they read.
_RESIDENT = 2


@dataclass(frozen=True)
class Time:
    """Seconds by limit, and of the launch."""

    limits: Mapping[str, float]
    launch: float

    @property
    def binds(self) -> str:
        """The limit that takes longest."""
        return max(self.limits, key=lambda name: self.limits[name])

    @property
    def seconds(self) -> float:
        return self.launch + self.limits[self.binds]

    def __str__(self) -> str:
        others = sorted(self.limits.items(), key=lambda each: -each[1])
        rows = ", ".join(f"{name} {seconds * 1e6:.1f}" for name, seconds in others if seconds)
        return f"{self.seconds * 1e6:.1f} us at least, {self.binds} binds: {rows}"


def predicted(counts: Counts, arch: str) -> Time:
    """The time of a whole launch, from the counts of some of its blocks.

    Raises ConfigError for an architecture without rates.
    """
    rates = RATES.get(arch.rstrip("af"))
    if rates is None:
        known = ", ".join(RATES)
        raise ConfigError(f"gpu-report: no rates are known of {arch}", known=known)
    ran, blocks = counts.blocks
    scale = blocks / max(ran, 1)
    warps = -(-counts.lanes // WARP) * blocks
    # The multiprocessors that have a block.
    busy = min(blocks, rates.multiprocessors)
    cycles = rates.clock * busy
    kinds = counts.instructions
    moved = counts.moved_bytes * scale
    floats = kinds.get("float", 0) + kinds.get("multiply-add", 0)
    distinct = min(moved, counts.buffer_bytes or moved)
    if counts.buffer_bytes > rates.cache_bytes:
        together = counts.distinct_bytes(_RESIDENT * rates.multiprocessors)
        distinct = min(moved, max(distinct, together))
    limits = {
        "memory": distinct / rates.bandwidth,
        "cache": moved / rates.cache / rates.clock,
        "latency": _waiting(counts, rates, warps, moved),
        "issue": warps * sum(kinds.values()) / rates.issue / cycles,
        "floats": warps * WARP * floats / rates.floats / cycles,
        "functions": warps * WARP * kinds.get("function", 0) / rates.functions / cycles,
        "matrix": warps * kinds.get("matrix", 0) * counts.unit_products / rates.products / cycles,
        "shared": (counts.shared_requests + counts.conflicts) * scale / cycles,
    }
    return Time(limits, rates.launch)


def _waiting(counts: Counts, rates: Rates, warps: int, moved: float) -> float:
    """Seconds to move all bytes, as many at a time as the warps that are there ask for."""
    if not counts.requests:
        return 0.0
    loads = max(counts.instructions.get("load global", 1), 1)
    asked = counts.moved_bytes / counts.requests * max(min(loads, _IN_FLIGHT), counts.copies)
    resident = min(warps, rates.warps * rates.multiprocessors)
    return moved / (resident * asked) * rates.latency / rates.clock
