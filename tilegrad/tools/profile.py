"""Which kernels a function spends its time in, and how near each is to what the device can do.

    from tilegrad.tools.profile import profile, table
    print(table(profile(step)))

The function runs as it is, not captured, and each of its kernels is waited for. So the sum of the
times is that of the kernels alone: what happens between them in Python is not in it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilegrad.base.config import Context
from tilegrad.base.errors import ConfigError, DeviceError
from tilegrad.capture.inputs import is_waiting, living, settle
from tilegrad.capture.record import tensors_in
from tilegrad.device.calibrate import Ceilings, ceilings
from tilegrad.engine.run.report import plain
from tilegrad.engine.run.run import timed

__all__ = ["Row", "profile", "table"]

_NAME_WIDTH = 34


@dataclass
class Row:
    """One kernel, over all its launches in one run of the function.

    Attributes:
        name: the kernel's name.
        device: where it ran.
        calls: the user's calls behind it, where they are known.
        launches: how often it ran.
        ops, mem: operations and bytes of all its launches.
        samples: seconds of all its launches, for each run of the function.
    """

    name: str
    device: str
    calls: tuple[str, ...] = ()
    launches: int = 0
    ops: int = 0
    mem: int = 0
    samples: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """The median of the samples."""
        return statistics.median(self.samples)

    def share_of(self, ceiling: Ceilings) -> float:
        """How near the kernel comes to the ceiling that binds it, 1 being there."""
        least = ceiling.least_seconds(self.ops // self.launches, self.mem // self.launches)
        return least * self.launches / max(self.seconds, 1e-12)


def profile(function: Callable[[], Any], runs: int = 3) -> list[Row]:
    """Run `function` `runs` times, and once before to compile it; its kernels, the dearest first.

    It should do the same at each run: a training step does, and trains. Values that it leaves to be
        computed, in its results and in the tensors that it assigns to, are computed too, as a
        captured function does.
    """
    if runs < 1:
        raise ConfigError(f"profile: runs must be at least 1, not {runs}")
    rows: dict[tuple[str, str], Row] = {}
    with Context(JIT=0):
        _computed(function)
        for run in range(runs):
            with timed() as record:
                _computed(function)
            for launch, seconds in record:
                kernel = launch.kernel
                assert kernel is not None
                key = launch.device, kernel.key
                row = rows.setdefault(key, Row(plain(kernel.display), launch.device, launch.calls))
                row.samples += [0.0] * (run + 1 - len(row.samples))
                row.samples[run] += seconds
                if run == 0:
                    row.launches += 1
                    row.ops += kernel.ops
                    row.mem += kernel.mem
    found = [row for row in rows.values() if row.launches]
    return sorted(found, key=lambda row: -row.seconds)


def _computed(function: Callable[[], Any]) -> None:
    """Call the function, and compute what it has made or changed."""
    before = {id(tensor): tensor.uop for tensor in living()}
    result = function()
    changed = [
        tensor for tensor in living() if before.get(id(tensor), tensor.uop) is not tensor.uop
    ]
    settle([each for each in [*tensors_in(result), *changed] if is_waiting(each)])


def table(rows: Sequence[Row], most: int = 10) -> str:
    """The dearest kernels as text: time, share of the whole, speed, percent of the ceiling that
    binds them, and the user's calls behind them where they are known.
    """
    known = {device: _ceilings_of(device) for device in dict.fromkeys(row.device for row in rows)}
    total = sum(row.seconds for row in rows)
    has_calls = any(row.calls for row in rows)
    head = f"{'kernel':{_NAME_WIDTH}s} {'times':>5s} {'time':>11s} {'share':>6s}"
    head = f"{head} {'GFLOP/s':>8s} {'GB/s':>7s} {'ceiling':>8s}"
    lines = [head + "  calls" if has_calls else head]
    for row in rows[:most]:
        seconds = max(row.seconds, 1e-12)
        name = row.name if len(row.name) <= _NAME_WIDTH else row.name[: _NAME_WIDTH - 1] + "…"
        ceiling = known[row.device]
        share = f"{row.share_of(ceiling):8.0%}" if ceiling else f"{'':8s}"
        lines.append(
            f"{name:{_NAME_WIDTH}s} {row.launches:5d} {row.seconds * 1e6:9.1f}us "
            f"{row.seconds / (total or 1):6.1%} {row.ops / seconds / 1e9:8.1f} "
            f"{row.mem / seconds / 1e9:7.1f} {share}  {' '.join(row.calls)}".rstrip()
        )
    lines.append(f"{len(rows)} kernels, {total * 1e3:.2f} ms")
    for device, ceiling in known.items():
        if ceiling:
            rates = ", ".join(f"{rate / 1e9:.0f}" for _, rate in ceiling.copies)
            lines.append(
                f"ceilings measured on {device}: {ceiling.flops / 1e9:.0f} GFLOP/s; copies in "
                f"each cache and in memory {rates} GB/s"
            )
    return "\n".join(lines)


def _ceilings_of(device: str) -> Ceilings | None:
    try:
        return ceilings(device)
    except DeviceError:
        return None
