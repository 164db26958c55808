"""Functions that other functions make, under the names that users call them by."""

from __future__ import annotations

from typing import Any, TypeVar

__all__ = ["called"]

Made = TypeVar("Made")


def called(made: Made, name: str) -> Made:
    """`made`, a closure, with a name of its own, in errors and reports too: these read its code.
    One without a docstring is said to be as PyTorch's of that name.
    """
    function: Any = made
    function.__code__ = function.__code__.replace(co_name=name, co_qualname=name)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = function.__doc__ or f"As PyTorch's `{name}`."
    return made
