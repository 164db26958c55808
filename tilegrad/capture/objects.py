"""What can be known of a Python object without running code of its class."""

from __future__ import annotations

import os
import sys
import sysconfig
import types
from typing import Any

from tilegrad.base.dtype import DType
from tilegrad.ir.uop import UOp
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "content",
    "has_attributes",
    "is_library",
    "is_looked_at",
    "is_own_code",
    "is_users",
    "look_up",
    "own_names",
    "title",
]

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LAYERS = _PACKAGE + "nn" + os.sep
_LIBRARY = sysconfig.get_paths()["stdlib"] + os.sep
_files: dict[str, bool] = {}
_MOST_FILES = 4096
_NO_STATE = (
    Tensor, UOp, DType, type(None), bool, int, float, complex, str, bytes, bytearray, range, slice,
    list, tuple, dict, set, frozenset, types.FunctionType, types.BuiltinFunctionType,
    types.MethodType, types.CodeType, types.FrameType, types.GeneratorType,
)  # fmt: skip


def is_looked_at(filename: str) -> bool:
    """Whether code of this file is the user's, or a layer: not Python's, NumPy's, or our core's."""
    found = _files.get(filename)
    if found is None:
        path = os.path.abspath(filename)
        is_library = path.startswith(_LIBRARY) and "site-packages" not in path
        is_core = path.startswith(_PACKAGE) and not path.startswith(_LAYERS)
        is_array = f"{os.sep}numpy{os.sep}" in path
        found = not (is_library or is_core or is_array or filename.startswith("<frozen"))
        if len(_files) >= _MOST_FILES:
            _files.clear()
        _files[filename] = found
    return found


def is_library(filename: str) -> bool:
    """Whether code of this file is Python's standard library."""
    return filename.startswith(_LIBRARY) and "site-packages" not in filename


def is_users(value: Any) -> bool:
    """Whether the class of `value` is a user's."""
    module = sys.modules.get(type(value).__module__)
    return is_looked_at(getattr(module, "__file__", None) or "<frozen>") and has_attributes(value)


def is_own_code(value: Any) -> bool:
    """Whether `value` is a function, class or module of tilegrad's, which nobody exchanges."""
    if isinstance(value, types.ModuleType):
        return value.__name__.partition(".")[0] == "tilegrad"
    if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
        return (value.__module__ or "").partition(".")[0] == "tilegrad"
    return False


def has_attributes(value: Any) -> bool:
    """Whether attributes of `value` are a user's state."""
    if isinstance(value, _NO_STATE):
        return False
    if isinstance(value, types.ModuleType):
        return is_looked_at(getattr(value, "__file__", None) or "<frozen>")
    kind = value if isinstance(value, type) else type(value)
    module = kind.__module__
    if module in ("builtins", "numpy") or module.partition(".")[0] == "numpy":
        return False
    return not module.startswith("tilegrad.") or module.startswith("tilegrad.nn")


def _dict_of(value: Any) -> dict[str, Any]:
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return found if isinstance(found, dict) else {}


def own_names(value: Any) -> set[str]:
    """The attributes that `value` itself has, not its class."""
    if isinstance(value, type):
        return {name for name in value.__dict__ if not name.startswith("__")}
    names = set(_dict_of(value))
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        names.update((slots,) if isinstance(slots, str) else slots)
    return names - {"__dict__", "__weakref__"}


def look_up(value: Any, name: str) -> tuple[Any, Any]:
    """What `value.name` is before any descriptor runs, and who has it; None twice if nobody has."""
    if isinstance(value, type):
        for kind in value.__mro__:
            if name in kind.__dict__:
                return kind.__dict__[name], value
        return None, None
    own = _dict_of(value)
    if name in own:
        return own[name], value
    for kind in type(value).__mro__:
        if name in kind.__dict__:
            return kind.__dict__[name], kind
    return None, None


def content(cell: Any) -> Any:
    """What a closure's variable holds; the cell itself while it holds nothing."""
    try:
        return cell.cell_contents
    except ValueError:
        return cell


def title(value: Any) -> str:
    """A name for `value` in messages."""
    kind = value if isinstance(value, type) else type(value)
    return getattr(value, "__name__", None) or kind.__name__
