"""Which way the runs of a plan go, with threads or without, follows from what both took."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tilegrad.engine.run.wakes_threads import WakesThreads


def ways(alone_s: Iterator[float], shared_s: Iterator[float], runs: int) -> list[bool]:
    """Whether each of `runs` runs wakes threads, where runs take these seconds."""
    wakes = WakesThreads()
    found: list[bool] = []
    for _ in range(runs):
        does = wakes.next_does
        found.append(does)
        wakes.took(next(shared_s if does else alone_s))
    return found


def test_a_run_that_ends_before_a_thread_comes_wakes_none() -> None:
    times = itertools.chain([3e-3, 2e-3, 8e-5], itertools.repeat(5e-3))
    assert not any(ways(times, itertools.repeat(1e-6), 1000))


def test_the_quicker_way_is_taken_whatever_came_between_a_run() -> None:
    noisy = itertools.cycle([4e-4, 9e-3, 4e-4, 4e-4, 9e-3])
    for other, does in ((2e-4, True), (8e-4, False)):
        found = ways(noisy, itertools.repeat(other), 36)
        assert found[:10] == [False] * 5 + [True] * 5
        assert set(found[10:]) == {does}


def test_a_later_trial_corrects_the_first_one() -> None:
    first = itertools.chain([9e-3] * 5, itertools.repeat(4e-4))
    found = ways(first, itertools.repeat(8e-4), 400)
    assert set(found[10:40]) == {True}
    assert found[40:50] == [False] * 5 + [True] * 5
    assert set(found[50:200]) == {False}
    assert sum(found) == 5 + 30 + 5 + 5
