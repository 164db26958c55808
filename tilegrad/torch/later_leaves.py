"""Tensors that are marked after something was computed from them.

    target = x**2
    x.requires_grad_()
    ((x - target) ** 2).sum().backward()

PyTorch's graph begins at the mark: `target` is a constant. Here a gradient follows the nodes that a
value was computed from, so the leaf takes another node, that of a copy, and earlier results keep
the one that they know.
"""

from __future__ import annotations

import sys
from typing import Any

from tilegrad.base.config import gradients
from tilegrad.base.references import ONE_ATTRIBUTE_AND_LOCAL
from tilegrad.engine.run.run import current_recording
from tilegrad.ir.op import Ops
from tilegrad.tensor.handle.aliases import hold, is_alone
from tilegrad.tensor.handle.tracing import is_transforming
from tilegrad.tensor.storage.memory import base_of, owned
from tilegrad.tensor.storage.past import is_in_others

__all__ = ["leave_earlier_results"]


def leave_earlier_results(tensor: Any) -> None:
    """Let a tensor that is about to require a gradient, and its aliases, be a copy of themselves,
    if anything was computed from them. A constant gets memory of its own in any case.
    """
    if current_recording() is not None or is_transforming() or not tensor._has_elements():
        return
    made = tensor._node if tensor._call is None else tensor._call
    if tensor._call is None and made.is_constant:
        return
    if sys.getrefcount(made) <= ONE_ATTRIBUTE_AND_LOCAL and not _was_read(tensor):
        return
    del made
    if is_alone(tensor):
        hold(tensor, owned(tensor.uop, tensor.device), is_computed=True)
    else:
        token = gradients.set(False)
        try:
            tensor.assign(tensor.clone())
        finally:
            gradients.reset(token)
    # Gradients of its earlier value are not its own.
    tensor._previous = ()


def _was_read(tensor: Any) -> bool:
    """Whether memory that has lost its graph may have been computed from a tensor."""
    if tensor._call is not None and tensor._call.value is None:
        return False
    node = tensor.uop
    base = base_of(node)
    return (base.op is Ops.COPY and base.stored is not None) or is_in_others(node)
