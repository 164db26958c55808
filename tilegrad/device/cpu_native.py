"""The native half of the CPU device: thread pool and graph runner, generated like a kernel.

Waking a Python thread costs 50 microseconds, and a call from Python 200 nanoseconds; a kernel often
takes less. So a launch is spread over cores by threads that never run Python, and a captured graph
is one call. This module writes both as LLVM IR text (cpu_native_ir.py); the maker of the pool
passes the compiler, which is asked only when the disk cache has no object.

A kernel is `void kernel(void** args, int64 chunk)`. Its chunks are handed out one by one:

* `ticket` counts down from the number of chunks. A thread that takes a positive value owns that
  chunk. The launch cannot end before the chunk is done, so the job description read after taking it
  is still the right one; a thread that comes late takes a value of zero or less and leaves,
  whatever launch it came for. No generation number is needed.
* `pending` counts chunks not yet done; each thread subtracts what it did when it finds no more. The
  caller takes part, then waits for zero. Progress never depends on the workers: if none comes, the
  caller does all chunks.
* An idle worker watches `ticket` for a while (`SPIN_US`), then sleeps on `epoch`. No worker is
  missed: a worker adds itself to `sleepers`, then looks at `ticket` once more; a launch stores
  `ticket`, then looks at `sleepers`. All four are sequentially consistent, so one of the two sees
  the other; and the sleep is refused once `epoch` has moved on.
* One launch at a time owns the pool (`owner`). A Python thread that finds it taken runs its chunks
  itself.

Writing `ticket` and subtracting from `pending` are full barriers on x86, so that non-temporal
stores of a kernel are seen by the next one.

Threads start at the first launch that has use for them. In a forked child the pool begins anew. The
threads are joined when Python exits, and the code is never unmapped: a thread may still be inside.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import platform
import signal
import struct
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilegrad.base import cache as disk
from tilegrad.base.config import config
from tilegrad.base.errors import ConfigError, DeviceError
from tilegrad.device.cpu_native_ir import MAX_WORKERS, source, symbols
from tilegrad.device.cpu_native_system import System
from tilegrad.runtime import elf

__all__ = [
    "NODE", "NativePool", "core_count", "machine_bytes", "native", "set_threads", "this_system",
    "thread_count",
]  # fmt: skip

NODE = struct.Struct("<QQq")
"""A node of a graph in memory: addresses of kernel and arguments, number of chunks."""


def this_system() -> System:
    """Raises DeviceError where there are no POSIX threads."""
    if os.name != "posix":
        raise DeviceError("the native thread pool needs POSIX threads", platform=sys.platform)
    machine = platform.machine()
    pause = {
        "x86_64": "llvm.x86.sse2.pause()",
        "aarch64": "llvm.aarch64.hint(i32 1)",
        "arm64": "llvm.aarch64.hint(i32 1)",
    }
    futex = {"x86_64": 202, "aarch64": 98, "riscv64": 98} if sys.platform == "linux" else {}
    return System(
        futex=futex.get(machine, 0),
        clock={"linux": 1, "darwin": 6}.get(sys.platform, 4),
        set_mask=signal.SIG_SETMASK,
        faults=(signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP),
        pause=pause.get(machine, ""),
    )


def core_count() -> int:
    """Cores that this process may use, by its affinity and by what its container grants."""
    has_affinity = hasattr(os, "sched_getaffinity")
    count = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        count = min(count, max(1, round(int(quota) / int(period))))
    except (OSError, ValueError):  # not Linux, or no limit
        pass
    return count


def machine_bytes() -> int:
    """The memory of this machine, as far as it tells."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 8 << 30


