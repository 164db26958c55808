"""Statements of programs about their values for PyTorch's compiler: checked, as numbers are at
hand.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

__all__ = [
    "SymBool", "SymFloat", "SymInt", "_assert", "_assert_async", "_check", "_check_index",
    "_check_is_size", "_check_not_implemented", "_check_tensor_all", "_check_type",
    "_check_value", "_check_with", "sym_float", "sym_int", "sym_ite", "sym_max", "sym_min",
    "sym_not", "sym_sqrt", "sym_sum",
]  # fmt: skip


class _Symbol:
    """A class that numbers of PyTorch's compiler have; numbers here are Python's."""

    def __init__(self, *args: Any):
        raise NotImplementedError(f"torch.{type(self).__name__}: sizes are numbers of Python")


class SymInt(_Symbol):
    """An int of a graph: none is. Making one raises NotImplementedError."""


class SymFloat(_Symbol):
    """A float of a graph: none is. Making one raises NotImplementedError."""


class SymBool(_Symbol):
    """A bool of a graph: none is. Making one raises NotImplementedError."""


def _check_with(
    error_type: type[Exception], cond: Any, message: Callable[[], str] | str | None = None
) -> None:
    """Raise an error of that type unless `cond` holds; a bool, or a tensor with one element."""
    if not bool(cond):
        text = message() if callable(message) else message
        raise error_type(text or "Expected cond to be True, but got False")


def _of(error_type: type[Exception]) -> Callable[..., None]:
    def check(cond: Any, message: Callable[[], str] | str | None = None) -> None:
        _check_with(error_type, cond, message)

    check.__doc__ = f"Raise {error_type.__name__} unless `cond` holds."
    return check


_check, _check_index, _check_value = _of(RuntimeError), _of(IndexError), _of(ValueError)
_check_type, _check_not_implemented = _of(TypeError), _of(NotImplementedError)


def _check_is_size(i: int, message: Callable[[], str] | None = None, **bounds: Any) -> None:
    """Raise RuntimeError unless `i` is a size."""
    _check(i >= 0, message)


def _check_tensor_all(cond: Any, message: Callable[[], str] | None = None) -> None:
    """Raise RuntimeError unless all elements of `cond` hold; it is computed now."""
    _check(cond.all(), message)


def _assert(condition: Any, message: str) -> None:
    """Raise AssertionError unless `condition` holds; a bool, or a tensor with one element."""
    _check_with(AssertionError, condition, message)


def _assert_async(condition: Any, message: str | None = None) -> None:
    """Raise RuntimeError unless `condition` holds, a tensor with one element, computed now."""
    _check(condition, message)


def sym_int(a: Any) -> int:
    """`a` without what stands behind the point."""
    return int(a)


def sym_float(a: Any) -> float:
    """`a` as a float."""
    return float(a)


def sym_not(a: Any) -> bool:
    """Whether `a` does not hold."""
    return not a


def sym_max(a: Any, b: Any) -> Any:
    """The larger one; a float where one is a float."""
    found = max(a, b)
    return float(found) if isinstance(a, float) or isinstance(b, float) else found


def sym_min(a: Any, b: Any) -> Any:
    """The smaller one; a float where one is a float."""
    found = min(a, b)
    return float(found) if isinstance(a, float) or isinstance(b, float) else found


def sym_sum(args: Any) -> Any:
    """The sum of numbers."""
    return sum(args)


def sym_sqrt(a: Any) -> float:
    """The root of a number."""
    return math.sqrt(a)


def sym_ite(b: Any, t: Any, f: Any) -> Any:
    """`t` where `b` holds, else `f`."""
    return t if b else f
