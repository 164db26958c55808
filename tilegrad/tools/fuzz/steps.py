# ruff: noqa: E501 - a table: one instruction a line
"""The instructions of random programs.

Each has a way to draw its parameters for given operands, a line of tilegrad, and its meaning in
NumPy. Inputs are quarters of small integers, so that sums and products are exact in float32 for a
while; what rounds (`is_exact` is false) is never compared with a threshold or made an integer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["INSTRUCTIONS", "Instruction", "line_of"]

Draw = Callable[[random.Random, Sequence[Any]], "tuple[Any, ...] | None"]


@dataclass(frozen=True)
class Instruction:
    """`line` is formatted with the names `a`, `b` of the operands and the parameters `p`."""

    name: str
    arity: int
    line: str
    meaning: Callable[..., Any]
    draw: Draw = lambda random, given: ()
    is_exact: bool = True
    kinds: str = "fi"
    needs_exact: bool = False


def line_of(step: Any, number: int) -> str:
    """The line of Python that makes value `number`."""
    if step.name == "input" and len(set(step.params[0])) == 1:
        values, shape, dtype = step.params
        return f"v{number} = Tensor([{values[0]}] * {len(values)}, dtype={dtype!r}).reshape{shape}"
    names = [f"v{arg}" for arg in step.args]
    named = dict(zip("abc", names))
    return f"v{number} = " + INSTRUCTIONS[step.name].line.format(
        p=step.params, v=f"v{number}", **named
    )


def _np() -> Any:
    import numpy

    return numpy


def _input(random: random.Random, given: Sequence[Any]) -> tuple[Any, ...]:
    shape = [random.choice((1, 2, 3, 4, 5, 7)) for _ in range(random.randrange(1, 4))]
    is_float = random.random() < 0.7
    count = 1
    for size in shape:
        count *= size
    values: Any = [random.randrange(-9, 10) / (4 if is_float else 1) for _ in range(count)]
    if not is_float:
        values = [int(value) for value in values]
    return values, tuple(shape), "float32" if is_float else "int32"


def _axis(random: random.Random, given: Sequence[Any]) -> tuple[Any, ...] | None:
    return (random.randrange(given[0].ndim),) if given[0].ndim else None


def _permute(random: random.Random, given: Sequence[Any]) -> tuple[Any, ...] | None:
    order = list(range(given[0].ndim))
    random.shuffle(order)
    return (tuple(order),) if len(order) > 1 else None


def _pad(random: random.Random, given: Sequence[Any]) -> tuple[Any, ...] | None:
    shape = given[0].shape
    return (tuple((random.randrange(3), random.randrange(3)) for _ in shape),) if shape else None


def _window(random: random.Random, given: Sequence[Any]) -> tuple[Any, ...] | None:
    found = []
    for size in given[0].shape:
        low = random.randrange(size)
        found.append((low, random.randrange(low, size) + 1, random.choice((1, 1, 1, 2, -1))))
    return (tuple(found),) if found else None


def _slices(window: Sequence[tuple[int, int, int]]) -> tuple[slice, ...]:
    return tuple(
        slice(low, high, step) if step > 0 else slice(high - 1, low - 1 if low else None, step)
        for low, high, step in window
    )


def _reshape(random: random.Random, given: Sequence[Any]) -> tuple[Any, ...]:
    size, shape = given[0].size, []
    for factor in (2, 3, 5, 7):
        while size % factor == 0 and random.random() < 0.7:
            size //= factor
            shape.append(factor)
    shape.append(size)
    random.shuffle(shape)
    return (tuple(shape),)


def _expand(random: random.Random, given: Sequence[Any]) -> tuple[Any, ...] | None:
    shape = given[0].shape
    if 1 not in shape:
        return None
    return (tuple(random.choice((2, 3)) if size == 1 else size for size in shape),)


def _pick(random: random.Random, given: Sequence[Any]) -> tuple[Any, ...] | None:
    shape = given[0].shape
    return (tuple(random.randrange(size) for size in shape[:1]),) if shape else None


def _rows(random: random.Random, given: Sequence[Any]) -> tuple[Any, ...] | None:
    shape = given[0].shape
    if not shape:
        return None
    return ([random.randrange(-shape[0], shape[0]) for _ in range(random.randrange(1, 5))],)


def _number(random: random.Random, given: Sequence[Any]) -> tuple[Any, ...]:
    return (random.randrange(-6, 7),)


def _shift(random: random.Random, given: Sequence[Any]) -> tuple[Any, ...]:
    return (random.choice((0, 1, 2, 3, 31, 32, 33, 40, 63)),)


def _index(random: random.Random, given: Sequence[Any]) -> tuple[Any, ...] | None:
    found = _window(random, given)
    if found is None:
        return None
    text = ", ".join(
        f"{'' if s.start is None else s.start}:{'' if s.stop is None else s.stop}:{s.step}"
        for s in _slices(found[0])
    )
    return (text, *found)


def _stored(random: random.Random, given: Sequence[Any]) -> tuple[Any, ...] | None:
    found = _index(random, given)
    return None if found is None else (*found, random.randrange(-6, 7))


def _assigned(a: Any, text: str, window: Any, value: int) -> Any:
    made = a.copy()
    made[_slices(window)] = value
    return made


def _shifted_left(a: Any, amount: int) -> Any:
    np = _np()
    wide = a.astype(object) << amount
    return np.vectorize(lambda v: (int(v) + 2**31) % 2**32 - 2**31, otypes=[np.int64])(wide)


def _matches(random: random.Random, given: Sequence[Any]) -> tuple[Any, ...] | None:
    a, b = given
    is_fine = a.ndim >= 2 and b.ndim == 2 and a.shape[-1] == b.shape[0]
    return () if is_fine else None


def _broadcasts(random: random.Random, given: Sequence[Any]) -> tuple[Any, ...] | None:
    try:
        _np().broadcast_shapes(*[each.shape for each in given])
    except ValueError:
        return None
    return ()


def _by_axis(name: str) -> Callable[..., Any]:
    return lambda a, axis: getattr(_np(), name)(a, axis=axis)


_LIST = [
    Instruction("input", 0, "Tensor({p[0]}, dtype={p[2]!r}).reshape{p[1]}",
                lambda values, shape, dtype: _np().array(values, "f8" if dtype[0] == "f" else "i8").reshape(shape), _input),
    Instruction("add", 2, "{a} + {b}", lambda a, b: a + b, _broadcasts),
    Instruction("sub", 2, "{a} - {b}", lambda a, b: a - b, _broadcasts),
    Instruction("mul", 2, "{a} * {b}", lambda a, b: a * b, _broadcasts),
    Instruction("maximum", 2, "{a}.maximum({b})", lambda a, b: _np().maximum(a, b), _broadcasts),
    Instruction("where", 2, "({a} < {b}).where({a}, {b} * 2)", lambda a, b: _np().where(a < b, a, b * 2), _broadcasts, needs_exact=True),
    Instruction("scale", 1, "{a} * {p[0]}", lambda a, n: a * n, _number),
    Instruction("relu", 1, "{a}.relu()", lambda a: _np().maximum(a, 0)),
    Instruction("abs", 1, "{a}.abs()", lambda a: _np().abs(a)),
    Instruction("clamp", 1, "{a}.clamp(-2, {p[0]} + 4)", lambda a, n: _np().clip(a, -2, n + 4), _number),
    Instruction("tanh", 1, "{a}.tanh()", lambda a: _np().tanh(a), is_exact=False, kinds="f"),
    Instruction("sin", 1, "{a}.sin()", lambda a: _np().sin(a), is_exact=False, kinds="f"),
    Instruction("floor", 1, "{a}.floor()", lambda a: _np().floor(a), kinds="f", needs_exact=True),
    Instruction("to_int", 1, "{a}.cast('int32')", lambda a: _np().trunc(a).astype("i8"), kinds="f", needs_exact=True),
    Instruction("to_float", 1, "{a}.cast('float32')", lambda a: a.astype("f8"), kinds="i"),
    Instruction("to_int8", 1, "{a}.cast('int8').cast('int32')", lambda a: a.astype("i1").astype("i8"), kinds="i"),
    Instruction("fmod", 2, "{a}.fmod({b}.abs() + 1)", lambda a, b: _np().fmod(a, _np().abs(b) + 1), _broadcasts, needs_exact=True),
    Instruction("floor_div", 1, "{a} // {p[0]}", lambda a, n: a // n, lambda r, g: (r.choice((-7, -3, -2, 2, 3, 5)),), kinds="i"),
    Instruction("mod", 1, "{a} % {p[0]}", lambda a, n: a % n, lambda r, g: (r.choice((-7, -3, -2, 2, 3, 5)),), kinds="i"),
    Instruction("shl", 1, "{a} << {p[0]}", _shifted_left, _shift, kinds="i"),
    Instruction("shr", 1, "{a} >> {p[0]}", lambda a, n: a >> min(n, 63), _shift, kinds="i"),
    Instruction("permute", 1, "{a}.permute{p[0]}", lambda a, order: a.transpose(order), _permute),
    Instruction("flip", 1, "{a}.flip({p[0]})", lambda a, axis: _np().flip(a, axis), _axis),
    Instruction("reshape", 1, "{a}.reshape{p[0]}", lambda a, shape: a.reshape(shape), _reshape),
    Instruction("expand", 1, "{a}.expand{p[0]}", lambda a, shape: _np().broadcast_to(a, shape), _expand),
    Instruction("pad", 1, "{a}.pad({p[0]})", lambda a, widths: _np().pad(a, widths), _pad),
    Instruction("index", 1, "{a}[{p[0]}]", lambda a, text, window: a[_slices(window)], _index),
    Instruction("pick", 1, "{a}[{p[0][0]}]", lambda a, place: a[place], _pick),
    Instruction("rows", 1, "{a}[Tensor({p[0]})]", lambda a, rows: a[rows], _rows),
    Instruction("store", 1, "{a}.clone(); {v}[{p[0]}] = {p[2]}", _assigned, _stored),
    Instruction("sum", 1, "{a}.sum({p[0]})", _by_axis("sum"), _axis),
    Instruction("max", 1, "{a}.max({p[0]})", _by_axis("max"), _axis),
    Instruction("min", 1, "{a}.min({p[0]})", _by_axis("min"), _axis),
    Instruction("mean", 1, "{a}.mean({p[0]})", _by_axis("mean"), _axis, is_exact=False, kinds="f"),
    Instruction("cumsum", 1, "{a}.cumsum({p[0]})", _by_axis("cumsum"), _axis),
    Instruction("argmax", 1, "{a}.argmax({p[0]}).cast('int32')", _by_axis("argmax"), _axis, needs_exact=True),
    Instruction("sort", 1, "{a}.sort({p[0]})[0]", _by_axis("sort"), _axis),
    Instruction("matmul", 2, "{a} @ {b}", lambda a, b: a @ b, _matches),
]  # fmt: skip
INSTRUCTIONS = {each.name: each for each in _LIST}
