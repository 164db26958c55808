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
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import chain
from queue import Empty, SimpleQueue
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
    _Worker(source).run(sink)
    os._exit(0)


class _Worker:
    """A process that answers messages. They are read by a thread, so that the process sees while it
    makes kernels ahead that others are asked for.
    """

    def __init__(self, source: IO[bytes]):
        self.messages: SimpleQueue[Message | None] = SimpleQueue()
        self.backends: dict[tuple[str, str], Backend | None] = {}
        # Answers to jobs that have not come yet, by key.
        self.ahead: dict[str, Message] = {}
        # Whether it is still to be said which these are.
        self.is_untold = False
        # Keys of all jobs that have come.
        self.asked: set[str] = set()
        threading.Thread(target=self._read, args=(source,), daemon=True).start()

    def _read(self, source: IO[bytes]) -> None:
        message: Message | None = {}, b""
        while message is not None:
            try:
                message = read_message(source)
            except (OSError, ValueError):
                message = None
            self.messages.put(message)

    def run(self, sink: IO[bytes]) -> None:
        """Say that the compiler is loaded; answer until there is nothing more to read, or for a
        while nothing to do.
        """
        with contextlib.suppress(BrokenPipeError, Empty, _OverError):
            write_message(sink, {})
            while True:
                job, graph = self._next(timeout=_IDLE_S)
                if "ahead" in job:
                    with Context(**job["switches"]):
                        self._look_ahead(graph, job["device"], self._backend(job), sink)
                else:
                    self._answer(job, graph, sink)

    def _next(self, timeout: float | None = None) -> Message:
        """The next message.

        Raises _OverError where there is none to come, Empty after the time given.
        """
        message = self.messages.get(timeout=timeout)
        if message is None:
            raise _OverError
        return message

    def _answer(self, job: Mapping[str, Any], graph: bytes, sink: IO[bytes]) -> None:
        """Give the kernel of a job, after the keys of those made ahead."""
        with Context(**job["switches"]):
            if self.is_untold:
                self.is_untold = False
                write_message(sink, {"ahead": list(self.ahead)})
            self.asked.add(job["key"])
            known = self.ahead.pop(job["key"], None) if job["is_short"] else None
            write_message(sink, *(known or answer(job, graph, self._backend(job))))

    def _backend(self, job: Mapping[str, Any]) -> Backend | None:
        described = repr(job["switches"]), job["device"]
        if described not in self.backends:
            self.backends[described] = _described(job["device"])
        return self.backends[described]

    def _look_ahead(
        self, graph: bytes, device: str, backend: Backend | None, sink: IO[bytes]
    ) -> None:
        """Make the kernels that are final before the schedule of a graph is complete, until a plan
        asks for all of its own. Jobs that come from its schedule are answered between two of them.
        """
        from tilegrad.schedule.schedule import make_schedule

        if backend is None or not self.messages.empty():
            return

        def begin(ast: UOp, device: str) -> None:
            while not self.messages.empty():
                job, asked = self._next()
                self._answer(job, asked, sink)
                if job["is_complete"]:
                    raise _WantedError
            key = kernel_key(ast, backend)
            if device == backend.name and key not in self.ahead and key not in self.asked:
                self.ahead[key] = _made(ast, key, backend, is_short=True)
                self.is_untold = True

        # The process that asked meets any error itself.
        with _unless_over():
            targets = {device: backend.target}
            make_schedule(pickle.loads(graph), targets, device, plain=False, begin=begin)


class _WantedError(Exception):
    """There is something to do that somebody waits for."""


class _OverError(Exception):
    """The process that asks has ended."""


@contextlib.contextmanager
def _unless_over() -> Iterator[None]:
    """Errors mean nothing here, but that of the end."""
    try:
        yield
    except (_OverError, BrokenPipeError):
        raise
    except Exception:
        pass


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
    return _made(ast, job["key"], backend, is_short=job["is_short"])


def _made(ast: UOp, key: str, backend: Backend, *, is_short: bool) -> Message:
    before = asdict(counters)
    try:
        kernel = make_kernel(ast, backend, key, is_short=is_short)
    except (TilegradError, ImportError, OSError):
        # The process that asked meets the same, and says where.
        return {}, b""
    work = {name: count - before[name] for name, count in asdict(counters).items()}
    return {"kernel": kernel.fields(), "work": work}, kernel.binary
