"""OpenCL C for processors: arithmetic on whole vectors, of 2 to 8 lanes.

A vector of bools holds bytes 0 and 1, while the language compares vectors to 0 and -1 as wide as
what was compared; vectors convert by functions only, and accesses that may start anywhere are
functions, too. PoCL 3.0 passes vectors of 64 bytes to functions in one way and takes them in
another, where a processor has such registers and its LLVM does not know it: what is longer than
32 bytes is done lane by lane.
"""

from __future__ import annotations

from dataclasses import replace

from tilegrad.base.dtype import DType, dtypes
from tilegrad.ir.matcher import PatternMatcher
from tilegrad.ir.op import Ops
from tilegrad.ir.pattern import Rule, UPat
from tilegrad.ir.uop import UOp
from tilegrad.render.clike import Rendering, gated_statement
from tilegrad.render.dialect import OPERATORS
from tilegrad.render.opencl import OpenCLRenderer
from tilegrad.render.text_rules import is_split, load_lanes, of_vectors, store_lanes, wrapping_type

__all__ = ["OpenCLVectorRenderer"]

_SIGNED = {1: dtypes.int8, 2: dtypes.int16, 4: dtypes.int32, 8: dtypes.int64}

# Bytes of a vector that is passed to a function.
_MOST_BYTES = 32


def _signed(dtype: DType, ctx: Rendering) -> str:
    """The vector type of signed integers as wide as `dtype`."""
    return ctx.type(_SIGNED[dtype.itemsize].vec(dtype.lanes))


def compare(u: UOp, ctx: Rendering) -> str:
    return _as_bools(OPERATORS[u.op].format(*map(ctx.text, u.src)), u.dtype, ctx)


def _as_bools(mask: str, dtype: DType, ctx: Rendering) -> str:
    """Bytes 0 and 1 of the lanes 0 and -1. They are negated as bytes: Oclgrind 21.10 makes 255 of
    a negated comparison, as it extends vectors of single bits wrongly.
    """
    return f"(-convert_{ctx.type(dtype)}({mask}))"


def convert(u: UOp, ctx: Rendering) -> str:
    """Floats that no integer holds saturate, and NaN gives 0."""
    (source,) = u.src
    if source.dtype.is_float and u.dtype.is_int:
        value = ctx.atom(source)
        zero = f"({ctx.type(source.dtype)})(0)"
        return f"convert_{ctx.type(u.dtype)}_sat((({value}!={value})?{zero}:{value}))"
    text = ctx.text(source)
    if u.dtype.kind == "bool":
        return _as_bools(f"{text}!=({ctx.type(source.dtype)})(0)", u.dtype, ctx)
    return f"convert_{ctx.type(u.dtype)}({text})"


def reinterpret(u: UOp, ctx: Rendering) -> str:
    return f"as_{ctx.type(u.dtype)}({ctx.text(u.src[0])})"


def select(u: UOp, ctx: Rendering) -> str | None:
    condition, yes, no = u.src
    if condition.dtype.lanes == 1:
        return None
    mask = f"-convert_{_signed(u.dtype, ctx)}({ctx.text(condition)})"
    return f"({mask}?{ctx.text(yes)}:{ctx.text(no)})"


def maximum(u: UOp, ctx: Rendering) -> str:
    """As the scalar text: NaN wins on either side."""
    if not u.dtype.is_float:
        return f"max({','.join(map(ctx.text, u.src))})"
    x, y = map(ctx.atom, u.src)
    return f"((({y}>{x})|({y}!={y}))?{y}:{x})"


def wrap_around(u: UOp, ctx: Rendering) -> str | None:
    """In the unsigned type: a cast keeps the bits."""
    unsigned = wrapping_type(u)
    if unsigned is None:
        return None
    name = ctx.type(unsigned)
    texts = [f"as_{name}({ctx.text(source)})" for source in u.src]
    if u.op is Ops.SHL:
        texts[1] = ctx.text(u.src[1])
    return f"as_{ctx.type(u.dtype)}({OPERATORS[u.op].format(*texts)})"


def by_lane(u: UOp, ctx: Rendering) -> str:
    return ctx.lanewise(u)


def wide_by_lane(u: UOp, ctx: Rendering) -> str | None:
    longest = max(each.dtype.nbytes for each in (u, *u.src))
    return ctx.lanewise(u) if longest > _MOST_BYTES else None


def load(u: UOp, ctx: Rendering) -> str | None:
    buffer, index, *rest = u.src
    if is_split(u, u, tuple(rest[1:]), ctx) or ctx.holds_vectors(buffer, u.dtype):
        return None
    if u.dtype.nbytes > _MOST_BYTES:
        return load_lanes(u, ctx)
    text = f"vload{u.dtype.lanes}(0,{ctx.address(buffer, index)})"
    if not rest:
        return text
    alternative, gate = rest
    return f"({ctx.text(gate)}?{text}:{ctx.text(alternative)})"


def store(u: UOp, ctx: Rendering) -> str | None:
    buffer, index, value, *gate = u.src
    lanes = value.dtype.lanes
    if (
        lanes == 1
        or u.arg is not None
        or is_split(u, value, tuple(gate), ctx)
        or ctx.holds_vectors(buffer, value.dtype)
    ):
        return None
    if value.dtype.nbytes > _MOST_BYTES:
        return store_lanes(u, ctx)
    text = f"vstore{lanes}({ctx.text(value)},0,{ctx.address(buffer, index)});"
    return gated_statement(ctx.text(gate[0]), text) if gate else text


_OPERATIONS = (*(op for op in Ops if op.is_alu), Ops.CAST, Ops.BITCAST)
_WRAPPING = (Ops.ADD, Ops.SUB, Ops.MUL, Ops.NEG, Ops.SHL, Ops.MULACC)
_RULES = PatternMatcher(
    "opencl-vectors",
    [
        Rule(f"opencl-vector-{name}", UPat(ops, name="u"), function=of_vectors(function))
        for name, ops, function in (
            ("wide", _OPERATIONS, wide_by_lane),
            ("compare", (Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ), compare),
            ("convert", Ops.CAST, convert),
            ("reinterpret", Ops.BITCAST, reinterpret),
            ("select", Ops.WHERE, select),
            ("maximum", Ops.MAX, maximum),
            ("wrap", _WRAPPING, wrap_around),
            ("divide", (Ops.IDIV, Ops.MOD, Ops.FLOORDIV, Ops.FLOORMOD), by_lane),
            ("load", Ops.LOAD, load),
        )
    ]
    + [Rule("opencl-vector-store", UPat(Ops.STORE, name="u"), function=store)],
)
_LANES = tuple(f".s{digit}" for digit in "0123456789abcdef")


class OpenCLVectorRenderer(OpenCLRenderer):
    """OpenCL C, for processors with 1.2 or later."""

    dialect = replace(
        OpenCLRenderer.dialect,
        has_vector_arithmetic=True,
        combines_by_lane=True,
        lanes=_LANES,
        wide_lanes=(),
    )
    rules = _RULES + OpenCLRenderer.rules
