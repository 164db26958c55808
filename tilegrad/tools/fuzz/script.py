"""A program as a file: it fails where tilegrad, or PyTorch, differs from what the program means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilegrad.tools.fuzz.instructions import INSTRUCTIONS
from tilegrad.tools.fuzz.instructions.kind import Value
from tilegrad.tools.fuzz.instructions.others import bound_at
from tilegrad.tools.fuzz.meaning import meaning
from tilegrad.tools.fuzz.modes import MODES, Mode
from tilegrad.tools.fuzz.program import GIVEN, SIZES, Program, Step

__all__ = ["MOST_LINES", "script"]

MOST_LINES = 10


def script(program: Program, mode: str) -> list[str]:
    """The lines, at most ten. Raises ValueError for what is no program, or none of this mode."""
    how = MODES[mode]
    calls = max(program.calls, 3 if how.is_captured else 1)
    values = [meaning(program, call, how.most_elements) for call in range(calls)]
    if how.is_torch and any(value.dtype == "uint32" for value in values[0]):
        raise ValueError("PyTorch can only copy such integers")
    if calls == 1 and not program.threads:
        body = _straight(program, how, values[0])
    else:
        body = _function(program, how, values)
    lines = [*_imports(program, how, body), *body]
    if len(lines) > MOST_LINES:
        room = MOST_LINES - (len(lines) - len(program.steps))
        if room < 1:
            raise ValueError("more is read than a file of ten lines can say")
        joined = [line for line in lines if line.startswith("v")]
        size = math.ceil(len(joined) / room)
        packed = ["; ".join(joined[at : at + size]) for at in range(0, len(joined), size)]
        head = len(lines) - len(joined) - sum(line.startswith("np.testing") for line in lines)
        lines = [*lines[:head], *packed, *lines[head + len(joined) :]]
    return lines


def _imports(program: Program, how: Mode, body: Sequence[str]) -> list[str]:
    text = "\n".join(body)
    lines = [f"import os; os.environ.update({how.switches})"] if how.switches else []
    lines.append("import numpy as np")
    if "inf" in text or "nan" in text:
        lines[-1] += "; from numpy import inf, nan"
    if how.is_torch:
        return [*lines, "import torch" if how.torch == "torch" else f"import {how.torch} as torch"]
    used = [name for name in ("Variable", "jit", "no_grad") if f"{name}(" in text]
    names = ["Tensor", *used]
    return [*lines, f"from tilegrad import {', '.join(names)}"]


def _straight(program: Program, how: Mode, values: Sequence[Value]) -> list[str]:
    lines = []
    for number, step in enumerate(program.steps):
        if step.name == "input":
            made = _tensor(_array_text(*step.params[:3]), how, _given(program, step))
            lines.append(f"v{number} = {made}")
        else:
            lines.append(_line(program, number, how, is_bound=True))
    return [*lines, *[_check(f"v{number}", values[number]) for number in program.reads]]


def _function(program: Program, how: Mode, values: Sequence[Sequence[Value]]) -> list[str]:
    """The program as a function that is called with other data each time."""
    inputs = [n for n, step in enumerate(program.steps) if step.name == "input"]
    bounds = [n for n, step in enumerate(program.steps) if step.name == "bound"]
    if how.is_captured and not inputs:
        raise ValueError("a function without an argument")
    rest = [
        _line(program, number, how, is_bound=False)
        for number, step in enumerate(program.steps)
        if step.name != "input"
    ]
    results = [f"v{number}" for number in program.reads]
    if how.is_captured:
        # A capture that launches nothing is refused, so something is computed in any case.
        results.append(f"v{inputs[0]} * 3" if program.steps[inputs[0]].params[2] != "bool" else "")
    names = ", ".join([*[f"v{n}" for n in inputs], *[f"n{n}" for n in bounds]])
    lines = [f"x{n} = {_array_text(*program.steps[n].params[:3])}" for n in inputs]
    lines = ["; ".join(lines)] if lines else []
    lines.append(f"def f({names}): {'; '.join([*rest, 'return ' + ', '.join(results) + ','])}")
    given = []
    for n in inputs:
        step = program.steps[n]
        given.append(_tensor(f"{_sized(f'x{n}', step, program)} - k", how, _given(program, step)))
    for n in bounds:
        size, number = program.steps[n].params
        given.append(f"Variable('n{n}', 1, {size}).bind(1 + ({number} + k) % {size})")
    checks = [_wanted(by_call[n]) for by_call in values for n in program.reads]
    count = len(program.reads)
    wanted = ", ".join(
        f"[{', '.join(f'({text}, {atol})' for text, _, atol in checks[at : at + count])}]"
        for at in range(0, len(checks), count)
    )
    rtol = max(rtol for _, rtol, _ in checks)
    lines.append(f"wanted = [{wanted}]")
    if how.is_captured and not program.threads:
        lines.append("f = jit(f)")
    function = "(no_grad()(f) if k % 2 else f)" if program.with_gradients else "f"
    call = f"{function}({', '.join(given)})"
    compare = f"np.testing.assert_allclose(r.numpy(), w, {rtol}, atol, strict=True)"
    if program.threads:
        own = "; g = jit(f)" if how.is_captured else "; g = f"
        again = 3 if how.is_captured else 1
        body = (
            f"[{compare} for _ in range({again}) for r, (w, atol) in zip(g{call[1:]}, wanted[k])]"
        )
        lines.append("from concurrent.futures import ThreadPoolExecutor")
        lines.append(f"def check(k): {own[2:]}; {body}")
        lines.append(f"list(ThreadPoolExecutor(4).map(check, range({len(values)})))")
    else:
        lines.append(f"for k in range({len(values)}):")
        lines.append(f"    for r, (w, atol) in zip({call}, wanted[k]): {compare}")
    return lines


def _line(program: Program, number: int, how: Mode, is_bound: bool) -> str:
    """The line of Python that makes value `number`."""
    step = program.steps[number]
    made = INSTRUCTIONS[step.name]
    named: dict[str, Any] = dict(zip("ab", [f"v{arg}" for arg in step.args]), p=step.params)
    if step.name == "bound":
        size, start = step.params
        bound = f"Variable('n{number}', 1, {size}).bind({bound_at(size, start, 0)})"
        named["n"] = bound if is_bound else f"n{number}"
    line = (made.torch if how.is_torch else "") or made.line
    text = f"v{number} = " + line.format(**named)
    if made.is_write:
        text = f"{made.statement.format(**named)}; {text}"
    return text


def _given(program: Program, step: Step) -> str:
    """How an input is made: text with a field for its array."""
    if program.with_gradients and step.params[2] == "float32":
        return "Tensor({}, requires_grad=True)"
    return GIVEN[program.given]


def _sized(name: str, step: Step, program: Program) -> str:
    """An input's array at call `k`, in the shape that it has there."""
    shape = step.params[1]
    if program.growing not in shape:
        return name
    sizes = [f"{size} + k % {SIZES}" if size == program.growing else str(size) for size in shape]
    return f"np.resize({name}, ({', '.join(sizes)},))"


