"""Who waits at a terminal is told how many kernels are compiled."""

from __future__ import annotations

import io
import re
import sys
from typing import Any

import pytest

from tilegrad import Context, Tensor
from tilegrad.engine.build import kernels


class Screen(io.StringIO):
    def __init__(self, is_terminal: bool):
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal


def written(monkeypatch: pytest.MonkeyPatch, rows: int, *, terminal: bool, **switches: Any) -> str:
    """What is written while four kernels are compiled, without patience."""
    screen = Screen(terminal)
    monkeypatch.setattr(kernels, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(kernels, "_PAUSE_S", 0.0)
    monkeypatch.setattr(sys, "stderr", screen)
    x = Tensor.ones(rows, 3).contiguous().realize()
    screen.truncate(0)
    with Context(DISABLE_COMPILER_CACHE=1, **switches):
        (((x - x.max(0)).exp().sum(0) - x.mean()).max() + 1).sqrt().realize()
    return screen.getvalue()


def test_a_terminal_shows_how_many_are_done_and_is_clean_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = written(monkeypatch, 57, terminal=True)
    assert re.search("\rtilegrad: compiling [1-4] of ", text)
    assert text.endswith("\r\x1b[K")


def test_what_is_no_terminal_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert written(monkeypatch, 58, terminal=False) == ""


def test_the_switch_keeps_a_terminal_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    assert written(monkeypatch, 59, terminal=True, PROGRESS=0) == ""


def test_a_short_wait_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(is_terminal=True)
    monkeypatch.setattr(sys, "stderr", screen)
    with kernels.Progress(10) as note:
        note.tell(3)
    assert screen.getvalue() == ""
