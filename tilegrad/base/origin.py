"""Which of the user's lines, and which public method called there, made a node.

A node's `origin` stands beside the graph, never in its key: a tuple of entries (code object,
instruction offset, method name), at most four, one for each line that asked for the node. An entry
is cheap to take, as nothing is looked up; the line and its text are found only when an error or a
row of a report is printed.
"""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Iterable
from types import CodeType
from typing import Any

__all__ = [
    "Entry",
    "call_site",
    "mark",
    "method_names",
    "user_expression",
    "user_line",
    "user_lines",
]

Entry = tuple[CodeType, int, str]

_MOST = 4
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_TENSOR = _PACKAGE + "tensor" + os.sep
_USER, _INSIDE, _METHOD = range(3)
# The kind of each file met so far: a frame is looked up by its file's name, which hashes once.
_kinds: dict[str, int] = {}


def _kind_of(filename: str) -> int:
    path = os.path.abspath(filename)
    kind = _METHOD if path.startswith(_TENSOR) else _INSIDE if path.startswith(_PACKAGE) else _USER
    _kinds[filename] = kind
    return kind


def call_site() -> Entry:
    """The innermost frame outside tilegrad, with the name of the tensor method that was called
    there.
    """
    frame = sys._getframe(1)
    method = ""
    while True:
        code = frame.f_code
        kind = _kinds.get(code.co_filename)
        if kind is None:
            kind = _kind_of(code.co_filename)
        if kind == _METHOD:
            method = code.co_name
        elif kind == _USER:
            return code, frame.f_lasti, method
        outer = frame.f_back
        if outer is None:
            return code, frame.f_lasti, method
        frame = outer


def mark(node: Any) -> None:
    """Add the user's line of this moment to `node`."""
    entry = call_site()
    origin = node.origin
    if not origin:
        node.origin = (entry,)
    elif len(origin) < _MOST and entry not in origin:
        node.origin = (*origin, entry)


def _position(entry: Entry) -> tuple[int, int, int, int]:
    """(first line, last line, first column, end column) of the call, with zeros for what is
    unknown.
    """
    code, offset, _ = entry
    for number, place in enumerate(code.co_positions()):
        if number == offset // 2:
            first, last, start, end = (part or 0 for part in place)
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
    """The public methods that made a node, each once, as in ["__add__"]."""
    return list(dict.fromkeys(entry[2] for entry in origin if entry[2]))
