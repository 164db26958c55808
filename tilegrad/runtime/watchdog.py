"""Kernels that do not end: who waits for a queue is told, instead of waiting for ever.

A queue runs its launches in their order. After some of them it gets a *mark*, an event of the
driver's, and a thread that waits looks at the oldest one. As long as marks pass, the device works,
however long the queue is. Where none passes for HANG_SECONDS, one of the kernels before the oldest
mark has not ended: the error names them. From then on each wait raises the error soon, until that
kernel ends after all. A driver that answers with an error says so long after the launch; then the
error names what was launched since the last mark that has passed.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from tilegrad.base.config import config
from tilegrad.base.errors import DeviceError
from tilegrad.base.forks import held_at_fork

__all__ = ["Watchdog"]

# Launches from one mark to the next, and marks that are not looked at before one more is made.
_LAUNCHES, _MARKS = 16, 64
# Seconds for which the device is asked without a pause, and the longest pause after them.
_SPIN, _LONGEST = 2e-4, 1e-3
# Seconds that are left to a kernel once it was waited for in vain.
_AGAIN = 0.1


class Watchdog:
    """Waits for one queue of the device `name`. `mark` puts a mark behind all work of the queue,
    `has_passed` says whether the queue has come to it, and `discard` gives it back.
    """

    def __init__(
        self,
        name: str,
        mark: Callable[[], Any],
        has_passed: Callable[[Any], bool],
        discard: Callable[[Any], None] = lambda mark: None,
    ):
        self.name = name
        self._mark, self._has_passed, self._discard = mark, has_passed, discard
        self._lock = held_at_fork(threading.Lock(), 84)
        # The marks that were not seen to pass, each with the kernels before it.
        self._marks: deque[tuple[Any, list[str]]] = deque()
        self._passed = 0
        self._launched: list[str] = []
        self._is_hung = self._has_answered = False

    def launched(self, kernel: str) -> None:
        """Note that `kernel` was launched, or something else put into the queue."""
        self._launched.append(kernel)
        if len(self._launched) >= _LAUNCHES:
            with self._lock:
                self._put_mark()
                while len(self._marks) > _MARKS and self._pass_oldest():
                    pass

    @property
    def is_idle(self) -> bool:
        """Whether all that was launched is known to have ended, so that no wait is needed. A queue
        that has not answered yet counts as busy.
        """
        return self._has_answered and not self._launched and not self._marks

    def mark(self) -> int:
        """Put a mark behind all work of the queue; its number, for `wait`."""
        with self._lock:
            self._put_mark()
            return self._passed + len(self._marks)

    def wait(self, number: int | None = None) -> float:
        """Wait for all work of the queue, or for that before a mark; the seconds.

        Raises DeviceError where the device makes no progress.
        """
        began = time.perf_counter()
        last = self.mark() if number is None else number
        self._wait(lambda: self._passed >= last)
        self._has_answered = True
        return time.perf_counter() - began

    def wait_for(self, mark: Any) -> None:
        """Wait for a mark that the caller made behind some work of the queue, and keeps.

        Raises DeviceError where the device makes no progress.
        """
        self._wait(lambda: self._ask(mark))

    @property
    def is_hung(self) -> bool:
        """Whether a kernel that was waited for in vain still runs: it may still write."""
        if self._is_hung:
            with self._lock:
                while self._pass_oldest():
                    pass
        return self._is_hung

    def _put_mark(self) -> None:
        # The names go first: launches of another thread meanwhile may lie behind the mark.
        kernels, self._launched = self._launched, []
        try:
            mark = self._mark()
        except BaseException:
            self._launched[:0] = kernels
            raise
        self._marks.append((mark, kernels))

    def _pass_oldest(self) -> bool:
        """Forget the oldest mark if it has passed; whether it has."""
        if not self._marks or not self._ask(self._marks[0][0]):
            return False
        mark, _ = self._marks.popleft()
        self._discard(mark)
        self._passed += 1
        self._is_hung = False
        return True

    def _ask(self, mark: Any) -> bool:
        """Whether the queue has come to a mark.

        Raises the driver's error about a device that is lost, with the kernels that may be why.
        """
        try:
            return self._has_passed(mark)
        except DeviceError as error:
            raise DeviceError(error.headline, **self.suspects(), **error.details) from None

    def suspects(self) -> dict[str, str]:
        """The kernels that may be why a device is lost, as a detail of an error: those launched
        since it last answered.
        """
        waiting = [kernel for _, kernels in self._marks for kernel in kernels]
        names = [*dict.fromkeys(waiting + self._launched)]
        shown = ", ".join(names[:_LAUNCHES]) + (", ..." if len(names) > _LAUNCHES else "")
        return {"launched": shown} if names else {}

    def _wait(self, is_done: Callable[[], bool]) -> None:
        started = progress = time.monotonic()
        pause = 1e-5
        while True:
            with self._lock:
                while self._pass_oldest():
                    progress = time.monotonic()
            if is_done():
                return
            now, patience = time.monotonic(), config.HANG_SECONDS
            limit = min(patience, _AGAIN) if self._is_hung else patience
            if patience and now - progress > limit:
                self._is_hung = True
                raise self._hung(patience)
            if now - started > _SPIN:
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST)

    def _hung(self, patience: int) -> DeviceError:
        with self._lock:
            kernels = self._marks[0][1] if self._marks else self._launched
            names = ", ".join(dict.fromkeys(kernels))
        return DeviceError(
            f"{self.name}: a kernel has not ended for {patience} s",
            kernel=names or "none is known: a copy",
            rule="memory that it may still write to stays allocated",
            remedy="start the process anew; TILEGRAD_HANG_SECONDS=0 waits for ever",
        )
