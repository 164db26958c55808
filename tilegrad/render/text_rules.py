"""Node -> text, common to all C-like languages.

Each rule takes a node whose sources have their text, and gives its own: an expression for a value,
one or more lines for an effect. A target replaces a rule by putting one for the same op before
these.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import CompileError
from tilegrad.ir.bounds import combined
from tilegrad.ir.matcher import PatternMatcher
from tilegrad.ir.op import Ops
from tilegrad.ir.pattern import Rule, UPat
from tilegrad.ir.uop import UOp
from tilegrad.render.clike import Rendering, gated_statement, lane, strip_parentheses
from tilegrad.render.dialect import OPERATORS
from tilegrad.render.inline import real, refuse_shared, value_of

__all__ = ["C_RULES", "is_split", "load_lanes", "of_vectors", "store_lanes", "wrapping_type"]

Function = Callable[[UOp, Rendering], str | None]
"""The function of a rule: the text of a node, or None where it does not apply."""

_CHAINS = frozenset({Ops.ADD, Ops.MUL, Ops.XOR})
# C computes values narrower than int in int, so these may leave their dtype.
_OVERFLOWING = frozenset({Ops.ADD, Ops.SUB, Ops.MUL, Ops.NEG, Ops.SHL, Ops.IDIV, Ops.MULACC})
_WRAPPING = (Ops.ADD, Ops.SUB, Ops.MUL, Ops.NEG, Ops.SHL, Ops.MULACC)
_ROUNDING = frozenset({Ops.ADD, Ops.SUB, Ops.MUL, Ops.FDIV, Ops.RECIP})
_UNSIGNED = {dtype.itemsize: dtype for dtype in dtypes.unsigned}
_SHORT_FLOATS = frozenset({dtypes.float16, dtypes.bfloat16})
# C would give two bools the integers 0, 1 and 2.
_OF_BOOLS = {Ops.ADD: Ops.OR, Ops.MUL: Ops.AND, Ops.MAX: Ops.OR}
_AXES = "xyz"


def of_vectors(function: Function) -> Function:
    """The rule for values of several lanes alone."""

    def rule(u: UOp, ctx: Rendering) -> str | None:
        return function(u, ctx) if u.dtype.lanes > 1 else None

    return rule


def _number(value: float, ctx: Rendering, dtype: DType) -> str:
    """A float in a form that C reads as a float32, or for double as that."""
    suffix = "" if dtype is dtypes.float64 else "f"
    if math.isfinite(value):
        text = f"{value!r}{suffix}"
        return f"({text})" if text.startswith("-") else text
    text = "NAN" if math.isnan(value) else "INFINITY" if value > 0 else "(-INFINITY)"
    return f"({ctx.type(dtype)})({strip_parentheses(text)})" if dtype is dtypes.float64 else text


def constant(u: UOp, ctx: Rendering) -> str:
    """float32 has the suffix f, double none, int is plain; any other type is a cast of one of
    these.
    """
    dtype, value = u.dtype.scalar, u.arg
    if u.dtype.lanes > 1:
        return ctx.text(UOp(Ops.VECTORIZE, u.dtype, (lane(u, 0),) * u.dtype.lanes))
    name = ctx.type(dtype)
    if dtype is dtypes.bool:
        return "true" if value else "false"
    if dtype.is_float:
        text = _number(value, ctx, dtype)
        return text if dtype.itemsize >= 4 else f"({name})({strip_parentheses(text)})"
    if value == dtype.min and value < 0:
        text = f"({value + 1}-1)"
    else:
        text = f"({value})" if value < 0 else f"{value}u" if dtype.kind == "uint" else f"{value}"
    return text if dtype is dtypes.int32 else f"({name})({strip_parentheses(text)})"


def operate(u: UOp, ctx: Rendering) -> str:
    """An operator or function; a sum of sums is written with one pair of parentheses.

        before   ((a+b)+c)
        after    (a+b+c)

    On the right that would regroup, which only integers allow.
    """
    op, dtype = u.op, u.dtype
    if dtype.kind == "bool":
        op = _OF_BOOLS.get(op, op)
    if op is Ops.TRUNC and not dtype.is_float:
        return ctx.text(u.src[0])
    if dtype.lanes > 1 and not ctx.dialect.has_vector_arithmetic:
        return ctx.lanewise(u)
    if op in _CHAINS:
        texts = [ctx.text(source) for source in u.src]
        for number, source in enumerate(u.src):
            if value_of(source).op is op and (number == 0 or not dtype.is_float):
                texts[number] = strip_parentheses(texts[number])
        text = OPERATORS[op].format(*texts)
    else:
        text = ctx.operation(op, u.src[-1].dtype.scalar, u.src)
    return _narrowed(text, op, dtype, ctx)


def wrap_around(u: UOp, ctx: Rendering) -> str | None:
    """Arithmetic of signed integers that may leave their type: C leaves its result open, so it is
    done in the unsigned type. Bounds show of indices that they stay inside.

        before   a*b+c
        after    (int)((unsigned int)a*(unsigned int)b+(unsigned int)c)
    """
    if ctx.dialect.wraps_integers or (dtype := wrapping_type(u)) is None:
        return None
    if u.dtype.lanes > 1 and not ctx.dialect.has_vector_arithmetic:
        return None
    texts = [_unsigned(source, dtype, ctx) for source in u.src]
    if u.op is Ops.SHL:
        texts[1] = ctx.text(u.src[1])
    elif u.op in _CHAINS:
        chained = (value_of(source).op is u.op for source in u.src)
        texts = [strip_parentheses(t) if same else t for t, same in zip(texts, chained)]
    return f"({ctx.type(u.dtype)}){OPERATORS[u.op].format(*texts)}"


def wrapping_type(u: UOp) -> DType | None:
    """The unsigned type in which to compute `u`; None where C's own type holds the result."""
    if not u.dtype.is_int:
        return None
    # Integers narrower than int become int before anything is done with them, but not in a vector.
    own = dtypes.int32 if u.dtype.itemsize < 4 and u.dtype.lanes == 1 else u.dtype.scalar
    low, high = _exact_bounds(u)
    is_shift_of_negative = u.op is Ops.SHL and u.src[0].vmin < 0
    is_inside = own.min <= low and high <= own.max and not is_shift_of_negative
    if own.kind == "uint" or is_inside:
        return None
    return _UNSIGNED[own.itemsize].vec(u.dtype.lanes)


