"""A long run's own line: a bar that is rewritten in place on a terminal, and a line now and then
where the output is a file.

    with Progress(steps) as bar:
        for number in range(1, steps + 1):
            ...
            bar.show(number, f"loss {loss:.4f}")
"""

from __future__ import annotations

import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TextIO

from tilegrad.base.errors import ConfigError

__all__ = ["Interrupt", "Progress", "interruptible"]

_BAR = 24
# A terminal is written to no more often: a fast loop would spend its time on it.
_PAUSE_S = 0.05
# Where the output is a file: number of lines for a whole run.
_LINES = 10


class Progress:
    """The bar of a run of `total` steps, written to `stream` (by default standard output)."""

    def __init__(self, total: int, stream: TextIO | None = None):
        if total < 1:
            raise ConfigError(f"progress: a run has at least 1 step, not {total}")
        self.total = total
        self._stream = stream if stream is not None else sys.stdout
        self._is_terminal = self._stream.isatty()
        self._start = time.perf_counter()
        self._last = -_PAUSE_S
        self._lines = 0
        self._width = 0

    def show(self, number: int, text: str) -> None:
        """Say that `number` steps are done; `text` stands behind the bar."""
        now = time.perf_counter() - self._start
        if self._is_terminal:
            if now - self._last < _PAUSE_S and number < self.total:
                return
            self._last = now
        else:
            if number * _LINES // self.total <= self._lines:
                return
            self._lines = number * _LINES // self.total
        left = now / max(number, 1) * (self.total - number)
        done = "=" * (_BAR * number // self.total)
        line = f"[{done:{_BAR}s}] {number}/{self.total} {text} {_clock(now)} <{_clock(left)}"
        if self._is_terminal:
            # Lines longer than the window would wrap, and stay.
            line = line[: shutil.get_terminal_size().columns - 1]
            self._stream.write("\r" + line.ljust(self._width))
            self._width = len(line)
        else:
            self._stream.write(line + "\n")
        self._stream.flush()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        if self._width:
            self._stream.write("\n")
            self._stream.flush()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


class Interrupt:
    """Whether Ctrl-C was pressed; false until then."""

    def __init__(self) -> None:
        self._pressed = threading.Event()

    def __bool__(self) -> bool:
        return self._pressed.is_set()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self:
            raise KeyboardInterrupt
        self._pressed.set()


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Let a loop end where it likes at Ctrl-C, and not in the midst of a step. The second Ctrl-C
    raises KeyboardInterrupt as ever.

        with interruptible() as interrupted:
            while not interrupted: ...

    Outside the main thread, which alone sees Ctrl-C, it does nothing.
    """
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    before = signal.signal(signal.SIGINT, interrupt._handle)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)
