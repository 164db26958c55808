"""Choice among the shapes that generators propose for a kernel: the least estimated time, and the
text that is to be compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from tilegrad.ir.uop import UOp
from tilegrad.optimize.generators.prepack import take_out
from tilegrad.optimize.generators.shaper import Shaper
from tilegrad.optimize.model.model import Estimate, estimate

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
    is_short: bool | None = None,
) -> None:
    """Shape the kernel by the first of `proposals`, or by the best one where its price is less than
    `share` of that. Each of them moves the kernel of `shaper`; none costs fewer cycles than
    `least`, so that a first one that is near it is taken unseen. Those that are `shorter` have some
    half of its text, and are tried where that would make the difference. Copies of the parameters
    `given` cost nothing; where a choice changes how sums are rounded, it must be none of them, so
    that a captured program computes the same values as the eager one. A shaper for short shapes
    counts text more and prefers no proposal, but where `is_short` says otherwise, and notes where
    that makes a difference.
    """
    given = shaper.given if given is None else given
    if len(proposals) == 1 and not shorter:
        proposals[0]()
        return
    timing = shaper.target.timing
    is_short = shaper.is_short if is_short is None else is_short
    rate = timing.first_code if is_short else timing.code
    before = shaper.ast
    proposals[0]()
    first = _cost(shaper, given)
    text = first.code * rate
    usual, share = share, 1.0 if is_short else share
    others = [] if least + text >= share * first.price(rate) else [*proposals[1:]]
    if text / 2 > (1 - share) * first.price(rate):
        others += shorter
    found = {shaper.ast: first}
    for propose in others:
        shaper.ast = before
        propose()
        if shaper.ast not in found:
            found[shaper.ast] = _cost(shaper, given)
    shaper.ast = _cheapest(found, share, rate)
    if is_short and _cheapest(found, usual, timing.code) is not shaper.ast:
        shaper.was_shortened = True


def _cheapest(costs: Mapping[UOp, Estimate], share: float, rate: float) -> UOp:
    """The first kernel, or the best one of those that cost less than `share` of it."""
    best, *others = costs
    limit = share * costs[best].price(rate)
    for each in others:
        price = costs[each].price(rate)
        if price < limit:
            best, limit = each, price
    return best


def _cost(shaper: Shaper, given: Collection[int]) -> Estimate:
    """The estimate, without the copies of `given`, which are made beforehand."""
    key = shaper.ast, frozenset(given)
    found = shaper.estimates.get(key)
    if found is None:
        ast = take_out(shaper.ast, given)[0] if given else shaper.ast
        found = shaper.estimates[key] = estimate(ast, shaper.target)
    return found