def _exact_bounds(u: UOp) -> tuple[int, int]:
    """The smallest and the largest result, and product of a MULACC, if nothing wrapped."""
    first, *others = ((int(source.vmin), int(source.vmax)) for source in u.src)
    if u.op is Ops.NEG:
        return -first[1], -first[0]
    low, high = others[0]
    if u.op is Ops.SHL:
        low, high = 1 << max(low, 0), 1 << min(max(high, 0), u.dtype.bits)
    op = u.op if u.op in (Ops.ADD, Ops.SUB) else Ops.MUL
    low, high = combined(op, first, (low, high))
    if u.op is not Ops.MULACC:
        return low, high
    return min(low, low + others[1][0]), max(high, high + others[1][1])


def _unsigned(source: UOp, dtype: DType, ctx: Rendering) -> str:
    """`source` as the unsigned `dtype`. A value computed in it is not cast there and back."""
    value = value_of(source)
    if value.op is Ops.CONST and value.arg >= 0 and dtype is dtypes.uint32:
        return f"{value.arg}u"
    text, signed = ctx.text(source), f"({ctx.type(source.dtype)})"
    if value.op in _WRAPPING and source.dtype.itemsize == dtype.itemsize:
        if wrapping_type(value) is dtype and text.startswith(f"{signed}("):
            return text.removeprefix(signed)
    return f"({ctx.type(dtype)}){text}" if text.isidentifier() else _cast_to(dtype, text, ctx)


def _cast_to(dtype: DType, text: str, ctx: Rendering) -> str:
    return f"({ctx.type(dtype)})({strip_parentheses(text)})"


