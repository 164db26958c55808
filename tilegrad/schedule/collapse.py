"""Reductions that need no loop: a sum over a range that only a comparison looks at is a count, or a
single element.

`arange` is a sum of padded ones, a one-hot product is a sum of comparisons with the range; proving
their bounds turns the first into its index and the second into a gather, whatever the start, step
and sign.
"""

from __future__ import annotations

from typing import Any

from tilegrad.base.dtype import dtypes
from tilegrad.ir.matcher import PatternMatcher
from tilegrad.ir.op import Ops
from tilegrad.ir.pattern import Rule, UPat
from tilegrad.ir.rewrite import graph_rewrite
from tilegrad.ir.rules import SIMPLIFY, conjuncts, from_terms, simplify, terms_of
from tilegrad.ir.uop import UOp

__all__ = ["collapse"]

_INTEGERS = (*dtypes.signed, *dtypes.unsigned)
g = UPat.var("g", dtype=dtypes.bool)
zero = UPat(Ops.CONST, arg=0)
x, (c0,) = UPat.var("x"), UPat.constants("c0")

COLLAPSE = PatternMatcher(
    "collapse",
    [
        # relu, written so for its derivative
        Rule("limit-is-max", x.maximum(c0).ne(c0).where(x, x.maximum(c0)), x.maximum(c0)),
    ],
)


@COLLAPSE.rule("where-of-load", UPat(Ops.WHERE, src=(g, UPat(Ops.LOAD, name="load"), zero)))
def where_of_load(g: UOp, load: UOp) -> UOp | None:
    """A load that already gives zero outside its gate needs no second choice."""
    if (
        len(load.src) == 4
        and load.src[2].op is Ops.CONST
        and load.src[2].arg == 0
        and _covers(load.src[3], g)
    ):
        return UOp(
            Ops.LOAD,
            load.dtype,
            (*load.src[:3], load.src[3] if load.src[3] is g else g & load.src[3]),
            load.arg,
        )
    return None


@COLLAPSE.rule(
    "where-is-alternative",
    UPat(Ops.WHERE, src=(g, UPat(Ops.LOAD, name="load"), UPat(Ops.CONST, name="other"))),
)
def where_is_alternative(g: UOp, load: UOp, other: UOp) -> UOp | None:
    """What is chosen where a gate is closed is what the load gives there.

    before   WHERE(g, LOAD(a, i, 0, g), -inf)
    after    LOAD(a, i, -inf, g)
    """
    if len(load.src) == 4 and _covers(load.src[3], g) and _covers(g, load.src[3]):
        return load.replace(src=(*load.src[:2], other, load.src[3]))
    return None


@COLLAPSE.rule("where-gives-zero", UPat(Ops.WHERE, src=(g, UPat(Ops.MUL, name="value"), zero)))
def where_gives_zero(g: UOp, value: UOp) -> UOp | None:
    """A product whose loads already give zero outside the gate is zero there by itself; else the
    gate belongs to the factor that it is about.

    before   WHERE(i + k < 9, LOAD(a, i + k) * LOAD(b, k), 0)
    after    WHERE(i + k < 9, LOAD(a, i + k), 0) * LOAD(b, k)
    """
    closed = {
        load: load.src[2]
        for load in value.toposort()
        if load.op is Ops.LOAD and len(load.src) == 4 and _covers(load.src[3], g)
    }
    if closed and _is_zero(value.substitute(closed)):
        return value
    if not _is_of_indices(g):
        return None
    for factor, other in (value.src, value.src[::-1]):
        # Zero times infinity is not zero. But where each condition moves without `other`, that
        # factor counts inside the gate too, so that nothing it is shows outside alone.
        if all(part.ranges - other.ranges for part in conjuncts(g)):
            if not _is_zero(factor.substitute(closed)):
                factor = g.where(factor, 0.0 if factor.dtype.is_float else 0)
            return factor * other
    return None


def _is_zero(value: UOp) -> bool:
    value = simplify(value)
    return value.op is Ops.CONST and bool(value.arg == 0)


def _is_of_indices(condition: UOp) -> bool:
    return all(node.op is not Ops.LOAD for node in condition.toposort())


