"""The compiler is made ready beside the script that will need it, where nothing was compiled yet.

Its 190 modules, LLVM's among them, take a tenth of a second to load, longer than most first steps
compute, and the first kernel builds the rules that the later ones find. A process whose kernels are
in the cache needs none of it; one whose cache is empty needs it all. There a thread makes it ready
from the first import of `Tensor` on, while the script imports other packages, reads its data and
builds its model, and a helper process (engine.build.workers) starts.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain

from tilegrad.base import cache
from tilegrad.base.config import config
from tilegrad.base.errors import TilegradError
from tilegrad.base.forks import held_at_fork
from tilegrad.engine.build.background import count_of_helpers

__all__ = ["finish", "modules", "rehearsals", "start"]

_MODULES = (
    "tilegrad.ir.spec",
    "tilegrad.schedule.schedule",
    "tilegrad.schedule.memory_plan",
    "tilegrad.engine.program.stages",
    "tilegrad.engine.program.estimate",
)
_MODULES_OF_CPU = (
    "tilegrad.device.cpu",
    "tilegrad.compile.llvm",
    "tilegrad.render.llvm",
)

_thread: threading.Thread | None = None
_is_over = threading.Event()
# Held during a step: a module that is half loaded when the process forks would stay so in the
# child.
_step = held_at_fork(threading.Lock(), 0)


def start() -> None:
    """Begin to make the compiler ready, if the cache is empty."""
    global _thread
    if _thread is None and not cache.has_entries():
        _thread = threading.Thread(target=_run, name="tilegrad preload", daemon=True)
        _thread.start()
        # A process does not end while LLVM is loaded in it.
        atexit.register(finish)


def finish() -> None:
    """Begin no further step, and wait for the one that was begun: two threads that load modules of
    one package at once may see them unfinished.
    """
    global _thread
    _is_over.set()
    thread = _thread
    if thread is not None and thread is not threading.current_thread():
        thread.join()
        _thread = None


def _run() -> None:
    # A failure here comes again where the module is needed, and is reported there.
    with contextlib.suppress(TilegradError, ImportError, OSError):
        for step in chain(modules(), [_begin_helper], rehearsals()):
            with _step:
                if _is_over.is_set():
                    return
                step()


def modules() -> list[Callable[[], object]]:
    """Steps that load the compiler, each a package of modules or two."""
    names = (*_MODULES, *_MODULES_OF_CPU) if config.DEVICE == "CPU" else _MODULES
    return [partial(importlib.import_module, name) for name in names]


def _begin_helper() -> None:
    if count_of_helpers():
        from tilegrad.engine.build import workers

        workers.begin(1, rehearses=True)


def rehearsals() -> Iterator[Callable[[], object]]:
    """Steps that make kernels and throw them away."""
    if config.DEVICE == "CPU":
        from tilegrad.engine.build import rehearsal

        yield from rehearsal.steps()
