"""Reductions at different depths have loops of their own.

Reductions over one axis share its loop, as they are computed side by side. An Opt may make one of
them invariant in a loop around the others: of `a[i // 4]` and `b[i]`, with i split in parts of 4,
only the latter needs the inner loop. Each then accumulates at a depth of its own.
"""

from __future__ import annotations

from dataclasses import replace

from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import loops_of, next_number, reductions_of
from tilegrad.ir.uop import UOp
from tilegrad.target import Target

__all__ = ["separate_loops"]

# Other axes are parts of a launch, or copies side by side: nothing is outside of them.
_NESTED = (Axis.LOOP, Axis.REDUCE)


def separate_loops(ast: UOp, target: Target) -> UOp:
    """`ast` with one loop for the reductions over an axis at each depth. Kernels that fill memory
    and read it stay as they are: their loops are those of the stores, too.

    before   REDUCE(a[0, k], k) + REDUCE(b[i, k], k)
    after    REDUCE(a[0, l], l) + REDUCE(b[i, k], k)
    """
    if any(node.op in (Ops.AFTER, Ops.RESCALED) for node in ast.toposort()):
        return ast
    while (found := _at_another_depth(ast)) is not None:
        reduce, loop = found
        own = loop.replace(arg=(next_number(ast.toposort()), loop.axis))
        order = list(ast.arg.order)
        order.insert(order.index(loop.number), own.number)
        ast = ast.substitute({reduce: reduce.substitute({loop: own})})
        ast = ast.replace(arg=replace(ast.arg, order=tuple(order)))
    return ast


def _at_another_depth(ast: UOp) -> tuple[UOp, UOp] | None:
    """A reduction, and the loop that it shares with one inside of other loops than its own."""
    around: dict[UOp, frozenset[UOp]] = {}
    for reduce in reductions_of(ast):
        outer = frozenset(loop for loop in reduce.ranges if loop.axis in _NESTED)
        for loop in loops_of(reduce):
            if around.setdefault(loop, outer) != outer and loop.number in ast.arg.order:
                return reduce, loop
    return None