def _covers(gate: UOp, condition: UOp) -> bool:
    """Whether `gate` says all that `condition` does."""
    wanted = set(conjuncts(condition)).difference(conjuncts(gate))
    return not wanted or {_said(part) for part in wanted} <= {*map(_said, conjuncts(gate))}


def _said(part: UOp) -> Any:
    """What a comparison of indices says, however it is written: that a sum is at most 0."""
    negated = part.op is Ops.XOR and part.src[1].op is Ops.CONST and part.src[1].arg is True
    test = part.src[0] if negated else part
    if test.op is not Ops.CMPLT or test.src[0].dtype is not dtypes.index:
        return part
    left, right = test.src[::-1] if negated else test.src
    ours, theirs = terms_of(left), terms_of(right)
    if ours is None or theirs is None:
        return part
    terms = dict(ours[0])
    for factor, scale in theirs[0].items():
        terms[factor] = terms.get(factor, 0) - scale
    constant = ours[1] - theirs[1] + (not negated)
    return frozenset(item for item in terms.items() if item[1]), constant


def _fits(node: UOp, dtype: object) -> bool:
    return bool(node.vmin >= dtype.min and node.vmax <= dtype.max)  # type: ignore[attr-defined]


@COLLAPSE.rule(
    "lift-cast",
    UPat(
        (Ops.ADD, Ops.MUL),
        dtype=_INTEGERS,
        src=(UPat(Ops.CAST, name="cast"), UPat(Ops.CONST, name="c")),
        name="node",
    ),
)
def lift_cast(node: UOp, cast: UOp, c: UOp) -> UOp | None:
    """Arithmetic on an index that became an integer is done on the index, where bounds show that it
    cannot wrap.
    """
    inner = cast.src[0]
    if inner.dtype is not dtypes.index or node.dtype.lanes != 1:
        return None
    wide = UOp(node.op, dtypes.index, (inner, UOp.const(dtypes.index, c.arg)))
    return wide.cast(node.dtype) if _fits(wide, node.dtype) and _fits(inner, node.dtype) else None


@COLLAPSE.rule(
    "cast-once", UPat(Ops.CAST, dtype=_INTEGERS, src=(UPat(Ops.CAST, name="cast"),), name="node")
)
def cast_once(node: UOp, cast: UOp) -> UOp | None:
    """An index that became an integer in two steps, of which none loses anything, is cast once."""
    inner = cast.src[0]
    if inner.dtype is not dtypes.index or cast.dtype not in _INTEGERS:
        return None
    return inner.cast(node.dtype) if _fits(inner, cast.dtype) else None


@COLLAPSE.rule(
    "compare-as-index",
    UPat((Ops.CMPEQ, Ops.CMPNE, Ops.CMPLT), src=(UPat(name="x"), UPat(name="y")), name="node"),
)
def compare_as_index(node: UOp, x: UOp, y: UOp) -> UOp | None:
    """A comparison of an index that became an integer is made on the index."""
    if x.dtype not in _INTEGERS:
        return None
    if not any(
        part.op is Ops.CAST and part.src[0].dtype is dtypes.index and _fits(part.src[0], part.dtype)
        for part in (x, y)
    ):
        return None
    parts = [
        part.src[0]
        if part.op is Ops.CAST and part.src[0].dtype is dtypes.index
        else part.cast(dtypes.index)
        for part in (x, y)
    ]
    return UOp(node.op, dtypes.bool, tuple(parts))


@COLLAPSE.rule(
    "where-times",
    UPat(Ops.MUL, dtype=_INTEGERS, src=(UPat(Ops.WHERE, name="choice"), UPat(name="factor"))),
)
def where_times(choice: UOp, factor: UOp) -> UOp | None:
    """An integer times a choice of 0 is a choice of 0."""
    condition, yes, no = choice.src
    if no.op is Ops.CONST and no.arg == 0:
        return condition.where(yes * factor, no)
    return None


@COLLAPSE.rule("empty-reduce", UPat(Ops.REDUCE, name="fold"))
def empty_reduce(fold: UOp) -> UOp | None:
    """A fold over nothing is the value; a range that became a constant has one value."""
    loops = tuple(part for part in fold.src[1:] if part.op is Ops.RANGE)
    if not loops:
        return fold.src[0]
    return fold.replace(src=(fold.src[0], *loops)) if len(loops) + 1 < len(fold.src) else None


