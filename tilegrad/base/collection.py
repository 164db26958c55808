"""When garbage is collected: times without collections, which overlap if several threads have them,
as whether garbage is collected is one switch of the process; and room for the objects of one step.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tilegrad.base.forks import held_at_fork

__all__ = ["make_room", "no_collection"]

# The thresholds of Python's youngest generation, and the most objects that it is let to have: a
# collection of these takes some 20 ms.
_DEFAULTS, _MOST_YOUNG = frozenset({700, 2000}), 1 << 16


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


class _Room:
    """The threshold that `make_room` has set last."""

    given = 0


_room = _Room()


@contextmanager
def no_collection() -> Iterator[None]:
    """No garbage is collected until all threads that are inside have left; then as before."""
    thread = threading.get_ident()
    _pause.begin(thread)
    try:
        yield
    finally:
        _pause.end(thread)


def make_room(objects: int) -> None:
    """Let the youngest generation have this many objects, those that a step of the program makes
    and gives back. In a smaller one they outlive two collections, and count as old: each third step
    of a long loop visited all objects of the process. A threshold of the user's stays.
    """
    young, *older = gc.get_threshold()
    wanted = min(objects, _MOST_YOUNG)
    if young < wanted and (young in _DEFAULTS or young == _room.given):
        _room.given = wanted
        gc.set_threshold(wanted, *older)
