"""Whether gradients are recorded: `no_grad` and `enable_grad`, for a block or for each call of a
function.

In a block without gradients, what is made of a tensor that requires one is its detached value: the
graph is cut there (`Core._like`, `Core._joined`), so that `backward` finds nothing below it. The
mode belongs to the running thread.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import Token
from typing import Any, ParamSpec, Self, TypeVar, overload

from tilegrad.base.config import gradients

__all__ = ["GradientMode", "enable_grad", "is_grad_enabled", "no_grad", "set_grad_enabled"]

P = ParamSpec("P")
R = TypeVar("R")


def is_grad_enabled() -> bool:
    """Whether this thread records gradients: so it is outside of `no_grad`.

    >>> with no_grad():
    ...     print(is_grad_enabled())
    False
    """
    return gradients.get()


class GradientMode:
    """A block in which gradients are recorded or not; before a function, each of its calls."""

    def __init__(self, wanted: bool):
        self._wanted = wanted
        self._tokens: list[Token[bool]] = []
        # Set by `set_grad_enabled`, which has entered when its block begins.
        self._is_entered = False

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        wanted = self._wanted

        @functools.wraps(function)
        def under(*args: P.args, **kwargs: P.kwargs) -> R:
            with GradientMode(wanted):
                return function(*args, **kwargs)

        return under

    def __enter__(self) -> Self:
        if not self._is_entered:
            self._tokens.append(gradients.set(self._wanted))
        self._is_entered = False
        return self

    def __exit__(self, *error: object) -> None:
        gradients.reset(self._tokens.pop())


@overload
def no_grad(function: None = None) -> GradientMode: ...
@overload
def no_grad(function: Callable[P, R]) -> Callable[P, R]: ...
def no_grad(function: Any = None) -> Any:
    """A block in which no gradient is recorded: results do not require one, and leaves may be
    written in place. Before a function, `@no_grad()` or `@no_grad`, it holds for each call.

    >>> w = Tensor([1.0, 2.0], requires_grad=True)
    >>> with no_grad():
    ...     w -= 0.5
    ...     print((w * 2).requires_grad, w.tolist())
    False [0.5, 1.5]
    """
    mode = GradientMode(wanted=False)
    return mode if function is None else mode(function)


@overload
def enable_grad(function: None = None) -> GradientMode: ...
@overload
def enable_grad(function: Callable[P, R]) -> Callable[P, R]: ...
def enable_grad(function: Any = None) -> Any:
    """A block, or a function, in which gradients are recorded, inside of one in which they are not.

    >>> with no_grad(), enable_grad():
    ...     print((Tensor([1.0], requires_grad=True) * 2).requires_grad)
    True
    """
    mode = GradientMode(wanted=True)
    return mode if function is None else mode(function)


def set_grad_enabled(mode: bool) -> GradientMode:
    """Record gradients, or do not, from here on; as a block until its end.

    >>> with set_grad_enabled(False):
    ...     print((Tensor([1.0], requires_grad=True) * 2).requires_grad)
    False
    """
    made = GradientMode(wanted=mode)
    made.__enter__()
    made._is_entered = True
    return made
