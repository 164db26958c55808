"""Trace functions of threads (`sys.settrace`), installed by one thread at a time."""

from __future__ import annotations

import sys
import threading
from typing import Any

from tilegrad.base.forks import held_at_fork

__all__ = ["install_tracer"]

_lock = held_at_fork(threading.RLock(), 95)


def install_tracer(tracer: Any) -> None:
    """Let `tracer` be the trace function of this thread; None for none.

    CPython raises RuntimeError where a second thread installs one meanwhile: the release of the
    function that was there before may let other threads run.
    """
    with _lock:
        sys.settrace(tracer)
