"""Folds of a whole value to one number, and folds of nothing.

The first take two steps, so that there are chunks to share among threads:

before   REDUCE_AXIS(x, all)
after    REDUCE_AXIS(REDUCE_AXIS(RESHAPE(x, (8, n/8)), 1), 0)

The number of parts is fixed, so that the result does not depend on the machine.

What is made of a value without elements, and has some, is constant: the sum over an empty axis is
0. The graph that is differentiated holds the fold, so that the gradient of an empty batch is zeros
and not unknown; no kernel does.
"""

from __future__ import annotations

from tilegrad.base.dtype import as_const, dtypes
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import device_of
from tilegrad.ir.uop import UOp, toposort
from tilegrad.schedule.cost import elements
from tilegrad.schedule.running import in_parts

# What gives a value with elements for one without.
_FOLDS = (Ops.REDUCE_AXIS, Ops.PAD, Ops.GATHER, Ops.SCATTER_ADD)

# What may be another node afterwards, though none of its sources is.
_SPLIT = (*_FOLDS, Ops.PREFIX_AXIS)

__all__ = ["split_folds"]

_PARTS = 8
# Rows are added in float64 where there are so many times as many as places, and so many at least:
# then the wider table is small beside what is read.
_CROWDED, _MANY_ROWS = 8, 512
# From this many elements on, sharing pays for a second kernel.
_WORTH_SPLITTING = 1 << 18


def split_folds(
    sink: UOp, *, plain: bool = False, has_lanes: bool = False, has_doubles: bool = False
) -> tuple[UOp, dict[UOp, UOp]]:
    """The graph with large folds to one number split, and running ones of few rows, but for a
    `plain` one, and folds of nothing constant; and for each node of it the one it came from.
    `has_lanes` says that the target has blocks of lanes, `has_doubles` that it has float64.
    """
    nodes = toposort([sink])
    made: dict[UOp, UOp] = {}
    came_from: dict[UOp, UOp] = {}
    for node in nodes:
        src = tuple([made[source] for source in node.src])
        if node.op not in _SPLIT and src == node.src:
            made[node] = node
            came_from.setdefault(node, node)
            continue
        fresh = node if src == node.src else node.replace(src=src)
        if node.op in _FOLDS and 0 not in node.shape and any(0 in x.shape for x in node.src):
            fresh = _made_of_nothing(node, src)
            for step in toposort([fresh]):
                came_from.setdefault(step, node)
        elif has_doubles and _is_crowded(node):
            fresh = _in_double(node, src)
            for step in toposort([fresh], stop=lambda step: step in came_from):
                came_from.setdefault(step, node)
                step.origin = step.origin or node.origin
        elif not plain and _is_large(node):
            op, _ = node.arg
            count = elements(node.src[0])
            parts = UOp(Ops.RESHAPE, node.dtype, src, (_PARTS, count // _PARTS))
            each = UOp(Ops.REDUCE_AXIS, node.dtype, (parts,), (op, (1,)))
            total = UOp(Ops.REDUCE_AXIS, node.dtype, (each,), (op, (0,)))
            fresh = UOp(Ops.RESHAPE, node.dtype, (total,), node.shape)
            for step in (parts, each, total):
                came_from.setdefault(step, node)
                step.origin = step.origin or node.origin
        elif not plain and node.op is Ops.PREFIX_AXIS:
            joined = in_parts(fresh, src[0], has_lanes=has_lanes)
            if joined is not None:
                fresh = joined
                for step in toposort([fresh], stop=lambda step: step in came_from):
                    came_from.setdefault(step, node)
                    step.origin = step.origin or node.origin
        if fresh is not node and node.origin and not fresh.origin:
            fresh.origin = node.origin
        made[node] = fresh
        came_from.setdefault(fresh, node)
    return made[sink], came_from


def _is_crowded(node: UOp) -> bool:
    """Whether many rows of float32 are added at few places, so that one place may take many."""
    if node.op is not Ops.SCATTER_ADD or node.dtype is not dtypes.float32:
        return False
    table, rows = elements(node), elements(node.src[2])
    return rows >= _CROWDED * table and elements(node.src[1]) > _MANY_ROWS


def _in_double(node: UOp, src: tuple[UOp, ...]) -> UOp:
    """Rows added in float64, and rounded once: in the order in which they come, the error of a sum
    in float32 would grow with their number.
    """
    base, index, rows = src
    if base.op is Ops.CONTIGUOUS and base.src[0].is_constant:
        base = base.replace(dtype=dtypes.float64, src=(base.src[0].cast(dtypes.float64),))
    else:
        base = base.cast(dtypes.float64)
    return node.replace(dtype=dtypes.float64, src=(base, index, rows.cast(dtypes.float64))).cast(
        node.dtype
    )


def _made_of_nothing(node: UOp, src: tuple[UOp, ...]) -> UOp:
    """`node` without those of its sources that have no elements."""
    if node.op is Ops.SCATTER_ADD:
        return src[0]
    value: float | bool = 0
    if node.op is Ops.REDUCE_AXIS:
        identity = node.arg[0].definition.identity
        assert identity is not None
        value = identity(node.dtype)
    one = UOp.const(node.dtype, as_const(value, node.dtype))
    whole = UOp(Ops.RESHAPE, node.dtype, (one,), (1,) * len(node.shape))
    device = device_of(node)
    if device is not None:
        # A constant is of no device, and what becomes of it must stay on this one.
        whole = UOp(Ops.CONTIGUOUS, node.dtype, (whole,), device)
    return UOp(Ops.EXPAND, node.dtype, (whole,), node.shape)


def _is_large(node: UOp) -> bool:
    if node.op is not Ops.REDUCE_AXIS or elements(node) != 1:
        return False
    shape = node.src[0].shape
    if not all(isinstance(size, int) for size in shape) or node.src[0].is_constant:
        return False
    count = elements(node.src[0])
    return count >= _WORTH_SPLITTING and count % _PARTS == 0
