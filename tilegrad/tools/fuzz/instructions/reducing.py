# ruff: noqa: E501 - a table: one instruction a line
"""Instructions over an axis: reductions, scans, sorting, products, convolution and pooling."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from tilegrad.tools.fuzz.instructions.kind import EPSILON, Instruction, Value, magnitude
from tilegrad.tools.fuzz.instructions.kind import array_module as _np

__all__ = ["POOLING", "REDUCING"]

_F = ("float32",)
_I = ("int8", "uint8", "int16", "int32", "int64")
_FI = (*_F, *_I)
_Params = tuple[Any, ...] | None


def _axis(chance: random.Random, given: Sequence[Value]) -> _Params:
    ndim = given[0].array.ndim
    return (chance.randrange(ndim),) if ndim else None


def _axes(chance: random.Random, given: Sequence[Value]) -> _Params:
    ndim = given[0].array.ndim
    if not ndim:
        return None
    chosen = sorted(chance.sample(range(ndim), chance.randrange(1, ndim + 1)))
    return (tuple(chosen) if len(chosen) > 1 else chosen[0],)


def _sum(a: Any, axis: Any) -> Any:
    return a.sum(axis, dtype="f8" if a.dtype.kind == "f" else "i8")


def _scan(a: Any, axis: int) -> Any:
    return a.cumsum(axis, dtype="f8" if a.dtype.kind == "f" else "i8")


def _prod(a: Any, axis: Any) -> Any:
    return a.prod(axis, dtype="f8" if a.dtype.kind == "f" else "i8")


def _sum_error(given: Sequence[Value], out: Any, axis: Any) -> float:
    """The terms' errors; and rounding, unless the sum of their sizes is exact."""
    array = given[0].array
    total = magnitude(_sum(abs(array), axis))
    count = array.size / max(_np().size(out), 1) if _np().shape(out) != array.shape else len(array)
    return float(given[0].error) * max(count, array.shape[axis] if isinstance(axis, int) else 1) + (
        0.0 if total < 4000 and not given[0].error else 8 * EPSILON * total
    )


def _prod_error(given: Sequence[Value], out: Any, axis: Any) -> float:
    count = given[0].array.size
    most = max(1.0, magnitude(given[0])) ** min(count, 60)
    return float(count * (given[0].error + 2 * EPSILON) * most)


def _columns(chance: random.Random, given: Sequence[Value]) -> _Params:
    shape = given[0].array.shape
    return (shape[-1],) if len(shape) >= 2 else None


def _matches(chance: random.Random, given: Sequence[Value]) -> _Params:
    a, b = given[0].array, given[1].array
    return () if a.ndim >= 2 and b.ndim == 2 and a.shape[-1] == b.shape[0] else None


def _product_error(given: Sequence[Value], out: Any) -> float:
    a, b = given
    total = magnitude(abs(a.array) @ abs(b.array))
    terms = a.array.shape[-1] * (a.error * magnitude(b) + b.error * magnitude(a))
    return float(terms) + (0.0 if total < 4000 and not terms else 8 * EPSILON * total)


def _spread_error(given: Sequence[Value], out: Any, axis: Any) -> float:
    most = magnitude(given[0])
    return 4 * most * given[0].error + 16 * EPSILON * most * most


def _norm_error(given: Sequence[Value], out: Any, axis: Any) -> float:
    return float(given[0].error * given[0].array.size ** 0.5)


def _longer(chance: random.Random, given: Sequence[Value]) -> _Params:
    axis = _axis(chance, given)
    return None if axis is None or given[0].array.shape[axis[0]] < 2 else axis


