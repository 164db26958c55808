"""Reads of accumulators that need a register of their own.

A register that several nodes stand for is written once, unless it is an accumulator's.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.base.dtype import Pointer
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.render.ptx_code import root

__all__ = ["snapshots"]

_ALIASES = frozenset({Ops.AFTER, Ops.GEP, Ops.VECTORIZE})


def snapshots(program: Sequence[UOp]) -> set[UOp]:
    """The nodes that stand for an accumulator's register while it may change before their last use:
    they need a copy.
    """
    at = {node: position for position, node in enumerate(program)}
    assigned: dict[UOp, list[int]] = {}
    users: dict[UOp, list[UOp]] = {}
    around: dict[UOp, tuple[UOp, ...]] = {}
    foot: dict[UOp, int] = {}
    loops: tuple[UOp, ...] = ()
    for position, node in enumerate(program):
        if node.op is Ops.END:
            foot |= {source: position for source in node.src if source.op is Ops.RANGE}
            loops = loops[:-1]
        around[node] = loops
        if node.op is Ops.RANGE:
            loops = (*loops, node)
        if node.op is Ops.ASSIGN:
            assigned.setdefault(root(node), []).append(position)
        for source in node.src:
            users.setdefault(source, []).append(node)
    last: dict[UOp, int] = {}
    reads: dict[UOp, set[UOp]] = {}
    for node in reversed(program):
        reached = at[node]
        for user in users.get(node, ()):
            end = last[user] if user.op in _ALIASES else at[user]
            entered = [loop for loop in around[user] if loop not in around[node]]
            reached = max(reached, end, foot[entered[0]] if entered else 0)
        last[node] = reached
    found: set[UOp] = set()
    for node in program:
        if node.op not in _ALIASES or isinstance(node.dtype, Pointer):
            continue
        sources = node.src[:1] if node.op is Ops.AFTER else node.src
        read: set[UOp] = set()
        for source in sources:
            if (memory := root(source)).op is Ops.DEFINE_ACC:
                read.add(memory)
            elif source in reads:
                read |= reads[source]
        if any(
            at[node] < step < last[node] for memory in read for step in assigned.get(memory, ())
        ):
            found.add(node)
        else:
            reads[node] = read
    return found
