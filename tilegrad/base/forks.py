"""Locks that a fork waits for: in the child, no thread is left to give one back.

A process is copied as it is when one of its threads forks, with every lock that another thread
holds just then. So the forking thread takes them all first, in the order in which they nest, and
gives them back in both processes: a graph that runs meanwhile is finished before the fork.
"""

from __future__ import annotations

import os
import weakref
from typing import Any, TypeVar

__all__ = ["held_at_fork"]

Lock = TypeVar("Lock")

_locks: list[tuple[int, weakref.ref[Any]]] = []
_taken: list[Any] = []


def held_at_fork(lock: Lock, rank: int) -> Lock:
    """`lock`, which the forking thread holds when the process forks. Where one lock is taken inside
    another, the outer one has the lower rank.
    """
    _locks.append((rank, weakref.ref(lock)))
    if len(_locks) % 64 == 0:
        _locks[:] = [each for each in _locks if each[1]() is not None]
    return lock


def _take() -> None:
    for _, reference in sorted(_locks, key=lambda each: each[0]):
        lock = reference()
        if lock is not None:
            lock.acquire()
            _taken.append(lock)


def _give_back() -> None:
    while _taken:
        _taken.pop().release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_take, after_in_parent=_give_back, after_in_child=_give_back)
