"""The depth of the evaluation stack before each instruction, beside the interpreter's own."""

from __future__ import annotations

import ast
import asyncio.tasks
import contextlib
import ctypes
import dis
import json
import pathlib
import sys
import textwrap
import types
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

import pytest

from tilegrad.base.tracers import install_tracer
from tilegrad.capture.frames import can_watch, slots_of, stack_of
from tilegrad.capture.stack_depths import stack_depths

# In Python 3.11: bytes from a frame object to its interpreter frame, and in that to the count of
# used slots, which holds while a trace function runs (cpython/Include/internal/pycore_frame.h).
FRAME, USED = 24, 64


def depths_of(code: CodeType) -> dict[int, int]:
    return stack_depths(code, list(dis.get_instructions(code)))


def used_by_interpreter(frame: FrameType) -> int:
    inner = ctypes.c_void_p.from_address(id(frame) + FRAME).value or 0
    return ctypes.c_int.from_address(inner + USED).value


def generated(count: int) -> Iterator[int]:
    with contextlib.suppress(ValueError):
        for number in range(count):
            sent = yield number
            if sent == 2:
                raise ValueError(sent)


def delegating(count: int) -> Iterator[int]:
    yield from generated(count)
    yield from (number * 2 for number in range(count))


def tried(value: Any, *args: Any, **names: Any) -> Any:
    found: list[Any] = []
    try:
        try:
            found.append(1 / value)
        finally:
            found.append(value)
    except* ZeroDivisionError as error:
        found.append(len(error.exceptions))
    for other in args:
        try:
            if other == 3:
                continue
            if other == 4:
                break
            found.append([*found, {**names, "other": other}, f"{other:>3} {other!r}"])
        except TypeError:
            raise
    else:
        found.append({key: value for key, value in names.items() if value not in (1, 2)})
    return found


def matched(value: Any) -> Any:
    match value:
        case {"kind": str(kind), **rest}:
            return kind, rest
        case [first, *others]:
            return first, others
        case types.SimpleNamespace(a=1 | 2 as found):
            return found
        case _:
            return None if value is None else value[1:] if not isinstance(value, int) else -value


def programs() -> list[Any]:
    source = pathlib.Path(textwrap.__file__).read_text()
    values = [{"kind": "x", "n": 1}, [1, 2, 3], types.SimpleNamespace(a=2), None, 5, "text"]
    return [
        list(delegating(4)), tried(0, 1, 3, 4, 5), tried(2, 3, a=1, b=5), [*map(matched, values)],
        json.loads(json.dumps({"a": [1, 2.5, None], "b": "x\n"}, indent=1)),
        textwrap.fill("some words " * 20, 30), ast.unparse(ast.parse(source)),
    ]  # fmt: skip


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="later interpreters do not tell it")
def test_the_interpreter_has_as_many_values() -> None:
    known: dict[CodeType, dict[int, int]] = {}
    steps, wrong = 0, set()

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal steps
        frame.f_trace_opcodes = True
        if event == "opcode":
            code = frame.f_code
            depths = known.get(code) or known.setdefault(code, depths_of(code))
            steps += 1
            if used_by_interpreter(frame) != len(slots_of(code)) + depths[frame.f_lasti]:
                wrong.add((code.co_qualname, dis.opname[code.co_code[frame.f_lasti]]))
        return trace

    outer = sys.gettrace()
    install_tracer(trace)
    try:
        programs()
    finally:
        install_tracer(outer)
    assert not wrong
    assert steps > 100_000


def nested(code: CodeType) -> Iterator[CodeType]:
    waiting = [code]
    while waiting:
        code = waiting.pop()
        yield code
        waiting += [each for each in code.co_consts if isinstance(each, CodeType)]


@pytest.mark.parametrize("module", [ast, asyncio.tasks, contextlib, json, textwrap, types])
def test_each_way_leads_to_one_depth_within_the_stack(module: types.ModuleType) -> None:
    path = pathlib.Path(str(module.__file__))
    for code in nested(compile(path.read_text(), str(path), "exec")):
        depths = depths_of(code)
        assert 0 <= min(depths.values()) and max(depths.values()) <= code.co_stacksize
        ends = [step for step in dis.get_instructions(code) if step.opname == "RETURN_VALUE"]
        assert {depths[step.offset] for step in ends if step.offset in depths} <= {1}


def test_what_lies_on_the_stack_is_seen() -> None:
    """Of calls by position, by name and spread, behind more constants than fit a byte."""
    assert can_watch()
    seen: list[list[Any]] = []

    def target(*args: Any, **names: Any) -> int:
        return len(args) + len(names)

    constants = "".join(f"    x{number} = {number} + {number}.5\n" for number in range(300))
    calls = "    return f(a, 5) + f(a, b=6) + f(*a) + f(*a, **{'k': 7})\n"
    names: dict[str, Any] = {}
    exec(f"def run(f, a):\n{constants}{calls}", names)
    run = names["run"]
    depths = depths_of(run.__code__)

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code is not run.__code__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            name = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            if name in ("CALL", "CALL_KW", "CALL_FUNCTION_EX"):
                used = len(slots_of(frame.f_code)) + depths[frame.f_lasti]
                seen.append(stack_of(frame, 4 if name == "CALL_FUNCTION_EX" else 3, used))
        return trace

    outer = sys.gettrace()
    install_tracer(trace)
    try:
        assert run(target, (1, 2, 3)) == 2 + 2 + 3 + 4
    finally:
        install_tracer(outer)
    assert len(seen) == 4
    assert seen[0][-2:] == [(1, 2, 3), 5]
    assert (1, 2, 3) in seen[1] and 6 in seen[1]
    assert (1, 2, 3) in seen[2] and target in seen[2]
    assert seen[3][-2:] == [(1, 2, 3), {"k": 7}]
