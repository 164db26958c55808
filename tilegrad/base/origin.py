"""Which of the user's lines, and which public method called there, made a node.

A node's `origin` stands beside the graph, never in its key: a tuple of entries, at most four, one
for each line that asked for the node. An entry is cheap to take, as it holds code objects and an
offset; lines, their text and names are found only when an error or a row of a report is printed.
"""

from __future__ import annotations

import functools
import linecache
import os
import sys
import threading
from collections.abc import Callable, Iterable
from types import CodeType, FrameType, MethodType
from typing import Any, ParamSpec, TypeVar

__all__ = [
    "Entry", "as_users", "call_site", "called_from", "composed", "composing", "goes_by", "is_users",
    "mark", "method_names", "of_layer", "unmarked", "user_expression", "user_line", "user_lines",
    "users",
]  # fmt: skip

# The user's code object, the offset of the call in it, and the code object of the callee.
Entry = tuple[CodeType, int, CodeType]
Given = ParamSpec("Given")
Result = TypeVar("Result")

_MOST = 4
_MOST_FILES = 4096
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_METHODS = _PACKAGE + "tensor" + os.sep
_STANDARD = os.path.dirname(os.__file__) + os.sep + "threading"
# Names of files met so far. A frame is looked up by its file's name, whose hash is kept.
_inside: set[str] = set()
users: set[str] = set()


class _Call(threading.local):
    """The outermost call of a `composed` method that this thread is in."""

    entry: Entry | None = None


_call = _Call()
# Its `entry` is the origin of the nodes that are made meanwhile.
composing = _call


def _classify(filename: str) -> None:
    is_inside = os.path.abspath(filename).startswith(_PACKAGE)
    if len(users) >= _MOST_FILES:
        # Each cell of a notebook is a file; they are told apart anew.
        users.clear()
    (_inside if is_inside else users).add(filename)


def call_site(frame: FrameType | None = None, called: CodeType | None = None) -> Entry:
    """The innermost frame outside tilegrad, from `frame` on, and the function that was `called`
    there.
    """
    here = frame or sys._getframe(1)
    code = here.f_code
    while True:
        filename = code.co_filename
        if filename in _inside:
            called = code
        elif filename in users:
            break
        else:
            _classify(filename)
            continue
        outer = here.f_back
        if outer is None:
            break
        here = outer
        code = here.f_code
    return code, here.f_lasti, called or code


def mark(node: Any) -> None:
    """Add the user's line of this moment to `node`."""
    entry = _call.entry or call_site(sys._getframe(2))
    origin = node.origin
    if not origin:
        node.origin = (entry,)
    elif entry not in origin and len(origin) < _MOST:
        node.origin = (*origin, entry)


def goes_by(function: Any, method: Any) -> CodeType:
    """Let `function`, which wraps `method`, go by its name: an error, and a row of a report, name
    the function that the user called. Its code from now on.
    """
    while hasattr(method, "__wrapped__"):
        method = method.__wrapped__
    inner: CodeType = method.__code__
    code: CodeType = function.__code__.replace(
        co_name=inner.co_name, co_qualname=inner.co_qualname, co_filename=inner.co_filename
    )
    function.__code__ = code
    return code


