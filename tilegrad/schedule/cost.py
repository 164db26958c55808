"""Cost of a value: operations per element, and bytes. These are static facts, so that plans are
the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilegrad.base.dtype import dtypes
from tilegrad.base.recent import Bounded
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, prod
from tilegrad.schedule.kernel_graphs import maximum_shape
from tilegrad.target import Target

__all__ = [
    "MOST_INSTRUCTIONS", "SLICES", "WORTH_A_KERNEL", "TargetOf", "elements", "flops_of",
    "instructions_of", "nbytes",
]  # fmt: skip

TargetOf = Callable[[UOp], Target]
"""The hardware that computes a node of a graph."""

# Tuning, worth shown by `bench/rows.py`, attention and sums.
# Elements of a reduction or scan from which on it pays for a kernel, or a tile of registers, of its
# own, and sharing it among threads or blocks for a second one; and the slices of one on processors,
# a fixed number, so that the result does not depend on the machine.
WORTH_A_KERNEL, SLICES = 1 << 18, 8

# Limits of compile time.
# Instructions of a kernel, about: compilers take more than twice the time for twice as many. A sine
# is a hundred of them where a target has none.
MOST_INSTRUCTIONS = 2000
# Shapes whose numbers of elements are known.
_MOST_KNOWN = 4096
# Shapes of integers and their numbers of elements: few, and asked for again and again.
_known: Bounded[tuple[Any, ...], int] = Bounded(_MOST_KNOWN)


def flops_of(node: UOp) -> int:
    """Operations that one element of `node` takes, beyond those of its sources."""
    is_priced = node.op.is_alu or node.op in (Ops.CAST, Ops.RAND)
    return node.op.definition.price if is_priced else 0


def instructions_of(node: UOp, target: Target) -> int:
    """Instructions that an element of `node` takes on `target`, beyond those of its sources: one,
    or the length of the replacement where the target lacks the op or the dtype.
    """
    op = node.op
    if op is Ops.RAND:
        return op.definition.instructions
    if not op.is_alu:
        return 0
    count = op.definition.instructions if target.lacks(op) else 1
    if node.dtype is dtypes.float64 and count > 1:
        count *= 2
    return count if target.supports(node.dtype) else count + Ops.CAST.definition.instructions


def elements(node: UOp) -> int:
    """Elements of the value, at the maximum of symbolic sizes."""
    shape = node.shape
    found = _known.get(shape)
    if found is None:
        found = int(prod(maximum_shape(shape)))
        if all(type(size) is int for size in shape):
            _known.put(shape, found)
    return found


def nbytes(node: UOp) -> int:
    """Bytes of the value in memory."""
    return elements(node) * node.dtype.itemsize
