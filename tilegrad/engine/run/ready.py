"""Plans made ready: where all steps are kernels of one device that takes several launches in one
call, a run takes memory, copies data of the host, gathers addresses, and makes that call. Once the
plan has run a few times, a function is written that does this (`ready_launches`).

Memory and costs of a plan for a range of sizes are worked out for each run. Nothing is decided here
that `run` beside this file does not decide: who wants to see each step (a capture, `DEBUG=2`,
`CHECK=2`, a timer) has it go through them one by one.
"""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tilegrad.base.errors import InternalError, TilegradError
from tilegrad.device.backend import Backend
from tilegrad.engine.build.pipeline import CompiledKernel
from tilegrad.engine.plans.plan import Plan, PlannedMemory, Step
from tilegrad.engine.run import better_kernels, report
from tilegrad.engine.run.ready_launches import (
    Blocks,
    FixedInteger,
    Inside,
    KernelLaunch,
    Pick,
    PlanRun,
    RunText,
    launches_of,
    written_run,
)
from tilegrad.engine.run.wakes_threads import WakesThreads
from tilegrad.ir.lengths import Terms, text_of, value_of
from tilegrad.runtime.buffer import Buffer, over, size_class

__all__ = ["Load", "NoRoomError", "Ready", "is_copy"]

# Operations and bytes of a run that ends before a sleeping thread has woken: some 100 microseconds.
_SMALL_OPS = _SMALL_BYTES = 1 << 20
# A larger run may end before that too, as one of matrix products does (`wakes_threads`).
_MIDDLE_OPS, _MIDDLE_BYTES = 1 << 24, 1 << 22

# Compiling a function takes as long as some fifty runs lose without it.
_OFTEN: Final = 8

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

    def text(self) -> str:
        """`at` as an expression in Python, of the variables `v`."""
        ops = [str(self.ops), *[text_of(each, "v") for each, _ in self.of_lengths]]
        mem = [str(self.mem), *[text_of(each, "v") for _, each in self.of_lengths]]
        return f"({' + '.join(ops)}, {' + '.join(mem)})"


class _BlockSizes:
    """How large the blocks of a plan are: for each of `own` memory one, for each list of `shared`
    one that is as large as the largest, which are used in turn, and one of `rest` bytes. The first
    `results` of them outlive the run. A plan for a range of sizes `is_sized`: its launches say.
    """

    __slots__ = ("_counted", "_own", "_rest", "_shared", "count", "is_sized", "result_count")

    def __init__(
        self,
        own: Sequence[PlannedMemory],
        shared: Sequence[Sequence[PlannedMemory]],
        rest: int,
        results: int,
    ):
        self._own = [(each.terms, each.size, each.dtype) for each in own]
        self._shared = [[(each.terms or (), each.dtype.nbytes) for each in one] for one in shared]
        self._rest, self.result_count = rest, results
        self.count = len(self._own) + len(self._shared) + (rest > 0)
        self._counted: Any = self._count
        self.is_sized = bool(shared) or any(each.terms is not None for each in own)

    def at(self, variables: Mapping[str, int]) -> Blocks:
        counts, asked = self._counted(variables)
        if asked and min(asked) <= 0:
            raise InternalError(
                f"plan: a buffer of {min(asked)} bytes", rule="an empty tensor has no buffer"
            )
        sizes = [*map(size_class, asked)]
        dtypes = [dtype for _, _, dtype in self._own[: self.result_count]]
        return Blocks(asked, sizes, [*zip(counts, dtypes, asked, sizes)])

    def _count(self, variables: Mapping[str, int]) -> tuple[list[int], list[int]]:
        """The elements of own memory, and the bytes of all blocks."""
        counts = [
            size if terms is None else value_of(terms, variables) for terms, size, _ in self._own
        ]
        asked = [count * dtype.nbytes for count, (_, _, dtype) in zip(counts, self._own)]
        for members in self._shared:
            asked.append(max([value_of(terms, variables) * nbytes for terms, nbytes in members]))
        if self._rest:
            asked.append(self._rest)
        return counts, asked

    def write(self) -> None:
        """From now on an expression counts."""
        counts = [
            str(size) if terms is None else text_of(terms, "v") for terms, size, _ in self._own
        ]
        asked = [f"({count}) * {dtype.nbytes}" for count, (_, _, dtype) in zip(counts, self._own)]
        for members in self._shared:
            each = [f"({text_of(terms, 'v')}) * {nbytes}" for terms, nbytes in members]
            asked.append(f"max([{', '.join(each)}])")
        if self._rest:
            asked.append(str(self._rest))
        self._counted = eval(f"lambda v: ([{', '.join(counts)}], [{', '.join(asked)}])")


