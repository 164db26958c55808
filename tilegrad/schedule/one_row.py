"""One row that is added to zeros: an elementwise value, which others go on with.

before   SCATTER_ADD(zeros, index, row)
after    where(numbers of the rows == index, row, 0)
"""

from __future__ import annotations

from tilegrad.ir.movement import expand, fill, reshape
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

__all__ = ["as_mask"]


def as_mask(node: UOp) -> UOp | None:
    """The elementwise value of a SCATTER_ADD of one row to zeros; None for any other."""
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
