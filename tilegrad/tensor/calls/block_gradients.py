"""Gradients of a loss at the end of a loop, block by block (`tensor.storage.block_runs`).

Forwards, the results that each block leaves to later ones are computed by a run of its own. Then
the gradients go down from block to block: those of a block are a template over its leaves and the
gradients of its results, and are computed by one run with the sums for parameters so far. The
inside of a block is computed again for that, and never stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from tilegrad.base.config import gradients as are_recorded
from tilegrad.base.trace import counters
from tilegrad.ir.uop import UOp
from tilegrad.tensor.calls.below import Below, Seed
from tilegrad.tensor.calls.given_gradients import sum_of_gradients
from tilegrad.tensor.calls.sized_gradients import Backward
from tilegrad.tensor.calls.uploads import uploaded
from tilegrad.tensor.handle.gradient import replaces_gradients
from tilegrad.tensor.handle.waiting import Call
from tilegrad.tensor.storage.block_runs import blocks_of, compute_blocks, note_length
from tilegrad.tensor.storage.host_readable import known_elements
from tilegrad.tensor.storage.loop_blocks import CallBlock
from tilegrad.tensor.storage.loop_slices import LoopSlices
from tilegrad.tensor.storage.segments import compute_together

__all__ = ["gradients_in_blocks", "loop_below", "note_loop"]

TemplateOf = Callable[[Below], Backward | None]
Given = Callable[[Below, Backward, Sequence[Any]], list[tuple[Any, Any]]]


class _BlockBelow(Below):
    """The calls of a block below its results, whose gradients will be known."""

    def __init__(self, roots: list[Call], block: CallBlock, device: str):
        seeds = [Seed(root.dtype, root.shape) for root in roots]
        self._begin(roots, device, _stops_of(block), seeds)
        self.calls = block.calls()
        flowing: set[Any] = {*roots}
        for call in reversed(self.calls):
            if call in flowing:
                inputs = call.inputs or ()
                flowing.update([inputs[at] for at in call.template.flowing(call.slot)])
        self._sign(flowing, None)


def _stops_of(block: CallBlock) -> frozenset[Call]:
    return frozenset([each for each in block.inputs if each.requires_grad])


class _Totals:
    """The gradients so far: of results of blocks, and of leaves, by identity."""

    def __init__(self) -> None:
        self.of_calls: dict[Call, Any] = {}
        self.of_leaves: dict[int, tuple[Any, Any]] = {}

    def add(self, target: Any, gradient: Any, *, is_first: bool = True) -> Any:
        """Add the gradient of a call or a leaf; the sum. Unless it `is_first`, that of a leaf is
        added to zeros in memory: the run of a block is the same whatever came before. None where
        there is no room for these.
        """
        if target.__class__ is Call:
            known = self.of_calls.get(target)
            total = _sum(known, gradient)
            self.of_calls[target] = total
        else:
            _, known = self.of_leaves.get(id(target), (None, None))
            if known is None and not is_first:
                known = _zeros(gradient)
                if known is None:
                    return None
            total = _sum(known, gradient)
            self.of_leaves[id(target)] = target, total
        return total


def _sum(known: Any, gradient: Any) -> Any:
    return gradient if known is None else sum_of_gradients(known, gradient)


def _zeros(like: Any) -> Any | None:
    import numpy

    return uploaded(like, numpy.zeros(like.shape, f"u{like.dtype.itemsize}"), like.dtype)


def loop_below(below: Below) -> list[CallBlock] | None:
    """The blocks in which the gradients of a loss are to be computed; None where the calls are no
    loop, or one that is planned as a whole.
    """
    if below.stops or below.seeds or replaces_gradients():
        return None
    return blocks_of(below.calls, below.device, has_gradients=True)


def note_loop(below: Below) -> None:
    """Note the length of a loop whose gradients the nodes tell, as some of its calls have none so
    far: it is the first one.
    """
    if not (below.stops or below.seeds or replaces_gradients()):
        note_length(below.calls, below.device, has_gradients=True)


def gradients_in_blocks(
    below: Below, blocks: list[CallBlock], template_of: TemplateOf, given: Given
) -> list[tuple[Any, Any]] | None:
    """The leaves below a loss, each with its gradient; None where the blocks do not tell them. The
    calls may stand on other memory then.
    """
    token = are_recorded.set(False)
    slices = LoopSlices()
    try:
        apart = [each for each, at in below.leaves.items() if at not in below.targets]
        nodes = [each for each in apart if isinstance(each, UOp)]
        if not compute_blocks(blocks, compute_together, slices, nodes):
            return None
        totals = _Totals()
        for block in reversed(blocks):
            root = below.roots[0] if block is blocks[-1] else None
            if not _gather(block, slices, totals):
                return None
            if not _descend(block, root, below.device, totals, template_of, given):
                return None
        return [*totals.of_leaves.values()]
    finally:
        slices.restore()
        are_recorded.reset(token)


def _gather(block: CallBlock, slices: LoopSlices, totals: _Totals) -> bool:
    """Gather the gradients of slices of the results of a block; whether that could be done."""
    for sequence in slices.sequences(block):
        like = next(
            (totals.of_calls[each] for each in slices.leaves(sequence) if each in totals.of_calls),
            None,
        )
        if like is None:
            continue
        array = slices.gathered(sequence, totals.of_calls)
        made = None if array is None else uploaded(like, array, sequence.dtype)
        if made is None:
            return False
        totals.add(sequence, made)
    return True


def _descend(
    block: CallBlock,
    loss: Call | None,
    device: str,
    totals: _Totals,
    template_of: TemplateOf,
    given: Given,
) -> bool:
    """Let the gradients of the results of a block, or of the `loss` in it, go on to what it stands
    on; False where the calls do not tell them.
    """
    roots = [each for each in block.outputs if each in totals.of_calls]
    if block.is_join:
        return _pass_slices(roots, totals)
    if loss is None and not roots:
        return True
    if loss is None:
        below: Below = _BlockBelow(roots, block, device)
    else:
        below = Below(loss, device, None, _stops_of(block))
    if not below.is_plain or not below.targets:
        return below.is_plain
    found = template_of(below)
    if found is None:
        return False
    counters.blocks += 1
    seeds = [totals.of_calls.pop(root) for root in roots]
    changed = [
        totals.add(target, gradient, is_first=loss is not None)
        for target, gradient in given(below, found, seeds)
    ]
    if any(each is None for each in changed):
        return False
    waiting = [each._call for each in changed if each._call is not None]
    return not waiting or compute_together(waiting)


def _pass_slices(roots: Sequence[Call], totals: _Totals) -> bool:
    """Let the gradient of a list that was joined go to what it was made of, slice by slice."""
    import numpy

    for call in roots:
        gradient = totals.of_calls.pop(call)
        whole = known_elements(gradient)
        if whole is None:
            return False
        axis, is_new = call.template.join or (0, False)
        inputs: Any = call.inputs
        sizes = [1 if is_new else each.shape[axis] for each in inputs]
        for each, slice_ in zip(inputs, numpy.split(whole, [*accumulate(sizes)][:-1], axis)):
            source = each
            while source.template.is_view:
                source = source.inputs[0]
            if source.requires_grad:
                made = uploaded(gradient, slice_.reshape(source.shape), call.dtype)
                if made is None:
                    return False
                totals.add(source, made)
    return True