@COLLAPSE.rule(
    "limit-after-fold",
    UPat(
        Ops.REDUCE,
        arg=Ops.MAX,
        src=(UPat(Ops.MAX, src=(UPat(name="x"), UPat(Ops.CONST, name="c"))),),
        allow_any_len=True,
        name="fold",
    ),
)
def limit_after_fold(fold: UOp, x: UOp, c: UOp) -> UOp | None:
    """The largest of limited values is the limited largest value.

    before   REDUCE(MAX(x, 0), r)
    after    MAX(REDUCE(x, r), 0)
    """
    loops = fold.src[1:]
    if any(loop.op is not Ops.RANGE or loop.src[0].vmin < 1 for loop in loops):
        return None
    return fold.replace(src=(x, *loops)).maximum(c)


@COLLAPSE.rule("sum-to-count", UPat(Ops.REDUCE, arg=Ops.ADD, name="fold"))
def sum_to_count(fold: UOp) -> UOp | None:
    """A sum over a range that the value does not need, or needs only to be chosen, has a closed
    form.

    before   REDUCE(WHERE(i + r < 14, 0, x), r)
    after    x * count, with count the values of r for which x is chosen
    """
    value, *loops = fold.src
    for loop in loops:
        if loop.op is not Ops.RANGE:
            continue
        found = _without(value, loop)
        if found is None:
            continue
        rest = tuple(other for other in loops if other is not loop)
        return UOp(Ops.REDUCE, fold.dtype, (found, *rest), Ops.ADD) if rest else found
    return None


def _without(value: UOp, loop: UOp) -> UOp | None:
    """The sum of `value` over `loop`, without the loop."""
    extent = loop.src[0]
    if loop not in value.ranges:
        return value * extent.cast(value.dtype)
    value = _as_choice(value, loop, {})
    if value.op is not Ops.WHERE:
        return None
    condition, yes, no = value.src
    if yes.op is Ops.CONST and yes.arg == 0 and not (no.op is Ops.CONST and no.arg == 0):
        condition, yes, no = condition.logical_not(), no, yes
    if not (no.op is Ops.CONST and no.arg == 0):
        return None
    bound = [part for part in conjuncts(condition) if loop in part.ranges]
    free = [part for part in conjuncts(condition) if loop not in part.ranges]
    picked = _picked(bound, loop)
    if picked is not None:
        inside = (picked < 0).logical_not() & (picked < extent)
        others = [part.substitute({loop: picked}) for part in bound if not _is_pick(part, loop)]
        chosen = yes.substitute({loop: picked})
        return _gated(_all([inside, *free, *others]), chosen)
    if loop in yes.ranges:
        return None
    least, most = UOp.const(dtypes.index, 0), extent
    for part in bound:
        limit = _limit(part, loop)
        if limit is None:
            return None
        low, high = limit
        least = least if low is None else least.maximum(low)
        most = most if high is None else most.minimum(high)
    count = (most - least).maximum(0)
    return (
        _all(free).where(yes * count.cast(yes.dtype), no) if free else yes * count.cast(yes.dtype)
    )


def _as_choice(value: UOp, loop: UOp, known: dict[UOp, UOp]) -> UOp:
    """`value` as a choice between something and 0, if it is one that depends on `loop`; `known` has
    the answers so far.

    before   CAST(CAST(i == r, int), float) * x
    after    WHERE(i == r, x, 0)
    """
    if value not in known:
        known[value] = _choice_of(value, loop, known)
    return known[value]


