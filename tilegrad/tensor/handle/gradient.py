"""How a gradient takes another value: in place, where somebody else has it.

PyTorch adds to `grad`, clips and clears it in place, so `g = p.grad` sees what follows. A gradient
that nobody has but its tensor is replaced instead, which needs no write to memory.
"""

from __future__ import annotations

import contextlib
import contextvars
import sys
from collections.abc import Iterator
from typing import Any

from tilegrad.base.config import gradients
from tilegrad.engine.run.run import record_of_thread
from tilegrad.tensor.handle.aliases import is_alone

__all__ = ["add_gradient", "replaces", "set_gradient"]

_replaces: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "tilegrad_replaces_gradients", default=False
)


@contextlib.contextmanager
def replaces(is_wanted: bool) -> Iterator[None]:
    """Let gradients be replaced in the block, whoever has them, if that `is_wanted`."""
    token = _replaces.set(is_wanted)
    try:
        yield
    finally:
        _replaces.reset(token)


def add_gradient(tensor: Any, gradient: Any) -> None:
    """Let `grad` of a tensor be its sum with `gradient`, a tensor that nobody else has."""
    if tensor.grad is None:
        tensor.grad = gradient
    else:
        set_gradient(tensor, tensor.grad + gradient)


def set_gradient(tensor: Any, value: Any) -> None:
    """Let `grad` of a tensor, which has one, be `value`, a tensor that nobody else has. Who holds
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
    if sys.getrefcount(found) <= _ONE and is_alone(found):
        return False
    return not _replaces.get() and record_of_thread() is None


def _is_alike(known: Any, value: Any) -> bool:
    return bool(
        known.__class__ is value.__class__
        and known.shape == value.shape
        and known.dtype is value.dtype
        and known.device == value.device
        and not (known._requires_grad or value._requires_grad)
    )


class _Probe:
    _alias = _gradient = None


def _references_of_one() -> int:
    """What the count is of a gradient that one tensor has, seen from `_is_seen`."""
    probe: Any = _Probe()
    probe._gradient = _Probe()
    found = probe._gradient
    return sys.getrefcount(found)


_ONE = _references_of_one()
