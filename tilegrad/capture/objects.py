"""Facts about a Python object that can be found without running code of its class."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
import types
from collections.abc import Hashable
from typing import Any

from tilegrad.capture.pure import is_pure_class

__all__ = [
    "CORE", "LIBRARY", "NUMPY", "OPAQUE", "TILEGRAD", "USER", "has_generic_attributes",
    "instance_dict", "is_own_code", "is_python_class", "kind_of_class", "kind_of_file",
    "look_up_class", "own_values", "title",
]  # fmt: skip

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LAYERS = _PACKAGE + "nn" + os.sep
_LIBRARY = sysconfig.get_paths()["stdlib"] + os.sep
_files: dict[str, str] = {}
_IN_C = (
    types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType,
)  # fmt: skip


# Owners of code, by its file. Watched are the user's code, that of tilegrad's layers, and that of
# Python's library. Not the core's, which reads what it is given and nothing else; not that which
# only writes (logging), or wraps what is watched (tqdm).
USER, TILEGRAD, LIBRARY, CORE, NUMPY, OPAQUE = (
    "user",
    "layers",
    "library",
    "core",
    "numpy",
    "opaque",
)
_ONLY_WRITES = (
    "logging", "importlib", "warnings.py", "traceback.py", "linecache.py", "tokenize.py",
    # Its callbacks run wherever something dies.
    "weakref.py", "_weakrefset.py",
)  # fmt: skip


def kind_of_file(filename: str) -> str:
    """The owner of the code in a file."""
    found = _files.get(filename)
    if found is None:
        found = _files[filename] = _kind_of_file(filename)
    return found


def _kind_of_file(filename: str) -> str:
    if filename.startswith("<frozen importlib"):
        return OPAQUE
    if filename.startswith("<frozen"):
        return LIBRARY
    path = os.path.abspath(filename)
    if path.startswith(_PACKAGE):
        return TILEGRAD if path.startswith(_LAYERS) else CORE
    if f"{os.sep}numpy{os.sep}" in path:
        return NUMPY
    if f"{os.sep}tqdm{os.sep}" in path:
        return OPAQUE
    if path.startswith(_LIBRARY) and "-packages" not in path:
        name = path[len(_LIBRARY) :].partition(os.sep)[0]
        return OPAQUE if name in _ONLY_WRITES else LIBRARY
    return USER


def is_own_code(value: Any) -> bool:
    """Whether `value` is a function, class or module of tilegrad's, which users do not replace."""
    if isinstance(value, types.ModuleType):
        return value.__name__.partition(".")[0] == "tilegrad"
    if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
        return (value.__module__ or "").partition(".")[0] == "tilegrad"
    return False


def instance_dict(value: Any) -> dict[str, Any] | None:
    """The attributes that `value` itself has; None if it has no room for any."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return found if isinstance(found, dict) else None


def own_values(value: Any) -> list[tuple[str, Any]]:
    """The attributes that `value` itself has, in its dict and its slots, with their names."""
    found = list((instance_dict(value) or {}).items())
    for kind in type(value).__mro__:
        for name, raw in list(kind.__dict__.items()):
            if isinstance(raw, types.MemberDescriptorType):
                try:
                    found.append((name, raw.__get__(value)))
                except AttributeError:
                    continue
    return found


def look_up_class(kind: type, name: str) -> tuple[Any, Any]:
    """The attribute of the class or one of its bases under a name, and the class that has it; None
    twice if none has.
    """
    for each in kind.__mro__:
        if name in each.__dict__:
            return each.__dict__[name], each
    return None, None


def is_python_class(kind: type) -> bool:
    """Whether a class is written in Python: it has no method in C of its own."""
    return _is_python_class(kind)


@functools.lru_cache(maxsize=1024)
def _is_python_class(kind: Hashable) -> bool:
    assert isinstance(kind, type)
    if not kind.__flags__ & 1 << 9:
        return False
    return not any(isinstance(each, _IN_C) for each in kind.__dict__.values())


def has_generic_attributes(kind: type) -> bool:
    """Whether attributes are looked up as `object` does, or by watched Python code."""
    raw, owner = look_up_class(kind, "__getattribute__")
    if raw is object.__getattribute__ or isinstance(raw, types.FunctionType):
        return True
    # A class in C may say so again; those are known to add nothing.
    return owner is types.FunctionType or owner.__module__ == "numpy" or is_pure_class(owner)


def kind_of_class(kind: type) -> str:
    """The owner of a class's code."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return kind_of_file(file) if isinstance(file, str) else USER


def title(value: Any) -> str:
    """A name for `value` in messages."""
    is_named = isinstance(value, (type, types.FunctionType, types.ModuleType, types.MethodType))
    return str(value.__name__ if is_named else type(value).__name__)
