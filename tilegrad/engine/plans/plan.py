"""What a plan is, and its text on disk.

A plan holds numbers, names and keys only, never buffers or graphs, so that one plan serves every
graph of the same form, in this process and the next. Its text is JSON, and what is read is checked
field by field: a text that says something else is no plan.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import DTypeError
from tilegrad.engine.build.pipeline import CompiledKernel, recall_kernel
from tilegrad.engine.program.fields import (
    flag,
    mapping,
    names,
    numbers,
    parsed,
    row,
    terms,
    text,
    whole,
)
from tilegrad.ir.lengths import Terms

__all__ = ["Memory", "Plan", "Step", "Turns", "plan_of", "text_of"]


@dataclass(frozen=True)
class Step:
    """A launch, or where `kernel` is None a copy, or with `is_custom` the Python function of the
    first of `nodes`, which are positions in the graph's order, or with `turns` a plan run many
    times. `names` are those of the values that the kernel's variables take.
    """

    device: str
    buffers: tuple[int, ...]
    kernel: CompiledKernel | None
    nodes: tuple[int, ...]
    is_custom: bool = False
    names: tuple[str, ...] = ()
    turns: Turns | None = None


@dataclass(frozen=True)
class Turns:
    """The plan of a loop's step, run `length` times, with the number of the step as the variable
    `STEP`, from the last down if it `is_reversed`.

    `places` are, of each of the plan's inputs, the positions in the loop's buffers: in the first
    turn, in later ones that an even number of turns follow, and an odd number. `blocks` are those
    of the memory that the plan's temporaries share on a device.
    """

    plan: Plan
    length: int
    is_reversed: bool
    places: tuple[tuple[int, ...], ...]
    blocks: dict[str, int]


@dataclass(frozen=True)
class Memory:
    """A buffer of a plan: the input number `source`, a part of the block at `offset`, or memory of
    its own, of as many elements as `terms` say at the values of a launch's lengths, at most `size`;
    those with one `slot` take turns in one memory.
    """

    device: str
    dtype: DType
    size: int
    source: int | None
    offset: int | None
    terms: Terms | None = None
    slot: int | None = None


@dataclass(frozen=True)
class Plan:
    """Steps in order, their buffers, which of these are the results, and the bytes of each device's
    block. The last results are values that were not asked for, of the nodes at `kept`.
    """

    steps: tuple[Step, ...]
    buffers: tuple[Memory, ...]
    outputs: tuple[int, ...]
    blocks: dict[str, int]
    kept: tuple[int, ...] = ()
    # What `engine.run.run` has made ready of it.
    ready: list[Any] = field(default_factory=list, compare=False, repr=False)

    @property
    def peak_bytes(self) -> int:
        """Memory that a run takes beyond its inputs."""
        own = sum(
            m.size * m.dtype.itemsize for m in self.buffers if m.source is None and m.offset is None
        )
        return own + sum(self.blocks.values())


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
        turns = None
        if s.turns is not None:
            turns = {**vars(s.turns), "plan": _fields_of(s.turns.plan)}
        steps.append([s.device, s.buffers, kernel, s.nodes, s.is_custom, s.names, turns])
    buffers = [{**asdict(m), "dtype": m.dtype.name} for m in plan.buffers]
    return {
        "steps": steps,
        "buffers": buffers,
        "outputs": plan.outputs,
        "blocks": plan.blocks,
        "kept": plan.kept,
    }


def _plan_of(fields: dict[str, Any]) -> Plan | None:
    memory = [_memory_of(each) for each in row(fields["buffers"])]
    last = len(memory) - 1
    steps: list[Step] = []
    for each in row(fields["steps"]):
        device, buffers, key, nodes, is_custom, given, loop = row(each, 7)
        kernel, turns = None, None
        if key is not None:
            kernel = recall_kernel(text(key))
            if kernel is None:
                return None
        if loop is not None:
            turns = _turns_of(loop)
            if turns is None:
                return None
        places = numbers(buffers, last)
        step = Step(
            text(device), places, kernel, numbers(nodes), flag(is_custom), names(given), turns
        )
        steps.append(step)
    outputs, kept = numbers(fields["outputs"], last), numbers(fields["kept"])
    return Plan(tuple(steps), tuple(memory), outputs, mapping(fields["blocks"]), kept)


def _turns_of(fields: dict[str, Any]) -> Turns | None:
    plan = _plan_of(fields["plan"])
    if plan is None:
        return None
    places = tuple([numbers(each) for each in row(fields["places"])])
    is_reversed, blocks = flag(fields["is_reversed"]), mapping(fields["blocks"])
    return Turns(plan, whole(fields["length"]), is_reversed, places, blocks)


def _memory_of(fields: dict[str, Any]) -> Memory:
    source, offset, slot = [
        None if fields[name] is None else whole(fields[name])
        for name in ("source", "offset", "slot")
    ]
    dtype = dtypes.from_name(text(fields["dtype"]))
    size, of_launch = whole(fields["size"]), terms(fields["terms"])
    return Memory(text(fields["device"]), dtype, size, source, offset, of_launch, slot)
