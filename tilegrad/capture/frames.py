"""The evaluation stack of a running Python function, which the interpreter does not expose.

A trace function with `f_trace_opcodes` is called before each instruction, when the operands lie on
the stack. Where they lie is the same in all builds of one minor version; it is tried once on a
function whose operands are known, and where that fails `can_watch` says no: nothing is captured.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from types import CodeType, FrameType
from typing import Any

from tilegrad.base.tracers import install_tracer

__all__ = ["can_watch", "cell_at", "function_of", "slots_of", "stack_of"]

# Bytes: from a frame object to its interpreter frame; in that, the function, the count of used
# slots, and the slots: local variables, cells, then the stack.
_FRAME = 24
_FUNCTION = {(3, 11): 0, (3, 12): 16, (3, 13): 16}.get(sys.version_info[:2], -1)
_TOP = 64
_SLOTS = 72
_WORD = ctypes.sizeof(ctypes.c_void_p)


@functools.lru_cache(maxsize=4096)
def slots_of(code: CodeType) -> tuple[str, ...]:
    """The names of the slots below the stack: local variables, cells, variables of the closure."""
    cells = [name for name in code.co_cellvars if name not in code.co_varnames]
    return (*code.co_varnames, *cells, *code.co_freevars)


def _inner(frame: FrameType) -> int:
    return ctypes.c_void_p.from_address(id(frame) + _FRAME).value or 0


def stack_of(frame: FrameType, count: int, below: int) -> list[Any]:
    """The topmost `count` values, the last one on top; None for an empty slot. `below` is the
    number of slots under the stack.
    """
    inner = _inner(frame)
    used = ctypes.c_int.from_address(inner + _TOP).value
    if used - count < below:
        return []
    return [_object_at(inner + _SLOTS + slot * _WORD) for slot in range(used - count, used)]


def cell_at(frame: FrameType, slot: int) -> Any:
    """What a slot holds: for a variable of a closure, its cell."""
    return _object_at(_inner(frame) + _SLOTS + slot * _WORD)


def _object_at(address: int) -> Any:
    """The object whose address is in memory there, or None."""
    if ctypes.c_void_p.from_address(address).value is None:
        return None
    return ctypes.py_object.from_address(address).value


def function_of(frame: FrameType) -> Any:
    """The function that runs."""
    return ctypes.py_object.from_address(_inner(frame) + _FUNCTION).value


@functools.cache
def can_watch() -> bool:
    """Whether the stack can be read here."""
    is_usual = sys.implementation.name == "cpython" and _WORD == 8 and _FUNCTION >= 0
    if not is_usual or hasattr(sys, "getobjects") or "t" in getattr(sys, "abiflags", ""):
        return False
    first, second = object(), object()
    seen: list[Any] = []

    def probe(left: Any, right: Any) -> Any:
        return left is right

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code is not probe.__code__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            seen.append((stack_of(frame, 2, 2), function_of(frame)))
        return trace

    outer = sys.gettrace()
    install_tracer(trace)
    try:
        probe(first, second)
    finally:
        install_tracer(outer)
    return ([first, second], probe) in seen
