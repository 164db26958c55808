"""Python's operators on arrays: each is the function of its name.

The functions stand on arrays and are found when an operator first runs. An operand that is
neither an array nor a number is left to its own operator.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, Self

from tilegrad.base.errors import DTypeError, ShapeError
from tilegrad.tensor.handle.size_arguments import show_shape

__all__ = ["Operators", "is_number"]


def is_number(value: Any) -> bool:
    """Whether `value` is a number of Python, or a scalar of NumPy."""
    if isinstance(value, (bool, int, float)):
        return True
    return hasattr(value, "__array__") and hasattr(value, "item") and value.shape == ()


@functools.cache
def _function(name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(importlib.import_module("tilegrad.array_api"), name)
    return found


def _forward(name: str) -> Any:
    def operator(self: Any, other: Any, /) -> Any:
        if not isinstance(other, Operators) and (name == "matmul" or not is_number(other)):
            return NotImplemented
        return _function(name)(self, other)

    return operator


def _reflected(name: str) -> Any:
    def operator(self: Any, other: Any, /) -> Any:
        if not isinstance(other, Operators) and (name == "matmul" or not is_number(other)):
            return NotImplemented
        return _function(name)(other, self)

    return operator


def _in_place(name: str) -> Any:
    def operator(self: Any, other: Any, /) -> Any:
        if not isinstance(other, Operators) and (name == "matmul" or not is_number(other)):
            return NotImplemented
        return self._become(name, _function(name)(self, other))

    return operator


def _alone(name: str) -> Any:
    def operator(self: Any, /) -> Any:
        return _function(name)(self)

    return operator


class Operators:
    """The operators of an array."""

    __slots__ = ()
    tensor: Any

    def _become(self, name: str, result: Any) -> Self:
        """This array with the value of `result`, which an in-place operator computed."""
        old, new = self.tensor, result.tensor
        if old.shape != new.shape:
            raise ShapeError(
                f"{name}: in place, the result has the array's shape: {show_shape(new.shape)} and "
                f"{show_shape(old.shape)}",
                remedy="write x = x + y",
            )
        if old.dtype is not new.dtype:
            raise DTypeError(
                f"{name}: in place, the result has the array's dtype: {new.dtype.name} and "
                f"{old.dtype.name}",
                remedy="cast the other operand with astype, or write x = x + y",
            )
        self.tensor = new
        return self

    __abs__ = _alone("abs")
    __invert__ = _alone("bitwise_invert")
    __neg__ = _alone("negative")
    __pos__ = _alone("positive")

    __add__ = _forward("add")
    __and__ = _forward("bitwise_and")
    __eq__ = _forward("equal")
    __floordiv__ = _forward("floor_divide")
    __ge__ = _forward("greater_equal")
    __gt__ = _forward("greater")
    __le__ = _forward("less_equal")
    __lshift__ = _forward("bitwise_left_shift")
    __lt__ = _forward("less")
    __matmul__ = _forward("matmul")
    __mod__ = _forward("remainder")
    __mul__ = _forward("multiply")
    __ne__ = _forward("not_equal")
    __or__ = _forward("bitwise_or")
    __pow__ = _forward("pow")
    __rshift__ = _forward("bitwise_right_shift")
    __sub__ = _forward("subtract")
    __truediv__ = _forward("divide")
    __xor__ = _forward("bitwise_xor")

    __radd__ = _reflected("add")
    __rand__ = _reflected("bitwise_and")
    __rfloordiv__ = _reflected("floor_divide")
    __rlshift__ = _reflected("bitwise_left_shift")
    __rmatmul__ = _reflected("matmul")
    __rmod__ = _reflected("remainder")
    __rmul__ = _reflected("multiply")
    __ror__ = _reflected("bitwise_or")
    __rpow__ = _reflected("pow")
    __rrshift__ = _reflected("bitwise_right_shift")
    __rsub__ = _reflected("subtract")
    __rtruediv__ = _reflected("divide")
    __rxor__ = _reflected("bitwise_xor")

    __iadd__ = _in_place("add")
    __iand__ = _in_place("bitwise_and")
    __ifloordiv__ = _in_place("floor_divide")
    __ilshift__ = _in_place("bitwise_left_shift")
    __imatmul__ = _in_place("matmul")
    __imod__ = _in_place("remainder")
    __imul__ = _in_place("multiply")
    __ior__ = _in_place("bitwise_or")
    __ipow__ = _in_place("pow")
    __irshift__ = _in_place("bitwise_right_shift")
    __isub__ = _in_place("subtract")
    __itruediv__ = _in_place("divide")
    __ixor__ = _in_place("bitwise_xor")
