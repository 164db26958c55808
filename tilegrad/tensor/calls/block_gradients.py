"""Gradients of a loss at the end of a loop, block by block (`tensor.storage.loop_blocks`).

Forwards, the results that each block leaves to later ones are computed by a run of its own. Then
the gradients go down from block to block: those of a block are a template over its leaves and the
gradients of its results, and are computed by one run with the sums for parameters so far. What is
inside of a block is computed again for that, and never stored.

So a loop of a new length needs no plan: its blocks came before. A loop of one length is quicker as
a whole, with the plan of its own that the first length has; so has one that comes often.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tilegrad.base.config import gradients as are_recorded
from tilegrad.base.recent import Recent
from tilegrad.base.trace import counters
from tilegrad.ir.uop import prod
from tilegrad.tensor.calls.below import Below, Seed
from tilegrad.tensor.calls.sized_gradients import Backward
from tilegrad.tensor.calls.uploads import moves_to, new_memory
from tilegrad.tensor.handle.gradient import replaces_gradients
from tilegrad.tensor.handle.waiting import Call, Number, Value
from tilegrad.tensor.storage.host_readable import elements_below
from tilegrad.tensor.storage.loop_blocks import Block, Loop, loop_of
from tilegrad.tensor.storage.segments import compute_together

__all__ = ["gradients_in_blocks"]

TemplateOf = Callable[[Below], Backward | None]
Given = Callable[[Below, Backward, Sequence[Any]], list[tuple[Any, Any]]]
# By kind of loop, the lengths that came: the first one, how often each other one came, and how
# often one has to come before it is planned as a whole.
_lengths: Recent[tuple[Any, ...], _Lengths] = Recent(lambda: 64)
_OFTEN, _MOST_LENGTHS = 64, 1 << 12


class _Lengths:
    """The lengths of loops of one kind."""

    def __init__(self, first: int):
        self.whole = {first}
        self.counts: dict[int, int] = {}
        self.often = _OFTEN

    def is_whole(self, length: int) -> bool:
        """Count a loop of this length; whether it is planned as a whole."""
        if length in self.whole:
            return True
        count = self.counts[length] = self.counts.get(length, 0) + 1
        if count >= self.often:
            # The next one has to come twice as often: many lengths do not have a plan each.
            self.often *= 2
            self.whole.add(length)
        if len(self.counts) > _MOST_LENGTHS:
            self.counts.clear()
        return length in self.whole


class _BlockBelow(Below):
    """The calls of a block below its results, whose gradients will be known."""

    def __init__(self, calls: list[Call], roots: list[Call], block: Block, device: str):
        seeds = [Seed(root.dtype, root.shape) for root in roots]
        stops = frozenset([each for each in block.inputs if each.requires_grad])
        self._begin(roots, device, stops, seeds)
        self.calls = calls
        flowing: set[Any] = {*roots}
        for call in reversed(calls):
            if call in flowing:
                inputs = call.inputs or ()
                flowing.update([inputs[at] for at in call.template.flowing(call.slot)])
        self._sign(flowing, None)


class _Leg(NamedTuple):
    """A block, and what is below its results."""

    block: Block
    calls: list[Call]


def gradients_in_blocks(
    below: Below, template_of: TemplateOf, given: Given
) -> list[tuple[Any, Any]] | None:
    """The leaves below a loss, each with its gradient; None where the calls are no loop, or one
    that is planned as a whole.
    """
    if below.stops or below.seeds or below.device != "CPU" or replaces_gradients():
        return None
    loop = loop_of(below.calls)
    if loop is None or _is_whole(loop):
        return None
    token = are_recorded.set(False)
    try:
        legs = _computed(loop)
        return None if legs is None else _descended(legs, below, template_of, given)
    finally:
        are_recorded.reset(token)


def _is_whole(loop: Loop) -> bool:
    known = _lengths.get(loop.kind)
    if known is None:
        known = _lengths.put(loop.kind, _Lengths(loop.length))
    return known.is_whole(loop.length)


def _computed(loop: Loop) -> list[_Leg] | None:
    """The blocks, the results of all but the last one computed."""
    legs: list[_Leg] = []
    arrays: dict[Any, Any] = {}
    for block in loop.blocks:
        calls = block.calls()
        for call in calls:
            for each in call.inputs or ():
                if each.__class__ is Call and each.value is not None:
                    _own_slice(each, arrays)
        legs.append(_Leg(block, calls))
        waiting = [each for each in block.outputs if each.value is None]
        if waiting and not compute_together(waiting):
            return None
    return legs


def _own_slice(leaf: Call, arrays: dict[Any, Any]) -> None:
    """Let a slice of memory be memory of its own: where it lies, in how much, is another thing for
    each step and length.
    """
    value = leaf.value
    assert value is not None
    size = prod(leaf.shape)
    if value.buffer.size == size or leaf.requires_grad or leaf.handle() is not None:
        return
    found = elements_below(leaf)
    if found is not None:
        buffer = new_memory(found, leaf.dtype, size, value.buffer.device)
        if buffer is not None:
            leaf.value, leaf.moves = Value(buffer), moves_to(leaf.shape)


def _descended(
    legs: Sequence[_Leg], whole: Below, template_of: TemplateOf, given: Given
) -> list[tuple[Any, Any]] | None:
    """The gradients of the leaves, from the last block to the first."""
    loss = whole.roots[0]
    totals: dict[Call, Any] = {}
    leaves: dict[int, tuple[Any, Any]] = {}
    for block, calls in reversed(legs):
        roots = [each for each in block.outputs if each in totals]
        if loss in block.steps:
            below: Below = Below(loss, whole.device, None, frozenset(block.inputs))
        elif roots:
            below = _BlockBelow(calls, roots, block, whole.device)
        else:
            continue
        if not below.is_plain:
            return None
        if not below.targets:
            continue
        found = template_of(below)
        if found is None:
            return None
        counters.blocks += 1
        changed: list[Any] = []
        for target, gradient in given(below, found, [totals.pop(root) for root in roots]):
            if target.__class__ is Call:
                known = totals.get(target)
                total = totals[target] = gradient if known is None else known + gradient
            else:
                _, known = leaves.get(id(target), (None, None))
                total = gradient if known is None else known + gradient
                leaves[id(target)] = target, total
            changed.append(total)
        waiting = [each._call for each in changed if each._call is not None]
        if waiting and not compute_together(waiting):
            return None
    return [*leaves.values()]
