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
from itertools import accumulate
from typing import Any

from tilegrad.base.config import gradients as are_recorded
from tilegrad.base.recent import Recent
from tilegrad.base.trace import counters
from tilegrad.ir.uop import prod
from tilegrad.tensor.calls.below import Below, Seed
from tilegrad.tensor.calls.sized_gradients import Backward
from tilegrad.tensor.calls.uploads import moves_to, new_memory, uploaded
from tilegrad.tensor.handle.gradient import replaces_gradients
from tilegrad.tensor.handle.waiting import Call, Value
from tilegrad.tensor.storage.host_readable import elements_below, known_elements
from tilegrad.tensor.storage.loop_blocks import Block, Loop, loop_of
from tilegrad.tensor.storage.segments import compute_together

__all__ = ["gradients_in_blocks"]

TemplateOf = Callable[[Below], Backward | None]
Given = Callable[[Below, Backward, Sequence[Any]], list[tuple[Any, Any]]]
# By kind of loop, the lengths that came: the first one, how often each other one came, and how
# often one has to come before it is planned as a whole.
_lengths: Recent[tuple[Any, ...], _Lengths] = Recent(lambda: 64)
_OFTEN, _MOST_LENGTHS = 64, 1 << 12
# Fewer calls have a plan of their own sooner.
_FEWEST_CALLS = 128


class _Lengths:
    """The lengths of loops of one kind."""

    def __init__(self, first: tuple[int, ...]):
        self.whole = {first}
        self.counts: dict[tuple[int, ...], int] = {}
        self.often = _OFTEN

    def is_whole(self, length: tuple[int, ...]) -> bool:
        """Count loops of this length; whether they are planned as a whole."""
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

    def __init__(self, roots: list[Call], block: Block, device: str):
        seeds = [Seed(root.dtype, root.shape) for root in roots]
        self._begin(roots, device, _stops_of(block), seeds)
        self.calls = block.calls()
        flowing: set[Any] = {*roots}
        for call in reversed(self.calls):
            if call in flowing:
                inputs = call.inputs or ()
                flowing.update([inputs[at] for at in call.template.flowing(call.slot)])
        self._sign(flowing, None)


def _stops_of(block: Block) -> frozenset[Call]:
    return frozenset([each for each in block.inputs if each.requires_grad])


def gradients_in_blocks(
    below: Below, template_of: TemplateOf, given: Given
) -> list[tuple[Any, Any]] | None:
    """The leaves below a loss, each with its gradient; None where the calls are no loop, or one
    that is planned as a whole.
    """
    if below.stops or below.seeds or below.device != "CPU" or replaces_gradients():
        return None
    if len(below.calls) < _FEWEST_CALLS:
        return None
    loop = loop_of(below.calls)
    if loop is None or _is_whole(loop):
        return None
    token = are_recorded.set(False)
    try:
        is_computed = _compute(loop.blocks)
        return _descended(loop.blocks, below, template_of, given) if is_computed else None
    finally:
        are_recorded.reset(token)


def _is_whole(loop: Loop) -> bool:
    known = _lengths.get(loop.kind)
    if known is None:
        known = _lengths.put(loop.kind, _Lengths(loop.lengths))
    return known.is_whole(loop.lengths)


def _compute(blocks: Sequence[Block]) -> bool:
    """Compute the results of all blocks but the last one; whether that could be done."""
    for block in blocks:
        for call in block.calls():
            for each in call.inputs or ():
                if each.__class__ is Call:
                    _own_slice(each)
        waiting = [each for each in block.outputs if each.value is None]
        if block.is_join and waiting:
            if not _join(*waiting):
                return False
        elif waiting and not compute_together(waiting):
            return False
    return True


def _join(call: Call) -> bool:
    """Let the host join the inputs of a call; whether it could."""
    import numpy

    arrays = [elements_below(each) for each in call.inputs or ()]
    if any(each is None for each in arrays):
        return False
    axis, is_new = call.template.join or (0, False)
    whole: Any = numpy.stack(arrays, axis) if is_new else numpy.concatenate(arrays, axis)
    buffer = new_memory(whole, call.dtype, whole.size, "CPU")
    if buffer is None:
        return False
    call.value, call.moves = Value(buffer), moves_to(call.shape)
    return True


def _slices(call: Call, gradient: Any) -> list[tuple[Call, Any]] | None:
    """The inputs of a call that joins them, each with its slice of the gradient in memory."""
    import numpy

    whole = known_elements(gradient)
    if whole is None:
        return None
    axis, is_new = call.template.join or (0, False)
    inputs = call.inputs or ()
    sizes = [1 if is_new else each.shape[axis] for each in inputs]
    found: list[tuple[Call, Any]] = []
    for each, part in zip(inputs, numpy.split(whole, [*accumulate(sizes)][:-1], axis)):
        while each.template.is_view:
            each = each.inputs[0]
        made = uploaded(gradient, part.reshape(each.shape), call.dtype)
        if made is None:
            return None
        found.append((each, made))
    return found


def _own_slice(leaf: Call) -> None:
    """Let a slice of memory be memory of its own: where it lies, in how much, is another thing for
    each step and length.
    """
    value, size = leaf.value, prod(leaf.shape)
    if value is None and not leaf.template.is_view:
        return
    if (value is not None and value.buffer.size == size) or leaf.requires_grad:
        return
    # A view that somebody holds shows what is written to the memory.
    found = elements_below(leaf) if leaf.handle() is None else None
    if found is not None:
        buffer = new_memory(found, leaf.dtype, size, "CPU")
        if buffer is not None:
            leaf.value, leaf.moves = Value(buffer), moves_to(leaf.shape)


def _descended(
    blocks: Sequence[Block], whole: Below, template_of: TemplateOf, given: Given
) -> list[tuple[Any, Any]] | None:
    """The gradients of the leaves, from the last block to the first."""
    loss = whole.roots[0]
    totals: dict[Call, Any] = {}
    leaves: dict[int, tuple[Any, Any]] = {}
    for block in reversed(blocks):
        roots = [each for each in block.outputs if each in totals]
        if block.is_join:
            slices = _slices(roots[0], totals.pop(roots[0])) if roots else []
            if slices is None:
                return None
            for target, gradient in slices:
                known = totals.get(target)
                totals[target] = gradient if known is None else known + gradient
            continue
        if loss in block.steps:
            below: Below = Below(loss, whole.device, None, _stops_of(block))
        elif roots:
            below = _BlockBelow(roots, block, whole.device)
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
