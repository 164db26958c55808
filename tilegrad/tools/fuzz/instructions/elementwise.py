# ruff: noqa: E501 - a table: one instruction a line
"""Instructions that work element by element: arithmetic, comparisons, casts, shifts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from tilegrad.tools.fuzz.instructions.kind import EPSILON, Instruction, Value, magnitude
from tilegrad.tools.fuzz.instructions.kind import array_module as _np

__all__ = ["ELEMENTWISE"]

_F = ("float32",)
_I = ("int8", "uint8", "int16", "int32", "uint32", "int64")
_SIGNED = ("int8", "int16", "int32", "int64")
_FI = (*_F, *_I)
_WIDTHS = {"int8": 8, "uint8": 8, "int16": 16, "int32": 32, "uint32": 32, "int64": 64}


def _broadcasts(chance: random.Random, given: Sequence[Value]) -> tuple[Any, ...] | None:
    try:
        _np().broadcast_shapes(*[each.array.shape for each in given])
    except ValueError:
        return None
    return ()


def _number(chance: random.Random, given: Sequence[Value]) -> tuple[Any, ...]:
    low = 0 if given[0].dtype.startswith("u") else -6
    return (chance.randrange(low, 7),)


def _divisor(chance: random.Random, given: Sequence[Value]) -> tuple[Any, ...]:
    unsigned = given[0].dtype.startswith("u")
    return (chance.choice((1, 2, 3, 5, 8, 100)) * (1 if unsigned else chance.choice((1, -1))),)


def _amount(chance: random.Random, given: Sequence[Value]) -> tuple[Any, ...]:
    bits = _WIDTHS[given[0].dtype]
    return (chance.choice((0, 1, 2, 3, bits - 1, bits, bits + 1, 40, 63, 64)),)


def _shifted_left(a: Any, amount: int) -> Any:
    return a << amount if amount < 8 * a.dtype.itemsize else a * 0


def _shifted_right(a: Any, amount: int) -> Any:
    bits = 8 * a.dtype.itemsize
    return a >> min(amount, bits - 1) if amount < bits or a.dtype.kind == "i" else a * 0


def _product_error(given: Sequence[Value], out: Any) -> float:
    a, b = given
    return a.error * magnitude(b) + b.error * magnitude(a) + a.error * b.error


def _scaled_error(given: Sequence[Value], out: Any, n: int) -> float:
    return given[0].error * abs(n)


def _quotient_error(given: Sequence[Value], out: Any) -> float:
    return given[0].error + given[1].error * magnitude(given[0])


def _exp_error(given: Sequence[Value], out: Any) -> float:
    return 2 * given[0].error * magnitude(out)


def _log_error(given: Sequence[Value], out: Any) -> float:
    """Its operand is 1 at least, and rounded: near 1 that is more than the logarithm has."""
    return given[0].error + EPSILON


def _saturated(a: Any, dtype: str) -> Any:
    """The rule of casts: NaN is 0, what lies outside is the nearest number that the dtype has."""
    np = _np()
    info = np.iinfo(dtype)
    flat = [0 if v != v else int(min(max(v, info.min), info.max)) for v in a.ravel().tolist()]
    return np.array(flat, dtype).reshape(a.shape)


def _to_half(a: Any) -> Any:
    return a.astype("f4").astype("f2").astype("f8")


def _to_bfloat16(a: Any) -> Any:
    np = _np()
    bits = np.ascontiguousarray(a, "f4").view("u4").astype("u8")
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype("u4")
    made = rounded.view("f4").astype("f8").reshape(a.shape)
    return np.where(np.isnan(a), np.nan, made)


def _casts() -> list[Instruction]:
    made = []
    for dtype in _I:
        made.append(
            Instruction(
                f"float_to_{dtype}",
                1,
                f"{{a}}.cast('{dtype}')",
                lambda a, d=dtype: _saturated(a, d),
                takes=_F,
                gives=dtype,
                needs_exact=True,
                is_wild_safe=True,
                any_size=True,
                torch=None,
            )
        )
        others = tuple([each for each in _I if each != dtype])
        made.append(
            Instruction(
                f"int_to_{dtype}",
                1,
                f"{{a}}.cast('{dtype}')",
                lambda a, d=dtype: a.astype(d),
                takes=(*others, "bool"),
                gives=dtype,
                is_wild_safe=True,
                any_size=True,
                torch=f"{{a}}.to(torch.{dtype})",
            )
        )
    return made


ELEMENTWISE = [
    Instruction("add", 2, "{a} + {b}", lambda a, b: a + b, _broadcasts, _FI, is_wild_safe=True),
    Instruction("sub", 2, "{a} - {b}", lambda a, b: a - b, _broadcasts, _FI, is_wild_safe=True),
    Instruction("mul", 2, "{a} * {b}", lambda a, b: a * b, _broadcasts, _FI, error=_product_error, is_wild_safe=True),
    Instruction("div", 2, "{a} / ({b}.abs() + 1)", lambda a, b: a / (abs(b) + 1), _broadcasts, _F, error=_quotient_error, is_exact=False),
    Instruction("plain_div", 2, "{a} / {b}", lambda a, b: a / b, _broadcasts, _F, is_exact=False, needs_exact=True, is_wild_safe=True, sees_zero=True),
    Instruction("square", 1, "{a} * {a}", lambda a: a * a, takes=_FI, error=lambda given, out: 2 * given[0].error * magnitude(given[0]) + given[0].error ** 2, is_wild_safe=True, any_size=True),
    Instruction("maximum", 2, "{a}.maximum({b})", lambda a, b: _np().maximum(a, b), _broadcasts, _FI, is_wild_safe=True, torch="torch.maximum({a}, {b})", has_loose_zero=True),
    Instruction("minimum", 2, "{a}.minimum({b})", lambda a, b: _np().minimum(a, b), _broadcasts, _FI, is_wild_safe=True, torch="torch.minimum({a}, {b})", has_loose_zero=True),
    Instruction("where", 2, "({a} < {b}).where({a}, {b})", lambda a, b: _np().where(a < b, a, b), _broadcasts, _FI, needs_exact=True, is_wild_safe=True, torch="torch.where({a} < {b}, {a}, {b})"),
    Instruction("choose", 2, "({a} > 0).where({b}, -1)", lambda a, b: _np().where(a > 0, b, -1), _broadcasts, (*_F, *_SIGNED), needs_exact=True, is_wild_safe=True, torch="torch.where({a} > 0, {b}, -1)"),
    Instruction("less", 2, "{a} < {b}", lambda a, b: a < b, _broadcasts, _FI, "bool", needs_exact=True, is_wild_safe=True),
    Instruction("equal", 2, "{a} == {b}", lambda a, b: a == b, _broadcasts, _FI, "bool", needs_exact=True, is_wild_safe=True),
    Instruction("scale", 1, "{a} * {p[0]}", lambda a, n: a * a.dtype.type(n), _number, _FI, error=_scaled_error, is_wild_safe=True, any_size=True),
    Instruction("shift_by", 1, "{a} + {p[0]}", lambda a, n: a + a.dtype.type(n), _number, _FI, is_wild_safe=True, any_size=True),
    Instruction("from_number", 1, "{p[0]} - {a}", lambda a, n: a.dtype.type(n) - a, _number, _FI, is_wild_safe=True, any_size=True),
    Instruction("neg", 1, "-{a}", lambda a: -a, takes=(*_F, *_SIGNED), is_wild_safe=True, any_size=True),
    Instruction("relu", 1, "{a}.relu()", lambda a: _np().maximum(a, 0), takes=(*_F, *_SIGNED), is_wild_safe=True, any_size=True, has_loose_zero=True),
    Instruction("abs", 1, "{a}.abs()", lambda a: _np().abs(a), takes=(*_F, *_SIGNED), is_wild_safe=True, any_size=True),
    Instruction("clamp", 1, "{a}.clamp(-2, {p[0]})", lambda a, n: _np().clip(a, -2, n), lambda chance, given: (chance.randrange(-1, 6),), (*_F, *_SIGNED), is_wild_safe=True, any_size=True, has_loose_zero=True),
    Instruction("sign", 1, "{a}.sign()", lambda a: _np().sign(a), takes=(*_F, *_SIGNED), needs_exact=True, is_wild_safe=False, any_size=True, has_loose_zero=True),
    Instruction("tanh", 1, "{a}.tanh()", lambda a: _np().tanh(a), takes=_F, is_exact=False, any_size=True),
    Instruction("sin", 1, "{a}.sin()", lambda a: _np().sin(a), takes=_F, is_exact=False, any_size=True),
    Instruction("exp", 1, "{a}.exp()", lambda a: _np().exp(a), takes=_F, error=_exp_error, is_exact=False, any_size=True),
    Instruction("log", 1, "({a}.abs() + 1).log()", lambda a: _np().log(abs(a) + 1), takes=_F, error=_log_error, is_exact=False, any_size=True),
    Instruction("sqrt", 1, "({a}.abs() + 1).sqrt()", lambda a: _np().sqrt(abs(a) + 1), takes=_F, is_exact=False, any_size=True),
    Instruction("reciprocal", 1, "({a}.abs() + 1).reciprocal()", lambda a: 1 / (abs(a) + 1), takes=_F, is_exact=False, any_size=True),
    Instruction("sigmoid", 1, "{a}.sigmoid()", lambda a: 1 / (1 + _np().exp(-a)), takes=_F, is_exact=False, any_size=True),
    Instruction("floor", 1, "{a}.floor()", lambda a: _np().floor(a), takes=_F, needs_exact=True, is_wild_safe=True, any_size=True),
    Instruction("ceil", 1, "{a}.ceil()", lambda a: _np().ceil(a), takes=_F, needs_exact=True, is_wild_safe=True, any_size=True),
    Instruction("round", 1, "{a}.round()", lambda a: _np().round(a), takes=_F, needs_exact=True, is_wild_safe=True, any_size=True),
    Instruction("isnan", 1, "{a}.isnan()", lambda a: _np().isnan(a), takes=_F, gives="bool", is_wild_safe=True, any_size=True),
    Instruction("to_float", 1, "{a}.cast('float32')", lambda a: a.astype("f4").astype("f8"), takes=(*_I, "bool"), gives="float32", is_wild_safe=True, any_size=True, torch="{a}.to(torch.float32)"),
    Instruction("half", 1, "{a}.cast('float16').cast('float32')", _to_half, takes=_F, needs_exact=True, is_wild_safe=True, any_size=True, torch="{a}.half().float()"),
    Instruction("bfloat16", 1, "{a}.cast('bfloat16').cast('float32')", _to_bfloat16, takes=_F, needs_exact=True, is_wild_safe=True, any_size=True, torch="{a}.bfloat16().float()"),
    # PyTorch's are NaN on vector lanes where the quotient is larger than a float.
    Instruction("fmod", 2, "{a}.fmod({b})", lambda a, b: _np().fmod(a, b), _broadcasts, _F, needs_exact=True, is_wild_safe=True, torch=None),
    Instruction("mod", 2, "{a} % {b}", lambda a, b: _floored(a, b), _broadcasts, _F, needs_exact=True, is_wild_safe=True, torch=None, has_loose_zero=True),
    Instruction("int_div", 1, "{a} // {p[0]}", lambda a, n: a // a.dtype.type(n), _divisor, _I, is_wild_safe=True, any_size=True),
    Instruction("int_mod", 1, "{a} % {p[0]}", lambda a, n: a % a.dtype.type(n), _divisor, _I, is_wild_safe=True, any_size=True),
    Instruction("div_by", 2, "{a} // ({b} * {b} + 1)", lambda a, b: a // (b * b + 1), _broadcasts, ("int32", "int64"), is_wild_safe=False),
    Instruction("mod_by", 2, "{a} % (-{b} * {b} - 1)", lambda a, b: a % (-b * b - 1), _broadcasts, ("int32", "int64"), is_wild_safe=False),
    Instruction("shl", 1, "{a} << {p[0]}", _shifted_left, _amount, _I, is_wild_safe=True, any_size=True, torch=None),
    Instruction("shr", 1, "{a} >> {p[0]}", _shifted_right, _amount, _I, is_wild_safe=True, any_size=True, torch=None),
    Instruction("and", 2, "{a} & {b}", lambda a, b: a & b, _broadcasts, (*_I, "bool"), is_wild_safe=True),
    Instruction("or", 2, "{a} | {b}", lambda a, b: a | b, _broadcasts, (*_I, "bool"), is_wild_safe=True),
    Instruction("xor", 2, "{a} ^ {b}", lambda a, b: a ^ b, _broadcasts, (*_I, "bool"), is_wild_safe=True),
    *_casts(),
]  # fmt: skip


def _floored(a: Any, b: Any) -> Any:
    """The remainder with the sign of the divisor."""
    np = _np()
    rest = np.fmod(a, b)
    return np.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)
