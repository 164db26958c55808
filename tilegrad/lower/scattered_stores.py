"""Vectors that are stored lane by lane, as neither their lanes nor the rows of their tile are
neighbours in memory: one store at a vector of indices, on machines that have such an instruction.

It is one node for all passes that follow, and for the compiler, in place of three for each lane.
"""

from __future__ import annotations

from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import UNROLLED, Ops
from tilegrad.ir.queries import stride_of
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp
from tilegrad.ir.vector_lanes import LEAST_ROWS, is_transposed
from tilegrad.target import Target

__all__ = ["scattered"]

# Bytes of the elements that machines scatter. Fewer lanes than this are stored one by one.
_SIZES = (4, 8)
_LEAST_LANES = 8


def scattered(
    store: UOp, src: tuple[UOp, UOp], lane: UOp, width: int, target: Target
) -> UOp | None:
    """The store of the vector `src[1]` to `src[0]`, one element for each value of `lane`; None
    where lanes are stored one by one.

    before   STORE(a, i + l*9, x)                         l: the lane
    after    STORE(a, (i, i, ...) + (0, 9, ...), x)       x: a vector
    """
    if not target.has_scatter or store.is_gated or store.arg is not None:
        return None
    index, value = store.src[1:3]
    if value.dtype.itemsize not in _SIZES or width < _LEAST_LANES:
        return None
    step = stride_of(index, lane)
    if not step or is_transposed(index, lane) or _run_beside(index, lane) >= LEAST_ROWS:
        return None
    first = simplify(index, {lane: UOp.const(dtypes.index, 0)})
    steps = UOp.stack(UOp.const(dtypes.index, step * number) for number in range(width))
    return src[0].store(first.broadcast(width) + steps, src[1])


def _run_beside(index: UOp, lane: UOp) -> int:
    """How many consecutive elements the other unrolled axes access together: a transpose makes
    vectors of them.
    """
    others = [
        (stride_of(index, axis), axis.extent.arg)
        for axis in index.ranges
        if axis is not lane and axis.axis in UNROLLED and axis.extent.op is Ops.CONST
    ]
    run = 1
    for step, rows in sorted((step, rows) for step, rows in others if step):
        run *= rows if step == run else 1
    return run