class Ready:
    """A plan on one device. `backend` is that of the device at the time."""

    __slots__ = (
        "_allocator", "_calls", "_copies", "_costs", "_costs_at", "_count", "_first", "_fixed",
        "_inputs", "_launches", "_lengths", "_load", "_memory", "_offsets", "_outputs", "_own",
        "_patience_s", "_picks", "_plan", "_run", "_runs", "_shared", "_wakes", "backend",
    )  # fmt: skip

    def __init__(
        self,
        plan: Plan,
        launches: Sequence[KernelLaunch],
        backend: Backend,
        load: Load,
        lengths: Mapping[str, int] | None = None,
    ) -> None:
        self.backend = backend
        # The values of variables at which loops have their lengths.
        self._lengths = lengths
        self._allocator = backend.allocator
        # A plan has its ready forms.
        self._plan, self._load = weakref.ref(plan), load
        kernels = [each.kernel for each in launches]
        self._count = len(kernels)
        self._costs = _Costs(
            sum(each.ops for each in kernels if each.costs is None),
            sum(each.mem for each in kernels if each.costs is None),
            tuple([(each.costs[0], each.costs[1]) for each in kernels if each.costs is not None]),
        )
        self._costs_at: Any = self._costs.at
        self._picks: list[Pick] = [pick for each in launches for pick in each.picks]
        self._first: PlanRun = self._run_at_first
        self._assign_inputs(plan)
        self._assign_own_memory(plan)
        self._use(launches)

    def _use(self, launches: Sequence[KernelLaunch]) -> None:
        """Run the kernels of these launches from now on."""
        self._launches = [
            (self._load(device, kernel), len(picks), kernel.global_size)
            for device, kernel, picks in launches
        ]
        # How long kernels in short shapes may run before better ones are made.
        patience_s = better_kernels.patience_s([each.kernel for each in launches])
        self._patience_s: float = patience_s or math.inf
        # By whether the work is small.
        self._calls: dict[bool, Any] = {}
        # For work that may be small: whether it wakes threads.
        self._wakes = WakesThreads()
        # A function was written for the kernels before these.
        self._runs = 0
        self._run: PlanRun = self._first

    def renew(self) -> None:
        """Run the kernels that the plan has by now."""
        plan = self._plan()
        if plan is not None:
            self._use(launches_of(plan, self._lengths) or ())

    def _assign_inputs(self, plan: Plan) -> None:
        """The inputs that are copied to this device, and those that are the caller's memory."""
        # Copies come first. No kernel writes their sources.
        self._copies = [
            (step.buffers[0], plan.buffers[step.buffers[1]].source or 0, _nbytes(plan, step))
            for step in plan.steps
            if is_copy(step)
        ]
        read = {step.buffers[1] for step in plan.steps if is_copy(step)}
        self._inputs = [
            (position, memory.source)
            for position, memory in enumerate(plan.buffers)
            if memory.source is not None and position not in read
        ]

    def _assign_own_memory(self, plan: Plan) -> None:
        """The blocks of memory that each run takes, and where buffers and results lie in them."""
        numbered = [*enumerate(plan.buffers)]
        own = [
            (position, memory)
            for position, memory in numbered
            if memory.source is None and memory.offset is None and memory.slot is None
        ]
        # Results first, by position, then memory of this run alone.
        given = {position for position in plan.outputs if plan.buffers[position].source is None}
        own.sort(key=lambda each: each[0] not in given)
        slots: dict[int, list[tuple[int, PlannedMemory]]] = {}
        for position, memory in numbered:
            if memory.slot is not None:
                slots.setdefault(memory.slot, []).append((position, memory))
        self._own = [position for position, _ in own]
        self._shared = [[position for position, _ in members] for members in slots.values()]
        self._memory = _BlockSizes(
            [memory for _, memory in own],
            [[memory for _, memory in members] for members in slots.values()],
            sum(plan.blocks.values()),
            sum(position in given for position in self._own),
        )
        self._fixed = None if self._memory.is_sized else self._memory.at({})
        self._offsets = [
            (position, memory.offset) for position, memory in numbered if memory.offset is not None
        ]
        # An output without memory of this run is an input that the run wrote to, or gives back.
        self._outputs = [
            (None if plan.buffers[position].source is not None else self._own.index(position),
             plan.buffers[position].source)
            for position in plan.outputs
        ]  # fmt: skip

    def call(self, is_small: bool) -> Any:
        """All launches as one call; None if the device has no such."""
        calls = self._calls
        found = calls.get(is_small)
        if found is None:
            found = self.backend.runtime.sequence([*self._launches], is_small)
            calls[is_small] = found
        return found

    def run(self, inputs: Sequence[Buffer], variables: Mapping[str, int]) -> list[Buffer]:
        """As `run_plan`. All memory is taken first: where there is too little, nothing runs.

        Raises NoRoomError for that.
        """
        return self._run(inputs, variables)

    def _run_at_first(self, inputs: Sequence[Buffer], variables: Mapping[str, int]) -> list[Buffer]:
        """As `run`, until a function is written for it."""
        self._runs += 1
        if self._runs >= _OFTEN:
            self._write()
        return self._run_by_loops(inputs, variables)

    def _run_by_loops(
        self,
        inputs: Sequence[Buffer],
        variables: Mapping[str, int],
        taken: Sequence[Any] = (),
    ) -> list[Buffer]:
        """As `run`. The blocks of memory `taken` go back."""
        allocator = self._allocator
        if self._fixed is not None:
            for size, handle in zip(self._fixed.sizes, taken):
                if handle is not None:
                    allocator.take_back((size, handle))
        position = 0
        try:
            for number, source in self._inputs:
                if inputs[source]._handle is None:
                    position = number
                    _ = inputs[source].handle
            asked, sizes, results = self._fixed or self._memory.at(variables)
            handles = allocator.allocate_all(sizes)
            if handles is None:
                handles = self._taken(asked, sizes)
        except TilegradError as error:
            raise NoRoomError(position, error) from None
        count = len(results)
        made = over(allocator, results, handles) if count else []
        try:
            table = self._table(inputs, handles)
            words = [_picked(pick, table, variables) for pick in self._picks]
            self._launch(words, inputs, handles, variables)
        finally:
            for block in zip(sizes[count:], handles[count:]):
                allocator.take_back(block)
        return [
            made[position] if position is not None else inputs[source or 0]
            for position, source in self._outputs
        ]

    def _write(self) -> None:
        """From now on a function that is written for this plan runs it."""
        launches = self._launches
        if self._costs.of_lengths:
            self._costs_at = eval(f"lambda v: {self._costs.text()}")
        if self._memory.is_sized:
            self._memory.write()
        texts = self._texts()
        ops, mem = self._costs[:2]
        is_always_small = ops <= _SMALL_OPS and mem <= _SMALL_BYTES and not self._costs.of_lengths
        blocks = self._fixed
        text = RunText(
            [source for _, source in self._inputs],
            [_text(pick, texts) for pick in self._picks],
            [f"i[{source}]" if at is None else f"o{at}" for at, source in self._outputs],
            blocks,
            self._memory.at,
            self._memory.count,
            self._memory.result_count,
            self.call(True) if is_always_small and not self._copies else None,
            (ops, mem, self._count),
            self._spend if self._patience_s < math.inf else None,
            self._launch,
        )
        self._run = written_run(text, self._allocator, self._run_by_loops)
        if self._launches is not launches:
            # Another thread has brought better kernels meanwhile.
            self._run = self._first

    def _table(self, inputs: Sequence[Buffer], handles: Sequence[Any]) -> dict[int, Any]:
        """The memory of each buffer of the plan, by position."""
        table = {position: inputs[source]._handle for position, source in self._inputs}
        table |= zip(self._own, handles)
        for positions, handle in zip(self._shared, handles[len(self._own) :]):
            table |= dict.fromkeys(positions, handle)
        table |= {position: handles[-1] + offset for position, offset in self._offsets}
        return table

    def _texts(self) -> dict[int, str]:
        """As `_table`, as expressions of inputs `a0`, `a1` and blocks `h0`, `h1`."""
        texts = {position: f"a{source}" for position, source in self._inputs}
        texts |= {position: f"h{number}" for number, position in enumerate(self._own)}
        for number, positions in enumerate(self._shared, len(self._own)):
            texts |= dict.fromkeys(positions, f"h{number}")
        last = self._memory.count - 1
        texts |= {position: f"h{last} + {offset}" for position, offset in self._offsets}
        return texts

    def _launch(
        self,
        words: list[Any],
        inputs: Sequence[Buffer],
        handles: Sequence[Any],
        variables: Mapping[str, int],
    ) -> None:
        """Copy data of the host, and run the kernels."""
        if self._copies:
            table = self._table(inputs, handles)
            for position, source, nbytes in self._copies:
                given = inputs[source]
                self._copy(table[position], given, given.nbytes if nbytes is None else nbytes)
        ops, mem = self._costs[:2]
        if self._costs.of_lengths:
            ops, mem = self._costs_at(variables)
        is_small = ops <= _SMALL_OPS and mem <= _SMALL_BYTES
        may_be_small = ops <= _MIDDLE_OPS and mem <= _MIDDLE_BYTES and not self._costs.of_lengths
        is_timed = may_be_small and not is_small
        if is_timed:
            is_small = not self._wakes.next_does
        call = self._calls.get(is_small) or self.call(is_small)
        began = time.perf_counter()
        call(words)
        spent = time.perf_counter() - began
        if is_timed:
            self._wakes.took(spent)
        report.count(ops, mem, spent, self._count)
        self._spend(spent)

    def _spend(self, spent: float) -> None:
        """Kernels in short shapes have run for some seconds."""
        self._patience_s -= spent
        if self._patience_s < 0:
            self._patience_s = math.inf
            plan = self._plan()
            if plan is not None:
                better_kernels.begin(plan, self)

    def _taken(self, asked: Sequence[int], sizes: Sequence[int]) -> list[Any]:
        """Memory of size classes `sizes`, where there is too little: as it is `asked` for, in
        bytes, one after the other.
        """
        allocator = self._allocator
        handles: list[Any] = []
        try:
            for nbytes in asked:
                handles.append(allocator.allocate(nbytes))
        except TilegradError as error:
            for block in zip(sizes, handles):
                allocator.take_back(block)
            number = min(len(handles), len(self._own) - 1)
            raise NoRoomError(self._own[number] if self._own else 0, error) from None
        return handles

    def _copy(self, target: Any, source: Buffer, nbytes: int) -> None:
        """Copy data of the host."""
        runtime = self.backend.runtime
        start = time.perf_counter()
        if not runtime.transfer(target, source.handle, source.allocator.runtime, nbytes):
            view = source.host_view()
            runtime.copy_in(target, view if view is not None else source.copy_out())
        report.count(0, nbytes, time.perf_counter() - start, kernels=0)


def _picked(pick: Pick, table: Mapping[int, Any], variables: Mapping[str, int]) -> Any:
    """Arguments of a launch, with the memory of buffers from `table`."""
    if isinstance(pick, str):
        return variables[pick]
    if isinstance(pick, Inside):
        return table[pick.position] + pick.offset
    return pick.value if isinstance(pick, FixedInteger) else table[pick]


def _text(pick: Pick, texts: Mapping[int, str]) -> str:
    """As `_picked`, as an expression of the variables `v`."""
    if isinstance(pick, str):
        return f"v[{pick!r}]"
    if isinstance(pick, Inside):
        return f"{texts[pick.position]} + {pick.offset}"
    return str(pick.value) if isinstance(pick, FixedInteger) else texts[pick]


def is_copy(step: Step) -> bool:
    """Whether a step is a copy."""
    return step.kernel is None and step.loop is None


def _nbytes(plan: Plan, step: Step) -> int | None:
    """The bytes that a copy takes; None for all that its source has, where a launch says how many
    these are.
    """
    memory = plan.buffers[step.buffers[0]]
    return None if memory.terms is not None else memory.size * memory.dtype.nbytes
