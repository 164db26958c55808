"""Whether other threads may have tensors."""

from __future__ import annotations

import threading
import weakref

from tilegrad.tensor.handle.living import pools

__all__ = ["is_only_thread"]


# Threads that ran before there were tensors, as those of a notebook do: they have none.
_older_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet(threading.enumerate())
# The running thread, how many had tensors, and all threads, when the answer was yes.
_alone: tuple[threading.Thread | None, int, list[threading.Thread]] = (None, 0, [])


def is_only_thread() -> bool:
    """Whether no other thread runs that may have tensors: none began after this module was loaded,
    but for those of this package, and none had any.
    """
    global _alone
    if threading.active_count() == 1:
        return True
    threads = threading.enumerate()
    mine = threading.current_thread()
    state = mine, len(pools), threads
    if state == _alone:
        return True
    for thread in threads:
        is_older = thread in _older_threads or thread.name.startswith("tilegrad ")
        if thread is not mine and not is_older:
            return False
    if any(pool.thread is not mine and pool.thread.is_alive() for pool in pools):
        return False
    _alone = state
    return True
