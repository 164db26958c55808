"""Results that a loop takes from one step to the next while it reads something else.

    average = average * 0.99 + x * 0.01
    print(loss.item())

No read needs `average`. Left alone it is one step longer at each read, so that no segment is equal
to the last one, and walks grow with it. So a read also computes what goes on, by calls that it does
not need, from a call that has waited for two runs; and from then on what goes on from such a
*state*. The third or fourth step of the loop is equal to all later ones. A state that is computed
with the read of the next step has not waited for two.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from operator import attrgetter
from typing import Any

from tilegrad.tensor.handle.waiting import Call, Number

__all__ = ["asked_with", "beside", "goes_on", "lengthens", "states_of", "unread_of"]

_by_time = attrgetter("serial")
_MOST_UNREAD = 8


def asked_with(alive: Sequence[Call], asked: Call) -> list[Call]:
    """The results that are to be computed with one that is asked for: with an assignment the losses
    that led to it, and what is asked for together.
    """
    together = asked.pool.together
    return [
        call
        for call in alive
        if (call.is_loss and asked.is_write)
        or (call in together and call is not asked and not call.is_write)
    ]


def goes_on(leaf: Any) -> bool:
    """Whether what stands on a leaf of waiting calls goes on from a state."""
    return leaf.__class__ is Call and leaf.is_state


def states_of(
    alive: Sequence[Call], calls: Sequence[Call], roots: Sequence[Call], since: int
) -> list[Call]:
    """The results among `alive`, made from the serial `since` on, that go on from a state or from
    an earlier call. Values that `roots` need are not among them, as they are memory after the run,
    nor are values made of those alone. All that wait are `calls`.
    """
    needed = _needed(roots)
    found: set[Any] = set()
    for call in sorted(calls, key=_by_time):
        if call in needed:
            continue
        if call.serial < since:
            found.add(call)
            continue
        for each in call.inputs or ():
            if each in found or (each.__class__ is Call and each.is_state):
                found.add(call)
                break
    return [call for call in alive if call in found and call.serial >= since]


def unread_of(alive: Sequence[Call], roots: Sequence[Call], since: int) -> list[Call]:
    """The results among `alive` that have waited for two runs and that `roots` do not need, once
    they are many: a list that a loop appends to (`losses.append(loss.detach())`) would have each of
    its results wait with the memory of its step, and each read walk them all.
    """
    unread = [call for call in alive if call.serial < since and not call.is_write]
    return beside(unread, roots) if len(unread) > _MOST_UNREAD else []


def beside(calls: Sequence[Call], roots: Sequence[Call]) -> list[Call]:
    """Those of `calls` that are not on the way to `roots`: what is, is cached in any case."""
    if not calls:
        return []
    needed = _needed(roots)
    return [call for call in calls if call not in needed]


def _needed(roots: Sequence[Call]) -> set[Any]:
    """The calls on the way to `roots`, and these."""
    below: list[Any] = [*roots]
    needed = set(below)
    for call in below:
        for each in call.inputs or ():
            if each.__class__ is Call and each.value is None and each not in needed:
                needed.add(each)
                below.append(each)
    return needed


def lengthens(call: Call) -> bool:
    """Whether a call extends the result that the same line of the user gave before."""
    if call.inputs is None or call.is_write or call.is_loss or call.requires_grad:
        return False
    if len(call.entry) != 1:
        return False
    (entry,), count = call.entry, prod(call.shape)
    for each in call.inputs:
        if isinstance(each, Number) or each.dtype is not call.dtype or prod(each.shape) >= count:
            continue
        if entry in (each.entry if isinstance(each, Call) else each.origin or ()):
            return True
    return False
