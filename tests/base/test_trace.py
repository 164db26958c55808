"""Counters and the record of rewrites."""

from __future__ import annotations

import threading

import pytest

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


@pytest.mark.usefixtures("nothing_known")
def test_memory_in_use_survives_a_reset() -> None:
    before, work = GlobalCounters.mem_used, GlobalCounters.counts
    try:
        GlobalCounters.kernel_count = 5
        GlobalCounters.take_memory(640)
        GlobalCounters.reset()
        assert (GlobalCounters.kernel_count, GlobalCounters.mem_used) == (0, before + 640)
    finally:
        GlobalCounters.take_memory(-640)
        vars(GlobalCounters).update(work)


@pytest.mark.usefixtures("nothing_known")
def test_memory_that_many_threads_take_and_give_back_is_counted() -> None:
    before = GlobalCounters.mem_used

    def work() -> None:
        for _ in range(9_000):
            GlobalCounters.take_memory(64)
            GlobalCounters.take_memory(-63)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert GlobalCounters.mem_used == before + 36_000
    GlobalCounters.take_memory(-36_000)


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
