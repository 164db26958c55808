"""Of several shapes that generators propose for a kernel, the one with the least estimate."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilegrad.optimize.model import estimate
from tilegrad.optimize.prepack import take_out
from tilegrad.optimize.shaper import Shaper

__all__ = ["CLEAR", "choose"]

# Tuning, worth shown by `bench/corpus.py`.
# The largest ratio of estimates at which a proposal replaces the first one, the heuristic's: those
# that are nearer are as often slower as faster.
CLEAR = 0.85


def choose(
    shaper: Shaper,
    proposals: Sequence[Callable[[], object]],
    share: float = CLEAR,
    least: float = 0.0,
) -> None:
    """Shape the kernel by the first of `proposals`, or by the best one where its estimate is less
    than `share` of that. Each of them moves the kernel of `shaper`; none takes fewer cycles than
    `least`, so that a first one that is near it is taken unseen.
    """
    if len(proposals) == 1:
        proposals[0]()
        return
    before = shaper.ast
    best, limit = before, math.inf
    for number, propose in enumerate(proposals):
        shaper.ast = before
        propose()
        cycles = _cycles(shaper)
        if number == 0:
            best, limit = shaper.ast, share * cycles
            if least >= limit:
                break
        elif cycles < limit:
            best, limit = shaper.ast, cycles
    shaper.ast = best


def _cycles(shaper: Shaper) -> float:
    """The estimate, without the copies that are made beforehand."""
    ast = take_out(shaper.ast, shaper.given)[0] if shaper.given else shaper.ast
    return estimate(ast, shaper.target).cycles
