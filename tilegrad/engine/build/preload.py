"""The compiler is loaded beside the script that will need it, where nothing was compiled yet.

Its 190 modules, LLVM's among them, take a tenth of a second to load, longer than most first steps
compute. A process that finds its kernels in the cache loads none of them; one whose cache is empty
will need them all. There a thread loads them from the first import of `Tensor` on, while the script
imports other packages, reads its data and builds its model.
"""

from __future__ import annotations

import atexit
import importlib
import threading

from tilegrad.base import cache
from tilegrad.base.config import config
from tilegrad.base.forks import held_at_fork

__all__ = ["finish", "start"]

_COMPILER = (
    "tilegrad.ir.spec",
    "tilegrad.schedule.schedule",
    "tilegrad.schedule.memory",
    "tilegrad.engine.program.stages",
    "tilegrad.engine.program.estimate",
)
_CPU = (
    "tilegrad.device.cpu",
    "tilegrad.compile.llvm",
    "tilegrad.render.llvm",
)

_thread: threading.Thread | None = None
_is_over = threading.Event()
# Held while a module is loaded: a child of a fork would wait for the rest of it without end.
_loading = held_at_fork(threading.Lock(), 0)


def start() -> None:
    """Begin to load the compiler, if the cache is empty."""
    global _thread
    if _thread is None and not cache.has_entries():
        _thread = threading.Thread(target=_load, name="tilegrad preload", daemon=True)
        _thread.start()
        # A process does not end while LLVM is loaded in it.
        atexit.register(_stop)


def finish() -> None:
    """Wait until what was begun is loaded. Two threads that load modules of one package at once may
    see them unfinished.
    """
    global _thread
    thread = _thread
    if thread is not None:
        thread.join()
        _thread = None


def _stop() -> None:
    _is_over.set()
    finish()


def _load() -> None:
    names = (*_COMPILER, *_CPU) if config.DEVICE.startswith("CPU") else _COMPILER
    for name in names:
        with _loading:
            if _is_over.is_set():
                return
            try:
                importlib.import_module(name)
            except (ImportError, OSError):
                # Whoever needs it meets the same, and says so.
                return
