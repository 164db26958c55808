"""A plan, and its text on disk.

A plan holds numbers, names and keys only, never buffers or graphs, so that one plan serves every
graph of the same signature, in this process and the next. Its text is JSON, checked field by field
as it is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import DTypeError
from tilegrad.engine.build.pipeline import CompiledKernel, best_key, recall_kernel
from tilegrad.engine.program.fields import (
    flag,
    mapping,
    names_or_integers,
    numbers,
    parsed,
    row,
    terms,
    text,
    whole,
)
from tilegrad.ir.lengths import Terms, value_of

__all__ = ["LoopPlan", "Plan", "PlannedMemory", "Step", "plan_of", "text_of"]


@dataclass(frozen=True)
class Step:
    """A launch, or where `kernel` is None a copy, or with `is_custom` the Python function of the
    first of `nodes`, which are positions in the graph's order, or with `loop` a plan run many
    times. `names` are those of the values that the kernel's variables take, or the values
    themselves where these are the same in each run.
    """

    device: str
    buffers: tuple[int, ...]
    kernel: CompiledKernel | None
    nodes: tuple[int, ...]
    is_custom: bool = False
    names: tuple[str | int, ...] = ()
    loop: LoopPlan | None = None
    # How many of the buffers, the first, it writes.
    written: int = 1


@dataclass(frozen=True)
class LoopPlan:
    """The plan of a loop's step, run `length` times, with the number of the step as the variable
    `STEP`, from the last down if it `is_reversed`. A length of a launch is terms.

    `positions` has for each input of the plan its positions in the loop's buffers: in the first
    iteration, before an even number of iterations and before an odd number, and so in later ones.
    `blocks` has the buffer of each device in which the plan's temporaries lie.
    """

    plan: Plan
    length: int | Terms
    is_reversed: bool
    positions: tuple[tuple[int, ...], ...]
    blocks: dict[str, int]

    def length_at(self, variables: Mapping[str, int]) -> int:
        """How often it runs in a launch with these values of variables."""
        length = self.length
        return length if isinstance(length, int) else value_of(length, variables)

    def iterations(self, variables: Mapping[str, int]) -> Iterator[tuple[int, int]]:
        """For each iteration the number of its step, and which of the positions inputs have."""
        last = self.length_at(variables) - 1
        for iteration in range(last + 1):
            number = last - iteration if self.is_reversed else iteration
            yield number, 2 * (iteration > 0) + (last - iteration) % 2


@dataclass(frozen=True)
class PlannedMemory:
    """A buffer of a plan: the input number `source`, a part of the block at `offset`, or memory of
    its own, of as many elements as `terms` say at the values of a launch's lengths, at most `size`;
    those with one `slot` share memory, one at a time.
    """

    device: str
    dtype: DType
    size: int
    source: int | None
    offset: int | None
    terms: Terms | None = None
    slot: int | None = None


@dataclass
class Plan:
    """Steps in order, their buffers, which of these are the results, and the bytes of each device's
    block. The last results are values that were not asked for, of the nodes at `materialised`.

    Nothing of it changes but the kernels of its steps, from short shapes to their best ones.
    """

    steps: tuple[Step, ...]
    buffers: tuple[PlannedMemory, ...]
    outputs: tuple[int, ...]
    blocks: dict[str, int]
    materialised: tuple[int, ...] = ()
    # The runnable plan made by `engine.run.run`, and the order of its commands if it has several
    # devices.
    ready: list[Any] = field(default_factory=list, compare=False, repr=False)
    order: list[Any] = field(default_factory=list, compare=False, repr=False)

    def short_kernels(self) -> dict[str, tuple[str, CompiledKernel]]:
        """The kernels in a short shape, those of loops included, by the key of their best shape,
        with their devices.
        """
        found: dict[str, tuple[str, CompiledKernel]] = {}
        plans = [self]
        for plan in plans:
            for step in plan.steps:
                if step.kernel is not None and step.kernel.lines:
                    found[best_key(step.kernel.key)] = step.device, step.kernel
                if step.loop is not None:
                    plans.append(step.loop.plan)
        return found

    def use(self, kernels: Mapping[str, CompiledKernel]) -> None:
        """Run these kernels, by key, in place of the same ones in a short shape."""
        plans = [self]
        for plan in plans:
            plan.steps = tuple([_with_best(step, kernels) for step in plan.steps])
            plans += [step.loop.plan for step in plan.steps if step.loop is not None]

    @property
    def peak_bytes(self) -> int:
        """Memory that a run takes beyond its inputs."""
        own = sum(
            m.size * m.dtype.itemsize for m in self.buffers if m.source is None and m.offset is None
        )
        return own + sum(self.blocks.values())


def _with_best(step: Step, kernels: Mapping[str, CompiledKernel]) -> Step:
    """A step with a kernel of the same parameters, if there is one."""
    short = step.kernel
    found = None if short is None else kernels.get(best_key(short.key))
    if short is None or found is None or found.variables != short.variables:
        return step
    return replace(step, kernel=found)


def text_of(plan: Plan) -> bytes:
    """The text of a plan; its kernels are kept under keys of their own."""
    return json.dumps(_fields_of(plan)).encode()


def plan_of(raw: bytes) -> Plan | None:
    """The plan of a text; None if it is none, or a kernel is not kept any more."""
    try:
        return _plan_of(parsed(raw))
    except (ValueError, KeyError, TypeError, RecursionError, DTypeError):
        return None


def _fields_of(plan: Plan) -> dict[str, Any]:
    steps = []
    for s in plan.steps:
        kernel = s.kernel.key if s.kernel else None
        loop = None
        if s.loop is not None:
            loop = {**vars(s.loop), "plan": _fields_of(s.loop.plan)}
        steps.append([s.device, s.buffers, kernel, s.nodes, s.is_custom, s.names, loop, s.written])
    buffers = [{**vars(m), "dtype": m.dtype.name} for m in plan.buffers]
    return {
        "steps": steps,
        "buffers": buffers,
        "outputs": plan.outputs,
        "blocks": plan.blocks,
        "kept": plan.materialised,
    }


def _plan_of(fields: dict[str, Any]) -> Plan | None:
    memory = [_memory_of(each) for each in row(fields["buffers"])]
    last = len(memory) - 1
    steps: list[Step] = []
    for each in row(fields["steps"]):
        device, buffers, key, nodes, is_custom, given, iterated, written = row(each, 8)
        kernel, loop = None, None
        if key is not None:
            known = text(key)
            kernel = recall_kernel(best_key(known), is_short=known != best_key(known))
            if kernel is None:
                return None
        if iterated is not None:
            loop = _loop_plan_of(iterated)
            if loop is None:
                return None
        positions = numbers(buffers, last)
        step = Step(
            text(device), positions, kernel, numbers(nodes), flag(is_custom),
            names_or_integers(given), loop, whole(written),
        )  # fmt: skip
        steps.append(step)
    outputs, materialised = numbers(fields["outputs"], last), numbers(fields["kept"])
    return Plan(tuple(steps), tuple(memory), outputs, mapping(fields["blocks"]), materialised)


def _loop_plan_of(fields: dict[str, Any]) -> LoopPlan | None:
    plan = _plan_of(fields["plan"])
    if plan is None:
        return None
    positions = tuple([numbers(row(each, 4)) for each in row(fields["positions"])])
    is_reversed, blocks = flag(fields["is_reversed"]), mapping(fields["blocks"])
    given = fields["length"]
    length = whole(given) if isinstance(given, int) else terms(given)
    return None if length is None else LoopPlan(plan, length, is_reversed, positions, blocks)


def _memory_of(fields: dict[str, Any]) -> PlannedMemory:
    source, offset, slot = [
        None if fields[name] is None else whole(fields[name])
        for name in ("source", "offset", "slot")
    ]
    dtype = dtypes.from_name(text(fields["dtype"]))
    size, of_launch = whole(fields["size"]), terms(fields["terms"])
    return PlannedMemory(text(fields["device"]), dtype, size, source, offset, of_launch, slot)
