"""The bar, and the loop that Ctrl-C ends."""

from __future__ import annotations

import io
import os
import signal
import threading

import pytest

from tilegrad.base.errors import ConfigError
from tilegrad.tools import progress
from tilegrad.tools.progress import Progress, interruptible


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_file_gets_ten_lines_and_the_last() -> None:
    out = io.StringIO()
    with Progress(95, out) as bar:
        for number in range(1, 96):
            bar.show(number, f"loss {number}")
    lines = out.getvalue().splitlines()
    assert len(lines) == 10
    assert lines[-1].startswith("[========================] 95/95 loss 95 0:00")


def test_a_terminal_is_rewritten_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_PAUSE_S", 0.0)
    monkeypatch.setenv("COLUMNS", "40")
    out = Terminal()
    with Progress(2, out) as bar:
        bar.show(1, "a text that is longer than the window")
        bar.show(2, "b")
    first, second = out.getvalue().split("\r")[1:]
    assert len(first) == 39
    assert second.rstrip().startswith("[========================] 2/2 b")
    assert len(second) == 40 and second.endswith("\n")


def test_a_terminal_is_not_flooded() -> None:
    out = Terminal()
    with Progress(100_000, out) as bar:
        for number in range(1, 5001):
            bar.show(number, "")
    assert out.getvalue().count("\r") < 100


def test_no_steps_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1 step, not 0"):
        Progress(0)


def test_the_first_interrupt_is_noted_and_the_second_raises() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interruptible() as interrupted:
        assert not interrupted
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupted
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_another_thread_only_runs_on() -> None:
    seen: list[bool] = []

    def work() -> None:
        with interruptible() as interrupted:
            seen.append(bool(interrupted))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False]
