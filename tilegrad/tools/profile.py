"""Which kernels a function spends its time in, against what this machine can do.

The ceilings are measured by tilegrad's own kernels: operations by a matmul of 1024, memory by a
copy that no cache holds. A kernel's share of its ceiling is the larger of the two shares.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilegrad.base.config import Context
from tilegrad.engine.report import plain
from tilegrad.engine.run import timed
from tilegrad.tensor.tensor import Tensor

__all__ = ["Ceilings", "Row", "ceilings", "profile", "table"]

_REPEAT = 5


@dataclass(frozen=True)
class Ceilings:
    """Operations and bytes a second that this machine reached."""

    flops: float
    bandwidth: float


@dataclass
class Row:
    """One kernel: its name, the user's calls behind it, and totals over all its launches."""

    name: str
    calls: tuple[str, ...]
    launches: int = 0
    seconds: float = 0.0
    ops: int = 0
    mem: int = 0

    def share_of(self, ceiling: Ceilings) -> float:
        """How near the kernel comes to the ceiling that binds it, 1 being there."""
        if not self.seconds:
            return 0.0
        speed, rate = self.ops / self.seconds, self.mem / self.seconds
        return max(speed / ceiling.flops, rate / ceiling.bandwidth)


@functools.cache
def ceilings() -> Ceilings:
    """What the default device reaches, measured once a process; takes about a tenth of a second."""
    a, b = Tensor.rand(1024, 1024).realize(), Tensor.rand(1024, 1024).realize()
    large = Tensor.rand(1 << 24).realize()
    flops = bandwidth = 0.0
    for _ in range(_REPEAT):
        with timed() as record:
            (a @ b).realize()
            (large + 0.5).realize()
        for launch, seconds in record:
            assert launch.kernel is not None
            flops = max(flops, launch.kernel.ops / seconds)
            bandwidth = max(bandwidth, launch.kernel.mem / seconds)
    return Ceilings(flops, bandwidth)


def profile(function: Callable[[], Any]) -> list[Row]:
    """Run `function` once, not captured, and give its kernels, the dearest first."""
    rows: dict[str, Row] = {}
    with Context(JIT=0), timed() as record:
        function()
    for launch, seconds in record:
        kernel = launch.kernel
        assert kernel is not None
        row = rows.setdefault(kernel.key, Row(plain(kernel.display), launch.calls))
        row.launches += 1
        row.seconds += seconds
        row.ops += kernel.ops
        row.mem += kernel.mem
    return sorted(rows.values(), key=lambda row: -row.seconds)


def table(rows: list[Row], most: int = 10) -> str:
    """The dearest kernels as text: time, share of the whole, speed, and percent of the ceiling."""
    ceiling = ceilings()
    total = sum(row.seconds for row in rows) or 1.0
    head = f"{'kernel':32s} {'times':>5s} {'time':>10s} {'share':>6s}"
    lines = [f"{head} {'GFLOP/s':>8s} {'GB/s':>7s} {'ceiling':>8s}"]
    for row in rows[:most]:
        seconds = row.seconds or 1e-12
        cost = f"{row.seconds * 1e6:8.1f}us {row.seconds / total:6.1%}"
        speed = f"{row.ops / seconds / 1e9:8.1f} {row.mem / seconds / 1e9:7.1f}"
        share = f"{row.share_of(ceiling):8.0%}"
        lines.append(f"{row.name[:32]:32s} {row.launches:5d} {cost} {speed} {share}")
    lines.append(
        f"all {len(rows)} kernels: {total * 1e3:.2f} ms; ceilings measured here: "
        f"{ceiling.flops / 1e9:.0f} GFLOP/s (matmul), {ceiling.bandwidth / 1e9:.1f} GB/s (copy)"
    )
    return "\n".join(lines)
