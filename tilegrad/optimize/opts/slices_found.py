"""Slices that SLICE works on: of rows that a kernel has in scratch, and who reads them."""

from __future__ import annotations

from typing import NamedTuple

from tilegrad.base.errors import OptError
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import is_scratch, memory_of
from tilegrad.ir.uop import UOp
from tilegrad.optimize.opts.opt import Opt, loop_order

__all__ = ["Slices", "find_slices", "memory_behind"]


class Slices(NamedTuple):
    """Memory and ranges along the rows of the kernel in an iteration of the loop over slices.

    Attributes:
        memories: the scratch that holds a slice each, and the loop that fills it.
        shared: the ranges that lanes share.
        read: the ranges along which each lane reads all of a slice.
        columns: the output range that only the second product depends on.
        size: elements of a slice.
    """

    memories: dict[UOp, UOp]
    shared: frozenset[UOp]
    read: frozenset[UOp]
    columns: UOp
    size: int


def find_slices(ast: UOp, opt: Opt, loop: UOp) -> Slices:
    """The slices that SLICE rewrites.

    Raises OptError where the kernel has no slices, or lanes share a reduction already.
    """
    nodes = ast.toposort()
    fills = {
        node.src[0].src[0]: node
        for node in nodes
        if node.op is Ops.END and node.src[0].op is Ops.STORE and loop in node.src[0].src[0].src
    }
    fills = {m: fill for m, fill in fills.items() if is_scratch(m)}
    if not fills or any(each.axis is Axis.GROUP for each in loop_order(ast)):
        raise OptError("slice: no rows in scratch that lanes do not share yet", opt=opt)
    reads: set[UOp] = set()
    for node in nodes:
        if node.op is Ops.LOAD and memory_of(node.src[0]) in fills:
            reads.add(node.src[1])
    ranges = {fill.src[1] for fill in fills.values()} | reads
    if any(each.op is not Ops.RANGE or each.extent.op is not Ops.CONST for each in ranges):
        raise OptError("slice: rows are not read element by element", opt=opt)
    rows = {each for memory in fills for each in memory.src}
    columns: set[UOp] = set()
    whole: set[UOp] = set()
    for node in nodes:
        if node.op is Ops.REDUCE and ranges & set(node.src[1:]):
            if others := [each for each in node.ranges if each not in rows]:
                columns.update(others)
                whole.update(ranges & set(node.src[1:]))
    if len(columns) != 1 or len({each.extent.arg for each in ranges}) != 1:
        raise OptError("slice: it takes one product that reads all of a slice", opt=opt)
    size = int(next(iter(ranges)).extent.arg)
    return Slices(fills, frozenset(ranges - whole), frozenset(whole), columns.pop(), size)


def memory_behind(node: UOp) -> UOp | None:
    """The memory that `node` fills, or that stands for its content."""
    if node.op is Ops.END:
        node = node.src[0]
    if node.op is Ops.STORE:
        node = node.src[0]
    return memory_of(node) if node.op in (Ops.DEFINE_LOCAL, Ops.AFTER) else None
