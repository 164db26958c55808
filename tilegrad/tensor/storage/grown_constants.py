"""State that began as a constant and goes on from step to step:

    x = Tensor.zeros(3)
    for _ in range(1000):
        x = x * 0.5 + 1
        x.sum().item()

A constant is no memory, so each step's graph would have all earlier ones in it. Past some
operations it is computed like any value that a tensor holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, toposort
from tilegrad.tensor.handle.living import holders_of

__all__ = ["grown_constants"]

# Operations one after the other in a constant that is no state, such as an identity matrix.
_FEW = 8


def grown_constants(asked: Sequence[Any]) -> list[Any]:
    """The tensors alive, beside those that are `asked` for, whose constants these are computed from
    by now, where that takes more than a few operations one after the other.
    """
    roots = [each.uop for each in asked if each._call is None and each.uop.is_constant]
    depth: dict[UOp, int] = {}
    for node in toposort(roots) if roots else ():
        is_operation = node.op.is_alu or node.op is Ops.REDUCE_AXIS
        depth[node] = max([depth[source] for source in node.src], default=0) + is_operation
    known = {id(each) for each in asked}
    return [
        tensor
        for node, operations in depth.items()
        if operations > _FEW
        for tensor in holders_of(node)
        if tensor._call is None and not tensor._variables and id(tensor) not in known
    ]
