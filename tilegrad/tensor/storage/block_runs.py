"""Runs of the calls of a loop block by block (`tensor.storage.loop_blocks`), so that a loop of a
new length needs no plan: its blocks came before. A loop of one length is quicker as a whole, with a
plan of its own: that is how the first length of each loop runs, and one that comes often.

`SIZES=0` has a plan for each length, as for all sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tilegrad.base.collection import make_room
from tilegrad.base.config import current_config
from tilegrad.base.recent import Recent
from tilegrad.engine.realize import realize as engine
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import below_views
from tilegrad.ir.uop import UOp, prod
from tilegrad.tensor.handle.size_arguments import NO_VARIABLES
from tilegrad.tensor.handle.waiting import Call, Moves, Pool, Value, this_thread
from tilegrad.tensor.storage import running
from tilegrad.tensor.storage.host_readable import elements_below
from tilegrad.tensor.storage.loop_blocks import CallBlock, CallLoop, loop_of
from tilegrad.tensor.storage.loop_slices import LoopSlices
from tilegrad.tensor.storage.new_memory import new_memory
from tilegrad.tensor.storage.signatures import waiting_calls

__all__ = ["blocks_of", "compute_blocks", "compute_results", "joined", "note_length"]

# Computes results of calls that wait, together; whether it could.
Compute = Callable[[Sequence[Call]], bool]
# Fewer calls have a plan of their own sooner.
_FEWEST_CALLS = 128
# Objects of Python for each call: it, its tensor, the reference to that, its inputs, its line.
_OBJECTS = 6
_OFTEN, _MOST_LENGTHS = 64, 1 << 12
# Steps of a program's first loop that have the templates of its calls made, and are no calls.
_MOST_MADE = 2


class _Lengths:
    """The lengths of loops of one kind: those that are planned as a whole, how often each other one
    came, and how often one has to come before it is planned.
    """

    def __init__(self, first: tuple[int, ...]):
        self.first = first
        self.whole = {first}
        self.counts: dict[tuple[int, ...], int] = {}
        self.often = _OFTEN

    def is_whole(self, lengths: tuple[int, ...]) -> bool:
        """Count loops of these lengths; whether they are planned as a whole."""
        if lengths in self.whole:
            return True
        if not self.counts and self._are_first(lengths):
            self.whole.add(lengths)
            return True
        count = self.counts[lengths] = self.counts.get(lengths, 0) + 1
        if count >= self.often:
            # The next one has to come twice as often: many lengths do not have a plan each.
            self.often *= 2
            self.whole.add(lengths)
        if len(self.counts) > _MOST_LENGTHS:
            self.counts.clear()
        return lengths in self.whole

    def _are_first(self, lengths: tuple[int, ...]) -> bool:
        """Whether these are the first lengths, with the steps that were no calls then."""
        return all(0 <= new - old <= _MOST_MADE for new, old in zip(lengths, self.first))


# By kind of loop, and whether its gradients are asked for.
_lengths: Recent[tuple[Any, ...], _Lengths] = Recent(lambda: 64)


def blocks_of(calls: Sequence[Call], device: str, *, has_gradients: bool) -> list[CallBlock] | None:
    """The blocks in which calls of `device`, in the order of time, are to run; None where they are
    no loop, or one that is planned as a whole.
    """
    loop = _loop_in(calls, device)
    if loop is None:
        return None
    make_room(_OBJECTS * len(calls))
    return None if _is_whole(loop, has_gradients) else loop.blocks


def note_length(calls: Sequence[Call], device: str, *, has_gradients: bool) -> None:
    """Note the length of a loop that is planned as a whole in any case."""
    loop = _loop_in(calls, device)
    if loop is not None:
        key = has_gradients, *loop.kind
        _lengths.get(key) or _lengths.put(key, _Lengths(loop.lengths))


def _loop_in(calls: Sequence[Call], device: str) -> CallLoop | None:
    # Slices and lists are copied by the host.
    if len(calls) < _FEWEST_CALLS or device != "CPU" or not current_config().SIZES:
        return None
    return loop_of(calls)


def _is_whole(loop: CallLoop, has_gradients: bool) -> bool:
    key = has_gradients, *loop.kind
    known = _lengths.get(key)
    if known is None:
        known = _lengths.put(key, _Lengths(loop.lengths))
    return known.is_whole(loop.lengths)


def compute_results(blocks: Sequence[CallBlock], compute: Compute) -> bool:
    """Compute the results of blocks that later ones read; whether that could be done."""
    slices = LoopSlices()
    try:
        return compute_blocks(blocks, compute, slices)
    finally:
        slices.restore()


def compute_blocks(
    blocks: Sequence[CallBlock], compute: Compute, slices: LoopSlices, nodes: Iterable[UOp] = ()
) -> bool:
    """Compute the results of blocks that later ones read; whether that could be done. No gradient
    goes to the leaves `nodes`; `slices` cuts those that gradients go to.
    """
    own, shown = _own_nodes(nodes), _shown_views(this_thread.pool)
    for block in blocks:
        slices.cut(block)
        for call in block.calls():
            if call in shown or (call.template.is_view and call.handle() is not None):
                continue
            for each in call.inputs or ():
                if each.__class__ is Call and each not in own:
                    node = _own_slice(each)
                    if node is not None:
                        own[each] = node
            if own and any(each in own for each in call.inputs or ()):
                call.inputs = tuple([own.get(each, each) for each in call.inputs or ()])
        waiting = [each for each in block.outputs if each.value is None]
        if waiting and not (_join(*waiting) if block.is_join else compute(waiting)):
            return False
    return True


def _shown_views(pool: Pool) -> set[Call]:
    """The views that somebody holds, and those that they are views of: they show what is written to
    the memory, and stay as they are.
    """
    found = {each for each in waiting_calls(pool) if each.template.is_view}
    stack = [*found]
    while stack:
        for each in stack.pop().inputs or ():
            if each.__class__ is Call and each.template.is_view and each not in found:
                found.add(each)
                stack.append(each)
    return found


def _own_slice(leaf: Call) -> UOp | None:
    """Memory of its own for a slice of memory: where it lies, in how much, is another thing for
    each step and length. The slice stays as it is, as views of it show what is written later.
    """
    value, size = leaf.value, prod(leaf.shape)
    if value is None and not leaf.template.is_view:
        return None
    if (value is not None and value.buffer.size == size) or leaf.requires_grad:
        return None
    return _own_memory(elements_below(leaf), leaf)


def _own_memory(array: Any | None, like: Any) -> UOp | None:
    """New memory with the elements of an array, of the dtype and shape of `like`; None where there
    is no room.
    """
    buffer = None if array is None else new_memory(array, like.dtype, prod(like.shape))
    return None if buffer is None else Value(buffer).node(_moves_to(like.shape))


def _own_nodes(nodes: Iterable[UOp]) -> dict[Any, UOp]:
    """For leaves that are slices, of computed values too, memory of their own."""
    slices = [node for node in nodes if _has_slice(node)]
    values = dict.fromkeys([below_views(node) for node in slices])
    to_compute = [
        node for node in values if node.op is not Ops.BUFFER and engine.realized(node) is None
    ]
    if to_compute:
        running.run(to_compute, NO_VARIABLES)
    own: dict[Any, UOp] = {}
    for node in slices:
        memory = engine.realized(node)
        made = None if memory is None else _own_memory(elements_below(memory), node)
        if made is not None:
            own[node] = made
    return own


def _has_slice(node: UOp) -> bool:
    while node.op.is_movement:
        if node.op is Ops.SHRINK:
            return not node.is_constant
        node = node.src[0]
    return False


def _join(call: Call) -> bool:
    """Let the host join the inputs of a call; whether it could."""
    inputs: Any = call.inputs
    arrays = [elements_below(each) for each in inputs]
    if any(each is None for each in arrays):
        return False
    buffer = new_memory(joined(call, arrays), call.dtype, prod(call.shape))
    if buffer is None:
        return False
    call.value, call.moves = Value(buffer), _moves_to(call.shape)
    return True


def joined(call: Call, arrays: Sequence[Any]) -> Any:
    """The inputs of a call that joins them, as one array."""
    import numpy

    axis, is_new = call.template.join or (0, False)
    return numpy.stack(arrays, axis) if is_new else numpy.concatenate(arrays, axis)


def _moves_to(shape: tuple[int, ...]) -> Moves:
    return ((Ops.RESHAPE, shape, shape),)
