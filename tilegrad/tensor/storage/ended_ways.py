"""Calls that wait hold only the memory of operands that no gradient flows to, not their calls.

    hidden = new.detach()

The view waits, and its operand, which requires a gradient, was computed. The operand's call holds
all that it was computed from, for as long as its gradient may be asked for: so each step of a loop
that carries `hidden` would hold the one before. It cannot be asked for through the view. After a
run the operand of the view is therefore one that has the memory alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from copy import copy
from operator import attrgetter

from tilegrad.tensor.handle.waiting import Call, Input

__all__ = ["end_way", "end_ways", "waiting_on"]


def end_ways(alive: Iterable[Call]) -> None:
    """After a run: as `end_way`, for the results `alive` that still wait and what they need."""
    for call in waiting_on(alive):
        end_way(call)


def waiting_on(alive: Iterable[Call], computed: Collection[Call] = ()) -> list[Call]:
    """The calls of `alive` that wait, but for those `computed`, and those that they need."""
    found = [call for call in alive if call.value is None and call not in computed]
    seen = set(found)
    # The list grows while it is walked.
    for call in found:
        for each in call.inputs or ():
            if each.__class__ is Call and each.value is None and each not in computed:
                if each not in seen:
                    seen.add(each)
                    found.append(each)
    return found


def end_way(call: Call) -> None:
    """Let a call that waits have the memory below each input to which no gradient of it goes,
    instead of the call that computed it.
    """
    inputs = call.inputs or ()
    flowing: Collection[int] | None = None
    for at, each in enumerate(inputs):
        if isinstance(each, Call) and _has_way(each):
            if flowing is None:
                flowing = call.template.flowing(call.slot)
            if at not in flowing:
                inputs = (*inputs[:at], _without_way(each), *inputs[at + 1 :])
    if call.inputs is not None:
        call.inputs = inputs


def _has_way(call: Call) -> bool:
    """Whether a gradient may be asked for by way of a call. An assignment ends it."""
    return bool(call.requires_grad) and call.inputs is not None and not call.is_write


def _without_way(call: Call) -> Call:
    """A call of the same value that no gradient can be asked through: one of the memory, or
    over others like it; the call itself if it stands on nothing that was computed.
    """
    order = [call]
    seen = {call}
    # The list grows while it is walked.
    for each in order:
        for below in (each.inputs or ()) if each.value is None else ():
            if isinstance(below, Call) and below not in seen and _has_way(below):
                seen.add(below)
                order.append(below)
    made: dict[Input, Call] = {}
    for each in sorted(order, key=attrgetter("serial")):
        inputs = each.inputs or ()
        if each.value is not None:
            made[each] = each.of_memory()
        elif any(below in made for below in inputs):
            apart = made[each] = copy(each)
            apart.inputs = tuple([made.get(below, below) for below in inputs])
            apart.node, apart.siblings = None, ()
            apart.requires_grad = apart.is_loss = False
    return made.get(call, call)
