"""What computing a value costs: operations per element, and bytes. Static facts, so that plans are
the same everywhere.
"""

from __future__ import annotations

from typing import Any

from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, prod
from tilegrad.schedule.index import maximum_shape

__all__ = ["elements", "flops_of", "nbytes"]

# Of one random word, in the same units as `Definition.price`.
_RANDOM_WORD = 110
# Shapes of integers and their numbers of elements: few, and asked for again and again.
_known: dict[tuple[Any, ...], int] = {}
_MOST_KNOWN = 4096


def flops_of(node: UOp) -> int:
    """Operations that one element of `node` takes, beyond those of its sources."""
    if node.op is Ops.RAND:
        return _RANDOM_WORD
    return node.op.definition.price if node.op.is_alu or node.op is Ops.CAST else 0


def elements(node: UOp) -> int:
    """Elements of the value, at the maximum of symbolic sizes."""
    shape = node.shape
    found = _known.get(shape)
    if found is None:
        found = int(prod(maximum_shape(shape)))
        if all(type(size) is int for size in shape):
            if len(_known) >= _MOST_KNOWN:
                _known.clear()
            _known[shape] = found
    return found


def nbytes(node: UOp) -> int:
    """Bytes of the value in memory."""
    return elements(node) * node.dtype.itemsize


def extent_product(ranges: Any) -> int:
    """Iterations of nested `ranges`."""
    return int(prod(part.vmax + 1 for part in ranges))
