"""Node -> WGSL, for values: constants, operations, conversions, positions and loops."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import CompileError
from tilegrad.ir.matcher import PatternMatcher
from tilegrad.ir.op import Ops
from tilegrad.ir.pattern import Rule, UPat
from tilegrad.ir.uop import UOp
from tilegrad.render.clike import lane, strip_parentheses
from tilegrad.render.dialect import OPERATORS
from tilegrad.render.inline import value_of
from tilegrad.render.text_rules import negate_bool
from tilegrad.render.wgsl_seals import operands_to_seal
from tilegrad.render.wgsl_walk import WGSLRendering

__all__ = ["VALUE_RULES"]

_SUFFIX = {dtypes.float16: "h", dtypes.float32: "f", dtypes.float64: "lf"}
_CHAINS = frozenset({Ops.ADD, Ops.MUL})
_OVERFLOWING = frozenset({Ops.ADD, Ops.SUB, Ops.MUL, Ops.NEG, Ops.SHL, Ops.IDIV})
_FLOATS = {
    Ops.SQRT: "sqrt({0})",
    Ops.TRUNC: "trunc({0})",
    # SPIR-V's "not equal" is false of NaN in some translators; "equal" is in all.
    Ops.CMPNE: "(!({0}=={1}))",
    Ops.MAX: "select({0},{1},(({1}>{0})|(!({1}=={1}))))",
    Ops.RECIP: "(1.0{suffix}/{0})",
}
_BOOLS = {
    Ops.ADD: "({0}|{1})",
    Ops.OR: "({0}|{1})",
    Ops.MAX: "({0}|{1})",
    Ops.MUL: "({0}&{1})",
    Ops.AND: "({0}&{1})",
    Ops.XOR: "({0}!={1})",
    Ops.CMPNE: "({0}!={1})",
    Ops.CMPEQ: "({0}=={1})",
    Ops.CMPLT: "((!{0})&{1})",
    Ops.TRUNC: "{0}",
}
_WORDS = {Ops.MAX: "max({0},{1})", Ops.TRUNC: "{0}"}
_PAIRS = {Ops.AND: "({0}&{1})", Ops.OR: "({0}|{1})", Ops.XOR: "({0}^{1})",
          Ops.CMPEQ: "all({0}=={1})", Ops.CMPNE: "any({0}!={1})", Ops.TRUNC: "{0}"}  # fmt: skip
_PAIR_FUNCTIONS = {
    Ops.ADD: "long_add",
    Ops.SUB: "long_subtract",
    Ops.NEG: "long_negate",
    Ops.MUL: "long_multiply",
    Ops.IDIV: "*long_divide",
    Ops.MOD: "*long_remainder",
    Ops.CMPLT: "*long_less",
}
_DIVISIONS = (Ops.IDIV, Ops.MOD, Ops.FLOORDIV, Ops.FLOORMOD)


def _is_pair(dtype: DType) -> bool:
    return dtype.is_int and dtype.itemsize == 8


# constants


def constant(u: UOp, ctx: WGSLRendering) -> str:
    if u.dtype.lanes > 1:
        return ctx.text(UOp(Ops.VECTORIZE, u.dtype, (lane(u, 0),) * u.dtype.lanes))
    return _constant(u.dtype, u.arg, ctx)


def _constant(dtype: DType, value: float, ctx: WGSLRendering) -> str:
    kind = ctx.type(dtype)
    if dtype is dtypes.bool:
        return "true" if value else "false"
    if dtype.is_float:
        return _float(dtype, value, ctx)
    value = int(value)
    if _is_pair(dtype):
        return f"vec2<u32>({value & 0xFFFFFFFF}u,{value >> 32 & 0xFFFFFFFF}u)"
    if kind == "u32":
        return f"{value}u"
    if value == dtypes.int32.min:
        return f"({value + 1}i-1i)"
    return f"({value}i)" if value < 0 else f"{value}i"


def _float(dtype: DType, value: float, ctx: WGSLRendering) -> str:
    """A float; a value that is not finite must not be one that the compiler knows."""
    if math.isfinite(value):
        text = f"{value!r}{_SUFFIX[dtype]}"
        return f"({text})" if text.startswith("-") else text
    name, bits = ("nan", "7fc00000") if math.isnan(value) else ("infinity", "7f800000")
    ctx.need(f"var<private> {name}_bits: u32 = 0x{bits}u;")
    text = f"bitcast<f32>({name}_bits)"
    text = text if dtype is dtypes.float32 else f"{ctx.type(dtype)}({text})"
    return f"(-{text})" if math.copysign(1, value) < 0 and not math.isnan(value) else text


def _sealed(node: UOp, ctx: WGSLRendering) -> str:
    """A float that the driver cannot see through."""
    dtype, zero = node.dtype.scalar, ctx.zero()
    if node.op is Ops.CONST and dtype is dtypes.float32 and math.isfinite(node.arg):
        (bits,) = struct.unpack("<I", struct.pack("<f", node.arg))
        return f"bitcast<f32>({hex(bits)}u^{zero}.x)"
    text = strip_parentheses(ctx.text(node))
    if dtype is dtypes.float32:
        return f"bitcast<f32>(bitcast<u32>({text})^{zero}.x)"
    if dtype is dtypes.float64:
        return f"bitcast<f64>(bitcast<u64>({text})^u64({zero}.x))"
    return f"f16(unpack2x16float(pack2x16float(vec2<f32>(f32({text}),0.0f))^{zero}.x).x)"


# operations


def operate(u: UOp, ctx: WGSLRendering) -> str:
    """An operator or function; a sum of sums is written with one pair of parentheses, of floats
    where that keeps their order.
    """
    if u.dtype.lanes > 1:
        return ctx.lanewise(u)
    op, dtype = u.op, u.src[-1].dtype.scalar
    if op in (Ops.SHL, Ops.SHR):
        return _shift(u, ctx)
    if dtype is dtypes.bool:
        return _filled(u, _BOOLS, ctx)
    if _is_pair(dtype):
        return _operate_pair(u, ctx)
    if dtype.is_float:
        return _operate_float(u, ctx)
    if op is Ops.MULACC:
        return ctx.text(_product_and_sum(u))
    return _wrapped(_filled(u, _WORDS, ctx), op, u.dtype)


def _filled(u: UOp, table: Mapping[Ops, str], ctx: WGSLRendering) -> str:
    template = table.get(u.op) or OPERATORS.get(u.op)
    if template is None:
        dtype = u.src[-1].dtype
        raise CompileError(
            f"render: {ctx.target.name} has no {u.op.name} of {dtype.name}", dtype=dtype
        )
    texts = []
    for number, source in enumerate(u.src):
        repeats = template.count(f"{{{number}}}") > 1
        text = ctx.atom(source) if repeats else ctx.text(source)
        is_same = u.op in _CHAINS and value_of(source).op is u.op and u.dtype.itemsize >= 4
        if is_same and (number == 0 or not u.dtype.is_float) and template is OPERATORS.get(u.op):
            text = strip_parentheses(text)
        texts.append(text)
    return template.format(*texts, suffix=_SUFFIX.get(u.dtype.scalar, ""))


def _operate_float(u: UOp, ctx: WGSLRendering) -> str:
    sealed = operands_to_seal(u)
    if u.op is Ops.MULACC:
        return f"fma({', '.join(ctx.text(source) for source in u.src)})"
    if not sealed:
        return _filled(u, _FLOATS, ctx)
    template = _FLOATS.get(u.op) or OPERATORS[u.op]
    return template.format(
        *(
            _sealed(value_of(source), ctx) if number in sealed else ctx.text(source)
            for number, source in enumerate(u.src)
        )
    )


def _product_and_sum(u: UOp) -> UOp:
    """A MULACC as two operations."""
    a, b, c = u.src
    return UOp(Ops.ADD, u.dtype, (UOp(Ops.MUL, u.dtype, (a, b)), c))


def _operate_pair(u: UOp, ctx: WGSLRendering) -> str:
    op, dtype = u.op, u.src[-1].dtype.scalar
    if op is Ops.MULACC:
        return ctx.text(_product_and_sum(u))
    if op is Ops.MAX:
        left, right = map(ctx.atom, u.src)
        is_less = ctx.long(_signed("*long_less", dtype), left, right)
        return f"select({left},{right},{is_less})"
    if op in _PAIR_FUNCTIONS:
        return ctx.long(_signed(_PAIR_FUNCTIONS[op], dtype), *map(ctx.text, u.src))
    return _filled(u, _PAIRS, ctx)


def _signed(name: str, dtype: DType) -> str:
    """The function for signed or unsigned integers."""
    return name.replace("*", "u" if dtype.kind == "uint" else "")


def _shift(u: UOp, ctx: WGSLRendering) -> str:
    value, amount = u.src
    if amount.op is Ops.CONST:
        count = f"{int(amount.arg)}u"
    elif _is_pair(amount.dtype):
        count = f"{ctx.atom(amount)}.x"
    else:
        text = ctx.text(amount)
        count = text if ctx.type(amount.dtype) == "u32" else f"u32({strip_parentheses(text)})"
    text = ctx.text(value)
    if _is_pair(u.dtype):
        name = "long_shift_left" if u.op is Ops.SHL else _signed("*long_shift_right", u.dtype)
        return ctx.long(name, text, count)
    sign = "<<" if u.op is Ops.SHL else ">>"
    return _wrapped(f"({text}{sign}{count})", u.op, u.dtype)


def _wrapped(text: str, op: Ops, dtype: DType) -> str:
    """`text` brought back to a dtype of fewer than 32 bits."""
    return _narrow(text, dtype) if dtype.itemsize < 4 and op in _OVERFLOWING else text


def _narrow(text: str, dtype: DType) -> str:
    if not dtype.is_int or dtype.itemsize >= 4:
        return text
    if dtype.kind == "uint":
        return f"({text}&{(1 << dtype.bits) - 1}u)"
    return f"(({text}<<{32 - dtype.bits}u)>>{32 - dtype.bits}u)"


def divide(u: UOp, ctx: WGSLRendering) -> str | None:
    """C's division and remainder. WGSL gives x / 0 = x, x % 0 = 0, and of the least integer by -1
    itself and 0.
    """
    if u.dtype.lanes > 1:
        return ctx.lanewise(u)
    left, right = u.src
    if u.op in (Ops.FLOORDIV, Ops.FLOORMOD):
        if left.vmin < 0 or right.vmin < 0:
            return None
        u = u.replace(op=Ops.IDIV if u.op is Ops.FLOORDIV else Ops.MOD)
    if _is_pair(u.dtype):
        return _operate_pair(u, ctx)
    if right.op is Ops.CONST and right.arg == 0:
        return _constant(u.dtype, 0, ctx) if u.op is Ops.IDIV else ctx.text(left)
    is_quotient = u.op is Ops.IDIV
    template = "({0}/{1})" if is_quotient else "({0}%{1})"
    if not right.vmin <= 0 <= right.vmax:
        return _wrapped(template.format(ctx.text(left), ctx.text(right)), Ops.IDIV, u.dtype)
    a, b = ctx.atom(left), ctx.atom(right)
    zero = _constant(u.dtype, 0, ctx)
    text = f"select({template.format(a, b)},{zero if is_quotient else a},({b}=={zero}))"
    return _wrapped(text, Ops.IDIV, u.dtype)


def choose(u: UOp, ctx: WGSLRendering) -> str:
    if u.dtype.lanes > 1:
        return ctx.lanewise(u)
    gate, chosen, other = (strip_parentheses(ctx.text(source)) for source in u.src)
    return f"select({other},{chosen},{gate})"


# conversions


def cast(u: UOp, ctx: WGSLRendering) -> str:
    if u.dtype.lanes > 1:
        return ctx.lanewise(u)
    value, dtype = u.src[0], u.dtype
    source, text = value.dtype, ctx.text(value)
    if source is dtype:
        return text
    if source is dtypes.bool:
        one, zero = _constant(dtype, 1, ctx), _constant(dtype, 0, ctx)
        return f"select({zero},{one},{strip_parentheses(text)})"
    if dtype is dtypes.bool:
        return _is_not_zero(text, source, ctx)
    if dtype.is_float:
        return _to_float(text, source, dtype, ctx)
    if source.is_float:
        return _whole(text, source, dtype, ctx)
    return _to_integer(text, value, dtype, ctx)


def _is_not_zero(text: str, source: DType, ctx: WGSLRendering) -> str:
    zero = _constant(source, 0, ctx)
    if _is_pair(source):
        return f"any({text}!={zero})"
    return f"(!({text}=={zero}))" if source.is_float else f"({text}!={zero})"


def _to_integer(text: str, value: UOp, dtype: DType, ctx: WGSLRendering) -> str:
    source = value.dtype
    if _is_pair(dtype):
        if _is_pair(source):
            return text
        if source.kind == "uint":
            return f"vec2<u32>({strip_parentheses(text)},0u)"
        name = ctx.atom(value)
        return f"vec2<u32>(u32({name}),u32({name}>>31u))"
    if _is_pair(source):
        text, now = f"{ctx.atom(value)}.x", "u32"
    else:
        now = ctx.type(source)
    wanted = ctx.type(dtype)
    if now != wanted:
        text = f"{wanted}({strip_parentheses(text)})"
    holds = source.min >= dtype.min and source.max <= dtype.max
    return text if holds else _narrow(text, dtype)


def _to_float(text: str, source: DType, dtype: DType, ctx: WGSLRendering) -> str:
    if _is_pair(source):
        wide = "f64" if dtype is dtypes.float64 else "f32"
        text = ctx.long(_signed(f"*long_to_{wide}", source), text)
        source = dtypes.float64 if wide == "f64" else dtypes.float32
    elif source.is_int and dtype is dtypes.float16:
        text, source = f"f32({strip_parentheses(text)})", dtypes.float32
    elif source is dtypes.float64 and dtype is dtypes.float16:
        ctx.need(_ODD)
        text, source = f"odd_f32({strip_parentheses(text)})", dtypes.float32
    return text if source is dtype else f"{ctx.type(dtype)}({strip_parentheses(text)})"


# Where float32 loses digits of a float64 its last bit is set, so that rounding it once more gives
# the same as rounding once.
_ODD = """\
fn odd_f32(x: f64) -> f32 {
  let near = f32(x);
  let back = f64(near);
  let bits = bitcast<u32>(near);
  let beyond = select(0u, 1u, abs(back) > abs(x));
  let is_lost = (back > x) | (back < x);
  return select(near, bitcast<f32>((bits - beyond) | 1u), is_lost);
}"""
# NaN is smaller than nothing, and gives 0.
_WHOLE = """\
fn {name}(x: {float}) -> {type} {{
  if (x >= {above}) {{ return {high}; }}
  if (x <= {below}) {{ return {low}; }}
  if (!(x == x)) {{ return {zero}; }}
  return {type}(x);
}}"""


def _whole(text: str, source: DType, dtype: DType, ctx: WGSLRendering) -> str:
    """A float as an integer: the nearest that there is, 0 for NaN."""
    text = strip_parentheses(text)
    if source is dtypes.float16:
        text, source = f"f32({text})", dtypes.float32
    kind = ctx.type(source)
    if _is_pair(dtype):
        return ctx.long(f"{_signed('*long_of_', dtype)}{kind}", text)
    low, high, suffix = int(dtype.min), int(dtype.max), _SUFFIX[source]
    name = f"{dtype.name}_of_{kind}"
    ctx.need(
        _WHOLE.format(
            name=name,
            float=kind,
            type=ctx.type(dtype),
            above=f"{high + 1}.0{suffix}",
            below=f"{low}.0{suffix}" if low else f"0.0{suffix}",
            **{
                word: strip_parentheses(_constant(dtype, value, ctx))
                for word, value in (("high", high), ("low", low), ("zero", 0))
            },
        )
    )
    return f"{name}({text})"


def bitcast(u: UOp, ctx: WGSLRendering) -> str:
    if u.dtype.lanes > 1:
        return ctx.lanewise(u)
    value, dtype = u.src[0], u.dtype
    source, text = value.dtype, ctx.text(value)
    if dtypes.bool in (source, dtype) or (source.is_int and dtype.is_int):
        return cast(UOp(Ops.CAST, dtype, (value,)), ctx)
    inside = strip_parentheses(text)
    if source is dtypes.float16:
        word = f"pack2x16float(vec2<f32>(f32({inside}),0.0f))"
        return word if dtype is dtypes.uint16 else _narrow(f"i32({word})", dtype)
    if dtype is dtypes.float16:
        word = inside if source.kind == "uint" else f"u32({inside})&65535u"
        return f"f16(unpack2x16float({word}).x)"
    if source is dtypes.float64:
        ctx.need(_WORDS_OF_DOUBLE)
        return f"words_of_f64({inside})"
    if dtype is dtypes.float64:
        name = ctx.atom(value)
        return f"bitcast<f64>(u64({name}.x)|(u64({name}.y)<<32u))"
    return f"bitcast<{ctx.type(dtype)}>({inside})"


_WORDS_OF_DOUBLE = """\
fn words_of_f64(x: f64) -> vec2<u32> {
  let bits = bitcast<u64>(x);
  return vec2<u32>(u32(bits & 0xfffffffflu), u32(bits >> 32u));
}"""


# statements


def accumulator(u: UOp, ctx: WGSLRendering) -> str:
    return f"var {ctx.text(u)}: {ctx.type(u.dtype)} = {strip_parentheses(ctx.text(u.src[0]))};"


def loop(u: UOp, ctx: WGSLRendering) -> str:
    name, kind, end = ctx.text(u), ctx.type(u.dtype), ctx.text(u.src[0])
    zero = _constant(u.dtype, 0, ctx)
    if _is_pair(u.dtype):
        less = ctx.long("long_less", name, end)
        step = f"{name} = {ctx.long('long_add', name, _constant(u.dtype, 1, ctx))}"
    else:
        # Without its parentheses, `x < (n+3i)>>2u` would begin as the template `x<(n+3i)>` does.
        less, step = f"{name} < {end}", f"{name}++"
    return f"for (var {name}: {kind} = {zero}; {less}; {step}) {{"


def special(u: UOp, ctx: WGSLRendering) -> str:
    name, extent = u.arg
    kind, number = name[:-1], name[-1]
    if kind not in ("gidx", "lidx") or number not in "012":
        raise CompileError(
            f"render: {ctx.target.name} has no position {name!r}", known="gidx0-2, lidx0-2"
        )
    position = ctx.position(kind, int(number))
    if _is_pair(u.dtype):
        position = f"vec2<u32>({position}, 0u)"
    elif ctx.type(u.dtype) == "i32":
        position = f"i32({strip_parentheses(position)})"
    size = extent if isinstance(extent, int) else f"<= {u.vmax + 1}"
    return f"let {name}: {ctx.type(u.dtype)} = {position}; /* {size} */"


_OPERATIONS = tuple(op for op in Ops if op.is_alu and op not in (*_DIVISIONS, Ops.WHERE))

VALUE_RULES = PatternMatcher(
    "wgsl",
    [
        Rule("wgsl-constant", UPat(Ops.CONST, name="u"), function=constant),
        Rule("wgsl-not", UPat(Ops.XOR, name="u"), function=negate_bool),
        Rule("wgsl-choose", UPat(Ops.WHERE, name="u"), function=choose),
        Rule("wgsl-divide", UPat(_DIVISIONS, name="u"), function=divide),
        Rule("wgsl-operate", UPat(_OPERATIONS, name="u"), function=operate),
        Rule("wgsl-cast", UPat(Ops.CAST, name="u"), function=cast),
        Rule("wgsl-bitcast", UPat(Ops.BITCAST, name="u"), function=bitcast),
        Rule("wgsl-accumulator", UPat(Ops.DEFINE_ACC, name="u"), function=accumulator),
        Rule("wgsl-loop", UPat(Ops.RANGE, name="u"), function=loop),
        Rule("wgsl-special", UPat(Ops.SPECIAL, name="u"), function=special),
    ],
)
