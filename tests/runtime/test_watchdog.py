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


def test_a_lost_device_is_told_with_what_was_launched_since_it_last_answered() -> None:
    """The driver finds out at a wait; each name stands once, and not all of many."""
    passed, is_lost = set[int](), False
    serial = iter(range(1000))

    def has_passed(mark: int) -> bool:
        if is_lost and mark not in passed:
            raise DeviceError("cuEventQuery: CUDA_ERROR_ILLEGAL_ADDRESS", rule="memory is lost")
        passed.add(mark)
        return True

    watchdog = Watchdog("QUEUE", lambda: next(serial), has_passed)
    watchdog.launched("E_1")
    watchdog.wait()
    is_lost = True
    for name in ("r_2", "E_3", "r_2"):
        watchdog.launched(name)
    for _ in range(2):
        with pytest.raises(DeviceError, match=r"^cuEventQuery: CUDA_ERROR_ILLEGAL") as caught:
            watchdog.wait()
        assert caught.value.details["launched"] == "r_2, E_3"
        assert caught.value.details["rule"] == "memory is lost"
    for number in range(15):
        watchdog.launched(f"E_{number + 4}")
    with pytest.raises(DeviceError) as caught:
        watchdog.wait_for(1000)
    assert str(caught.value.details["launched"]).endswith("E_16, E_17, ...")


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
