"""`backward()` and `gradient()` of a loss whose calls wait: each gradient is a call as well.

Gradients follow from the calls below the loss and from the leaves that these stand on. The first
time, the calls are made over stand-ins and differentiated, and what came of it is recorded
(`ir.graph_templates`). From then on each leaf is given a gradient that waits: no node is made.
Where a gradient goes through more than these calls (values that were computed, checkpoints, views
of leaves), the nodes tell. Where hooks see it on its way, it goes from one to the next
(`staged_gradients`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

from tilegrad.base.recent import Recent
from tilegrad.ir.uop import UOp
from tilegrad.tensor.calls.below import Below, families
from tilegrad.tensor.calls.block_gradients import gradients_in_blocks, loop_below, note_loop
from tilegrad.tensor.calls.given_gradients import given_gradients
from tilegrad.tensor.calls.sized_gradients import Backward
from tilegrad.tensor.calls.staged_gradients import Descent, stops_below
from tilegrad.tensor.handle.device import canonical
from tilegrad.tensor.handle.gradient import add_gradient, replaces_gradients
from tilegrad.tensor.handle.leaf_hooks import hooks_of
from tilegrad.tensor.handle.waiting import Call, Number, this_thread
from tilegrad.tensor.storage.writes import postpones_calls

__all__ = ["wait_for_gradients", "waiting_gradients"]

# A training step of a large model has fewer. A template of more steps has megabytes, and one of
# more calls takes as long to make as two steps by nodes: there are few, of those that came before.
_MANY_CALLS, _MANY_STEPS = 1 << 11, 1 << 14
_BY_VALUE, _BY_NODES = "by value", "by nodes"
# How many values of numbers came with a signature, and the most that are tried.
_values: Recent[tuple[Any, ...], list[int]] = Recent(lambda: 512)
_MOST_VALUES = 16
# By signature; for those that have no template of all numbers, whether values have one.
_known: Recent[tuple[Any, ...], Backward | str] = Recent(lambda: 512)
# Those of many steps, and hashes of the signatures of many calls that have come.
_long: Recent[tuple[Any, ...], Backward | str] = Recent(lambda: 8)
_met: Recent[int, bool] = Recent(lambda: 512)


def wait_for_gradients(loss: Any) -> bool:
    """Let each leaf below `loss` have its gradient, or the sum of that and its present one, as a
    call that waits; False, and nothing is done, where nodes have to tell.

    Hooks of computed tensors and of leaves are called on the way.
    """
    below = _below(loss, None)
    if below is None:
        return False
    targets = below.targets.values()
    if below.stops or any(hooks_of(each) for each in targets):
        kind = type(loss)
        one = kind._of(UOp.const(loss.dtype, 1), loss.device)
        descent = Descent(below, one, _gradients_of, partial(given_gradients, kind=kind))
        if not descent.is_plain:
            return False
        descent.run()
    else:
        given = partial(given_gradients, kind=type(loss), is_computed=True)
        blocks = None if _is_known(below) else loop_below(below)
        gradients = blocks and gradients_in_blocks(below, blocks, _gradients_of, given)
        if blocks and not gradients:
            # The calls stand on other memory by now.
            again = _below(loss, None)
            if again is None:
                return False
            below = again
        if not gradients:
            found = _gradients_of(below)
            if found is None:
                return False
            gradients = given_gradients(below, found, ())
        for leaf, gradient in gradients:
            add_gradient(leaf, gradient)
    loss._call.is_loss = True
    return True


def waiting_gradients(loss: Any, targets: Sequence[Any]) -> list[Any] | None:
    """The gradients of `loss` by each of `targets`, leaves that require one or results of calls, as
    calls that wait and can be differentiated in turn; None where nodes have to tell.
    """
    if not targets or any(hooks_of(each) for each in targets):
        return None
    wanted: Sequence[Any] = targets
    stops: Collection[Call] = ()
    kind = None
    if not all(each._requires_grad and each._is_leaf for each in targets):
        # The weights that a step of an inner loop has made.
        wanted = [each._call for each in targets]
        if not _are_apart(wanted, loss._call):
            return None
        stops, kind = {*wanted}, type(loss)
    below = _below(loss, wanted, stops)
    found = None if below is None else _gradients_of(below)
    if below is None or found is None:
        return None
    by_target: dict[int, Any] = {}
    for leaf, gradient in given_gradients(below, found, (), kind):
        # Gradients of values computed from a leaf before and after it took a value add up.
        known = by_target.get(id(leaf))
        by_target[id(leaf)] = gradient if known is None else known + gradient
    if any(id(each) not in by_target for each in wanted):
        return None
    for gradient in by_target.values():
        if gradient._call is not None:
            gradient._call.requires_grad = True
    return [by_target[id(each)] for each in wanted]


def _are_apart(calls: Sequence[Call | None], loss: Call | None) -> bool:
    """Whether gradients of `loss` can end at these calls: each gave a result that requires one, and
    none of them is computed from another.
    """
    pool = this_thread.pool
    ends: set[Call] = set()
    for call in calls:
        if call is None or call is loss or call.pool is not pool or call.stop is not None:
            return False
        if not call.requires_grad or call.is_write:
            return False
        ends.add(call)
    first = min(call.serial for call in ends)
    stack = [*ends]
    seen: set[Call] = set()
    while stack:
        for each in stack.pop().inputs or ():
            if each.__class__ is Call and each.serial >= first and each not in seen:
                if each in ends:
                    return False
                seen.add(each)
                stack.append(each)
    return True


def _below(loss: Any, targets: Sequence[Any] | None, stops: Collection[Call] = ()) -> Below | None:
    """The calls below `loss`, for `targets` if these are given, down to `stops`, the calls among
    the targets; None where nodes have to tell.
    """
    asked = loss._call
    if asked is None or asked.pool is not this_thread.pool or asked.shape != ():
        return None
    if not asked.dtype.is_float or not postpones_calls():
        return None
    below = Below(asked, canonical(loss.device), targets, stops)
    if below.meets_stop:
        if targets is not None or replaces_gradients():
            # Gradients are to be asked for of the gradients, maybe.
            return None
        below = Below(asked, below.device, None, stops_below(asked))
    if not below.is_plain or not below.targets or below.may_be_lost():
        note_loop(below)
        return None
    return below


def _gradients_of(below: Below) -> Backward | None:
    """The gradients of calls, for any numbers that they take or for those alone; None if no
    template can say them.
    """
    found = _known.get(below.key) or _long.get(below.key)
    if found is None:
        if len(below.calls) > _MANY_CALLS and _met.get(hash(below.key)) is None:
            _met.put(hash(below.key), True)
            return None
        of_sizes = families.get(below.skeleton)
        sized = None if of_sizes is None else of_sizes.known(below.shapes)
        if sized is not None:
            return sized
        found = _note(below.key, below.differentiated_in(of_sizes) or _BY_VALUE)
    if not isinstance(found, str):
        return found
    numbers = [leaf.bits for leaf in below.leaves if isinstance(leaf, Number)]
    if found == _BY_NODES or not numbers:
        return None
    by_value = (*below.key, *numbers)
    known = _known.get(by_value) or _long.get(by_value)
    if known is None:
        family = _values.setdefault(below.key, [0])
        family[0] += 1
        if family[0] > _MOST_VALUES:
            # A number that changes at each step: what follows from it is made by nodes.
            _known.put(below.key, _BY_NODES)
            return None
        known = _note(by_value, below.differentiated_by_value() or _BY_NODES)
    return None if isinstance(known, str) else known


def _is_known(below: Below) -> bool:
    return _known.get(below.key) is not None or _long.get(below.key) is not None


def _note(key: tuple[Any, ...], found: Backward | str) -> Backward | str:
    is_long = not isinstance(found, str) and found.graph.size > _MANY_STEPS
    return (_long if is_long else _known).put(key, found)
