"""A schedule: steps in an order, the memory that they use, and the edges between kernels, each with
the reason why a value is stored and the numbers behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from tilegrad.base.dtype import DType
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.schedule.loop_steps import Loop

__all__ = ["FORCED", "BufferSpec", "Edge", "Item", "Reason", "Schedule", "StoredValues"]


@dataclass(frozen=True)
class BufferSpec:
    """Memory that a schedule uses: an input if `source` is the number of a BUFFER of the graph,
    else made for the run, of `extent` elements if that is for the launch to say, at most `size`.
    """

    device: str
    dtype: DType
    size: int
    source: int | None = None
    extent: UOp | None = None

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize


@dataclass(frozen=True)
class Item:
    """One step: a kernel (`ast`), or where `ast` is None a copy, or with `custom` a Python
    function, or with `loop` the steps of another schedule, many times. `buffers` are positions in
    the schedule's table.

    A kernel's buffers stand in the order of its parameters, its outputs first. `nodes` are the
    positions of the graph's nodes that it computes, for messages and profiles. `draws` are the
    numbers of the graph's draws that it makes: in the kernel they are 0, 1, ... `offset_names` are
    the graph's variables for the offsets of slices that it reads, or the offsets themselves, which
    the kernel numbers as well.
    """

    device: str
    buffers: tuple[int, ...]
    ast: UOp | None = None
    nodes: tuple[int, ...] = ()
    custom: bool = False
    draws: tuple[int, ...] = ()
    offset_names: tuple[str | int, ...] = ()
    loop: Loop | None = None
    # How many of the buffers, the first, it writes.
    written: int = 1

    @property
    def is_copy(self) -> bool:
        return self.ast is None and not self.custom and self.loop is None


@dataclass
class Schedule:
    """Steps in order, the buffers they use, where each requested value is, and why neighbours were
    not fused.
    """

    items: list[Item]
    buffers: list[BufferSpec]
    outputs: list[int]
    edges: list[Edge] = field(default_factory=list)
    # Where values are that are stored anyway, by the positions of their nodes in the graph.
    materialised: dict[int, int] = field(default_factory=dict)


class Reason(Enum):
    """Why a value gets memory of its own. The first group is a matter of meaning or legality, the
    second of profit.
    """

    REQUESTED = "its value was asked for"
    COPIED = "it crosses between devices"
    CUSTOM = "a Python function makes or takes it"
    LOOPED = "a loop makes or takes it"
    CONTIGUOUS = "contiguous() asks for memory of its own"
    ASSIGNED = "it is written to a buffer that exists"
    SCATTERED = "rows are added to it in place"
    SHARED = "several kernels read it"
    OVERWRITTEN = "its memory is overwritten before it is read"
    OVERLAPPING = "it is read elsewhere than where it is written"

    EXPANDED = "a reduced value is expanded again, and the loops share no axis"
    RUNNING = "each element of a scan follows from the one before it"
    REDUCED_AGAIN = "a reduced value is reduced again, and the loops share no axis"
    COSTLY = "computing it again costs more than a round trip through memory"
    NO_PARALLELISM = "the shared axes leave too little to do at once"
    BESIDE = "beside another sum of products, one of the two could not use its operands again"
    GATHERED = "beside a sum of products, each element that it reduces would be loaded by itself"
    TOO_LARGE = "the kernel would have too many operations or buffers"
    PADDED = "a sum of products among zeros would be computed for each of them"


@dataclass(frozen=True)
class Edge:
    """A value that one kernel writes and another reads.

    Attributes:
        producer, consumer: positions of the two kernels in the schedule.
        reason: why they are two.
        bytes_saved: traffic that fusing would save.
        flops_recomputed: work that fusing would add.
    """

    producer: int
    consumer: int
    reason: Reason
    bytes_saved: int
    flops_recomputed: int


@dataclass(frozen=True)
class StoredValues:
    """The values of a graph that are stored, and why, and those that live in a kernel's scratch, as
    text: a line for each, sources first.
    """

    reasons: Mapping[UOp, Reason]
    in_scratch: Iterable[UOp] = ()

    def __str__(self) -> str:
        lines = [f"{_shown(node)}: {reason.value}" for node, reason in self.reasons.items()]
        lines += [f"{_shown(node)}: in the scratch of its kernel" for node in self.in_scratch]
        return "\n".join(lines)


def _shown(node: UOp) -> str:
    if node.op is Ops.LOOP:
        return "LOOP"
    return f"{node.op.name} {node.shape} {repr(node.dtype).removeprefix('dtypes.')}"


FORCED = {
    Ops.COPY: Reason.COPIED,
    Ops.CONTIGUOUS: Reason.CONTIGUOUS,
    Ops.ASSIGN: Reason.ASSIGNED,
    # Memory, and no kernel of its own.
    Ops.AFTER: Reason.ASSIGNED,
    Ops.SCATTER_ADD: Reason.SCATTERED,
    Ops.CUSTOM: Reason.CUSTOM,
    Ops.LOOP: Reason.LOOPED,
    Ops.LOOP_OUTPUT: Reason.LOOPED,
}
"""The ops whose values are stored whatever it costs, and why."""
