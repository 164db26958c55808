"""Functions that run before or after a module's call, or with its gradients: to look at what goes
in and comes out, or to change it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tilegrad.base.origin import of_layer, unmarked
from tilegrad.nn.backward_hooks import call_watched
from tilegrad.tensor.writing.watching import RemovableHandle

__all__ = ["Hooks", "RemovableHandle", "hooked"]


class Hooks:
    """The hooks of one module, in the order in which they run."""

    def __init__(self) -> None:
        self._before: dict[int, tuple[Callable[..., Any], bool]] = {}
        self._after: dict[int, tuple[Callable[..., Any], bool]] = {}
        self._backward_before: dict[int, tuple[Callable[..., Any], bool]] = {}
        self._backward: dict[int, tuple[Callable[..., Any], bool]] = {}
        # Those of state dicts, by their kind.
        self._state: dict[str, dict[int, tuple[Callable[..., Any], bool]]] = {}
        self._made = 0

    @property
    def before(self) -> dict[int, Callable[..., Any]]:
        """The functions that run before a call, by their number."""
        return {number: function for number, (function, _) in self._before.items()}

    @property
    def after(self) -> dict[int, Callable[..., Any]]:
        """The functions that run after a call, by their number."""
        return {number: function for number, (function, _) in self._after.items()}

    def add_state(self, kind: str, function: Callable[..., Any]) -> RemovableHandle:
        """Take in a hook on state dicts."""
        return self._add(self._state.setdefault(kind, {}), function, False, False)

    def run_state(self, kind: str, *arguments: Any) -> None:
        """Call the hooks of a kind."""
        for function, _ in list(self._state.get(kind, {}).values()):
            function(*arguments)

    def add(
        self, function: Callable[..., Any], is_before: bool, prepend: bool, with_kwargs: bool
    ) -> RemovableHandle:
        """Take in a hook, at the end, or in front with `prepend`."""
        return self._add(self._before if is_before else self._after, function, prepend, with_kwargs)

    def add_backward(
        self, function: Callable[..., Any], is_before: bool, prepend: bool
    ) -> RemovableHandle:
        """Take in a hook on gradients, at the end, or in front with `prepend`."""
        hooks = self._backward_before if is_before else self._backward
        return self._add(hooks, function, prepend, False)

    def _add(
        self,
        hooks: dict[int, tuple[Callable[..., Any], bool]],
        function: Callable[..., Any],
        prepend: bool,
        with_kwargs: bool,
    ) -> RemovableHandle:
        others = dict(hooks)
        self._made += 1
        if prepend:
            hooks.clear()
        hooks[self._made] = (function, with_kwargs)
        hooks.update(others)
        return RemovableHandle(hooks, self._made)

    def run(
        self, call: Callable[..., Any], module: Any, args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        """Result of the module's call between its hooks."""
        for function, with_kwargs in list(self._before.values()):
            new = function(module, args, options) if with_kwargs else function(module, args)
            if new is not None and with_kwargs:
                args, options = new
            elif new is not None:
                args = new if isinstance(new, tuple) else (new,)
        finished = functools.partial(self._finished, call, module)
        if not (self._backward or self._backward_before):
            return finished(*args, **options)
        before, after = (
            [function for function, _ in hooks.values()]
            for hooks in (self._backward_before, self._backward)
        )
        # The gradients are those of the caller's results, which a forward hook may have changed.
        return call_watched(finished, module, args, options, before, after)

    def _finished(
        self, call: Callable[..., Any], module: Any, /, *args: Any, **options: Any
    ) -> Any:
        """Result of a call after the hooks that may change it."""
        output = call(*args, **options)
        for function, with_kwargs in list(self._after.values()):
            given = (args, options) if with_kwargs else (args,)
            new = function(module, *given, output)
            output = output if new is None else new
        return output


def hooked(call: Callable[..., Any], forward: Any) -> Callable[..., Any]:
    """The `__call__` of a class of modules, which runs the hooks of a module that has some. Where a
    subclass calls the method of its base they have run already.

    Args:
        call: what the class computes.
        forward: the `forward` of the class as it was made; another one, which was set on the class
            or comes from a class in front of it, takes the place of `call`.
    """

    @functools.wraps(call)
    def __call__(self: Any, /, *args: Any, **options: Any) -> Any:
        hooks: Hooks | None = self._hooks
        kind = type(self)
        if (hooks is not None or kind.forward is not forward) and kind.__call__ is __call__:
            if kind.forward is not forward or "forward" in self.__dict__:
                own = self.forward
            else:
                own = functools.partial(call, self)
            if hooks is None:
                return unmarked(own, *args, **options)
            return unmarked(hooks.run, own, self, args, options)
        return of_layer(code, call, self, args, options)

    # An error names what the user called.
    renamed: Any = __call__
    code = renamed.__code__ = renamed.__code__.replace(co_qualname=call.__qualname__)
    return __call__
