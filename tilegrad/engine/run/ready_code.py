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
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tilegrad.base.dtype import DType
from tilegrad.base.flat_code import FlatCode
from tilegrad.base.trace import GlobalCounters
from tilegrad.runtime.allocator import LRUAllocator
from tilegrad.runtime.buffer import Buffer, over

__all__ = ["Blocks", "PlanRun", "RunText", "written_run"]

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
