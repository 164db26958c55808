"""Generations of values: how many runs lie between one and memory that has no graph. Calls count
them where a segment ran, and nodes where the engine did; a loop may come both ways in turn.
"""

from __future__ import annotations

from tilegrad.ir.uop import UOp
from tilegrad.tensor.handle.living import generations
from tilegrad.tensor.handle.waiting import Call, Input

__all__ = ["generation_of"]


def generation_of(leaf: Input) -> int:
    """The generation of a leaf of waiting calls."""
    if leaf.__class__ is Call:
        if leaf.value is not None:
            return leaf.generation
        return generations.get(leaf.node, 0) if leaf.node is not None else 0
    return generations.get(leaf, 0) if leaf.__class__ is UOp and leaf.stored is not None else 0
