"""`torch.jit`, as far as it leaves what a program computes as it is: a script is the Python
function, or the module, itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Optional, TypeVar, Union

from tilegrad.torch.absent_hints import absent, refuse_others
from tilegrad.torch.module_aliases import also_known
from tilegrad.torch.nn.module import Module

__all__ = [
    "Final", "RecursiveScriptModule", "ScriptFunction", "ScriptModule", "TopLevelTracedModule",
    "annotate", "export", "ignore", "interface", "is_scripting", "is_tracing", "script",
    "script_if_tracing", "trace", "unused",
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


unused = script_if_tracing = interface = export
# Under these names libraries use them.
_script_if_tracing = _overload_method = _overload = export


def ignore(function: Any = None, *, drop: bool = False) -> Any:
    """The function itself, also as a decorator with options."""
    if callable(function):
        return function

    def same(inner: Callable[..., Any]) -> Callable[..., Any]:
        return inner

    return same


def annotate(the_type: Any, the_value: Given) -> Given:
    """The value as it is, whatever type a script would give it."""
    return the_value


class ScriptModule(Module):
    """A module that `script` made: it makes none, so no module is one. Making one raises
    NotImplementedError.
    """

    def __init__(self, *args: Any, **options: Any):
        raise NotImplementedError(absent("torch.jit", type(self).__name__, ()))


class RecursiveScriptModule(ScriptModule):
    """As `ScriptModule`."""


class TopLevelTracedModule(ScriptModule):
    """A module that `trace` made: it makes none."""


class ScriptFunction:
    """A function that `script` made: it makes none, so no function is one. Making one raises
    NotImplementedError.
    """

    def __init__(self, *args: Any, **options: Any):
        raise NotImplementedError(absent("torch.jit", "ScriptFunction", ()))


def is_scripting() -> bool:
    """False: Python runs."""
    return False


is_tracing = is_scripting


# Types of arguments that scripts may be given one number for.
BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = list
_TYPES = {
    "Any": Any, "Dict": dict, "List": list, "Optional": Optional, "Tuple": tuple, "Union": Union,
}  # fmt: skip
also_known(__name__, ("annotations",), own=_TYPES)

refuse_others(__name__)
