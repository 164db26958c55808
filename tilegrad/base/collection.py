"""Times without collections of garbage: whether it is collected is one switch of the process, and
such times of several threads overlap.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tilegrad.base.forks import held_at_fork

__all__ = ["no_collection"]


class _Pause:
    """Who wants no collections now, once for each time, and whether there were any before."""

    def __init__(self) -> None:
        self.lock = held_at_fork(threading.RLock(), 96)
        self.threads: list[int] = []
        self.is_due = False

    def begin(self, thread: int) -> None:
        with self.lock:
            if not self.threads:
                self.is_due = gc.isenabled()
                gc.disable()
            self.threads.append(thread)

    def end(self, thread: int) -> None:
        with self.lock:
            self.threads.remove(thread)
            if not self.threads and self.is_due:
                gc.enable()

    def forget_others(self) -> None:
        """In a forked process, where no other thread is left to end its time."""
        for thread in {*self.threads} - {threading.get_ident()}:
            while thread in self.threads:
                self.end(thread)


_pause = _Pause()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pause.forget_others)


@contextmanager
def no_collection() -> Iterator[None]:
    """No garbage is collected until all threads that are inside have left; then as before."""
    thread = threading.get_ident()
    _pause.begin(thread)
    try:
        yield
    finally:
        _pause.end(thread)
