"""The other end of `engine.build.workers`: a process that takes kernel graphs and gives binaries.

It opens no device, since what a device generates can be described without one. For a device that it
does not know as the sender does, it gives None.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import threading
from collections.abc import Mapping
from dataclasses import asdict
from itertools import chain
from typing import IO, Any

from tilegrad.base.config import Context
from tilegrad.base.errors import TilegradError
from tilegrad.base.trace import counters
from tilegrad.device.backend import Backend
from tilegrad.device.null import NullRuntime
from tilegrad.device.registry import Device
from tilegrad.engine.build import preload
from tilegrad.engine.build.pipeline import kernel_key, make_kernel
from tilegrad.engine.child import Message, own_pipes, read_message, write_message
from tilegrad.ir.uop import UOp

__all__ = ["answer", "main"]

# How long a helper waits for the next kernel.
_IDLE_S = 10.0
# The niceness of a background process: a busy core gives it a tenth of its time.
_BEHIND = 10


def main() -> None:
    """Load the compiler and say so; answer until there is nothing more to read, or for a while
    nothing to do.
    """
    source, sink = own_pipes()
    setup = read_message(source)
    if setup and setup[0]["is_behind"] and hasattr(os, "nice"):
        os.nice(_BEHIND)
    rehearsals = preload.rehearsals() if setup and setup[0]["rehearses"] else ()
    with contextlib.suppress(TilegradError, ImportError, OSError):
        for step in chain(preload.modules(), rehearsals):
            step()
    # Graphs have no cycles.
    gc.disable()
    backends: dict[tuple[str, str], Backend | None] = {}
    with contextlib.suppress(BrokenPipeError):
        write_message(sink, {})
        while (message := _next(source)) is not None:
            job, graph = message
            with Context(**job["switches"]):
                described = repr(job["switches"]), job["device"]
                if described not in backends:
                    backends[described] = _described(job["device"])
                write_message(sink, *answer(job, graph, backends[described]))
    os._exit(0)


def _next(source: IO[bytes]) -> Message | None:
    """The next message; the process ends where none comes for a while."""
    end = threading.Timer(_IDLE_S, os._exit, (0,))
    end.daemon = True
    end.start()
    message = read_message(source)
    end.cancel()
    return message


def _described(device: str) -> Backend | None:
    """The description of a device that this process can make without opening it."""
    with contextlib.suppress(TilegradError, ImportError, OSError):
        return Device.describe(device, NullRuntime())
    return None


def answer(job: Mapping[str, Any], graph: bytes, backend: Backend | None) -> Message:
    """The fields of a kernel, the work that it took, and its binary; no fields if it cannot be made
    here as it would be there.
    """
    ast: UOp = pickle.loads(graph)
    if backend is None or kernel_key(ast, backend) != job["key"]:
        return {}, b""
    before = asdict(counters)
    try:
        kernel = make_kernel(ast, backend, job["key"], is_short=job["is_short"])
    except (TilegradError, ImportError, OSError):
        # The process that asked meets the same, and says where.
        return {}, b""
    work = {name: count - before[name] for name, count in asdict(counters).items()}
    return {"kernel": kernel.fields(), "work": work}, kernel.binary
