"""Replacing ranges of a kernel: in indices by an expression, and by other ranges where a fold, a
nest or memory names them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilegrad.ir.op import Ops
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp

__all__ = ["replace_ranges", "runs_over"]

_NAMES_RANGES = (Ops.REDUCE, Ops.END, Ops.DEFINE_LOCAL, Ops.DEFINE_ACC)


def runs_over(node: UOp, place: int) -> bool:
    """Whether source number `place` of `node` is a range that it runs over or lives in, not a
    value.
    """
    return node.op in _NAMES_RANGES and (place > 0 or node.op is Ops.DEFINE_LOCAL)


def replace_ranges(ast: UOp, mapping: Mapping[UOp, tuple[UOp, Sequence[UOp]]]) -> UOp:
    """`ast` with each range of `mapping` replaced by (expression, ranges), simplified.

    before   REDUCE(LOAD(a, r), r)                     {r: (p*4 + q, (p, q))}
    after    REDUCE(LOAD(a, p*4 + q), p, q)
    """
    done: dict[UOp, UOp] = {loop: value for loop, (value, _) in mapping.items()}
    for node in ast.toposort():
        if node in mapping:
            continue
        src: list[UOp] = []
        for place, source in enumerate(node.src):
            if source in mapping and runs_over(node, place):
                src += [loop for loop in mapping[source][1] if loop not in src]
            else:
                src.append(done[source])
        new = tuple(src)
        done[node] = node if new == node.src else UOp(node.op, node.dtype, new, node.arg)
    return simplify(done[ast])
