"""C for the host, as gcc and clang take it: one function per kernel, vectors by `vector_size`,
nothing to include.

Positions in the launch are parameters here, as `chunk`, the number of the work item, is. Vector
types have the alignment of their elements, so a load may start anywhere, and they may alias, as
element pointers do. A vector of bools holds bytes 0 and 1, while C compares vectors to 0 and -1 as
wide as what was compared: the rules here convert.
"""

from __future__ import annotations

from typing import ClassVar

from tilegrad.base.dtype import DType, dtypes
from tilegrad.hardware import clang_target
from tilegrad.ir.matcher import PatternMatcher
from tilegrad.ir.op import Ops
from tilegrad.ir.pattern import Rule, UPat
from tilegrad.ir.uop import UOp
from tilegrad.render.clike import CStyleRenderer, Rendering
from tilegrad.render.dialect import OPERATORS, Dialect, define_whole
from tilegrad.render.names import C_TYPES, MATH, SHORT_TYPES
from tilegrad.render.text_rules import C_RULES, of_vectors
from tilegrad.target import Target

__all__ = ["ClangRenderer"]

_FUNCTIONS: dict[Ops | tuple[Ops, DType], str] = {
    (op, dtype): template.replace("NAME", name)
    for op, name in MATH.items()
    for dtype, template in {
        dtypes.float16: "(half)(__builtin_NAMEf({0}))",
        dtypes.float32: "__builtin_NAMEf({0})",
        dtypes.float64: "__builtin_NAME({0})",
    }.items()
}
_FUNCTIONS |= {
    (Ops.MULACC, dtypes.float16): "(half)(__builtin_fma({0},{1},{2}))",
    (Ops.MULACC, dtypes.float32): "__builtin_fmaf({0},{1},{2})",
    (Ops.MULACC, dtypes.float64): "__builtin_fma({0},{1},{2})",
}

# Two short integers meet in int, where their product may not fit.
_UNSIGNED = {2: dtypes.uint32, 4: dtypes.uint32, 8: dtypes.uint64}
_WRAPPED = "*{{pointer}} = ({own})(({wide})*{{pointer}}{sign}({wide}){{value}});"
_FLOAT_MAX = "*{pointer} = ((({value}>*{pointer})|({value}!={value}))?{value}:*{pointer});"
_SIGNS = {Ops.ADD: "+", Ops.MUL: "*", Ops.AND: "&", Ops.OR: "|", Ops.XOR: "^"}
_ALIGNED = "__attribute__((aligned(64))) "

_DIALECT = Dialect(
    kernel="void {name}({parameters}) {{",
    prelude=("#define INFINITY (__builtin_inff())", '#define NAN (__builtin_nanf(""))'),
    types=C_TYPES,
    stems=SHORT_TYPES,
    vector_elements={dtypes.bool: "unsigned char"},
    vector="({type}){{{lanes}}}",
    lanes=tuple(f"[{number}]" for number in range(64)),
    memory_lanes=frozenset({2, 4, 8, 16, 32, 64}),
    define_vector=(
        "typedef {type} {name} "
        "__attribute__((vector_size({bytes}),aligned({scalar_bytes}),may_alias));"
    ),
    headers={dtypes.bool: "#include <stdbool.h>", dtypes.float16: "typedef _Float16 half;"},
    read_only="const ",
    restrict="restrict ",
    no_parameters="void",
    scratch=_ALIGNED,
    functions=_FUNCTIONS,
    combine={
        **{op: f"*{{pointer}} = (*{{pointer}}{sign}{{value}});" for op, sign in _SIGNS.items()},
        Ops.MAX: "*{pointer} = ({value}>*{pointer}?{value}:*{pointer});",
        **{(Ops.MAX, dtype): _FLOAT_MAX for dtype in dtypes.floats},
        **{
            (op, dtype): _WRAPPED.format(
                own=C_TYPES[dtype], wide=C_TYPES[_UNSIGNED[dtype.itemsize]], sign=sign
            )
            for op, sign in list(_SIGNS.items())[:2]
            for dtype in (*dtypes.signed, *dtypes.unsigned)
            if dtype.itemsize in _UNSIGNED
        },
    },
    define_whole=define_whole("static inline"),
    has_vector_arithmetic=True,
    keeps_excess=True,
)
_MASKS = {1: dtypes.int8, 2: dtypes.int16, 4: dtypes.int32, 8: dtypes.int64}


