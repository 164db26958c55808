"""Copies that leaves take: two leaves of equal values are told apart by their nodes."""

from __future__ import annotations

import math
from typing import Any

from tilegrad.engine.run import leaf_memory as store
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import device_of
from tilegrad.ir.uop import UOp
from tilegrad.tensor.handle.living import ends, holders_of

__all__ = ["of_leaf"]


def of_leaf(tensor: Any, node: UOp) -> UOp:
    """The node of a copy that `tensor` takes, a leaf that requires a gradient, or None if the leaf
    is gone. Equal copies are one node: where another leaf has or had it, or it is a constant, as
    any tensor may be, this one is written to memory of its own, so that their gradients can be told
    apart.
    """
    value = node.src[0] if node.op is Ops.CONTIGUOUS else node
    holders = holders_of(node)
    is_others = node.stored is not None or any(
        each._is_leaf for each in holders if each is not tensor
    )
    if node in ends and not any(each is tensor for each in holders):
        # The leaf is gone, and its graph lives on.
        is_others = True
    if not value.is_constant and not is_others:
        return node
    device = device_of(node) if tensor is None else tensor.device
    memory = store.empty(device, node.dtype, math.prod(node.shape))
    if memory.shape != node.shape:
        memory = UOp(Ops.RESHAPE, node.dtype, (memory,), node.shape)
    made = UOp(Ops.ASSIGN, node.dtype, (memory, value))
    made.origin = node.origin
    return made
