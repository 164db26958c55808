"""Hooks on leaves: they belong to the tensor, whatever it is assigned and wherever its memory is.

Hooks on what was computed belong to its node (`tilegrad.grad.node_hooks`), which lives as long as
the tensor: once that was read, nothing else may hold it.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from types import MethodType
from typing import Any

from tilegrad.base.errors import ShapeError
from tilegrad.ir.uop import UOp
from tilegrad.tensor.handle.size_arguments import show_shape

__all__ = ["Hook", "add", "after_hooks", "attach", "checked", "hooks_of"]

Hook = Callable[[Any], Any]
"""Takes the gradient of a tensor; gives what is used instead, or None."""

# By the identity of a tensor that is alive.
_hooks: dict[int, tuple[weakref.ref[Any], dict[int, Hook]]] = {}
_watched: dict[int, tuple[weakref.ref[Any], list[UOp]]] = {}
_next_key = itertools.count().__next__


def add(tensor: Any, hook: Hook) -> tuple[dict[int, Hook], int]:
    """Let `hook` see each gradient of `tensor`; what holds it, and its key there."""
    number = id(tensor)
    found = _hooks.get(number)
    if found is None:
        found = _hooks[number] = weakref.ref(tensor, MethodType(_hooks.pop, number)), {}
    key = _next_key()
    found[1][key] = hook
    return found[1], key


def attach(tensor: Any, node: UOp) -> None:
    """Let `node`, which has hooks, live as long as `tensor`, whose value it is."""
    number = id(tensor)
    found = _watched.get(number)
    if found is None:
        found = _watched[number] = weakref.ref(tensor, MethodType(_watched.pop, number)), []
    if node not in found[1]:
        found[1].append(node)


def hooks_of(tensor: Any) -> list[Hook]:
    """The hooks of a tensor, in the order in which they came."""
    found = _hooks.get(id(tensor)) if _hooks else None
    return [] if found is None else list(found[1].values())


def after_hooks(tensor: Any, gradient: Any) -> Any:
    """The `gradient` of a leaf, a tensor, after the hooks that it has.

    Raises ShapeError if one gives another shape.
    """
    for hook in hooks_of(tensor):
        new = hook(gradient)
        gradient = gradient if new is None else checked(new, tensor)
    return gradient


def checked(new: Any, like: Any) -> Any:
    """The result of a hook on the gradient of `like`, in its dtype.

    Raises ShapeError if it has another shape.
    """
    if new.shape != like.shape:
        raise ShapeError(
            f"register_hook: the hook gave {show_shape(new.shape)}, the gradient is "
            f"{show_shape(like.shape)}"
        )
    return new if new.dtype is like.dtype else new.cast(like.dtype)
