# ruff: noqa: E501 - a table: one instruction a line
"""Instructions that move elements: views, padding, concatenations, gathers, and writes to views."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from tilegrad.tools.fuzz.instructions.kind import Instruction, Value
from tilegrad.tools.fuzz.instructions.kind import array_module as _np

__all__ = ["MOVEMENT", "WRITES"]

_FI = ("float32", "int8", "uint8", "int16", "int32", "uint32", "int64")
_SIGNED = ("float32", "int8", "int16", "int32", "int64")
_Params = tuple[Any, ...] | None


def _axis(chance: random.Random, given: Sequence[Value]) -> _Params:
    ndim = given[0].array.ndim
    return (chance.randrange(ndim),) if ndim else None


def _permute(chance: random.Random, given: Sequence[Value]) -> _Params:
    order = list(range(given[0].array.ndim))
    chance.shuffle(order)
    return (tuple(order),) if len(order) > 1 else None


def _pad(chance: random.Random, given: Sequence[Value]) -> _Params:
    shape = given[0].array.shape
    widths = tuple((chance.randrange(3), chance.randrange(3)) for _ in shape)
    return (widths, chance.choice((0, 0, 1, 5))) if shape else None


def _shape_of(chance: random.Random, size: int) -> tuple[int, ...]:
    shape = []
    for factor in (2, 3, 5, 7):
        while size % factor == 0 and chance.random() < 0.7:
            size //= factor
            shape.append(factor)
    shape.append(size)
    chance.shuffle(shape)
    return tuple(shape)


def _reshape(chance: random.Random, given: Sequence[Value]) -> _Params:
    size = given[0].array.size
    return ((() if size == 1 and chance.random() < 0.5 else _shape_of(chance, size)),)


def _expand(chance: random.Random, given: Sequence[Value]) -> _Params:
    shape = given[0].array.shape
    if 1 not in shape:
        return None
    return (tuple(chance.choice((2, 3)) if size == 1 else size for size in shape),)


def _pick(chance: random.Random, given: Sequence[Value]) -> _Params:
    shape = given[0].array.shape
    if not shape:
        return None
    return (tuple([chance.randrange(-n, n) for n in shape[: chance.randrange(1, len(shape) + 1)]]),)


def _slice(chance: random.Random, given: Sequence[Value]) -> _Params:
    """The text of an index of slices."""
    shape = given[0].array.shape
    if not shape:
        return None
    texts = []
    for size in shape:
        low = chance.randrange(size)
        high = chance.randrange(low, size) + 1
        texts.append(
            chance.choice(
                (
                    f"{low}:{high}",
                    f"{low}:{high}",
                    f"{low}:{high}:2",
                    "::-1",
                    "::2",
                    ":",
                    f"-{high}:",
                )
            )
        )
    return (", ".join(texts),)


def _sliced(a: Any, text: str) -> Any:
    return a[eval(f"numpy.s_[{text}]", {"numpy": _np()})]


def _rows(chance: random.Random, given: Sequence[Value]) -> _Params:
    shape = given[0].array.shape
    if not shape:
        return None
    return ([chance.randrange(-shape[0], shape[0]) for _ in range(chance.randrange(1, 5))],)


def _gathers(chance: random.Random, given: Sequence[Value]) -> _Params:
    shape = given[0].array.shape
    if not shape:
        return None
    axis = chance.randrange(len(shape))
    sizes = [chance.randrange(1, size + 1) for size in shape]
    sizes[axis] = chance.randrange(1, 6)
    count = int(_np().prod(sizes))
    if count > 60:
        return None
    return axis, [chance.randrange(shape[axis]) for _ in range(count)], tuple(sizes)


def _gathered(a: Any, axis: int, numbers: Any, sizes: Any) -> Any:
    np = _np()
    index = np.array(numbers).reshape(sizes)
    cut = a[tuple([slice(None) if n == axis else slice(size) for n, size in enumerate(sizes)])]
    return np.take_along_axis(cut, index, axis)


def _scattered(a: Any, axis: int, numbers: Any, sizes: Any) -> Any:
    """Elements [i, j, ...] of `a` are added to zeros at the index given for them."""
    np = _np()
    made = np.zeros_like(a)
    for position, index in zip(np.ndindex(*sizes), numbers):
        at = list(position)
        at[axis] = index
        made[tuple(at)] += a[position]
    return made


def _scatters(chance: random.Random, given: Sequence[Value]) -> _Params:
    shape = given[0].array.shape
    if not shape or given[0].array.size > 60:
        return None
    axis = chance.randrange(len(shape))
    return axis, [chance.randrange(shape[axis]) for _ in range(given[0].array.size)], shape


def _joins(chance: random.Random, given: Sequence[Value]) -> _Params:
    a, b = given[0].array.shape, given[1].array.shape
    if len(a) != len(b) or not a:
        return None
    axis = chance.randrange(len(a))
    is_fine = all(m == n for at, (m, n) in enumerate(zip(a, b)) if at != axis)
    return (axis,) if is_fine else None


def _stacks(chance: random.Random, given: Sequence[Value]) -> _Params:
    a, b = given[0].array.shape, given[1].array.shape
    return (chance.randrange(len(a) + 1),) if a == b else None


def _roll(chance: random.Random, given: Sequence[Value]) -> _Params:
    axis = _axis(chance, given)
    return None if axis is None else (chance.randrange(-4, 5), *axis)


def _repeat(chance: random.Random, given: Sequence[Value]) -> _Params:
    shape = given[0].array.shape
    return (tuple([chance.choice((1, 1, 2, 3)) for _ in shape]),) if shape else None


def _matrix(chance: random.Random, given: Sequence[Value]) -> _Params:
    return (chance.randrange(-2, 3),) if given[0].array.ndim == 2 else None


def _square(chance: random.Random, given: Sequence[Value]) -> _Params:
    shape = given[0].array.shape
    return () if len(shape) == 2 and shape[0] == shape[1] else None


def _vector(chance: random.Random, given: Sequence[Value]) -> _Params:
    shape = given[0].array.shape
    return (chance.randrange(-2, 3),) if len(shape) == 1 and shape[0] < 9 else None


def _unfolds(chance: random.Random, given: Sequence[Value]) -> _Params:
    axis = _axis(chance, given)
    if axis is None:
        return None
    size = chance.randrange(1, given[0].array.shape[axis[0]] + 1)
    return (*axis, size, chance.choice((1, 2)))


def _unfolded(a: Any, axis: int, size: int, step: int) -> Any:
    np = _np()
    slices = np.lib.stride_tricks.sliding_window_view(a, size, axis)
    return slices[(slice(None),) * axis + (slice(None, None, step),)]


MOVEMENT = [
    Instruction("permute", 1, "{a}.permute{p[0]}", lambda a, order: a.transpose(order), _permute, is_wild_safe=True, is_view=True),
    Instruction("reshape", 1, "{a}.reshape({p[0]})", lambda a, shape: a.reshape(shape), _reshape, is_wild_safe=True, is_view=True),
    Instruction("expand", 1, "{a}.expand{p[0]}", lambda a, shape: _np().broadcast_to(a, shape), _expand, is_wild_safe=True, is_view=True),
    Instruction("index", 1, "{a}[{p[0]}]", _sliced, _slice, is_wild_safe=True, is_view=True, torch=None),
    Instruction("pick", 1, "{a}[{p[0]}]", lambda a, at: a[(*at, ...)], _pick, is_wild_safe=True, is_view=True),
    Instruction("diagonal", 1, "{a}.diagonal()", lambda a: _np().einsum("ii->i", a), _square, is_wild_safe=True, is_view=True),
    Instruction("flip", 1, "{a}.flip({p[0]})", lambda a, axis: _np().flip(a, axis), _axis, is_wild_safe=True),
    Instruction("pad", 1, "{a}.pad({p[0]}, value={p[1]})", lambda a, widths, value: _np().pad(a, widths, constant_values=value), _pad, is_wild_safe=True, torch=None),
    Instruction("rows", 1, "{a}[Tensor({p[0]})]", lambda a, rows: a[rows], _rows, is_wild_safe=True, torch="{a}[{p[0]}]"),
    Instruction("gather", 1, "{a}.gather({p[0]}, Tensor({p[1]}).reshape{p[2]})", _gathered, _gathers, is_wild_safe=True, torch="{a}.gather({p[0]}, torch.tensor({p[1]}).reshape{p[2]})"),
    Instruction("scatter", 1, "({a} * 0).scatter_add({p[0]}, Tensor({p[1]}).reshape{p[2]}, {a})", _scattered, _scatters, takes=_FI, error=lambda given, out, axis, *rest: given[0].error * given[0].array.shape[axis], torch="({a} * 0).scatter_add({p[0]}, torch.tensor({p[1]}).reshape{p[2]}, {a})", has_loose_zero=True),
    Instruction("cat", 2, "{a}.cat({b}, dim={p[0]})", lambda a, b, axis: _np().concatenate([a, b], axis), _joins, is_wild_safe=True, torch="torch.cat([{a}, {b}], {p[0]})"),
    Instruction("stack", 2, "{a}.stack({b}, dim={p[0]})", lambda a, b, axis: _np().stack([a, b], axis), _stacks, is_wild_safe=True, torch="torch.stack([{a}, {b}], {p[0]})"),
    Instruction("roll", 1, "{a}.roll({p[0]}, {p[1]})", lambda a, n, axis: _np().roll(a, n, axis), _roll, is_wild_safe=True),
    Instruction("repeat", 1, "{a}.repeat{p[0]}", lambda a, times: _np().tile(a, times), _repeat, is_wild_safe=True),
    Instruction("tril", 1, "{a}.tril({p[0]})", lambda a, k: _np().tril(a, k), _matrix, is_wild_safe=True),
    Instruction("triu", 1, "{a}.triu({p[0]})", lambda a, k: _np().triu(a, k), _matrix, is_wild_safe=True),
    Instruction("diag", 1, "{a}.diag({p[0]})", lambda a, k: _np().diag(a, k), _vector, is_wild_safe=True),
    Instruction("unfold", 1, "{a}.unfold{p}", _unfolded, _unfolds, is_wild_safe=True, is_view=True),
]  # fmt: skip


def _write(chance: random.Random, given: Sequence[Value]) -> _Params:
    if given[0].is_repeated:
        return None
    low = 0 if given[0].dtype.startswith("u") else -6
    return (chance.randrange(low, 7),)


def _write_slice(chance: random.Random, given: Sequence[Value]) -> _Params:
    cut, number = _slice(chance, given), _write(chance, given)
    return None if cut is None or number is None else (*cut, *number)


def _write_value(chance: random.Random, given: Sequence[Value]) -> _Params:
    np = _np()
    target, value = given
    if target.is_repeated or np.shares_memory(target.array, value.array):
        return None
    is_fine = target.array.shape == value.array.shape and not value.is_wild
    return () if is_fine and value.error == 0.0 else None


def _filled(a: Any, number: int) -> Any:
    a[...] = number
    return a


def _slice_filled(a: Any, text: str, number: int) -> Any:
    _sliced(a, text)[...] = number
    return a


def _copied(a: Any, b: Any) -> Any:
    a[...] = b
    return a


def _added(a: Any, number: int) -> Any:
    a += a.dtype.type(number)
    return a


def _rows_written(a: Any, rows: Any, number: int) -> Any:
    a[rows] = number
    return a


def _write_rows(chance: random.Random, given: Sequence[Value]) -> _Params:
    rows, number = _rows(chance, given), _write(chance, given)
    return None if rows is None or number is None else (*rows, *number)


WRITES = [
    Instruction("fill_", 1, "{a}", _filled, _write, _FI, is_write=True, statement="{a}.fill_({p[0]})"),
    Instruction("set_window", 1, "{a}", _slice_filled, _write_slice, _FI, is_write=True, statement="{a}[{p[0]}] = {p[1]}", torch=None),
    Instruction("copy_", 2, "{a}", _copied, _write_value, _FI, is_write=True, statement="{a}.copy_({b})"),
    Instruction("assign_window", 2, "{a}", _copied, _write_value, _FI, is_write=True, statement="{a}[...] = {b}"),
    Instruction("add_", 1, "{a}", _added, _write, _SIGNED, is_write=True, statement="{a}.add_({p[0]})"),
    Instruction("set_rows", 1, "{a}", _rows_written, _write_rows, _FI, is_write=True, statement="{a}[Tensor({p[0]})] = {p[1]}", torch=None),
]  # fmt: skip
