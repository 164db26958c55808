"""Operators of `torch.Tensor` beside objects that are no numbers: where these have the operator
with its sides exchanged, it is theirs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.naming import called

__all__ = ["yield_to_others"]

_REFLECTED = {
    **{f"__{name}__": f"__r{name}__" for name in (
        "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor",
        "lshift", "rshift",
    )},
    "__lt__": "__gt__", "__le__": "__ge__", "__gt__": "__lt__", "__ge__": "__le__",
}  # fmt: skip


def _is_theirs(other: Any, name: str) -> bool:
    """Whether an object has a method of its own by that name. Python's own types have none."""
    kind = type(other)
    if isinstance(other, OurTensor) or kind.__module__ in ("builtins", "numpy"):
        return False
    method = getattr(kind, name, None)
    return method is not None and method is not getattr(object, name, None)


def _yielding(method: Callable[..., Any], name: str, reflected: str) -> Any:
    @functools.wraps(method)
    def call(self: Any, other: Any, *args: Any) -> Any:
        try:
            return method(self, other, *args)
        except TypeError:
            if _is_theirs(other, reflected):
                return NotImplemented
            raise

    return called(call, name)


def yield_to_others(kind: Any) -> None:
    """Let the operators of a class of tensors give way."""
    for name, reflected in _REFLECTED.items():
        setattr(kind, name, _yielding(getattr(kind, name), name, reflected))