def _narrowed(text: str, op: Ops, dtype: DType, ctx: Rendering) -> str:
    """`text` brought back to its dtype where C computes in a wider one."""
    is_small = dtype.kind in ("int", "uint") and dtype.itemsize < 4 and op in _OVERFLOWING
    is_rounded = ctx.dialect.keeps_excess and dtype is dtypes.float16 and op in _ROUNDING
    return f"({ctx.type(dtype)})({text})" if dtype.lanes == 1 and (is_small or is_rounded) else text


def reciprocal(u: UOp, ctx: Rendering) -> str:
    if u.dtype.lanes > 1 and not ctx.dialect.has_vector_arithmetic:
        return ctx.lanewise(u)
    one = UOp(Ops.CONST, u.dtype.scalar, (), 1.0)
    return _narrowed(f"({ctx.text(one)}/{ctx.text(u.src[0])})", u.op, u.dtype, ctx)


def negate_bool(u: UOp, ctx: Rendering) -> str | None:
    value, mask = u.src
    is_not = u.dtype is dtypes.bool and mask.op is Ops.CONST and mask.arg
    return f"(!{ctx.text(value)})" if is_not else None


def divide(u: UOp, ctx: Rendering) -> str | None:
    """C's division and remainder, without its traps: a divisor of 0, and the smallest integer by
    -1.
    """
    if u.dtype.lanes > 1 and (
        not ctx.dialect.has_vector_arithmetic or u.src[1].op is not Ops.CONST
    ):
        return ctx.lanewise(u)
    left, right = u.src
    if u.op in (Ops.FLOORDIV, Ops.FLOORMOD) and (left.vmin < 0 or right.vmin < 0):
        return None
    is_quotient = u.op in (Ops.IDIV, Ops.FLOORDIV)
    template = "({0}/{1})" if is_quotient else "({0}%{1})"
    may_be_zero = right.vmin <= 0 <= right.vmax
    may_be_minus_one = u.dtype.kind == "int" and right.vmin <= -1 <= right.vmax
    if may_be_minus_one:
        negated = _negated(u.dtype, ctx) if is_quotient else "0"
        template = "({1}==-1?" + negated + ":" + template + ")"
    if may_be_zero:
        zero = "{0}" if u.op is Ops.MOD else "0"
        template = "({1}==0?" + zero + ":" + template + ")"
    repeats = may_be_zero or may_be_minus_one
    text = template.format(*((ctx.atom if repeats else ctx.text)(source) for source in u.src))
    return _narrowed(text, Ops.IDIV, u.dtype, ctx)


def _negated(dtype: DType, ctx: Rendering) -> str:
    """The text of -{0}: the least integer negated is itself, which C leaves open."""
    if ctx.dialect.wraps_integers:
        return "(-{0})"
    unsigned = _UNSIGNED[max(dtype.itemsize, 4)]
    return f"({ctx.type(dtype)})(-({ctx.type(unsigned)}){{0}})"


def cast(u: UOp, ctx: Rendering) -> str:
    """Between two short floats through float, which holds both; from a float as `whole_number`."""
    if u.dtype.lanes > 1:
        return ctx.lanewise(u)
    text, source = ctx.text(u.src[0]), u.src[0].dtype
    if source in _SHORT_FLOATS and (u.dtype in _SHORT_FLOATS or ctx.dialect.shields_short_floats):
        if u.dtype is dtypes.float32:
            return f"(float)({text})"
        text, source = f"(float)({text})", dtypes.float32
    if source.is_float and u.dtype.is_int:
        return whole_number(text, source, u.dtype, ctx)
    return f"({ctx.type(u.dtype)})({text})"


def whole_number(text: str, source: DType, dtype: DType, ctx: Rendering) -> str:
    """A float as an integer: the nearest that there is, 0 for NaN."""
    return ctx.whole(strip_parentheses(text), source, dtype)


def bitcast(u: UOp, ctx: Rendering) -> str:
    """The variable's memory read as the other type. A bool is the byte 0 or 1."""
    is_bool = dtypes.bool in (u.dtype.scalar, u.src[0].dtype.scalar)
    if ctx.dialect.reinterpret and not is_bool:
        value = in_own_type(u.src[0], ctx)
        return ctx.dialect.reinterpret.format(type=ctx.type(u.dtype), value=value)
    if u.dtype.lanes > 1 and u.dtype.lanes == u.src[0].dtype.lanes:
        return ctx.lanewise(u)
    if is_bool:
        return f"({ctx.type(u.dtype)})({ctx.text(u.src[0])})"
    return f"*(({ctx.type(u.dtype)}*)&{ctx.variable(u.src[0])})"