def _pin(value: object) -> None:
    """Keep `value` to the end of the process, past the interpreter's own end."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))


_pools: weakref.WeakSet[NativePool] = weakref.WeakSet()


class NativePool:
    """Threads that run kernels; `workers` counts the calling thread, so 1 means no threads at all.

    The addresses given to a launch must stay valid until the call returns. Other Python threads run
    meanwhile.
    """

    launch: Callable[[int, int, int], None]
    """`launch(kernel, args, chunks)` runs all chunks of one kernel."""
    run_node: Callable[[int], None]
    """`run_node(node)` runs the kernel of a NODE: the call that costs least."""
    run_graph: Callable[[int, int], None]
    """`run_graph(nodes, count)` runs the kernels of `count` consecutive NODEs, in order."""
    run_short_node: Callable[[int], None]
    """As `run_node`, while no other Python thread runs: for kernels of some microseconds."""
    run_short_graph: Callable[[int, int], None]
    """As `run_graph`, while no other Python thread runs."""
    run_graph_timed: Callable[[int, int, int], None]
    """`run_graph_timed(nodes, count, times)` also writes each kernel's nanoseconds, as int64."""

    def __init__(self, code: bytes, *, workers: int = 0, spin_us: float = 100) -> None:
        self._object = elf.load(code, elf.libc_symbols(*symbols()))
        _pin(self._object)
        pointer, integer = ctypes.c_void_p, ctypes.c_int64
        self.launch = self._function("launch", None, pointer, pointer, integer)
        self.run_node = self._function("run_node", None, pointer)
        self.run_graph = self._function("run_graph", None, pointer, integer)
        self.run_short_node = self._function("run_node", None, pointer, is_short=True)
        self.run_short_graph = self._function("run_graph", None, pointer, integer, is_short=True)
        self.run_graph_timed = self._function("run_graph_timed", None, pointer, integer, pointer)
        self._resize = self._function("resize", ctypes.c_int32, ctypes.c_int32, integer)
        self._set_spin = self._function("set_spin", None, integer)
        self._reset = self._function("reset", None)
        self._lock = threading.Lock()
        self.workers = 1
        self._reset()
        self.set_spin(spin_us)
        self.set_workers(workers)
        _pools.add(self)

    def _function(
        self, name: str, result: type | None, *arguments: type, is_short: bool = False
    ) -> Callable[..., Any]:
        # To let other threads run takes 50 ns.
        kind: Any = ctypes.PYFUNCTYPE if is_short else ctypes.CFUNCTYPE
        found: Callable[..., Any] = kind(result, *arguments)(self._object.address(name))
        return found

    def set_workers(self, count: int) -> None:
        """Use `count` threads from now on; 0 is one per core. Waits for a launch under way."""
        _check_count(count)
        count = count or core_count()
        with self._lock:
            while not self._resize(count - 1, 1000):
                pass
            self.workers = count

    def set_spin(self, microseconds: float) -> None:
        """How long an idle thread watches for work before it sleeps."""
        self._set_spin(int(microseconds * 1000))

    def close(self) -> bool:
        """End the threads, and launch in the caller from now on; False if a launch does not end."""
        closed = bool(self._resize(0, 10_000))
        if closed:
            self.workers = 1
        return closed

    def forget_threads(self) -> None:
        """In a forked child, threads and owner are gone; the next launch starts new threads."""
        self._lock = threading.Lock()
        self._reset()


def _after_fork() -> None:
    global _native_lock
    _native_lock = threading.Lock()
    for pool in list(_pools):
        pool.forget_threads()


def _at_exit() -> None:
    for pool in list(_pools):
        pool.close()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

_native: NativePool | None = None
# The number of threads that `set_threads` asked for before there was a pool.
_wanted: int | None = None
_native_lock = threading.Lock()


def native_code(build: Callable[[str], bytes]) -> bytes:
    """The pool's code, which `build` makes of LLVM IR text for the plainest processor of this
    machine's kind. It is called on a miss of the disk cache only, so a warm start loads no
    compiler.
    """
    text = source(this_system())
    key = disk.digest(text, platform.machine(), sys.platform)
    code = disk.get("native", key)
    if code is None:
        code = build(text)
        disk.put("native", key, code)
    return code


def native(build: Callable[[str], bytes]) -> NativePool:
    """The process's pool, of the code that `build` makes (`native_code`), sized by `set_threads` or
    the switches THREADS and SPIN_US when it is first asked for.
    """
    global _native
    if _native is not None:
        return _native
    with _native_lock:
        if _native is None:
            code = native_code(build)
            workers = config.THREADS if _wanted is None else _wanted
            _native = NativePool(code, workers=workers, spin_us=config.SPIN_US)
        return _native


def set_threads(count: int) -> None:
    """Run kernels of the CPU on `count` threads from now on, in the whole process; 0 is one per
    core. Waits for a launch under way.

    Raises ConfigError for a count that is negative, or more than the pool holds.
    """
    global _wanted
    _check_count(count)
    with _native_lock:
        _wanted = count
        if _native is not None:
            _native.set_workers(count)


def thread_count() -> int:
    """The number of threads that kernels of the CPU run on."""
    if _native is not None:
        return _native.workers
    return (config.THREADS if _wanted is None else _wanted) or core_count()


def _check_count(count: int) -> None:
    if not 0 <= count <= MAX_WORKERS:
        raise ConfigError(f"THREADS: unknown value {count}", allowed=f"0 to {MAX_WORKERS}")
