"""Blocks of the calls that a loop of the user's made: equal ones, whatever the number of steps.

    for t in range(n):
        h = torch.tanh(h @ w + x[t] @ u)      n = 100: 32 steps, 32, 32, 2, 1 and the rest
    loss = (h @ v).mean()

The calls of all steps are one structure for each length, with gradients and a plan of its own. A
block of some steps is one structure for all lengths. So the calls are cut where a step ends, at the
points of the loop where the fewest values go on. The numbers of steps in blocks are powers of two,
so that there are few kinds of them. The first step, which stands on the values from before the
loop, is a block with these; what comes after the last step is one, too.

Views are made again in each block that reads them, so that no block has one as its result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Any, NamedTuple

from tilegrad.tensor.handle.waiting import Call

__all__ = ["Block", "Loop", "loop_of"]

# A loop of fewer steps is one block, and the most steps and calls of a block.
_FEWEST_STEPS, _MOST_STEPS, _MOST_CALLS = 16, 32, 1 << 9
_by_time = attrgetter("serial")


class Block(NamedTuple):
    """Some calls of a loop: those that are no views, the results of earlier blocks that they read,
    and the results that later ones read.
    """

    steps: list[Call]
    inputs: list[Call]
    outputs: list[Call]

    def calls(self) -> list[Call]:
        """The calls in order, with the views that they read. What was computed, and has no
        gradient, is a leaf.
        """
        own = set(self.steps)
        found = dict.fromkeys(self.steps)
        stack = [*self.steps]
        while stack:
            for each in stack.pop().inputs or ():
                if each.__class__ is Call and each not in found and _is_open_view(each):
                    if each not in own:
                        found[each] = None
                        stack.append(each)
        return sorted(found, key=_by_time)


class Loop(NamedTuple):
    """The blocks of calls, how many steps the loop has, and what loops that differ in this number
    alone have in common.
    """

    blocks: list[Block]
    length: int
    kind: tuple[Any, ...]


class _Cuts(NamedTuple):
    """Positions behind which steps end, at equal distances, and how many values go on at each."""

    positions: range
    width: float

    @property
    def covered(self) -> int:
        return len(self.positions) * self.positions.step


def _is_view(call: Call) -> bool:
    return call.template.is_view and call.inputs is not None and len(call.inputs) == 1


def _is_open_view(call: Call) -> bool:
    return _is_view(call) and (call.value is None or bool(call.requires_grad))


def loop_of(calls: Sequence[Call]) -> Loop | None:
    """The loop that made most of `calls`, which are in the order of time; None if there is none."""
    below: dict[Any, Any] = {}
    steps: list[Call] = []
    for call in calls:
        if _is_view(call):
            source = (call.inputs or ())[0]
            below[call] = below.get(source, source)
        else:
            steps.append(call)
    position = {call: number for number, call in enumerate(steps)}
    last_use = list(range(len(steps)))
    for number, call in enumerate(steps):
        for each in call.inputs or ():
            at = position.get(below.get(each, each))
            if at is not None:
                last_use[at] = number
    cuts = _cuts(steps, last_use)
    if cuts is None:
        return None
    at = cuts.positions
    blocks = [
        _block(steps, first, end, last_use, below, position) for first, end in _spans(at, len(steps))
    ]
    kind = tuple([call.number for call in steps[at[0] + 1 : at[1] + 1]])
    return Loop(blocks, len(at), kind)


def _cuts(steps: Sequence[Call], last_use: Sequence[int]) -> _Cuts | None:
    """The ends of steps: behind equal calls of one line at equal distances, which cover as many
    calls as others do, and of these where the fewest values go on.
    """
    ends = [0] * (len(steps) + 1)
    for last in last_use:
        ends[last] += 1
    # How many of the values so far are read later.
    alive = [number - ended for number, ended in enumerate(accumulate(ends), 1)]
    lines: dict[Any, list[int]] = {}
    for number, call in enumerate(steps):
        lines.setdefault((call.number, call.entry), []).append(number)
    found: list[_Cuts] = []
    for positions in lines.values():
        if len(positions) >= _FEWEST_STEPS:
            regular = _longest_regular(positions)
            width = sum([alive[at] for at in regular]) / len(regular)
            found.append(_Cuts(regular, width))
    most = max([each.covered for each in found], default=0)
    if 2 * most < len(steps):
        return None
    best = min([each for each in found if 10 * each.covered >= 9 * most], key=attrgetter("width"))
    return best if len(best.positions) >= _FEWEST_STEPS else None


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


def _spans(at: range, count: int) -> Iterable[tuple[int, int]]:
    """The positions at which blocks begin and end."""
    begin = 0
    steps = 0
    most = _MOST_STEPS
    while most > 1 and most * at.step > _MOST_CALLS:
        most //= 2
    while steps < len(at):
        yield begin, at[steps] + 1
        begin = at[steps] + 1
        left = len(at) - 1 - steps
        if not left:
            break
        steps += min(most, 1 << (left.bit_length() - 1))
    yield begin, count


def _block(
    steps: Sequence[Call],
    begin: int,
    end: int,
    last_use: Sequence[int],
    below: dict[Any, Any],
    position: dict[Call, int],
) -> Block:
    inputs: dict[Call, None] = {}
    for call in steps[begin:end]:
        for each in call.inputs or ():
            source = below.get(each, each)
            if position.get(source, end) < begin:
                inputs[source] = None
    outputs = [steps[number] for number in range(begin, end) if last_use[number] >= end]
    return Block([*steps[begin:end]], [*inputs], outputs)