def in_own_type(value: UOp, ctx: Rendering) -> str:
    """The text of `value` where its size counts: values narrower than int are computed in int.

    before   as_type<half>((val0&(ushort)(32767u)))
    after    as_type<half>((ushort)(val0&(ushort)(32767u)))
    """
    text, dtype = ctx.text(value), value.dtype
    is_named = text.isidentifier() or dtype.lanes > 1 or value_of(value).op is Ops.CONST
    if is_named or not dtype.is_int or dtype.itemsize >= 4:
        return text
    return _cast_to(dtype, text, ctx)


def vectorize(u: UOp, ctx: Rendering) -> str:
    lanes = ",".join([ctx.text(source) for source in u.src])
    return ctx.dialect.vector.format(type=ctx.type(u.dtype), lanes=lanes)


def pick(u: UOp, ctx: Rendering) -> str:
    (vector,) = u.src
    name = ctx.atom(vector)
    if len(u.arg) == 1:
        return ctx.lane_of(name, vector.dtype, u.arg[0])
    return ctx.stacked([lane(vector, number) for number in u.arg])


def is_split(u: UOp, value: UOp, gate: tuple[UOp, ...], ctx: Rendering) -> bool:
    """Whether a load or store of a vector must be done lane by lane."""
    has_lane_gate = bool(gate) and gate[0].dtype.lanes > 1
    return value.dtype.lanes > 1 and (has_lane_gate or not ctx.is_accessible(u.src[0], value.dtype))


def _lane_index(index: UOp, number: int) -> UOp:
    return index + number if number else index


def load_lanes(u: UOp, ctx: Rendering) -> str:
    """The load of a vector, element by element."""
    buffer, index, *rest = u.src
    for source in rest:
        ctx.atom(source)
    lanes = [
        UOp(
            Ops.LOAD,
            u.dtype.scalar,
            (buffer, _lane_index(index, number), *(lane(source, number) for source in rest)),
        )
        for number in range(u.dtype.lanes)
    ]
    return ctx.stacked(lanes)


def store_lanes(u: UOp, ctx: Rendering) -> str:
    """The store of a vector, element by element."""
    buffer, index, *values = u.src
    for source in values:
        ctx.atom(source)
    return "\n".join(
        ctx.text(
            UOp(
                Ops.STORE,
                dtypes.void,
                (
                    buffer,
                    _lane_index(index, number),
                    *(lane(source, number) for source in values),
                ),
                u.arg,
            )
        )
        for number in range(values[0].dtype.lanes)
    )


def load(u: UOp, ctx: Rendering) -> str:
    """A gate is asked first, so that nothing outside is read: `(gate?*(data1+gidx0):0.0f)`."""
    buffer, index, *rest = u.src
    if is_split(u, u, tuple(rest[1:]), ctx):
        return load_lanes(u, ctx)
    text = ctx.access(buffer, index, u.dtype)
    if not rest:
        return text
    alternative, gate = rest
    return f"({ctx.text(gate)}?{text}:{ctx.text(alternative)})"


def store(u: UOp, ctx: Rendering) -> str:
    buffer, index, value, *gate = u.src
    has_combine = u.arg is not None
    dialect = ctx.dialect
    is_native = dialect.has_vector_arithmetic and u.arg is not Ops.MAX
    is_native = is_native and not dialect.combines_by_lane
    splits_combine = has_combine and value.dtype.lanes > 1 and not is_native
    if splits_combine or is_split(u, value, tuple(gate), ctx):
        return store_lanes(u, ctx)
    target = ctx.access(buffer, index, value.dtype)
    text = combine(u, target, ctx) if has_combine else f"{target} = {ctx.text(value)};"
    if not gate:
        return text
    return gated_statement(ctx.text(gate[0]), text)


