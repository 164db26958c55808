"""Reductions of a whole value to one number, in two steps, so that there are chunks to share among
threads:

before   REDUCE_AXIS(x, all)
after    REDUCE_AXIS(REDUCE_AXIS(RESHAPE(x, (8, n/8)), 1), 0)

The number of slices is fixed, so that the result does not depend on the machine. On a target with
blocks, over_blocks.py says what is split, and into how many.
"""

from __future__ import annotations

from tilegrad.ir.movement import reduce_axes, reshape
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.schedule.cost import SLICES, WORTH_A_KERNEL, elements

__all__ = ["in_two_steps"]


def in_two_steps(node: UOp) -> UOp | None:
    """A large reduction to one number, as that of the results of a few slices."""
    if node.op is not Ops.REDUCE_AXIS or elements(node) != 1 or node.src[0].is_constant:
        return None
    (x,), (function, _) = node.src, node.arg[:2]
    count = elements(x)
    is_number = all(isinstance(size, int) for size in x.shape)
    if not is_number or count < WORTH_A_KERNEL or count % SLICES:
        return None
    slices = reshape(x, (SLICES, count // SLICES))
    total = reduce_axes(reduce_axes(slices, function, (1,)), function, (0,))
    return reshape(total, node.shape)
