"""`grad_fn`: what computed a tensor, under the name that PyTorch gives to the gradient of it.

tilegrad differentiates graphs and needs none of this. Programs print `grad_fn`, and walk from it to
what came before. So a method that gives a tensor with a gradient notes its name (step_names.py)
and the steps of its operands; no step holds a tensor. Without gradients nothing is noted.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from tilegrad.tensor.handle.core import Core
from tilegrad.torch.naming import called
from tilegrad.torch.step_names import BY_ARGUMENTS, METHODS, ORDERS

__all__ = ["AccumulateGrad", "Step", "note", "noted", "noted_methods", "noting", "step_of"]


class Step:
    """How a tensor was computed: one class for each name, as in PyTorch."""

    __slots__ = ("__weakref__", "_below")
    _shown = ""

    def __init__(self, below: tuple[Any, ...] = ()):
        self._below = below

    def name(self) -> str:
        """PyTorch's name."""
        return type(self).__name__

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object at {id(self):#x}>"

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """The steps of the operands, None for one without a gradient, each with 0."""
        return tuple((_resolved(each), 0) for each in self._below)


class AccumulateGrad(Step):
    """Where the gradient of a leaf is added to its `grad`."""

    __slots__ = ("_leaf",)

    def __init__(self, leaf: Any):
        super().__init__()
        self._leaf = leaf

    @property
    def variable(self) -> Any:
        """The leaf."""
        return self._leaf()

    def name(self) -> str:
        """PyTorch's name."""
        return "torch::autograd::AccumulateGrad"


# Methods that give a new tensor in PyTorch, where they change nothing too.
_VIEWS = frozenset({
    "__getitem__", "broadcast_to", "chunk", "expand", "expand_as", "moveaxis", "movedim", "narrow",
    "permute", "ravel", "reshape", "reshape_as", "split", "squeeze", "swapaxes", "swapdims", "t",
    "tensor_split", "transpose", "view", "view_as",
})  # fmt: skip
_kinds: dict[str, type[Step]] = {}


def _kind(name: str) -> type[Step]:
    found = _kinds.get(name)
    if found is None:
        found = _kinds[name] = type(name, (Step,), {"__slots__": (), "__module__": "torch"})
    return found


def _resolved(below: Any) -> Any:
    """A step as `next_functions` shows it; of a leaf there is a reference."""
    return AccumulateGrad(below) if isinstance(below, weakref.ref) else below


def _below(operand: Any) -> Any:
    """The contribution of `operand` to a step: its own step, a reference to a leaf, or None."""
    if not operand._requires_grad:
        return None
    # Tensors of tilegrad's own class have no steps.
    step = getattr(operand, "_step", None)
    return weakref.ref(operand) if step is None or operand._is_leaf else step


def note(found: Any, name: str, operands: tuple[Any, ...]) -> None:
    """Let the tensors in `found` that have gradients say that `name` computed them."""
    step = None
    for each in found if isinstance(found, (tuple, list)) else (found,):
        if isinstance(each, Core) and each._requires_grad and hasattr(each, "_step"):
            if step is None:
                step = _kind(name)(tuple([_below(x) for x in operands if isinstance(x, Core)]))
            each._step = step


def step_of(tensor: Any) -> Step:
    """The step that computed `tensor`; where none was noted, one named by the op of its graph."""
    found = tensor._step
    if found is None:
        words = tensor.uop.op.name.lower().split("_")
        found = tensor._step = _kind("".join(map(str.capitalize, words)) + "Backward0")()
    made: Step = found
    return made


def noting(method: Callable[..., Any], name: str) -> Any:
    """`method`, whose results have a step."""
    plain, choose, order = METHODS[name], BY_ARGUMENTS.get(name), ORDERS.get(name)
    is_view = name in _VIEWS
    writes = (name.endswith("_") and not name.endswith("__")) or name.startswith("__i")

    @functools.wraps(method)
    def give(self: Any, *args: Any, **options: Any) -> Any:
        found = method(self, *args, **options)
        if found is self and not writes:
            if not is_view:
                return found
            found = self._alike()
        if found.__class__ is tuple or found.__class__ is list:
            if is_view and len(found) == 1 and found[0] is self:
                found = (self._alike(),)
            operands = (self, *args)
        else:
            try:
                if not found._requires_grad or found._is_leaf:
                    return found
            except AttributeError:
                # Pairs, numbers, tensors of complex numbers.
                if not isinstance(found, tuple):
                    return found
                if not any(getattr(each, "_requires_grad", False) for each in found):
                    return found
            operands = (self, *args, *options.values()) if options else (self, *args)
        step = plain if choose is None else choose(*operands)
        note(found, step, operands if order is None else order(*operands))
        return found

    return called(give, name)


def noted(found: Any, name: str, operands: tuple[Any, ...]) -> Any:
    """`found`, which has a gradient, with the step that method `name` of `operands` is."""
    choose, order = BY_ARGUMENTS.get(name), ORDERS.get(name)
    step = METHODS[name] if choose is None else choose(*operands)
    note(found, step, operands if order is None else order(*operands))
    return found


def noted_methods(kind: Any) -> None:
    """Let the methods of a class of tensors note their steps."""
    for name in METHODS:
        setattr(kind, name, noting(getattr(kind, name), name))