def _choice_of(value: UOp, loop: UOp, known: dict[UOp, UOp]) -> UOp:
    if value.op is Ops.CAST:
        test = value
        while test.op is Ops.CAST:
            test = test.src[0]
        if test.dtype is dtypes.bool and loop in test.ranges:
            return test.where(UOp.const(value.dtype, 1), UOp.const(value.dtype, 0))
        inner = _as_choice(value.src[0], loop, known)
        if inner.op is Ops.WHERE and _is_number(inner.src[2], 0) and loop in inner.src[0].ranges:
            test, yes, _ = inner.src
            return test.where(yes.cast(value.dtype), UOp.const(value.dtype, 0))
        return value
    if value.op is not Ops.MUL:
        return value
    for factor, other in (value.src, value.src[::-1]):
        choice = _as_choice(factor, loop, known)
        if choice.op is not Ops.WHERE:
            continue
        test, yes, no = choice.src
        # Of a row of a matrix that is not chosen nothing is read, infinities neither: a product
        # with one-hot rows picks.
        if _is_number(no, 0) and _is_number(yes, 1) and _picked(conjuncts(test), loop) is not None:
            return test.where(other, UOp.const(value.dtype, 0))
    return value


def _is_number(node: UOp, number: int) -> bool:
    return node.op is Ops.CONST and bool(node.arg == number)


def _gated(condition: UOp, value: UOp) -> UOp:
    """`value` where `condition` holds, else zero; its loads are made only there."""
    mapping: dict[UOp, UOp] = {}
    for node in value.toposort():
        if node.op is Ops.LOAD and node.src[1].ranges | node.src[1].toposort().keys():
            gate = condition & node.src[3] if len(node.src) == 4 else condition
            if condition in node.toposort():
                continue
            mapping[node] = node.src[0].load(
                node.src[1], UOp.const(node.dtype, 0), gate, dtype=node.dtype
            )
    return condition.where(value.substitute(mapping), UOp.const(value.dtype, 0))


def _all(parts: list[UOp]) -> UOp:
    result = parts[0]
    for part in parts[1:]:
        result = result & part
    return result


def _linear(left: UOp, right: UOp, loop: UOp) -> tuple[int, UOp] | None:
    """`left - right` as scale * loop + rest."""
    ours, theirs = terms_of(left), terms_of(right)
    if ours is None or theirs is None:
        return None
    terms = dict(ours[0])
    for factor, scale in theirs[0].items():
        terms[factor] = terms.get(factor, 0) - scale
    scale = terms.pop(loop, 0)
    if scale == 0 or any(loop in factor.ranges for factor in terms):
        return None
    return scale, from_terms(terms.items(), ours[1] - theirs[1], left)


def _is_pick(part: UOp, loop: UOp) -> bool:
    return part.op is Ops.CMPEQ and _solution(part, loop) is not None


def _solution(part: UOp, loop: UOp) -> UOp | None:
    if part.src[0].dtype is not dtypes.index:
        return None
    found = _linear(part.src[0], part.src[1], loop)
    if found is None or abs(found[0]) != 1:
        return None
    return found[1] * -found[0]


def _picked(bound: list[UOp], loop: UOp) -> UOp | None:
    """The one value of the range for which the conditions can hold."""
    for part in bound:
        if part.op is Ops.CMPEQ and (found := _solution(part, loop)) is not None:
            return found
    return None


def _limit(part: UOp, loop: UOp) -> tuple[UOp | None, UOp | None] | None:
    """(at least, below) for the range, from one comparison."""
    negated = part.op is Ops.XOR and part.src[1].op is Ops.CONST
    test = part.src[0] if negated else part
    if test.op is not Ops.CMPLT or test.src[0].dtype is not dtypes.index:
        return None
    found = _linear(test.src[0], test.src[1], loop)
    if found is None:
        return None
    scale, rest = found
    size = abs(scale)
    # scale * r + rest < 0, or its negation
    if (scale > 0) != negated:
        edge = -rest if scale > 0 else rest
        return None, ((edge + (size - 1)) // size if scale > 0 else edge // size + 1)
    edge = -rest if scale > 0 else rest
    return ((edge + (size - 1)) // size if scale > 0 else edge // size + 1), None


_RULES = COLLAPSE + SIMPLIFY + PatternMatcher("choices", [
    Rule("same-where",  g.where(UPat.var("x"), UPat.var("x")), UPat.var("x")),
])  # fmt: skip


def collapse(ast: UOp) -> UOp:
    """`ast` with every reduction that has a closed form replaced by it, and simplified."""
    return graph_rewrite(ast, _RULES, name="schedule.collapse")
