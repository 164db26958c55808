"""The tree of a model in print, with the sizes of its parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilegrad.nn.module import Module, shown
from tilegrad.nn.tree import children_of, walk
from tilegrad.tensor.handle.size_arguments import show_shape
from tilegrad.tensor.tensor import Tensor

__all__ = ["summary"]


def summary(model: object) -> str:
    """Table of a model: the tree of its layers by name, their arguments, and the number of
    parameters of each; below it the sums.

    Args:
        model: a module, or any object that holds some.

    Returns a text of several lines.

    Raises ShapeError for a symbolic size.

    >>> print(nn.summary([nn.Linear(2, 3), Tensor.relu, nn.PReLU(3)]))
    list                                                           12
      0: Linear(in_features=2, out_features=3, bias=True)           9
      2: PReLU(num_parameters=3, init=0.25)                         3
    12 parameters, 12 of them trained; 0 elements of state
    """
    rows = list(_rows("", model, 0))
    width = max(len(text) for text, _ in rows)
    digits = max(len(f"{count:,}") for _, count in rows)
    lines = [f"{text:<{width}}  {count:>{max(digits, 10)},}" for text, count in rows]
    whole, state, trained = _counts(model)
    lines.append(f"{whole:,} parameters, {trained:,} of them trained; {state:,} elements of state")
    return "\n".join(lines)


def _rows(name: str, item: Any, depth: int) -> Iterator[tuple[str, int]]:
    label = type(item).__name__
    if isinstance(item, Module) and (arguments := item.extra_repr()):
        label += f"({arguments})"
    head = f"{name}: {label}" if name else label
    yield "  " * depth + head, _counts(item)[0]
    for key, child in children_of(item):
        if isinstance(child, Tensor) and not isinstance(item, Module):
            size = f"Tensor {show_shape(child.shape)}"
            yield "  " * (depth + 1) + f"{key}: {size}", _counts([child])[0]
    for key, child in shown(item):
        yield from _rows(key, child, depth + 1)


def _counts(model: object) -> tuple[int, int, int]:
    """Elements of parameters, of state that is never trained, and of trained tensors."""
    whole = state = trained = 0
    seen: set[int] = set()
    for _, item, _, _, is_state in walk(model):
        if isinstance(item, Tensor) and id(item) not in seen:
            seen.add(id(item))
            size = int(item.numel())
            if is_state:
                state += size
            else:
                whole += size
                trained += size if item.requires_grad is not False else 0
    return whole, state, trained