def _tensor(text: str, how: Mode, given: str) -> str:
    return f"torch.tensor({text})" if how.is_torch else given.format(text)


def _number(value: float) -> str:
    return repr(float(f"{value:.9g}"))


def _text(value: Any) -> str:
    """A number as Python reads it: `repr` says nan whatever its sign is."""
    is_negative_nan = value != value and math.copysign(1.0, value) < 0
    return "-nan" if is_negative_nan else repr(value)


def _array_text(values: Sequence[Any], shape: Sequence[int], dtype: str) -> str:
    texts = [_text(value) for value in values]
    if len(texts) > 4 and len(set(texts)) == 1:
        return f"np.full({tuple(shape)}, {texts[0]}, '{dtype}')"
    made = f"np.array([{', '.join(texts)}], '{dtype}')"
    return made if len(shape) == 1 else f"{made}.reshape({tuple(shape)})"


def _wanted(value: Value) -> tuple[str, float, float]:
    """The text of a value, and the tolerances."""
    flat = value.array.ravel().tolist()
    if value.is_float:
        flat = [float(_number(each)) for each in flat]
    text = _array_text(flat, value.array.shape, value.dtype)
    if not value.array.shape:
        text = f"np.array({flat[0]}, '{value.dtype}')"
    if not value.is_float:
        return text, 0.0, 0.0
    atol = float(f"{value.error * 2:.1e}")
    return text, 1e-6, max(atol, 3e-45 if value.is_wild else 0.0)


def _check(name: str, value: Value) -> str:
    text, rtol, atol = _wanted(value)
    return f"np.testing.assert_allclose({name}.numpy(), {text}, {rtol}, {atol}, strict=True)"
