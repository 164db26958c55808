"""The evaluation stack of a running Python function, which the interpreter does not expose.

A trace function with `f_trace_opcodes` is called before each instruction, when the operands lie on
the stack. Where the stack begins is the same in all builds of one minor version, and how high it is
follows from the code (stack_depths.py); both are tried once on a function whose operands are known,
and where that fails `can_watch` says no: nothing is captured.
"""

from __future__ import annotations

import ctypes
import dis
import functools
import sys
from types import CodeType, FrameType
from typing import Any

from tilegrad.base.tracers import install_tracer
from tilegrad.capture.stack_depths import stack_depths

__all__ = ["can_watch", "cell_at", "function_of", "slots_of", "stack_of"]

# Bytes: from a frame object to its interpreter frame; in that, the function, and the slots: local
# variables, cells, then the stack.
_FRAME = 24
_FUNCTION = {(3, 11): 0, (3, 12): 16, (3, 13): 16}.get(sys.version_info[:2], -1)
_SLOTS = 72
_WORD = ctypes.sizeof(ctypes.c_void_p)


@functools.lru_cache(maxsize=4096)
def slots_of(code: CodeType) -> tuple[str, ...]:
    """The names of the slots below the stack: local variables, cells, variables of the closure."""
    cells = [name for name in code.co_cellvars if name not in code.co_varnames]
    return (*code.co_varnames, *cells, *code.co_freevars)


def _inner(frame: FrameType) -> int:
    return ctypes.c_void_p.from_address(id(frame) + _FRAME).value or 0


def stack_of(frame: FrameType, count: int, used: int) -> list[Any]:
    """The topmost `count` values, the last one on top; None for an empty slot. `used` is the number
    of slots in use: those below the stack, and its depth.
    """
    start = _inner(frame) + _SLOTS
    return [_object_at(start + slot * _WORD) for slot in range(used - count, used)]


def cell_at(frame: FrameType, slot: int) -> Any:
    """The object in a slot: for a variable of a closure, its cell."""
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

    depths = stack_depths(probe.__code__, list(dis.get_instructions(probe)))

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code is not probe.__code__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            used = len(slots_of(frame.f_code)) + depths[frame.f_lasti]
            if used >= 4:
                seen.append((stack_of(frame, 2, used), function_of(frame)))
        return trace

    outer = sys.gettrace()
    try:
        # Python 3.12 heeds `f_trace_opcodes` from the second trace function on.
        for _ in range(2):
            install_tracer(trace)
            probe(first, second)
    finally:
        install_tracer(outer)
    return ([first, second], probe) in seen
