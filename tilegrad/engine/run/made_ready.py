"""How a plan is made ready: as it is (`ready`), or at the lengths that a launch has of its loops.

A loop whose number of steps is a variable of the launch is as many launches. They are listed when a
length comes for the first time, and kept for those that came last.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence

from tilegrad.base.errors import InternalError
from tilegrad.base.recent import Bounded
from tilegrad.device.backend import Backend
from tilegrad.device.registry import Device
from tilegrad.engine.plans.plan import Plan
from tilegrad.engine.run.ready import Load, Ready, is_copy
from tilegrad.engine.run.ready_launches import MOST_LAUNCHES, launches_of, lengths_of_loops
from tilegrad.ir.lengths import Terms, value_of
from tilegrad.runtime.buffer import Buffer

__all__ = ["ReadyByLengths", "made_ready"]

# Lengths whose launches are kept: each takes some 50 bytes for each argument of a launch.
_MOST_LENGTHS = 64


class ReadyByLengths:
    """A plan with loops whose lengths a launch says, ready at those that came last. `backend` is
    that of the device at the time.
    """

    __slots__ = ("_known", "_lengths", "_load", "_plan", "_steps", "backend")

    def __init__(self, plan: Plan, lengths: Sequence[Terms], backend: Backend, load: Load):
        self.backend = backend
        # A plan has its ready forms.
        self._plan, self._lengths, self._load = weakref.ref(plan), lengths, load
        self._known: Bounded[tuple[int, ...], Ready] = Bounded(_MOST_LENGTHS)
        self._steps = plan.steps

    def run(self, inputs: Sequence[Buffer], variables: Mapping[str, int]) -> list[Buffer]:
        """As `Ready.run`."""
        plan = self._plan()
        if plan is None:
            raise InternalError("plan: it was given back while it runs")
        if self._steps is not plan.steps:
            # It has better kernels by now.
            self._known.clear()
            self._steps = plan.steps
        key = tuple([value_of(each, variables) for each in self._lengths])
        ready = self._known.get(key)
        if ready is None:
            names = {name for terms in self._lengths for _, names in terms for name in names}
            lengths = {name: variables[name] for name in names}
            launches = launches_of(plan, lengths) or ()
            ready = Ready(plan, launches, self.backend, self._load, lengths)
            if len(launches) <= MOST_LAUNCHES:
                self._known.put(key, ready)
        return ready.run(inputs, variables)


def made_ready(plan: Plan, load: Load) -> Ready | ReadyByLengths | None:
    """The plan ready to run in one call, if its device has that and each step is a kernel there,
    or a copy to it that may come before all kernels.
    """
    lengths = lengths_of_loops(plan)
    once = {name: 1 for terms in lengths for _, names in terms for name in names}
    launches = launches_of(plan, once if lengths else None)
    if not launches or not _copies_come_first(plan):
        return None
    device = launches[0].device
    # Buffers that copies read are on other devices.
    read = {step.buffers[1] for step in plan.steps if is_copy(step)}
    devices = {
        memory.device for position, memory in enumerate(plan.buffers) if position not in read
    }
    devices |= {*plan.blocks, *[step.device for step in plan.steps], *[e.device for e in launches]}
    if devices != {device}:
        return None
    slots = {position for position, memory in enumerate(plan.buffers) if memory.slot is not None}
    if not slots.isdisjoint(plan.outputs):
        return None
    found = Ready(plan, launches, Device[device], load)
    if found.call(True) is None:
        return None
    return ReadyByLengths(plan, lengths, Device[device], load) if lengths else found


def _copies_come_first(plan: Plan) -> bool:
    """Whether each copy reads an input that nothing else names, and fills memory that no earlier
    kernel uses.
    """
    used: set[int] = set()
    is_block_used = False
    named = [position for step in plan.steps for position in step.buffers]
    for step in plan.steps:
        if not is_copy(step):
            used.update(step.buffers)
            memory = [plan.buffers[position] for position in step.buffers]
            is_block_used = is_block_used or any(
                each.offset is not None or each.slot is not None for each in memory
            )
            continue
        target, source = (plan.buffers[position] for position in step.buffers)
        if source.source is None or named.count(step.buffers[1]) > 1:
            return False
        is_shared = target.offset is not None or target.slot is not None
        if step.buffers[0] in used or (is_block_used and is_shared):
            return False
    return True
