"""The Opts as data: a name, an axis, and its text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilegrad.base.members import Members
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import loop_ranks, nodes_of
from tilegrad.ir.text import register
from tilegrad.ir.uop import UOp

__all__ = ["PRINT_ORDER", "Opt", "OptOps", "axes_of", "loop_order", "reduce_axes", "running_loops"]


class OptOps(Members):
    """The moves. Each is one checked rewrite in `optimize.opts` or a file beside it."""

    UPCAST = "upcast"
    UNROLL = "unroll"
    LOCAL = "local"
    GROUP = "group"
    GROUPTOP = "grouptop"
    PADTO = "padto"
    OVERLAP = "overlap"
    SWAP = "swap"
    MERGE = "merge"
    TC = "tc"
    THREAD = "thread"
    TILE = "tile"
    STAGE = "stage"
    SCAN = "scan"
    SLICE = "slice"


@dataclass(frozen=True)
class Opt:
    """One move. `axis` is a position in the kernel's printed order; UNROLL, GROUP and GROUPTOP
    count from the first reduce axis. `arg` is an amount (0: the whole axis), the other axis of
    SWAP and MERGE, or the tuple of STAGE and TC.
    """

    op: OptOps
    axis: int | None = None
    arg: Any = None

    def __repr__(self) -> str:
        return f"Opt(op={self.op!r}, axis={self.axis!r}, arg={self.arg!r})"


register("Opt", Opt)
register("OptOps", OptOps)

# The printed order of a kernel's axes, which its name shows. Unrolled axes, whose rank is one,
# stand in the order in which they were made.
PRINT_ORDER = (
    Axis.THREAD, Axis.GLOBAL, Axis.LOOP, Axis.LOCAL, Axis.GROUP, Axis.REDUCE, Axis.UPCAST,
    Axis.UNROLL,
)  # fmt: skip
_RANK = {axis: rank for rank, axis in enumerate(PRINT_ORDER)}
_RANK[Axis.THREAD] = _RANK[Axis.GLOBAL] = _RANK[Axis.LOOP] = 0
_RANK[Axis.UNROLL] = _RANK[Axis.UPCAST]


def loop_order(ast: UOp) -> list[UOp]:
    """The ranges of a kernel, outermost loop first; those of staging nests are not among them."""
    position = loop_ranks(ast)
    ranges = [node for node in nodes_of(ast, Ops.RANGE) if node.number in position]
    return sorted(ranges, key=lambda node: position[node.number])


def axes_of(ast: UOp) -> list[UOp]:
    """The ranges of a kernel in the printed order, by which Opts name them."""
    return sorted(loop_order(ast), key=lambda node: _RANK[node.axis])


def running_loops(ast: UOp) -> set[UOp]:
    """The ranges that run in order, as the intermediate results of a scan are read in each
    iteration.
    """
    return {loop for node in nodes_of(ast, Ops.PREFIX) for loop in node.src[1:]}


def reduce_axes(ast: UOp) -> list[UOp]:
    """The axes that UNROLL, GROUP and GROUPTOP may name."""
    return [loop for loop in axes_of(ast) if loop.axis in (Axis.REDUCE, Axis.GROUP, Axis.UNROLL)]
