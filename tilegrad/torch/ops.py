"""`torch.ops`: operations by namespace and name. Those of `torch.library` are functions of a
program's own; those of `aten` and `prims` are the functions of `torch` with these names.
"""

from __future__ import annotations

import importlib
from typing import Any

from tilegrad.base.absent import as_asked
from tilegrad.torch.absent_hints import absent
from tilegrad.torch.library import find

_OWN = ("aten", "prims")


class _Namespace:
    """The operations of a namespace."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = find(f"{self._name}::{name}")
        if found is not None:
            return found
        if self._name in _OWN:
            for module in ("torch", "torch.nn.functional", "torch.linalg", "torch.special"):
                function = getattr(importlib.import_module(f"tilegrad.{module}"), name, None)
                if callable(function):
                    return _Overloads(name, function)
        text = absent(f"torch.ops.{self._name}", name, ())
        raise as_asked(AttributeError(text, name=name))


class _Overloads:
    """A function of `torch`, which is there for all types of arguments: `aten.add.Tensor`."""

    def __init__(self, name: str, function: Any):
        self.__name__, self._function = name, function

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._function(*args, **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self


def load_library(path: str) -> None:
    """Raises OSError: operations of PyTorch's machine code run in PyTorch only."""
    raise OSError(
        f"torch.ops.load_library: {path} has operations for PyTorch's own memory; "
        "torch.library.custom_op makes one of Python"
    )


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    made = _Namespace(name)
    globals()[name] = made
    return made
