"""`torch._foreach_add_` and its kin: a method of tensors for each of a list. Their results are
fused in any case; optimizers outside PyTorch are written with them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tilegrad.torch.functions import norm
from tilegrad.torch.tensor import Tensor

__all__ = ["NAMES", "foreach"]

_PREFIX = "_foreach_"
_UNARY = (
    "abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor",
    "frac", "lgamma", "log", "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt",
    "sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
)  # fmt: skip
_BINARY = ("add", "clamp_max", "clamp_min", "div", "maximum", "minimum", "mul", "pow", "sub")
_TERNARY = ("addcdiv", "addcmul", "lerp")
NAMES = frozenset(
    [f"{_PREFIX}{name}{end}" for name in (*_UNARY, *_BINARY, *_TERNARY) for end in ("", "_")]
    + [f"{_PREFIX}{name}" for name in ("copy_", "max", "norm", "zero_")]
)
"""The functions that there are."""

# Methods' names for the arguments that are lists here.
_KEYS = {
    "ord": "p",
    "scalars": "value",
    "scalar": "other",
    "tensors1": "tensor1",
    "tensors2": "tensor2",
}


@functools.lru_cache(maxsize=256)
def foreach(name: str) -> Callable[..., Any]:
    """The function of `torch` called `name`, one of NAMES: of a list of tensors, and of lists of as
    many tensors or numbers, or one number for all. It gives a tuple; in place, the list that it was
    given.

    The function raises RuntimeError where lists have different lengths.
    """
    operation = name.removeprefix(_PREFIX)
    method = _method(operation)

    def call(self: Any, *others: Any, **options: Any) -> Any:
        if operation.startswith("addc") and len(others) == 3:
            # How much of the product or quotient is added.
            options["value"], others = others[2], others[:2]
        if not isinstance(self, (list, tuple)):
            # A power of a number.
            return tuple([self**exponent for exponent in others[0]])
        columns = [_column(name, each, len(self)) for each in others]
        keys = {
            _KEYS.get(key, key): _column(name, each, len(self)) for key, each in options.items()
        }
        found = [
            method(tensor, *[column[at] for column in columns],
                   **{key: column[at] for key, column in keys.items()})
            for at, tensor in enumerate(self)
        ]  # fmt: skip
        return self if operation.endswith("_") else tuple(found)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"`{operation}` of each tensor of a list."
    return call


def _method(operation: str) -> Callable[..., Any]:
    """The method of tensors."""
    if operation == "norm":
        return norm
    found: Callable[..., Any] | None = getattr(Tensor, operation, None)
    if found is not None:
        return found
    # PyTorch's tensors have no such method either: `maximum_`.
    plain = getattr(Tensor, operation.removesuffix("_"))
    return lambda tensor, *others: tensor.copy_(plain(tensor, *others))


def _column(name: str, given: Any, count: int) -> Sequence[Any]:
    """`given` for each of `count` tensors."""
    if not isinstance(given, (list, tuple)):
        return [given] * count
    if len(given) != count:
        raise RuntimeError(f"torch.{name}: lists of {count} and {len(given)}, not of one length")
    return given
