"""Reductions of nothing.

A value with elements that is computed from one without any is constant: the sum over an empty axis
is 0. The graph that is differentiated holds the reduction, so that the gradient of an empty batch
is zeros and not unknown; no kernel does.
"""

from __future__ import annotations

from tilegrad.base.dtype import as_const
from tilegrad.ir.movement import expand, reshape
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import device_of
from tilegrad.ir.uop import UOp

__all__ = ["REDUCING", "made_of_nothing"]

REDUCING = (Ops.REDUCE_AXIS, Ops.PAD, Ops.GATHER, Ops.SCATTER_ADD)
"""Ops whose result may have elements where their source has none."""


def made_of_nothing(node: UOp) -> UOp | None:
    """`node`, which has elements, without its sources that have none; None if all sources have
    elements.
    """
    if 0 in node.shape or not any(0 in source.shape for source in node.src):
        return None
    if node.op is Ops.SCATTER_ADD:
        return node.src[0]
    value: float | bool = 0
    if node.op is Ops.REDUCE_AXIS:
        identity = node.combine.definition.identity
        assert identity is not None
        value = identity(node.dtype)
    one = UOp.const(node.dtype, as_const(value, node.dtype))
    whole = reshape(one, (1,) * len(node.shape))
    device = device_of(node)
    if device is not None:
        # A constant is of no device, and its replacement must stay on this one.
        whole = UOp(Ops.CONTIGUOUS, node.dtype, (whole,), device)
    return expand(whole, node.shape)
