"""The passes on a whole graph, before it is cut into kernels: a list, each with the reason for its
position.

Each takes and leaves a graph of tensor ops. Those that replace single nodes go through the graph
once, sources first, and cost nothing where it has none of their ops. `python -m tilegrad show FILE
--after schedule.NAME` prints what a pass of the list leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from tilegrad.base.dtype import DType, as_const, dtypes
from tilegrad.base.trace import PassRecord, trace
from tilegrad.ir.movement import expand, fill, reduce_axes, reshape
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import device_of
from tilegrad.ir.uop import UOp, toposort
from tilegrad.schedule.channels import channels_innermost
from tilegrad.schedule.cost import SLICES, WORTH_A_KERNEL, elements
from tilegrad.schedule.over_blocks import over_blocks
from tilegrad.schedule.scans import in_slices
from tilegrad.schedule.scatter_adds import as_scatter, with_exact_sums
from tilegrad.schedule.versions import store_old_versions
from tilegrad.target import Target

__all__ = [
    "PASSES",
    "REDUCING",
    "GraphDevices",
    "Prepared",
    "as_mask",
    "in_two_steps",
    "made_of_nothing",
    "prepare",
]

REDUCING = (Ops.REDUCE_AXIS, Ops.PAD, Ops.GATHER, Ops.SCATTER_ADD)
"""Ops whose result may have elements where their source has none."""


def made_of_nothing(node: UOp) -> UOp | None:
    """`node`, which has elements, without its sources that have none; None if all sources have
    elements.

    A value with elements that is computed from one without any is constant: the sum over an empty
    axis is 0. The graph that is differentiated holds the reduction, so that the gradient of an
    empty batch is zeros and not unknown; no kernel does.
    """
    if 0 in node.shape or not any(0 in source.shape for source in node.src):
        return None
    if node.op is Ops.SCATTER_ADD:
        return node.src[0]
    value: float | bool = 0
    if node.op is Ops.REDUCE_AXIS:
        identity = node.combine.definition.identity
        assert identity is not None
        value = identity(node.dtype)
    one = UOp.const(node.dtype, as_const(value, node.dtype))
    whole = reshape(one, (1,) * len(node.shape))
    device = device_of(node)
    if device is not None:
        # A constant is of no device, and its replacement must stay on this one.
        whole = UOp(Ops.CONTIGUOUS, node.dtype, (whole,), device)
    return expand(whole, node.shape)


@dataclass(frozen=True)
class GraphDevices:
    """The devices of a graph, as passes see them: all targets, and the target of a node."""

    targets: Collection[Target]
    target_of: Callable[[UOp], Target]

    @cached_property
    def blocks(self) -> int:
        """The blocks of lanes that keep the largest busy; 0 where none has blocks."""
        return max((target.busy_blocks for target in self.targets), default=0)

    @cached_property
    def multiprocessors(self) -> int:
        return max((target.multiprocessors for target in self.targets), default=0)

    @cached_property
    def warps(self) -> int:
        """The warps that keep the largest busy."""
        return max((target.busy_warps for target in self.targets), default=0)

    @cached_property
    def has_doubles(self) -> bool:
        return all(target.supports(dtypes.float64) for target in self.targets)

    @cached_property
    def of_units(self) -> set[DType]:
        """The dtypes whose products run on matrix units."""
        return {dtype for target in self.targets for dtype in target.short_products}


Rewritten = tuple[UOp, dict[UOp, UOp]]
"""The graph, and for each node of it the one that it came from, where a pass has changed it."""

Pass = Callable[[UOp, Sequence[UOp], GraphDevices], Rewritten]
"""A pass takes the root and all nodes, sources first."""

Rewrite = Callable[[UOp, GraphDevices], UOp | None]


def _each(ops: Collection[Ops], rewrite: Rewrite) -> Pass:
    """A pass that replaces each node of `ops` by the result of `rewrite`, unless that is None."""

    def apply(sink: UOp, nodes: Sequence[UOp], devices: GraphDevices) -> Rewritten:
        made: dict[UOp, UOp] = {}
        came_from: dict[UOp, UOp] = {}
        for node in nodes:
            fresh = node
            if made:
                src = tuple([made.get(source, source) for source in node.src])
                fresh = node.over(src)
            if node.op in ops:
                fresh = rewrite(fresh, devices) or fresh
            if fresh is node:
                continue
            came_from = came_from or dict(zip(nodes, nodes))
            made[node] = fresh
            for step in toposort([fresh], stop=came_from.__contains__):
                if step not in came_from:
                    came_from[step] = node
                    step.origin = step.origin or node.origin
        return made.get(sink, sink), came_from

    return apply


_VERSIONS = "schedule.versions"
_REDUCE, _SCAN, _ADD_ROWS = (Ops.REDUCE_AXIS,), (Ops.PREFIX_AXIS,), (Ops.SCATTER_ADD,)

PASSES: tuple[tuple[str, Pass], ...] = (
    # First: no other pass needs to understand an axis without elements.
    ("schedule.empty", _each(REDUCING, lambda node, devices: made_of_nothing(node))),
    # Before split, which has a slice of a sum in each block: it looks at the operands' memory.
    (
        "schedule.channels",
        _each(
            _REDUCE,
            lambda node, devices: (
                channels_innermost(node, devices.target_of) if devices.of_units else None
            ),
        ),
    ),
    # Before split: a sum that becomes rows added by index is none any more.
    ("schedule.one_hot", _each(_REDUCE, lambda node, devices: as_scatter(node))),
    ("schedule.split", _each(_REDUCE, lambda node, devices: _split(node, devices))),
    (
        "schedule.scan_slices",
        _each(
            _SCAN,
            lambda node, devices: in_slices(
                node, has_lanes=devices.blocks > 0, warps=devices.warps
            ),
        ),
    ),
    # Before exact_sums: one row meets no other.
    ("schedule.one_row", _each(_ADD_ROWS, lambda node, devices: as_mask(node))),
    # After one_hot, which adds rows; after scan_slices, as it scans short vectors of its own.
    ("schedule.exact_sums", _each(_ADD_ROWS, lambda node, devices: _exact(node, devices))),
    # Last: nodes of other passes read a version of memory, too.
    (_VERSIONS, lambda sink, nodes, devices: store_old_versions(sink, nodes)),
)
# Passes that a graph needs in any case; NOOPT leaves out the others.
_PLAIN = ("schedule.empty", "schedule.exact_sums", _VERSIONS)
# Passes without work in a graph that has none of these ops.
_NEEDED = {"schedule.one_hot": (Ops.CMPEQ,), _VERSIONS: (Ops.ASSIGN,)}


def _split(node: UOp, devices: GraphDevices) -> UOp | None:
    if devices.blocks:
        return over_blocks(node, devices.blocks, devices.multiprocessors, devices.of_units)
    return in_two_steps(node)


def _exact(node: UOp, devices: GraphDevices) -> UOp | None:
    if not devices.has_doubles:
        return None
    return with_exact_sums(node, has_blocks=devices.blocks > 0, warps=devices.warps)


class Prepared(NamedTuple):
    """A graph behind the passes.

    Attributes:
        sink: its root.
        nodes: its nodes, sources first.
        came_from: for each of them, the node of the graph that came.
        old_versions: the values that are stored because their memory is overwritten.
    """

    sink: UOp
    nodes: list[UOp]
    came_from: dict[UOp, UOp]
    old_versions: set[UOp]


def prepare(sink: UOp, given: Sequence[UOp], devices: GraphDevices, *, plain: bool) -> Prepared:
    """Run the passes on a graph, whose nodes are `given`; with `plain` only the passes that every
    plan needs.
    """
    record = trace.get()
    nodes = list(given)
    came_from = dict(zip(nodes, nodes))
    old_versions: set[UOp] = set()
    for name, apply in PASSES:
        if plain and name not in _PLAIN:
            continue
        before, needed = sink, _NEEDED.get(name, ())
        if not needed or any(node.op in needed for node in nodes):
            sink, last = apply(before, nodes, devices)
        if record is not None:
            record.append(PassRecord(name, before, sink))
        if sink is before:
            continue
        nodes = list(toposort([sink]))
        came_from = {node: came_from[last[node]] for node in nodes}
        if name == _VERSIONS:
            stored = [node for node in nodes if node.op is Ops.CONTIGUOUS]
            old_versions = {node for node in stored if last[node].op is not Ops.CONTIGUOUS}
    return Prepared(sink, nodes, came_from, old_versions)


def as_mask(node: UOp) -> UOp | None:
    """The elementwise value of a SCATTER_ADD of one row to zeros; None for any other.

    before   SCATTER_ADD(zeros, index, row)
    after    where(numbers of the rows == index, row, 0)
    """
    base, index, row = node.src
    if index.shape != () or not isinstance(base.shape[0], int):
        return None
    below = base
    while below.op in (Ops.CONTIGUOUS, Ops.CAST) or below.op.is_movement:
        (below,) = below.src
    if below.op is not Ops.CONST or below.arg != 0:
        return None
    rows = base.shape[0]
    ones = fill((rows,), 1, index.dtype)
    numbers = UOp(Ops.PREFIX_AXIS, index.dtype, (ones,), (Ops.ADD, 0)) - 1
    is_here = reshape(numbers, (rows, *[1] * (len(base.shape) - 1))).eq(index)
    given = expand(reshape(row, (1, *row.shape)), base.shape)
    return expand(is_here, base.shape).where(given, UOp.const(node.dtype, 0))


def in_two_steps(node: UOp) -> UOp | None:
    """A large reduction to one number, as that of the results of a few slices.

    There are chunks to share among threads then:

    before   REDUCE_AXIS(x, all)
    after    REDUCE_AXIS(REDUCE_AXIS(RESHAPE(x, (8, n/8)), 1), 0)

    The number of slices is fixed, so that the result does not depend on the machine. On a target
    with blocks, over_blocks.py says what is split, and into how many.
    """
    if node.op is not Ops.REDUCE_AXIS or elements(node) != 1 or node.src[0].is_constant:
        return None
    (x,), (function, _) = node.src, node.arg[:2]
    count = elements(x)
    is_number = all(isinstance(size, int) for size in x.shape)
    if not is_number or count < WORTH_A_KERNEL or count % SLICES:
        return None
    slices = reshape(x, (SLICES, count // SLICES))
    total = reduce_axes(reduce_axes(slices, function, (1,)), function, (0,))
    return reshape(total, node.shape)
