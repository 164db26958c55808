"""The Opts as data: a name, an axis, and its text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilegrad.base.members import Members
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import loop_ranks, nodes_of
from tilegrad.ir.text import register
from tilegrad.ir.uop import UOp

__all__ = [
    "PRINT_ORDER", "Opt", "OptOps", "ReduceOperand", "Side", "StageOperand", "axes_of",
    "loop_order", "reduce_axes", "running_loops",
]  # fmt: skip


class OptOps(Members):
    """The moves. Each is one checked rewrite in `optimize.opts.opts` or a file beside it."""

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
    SWAP and MERGE, the operand of STAGE, or the tuple of STAGE and TC.
    """

    op: OptOps
    axis: int | None = None
    arg: Any = None

    def __repr__(self) -> str:
        return f"Opt(op={self.op!r}, axis={self.axis!r}, arg={self.arg!r})"


class Side(Members):
    """Positions of the operands of a reduction: of the factors of a sum of products."""

    LEFT = 0
    RIGHT = 1


@dataclass(frozen=True)
class ReduceOperand:
    """An operand of a reduction, a load or a value computed from loads.

    Attributes:
        reduction: which one, by size; 0 is the largest.
        is_cast: whether it is taken as it is combined, and not before a cast without loss.
    """

    side: Side
    reduction: int = 0
    is_cast: bool = True

    def __repr__(self) -> str:
        reduction = f", reduction={self.reduction}" if self.reduction else ""
        return f"ReduceOperand({self.side!r}{reduction}{'' if self.is_cast else ', is_cast=False'})"


StageOperand = int | ReduceOperand
"""The operand of STAGE: the parameter with a number, or an operand of a reduction."""

for _known in (Opt, OptOps, ReduceOperand, Side):
    register(_known.__name__, _known)

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
