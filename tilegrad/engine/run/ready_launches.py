"""The run of a ready plan as one function without loops, which is written for the plan once it has
run a few times. For a kernel over one input, with one result and a temporary:

    def run(i, v):
        a0 = i[0]._handle
        if a0 is None: return slowly(i, v)
        h0 = h1 = None
        try: h0 = k3(); h1 = k4()
        except IndexError: return slowly(i, v, (h0, h1))
        o0 = blank(Buffer); o0.size = 128; ...
        call([a0, h1, h1, h0])
        ...
        return [o0]

Whatever is not as always (an input without memory, no block that waits for reuse) is left to the
plain way, `slowly`, which does the same by loops.

Such a function needs the launches of a plan in order, those of its loops one iteration after the
other, each with its arguments: `launches_of` has them where all are kernels whose dimensions are
known.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tilegrad.base.dtype import DType
from tilegrad.base.flat_code import FlatCode
from tilegrad.base.trace import GlobalCounters
from tilegrad.engine.build.pipeline import CompiledKernel
from tilegrad.engine.plans.plan import LoopPlan, Plan, PlannedMemory, Step
from tilegrad.ir.args import STEP
from tilegrad.ir.lengths import Terms
from tilegrad.runtime.allocator import LRUAllocator
from tilegrad.runtime.buffer import Buffer, over

__all__ = [
    "MOST_LAUNCHES",
    "Blocks",
    "FixedInteger",
    "Inside",
    "KernelLaunch",
    "Pick",
    "PlanRun",
    "RunText",
    "launches_of",
    "lengths_of_loops",
    "written_run",
]

PlanRun = Callable[[Sequence[Buffer], Mapping[str, int]], list[Buffer]]


class Blocks(NamedTuple):
    """The blocks of memory that a run takes: the bytes of each, their size classes, and the rows of
    the first ones, which are results (`buffer.over`).
    """

    asked: list[int]
    sizes: list[int]
    results: list[tuple[int, DType, int, int]]


class RunText(NamedTuple):
    """Facts from which the function is written.

    Attributes:
        inputs: the numbers of the inputs whose handles the launches take, `a0`, `a1`.
        words: for all that the launches take an expression of these, of the handles of blocks,
            `h0`, `h1`, and of the values of variables `v`.
        outputs: an expression of inputs `i` and new buffers `o0`, `o1`.
        blocks: the blocks where they are the same in each run; `blocks_at` gives them otherwise.
            `block_count` is their number, `result_count` the number of results among them.
        call: the launches as one call, where it is always that; its operations, bytes and kernels
            are `costs`. Else `launch` makes it.
        spend: where it is given, it is told the seconds of that call.
    """

    inputs: Sequence[int]
    words: Sequence[str]
    outputs: Sequence[str]
    blocks: Blocks | None
    blocks_at: Callable[[Mapping[str, int]], Blocks]
    block_count: int
    result_count: int
    call: Any
    costs: tuple[int, int, int]
    spend: Callable[[float], None] | None
    launch: Callable[..., None]


def written_run(text: RunText, allocator: LRUAllocator, slowly: Callable[..., Any]) -> PlanRun:
    """The function. `slowly` runs the plan of inputs, values of variables, and handles of blocks of
    the fixed sizes that were taken and are to go back.
    """
    writer = _RunWriter(allocator, slowly)
    lines = writer.lines
    for number in text.inputs:
        lines.append(f"a{number} = i[{number}]._handle")
    if text.inputs:
        missing = " or ".join([f"a{number} is None" for number in text.inputs])
        lines.append(f"if {missing}: return slowly(i, v)")
    is_small = text.blocks is not None and all(
        size <= allocator._small for size in text.blocks.sizes
    )
    if text.blocks is not None and is_small:
        writer.take_small(text.blocks)
    else:
        writer.take_any(text)
    lines.append("try:")
    writer.launch(text)
    lines.append("finally:")
    writer.give_back(text, is_small=is_small)
    lines.append(f"return [{', '.join(text.outputs)}]")
    run: PlanRun = writer.function("run(i, v)", "run")
    return run


class _RunWriter(FlatCode):
    """The lines of the function."""

    def __init__(self, allocator: LRUAllocator, slowly: Callable[..., Any]) -> None:
        super().__init__(
            allocator=allocator, blank=object.__new__, Buffer=Buffer, clock=time.perf_counter,
            counters=GlobalCounters, most=allocator.most_quick, over=over, slowly=slowly,
            take_memory=GlobalCounters.take_memory,
        )  # fmt: skip
        self.allocator = allocator

    def take_small(self, blocks: Blocks) -> None:
        """Take blocks that wait for reuse, and make the results."""
        add = self.lines.append
        count = len(blocks.sizes)
        if count:
            every = [f"h{number}" for number in range(count)]
            add(f"{' = '.join(every)} = None")
            add("try:")
            for name, size in zip(every, blocks.sizes):
                # The list of a size class stays the same one.
                waiting = self.allocator.quick.setdefault(size, [])
                add(f" {name} = {self.name(waiting.pop)}()")
            add(f"except IndexError: return slowly(i, v, ({', '.join(every)},))")
        for number, (size, dtype, nbytes, block) in enumerate(blocks.results):
            # As `over`.
            add(f"o{number} = o = blank(Buffer)")
            add(f"o.allocator = allocator; o.size = {size}; o.dtype = {self.name(dtype)}")
            add(f"o.nbytes = {nbytes}; o._handle = h{number}; o._block = {block}, h{number}")
        if blocks.results:
            add(f"take_memory({sum(nbytes for _, _, nbytes, _ in blocks.results)})")

    def take_any(self, text: RunText) -> None:
        """The same, of blocks that may be large, or others in each run."""
        add = self.lines.append
        if text.blocks is None:
            add(f"_, sizes, rows = {self.name(text.blocks_at)}(v)")
        else:
            add(f"sizes = {self.name(text.blocks.sizes)}")
            add(f"rows = {self.name(text.blocks.results)}")
        add("handles = allocator.allocate_all(sizes)")
        add("if handles is None: return slowly(i, v)")
        if text.block_count:
            add(f"({', '.join([f'h{number}' for number in range(text.block_count)])},) = handles")
        if text.result_count:
            every = [f"o{number}" for number in range(text.result_count)]
            add(f"({', '.join(every)},) = over(allocator, rows, handles)")

    def launch(self, text: RunText) -> None:
        """Launch the kernels, and count them."""
        add = self.lines.append
        words = f"[{', '.join(text.words)}]"
        if text.call is None:
            handles = ", ".join([f"h{number}" for number in range(text.block_count)])
            add(f" {self.name(text.launch)}({words}, i, [{handles}], v)")
            return
        ops, mem, kernels = text.costs
        add(" began = clock()")
        add(f" {self.name(text.call)}({words})")
        add(" spent = clock() - began")
        add(" counters.time_sum_s += spent")
        if text.spend is not None:
            add(f" {self.name(text.spend)}(spent)")
        add(f" counters.kernel_count += {kernels}")
        add(f" counters.global_ops += {ops}; counters.global_mem += {mem}")

    def give_back(self, text: RunText, *, is_small: bool) -> None:
        """Give back memory of this run alone."""
        add = self.lines.append
        temporary = range(text.result_count, text.block_count)
        for number in temporary:
            if text.blocks is None:
                add(f" allocator.take_back((sizes[{number}], h{number}))")
                continue
            size = text.blocks.sizes[number]
            back = f"allocator.take_back(({size}, h{number}))"
            if is_small:
                waiting = self.name(self.allocator.quick[size])
                add(f" if len({waiting}) < most: {waiting}.append(h{number})")
                add(f" else: {back}")
            else:
                add(f" {back}")
        if not temporary:
            add(" pass")


# Longer loops run launch by launch, which takes a few microseconds each.
MOST_LAUNCHES = 1 << 13
"""Longer loops are not unrolled."""


class Inside(NamedTuple):
    """The memory `offset` bytes into the buffer at `position` of a plan."""

    position: int
    offset: int


class FixedInteger(NamedTuple):
    """An integer that is the same in each run."""

    value: int


# An argument of a launch: the buffer at a position of the plan, the value of a variable, and in a
# loop temporaries and the number of the iteration.
Pick = int | str | Inside | FixedInteger


class KernelLaunch(NamedTuple):
    """A kernel, and its arguments."""

    device: str
    kernel: CompiledKernel
    picks: tuple[Pick, ...]


def launches_of(
    plan: Plan, variables: Mapping[str, int] | None = None
) -> list[KernelLaunch] | None:
    """The launches of `plan` but for its copies; None if a step is something else, if a loop has
    memory that each run takes anew, or if there are too many. Loops whose lengths a launch says run
    as often as they do at the `variables`, which may be any number of launches.
    """
    found: list[KernelLaunch] = []
    for step in plan.steps:
        if step.is_custom:
            return None
        if step.loop is not None:
            inner = step.loop.plan
            if (
                not all(map(_is_plain, inner.steps))
                or any(_is_own(memory) for memory in inner.buffers)
                or (_is_long(step.loop) and variables is None)
            ):
                return None
            found += _iterations(step, step.loop, variables or {})
        elif step.kernel is not None:
            if step.kernel.blocks is not None:
                # The number of blocks is another at each launch.
                return None
            picks = (*step.buffers, *map(_integer, step.names))
            found.append(KernelLaunch(step.device, step.kernel, picks))
    return found if variables is not None or len(found) <= MOST_LAUNCHES else None


def lengths_of_loops(plan: Plan) -> list[Terms]:
    """The lengths of loops that a launch says."""
    loops = [step.loop for step in plan.steps if step.loop is not None]
    return [each.length for each in loops if not isinstance(each.length, int)]


def _is_long(loop: LoopPlan) -> bool:
    length = loop.length
    return not isinstance(length, int) or length * len(loop.plan.steps) > MOST_LAUNCHES


def _is_plain(step: Step) -> bool:
    """Whether a step of a loop is a kernel that depends on no variable but the iteration's."""
    kernel = step.kernel
    return (
        kernel is not None
        and kernel.blocks is None
        and kernel.costs is None
        and all(isinstance(name, int) or name == STEP for name in step.names)
    )


def _integer(name: str | int) -> Pick:
    """The name of a variable, or its value where that is the same in each run."""
    return FixedInteger(name) if isinstance(name, int) else name


def _is_own(memory: PlannedMemory) -> bool:
    return memory.slot is not None or (memory.source is None and memory.offset is None)


def _iterations(step: Step, loop: LoopPlan, variables: Mapping[str, int]) -> Iterator[KernelLaunch]:
    tables: list[list[Pick]] = [
        [
            Inside(step.buffers[loop.blocks[memory.device]], memory.offset or 0)
            if memory.source is None
            else step.buffers[loop.positions[memory.source][when]]
            for memory in loop.plan.buffers
        ]
        for when in range(4)
    ]
    for number, when in loop.iterations(variables):
        for inner in loop.plan.steps:
            assert inner.kernel is not None
            memory = [tables[when][position] for position in inner.buffers]
            # The only variable that a step of a loop has is the number of the iteration.
            integers = [name if isinstance(name, int) else number for name in inner.names]
            picks = (*memory, *map(FixedInteger, integers))
            yield KernelLaunch(inner.device, inner.kernel, picks)