def _softmax(a: Any, axis: int) -> Any:
    e = _np().exp(a - a.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def _logsumexp(a: Any, axis: int) -> Any:
    top = a.max(axis, keepdims=True)
    return _np().log(_np().exp(a - top).sum(axis)) + top.squeeze(axis)


def _logsumexp_error(given: Sequence[Value], out: Any, axis: int) -> float:
    """The largest term and the logarithm of the others' sum are rounded, and may cancel."""
    return given[0].error + 4 * EPSILON * (1 + magnitude(given[0]))


REDUCING = [
    Instruction("sum", 1, "{a}.sum({p[0]})", _sum, _axes, _F, error=_sum_error, any_size=True, has_loose_zero=True),
    Instruction("int_sum", 1, "{a}.sum({p[0]}).cast('int64')", _sum, _axes, (*_I, "bool"), "int64", is_wild_safe=True, any_size=True, torch="{a}.sum({p[0]})"),
    Instruction("max", 1, "{a}.max({p[0]})", lambda a, axis: a.max(axis), _axes, _FI, is_wild_safe=True, any_size=True, torch="{a}.amax({p[0]})", has_loose_zero=True),
    Instruction("min", 1, "{a}.min({p[0]})", lambda a, axis: a.min(axis), _axes, _FI, is_wild_safe=True, any_size=True, torch="{a}.amin({p[0]})", has_loose_zero=True),
    Instruction("mean", 1, "{a}.mean({p[0]})", lambda a, axis: a.mean(axis), _axes, _F, rounding=16.0, is_exact=False, any_size=True, has_loose_zero=True),
    Instruction("prod", 1, "{a}.prod({p[0]})", _prod, _axis, _F, error=_prod_error, is_exact=False, any_size=True),
    Instruction("int_prod", 1, "{a}.prod({p[0]}).cast('int64')", _prod, _axis, _I, "int64", any_size=True, torch="{a}.prod({p[0]})"),
    Instruction("var", 1, "{a}.var({p[0]})", lambda a, axis: a.var(axis, ddof=1), _longer, _F, error=_spread_error, is_exact=False, has_loose_zero=True),
    Instruction("norm", 1, "{a}.square().sum({p[0]}).sqrt()", lambda a, axis: _np().sqrt((a * a).sum(axis) ), _axis, _F, error=_norm_error, rounding=16.0, is_exact=False, needs_exact=True),
    Instruction("softmax", 1, "{a}.softmax({p[0]})", _softmax, _axis, _F, error=lambda given, out, axis: 2 * given[0].error, rounding=32.0, is_exact=False, any_size=True),
    Instruction("logsumexp", 1, "{a}.logsumexp({p[0]})", _logsumexp, _axis, _F, error=_logsumexp_error, rounding=16.0, is_exact=False, any_size=True),
    Instruction("cumsum", 1, "{a}.cumsum({p[0]})", _scan, _axis, _F, error=lambda given, out, axis: _sum_error(given, out, axis), any_size=True, has_loose_zero=True),
    Instruction("int_cumsum", 1, "{a}.cumsum({p[0]}).cast('int64')", _scan, _axis, _I, "int64", any_size=True, torch="{a}.cumsum({p[0]})"),
    Instruction("cummax", 1, "{a}.cummax({p[0]}).values", lambda a, axis: _np().maximum.accumulate(a, axis), _axis, _FI, any_size=True, torch="{a}.cummax({p[0]})[0]", has_loose_zero=True),
    Instruction("argmax", 1, "{a}.argmax({p[0]}).cast('int32')", lambda a, axis: a.argmax(axis).astype("i4"), _axis, _FI, "int32", needs_exact=True, is_wild_safe=True, any_size=True, torch="{a}.argmax({p[0]}).int()"),
    Instruction("argmin", 1, "{a}.argmin({p[0]}).cast('int32')", lambda a, axis: a.argmin(axis).astype("i4"), _axis, _FI, "int32", needs_exact=True, is_wild_safe=True, any_size=True, torch="{a}.argmin({p[0]}).int()"),
    Instruction("sort", 1, "{a}.sort({p[0]})[0]", lambda a, axis: _np().sort(a, axis), _axis, _FI, is_wild_safe=True, has_loose_zero=True),
    Instruction("argsort", 1, "{a}.argsort({p[0]}).cast('int32')", lambda a, axis: _np().argsort(a, axis, kind="stable").astype("i4"), _axis, _FI, "int32", needs_exact=True, is_wild_safe=True, torch="{a}.argsort(dim={p[0]}, stable=True).int()"),
    Instruction("any", 1, "{a}.any({p[0]})", lambda a, axis: a.any(axis), _axis, ("bool",), any_size=True),
    Instruction("all", 1, "{a}.all({p[0]})", lambda a, axis: a.all(axis), _axis, ("bool",), any_size=True),
    Instruction("linear", 2, "{a} @ {b}", lambda a, b, size: a @ b, _columns, _F, error=lambda given, out, size: _product_error(given, out), fresh=lambda chance, size: (size, chance.choice((1, 2, 3, 5, 8))), has_loose_zero=True),
    Instruction("matmul", 2, "{a} @ {b}", lambda a, b: a @ b, _matches, _F, error=_product_error, has_loose_zero=True),
]  # fmt: skip


def _conv(a: Any, w: Any, shape: Any, stride: int, padding: int, dilation: int, groups: int) -> Any:
    """A convolution by its definition: for each filter position a product of a strided window."""
    np = _np()
    x = np.pad(a.reshape(shape), [(0, 0), (0, 0), (padding, padding), (padding, padding)])
    out, per_group, height, width = w.shape
    rows = (x.shape[2] - dilation * (height - 1) - 1) // stride + 1
    columns = (x.shape[3] - dilation * (width - 1) - 1) // stride + 1
    if rows < 1 or columns < 1:
        raise ValueError("the filter is larger than what it moves over")
    made = np.zeros((shape[0], out, rows, columns), x.dtype)
    for o in range(out):
        first = o // (out // groups) * per_group
        for c in range(per_group):
            for i in range(height):
                for j in range(width):
                    top, left = i * dilation, j * dilation
                    slices = x[:, first + c, top:, left:][:, ::stride, ::stride]
                    made[:, o] += w[o, c, i, j] * slices[:, :rows, :columns]
    return made


def _images(chance: random.Random, size: int) -> tuple[int, int, int, int] | None:
    sizes = [1, 1, 1, 1]
    for factor in (2, 3, 5, 7, 13, 11):
        while size % factor == 0:
            size //= factor
            sizes[chance.choice((0, 1, 2, 2, 3, 3))] *= factor
    sizes[2] *= size
    return (sizes[0], sizes[1], sizes[2], sizes[3])


def _convolution(chance: random.Random, given: Sequence[Value]) -> _Params:
    shape = _images(chance, given[0].array.size)
    if shape is None:
        return None
    groups = chance.choice([n for n in (1, 1, 1, 2, 3) if shape[1] % n == 0])
    return (
        shape,
        chance.choice((1, 1, 2)),
        chance.choice((0, 1, 2)),
        chance.choice((1, 1, 2)),
        groups,
    )


def _weight(chance: random.Random, shape: Any, *rest: Any) -> tuple[int, ...]:
    groups = rest[-1]
    return (
        groups * chance.choice((1, 2, 3)), shape[1] // groups,
        chance.choice((1, 2, 3)), chance.choice((1, 2, 3)),
    )  # fmt: skip


def _conv_error(given: Sequence[Value], out: Any, *params: Any) -> float:
    a, w = given
    total = magnitude(_conv(abs(a.array), abs(w.array), *params))
    terms = w.array[0].size * (a.error * magnitude(w) + w.error * magnitude(a))
    return float(terms) + (0.0 if total < 4000 and not terms else 8 * EPSILON * total)


def _pooling(chance: random.Random, given: Sequence[Value]) -> _Params:
    shape = _images(chance, given[0].array.size)
    if shape is None:
        return None
    kernel = (chance.choice((1, 2, 3)), chance.choice((1, 2, 3)))
    return shape, kernel, chance.choice((1, 2, 3)), chance.choice((0, min(kernel) // 2))


def _pooled(how: str, fill: float) -> Any:
    def pooled(a: Any, shape: Any, kernel: Any, stride: int, padding: int) -> Any:
        np = _np()
        ends = [(0, 0), (0, 0), (padding, padding), (padding, padding)]
        x = np.pad(a.reshape(shape), ends, constant_values=fill)
        slices = np.lib.stride_tricks.sliding_window_view(x, kernel, (2, 3))
        return getattr(slices[:, :, ::stride, ::stride], how)((-2, -1))

    return pooled


_CALL = "stride={p[1]}, padding={p[2]}, dilation={p[3]}, groups={p[4]})"
_POOL = "({p[1]}, stride={p[2]}, padding={p[3]})"
POOLING = [
    Instruction("conv2d", 2, "{a}.reshape{p[0]}.conv2d({b}, " + _CALL, _conv, _convolution, _F, error=_conv_error, fresh=_weight, torch="torch.nn.functional.conv2d({a}.reshape{p[0]}, {b}, " + _CALL, has_loose_zero=True),
    Instruction("max_pool2d", 1, "{a}.reshape{p[0]}.max_pool2d" + _POOL, _pooled("max", -float("inf")), _pooling, _F, torch="torch.nn.functional.max_pool2d({a}.reshape{p[0]}, " + _POOL[1:], has_loose_zero=True),
    Instruction("avg_pool2d", 1, "{a}.reshape{p[0]}.avg_pool2d" + _POOL, _pooled("mean", 0.0), _pooling, _F, is_exact=False, rounding=8.0, torch="torch.nn.functional.avg_pool2d({a}.reshape{p[0]}, " + _POOL[1:], has_loose_zero=True),
]  # fmt: skip
