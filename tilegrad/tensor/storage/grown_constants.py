"""State that began as a constant and goes on from step to step:

    x = Tensor.zeros(3)
    for _ in range(1000):
        x = x * 0.5 + 1
        x.sum().item()

A constant is no memory, so each step's graph would have all earlier ones in it. Past some
operations it is computed like any value that a tensor holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, toposort
from tilegrad.tensor.handle.living import holders_of

__all__ = ["grown_constants"]

# Operations of a constant that is no state, such as an identity matrix or a window of a filter.
_FEW = 8


def grown_constants(asked: Sequence[Any]) -> list[Any]:
    """The tensors alive, beside those that are `asked` for, whose constants these are computed from
    by now, where that takes more than a few operations.
    """
    roots = [each.uop for each in asked if each._call is None and each.uop.is_constant]
    nodes = toposort(roots) if roots else {}
    if _operations(nodes) <= _FEW:
        return []
    known = {id(each) for each in asked}
    found: list[Any] = []
    for node in nodes:
        for tensor in holders_of(node):
            is_plain = tensor._call is None and tensor._node is node and not tensor._variables
            if is_plain and id(tensor) not in known and _operations(toposort([node])) > _FEW:
                known.add(id(tensor))
                found.append(tensor)
    return found


def _operations(nodes: Iterable[UOp]) -> int:
    return sum(map(_is_operation, nodes))


def _is_operation(node: UOp) -> bool:
    return node.op.is_alu or node.op is Ops.REDUCE_AXIS
