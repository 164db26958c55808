"""`torch.compiler`: what a program tells the compiler, which has no effect here, and asks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.compiling import compile

__all__ = [
    "allow_in_graph", "compile", "cudagraph_mark_step_begin", "disable", "is_compiling",
    "is_dynamo_compiling", "reset",
]  # fmt: skip


def disable(fn: Callable[..., Any] | None = None, recursive: bool = True, **options: Any) -> Any:
    """The function itself, also as a decorator with options."""
    return fn if fn is not None else lambda given: given


def allow_in_graph(fn: Any) -> Any:
    """The function itself."""
    return fn


def is_compiling() -> bool:
    """False: Python runs."""
    return False


is_dynamo_compiling = is_compiling


def reset() -> None:
    """Nothing: code compiled for other graphs is in no one's way."""


cudagraph_mark_step_begin = reset

refuse_others(__name__)
