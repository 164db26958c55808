"""Memory beside pages that nobody may touch: a kernel that reads or writes outside a buffer ends
its process there and then, instead of giving what happens to lie beside it.

    GUARD_PAGES=after python -m pytest tests/nn      each buffer ends where such a page begins
    GUARD_PAGES=before python -m pytest tests/nn     each buffer begins where such a page ends

`tests/conftest.py` reads the variable. Processes that a test starts, and any other program, do so
where this folder is on the path: `PYTHONPATH=tests/guarded:. GUARD_PAGES=after python program.py`.

What is held to is the promise of `runtime.protocol.Runtime.allocate`: as many bytes as are asked
for, aligned for the elements, and no padding. So size classes are exact here, no block is handed
on, and each temporary of a plan has a block of its own. Memory that was given back may not be
touched either, for as long as another 1000 blocks are given back. New memory is full of ones, which
are NaN, so that who reads what nobody wrote is seen.

Not guarded: memory of others that is read in place (`torch.from_numpy`, mapped files), and what
lies inside a buffer beside a view of it.
"""

from __future__ import annotations

import ctypes
import importlib.abc
import importlib.machinery
import mmap
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

__all__ = [
    "FOLDER",
    "KINDS",
    "VARIABLE",
    "environment",
    "from_environment",
    "install",
    "is_installed",
]

VARIABLE = "GUARD_PAGES"
KINDS = ("after", "before")
FOLDER = os.path.dirname(os.path.abspath(__file__))
_PAGE = mmap.PAGESIZE
_NOTHING, _READ_AND_WRITE = 0, mmap.PROT_READ | mmap.PROT_WRITE
# Blocks in use beyond this number have no page of their own: a system has 65,530 ranges of memory
# for a process, and a block takes two.
_MOST_GUARDED = 24_000
# Blocks given back that nobody may touch yet, and the bytes of one that is given back at once.
_MOST_KEPT, _LARGE = 1000, 1 << 24
_installed = False


class _Memory:
    """What stands in for the CPU's allocator. A handle is an address."""

    def __init__(self, kind: str):
        self._is_before = kind == "before"
        libc = self._libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
        libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
        libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
        libc.free.argtypes = (ctypes.c_void_p,)
        # By handle: where the mapping begins, and its bytes.
        self._guarded: dict[int, tuple[int, int]] = {}
        self._kept: deque[tuple[int, int]] = deque()
        self._lock = threading.Lock()

    def allocate(self, nbytes: int) -> int:
        if len(self._guarded) >= _MOST_GUARDED:
            found = self._libc.malloc(nbytes)
            if not found:
                raise MemoryError(nbytes)
            return int(found)
        room = -(-nbytes // _PAGE) * _PAGE
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        start = self._libc.mmap(None, room + _PAGE, _NOTHING, flags, -1, 0)
        if start in (None, ctypes.c_void_p(-1).value):
            raise MemoryError(nbytes)
        usable = start + _PAGE if self._is_before else start
        if self._libc.mprotect(usable, room, _READ_AND_WRITE):
            self._libc.munmap(start, room + _PAGE)
            raise MemoryError(nbytes)
        handle = usable if self._is_before else usable + room - nbytes
        if nbytes < _LARGE:
            ctypes.memset(handle, 0xFF, nbytes)
        with self._lock:
            self._guarded[handle] = start, room + _PAGE
        return int(handle)

    def free(self, handle: int) -> None:
        with self._lock:
            block = self._guarded.pop(handle, None)
            if block is None:
                self._libc.free(handle)
                return
            self._libc.mprotect(*block, _NOTHING)
            oldest = block
            if block[1] < _LARGE:
                self._kept.append(block)
                if len(self._kept) <= _MOST_KEPT:
                    return
                oldest = self._kept.popleft()
            self._libc.munmap(*oldest)


class _Patching(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Changes modules of the package when they are imported, before anybody takes names of them."""

    def __init__(self, changes: dict[str, Callable[[Any], None]]):
        self._changes = changes
        self._loaders: dict[str, Any] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self._changes:
            return None
        found = importlib.machinery.PathFinder.find_spec(name, path)
        if found is not None:
            self._loaders[name], found.loader = found.loader, self
        return found

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        found: ModuleType | None = self._loaders[spec.name].create_module(spec)
        return found

    def exec_module(self, module: ModuleType) -> None:
        self._loaders[module.__name__].exec_module(module)
        self._changes[module.__name__](module)


def install(kind: str) -> None:
    """Guard the memory of the CPU from now on. To be called before tilegrad is imported."""
    global _installed
    if kind not in KINDS:
        raise ValueError(f"{VARIABLE}={kind}: one of {', '.join(KINDS)}")
    if _installed:
        return
    if "tilegrad.runtime.allocator" in sys.modules:
        raise RuntimeError("memory is guarded before tilegrad is imported, or not at all")
    _installed = True
    memory = _Memory(kind)

    def exact_sizes(module: Any) -> None:
        module.size_class = lambda nbytes: nbytes

    def guarded_blocks(module: Any) -> None:
        runtime = module.CpuRuntime
        runtime.allocate = lambda self, nbytes: memory.allocate(nbytes)
        runtime.free = lambda self, handle, nbytes: memory.free(handle)
        runtime.cache_bytes = 0

    def own_blocks(module: Any) -> None:
        shared = module.plan_memory

        def plan_memory(*given: Any, **named: Any) -> Any:
            # Tests look at plans that share memory, too.
            is_to_run = sys._getframe(1).f_globals["__name__"] == "tilegrad.engine.plans.plans"
            return module.MemoryPlan({}, {}, {}) if is_to_run else shared(*given, **named)

        module.plan_memory = plan_memory

    changes = {
        "tilegrad.runtime.allocator": exact_sizes,
        "tilegrad.device.cpu": guarded_blocks,
        "tilegrad.schedule.memory_plan": own_blocks,
    }
    sys.meta_path.insert(0, _Patching(changes))


def is_installed() -> bool:
    return _installed


def environment(kind: str) -> dict[str, str]:
    """Variables of a process whose memory is guarded."""
    paths = [FOLDER, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {VARIABLE: kind, "PYTHONPATH": os.pathsep.join(paths)}


def from_environment() -> str | None:
    """The kind that the environment asks for, which is installed; None if it asks for none."""
    kind = os.environ.get(VARIABLE)
    if kind:
        install(kind)
    return kind or None
