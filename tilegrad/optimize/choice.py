"""Of several shapes that generators propose for a kernel, the one that costs least: by the estimate
of its time, and by the text that is to be compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

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
    shorter: Sequence[Callable[[], object]] = (),
    given: Collection[int] | None = None,
) -> None:
    """Shape the kernel by the first of `proposals`, or by the best one where its price is less than
    `share` of that. Each of them moves the kernel of `shaper`; none costs fewer cycles than
    `least`, so that a first one that is near it is taken unseen. Those that are `shorter` have some
    half of its text, and are tried where that would make the difference. Copies of the parameters
    `given` cost nothing; where a choice changes how sums are rounded, it must be none of them, so
    that a captured program computes what the eager one does.
    """
    given = shaper.given if given is None else given
    if len(proposals) == 1 and not shorter:
        proposals[0]()
        return
    before = shaper.ast
    proposals[0]()
    cycles, text = _price(shaper, given)
    best, limit = shaper.ast, share * (cycles + text)
    others = [] if least + text >= limit else [*proposals[1:]]
    if text / 2 > (1 - share) * (cycles + text):
        others += shorter
    seen = {best}
    for propose in others:
        shaper.ast = before
        propose()
        if shaper.ast in seen:
            continue
        seen.add(shaper.ast)
        price = sum(_price(shaper, given))
        if price < limit:
            best, limit = shaper.ast, price
    shaper.ast = best


def _price(shaper: Shaper, given: Collection[int]) -> tuple[float, float]:
    """The cycles of a launch by the estimate, without the copies of `given`, which are made
    beforehand, and its share in compiling the kernel's text.
    """
    ast = take_out(shaper.ast, given)[0] if given else shaper.ast
    found = estimate(ast, shaper.target)
    return found.cycles, found.code * shaper.target.timing.code
