"""`torch.fx`, as far as programs name it that trace nothing: graphs are tilegrad's own, so no
module is a `GraphModule` and no value a `Proxy`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from tilegrad.torch.absent_hints import absent, refuse_others
from tilegrad.torch.module_aliases import also_known
from tilegrad.torch.nn.module import Module

__all__ = ["Graph", "GraphModule", "Node", "Proxy", "Tracer", "symbolic_trace", "wrap"]

Given = TypeVar("Given", bound="str | Callable[..., Any]")


def wrap(fn_or_name: Given) -> Given:
    """The function, or its name, as it is: no tracer would look into it."""
    return fn_or_name


def _refuse(name: str) -> NoReturn:
    raise NotImplementedError(absent("torch.fx", name, ()))


class _Untraced:
    """A class of objects that only a tracer makes."""

    def __init__(self, *args: Any, **options: Any):
        _refuse(type(self).__name__)


class Graph(_Untraced):
    """The graph that a tracer writes: there are none. Making one raises NotImplementedError."""


class Node(_Untraced):
    """An operation of a `Graph`: there are none. Making one raises NotImplementedError."""


class Proxy(_Untraced):
    """A value while a tracer runs: there are none. Making one raises NotImplementedError."""


class Tracer(_Untraced):
    """A tracer that runs a module on proxies: it does not run. Making one raises
    NotImplementedError.
    """


class GraphModule(Module):
    """A module made of a `Graph`: no module is. Making one raises NotImplementedError."""

    def __init__(self, *args: Any, **options: Any):
        _refuse("GraphModule")


def symbolic_trace(root: Any, concrete_args: Any = None) -> Any:
    """Raises NotImplementedError."""
    _refuse("symbolic_trace")


def get_proxy_mode() -> None:
    """None: no tracer runs."""


def guard_or_false(a: Any) -> bool:
    """Whether `a` holds: sizes are numbers."""
    return bool(a)


guard_or_true = guard_size_oblivious = statically_known_true = guard_or_false

also_known(__name__, ("experimental",))
also_known(f"{__name__}.experimental", ("proxy_tensor", "symbolic_shapes"))

refuse_others(__name__)
