"""Rules for every dtype: constant folding and identity operations.

Float rules here are exact to the bit: `x + 0` stays, as it turns -0.0 into 0.0, and so does `x *
0`, as x may be NaN.
"""

from __future__ import annotations

from tilegrad.base.dtype import as_const, can_lossless_cast, dtypes
from tilegrad.ir.matcher import PatternMatcher
from tilegrad.ir.op import Ops
from tilegrad.ir.pattern import Rule, UPat
from tilegrad.ir.rules.sums import conjuncts
from tilegrad.ir.uop import UOp

__all__ = ["BOOLEANS", "FOLDING", "IDENTITIES"]

INTEGERS = (*dtypes.signed, *dtypes.unsigned, dtypes.index)
x, y, z = UPat.wilds("x y z")
i = UPat.var("i", dtype=INTEGERS)
b, d = UPat.wilds("b d", dtype=dtypes.bool)
c0, c1 = UPat.constants("c0 c1")
true, false = (
    UPat(Ops.CONST, dtype=dtypes.bool, arg=True),
    UPat(Ops.CONST, dtype=dtypes.bool, arg=False),
)

_ALU = tuple(op for op in Ops if op.is_alu)

IDENTITIES = PatternMatcher("identities", [
    Rule("add-zero",         i + 0,                  i),
    Rule("mul-zero",         i * 0,                  0),
    Rule("mul-one",          x * 1,                  x),
    Rule("fdiv-one",         x / 1,                  x),
    Rule("max-itself",       x.maximum(x),           x),
    Rule("and-itself",       x & x,                  x),
    Rule("or-itself",        x | x,                  x),
    Rule("shift-none",       x << 0,                 x),
    Rule("shift-none-right", x >> 0,                 x),
    Rule("where-same",       b.where(x, x),          x),
    Rule("div-itself",       i // i,                 1,             when=lambda i: i.vmin > 0),
    Rule("mod-itself",       i % i,                  0,             when=lambda i: i.vmin > 0),
    Rule("mod-one",          i % 1,                  0),
])  # fmt: skip

BOOLEANS = PatternMatcher("booleans", [
    Rule("and-true",         b & true,               b),
    Rule("and-false",        b & false,              False),
    Rule("or-false",         b | false,              b),
    Rule("or-true",          b | true,               True),
    Rule("xor-false",        b ^ false,              b),
    Rule("not-not",          (b ^ true) ^ true,      b),
    Rule("ne-false",         b.ne(false),            b),
    Rule("eq-true",          b.eq(true),             b),
    Rule("and-not",          b & (b ^ true),         False),
    Rule("where-true",       true.where(x, y),       x),
    Rule("where-false",      false.where(x, y),      y),
    Rule("where-not",        (b ^ true).where(x, y), b.where(y, x)),
    Rule("where-is",         b.where(true, false),   b),
    Rule("where-is-not",     b.where(false, true),   b ^ true),
    Rule("where-twice",      b.where(b.where(x, y), z), b.where(x, z)),
    Rule("where-nested",     b.where(d.where(x, y), y), (b & d).where(x, y)),
])  # fmt: skip

FOLDING = PatternMatcher("folding")


@FOLDING.rule("fold-constants", UPat(_ALU, name="node"))
def fold_constants(node: UOp) -> UOp | None:
    """An op on constants is the constant of its value."""
    for source in node.src:
        if source.op is not Ops.CONST:
            return None
    assert node.op.evaluate is not None
    value = node.op.evaluate(*[source.arg for source in node.src])
    return UOp(Ops.CONST, node.dtype, (), as_const(value, node.dtype))


@FOLDING.rule("one-value", UPat((*_ALU, Ops.RANGE), dtype=(*INTEGERS, dtypes.bool), name="node"))
def one_value(node: UOp) -> UOp | None:
    """An integer or bool with equal bounds is a constant. A loop that may have no iterations stays
    a loop, and so does a value that depends on it: otherwise a store would leave the loop and
    always happen.
    """
    low, high = node.bounds
    if low != high or any(loop.extent.vmin < 1 for loop in node.ranges):
        return None
    return UOp(Ops.CONST, node.dtype, (), low)


@FOLDING.rule("below-its-extent", UPat((Ops.FLOORDIV, Ops.FLOORMOD), name="node"))
def below_its_extent(node: UOp) -> UOp | None:
    """A range is less than its extent, also where that is symbolic."""
    loop, extent = node.src
    if loop.op is not Ops.RANGE or loop.extent is not extent:
        return None
    return UOp(Ops.CONST, node.dtype, (), 0) if node.op is Ops.FLOORDIV else loop


@FOLDING.rule("const-right", UPat(tuple(op for op in _ALU if op.commutes), name="node"))
def const_right(node: UOp) -> UOp | None:
    """A constant operand of a commutative op stands on the right."""
    left, right = node.src
    if left.op is Ops.CONST and right.op is not Ops.CONST:
        if node.op is Ops.MAX and node.dtype.is_float and left.arg == 0:
            return None  # max(0.0, -0.0) is the first operand
        return UOp(node.op, node.dtype, (right, left), node.arg)
    return None


@FOLDING.rule("fold-cast", UPat(Ops.CAST, name="node"))
def fold_cast(node: UOp) -> UOp | None:
    """A cast of a constant is a constant; a cast to the same dtype, or there and back without loss, is nothing."""
    (value,) = node.src
    if value.op is Ops.CONST:
        return UOp(Ops.CONST, node.dtype, (), as_const(value.arg, node.dtype.scalar))
    if value.dtype is node.dtype:
        return value
    if (
        value.op is Ops.CAST
        and value.src[0].dtype is node.dtype
        and can_lossless_cast(node.dtype.scalar, value.dtype.scalar)
    ):
        return value.src[0]
    return None


@FOLDING.rule("fold-gep", UPat(Ops.GEP, name="node"))
def fold_gep(node: UOp) -> UOp | None:
    """Picking lanes of a vector made of lanes is picking the lanes."""
    (value,) = node.src
    made = (
        value.gep(*node.arg)
        if value.op in (Ops.VECTORIZE, Ops.CONST) or value.dtype.lanes == 1
        else None
    )
    if made is None and value.op is Ops.GEP:
        made = value.src[0].gep(*[value.arg[lane] for lane in node.arg])
    return made


@FOLDING.rule(
    "only-ranges", UPat((Ops.DEFINE_LOCAL, Ops.DEFINE_ACC, Ops.END, Ops.REDUCE), name="node")
)
def only_ranges(node: UOp) -> UOp | None:
    """A range that became a constant, or a launch position, no longer owns a value and is no longer
    reduced.
    """
    first = 0 if node.op is Ops.DEFINE_LOCAL else 1
    keeps = node.op is Ops.END or (node.op is Ops.REDUCE and node.dtype.scalar is not dtypes.index)
    if node.op is Ops.REDUCE and not keeps:
        return None
    rest = [
        source
        for source in node.src[first:]
        if source.op is Ops.RANGE
        or (keeps and not (source.op is Ops.CONST and source.dtype is dtypes.index))
    ]
    if first + len(rest) == len(node.src):
        return None
    src = (*node.src[:first], *rest)
    return src[0] if node.op is Ops.REDUCE and len(src) == 1 else node.replace(src=src)


@FOLDING.rule("prefix-of-ranges", UPat(Ops.PREFIX, name="node"))
def prefix_of_ranges(node: UOp) -> UOp | None:
    """As only-ranges: a prefix over no ranges is its value."""
    if node.dtype.scalar is dtypes.index:
        return None
    src = tuple(
        source
        for source in node.src
        if not (source.op is Ops.CONST and source.dtype is dtypes.index)
    )
    if any(source.op is Ops.RANGE for source in src):
        return node.replace(src=src) if len(src) < len(node.src) else None
    function, count = node.arg
    if not count:
        return UOp.const(node.dtype, function.definition.identity(node.dtype.scalar))
    total, *rest = src[:count]
    for value in rest:
        total = total.alu(function, value)
    return total


@FOLDING.rule("exact-float-sum", UPat(Ops.ADD, dtype=dtypes.floats, name="total"))
def exact_float_sum(total: UOp) -> UOp | None:
    """(a + 4) + 3 -> a + 7, for small whole constants only; see docs/decisions/float-constants.md."""
    left, right = total.src
    if right.op is not Ops.CONST or left.op is not Ops.ADD or left.src[1].op is not Ops.CONST:
        return None
    first, second = left.src[1].arg, right.arg
    is_small = all(float(value).is_integer() and abs(value) <= 1024 for value in (first, second))
    if not is_small or (first < 0) != (second < 0) or first == 0 or second == 0:
        return None
    return left.src[0] + float(first + second)


@BOOLEANS.rule("and-implied", UPat(Ops.AND, dtype=dtypes.bool, name="condition"))
def and_implied(condition: UOp) -> UOp | None:
    """A conjunct that another one implies, or that occurs twice, is dropped.

    before   (i < 3) & (j < 2) & (i < 5)
    after    (i < 3) & (j < 2)
    """
    tests = conjuncts(condition)
    least: dict[UOp, int] = {}
    for conjunct in tests:
        if _is_limit(conjunct):
            least[conjunct.src[0]] = min(
                conjunct.src[1].arg, least.get(conjunct.src[0], conjunct.src[1].arg)
            )
    needed: list[UOp] = []
    for conjunct in tests:
        if conjunct not in needed and not (
            _is_limit(conjunct) and conjunct.src[1].arg > least[conjunct.src[0]]
        ):
            needed.append(conjunct)
    if len(needed) == len(tests):
        return None
    result = needed[0]
    for conjunct in needed[1:]:
        result = result & conjunct
    return result


def _is_limit(test: UOp) -> bool:
    return test.op is Ops.CMPLT and test.src[1].op is Ops.CONST and test.src[0].dtype.scalar.is_int


@BOOLEANS.rule("open-gate", UPat((Ops.LOAD, Ops.STORE), name="access"))
def open_gate(access: UOp) -> UOp | None:
    """An access whose gate is always true needs no gate; a load whose gate is never true is its
    alternative.
    """
    if not access.is_gated or access.gate.op is not Ops.CONST:
        return None
    if access.gate.arg:
        return access.replace(src=access.src[: 2 if access.op is Ops.LOAD else 3])
    return access.other.broadcast(access.dtype.lanes) if access.op is Ops.LOAD else None


@BOOLEANS.rule("shut-stores", UPat((Ops.SINK, Ops.END, Ops.BARRIER), name="node"))
def shut_stores(node: UOp) -> UOp | None:
    """A store whose gate is never true is dropped, except the last effect of a node, which needs
    one.
    """
    effects = [effect for effect in node.src if effect.op is not Ops.RANGE]
    shut = [effect for effect in effects if _is_shut(effect)]
    if not shut or len(shut) == len(effects) == 1:
        return None
    shut = shut[: len(effects) - 1]
    return node.replace(src=tuple(effect for effect in node.src if effect not in shut))


def _is_shut(node: UOp) -> bool:
    return (
        node.op is Ops.STORE and node.is_gated and node.gate.op is Ops.CONST and not node.gate.arg
    )