def composed(method: Callable[Given, Result]) -> Callable[Given, Result]:
    """Look for the user's line once for all nodes that `method` makes, instead of once for each."""
    code = method.__code__

    @functools.wraps(method)
    def outermost(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        if _call.entry is not None:
            return method(*args, **kwargs)
        _call.entry = call_site(sys._getframe(1), code)
        try:
            return method(*args, **kwargs)
        finally:
            _call.entry = None

    return outermost


def is_users(function: Any) -> bool:
    """Whether calling `function` runs Python code outside tilegrad, as far as can be told."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif isinstance(function, MethodType):
            function = function.__func__
        else:
            break
    code = getattr(function, "__code__", None)
    if code is None:
        code = getattr(getattr(type(function), "__call__", None), "__code__", None)  # noqa: B004
    if not isinstance(code, CodeType):
        return False
    if code.co_filename not in _inside and code.co_filename not in users:
        _classify(code.co_filename)
    return code.co_filename not in _inside


def as_users(
    function: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs
) -> Result:
    """Call `function`, which may be the user's: nodes that it makes then have its own lines."""
    if _call.entry is None or not is_users(function):
        return function(*args, **kwargs)
    return unmarked(function, *args, **kwargs)


def unmarked(
    function: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs
) -> Result:
    """Call `function`, which runs the user's code: nodes made by that have its own lines."""
    entry = _call.entry
    if entry is None:
        return function(*args, **kwargs)
    _call.entry = None
    try:
        return function(*args, **kwargs)
    finally:
        _call.entry = entry


@functools.lru_cache(maxsize=4096)
def _runs_users_code(kind: Any) -> bool:
    """Whether a call of a class of layers runs code outside tilegrad."""
    return is_users(kind.__call__) or is_users(kind.forward)


def of_layer(
    code: CodeType, call: Callable[..., Result], layer: Any, args: Any, options: Any
) -> Result:
    """Call `call` of a layer, with `code` as its name: the user's line is looked for once, by the
    outermost layer.
    """
    kind: Any = layer.__class__
    if _runs_users_code(kind):
        return unmarked(call, layer, *args, **options)
    if _call.entry is not None:
        return call(layer, *args, **options)
    _call.entry = call_site(sys._getframe(1), code)
    try:
        return call(layer, *args, **options)
    finally:
        _call.entry = None


def called_from(frame: FrameType) -> tuple[str, str]:
    """(the user's line, the name of the callee there) of the call that `frame` is in.

    Both are empty where no user's code is below, as in a thread of tilegrad's own.
    """
    entry = _call.entry or call_site(frame)
    code, _, called = entry
    # A user's own error, and code that no caller is below.
    if called is code or code.co_filename in _inside:
        return "", ""
    if code.co_filename.startswith(("<frozen", _STANDARD)):
        return "", ""
    owner, _, name = called.co_qualname.rpartition(".")
    if "<" in called.co_qualname:
        return _line(entry), ""
    # A method of Tensor is known by its name; a layer by its class.
    if name in ("__init__", "__call__"):
        return _line(entry), "" if called.co_filename.startswith(_METHODS) else owner
    if called.co_filename.startswith(_METHODS):
        return _line(entry), name.strip("_")
    return _line(entry), "" if owner else name


def _position(entry: Entry) -> tuple[int, int, int, int]:
    """(first line, last line, first column, end column) of the call, with zeros for unknown
    ones.
    """
    code, offset, _ = entry
    for number, position in enumerate(code.co_positions()):
        if number == offset // 2:
            first, last, start, end = (number or 0 for number in position)
            return first or code.co_firstlineno, last, start, end
    return code.co_firstlineno, 0, 0, 0


def _line(entry: Entry) -> str:
    return f"{os.path.basename(entry[0].co_filename)}:{_position(entry)[0]}"


def user_line(origin: Iterable[Entry]) -> str:
    """Where the user asked for a node first, as in "mnist.py:14"; empty if that is unknown."""
    for entry in origin:
        return _line(entry)
    return ""


def user_lines(origin: Iterable[Entry]) -> list[str]:
    """All lines that asked for a node, each once."""
    return list(dict.fromkeys(_line(entry) for entry in origin))


def user_expression(origin: Iterable[Entry]) -> str:
    """The text of the call that made a node, as in "x.flatten(1)"; empty if its source is not at
    hand.
    """
    for entry in origin:
        first, last, start, end = _position(entry)
        text = linecache.getline(entry[0].co_filename, first) if first == last else ""
        # Columns count bytes of UTF-8.
        return text.encode()[start:end].decode(errors="replace").strip() if end > start else ""
    return ""


def method_names(origin: Iterable[Entry]) -> list[str]:
    """Names of calls that made a node, each once: "__add__", or "Linear.__call__" for a layer."""
    names: list[str] = []
    for _, _, called in origin:
        is_method = called.co_filename.startswith(_METHODS)
        names.append(called.co_name if is_method else called.co_qualname)
    return list(dict.fromkeys(names))
