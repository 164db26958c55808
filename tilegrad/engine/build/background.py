"""A background thread that compiles and stores kernels, and the number of helper processes.

A compiler such as LLVM runs without Python's lock, and so does a file system. So a thread can make
and store the binary of one kernel while this one lowers the next. It serves the kernels of a small
graph, for which helper processes (engine.build.workers) would start too late.
"""

from __future__ import annotations

import contextvars
import os
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, Self, TypeVar

from tilegrad.base.config import config
from tilegrad.base.trace import trace

__all__ = ["BackgroundThread", "count_of_helpers"]

_MOST = 7
T = TypeVar("T")


def count_of_helpers() -> int:
    """How many helpers there may be: one less than there are cores.

    None where kernels are to be shown or recorded as they are made, where PARALLEL=0, where a
    search decides (it has processes of its own, and must not be disturbed), and where there is no
    interpreter to start: the executable of a frozen program is the program.
    """
    if not config.PARALLEL or config.DEBUG >= 3 or trace.get() is not None:
        return 0
    if config.BEAM or config.BEAM_FILE:
        return 0
    if not sys.executable or getattr(sys, "frozen", False):
        return 0
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:
        cores = os.cpu_count() or 1
    return min(cores - 1, _MOST)


class _Job(Generic[T]):
    """A function, and its result or error once `done`."""

    def __init__(self, work: Callable[[], T]):
        self.work = work
        self.done = threading.Event()
        self.value: list[T] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.value.append(self.work())
        except BaseException as error:
            # `result` raises it, in the thread that asks.
            self.error = error
        self.done.set()

    def result(self) -> T:
        self.done.wait()
        if self.error is not None:
            raise self.error
        return self.value[0]


class BackgroundThread:
    """A thread that calls the functions it is given, in order, under this thread's switches, until
    the block ends.

    with BackgroundThread() as background:
        binary = background.begin(partial(compiler, source))
        ...
        binary()
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_over = False

    def begin(self, work: Callable[[], T]) -> Callable[[], T]:
        """A function that waits for the result of `work()`, and raises its error."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=contextvars.copy_context().run,
                name="tilegrad compiler",
                args=(self._serve,),
                daemon=True,
            )
            self._thread.start()
        job = _Job(work)
        self._jobs.put(job)
        return job.result

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            if not self._is_over:
                job.run()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        # After an error the remaining jobs have no use.
        self._is_over = error[0] is not None
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