def _mask(dtype: DType, ctx: Rendering) -> str:
    """The vector type of signed integers as wide as `dtype`, which comparing gives."""
    return ctx.type(_MASKS[dtype.itemsize].vec(dtype.lanes))


def compare(u: UOp, ctx: Rendering) -> str:
    text = OPERATORS[u.op].format(*map(ctx.text, u.src))
    return f"(-__builtin_convertvector({text},{ctx.type(u.dtype)}))"


def convert(u: UOp, ctx: Rendering) -> str:
    if u.src[0].dtype.is_float and u.dtype.is_int:
        return ctx.lanewise(u)
    text = ctx.text(u.src[0])
    if u.dtype.kind != "bool":
        return f"__builtin_convertvector({text},{ctx.type(u.dtype)})"
    zero = f"({ctx.type(u.src[0].dtype)}){{0}}"
    return f"(-__builtin_convertvector(({text}!={zero}),{ctx.type(u.dtype)}))"


def reinterpret(u: UOp, ctx: Rendering) -> str:
    return f"({ctx.type(u.dtype)})({ctx.text(u.src[0])})"


def select(u: UOp, ctx: Rendering) -> str | None:
    condition = u.src[0]
    if condition.dtype.lanes == 1:
        return None
    name, mask, flags = ctx.type(u.dtype), _mask(u.dtype, ctx), ctx.type(condition.dtype)
    ctx.need(
        f"static inline {name} where_{name}({flags} c, {name} x, {name} y) {{ "
        f"{mask} m = -__builtin_convertvector(c,{mask}); "
        f"return ({name})((({mask})x&m)|(({mask})y&~m)); }}"
    )
    return f"where_{name}({','.join(map(ctx.text, u.src))})"


def maximum(u: UOp, ctx: Rendering) -> str:
    """As the scalar text: NaN wins on either side."""
    name, mask = ctx.type(u.dtype), _mask(u.dtype, ctx)
    ctx.need(
        f"static inline {name} max_{name}({name} x, {name} y) {{ "
        f"{mask} m = ({mask})(y>x)|({mask})(y!=y); "
        f"return ({name})((({mask})y&m)|(({mask})x&~m)); }}"
    )
    return f"max_{name}({','.join(map(ctx.text, u.src))})"


def by_lane(u: UOp, ctx: Rendering) -> str | None:
    """Lane-by-lane text for vectors of ops that C has for scalars only. Half arithmetic is among
    it, as each of its results must be rounded.
    """
    is_half = u.dtype.scalar is dtypes.float16
    is_native = (u.op in OPERATORS or u.op is Ops.RECIP) and u.op is not Ops.MULACC
    return ctx.lanewise(u) if is_half or not is_native else None


_COMPARISONS = (Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ)
_SCALAR_ONLY = (*MATH, Ops.MULACC, Ops.ADD, Ops.SUB, Ops.MUL, Ops.FDIV, Ops.RECIP)
_RULES = PatternMatcher(
    "clang",
    [
        Rule(f"clang-{name}", UPat(ops, name="u"), function=of_vectors(function))
        for name, ops, function in (
            ("compare", _COMPARISONS, compare),
            ("convert", Ops.CAST, convert),
            ("reinterpret", Ops.BITCAST, reinterpret),
            ("select", Ops.WHERE, select),
            ("maximum", Ops.MAX, maximum),
            ("by-lane", _SCALAR_ONLY, by_lane),
        )
    ],
)


class ClangRenderer(CStyleRenderer):
    """Host C. `flags` are understood by gcc and by clang."""

    dialect = _DIALECT
    rules = _RULES + C_RULES
    flags: ClassVar[tuple[str, ...]] = (
        "-ffp-contract=off",
        "-fno-strict-aliasing",
        "-fno-math-errno",
    )

    def __init__(self, target: Target | None = None):
        super().__init__(target or clang_target())
