"""Blocks of the calls that a loop of the user's made: equal ones, whatever the number of steps.

    for t in range(n):
        h = torch.tanh(h @ w + x[t] @ u)      n = 100: 1 step, 32, 32, 32, 2, 1 and the rest
    loss = (h @ v).mean()

The calls of all steps are one structure for each length, with gradients and a plan of its own. A
block of some steps is one structure for all lengths. So the calls are cut where a step ends, at the
points of the loop where the fewest values go on. The numbers of steps in blocks are powers of two,
so that there are few kinds of them. The first step, which stands on the values from before the
loop, is a block with these; what comes after the last step is one, too.

Views are made again in each block that reads them, so that no block has one as its result. A list
of results of a loop, joined after it (`torch.stack(losses)`), is a block of its own: the host joins
them, as a kernel would be another one for each length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import Any, NamedTuple

from tilegrad.ir.op import Ops
from tilegrad.tensor.handle.waiting import Call

__all__ = ["FEWEST_STEPS", "CallBlock", "CallLoop", "loop_of"]

# A loop of fewer steps is one block, and the most steps and calls of a block.
FEWEST_STEPS, _MOST_STEPS, _MOST_CALLS = 16, 32, 1 << 9
_by_time = attrgetter("serial")


class CallBlock(NamedTuple):
    """Some calls of a loop: those that are no views, the results of earlier blocks that they read,
    and the results that later ones read. One that `is_join` joins its inputs.
    """

    steps: list[Call]
    inputs: list[Call]
    outputs: list[Call]
    is_join: bool

    def calls(self) -> list[Call]:
        """The calls in order, with the views that they read. A computed call without a
        gradient is a leaf.
        """
        found = dict.fromkeys([each for each in self.steps if _is_open(each)])
        stack = [*found]
        while stack:
            for each in stack.pop().inputs or ():
                if each.__class__ is Call and each not in found and _is_open_view(each):
                    found[each] = None
                    stack.append(each)
        return sorted(found, key=_by_time)


class CallLoop(NamedTuple):
    """The blocks of calls; the lengths of the loops and lists among them, and what loops that
    differ in these alone have in common.
    """

    blocks: list[CallBlock]
    lengths: tuple[int, ...]
    kind: tuple[Any, ...]


def _is_view(call: Call) -> bool:
    return call.template.is_view and call.inputs is not None and len(call.inputs) == 1


def _is_open(call: Call) -> bool:
    return call.value is None or bool(call.requires_grad and call.inputs)


def _is_open_view(call: Call) -> bool:
    return _is_view(call) and _is_open(call)


class _CallSteps:
    """The calls that are no views, in order, by position; of each its last user, and how many of
    those so far are read later.
    """

    def __init__(self, calls: Sequence[Call]):
        below: dict[Any, Any] = {}
        self.calls: list[Call] = []
        for call in calls:
            if _is_view(call):
                source = (call.inputs or ())[0]
                below[call] = below.get(source, source)
            else:
                self.calls.append(call)
        self._below = below
        self._position = {call: number for number, call in enumerate(self.calls)}
        self._last_use = list(range(len(self.calls)))
        for number, call in enumerate(self.calls):
            for at in self._sources(call):
                self._last_use[at] = number
        ends = [0] * len(self.calls)
        for last in self._last_use:
            ends[last] += 1
        self.alive = [number - ended for number, ended in enumerate(accumulate(ends), 1)]

    def _sources(self, call: Call) -> Iterator[int]:
        below, position = self._below, self._position
        for each in call.inputs or ():
            at = position.get(below.get(each, each))
            if at is not None:
                yield at

    def block(self, begin: int, end: int, lists: Sequence[range], *, is_join: bool) -> CallBlock:
        """The calls from `begin` to `end`; those at the positions `lists` that the user has are
        results, too.
        """
        calls = self.calls[begin:end]
        inputs = {at: None for call in calls for at in self._sources(call) if at < begin}
        outputs = [
            self.calls[at]
            for at in range(begin, end)
            if self._last_use[at] >= end
            or (self.calls[at].handle() is not None and any(at in each for each in lists))
        ]
        return CallBlock(calls, [self.calls[at] for at in inputs], outputs, is_join)


def loop_of(calls: Sequence[Call]) -> CallLoop | None:
    """The loops that made most of `calls`, which are in the order of time; None if none did."""
    steps = _CallSteps(calls)
    loops = _loops_in(steps)
    if 2 * sum([len(each) * each.step for each in loops]) < len(steps.calls):
        return None
    joins = [
        number
        for number, call in enumerate(steps.calls)
        if _joins_list(call) and not any(each[0] < number <= each[-1] for each in loops)
    ]
    ends = {0, len(steps.calls), *joins, *[number + 1 for number in joins]}
    for each in loops:
        ends.update(_ends_of(each))
    # Results of the last step that the user has are names of the loop's body, and no list.
    lists = [range(each[0] - each.step + 1, each[-1] - each.step + 1) for each in loops]
    blocks = [
        steps.block(begin, end, lists, is_join=begin in joins)
        for begin, end in pairwise(sorted(ends))
    ]
    kind = [tuple([call.number for call in steps.calls[each[0] : each[1]]]) for each in loops]
    lengths = [len(steps.calls[number].inputs or ()) for number in joins]
    return CallLoop(blocks, (*map(len, loops), *lengths), (*kind, len(joins)))


def _loops_in(steps: _CallSteps) -> list[range]:
    """The positions behind which the steps of each loop end, in the order of time."""
    found: list[range] = []
    left = [(0, len(steps.calls))]
    while left:
        begin, end = left.pop()
        cuts = _cuts_between(steps, begin, end)
        if cuts is not None:
            found.append(cuts)
            left += (begin, cuts[0]), (cuts[-1] + 1, end)
    return sorted(found, key=lambda cuts: cuts[0])


def _cuts_between(steps: _CallSteps, begin: int, end: int) -> range | None:
    """The ends of steps: behind equal calls of one line at equal distances, which cover as many
    calls as others do, and of these where the fewest values go on.
    """
    lines: dict[Any, list[int]] = {}
    for number in range(begin, end):
        call = steps.calls[number]
        lines.setdefault((call.number, call.entry), []).append(number)
    regular = [_longest_regular(each) for each in lines.values() if len(each) >= FEWEST_STEPS]
    regular = [each for each in regular if len(each) >= FEWEST_STEPS]
    if not regular:
        return None
    most = max([len(each) * each.step for each in regular])

    def width(cuts: range) -> float:
        return sum([steps.alive[at] for at in cuts]) / len(cuts)

    return min([each for each in regular if 10 * len(each) * each.step >= 9 * most], key=width)


def _longest_regular(positions: Sequence[int]) -> range:
    """The longest run of `positions` at equal distances."""
    best = range(positions[0], positions[0] + 1)
    first = 0
    for number in range(1, len(positions)):
        step = positions[number] - positions[number - 1]
        if step != positions[first + 1] - positions[first]:
            first = number - 1
        if number - first >= len(best):
            best = range(positions[first], positions[number] + 1, step)
    return best


def _ends_of(cuts: range) -> Iterator[int]:
    """The positions at which the blocks of a loop end."""
    most = _MOST_STEPS
    while most > 1 and most * cuts.step > _MOST_CALLS:
        most //= 2
    steps = 0
    yield cuts[0] + 1
    while left := len(cuts) - 1 - steps:
        steps += min(most, 1 << (left.bit_length() - 1))
        yield cuts[steps] + 1


def _joins_list(call: Call) -> bool:
    """Whether a call joins the results of a loop: calls, or these in another shape."""
    inputs = call.inputs or ()
    if call.template.join is None or len(inputs) < FEWEST_STEPS:
        return False
    return all(each.__class__ is Call and _is_in_order(each) for each in inputs)


def _is_in_order(call: Any) -> bool:
    """Whether a call is no view, or one of all elements in their order."""
    while call.__class__ is Call and _is_view(call):
        if any(step[0] is not Ops.RESHAPE for step in call.template.steps):
            return False
        (call,) = call.inputs or ()
    return call.__class__ is Call
