"""Rows that `DEBUG=2` prints: one per kernel, per copy and per wait of the host for a device's
queue, and a summary at the end.

    *** CPU        3 E_4_4              arg  3 mem  0.00 GB tm     25.88us/     0.03ms (    0.00
    GFLOPS    0.0|0.0     GB/s) ['__add__']

Green is the first run of a kernel, magenta a replay of a captured one.

A wait within a copy has a row before the copy's, whose time is without it. The wait for a launch
that is timed is part of that launch's own row.
"""

from __future__ import annotations

import atexit
import itertools
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tilegrad.base.config import config
from tilegrad.base.recent import Recent
from tilegrad.base.trace import GlobalCounters
from tilegrad.runtime.allocator import LRUAllocator

__all__ = ["clock", "count", "row", "show_copy", "timing", "waits"]

_numbers = itertools.count(1)
_totals = {"ops": 0, "mem": 0, "seconds": 0.0, "kernels": 0, "rows": 0}
_seen: Recent[str, bool] = Recent(lambda: config.KEEP_KERNELS)
_COLOURS = {"green": 32, "magenta": 35}
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_WIDTH = 38


class _Waits(threading.local):
    """State of a thread: seconds of waits that have rows, and whether a launch is being timed."""

    seconds = 0.0
    is_timing = False


waits = _Waits()


def paint(text: str, colour: str | None) -> str:
    """`text` in an ANSI colour, unless NO_COLOR is set."""
    if colour is None or config.NO_COLOR:
        return text
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def plain(text: str) -> str:
    """`text` without colours."""
    return _ANSI.sub("", text)


def count(ops: int, mem: int, seconds: float | None, kernels: int = 1) -> None:
    """Add to the global counters."""
    GlobalCounters.kernel_count += kernels
    GlobalCounters.global_ops += ops
    GlobalCounters.global_mem += mem
    GlobalCounters.time_sum_s += seconds or 0.0


def clock() -> float:
    """Seconds, without the waits that have rows of their own."""
    return time.perf_counter() - waits.seconds


@contextmanager
def timing() -> Iterator[None]:
    """Launches that are waited for, as their time is wanted: the wait is part of their row."""
    before, waits.is_timing = waits.is_timing, True
    try:
        yield
    finally:
        waits.is_timing = before


def _show_wait(device: str, seconds: float) -> None:
    """The row of a wait for a device's queue."""
    if config.DEBUG < 2 or waits.is_timing:
        return
    waits.seconds += seconds
    count(0, 0, seconds, kernels=0)
    row(device, "sync", 0, 0, 0, seconds, (), key=f"sync {device}")


LRUAllocator.on_wait = staticmethod(_show_wait)


def row(
    device: str,
    name: str,
    arguments: int,
    ops: int,
    mem: int,
    seconds: float | None,
    calls: Sequence[str],
    *,
    key: str,
    kernels: int = 0,
    replay: bool = False,
) -> None:
    """Print one row: of `kernels` kernels, or of a copy or an empty tensor."""
    colour = "magenta" if replay else "green" if _seen.get(key) is None else None
    _seen.put(key, True)
    if not _totals["rows"]:
        atexit.register(_summary)
    _totals["rows"] += 1
    _totals["kernels"] += kernels
    _totals["ops"] += ops
    _totals["mem"] += mem
    _totals["seconds"] += seconds or 0.0
    shown = plain(name) if config.NO_COLOR else name
    padding = " " * max(_WIDTH - len(plain(name)), 0)
    head = paint(f"*** {device:8s} {next(_numbers):4d}", colour)
    time = seconds or 0.0
    gflops = ops / time / 1e9 if time else 0.0
    rate = mem / time / 1e9 if time else 0.0
    used = GlobalCounters.mem_used / 1e9
    timing = f"tm {time * 1e6:10.2f}us/{GlobalCounters.time_sum_s * 1e3:9.2f}ms"
    speed = f"({gflops:8.2f} GFLOPS {rate:6.1f}|{rate:<7.1f} GB/s)"
    print(
        f"{head} {shown}{padding} arg {arguments:2d} mem {used:6.2f} GB {timing} {speed} "
        f"{list(calls)}"
    )


def _summary() -> None:
    time, ops, mem = _totals["seconds"], _totals["ops"], _totals["mem"]
    # A device that runs nothing takes no time.
    gflops, rate = (each / time / 1e9 if time else 0.0 for each in (ops, mem))
    print(
        f"avg: {gflops:8.2f} GFLOPS {rate:8.2f} GB/s   total: "
        f"{int(_totals['kernels']):5d} kernels "
        f"{ops / 1e9:8.2f} GOPS {mem / 1e9:8.2f} GB {time * 1e3:8.2f} ms"
    )


def show_copy(
    target: str,
    source: str,
    nbytes: int,
    seconds: float,
    *,
    kind: str = "copy",
    replay: bool = False,
) -> None:
    """The row of a copy: its bytes, and from where to where."""
    size = f"{nbytes / 1e6:.2f}M" if nbytes > 1e6 else str(nbytes)
    name = f"{kind} {size:>8s}, {target:>7s} <- {source:7s}"
    row(
        target,
        name,
        2,
        0,
        nbytes,
        seconds,
        (),
        key=f"{kind} {nbytes} {target} {source}",
        replay=replay,
    )
