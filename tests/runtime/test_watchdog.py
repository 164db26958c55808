"""Waiting for a queue that a list stands for: what is known of it, and what is not forgotten."""

from __future__ import annotations

import pytest

from tilegrad.base.errors import DeviceError
from tilegrad.runtime.watchdog import Watchdog


class Queue:
    """Marks pass at once; the driver may refuse one."""

    def __init__(self) -> None:
        self.is_lost = False
        self.marks = 0
        self.watchdog = Watchdog("QUEUE", self._mark, lambda mark: True)

    def _mark(self) -> int:
        if self.is_lost:
            raise DeviceError("the device is lost")
        self.marks += 1
        return self.marks


def test_a_queue_is_idle_once_it_has_answered_until_something_is_launched() -> None:
    queue = Queue()
    assert not queue.watchdog.is_idle
    assert queue.watchdog.wait() >= 0
    assert queue.watchdog.is_idle
    queue.watchdog.launched("E_4")
    assert not queue.watchdog.is_idle
    queue.watchdog.wait()
    assert queue.watchdog.is_idle
    assert queue.marks == 2


def test_a_queue_whose_wait_failed_is_not_idle() -> None:
    """The next one who waits is told again."""
    queue = Queue()
    queue.watchdog.wait()
    queue.watchdog.launched("E_4")
    queue.is_lost = True
    for _ in range(2):
        with pytest.raises(DeviceError, match="lost"):
            queue.watchdog.wait()
        assert not queue.watchdog.is_idle
    queue.is_lost = False
    queue.watchdog.wait()
    assert queue.watchdog.is_idle


def test_a_launch_behind_the_mark_is_not_forgotten() -> None:
    """Another thread launches while the mark is made."""
    queue = Queue()
    mark = queue.watchdog._mark

    def marked() -> int:
        made = int(mark())
        queue.watchdog._launched.append("E_8")
        return made

    queue.watchdog._mark = marked
    queue.watchdog.launched("E_4")
    queue.watchdog.wait()
    assert not queue.watchdog.is_idle
