"""Plans made ready: where all steps are kernels of one device that takes several launches in one
call, a run takes memory, copies what comes from the host, gathers addresses, and makes that call.

Memory and costs of a plan for a range of sizes are worked out for each run. Nothing is decided here
that `run` beside this file does not decide: who wants to see each step (a capture, `DEBUG=2`,
`CHECK=2`, a timer) has it go through them one by one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import TilegradError
from tilegrad.device.backend import Backend
from tilegrad.device.registry import Device
from tilegrad.engine.build.pipeline import CompiledKernel
from tilegrad.engine.plans.plan import Memory, Plan, Step
from tilegrad.engine.run import report
from tilegrad.ir.lengths import Terms, value_of
from tilegrad.runtime.buffer import Buffer, over, size_class

__all__ = ["NoRoomError", "Ready", "made_ready"]

# Of no more operations and bytes than these, which take some 100 microseconds, a run is through
# before a thread that sleeps has woken.
_SMALL_OPS = _SMALL_BYTES = 1 << 20

Load = Callable[[str, CompiledKernel], Any]


class NoRoomError(Exception):
    """There is no memory for buffer number `position` of a plan, for the reason `error`."""

    def __init__(self, position: int, error: TilegradError):
        super().__init__(position, error)
        self.position, self.error = position, error


class _Costs(NamedTuple):
    """The operations and bytes of a plan: numbers, and terms that a launch gives values."""

    ops: int
    mem: int
    of_lengths: tuple[tuple[Terms, Terms], ...]

    def at(self, variables: Mapping[str, int]) -> tuple[int, int]:
        ops, mem = self.ops, self.mem
        for more_ops, more_mem in self.of_lengths:
            ops += value_of(more_ops, variables)
            mem += value_of(more_mem, variables)
        return ops, mem


class Ready:
    """A plan on one device. `backend` is what the device was then."""

    __slots__ = (
        "_allocator", "_asked", "_block", "_calls", "_copies", "_costs", "_count", "_inputs",
        "_launches", "_names", "_offsets", "_outputs", "_own", "_pick", "_results", "_shared",
        "_sized", "_sizes", "_words", "backend",
    )  # fmt: skip

    def __init__(self, plan: Plan, backend: Backend, load: Load) -> None:
        self.backend = backend
        self._allocator = backend.allocator
        steps = [step for step in plan.steps if step.kernel is not None]
        kernels = [step.kernel for step in steps if step.kernel is not None]
        self._count = len(kernels)
        self._costs = _Costs(
            sum(each.ops for each in kernels if each.costs is None),
            sum(each.mem for each in kernels if each.costs is None),
            tuple([(each.costs[0], each.costs[1]) for each in kernels if each.costs is not None]),
        )
        # All numbers that launches take: addresses by number of the buffer, then variables.
        self._names = tuple(dict.fromkeys(name for step in steps for name in step.names))
        positions = {name: position for position, name in enumerate(self._names, len(plan.buffers))}
        picks: list[int] = []
        self._launches: list[tuple[Any, int, Any]] = []
        for step, kernel in zip(steps, kernels, strict=True):
            picks += step.buffers
            picks += [positions[name] for name in step.names]
            count = len(step.buffers) + len(step.names)
            self._launches.append((load(step.device, kernel), count, kernel.global_size))
        self._pick = itemgetter(*picks, 0, 0)
        # By whether the work is small.
        self._calls: dict[bool, Any] = {}
        numbered = [*enumerate(plan.buffers)]
        # Copies come first. What they read is no kernel's.
        self._copies = [
            (step.buffers[0], plan.buffers[step.buffers[1]].source or 0, _nbytes(plan, step))
            for step in plan.steps
            if step.kernel is None
        ]
        read = {step.buffers[1] for step in plan.steps if step.kernel is None}
        self._inputs = [
            (position, memory.source)
            for position, memory in numbered
            if memory.source is not None and position not in read
        ]
        own = [
            (position, memory)
            for position, memory in numbered
            if memory.source is None and memory.offset is None and memory.slot is None
        ]
        # What is of a fixed size: results first, by place, then what only this run needs.
        given = {position for position in plan.outputs if plan.buffers[position].source is None}
        fixed = [(position, memory) for position, memory in own if memory.terms is None]
        fixed.sort(key=lambda each: each[0] not in given)
        self._block = sum(plan.blocks.values())
        self._own = [position for position, _ in fixed]
        nbytes = [memory.size * memory.dtype.nbytes for _, memory in fixed]
        self._sizes = [*map(size_class, nbytes)]
        self._results = [
            (memory.size, memory.dtype, nbytes[number], self._sizes[number])
            for number, (position, memory) in enumerate(fixed)
            if position in given
        ]
        if self._block:
            nbytes.append(self._block)
            self._sizes.append(size_class(self._block))
        self._asked = nbytes
        self._sized = [
            (position, memory.terms, memory.dtype)
            for position, memory in own
            if memory.terms is not None
        ]
        slots: dict[int, list[tuple[int, Memory]]] = {}
        for position, memory in numbered:
            if memory.slot is not None:
                slots.setdefault(memory.slot, []).append((position, memory))
        self._shared = [
            (
                [position for position, _ in members],
                [(memory.terms or (), memory.dtype.nbytes) for _, memory in members],
            )
            for members in slots.values()
        ]
        self._offsets = [
            (position, memory.offset) for position, memory in numbered if memory.offset is not None
        ]
        # What is not of this run is an input that it wrote to, or gives back.
        self._outputs = [(position, plan.buffers[position].source) for position in plan.outputs]
        self._words = len(plan.buffers)

    def call(self, is_small: bool) -> Any:
        """All launches as one call; None if the device has no such."""
        found = self._calls.get(is_small)
        if found is None:
            found = self.backend.runtime.sequence([*self._launches], is_small)
            self._calls[is_small] = found
        return found

    def run(self, inputs: Sequence[Buffer], variables: Mapping[str, int]) -> list[Buffer]:
        """As `run_plan`. All memory is taken first: where there is too little, nothing runs.

        Raises NoRoomError for that.
        """
        allocator = self._allocator
        words: list[Any] = [0] * self._words
        position = 0
        try:
            for position, source in self._inputs:
                buffer = inputs[source]
                handle = buffer._handle
                words[position] = buffer.handle if handle is None else handle
            position = self._own[0] if self._own else 0
            handles = self._taken()
        except TilegradError as error:
            raise NoRoomError(position, error) from None
        count = len(self._results)
        made = over(allocator, self._results, handles) if count else []
        try:
            for position, handle in zip(self._own, handles):
                words[position] = handle
            table: dict[int, Buffer] = dict(zip(self._own, made))
            if self._sized or self._shared:
                self._take_sized(table, words, variables)
            for position, offset in self._offsets:
                words[position] = handles[-1] + offset
            if self._names:
                words += [variables[name] for name in self._names]
            self._launch(words, inputs, variables)
        finally:
            for block in zip(self._sizes[count:], handles[count:]):
                allocator.take_back(block)
        return [
            table[position] if source is None else inputs[source]
            for position, source in self._outputs
        ]

    def _launch(
        self, words: list[Any], inputs: Sequence[Buffer], variables: Mapping[str, int]
    ) -> None:
        """Copy what the host gives, and run the kernels."""
        for position, source, nbytes in self._copies:
            given = inputs[source]
            self._copy(words[position], given, given.nbytes if nbytes is None else nbytes)
        ops, mem = self._costs[:2]
        if self._costs.of_lengths:
            ops, mem = self._costs.at(variables)
        call = self.call(ops <= _SMALL_OPS and mem <= _SMALL_BYTES)
        began = time.perf_counter()
        call(self._pick(words)[:-2])
        report.count(ops, mem, time.perf_counter() - began, self._count)

    def _taken(self) -> list[Any]:
        """Memory of fixed sizes; where there is not enough, it is taken as it is asked for."""
        allocator, sizes = self._allocator, self._sizes
        handles = allocator.allocate_all(sizes)
        if handles is None:
            handles = []
            try:
                for nbytes in self._asked:
                    handles.append(allocator.allocate(nbytes))
            except TilegradError:
                for block in zip(sizes, handles):
                    allocator.take_back(block)
                raise
        return handles

    def _take_sized(
        self, table: dict[int, Buffer], words: list[Any], variables: Mapping[str, int]
    ) -> None:
        """Memory of the sizes that the launch says; what takes turns has one address.

        Raises NoRoomError if there is not enough.
        """
        allocator = self._allocator
        position = 0
        try:
            for position, terms, dtype in self._sized:
                buffer = table[position] = Buffer(allocator, value_of(terms, variables), dtype)
                words[position] = buffer.handle
            for number, (positions, members) in enumerate(self._shared):
                position = positions[0]
                most = max([value_of(terms, variables) * nbytes for terms, nbytes in members])
                # Under a number that is no buffer's: it lives as long as the table.
                shared = table[-1 - number] = Buffer(allocator, most, dtypes.uint8)
                for position in positions:
                    words[position] = shared.handle
        except TilegradError as error:
            raise NoRoomError(position, error) from None

    def _copy(self, target: Any, source: Buffer, nbytes: int) -> None:
        """Copy what the host gives."""
        runtime = self.backend.runtime
        start = time.perf_counter()
        if not runtime.transfer(target, source.handle, source.allocator.runtime, nbytes):
            view = source.host_view()
            runtime.copy_in(target, view if view is not None else source.copy_out())
        report.count(0, nbytes, time.perf_counter() - start, kernels=0)


def _nbytes(plan: Plan, step: Step) -> int | None:
    """The bytes that a copy takes; None for all that its source has, where a launch says how many
    these are.
    """
    memory = plan.buffers[step.buffers[0]]
    return None if memory.terms is not None else memory.size * memory.dtype.nbytes


def made_ready(plan: Plan, load: Load) -> Ready | None:
    """The plan ready to run in one call, if its device has that and each step is a kernel there,
    or a copy to it that may come before all kernels.
    """
    steps: tuple[Step, ...] = plan.steps
    device = next((step.device for step in steps if step.kernel is not None), None)
    if device is None or any(step.is_custom or step.loop for step in steps):
        return None
    if not _copies_come_first(plan):
        return None
    if any(step.kernel is not None and step.kernel.blocks is not None for step in steps):
        # The number of blocks is another at each launch.
        return None
    # What copies read is on other devices.
    read = {step.buffers[1] for step in steps if step.kernel is None}
    devices = {
        memory.device for position, memory in enumerate(plan.buffers) if position not in read
    }
    if {*devices, *plan.blocks, *[step.device for step in steps]} != {device}:
        return None
    slots = {position for position, memory in enumerate(plan.buffers) if memory.slot is not None}
    if not slots.isdisjoint(plan.outputs):
        return None
    found = Ready(plan, Device[device], load)
    return found if found.call(True) is not None else None


def _copies_come_first(plan: Plan) -> bool:
    """Whether each copy reads an input that nothing else names, and fills memory that no earlier
    kernel uses.
    """
    used: set[int] = set()
    is_block_used = False
    named = [position for step in plan.steps for position in step.buffers]
    for step in plan.steps:
        if step.kernel is not None:
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
