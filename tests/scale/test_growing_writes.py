"""Six times the writes that wait cost at most 8 times the work, whoever keeps the values between.

Work is counted in lines of Python that run, in all of the package: most walks over versions of
memory are loops that count nothing themselves.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import tilegrad
from tilegrad import Context, Tensor

ROOT = str(Path(tilegrad.__file__).parent)


def lines_of(function: Callable[[], Any]) -> int:
    """How many lines of the package run in a call."""
    count = 0

    def each_line(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return each_line

    def each_call(frame: FrameType, event: str, arg: Any) -> Any:
        return each_line if frame.f_code.co_filename.startswith(ROOT) else None

    before = sys.gettrace()
    sys.settrace(each_call)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


def all_kept(count: int) -> None:
    """Each value is kept, assigned, and read at the end."""
    state, kept = Tensor(np.zeros(4, np.float32)).realize(), []
    for _ in range(count):
        value = state + 1
        kept.append(value)
        state.assign(value)
    Tensor.realize(*kept)
    assert [value.tolist()[0] for value in (kept[0], kept[-1])] == [1, count]


def last_read(count: int) -> None:
    state, kept = Tensor(np.zeros(4, np.float32)).realize(), []
    for _ in range(count):
        kept.append(state + 1)
        state.assign(kept[-1])
    assert state.tolist() == [count] * 4


def rows_written(count: int) -> None:
    rows = Tensor(np.zeros((4, 4), np.float32)).realize()
    for number in range(count):
        rows[number % 4] = rows[(number + 1) % 4] + 1
    rows.realize()


def rows_of_a_function(count: int) -> None:
    """Writes with a gradient."""
    x = Tensor(np.ones((4, 4), np.float32)).requires_grad_()
    rows = Tensor(np.zeros((4, 4), np.float32))
    for number in range(count):
        rows[number % 4] = x[(number + 1) % 4] * 0.5
    rows.sum().backward()
    assert x.grad is not None
    assert x.grad.sum().item() == 8


def swapped(count: int) -> None:
    """Each of two takes the value that the other one had."""
    a, b = Tensor([1.0]).realize(), Tensor([2.0]).realize()
    for _ in range(count):
        old = a + 0
        a.assign(b + 0)
        b.assign(old)
    assert (a.item(), b.item()) == ((1, 2) if count % 2 == 0 else (2, 1))


WRITES = [all_kept, last_read, rows_written, rows_of_a_function, swapped]


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
def test_writes_one_after_the_other(write: Callable[[int], None]) -> None:
    with Context(DISABLE_COMPILER_CACHE=1):
        write(4)
        few, many = (lines_of(lambda count=count: write(count)) for count in (40, 240))
    assert many <= 8 * few
