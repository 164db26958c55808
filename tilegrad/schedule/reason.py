"""Why a value is stored: a reason, with the numbers behind it, for every edge between two
kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

__all__ = ["FORCED", "Edge", "Reason", "StoredValues"]


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
