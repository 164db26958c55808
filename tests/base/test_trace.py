"""Counters and the record of rewrites."""

from __future__ import annotations

import threading

from tilegrad.base.trace import (
    Counters,
    GlobalCounters,
    PassRecord,
    Rewrite,
    recording,
    trace,
)


def test_counters_start_again() -> None:
    counters = Counters(rewrites=3, compiles=2)
    counters.reset()
    assert counters == Counters()


def test_memory_in_use_survives_a_reset() -> None:
    kept = vars(GlobalCounters).copy()
    try:
        GlobalCounters.kernel_count = 5
        GlobalCounters.mem_used = 640
        GlobalCounters.reset()
        assert (GlobalCounters.kernel_count, GlobalCounters.mem_used) == (0, 640)
    finally:
        for name, value in kept.items():
            if isinstance(value, (int, float)):
                setattr(GlobalCounters, name, value)


def test_recording_is_per_block() -> None:
    assert trace.get() is None
    with recording() as outer:
        outer.append(PassRecord("a", None))
        with recording() as inner:
            assert trace.get() is inner
            assert inner == []
        assert trace.get() is outer
    assert trace.get() is None
    assert [record.name for record in outer] == ["a"]


def test_recording_is_per_thread() -> None:
    seen: list[object] = []
    with recording():
        thread = threading.Thread(target=lambda: seen.append(trace.get()))
        thread.start()
        thread.join()
    assert seen == [None]


def test_steps() -> None:
    record = PassRecord("pass", "before")
    record.steps.append(Rewrite("rule", "x + 0", "x"))
    assert (record.steps[0].rule, record.after) == ("rule", None)
