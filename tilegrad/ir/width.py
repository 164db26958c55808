"""Index width: whether the integers of a program that address memory are wide enough.

Lowering makes index arithmetic 32 bits where bounds prove that nothing wraps, else 64. Here the
bounds are computed again over the machine's integers. A sum or product of loop variables, launch
positions and constants whose exact value may exceed its dtype has wrapped, and a load or store
there accesses the wrong element. Under a gate it may wrap: a user's own 32-bit integers wrap by
definition, and a gate tests their value. Without a gate no such expression may be an index.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilegrad.ir.bounds import dividend_of
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

__all__ = ["find_narrow"]

Bounds = tuple[Any, Any]
_LEAVES = frozenset({Ops.CONST, Ops.RANGE, Ops.SPECIAL, Ops.DEFINE_VAR})
_ACCESSES = frozenset({Ops.LOAD, Ops.STORE, Ops.COPY_ASYNC})

# Beyond every dtype.
_BEYOND = 1 << 256


def find_narrow(nodes: Iterable[UOp]) -> tuple[UOp, UOp, Bounds] | None:
    """An access without a gate, a node of its index that may wrap around, and the exact bounds of
    that node; None if there is none. `nodes` come sources first.
    """
    # The exact bounds of sums of leaves, and the node in each that wraps, if one does.
    exact: dict[UOp, Bounds] = {}
    wraps: dict[UOp, UOp] = {}
    for node in nodes:
        if node.op in _ACCESSES:
            index = node.src[1]
            has_gate = node.is_gated
            if index in wraps and not has_gate:
                return node, wraps[index], exact[wraps[index]]
            continue
        if node.dtype.kind not in ("int", "uint") or node.dtype.lanes > 1:
            continue
        found = _exact(node, exact)
        if found is None:
            continue
        exact[node] = found
        below = [wraps[source] for source in node.src if source in wraps]
        if below:
            wraps[node] = below[0]
        elif found[0] < node.dtype.min or found[1] > node.dtype.max:
            wraps[node] = node
    return None


def _exact(node: UOp, known: dict[UOp, Bounds]) -> Bounds | None:
    """The bounds of a node as if its dtype were unbounded; None where they are unknown."""
    op, src = node.op, node.src
    if op is Ops.RANGE:
        return 0, max(src[0].vmax - 1, 0)
    if op in _LEAVES:
        return node.bounds
    if not all(source in known for source in src) or not src:
        return None
    if op is Ops.CAST:
        return known[src[0]]
    if op not in (Ops.ADD, Ops.SUB, Ops.MUL, Ops.SHL):
        # Quotients, remainders and selects: their bounds, as their sources have not wrapped.
        return node.bounds
    (a, b), (c, d) = known[src[0]], known[src[1]]
    if op is Ops.MUL and (dividend := dividend_of(node)) in known:
        return 0, known[dividend][1]
    if op is Ops.ADD:
        return a + c, b + d
    if op is Ops.SUB:
        return a - d, b - c
    if op is Ops.SHL:
        if src[1].op is not Ops.CONST:
            return None
        c = d = 1 << src[1].arg if 0 <= src[1].arg < node.dtype.bits else 0
    corners = (a * c, a * d, b * c, b * d)
    # Bounded, as the digits of a repeated square would double with each product.
    return max(min(corners), -_BEYOND), min(max(corners), _BEYOND)
