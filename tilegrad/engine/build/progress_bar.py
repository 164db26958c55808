"""A note for who waits for a compiler, at a terminal: how many kernels are done of how many.

    tilegrad: compiling 37 of 120 kernels ...

It is written to the standard error, after two seconds, and taken back at the end. Where that is no
terminal nothing is ever written; `PROGRESS=0` is for terminals that are to stay clean.
"""

from __future__ import annotations

import sys
import time
from typing import Self

from tilegrad.base.config import config

__all__ = ["Progress"]

_PATIENCE_S = 2.0
_PAUSE_S = 0.1


class Progress:
    """How far the compilation of `total` kernels is; to be entered, and told."""

    def __init__(self, total: int):
        self._total = total
        self._next = time.monotonic() + _PATIENCE_S
        self._is_shown = False
        self._is_wanted = bool(config.PROGRESS) and total > 1

    def tell(self, done: int) -> None:
        """Show that `done` kernels are done. Several threads may do so."""
        now = time.monotonic()
        if not self._is_wanted or now < self._next or not _is_terminal():
            return
        self._next = now + _PAUSE_S
        self._is_shown = True
        _write(f"\rtilegrad: compiling {done} of {self._total} kernels ...")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._is_shown:
            _write("\r\x1b[K")


def _is_terminal() -> bool:
    # A process may have closed its standard error, or replaced it by anything.
    try:
        return bool(sys.stderr.isatty())
    except (AttributeError, ValueError):
        return False


def _write(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):
        pass
