"""The launches of a plan in order, those of its loops one iteration after the other, each with its
arguments: where all of them are kernels whose dimensions are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tilegrad.engine.build.pipeline import CompiledKernel
from tilegrad.engine.plans.plan import LoopPlan, Plan, PlannedMemory, Step
from tilegrad.ir.args import STEP
from tilegrad.ir.lengths import Terms

__all__ = [
    "MOST_LAUNCHES", "FixedInteger", "Inside", "KernelLaunch", "Pick", "launches_of",
    "lengths_of_loops",
]  # fmt: skip

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
    last = loop.length_at(variables) - 1
    for iteration in range(last + 1):
        table = tables[2 * (iteration > 0) + (last - iteration) % 2]
        number = FixedInteger(last - iteration if loop.is_reversed else iteration)
        for inner in loop.plan.steps:
            assert inner.kernel is not None
            integers = [
                FixedInteger(name) if isinstance(name, int) else number for name in inner.names
            ]
            picks = [*[table[position] for position in inner.buffers], *integers]
            yield KernelLaunch(inner.device, inner.kernel, tuple(picks))
