"""How a gradient takes another value: in place, where somebody else has it.

PyTorch adds to `grad`, clips and clears it in place, so `g = p.grad` sees what follows. A gradient
held by its tensor alone is replaced instead, which needs no write to memory.
"""

from __future__ import annotations

import contextlib
import contextvars
import sys
from collections.abc import Iterator
from typing import Any

from tilegrad.base.config import gradients
from tilegrad.base.references import ONE_ATTRIBUTE_AND_LOCAL
from tilegrad.engine.run.run import record_of_thread
from tilegrad.tensor.handle.aliases import is_alone

__all__ = ["Adding", "add_gradient", "adding", "replaces_gradients", "set_gradient"]


class Adding:
    """A block that adds to gradients: whether it replaces each, even a shared one, as each has
    gradients in turn, and the tensors whose gradient it has added to, by identity.
    """

    def __init__(self, *, replaces: bool = False):
        self.replaces = replaces
        self.tensors: dict[int, Any] = {}


_adding: contextvars.ContextVar[Adding | None] = contextvars.ContextVar(
    "tilegrad_adding", default=None
)


@contextlib.contextmanager
def adding(*, replaces: bool) -> Iterator[Adding]:
    """Note the tensors whose gradient is added to in the block."""
    found = Adding(replaces=replaces)
    token = _adding.set(found)
    try:
        yield found
    finally:
        _adding.reset(token)


def replaces_gradients() -> bool:
    """Whether gradients that are added now have gradients in turn."""
    block = _adding.get()
    return block is not None and block.replaces


def add_gradient(tensor: Any, gradient: Any) -> None:
    """Let `grad` of a tensor be its sum with `gradient`, a tensor without other holders."""
    block = _adding.get()
    if block is not None:
        block.tensors[id(tensor)] = tensor
        if block.replaces:
            _require_gradient(gradient)
    if tensor.grad is None:
        tensor.grad = gradient
    else:
        set_gradient(tensor, tensor.grad + gradient)


def _require_gradient(gradient: Any) -> None:
    """Let gradients be asked for of a gradient."""
    gradient._requires_grad, gradient._is_leaf = True, False
    if gradient._call is not None:
        gradient._call.requires_grad = True


def set_gradient(tensor: Any, value: Any) -> None:
    """Let `grad` of a tensor, which has one, be `value`, a tensor without other holders. Who holds
    the gradient, or a view of it, sees the value.
    """
    if _is_seen(tensor) and _is_alike(tensor._gradient, value):
        token = gradients.set(False)
        try:
            tensor._gradient.assign(value)
        finally:
            gradients.reset(token)
    else:
        tensor.grad = value


def _is_seen(tensor: Any) -> bool:
    """Whether somebody else has the gradient of a tensor, or a view of it. A capture has all
    tensors that it meets, and makes nothing in place of its own accord.
    """
    found = tensor._gradient
    if sys.getrefcount(found) <= ONE_ATTRIBUTE_AND_LOCAL and is_alone(found):
        return False
    block = _adding.get()
    return (block is None or not block.replaces) and record_of_thread() is None


def _is_alike(known: Any, value: Any) -> bool:
    return bool(
        known.__class__ is value.__class__
        and known.shape == value.shape
        and known.dtype is value.dtype
        and known.device == value.device
        and not (known._requires_grad or value._requires_grad)
    )
