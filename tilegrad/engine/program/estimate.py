"""Cost of a kernel: operations and compulsory bytes, from its graph. Index arithmetic counts for
nothing.

An operation counts once per iteration of the loops that it stands in. Memory counts once per
distinct element that a load or a store can reach, by the ranges in its index. So few rows of a long
table cost as much as these rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilegrad.base.dtype import dtypes
from tilegrad.ir.lengths import Terms, is_length, terms_of
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import loops_of, nodes_of
from tilegrad.ir.sizes import highest, tidy
from tilegrad.ir.uop import UOp, element_of, prod, sint, toposort

__all__ = ["estimate", "estimate_lengths"]

_SUMS = (Ops.ADD, Ops.MUL, Ops.CONST, Ops.DEFINE_VAR)


def estimate(ast: UOp) -> tuple[int, int]:
    """(operations, bytes) of a kernel graph, at the largest symbolic sizes."""
    ops, mem = _count(ast, lambda size: int(size.vmax))
    return int(ops), int(mem)


def estimate_lengths(ast: UOp) -> tuple[Terms, Terms] | None:
    """As `estimate`, by the lengths in the kernel's sizes; None where there are none, or where
    sizes are no sums and products of them.
    """
    extents = [node.src[0] for node in nodes_of(ast, Ops.RANGE)]
    if not any(map(is_length, extents)):
        return None
    found = _count(ast, lambda size: size if is_length(size) else int(size.vmax))
    ops, mem = map(tidy, found)
    nodes = [node for size in (ops, mem) if isinstance(size, UOp) for node in size.toposort()]
    return None if any(node.op not in _SUMS for node in nodes) else (terms_of(ops), terms_of(mem))


def _count(ast: UOp, extent: Callable[[UOp], sint]) -> tuple[Any, Any]:
    """(operations, bytes), with `extent` for the iterations that a loop counts as."""
    ops: Any = 0
    reach: dict[UOp, Any] = {}
    nodes = ast.toposort()
    counted = _arithmetic(nodes)
    for node in nodes:
        if node in counted:
            loops = _iterations(node.ranges, extent)
            if node.op is Ops.REDUCE:
                reduced = _iterations(frozenset(loops_of(node)), extent)
                ops += loops * reduced
            else:
                ops += loops * (2 if node.op is Ops.MULACC else 1)
        if node.op in (Ops.LOAD, Ops.STORE):
            pointer = node.src[0]
            if pointer.op is not Ops.DEFINE_GLOBAL:
                continue
            touched = _iterations(node.index.ranges, extent)
            size = pointer.dtype.size  # type: ignore[attr-defined]
            elements = touched
            if isinstance(touched, int) and 0 < size < touched:
                elements = size
            if highest(elements) > highest(reach.get(pointer, 0)):
                reach[pointer] = elements
    mem: Any = 0
    for pointer, elements in reach.items():
        mem = elements * element_of(pointer).itemsize + mem
    return ops, mem


def _iterations(ranges: frozenset[UOp], extent: Callable[[UOp], sint]) -> sint:
    found: sint = prod(extent(loop.extent) for loop in sorted(ranges, key=lambda loop: loop.number))
    return found


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
