"""One PTX value in another dtype.

`cvt` clamps a float to the integers of its result, and gives 0 for NaN only between 32-bit types,
so wider ones choose. bfloat16 has conversions from float32 alone on all architectures: what holds
more digits is first rounded to odd in float32, so that rounding once more gives what rounding once
would.
"""

from __future__ import annotations

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import CompileError
from tilegrad.render.ptx_code import Code, kind_of, letter

__all__ = ["bitcast", "cast", "narrowed", "rounded_to", "to_float32"]

_SHORT = (dtypes.float16, dtypes.bfloat16)


def cast(code: Code, value: str, source: DType, target: DType) -> str:
    """`value` of `source` as the scalar `target`."""
    if source is target:
        return value
    if target is dtypes.bool:
        return _as_bool(code, value, source)
    if source is dtypes.bool:
        return _of_bool(code, value, target)
    if not target.is_float:
        if source.is_float:
            return _whole(code, value, source, target)
        return _integer(code, value, source, target)
    if source in _SHORT:
        wide = to_float32(code, value, source)
        return wide if target is dtypes.float32 else rounded_to(code, wide, target)
    value = code.in_register(value, kind_of(source))
    if target is dtypes.bfloat16:
        single = value if source is dtypes.float32 else _odd(code, value, source)
        return code.op("b16", "cvt.rn.bf16.f32", single)
    rounding = "" if target is dtypes.float64 and source is dtypes.float32 else ".rn"
    return code.op(kind_of(target), f"cvt{rounding}.{letter(target)}.{letter(source)}", value)


def to_float32(code: Code, value: str, source: DType) -> str:
    """A 16-bit float, exactly."""
    if source is dtypes.float16:
        return code.op("f32", "cvt.f32.f16", value)
    bits = code.op("b32", "cvt.u32.u16", value)
    return code.op("f32", "mov.b32", code.op("b32", "shl.b32", bits, "16"))


def rounded_to(code: Code, value: str, target: DType) -> str:
    """A float32 as a 16-bit float or float64."""
    if target is dtypes.float32:
        return value
    if target is dtypes.float64:
        return code.op("f64", "cvt.f64.f32", value)
    return code.op("b16", f"cvt.rn.{letter(target)}.f32", value)


def narrowed(code: Code, value: str, dtype: DType) -> str:
    """The low bits of a 32-bit register, the representation of integers of 8 and 16 bits."""
    scalar = dtype.scalar
    if scalar.itemsize >= 4:
        return value
    if scalar.kind == "uint":
        return code.op("b32", "and.b32", value, str((1 << scalar.bits) - 1))
    return code.op("b32", f"cvt.s32.s{scalar.bits}", code.in_register(value, "b32"))


def bitcast(code: Code, value: str, source: DType, target: DType) -> str:
    """The bits of a scalar read as another dtype of the same size."""
    if source.itemsize != target.itemsize:
        raise CompileError("render.ptx: bits of one size as another", source=source, target=target)
    if dtypes.bool in (source, target):
        return cast(code, value, source, target)
    here, there = kind_of(source), kind_of(target)
    value = code.in_register(value, here)
    if here == there:
        return value if here != "b32" else narrowed(code, value, target)
    if here == "b16":
        return code.op(
            "b32", f"cvt.{letter(target)}.{'s' if target.kind == 'int' else 'u'}16", value
        )
    if there == "b16":
        return code.op("b16", "cvt.u16.u32", value)
    return code.op(there, f"mov.b{source.bits}", value)


def _as_bool(code: Code, value: str, source: DType) -> str:
    if source.is_float:
        if source in _SHORT:
            value, source = to_float32(code, value, source), dtypes.float32
        zero = "0f00000000" if source is dtypes.float32 else "0d0000000000000000"
        return code.op("pred", f"setp.neu.{letter(source)}", value, zero)
    return code.op("pred", f"setp.ne.{letter(source)}", value, "0")


def _of_bool(code: Code, value: str, target: DType) -> str:
    one, zero = code.constant(1, target), code.constant(0, target)
    return code.op(kind_of(target), f"selp.{kind_of(target)}", one, zero, value)


def _integer(code: Code, value: str, source: DType, target: DType) -> str:
    wide, here = kind_of(target), kind_of(source)
    if wide == here == "b64":
        return value
    if wide == "b64":
        sign = "s" if source.kind == "int" else "u"
        return code.op("b64", f"cvt.{sign}64.{sign}32", code.in_register(value, "b32"))
    if here == "b64":
        value = code.op("b32", "cvt.u32.u64", code.in_register(value, "b64"))
    elif target.itemsize >= 4 or (source.min >= target.min and source.max <= target.max):
        return value
    return narrowed(code, value, target)


def _whole(code: Code, value: str, source: DType, target: DType) -> str:
    """A float toward zero, the nearest integer that there is, 0 for NaN."""
    if source in _SHORT:
        value, source = to_float32(code, value, source), dtypes.float32
    value = code.in_register(value, kind_of(source))
    kind, width, number = kind_of(target), letter(target), letter(source)
    found = code.op(kind, f"cvt.rzi.{width}.{number}", value)
    if kind == "b64" or source is dtypes.float64:
        is_number = code.op("pred", f"setp.num.{number}", value, value)
        found = code.op(kind, f"selp.{kind}", found, "0", is_number)
    if target.itemsize < 4:
        found = code.op("b32", f"min.{width}", found, str(target.max))
        if target.kind == "int":
            found = code.op("b32", f"max.{width}", found, str(target.min))
    return found


def _odd(code: Code, value: str, source: DType) -> str:
    """A number as float32 toward zero, its last bit set if that lost anything."""
    number = letter(source)
    cut = code.op("f32", f"cvt.rz.f32.{number}", value)
    if source.is_float:
        back = code.op("f64", "cvt.f64.f32", cut)
        is_lost = code.op("pred", "setp.ne.f64", back, value)
    else:
        back = code.op(kind_of(source), f"cvt.rzi.{number}.f32", cut)
        is_lost = code.op("pred", f"setp.ne.{number}", back, value)
    bits = code.op("b32", "mov.b32", cut)
    odd = code.op("b32", "or.b32", bits, "1")
    return code.op("f32", "mov.b32", code.op("b32", "selp.b32", odd, bits, is_lost))
