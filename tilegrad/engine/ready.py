"""Plans made ready: where all steps are kernels of one device that takes several launches in one
call, a run takes memory, gathers addresses, and makes that call.

Nothing is decided here that `engine.run` does not decide: who wants to see each step (a capture,
`DEBUG=2`, `CHECK=2`, a timer) has it go through them one by one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import TilegradError
from tilegrad.device.backend import Backend
from tilegrad.device.registry import Device
from tilegrad.engine import report
from tilegrad.engine.pipeline import CompiledKernel
from tilegrad.engine.plan import Plan, Step
from tilegrad.runtime.buffer import Buffer

__all__ = ["NoRoomError", "Ready", "made_ready"]

# Of no more operations and bytes than these, which take some 100 microseconds, a run is through
# before a thread that sleeps has woken.
_SMALL_OPS = _SMALL_BYTES = 1 << 20

Load = Callable[[str, CompiledKernel], Any]


class NoRoomError(Exception):
    """There is no memory for buffer number `place` of a plan, for the reason `error`."""

    def __init__(self, place: int, error: TilegradError):
        super().__init__(place, error)
        self.place, self.error = place, error


class Ready:
    """A plan on one device. `backend` is what the device was then."""

    __slots__ = (
        "_block", "_call", "_count", "_inputs", "_mem", "_names", "_offsets", "_ops", "_outputs",
        "_own", "_pick", "backend",
    )  # fmt: skip

    def __init__(self, plan: Plan, backend: Backend, load: Load) -> None:
        self.backend = backend
        kernels = [step.kernel for step in plan.steps if step.kernel is not None]
        self._count = len(kernels)
        self._ops, self._mem = sum(each.ops for each in kernels), sum(each.mem for each in kernels)
        # All numbers that launches take: addresses by number of the buffer, then variables.
        self._names = tuple(dict.fromkeys(name for step in plan.steps for name in step.names))
        places = {name: place for place, name in enumerate(self._names, len(plan.buffers))}
        picks: list[int] = []
        launches = []
        for step, kernel in zip(plan.steps, kernels, strict=True):
            picks += step.buffers
            picks += [places[name] for name in step.names]
            count = len(step.buffers) + len(step.names)
            launches.append((load(step.device, kernel), count, kernel.global_size))
        self._pick = itemgetter(*picks, 0, 0)
        is_small = self._ops <= _SMALL_OPS and self._mem <= _SMALL_BYTES
        self._call = backend.runtime.sequence([*launches], is_small)
        self._inputs = [
            (place, memory.source)
            for place, memory in enumerate(plan.buffers)
            if memory.source is not None
        ]
        self._own = [
            (place, memory.size, memory.dtype)
            for place, memory in enumerate(plan.buffers)
            if memory.source is None and memory.offset is None
        ]
        self._offsets = [
            (place, memory.offset)
            for place, memory in enumerate(plan.buffers)
            if memory.offset is not None
        ]
        self._block = sum(plan.blocks.values())
        self._outputs = plan.outputs

    def run(self, inputs: Sequence[Buffer], variables: Mapping[str, int]) -> list[Buffer]:
        """As `run_plan`. All memory is taken first: where there is too little, nothing runs.

        Raises NoRoomError for that.
        """
        allocator = self.backend.allocator
        table: dict[int, Buffer] = {place: inputs[source] for place, source in self._inputs}
        for place, size, dtype in self._own:
            table[place] = Buffer(allocator, size, dtype)
        words = [0] * (len(table) + len(self._offsets))
        place = self._offsets[0][0] if self._offsets else 0
        try:
            block = Buffer(allocator, self._block, dtypes.uint8) if self._offsets else None
            start = block.handle if block is not None else 0
            for place, buffer in table.items():
                handle = buffer._handle
                words[place] = buffer.handle if handle is None else handle
        except TilegradError as error:
            raise NoRoomError(place, error) from None
        for place, offset in self._offsets:
            words[place] = start + offset
        if self._names:
            words += [variables[name] for name in self._names]
        call = self._call
        assert call is not None
        began = time.perf_counter()
        call(self._pick(words)[:-2])
        report.count(self._ops, self._mem, time.perf_counter() - began, self._count)
        return [table[place] for place in self._outputs]


def made_ready(plan: Plan, load: Load) -> Ready | None:
    """The plan ready to run in one call, if its device has that and each step is a kernel there."""
    steps: tuple[Step, ...] = plan.steps
    if not steps or any(
        step.kernel is None or step.is_custom or step.turns or step.device != steps[0].device
        for step in steps
    ):
        return None
    if any(memory.terms is not None for memory in plan.buffers) or any(
        step.kernel is not None and step.kernel.costs is not None for step in steps
    ):
        # Of sizes that the launch says, memory and costs are worked out for each run.
        return None
    devices = {memory.device for memory in plan.buffers} | {*plan.blocks}
    if devices != {steps[0].device}:
        return None
    found = Ready(plan, Device[steps[0].device], load)
    return found if found._call is not None else None
