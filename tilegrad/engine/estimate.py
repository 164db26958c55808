"""What a kernel costs: operations and compulsory bytes, from its graph. Index arithmetic counts for
nothing.

An operation counts once per iteration of the loops that it stands in. Memory counts once per
distinct element: what a load or a store can reach, by the ranges in its index. So a table of which
few rows are read costs those rows, however long it is.
"""

from __future__ import annotations

from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, element_of, prod, toposort

__all__ = ["estimate"]


def estimate(ast: UOp) -> tuple[int, int]:
    """(operations, bytes) of a kernel graph."""
    ops = 0
    reach: dict[UOp, int] = {}
    nodes = ast.toposort()
    counted = _arithmetic(nodes)
    for node in nodes:
        if node in counted:
            loops = _iterations(node.ranges)
            if node.op is Ops.REDUCE:
                folded = _iterations(
                    frozenset(part for part in node.src[1:] if part.op is Ops.RANGE)
                )
                ops += loops * folded
            else:
                ops += loops * (2 if node.op is Ops.MULACC else 1)
        if node.op in (Ops.LOAD, Ops.STORE):
            pointer = node.src[0]
            if pointer.op is not Ops.DEFINE_GLOBAL:
                continue
            touched = _iterations(node.src[1].ranges)
            size = pointer.dtype.size  # type: ignore[attr-defined]
            elements = min(touched, size) if size > 0 else touched
            reach[pointer] = max(reach.get(pointer, 0), elements)
    mem = sum(elements * element_of(pointer).itemsize for pointer, elements in reach.items())
    return ops, mem


def _iterations(ranges: frozenset[UOp]) -> int:
    return int(prod(part.src[0].vmax for part in ranges))


def _arithmetic(nodes: dict[UOp, None]) -> set[UOp]:
    """The operations on values: not those on indices, nor on gates made of indices."""
    found: set[UOp] = set()
    for node in nodes:
        if node.op in (Ops.REDUCE, Ops.PREFIX):
            found.add(node)
        elif node.op.is_alu and node.dtype.scalar is not dtypes.index:
            is_gate = node.dtype.scalar is dtypes.bool and all(
                _is_of_index(source) for source in node.src
            )
            if not is_gate:
                found.add(node)
    return found


def _is_of_index(node: UOp) -> bool:
    """Whether all that a condition compares are indices and constants."""
    below = toposort([node], stop=_is_index)
    return all(_is_index(each) or (each.dtype.scalar is dtypes.bool and each.src) for each in below)


def _is_index(node: UOp) -> bool:
    return node.dtype.scalar is dtypes.index or node.op is Ops.CONST
