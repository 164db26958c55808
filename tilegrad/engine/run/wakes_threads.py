"""Whether the runs of a plan wake other threads: by their times with them and without.

A thread that sleeps takes 100 microseconds to come, and one that watches where another library's
threads do so too takes turns with these. How long a run takes is not known before: matrix products
do a million operations in 15 microseconds. So some runs are timed alone, and where they end before
a thread comes, that is it. Else as many are timed with threads, and the better way is taken, by the
median, as both have runs that something else came between. The trial is repeated after four times
as many runs, so that no chance of the first ones lasts.
"""

from __future__ import annotations

import math
from typing import Final

__all__ = ["WakesThreads"]

# The least run alone that other threads may help.
_WAKING_S = 1e-4
# Runs of a trial each way, and how many times as many runs later the next trial comes.
_RUNS: Final = 5
_LATER: Final = 4


class WakesThreads:
    """The choice for one plan: `next_does` is asked before each run, and `took` told after it."""

    __slots__ = ("_alone_s", "_does", "_runs", "_shared_s", "_trial")

    def __init__(self) -> None:
        self._runs = 0
        # The first run of this trial or the next one.
        self._trial: float = 0
        self._does = False
        self._alone_s: list[float] = []
        self._shared_s: list[float] = []

    @property
    def next_does(self) -> bool:
        """Whether the next run wakes threads."""
        at = self._runs - self._trial
        return at >= _RUNS if at >= 0 else self._does

    def took(self, spent_s: float) -> None:
        """Note the time of a run that went as `next_does` said."""
        at = self._runs - self._trial
        self._runs += 1
        if at < 0:
            return
        (self._alone_s if at < _RUNS else self._shared_s).append(spent_s)
        if len(self._alone_s) == _RUNS and min(self._alone_s) <= _WAKING_S:
            self._decide(does=False, trial=math.inf)
        elif len(self._shared_s) == _RUNS:
            middle = _RUNS // 2
            does = sorted(self._shared_s)[middle] < sorted(self._alone_s)[middle]
            self._decide(does=does, trial=_LATER * self._runs)

    def _decide(self, *, does: bool, trial: float) -> None:
        self._does, self._trial = does, trial
        self._alone_s, self._shared_s = [], []
