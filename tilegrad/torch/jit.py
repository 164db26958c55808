"""`torch.jit`, as far as it leaves what a program computes as it is: a script is the Python
function, or the module, itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from tilegrad.torch.absent_hints import refusing

__all__ = [
    "export", "ignore", "is_scripting", "is_tracing", "script", "script_if_tracing", "trace",
    "unused",
]  # fmt: skip

Given = TypeVar("Given")


def script(obj: Given, *args: Any, **options: Any) -> Given:
    """The function, class or module itself: graphs are compiled in any case."""
    return obj


def trace(func: Given, example_inputs: Any = None, *args: Any, **options: Any) -> Given:
    """The function or module itself, which is not bound to what the example did."""
    return func


def export(function: Given) -> Given:
    """The method itself."""
    return function


unused = script_if_tracing = export


def ignore(function: Any = None, *, drop: bool = False) -> Any:
    """The function itself, also as a decorator with options."""
    if callable(function):
        return function

    def same(inner: Callable[..., Any]) -> Callable[..., Any]:
        return inner

    return same


def is_scripting() -> bool:
    """False: Python runs."""
    return False


is_tracing = is_scripting


if not TYPE_CHECKING:
    __getattr__ = refusing(__name__)