def combine(u: UOp, target: str, ctx: Rendering) -> str:
    """Combine a value with the element `target`: atomically where the language can, as lanes may
    meet there. Else by a load and a store, which verification has shown to be enough: of a program
    by hand, whose index is one for several lanes, that cannot be.
    """
    op, value, dtype = u.arg, u.value, u.value.dtype.scalar
    templates = ctx.dialect.combine
    template = templates.get((op, dtype)) or templates.get(op)
    if template is not None:
        return template.format(pointer=target.removeprefix("*"), value=ctx.atom(value))
    refuse_shared(u, ctx.program, f"render: {ctx.target.name}")
    ctx.atom(value)
    old = UOp(Ops.LOAD, value.dtype, u.src[:2])
    name = ctx.name_for(old)
    changed = ctx.text(UOp(op, value.dtype, (old, value)))
    return f"{ctx.type(value.dtype)} {name} = {target};\n{target} = {changed};"


def assign(u: UOp, ctx: Rendering) -> str:
    return f"{ctx.text(real(u))} = {ctx.text(u.src[1])};"


def accumulator(u: UOp, ctx: Rendering) -> str:
    return f"{ctx.type(u.dtype)} {ctx.text(u)} = {ctx.text(u.src[0])};"


def loop(u: UOp, ctx: Rendering) -> str:
    name = ctx.text(u)
    return f"for ({ctx.type(u.dtype)} {name} = 0; {name} < {ctx.text(u.src[0])}; {name}++) {{"


def special(u: UOp, ctx: Rendering) -> str:
    """A position in the launch, or nothing where it is a parameter."""
    name, extent = u.arg
    if ctx.dialect.ids is None:
        return ""
    # There is one axis of chunks.
    kind, number = (name, "0") if name == "chunk" else (name[:-1], name[-1])
    if kind not in ctx.dialect.ids or number not in "012":
        raise CompileError(
            f"render: {ctx.target.name} has no position {name!r}", known="gidx0-2, lidx0-2"
        )
    position = ctx.dialect.ids[kind].format(axis=_AXES[int(number)], number=number)
    size = extent if isinstance(extent, int) else f"<= {u.vmax + 1}"
    return f"{ctx.type(u.dtype)} {name} = {position}; /* {size} */"


def barrier(u: UOp, ctx: Rendering) -> str | None:
    return ctx.dialect.barrier or None


_DIVISIONS = (Ops.IDIV, Ops.MOD, Ops.FLOORDIV, Ops.FLOORMOD)
_OPERATIONS = tuple(op for op in Ops if op.is_alu and op not in (*_DIVISIONS, Ops.RECIP))

C_RULES = PatternMatcher(
    "c",
    [
        Rule("c-constant", UPat(Ops.CONST, name="u"), function=constant),
        Rule("c-not", UPat(Ops.XOR, name="u"), function=negate_bool),
        Rule("c-wrap-around", UPat(_WRAPPING, name="u"), function=wrap_around),
        Rule("c-operate", UPat(_OPERATIONS, name="u"), function=operate),
        Rule("c-reciprocal", UPat(Ops.RECIP, name="u"), function=reciprocal),
        Rule("c-divide", UPat(_DIVISIONS, name="u"), function=divide),
        Rule("c-cast", UPat(Ops.CAST, name="u"), function=cast),
        Rule("c-bitcast", UPat(Ops.BITCAST, name="u"), function=bitcast),
        Rule("c-vectorize", UPat(Ops.VECTORIZE, name="u"), function=vectorize),
        Rule("c-pick", UPat(Ops.GEP, name="u"), function=pick),
        Rule("c-load", UPat(Ops.LOAD, name="u"), function=load),
        Rule("c-store", UPat(Ops.STORE, name="u"), function=store),
        Rule("c-assign", UPat(Ops.ASSIGN, name="u"), function=assign),
        Rule("c-accumulator", UPat(Ops.DEFINE_ACC, name="u"), function=accumulator),
        Rule("c-loop", UPat(Ops.RANGE, name="u"), function=loop),
        Rule("c-special", UPat(Ops.SPECIAL, name="u"), function=special),
        Rule("c-barrier", UPat(Ops.BARRIER, name="u"), function=barrier),
    ],
)
