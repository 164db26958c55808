"""Ops, dtypes and masks that the target lacks, replaced by those that it has; and the instructions
that machines have for common expressions.

A missing dtype (bfloat16 on most processors, floats of 8 bits on all) is a storage format: its
values are computed in float32 and rounded after every operation, so results equal those of a
machine that has the dtype.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator

from tilegrad.base.config import config
from tilegrad.base.dtype import DType, Pointer, dtypes, truncate
from tilegrad.base.errors import CompileError, ConfigError, MissingDTypeError
from tilegrad.base.float8 import FORMATS
from tilegrad.ir.args import KernelInfo
from tilegrad.ir.matcher import PatternMatcher
from tilegrad.ir.op import Ops
from tilegrad.ir.pattern import Rule, UPat
from tilegrad.ir.rewrite import graph_rewrite
from tilegrad.ir.rules import FOLDING, IDENTITIES
from tilegrad.ir.uop import UOp
from tilegrad.lower import float8_bits, transcendental
from tilegrad.lower.range_reduction import near, reduced_by_integers, reduced_together
from tilegrad.lower.remainder import remainder
from tilegrad.lower.transcendental import COMPOSED, FUNCTIONS, wide_enough
from tilegrad.target import Target

_INTEGERS = (*dtypes.signed, *dtypes.unsigned)
x, y = UPat.wilds("x y")
minus_one = UPat(Ops.CONST, arg=-1)

INSTRUCTIONS = PatternMatcher("forms", [
    # Sources are rewritten first, so a difference appears as a sum with a negation.
    Rule("to-negation",    UPat(Ops.MUL, src=(x, minus_one)),                -x),
    Rule("to-difference",  UPat(Ops.ADD, src=(x, UPat(Ops.NEG, src=(y,)))),  x - y),
])  # fmt: skip


@INSTRUCTIONS.rule(
    "to-magnitude",
    UPat(
        Ops.MUL,
        name="product",
        src=(
            x,
            UPat(
                Ops.WHERE,
                src=(
                    UPat(Ops.CMPLT, src=(x, UPat(Ops.CONST, arg=0.0))),
                    UPat(Ops.CONST, arg=-1.0),
                    UPat(
                        Ops.WHERE,
                        src=(
                            UPat(Ops.CMPLT, src=(UPat(Ops.CONST, arg=0.0), x)),
                            UPat(Ops.CONST, arg=1.0),
                            x,
                        ),
                    ),
                ),
            ),
        ),
    ),
)
def to_magnitude(product: UOp, x: UOp) -> UOp | None:
    """A float times its sign is its absolute value: all its bits but the sign."""
    if not x.dtype.is_float or x.dtype.scalar in dtypes.fp8s:
        return None
    kinds = {2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}
    bits = x.bitcast(kinds[x.dtype.itemsize].vec(x.dtype.lanes))
    return (bits & ((1 << (8 * x.dtype.itemsize - 1)) - 1)).bitcast(product.dtype)


@INSTRUCTIONS.rule("to-shift", UPat(Ops.MUL, dtype=_INTEGERS, src=(x, UPat(Ops.CONST, name="c"))))
def to_shift(x: UOp, c: UOp) -> UOp | None:
    """A multiple by a power of two is a shift."""
    if c.arg > 1 and c.arg & (c.arg - 1) == 0:
        return x << (int(c.arg).bit_length() - 1)
    return None


@INSTRUCTIONS.rule("to-unsigned-test", UPat(Ops.AND, name="both"))
def to_unsigned_test(both: UOp) -> UOp | None:
    """A vector that is from 0 to below a number is below it as unsigned integers: one mask in place
    of two.
    """
    for from_zero, below in (both.src, both.src[::-1]):
        sign = _negated(from_zero)
        if sign is None or sign.op is not Ops.CMPLT or below.op is not Ops.CMPLT:
            continue
        (value, zero), (same, limit) = sign.src, below.src
        is_range = value is same and zero.op is limit.op is Ops.CONST and zero.arg == 0
        if is_range and value.dtype.kind == "int" and value.dtype.lanes > 1 and limit.arg >= 0:
            kind = dtypes.unsigned[dtypes.signed.index(value.dtype.scalar)]
            test: UOp = value.cast(kind.vec(value.dtype.lanes)) < limit.arg
            return test
    return None


def _negated(test: UOp) -> UOp | None:
    """The condition that `test` negates, if it is written so."""
    is_opposite = test.op in (Ops.XOR, Ops.CMPNE) and test.src[1].op is Ops.CONST
    return test.src[0] if is_opposite and test.src[1].arg is True else None


def decompose(ast: UOp, target: Target) -> UOp:
    """`ast` with nothing that `target` lacks."""
    found = {_element(node.dtype) for node in ast.toposort()}
    missing = {*target.missing_dtypes, *dtypes.fp8s, *_emulated()}
    for dtype in (*dtypes.fp8s, dtypes.bfloat16, dtypes.float16):
        if dtype in found and dtype in missing:
            ast = _without(ast, dtype)
    if dtypes.float64 in target.missing_dtypes:
        _refuse(ast, dtypes.float64, target)
    if Ops.SIN in target.missing or Ops.COS in target.missing:
        ast = _without_sines(ast, target)
    ops = {node.op for node in ast.toposort()}
    if not ops.isdisjoint(COMPOSED):
        ast = graph_rewrite(ast, FUNCTIONS, name="lower.decompose.functions")
        ops = {node.op for node in ast.toposort()}
    if not ops.isdisjoint(target.missing) or not ops.isdisjoint(_RULED):
        ast = graph_rewrite(ast, _functions(target, ast), name="lower.decompose")
    if not target.has_mask:
        ast = graph_rewrite(ast, MASKS, name="lower.decompose.masks")
    ast = graph_rewrite(ast, INSTRUCTIONS + FOLDING + IDENTITIES, name="lower.decompose.forms")
    _refuse_missing(ast, target)
    return ast


def _refuse_missing(ast: UOp, target: Target) -> None:
    """Raise CompileError for an op that `target` lacks and that no rule has made of others."""
    for node in ast.toposort():
        if node.op in target.missing:
            raise CompileError(
                f"{target.name}: there is no {node.op.name}, and nothing replaces it",
                dtype=node.dtype.scalar,
                remedy="take it out of Target.missing and render it, or give "
                "lower/decompose.py a rule that makes it of other ops",
            )


def _emulated() -> list[DType]:
    """The dtypes that the switch EMULATED_DTYPES names.

    Raises ConfigError for one that float32 cannot stand for.
    """
    if not config.EMULATED_DTYPES:
        return []
    known = {
        name: dtype
        for dtype in (dtypes.float16, dtypes.bfloat16, *dtypes.fp8s)
        for name in (dtype.name, dtype.alias)
    }
    names = [name.strip() for name in config.EMULATED_DTYPES.split(",")]
    for name in names:
        if name not in known:
            raise ConfigError(f"EMULATED_DTYPES: unknown value {name!r}", allowed=", ".join(known))
    return [known[name] for name in names]


def _refuse(ast: UOp, dtype: DType, target: Target) -> None:
    if any(node.dtype.scalar is dtype for node in ast.toposort()):
        raise MissingDTypeError(
            f"{target.name}: no values of {dtype.name}", remedy="cast to float32"
        )


# functions


def _without_sines(ast: UOp, target: Target) -> UOp:
    """Sines and cosines as polynomials. Independent ones in the same loops share one range
    reduction. Without fused multiply-adds float32 would miss its error bound,
    and float64 is as fast where arithmetic is scalar; a target without float64 reduces by integers.
    """
    lacks = [op for op in (Ops.SIN, Ops.COS) if op in target.missing]
    nodes = ast.toposort()
    if not any(node.op in lacks for node in nodes):
        return ast
    has_double = target.supports(dtypes.float64)
    least = dtypes.float32 if target.has_fma or not has_double else dtypes.float64
    number = _free_number(ast)
    done: dict[UOp, UOp] = {}
    for level in _levels(nodes, lacks):
        groups: dict[tuple[Ops, DType, frozenset[UOp]], list[UOp]] = {}
        for node in level:
            if node.op in lacks:
                groups.setdefault((node.op, node.dtype, node.ranges), []).append(node)
                continue
            src = tuple([done[source] for source in node.src])
            done[node] = node.over(src)
        for (op, dtype, _), sines in groups.items():
            wide = dtype if dtype.itemsize >= least.itemsize else least
            values = [done[node.src[0]].cast(wide) for node in sines]
            # No float16 is large enough for the far range reduction.
            is_half = dtype.scalar is dtypes.float16
            is_cosine = op is Ops.COS
            if not has_double:
                angles = [reduced_by_integers(x, is_cosine) for x in values]
            elif is_half:
                angles = [near(x, is_cosine) for x in values]
            else:
                angles = reduced_together(values, number, is_cosine)
            number += 2
            build = transcendental.cos if is_cosine else transcendental.sin
            for node, x, angle in zip(sines, values, angles, strict=True):
                done[node] = build(x, angle).cast(dtype)
    return done[ast]


def _free_number(ast: UOp) -> int:
    """The first number that no loop, array or accumulator has, nor any after it."""
    nodes = ast.toposort()
    # The loop order may still hold the number of a loop that is gone.
    taken = [*(ast.arg.order if isinstance(ast.arg, KernelInfo) else ()), -1]
    taken += [node.number for node in nodes if node.op is Ops.RANGE]
    taken += [node.arg for node in nodes if node.op in (Ops.DEFINE_LOCAL, Ops.DEFINE_ACC)]
    return 1 + max(taken)


def _levels(nodes: Iterable[UOp], ops: Collection[Ops]) -> list[list[UOp]]:
    """`nodes` in levels, sources first: the level of a node is the number of `ops` on its longest
    path from a leaf.
    """
    level: dict[UOp, int] = {}
    found: list[list[UOp]] = []
    for node in nodes:
        own = max([level[source] + (source.op in ops) for source in node.src], default=0)
        level[node] = own
        if own == len(found):
            found.append([])
        found[own].append(node)
    return found


def _maximum(node: UOp) -> UOp:
    left, right = node.src
    larger = (left < right).where(right, left)
    return right.ne(right).where(right, larger) if node.dtype.is_float else larger


def _remainder(node: UOp, target: Target, numbers: Iterator[int]) -> UOp | None:
    """The remainder of float16 and bfloat16 in float32, which is exact."""
    x, y = node.src
    if node.dtype.itemsize < 4:
        return x.cast(dtypes.float32).alu(Ops.FMOD, y.cast(dtypes.float32)).cast(node.dtype)
    if Ops.FMOD not in target.missing:
        return None
    return remainder(x, y, next(numbers), target.has_fma)


def _multiply_add(node: UOp) -> UOp:
    left, right, total = node.src
    return left * right + total


# Ops that have a rule of `_functions` where the target does not lack them.
_RULED = frozenset((Ops.FMOD, Ops.MULACC))


def _functions(target: Target, ast: UOp) -> PatternMatcher:
    """The rules for the ops that the target lacks."""
    numbers = itertools.count(_free_number(ast))
    has_double = target.supports(dtypes.float64)
    made = {
        Ops.EXP: wide_enough(lambda x: transcendental.exp(x, target.has_scale)),
        Ops.EXP2: wide_enough(lambda x: transcendental.exp2(x, target.has_scale)),
        Ops.LOG2: wide_enough(lambda x: transcendental.log2(x, target.has_fma, has_double)),
        Ops.RECIP: lambda node: UOp.const(node.dtype, 1.0).alu(Ops.FDIV, node.src[0]),
        Ops.MAX: _maximum,
    }
    rules = [
        Rule(f"no-{op.name.lower()}", UPat(op, name="node"), function=build)
        for op, build in made.items()
        if op in target.missing
    ]
    rules.append(
        Rule(
            "no-fmod",
            UPat(Ops.FMOD, name="node"),
            function=lambda node: _remainder(node, target, numbers),
        )
    )
    if not target.has_fma:
        rules.append(Rule("no-mulacc", UPat(Ops.MULACC, name="node"), function=_multiply_add))
    return PatternMatcher(f"functions of {target.name}", rules)


# masks

MASKS = PatternMatcher("masks")


@MASKS.rule("no-masked-load", UPat(Ops.LOAD, name="load"))
def no_masked_load(load: UOp) -> UOp | None:
    """A load with a gate per lane becomes one scalar load per lane."""
    if not load.is_gated or load.gate.dtype.lanes == 1:
        return None
    pointer, index, other, gate = load.src
    scalar = load.dtype.scalar
    other = other.broadcast(load.dtype.lanes)
    return UOp.stack(
        UOp(Ops.LOAD, scalar, (pointer, index + lane, other.gep(lane), gate.gep(lane)))
        for lane in range(load.dtype.lanes)
    )


@MASKS.rule("no-masked-store", UPat(Ops.STORE, name="store"))
def no_masked_store(store: UOp) -> UOp | None:
    """A store with a gate per lane becomes one scalar store per lane."""
    if not store.is_gated or store.gate.dtype.lanes == 1:
        return None
    pointer, index, value, gate = store.src
    stores = [
        UOp(
            Ops.STORE,
            dtypes.void,
            (pointer, index + lane, value.gep(lane), gate.gep(lane)),
            store.arg,
        )
        for lane in range(value.dtype.lanes)
    ]
    return UOp(Ops.END, dtypes.void, tuple(stores))


# dtypes


def _without(ast: UOp, dtype: DType) -> UOp:
    """Values of `dtype` computed in float32; memory holds their bits, as uint16 or uint8. Values
    that are only copied from memory to memory keep their bits.
    """
    done: dict[UOp, UOp] = {}
    bits: dict[UOp, UOp] = {}
    for node in ast.toposort():
        src = tuple(done[source] for source in node.src)
        stored = None
        if node.op is Ops.WMMA:
            # A unit that has this dtype reads its bits.
            src = tuple(
                (bits.get(source) or _to_bits(done[source], dtype))
                if source.dtype.scalar is dtype
                else done[source]
                for source in node.src
            )
        if node.op in (Ops.STORE, Ops.BITCAST):
            value = node.src[2 if node.op is Ops.STORE else 0]
            stored = bits.get(value) if value.dtype.scalar is dtype and node.arg is None else None
        if stored is None:
            done[node] = _widened(node, src, dtype)
        elif node.op is Ops.BITCAST:
            done[node] = stored.bitcast(node.dtype)
        else:
            done[node] = node.replace(src=(*src[:2], stored, *src[3:]))
        if node.dtype.scalar is dtype and (moved := _moved_bits(node, src, bits, dtype)):
            bits[node] = moved
    return done[ast]


def _moved_bits(node: UOp, src: tuple[UOp, ...], bits: dict[UOp, UOp], dtype: DType) -> UOp | None:
    """The bits of a value of `dtype` that no arithmetic made, without a conversion to float32; None
    for others.
    """
    kind = (dtypes.uint16 if dtype.itemsize == 2 else dtypes.uint8).vec(node.dtype.lanes)
    if node.op is Ops.LOAD:
        rest = (bits.get(node.other) or _to_bits(src[2], dtype), src[3]) if len(src) == 4 else ()
        return UOp(Ops.LOAD, kind, (*src[:2], *rest))
    if node.op is Ops.CONST:
        return UOp.const(kind, 0) if node.arg == 0 and not str(node.arg).startswith("-") else None
    if node.op is Ops.DESCRIPTOR:
        values = [bits.get(node.src[0]), *src[1:]]
    elif node.op in (Ops.GEP, Ops.VECTORIZE, Ops.FRAGMENT):
        values = [bits.get(source) for source in node.src]
    elif node.op is Ops.WHERE:
        values = [src[0], *(bits.get(source) for source in node.src[1:])]
    else:
        return None
    found = [value for value in values if value is not None]
    return UOp(node.op, kind, tuple(found), node.arg) if len(found) == len(values) else None


def _element(dtype: DType) -> DType:
    """The scalar dtype of `dtype`, or, for a pointer, of its elements."""
    return (dtype.base if isinstance(dtype, Pointer) else dtype).scalar


def _widened(node: UOp, src: tuple[UOp, ...], dtype: DType) -> UOp:
    op, lanes = node.op, node.dtype.lanes
    bits = dtypes.uint16 if dtype.itemsize == 2 else dtypes.uint8
    if isinstance(node.dtype, Pointer) and node.dtype.base.scalar is dtype:
        return UOp(op, bits.ptr(node.dtype.size, node.dtype.space), src, node.arg)
    is_ours = node.dtype.scalar is dtype
    if op is Ops.LOAD and is_ours:
        rest = (_to_bits(src[2], dtype), src[3]) if len(src) == 4 else ()
        return _from_bits(UOp(op, bits.vec(lanes), (*src[:2], *rest)), dtype)
    if op is Ops.STORE and node.value.dtype.scalar is dtype:
        if node.arg is not None:
            kind = bits.vec(src[2].dtype.lanes)
            # A closed gate must guard the read of the old value too.
            closed = (UOp.const(kind, 0), src[3]) if len(src) == 4 else ()
            old = _from_bits(UOp(Ops.LOAD, kind, (*src[:2], *closed)), dtype)
            total = _round(old.alu(node.arg, src[2]), dtype)
            return UOp(op, node.dtype, (*src[:2], _to_bits(total, dtype), *src[3:]))
        return UOp(op, node.dtype, (*src[:2], _to_bits(src[2], dtype), *src[3:]), node.arg)
    if op is Ops.BITCAST and node.src[0].dtype.scalar is dtype:
        return _to_bits(src[0], dtype).bitcast(node.dtype)
    if not is_ours:
        return node.over(src)
    wide = dtypes.float32.vec(lanes)
    if op is Ops.BITCAST:
        return _from_bits(src[0].bitcast(bits.vec(lanes)), dtype)
    if op is Ops.CAST:
        return _round(_single(src[0], dtype), dtype)
    made = UOp(op, wide, src, node.arg)
    rounds = op.is_alu and op not in (Ops.WHERE, Ops.MAX, Ops.NEG, Ops.TRUNC, Ops.FMOD)
    return _round(made, dtype) if rounds else made


# (magnitude in bits, low bits dropped): from that magnitude on, 14 to 24 bits are left.
_DROPPED = ((24, 10), (34, 20), (44, 30), (54, 40))


def _single(value: UOp, dtype: DType) -> UOp:
    """`value` as a float32 that rounds to `dtype` correctly. Where the conversion loses digits, the
    last bit is set, so the second rounding gives the result of a single one (Boldo, Melquiond:
    Emulation of FMA and Correctly Rounded Sums, 2008).
    """
    kind, lanes = value.dtype.scalar, value.dtype.lanes
    if kind.is_int and kind.itemsize >= 4 and dtype is dtypes.bfloat16:
        return _odd_integer(value).cast(dtypes.float32)
    rounded = value.cast(dtypes.float32)
    if kind is not dtypes.float64:
        # Integers that float32 cannot hold overflow float16 to infinity.
        return rounded
    back = rounded.cast(value.dtype)
    bits = rounded.bitcast(dtypes.uint32.vec(lanes))
    is_beyond = (back < value).eq(value < 0.0)
    odd = (bits + is_beyond.cast(bits.dtype) * -1) | 1
    is_lost = back.ne(value) & value.eq(value)
    return is_lost.where(odd, bits).bitcast(rounded.dtype)


def _odd_integer(value: UOp) -> UOp:
    """An integer with at most 24 significant bits; the last is set if any dropped bit was (round to
    odd).
    """
    kind = value.dtype.scalar
    size = value ^ (value >> (kind.bits - 1)) if kind.kind == "int" else value
    drop = UOp.const(value.dtype, 0)
    for bits, count in _DROPPED:
        if bits < kind.bits:
            drop = (size < 1 << bits).where(drop, UOp.const(value.dtype, count))
    leading = value >> drop
    is_lost = (leading << drop).ne(value)
    return (leading | is_lost.cast(value.dtype)) << drop


def _from_bits(bits: UOp, dtype: DType) -> UOp:
    """The float32 value of 16 or 8 bits."""
    lanes = bits.dtype.lanes
    if dtype in dtypes.fp8s:
        return float8_bits.from_bits(bits, FORMATS[dtype.name])
    wide = bits.cast(dtypes.uint32)
    if dtype is dtypes.bfloat16:
        return (wide << 16).bitcast(dtypes.float32.vec(lanes))
    # float16: the mantissa is shifted up and the exponent rebased by a multiplication, which is
    # exact for subnormals too.
    magnitude = ((wide & 0x7FFF) << 13).bitcast(dtypes.float32.vec(lanes)) * 2.0**112
    is_special = (wide & 0x7C00).eq(0x7C00)
    special = (((wide & 0x3FF) << 13) | 0x7F800000).bitcast(dtypes.float32.vec(lanes))
    value = is_special.where(special, magnitude).bitcast(dtypes.uint32.vec(lanes))
    return (value | ((wide & 0x8000) << 16)).bitcast(dtypes.float32.vec(lanes))


def _to_bits(value: UOp, dtype: DType) -> UOp:
    """The bits of a float32 that already is a value of `dtype`."""
    lanes = value.dtype.lanes
    if dtype in dtypes.fp8s:
        return float8_bits.to_bits(value, FORMATS[dtype.name])
    wide = value.bitcast(dtypes.uint32.vec(lanes))
    if dtype is dtypes.bfloat16:
        return (wide >> 16).cast(dtypes.uint16)
    scaled = ((wide & 0x7FFFFFFF).bitcast(dtypes.float32.vec(lanes)) * 2.0**-112).bitcast(
        dtypes.uint32.vec(lanes)
    ) >> 13
    is_special = (wide & 0x7F800000).eq(0x7F800000)
    special = ((wide >> 13) & 0x3FF) | 0x7C00
    return (is_special.where(special, scaled) | ((wide >> 16) & 0x8000)).cast(dtypes.uint16)


def _round(value: UOp, dtype: DType) -> UOp:
    """A float32 rounded to the nearest value of `dtype`, ties to even; NaN stays NaN."""
    if value.op is Ops.CONST:
        return UOp(Ops.CONST, value.dtype, (), truncate(value.arg, dtype))
    if dtype in dtypes.fp8s:
        return float8_bits.rounded(value, FORMATS[dtype.name])
    lanes = value.dtype.lanes
    wide = value.bitcast(dtypes.uint32.vec(lanes))
    if dtype is dtypes.bfloat16:
        nearest = (wide + ((wide >> 16) & 1) + 0x7FFF) & 0xFFFF0000
        quiet = (wide & 0xFFFF0000) | 0x400000
        return value.ne(value).where(quiet, nearest).bitcast(value.dtype)
    magnitude = (wide & 0x7FFFFFFF).bitcast(value.dtype)
    rounded = float8_bits.to_digits(magnitude, 10, 15)
    limited = (rounded < 65520.0).where(rounded, UOp.const(value.dtype, float("inf")))
    chosen = magnitude.ne(magnitude).where(magnitude, limited).bitcast(dtypes.uint32.vec(lanes))
    return (chosen | (wide & 0x80000000)).bitcast(value.dtype)
