"""Functions that run before or after a module's call: to look at what goes in and comes out, or to
change it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["Hooks", "RemovableHandle", "hooked"]


class RemovableHandle:
    """What registering a hook gives: `remove()` takes the hook out again, once or more often. As a
    context it does so at the end of the block.

    >>> layer, seen = nn.Linear(2, 3), []
    >>> with layer.register_forward_hook(lambda module, args, output: seen.append(output.shape)):
    ...     y = layer(Tensor.ones(1, 2))
    >>> y = layer(Tensor.ones(1, 2)); seen
    [(1, 3)]
    """

    def __init__(self, hooks: dict[int, Any], key: int):
        self._hooks, self._key = hooks, key

    def remove(self) -> None:
        """Take the hook out."""
        self._hooks.pop(self._key, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


class Hooks:
    """The hooks of one module, in the order in which they run."""

    def __init__(self) -> None:
        self._before: dict[int, tuple[Callable[..., Any], bool]] = {}
        self._after: dict[int, tuple[Callable[..., Any], bool]] = {}
        self._made = 0

    def add(
        self, function: Callable[..., Any], is_before: bool, prepend: bool, with_kwargs: bool
    ) -> RemovableHandle:
        """Take in a hook, at the end, or in front with `prepend`."""
        held = self._before if is_before else self._after
        others = dict(held)
        self._made += 1
        if prepend:
            held.clear()
        held[self._made] = (function, with_kwargs)
        held.update(others)
        return RemovableHandle(held, self._made)

    def run(
        self, call: Callable[..., Any], module: Any, args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        """What the module's call gives between its hooks."""
        for function, with_kwargs in list(self._before.values()):
            new = function(module, args, options) if with_kwargs else function(module, args)
            if new is not None and with_kwargs:
                args, options = new
            elif new is not None:
                args = new if isinstance(new, tuple) else (new,)
        output = call(*args, **options)
        for function, with_kwargs in list(self._after.values()):
            given = (args, options) if with_kwargs else (args,)
            new = function(module, *given, output)
            output = output if new is None else new
        return output


def hooked(call: Callable[..., Any]) -> Callable[..., Any]:
    """The `__call__` of a class of modules, which runs the hooks of a module that has some. Where a
    subclass calls the method of its base they have run already.
    """

    @functools.wraps(call)
    def __call__(self: Any, /, *args: Any, **options: Any) -> Any:
        hooks: Hooks | None = self._hooks
        if hooks is None or type(self).__call__ is not __call__:
            return call(self, *args, **options)
        return hooks.run(functools.partial(call, self), self, args, options)

    # An error names what the user called.
    renamed: Any = __call__
    renamed.__code__ = renamed.__code__.replace(co_qualname=call.__qualname__)
    return __call__
