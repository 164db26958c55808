"""Reductions that need no loop: a sum over a range that only a comparison looks at is a count, or a
single element.

`arange` is a sum of padded ones, and a one-hot product is a sum of comparisons with the range. By
the bounds of these comparisons the first becomes its index and the second a gather, for every
start, step and sign.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

from tilegrad.base.dtype import dtypes
from tilegrad.ir.matcher import PatternMatcher
from tilegrad.ir.op import Ops
from tilegrad.ir.pattern import Rule, UPat
from tilegrad.ir.queries import below_casts, is_const, loads_of
from tilegrad.ir.rewrite import graph_rewrite
from tilegrad.ir.rules import SIMPLIFY, conjuncts, difference_of, from_terms, simplify, terms_of
from tilegrad.ir.uop import UOp
from tilegrad.schedule.symbolic_ranges import SYMBOLIC_RANGES

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
    if load.is_gated and is_const(load.other, 0) and _covers(load.gate, g):
        return load.replace(src=(*load.src[:3], g if load.gate is g else g & load.gate))
    return None


@COLLAPSE.rule(
    "where-is-alternative",
    UPat(Ops.WHERE, src=(g, UPat(Ops.LOAD, name="load"), UPat(Ops.CONST, name="other"))),
)
def where_is_alternative(g: UOp, load: UOp, other: UOp) -> UOp | None:
    """A choice by a gate goes into the load: the value chosen where the gate is closed is the
    load's alternative.

    before   WHERE(g, LOAD(a, i, 0, g), -inf)
    after    LOAD(a, i, -inf, g)
    """
    if load.is_gated and _covers(load.gate, g) and _covers(g, load.gate):
        return load.replace(src=(*load.src[:2], other, load.gate))
    return None


@COLLAPSE.rule("where-gives-zero", UPat(Ops.WHERE, src=(g, UPat(Ops.MUL, name="value"), zero)))
def where_gives_zero(g: UOp, value: UOp) -> UOp | None:
    """A product whose loads give zero outside the gate needs no choice of zero, which would also
    fix the sign of that zero.
    """
    closed = _closed(g, value)
    return value if closed and _is_zero(value.substitute(closed)) else None


@COLLAPSE.rule("gate-of-factor", UPat(Ops.REDUCE, name="reduce"))
def gate_of_factor(reduce: UOp) -> UOp | None:
    """The gate of a sum of products goes to the one factor whose index it tests.

    before   REDUCE(WHERE(i + k < 9, LOAD(a, i + k) * LOAD(b, k), 0), k)
    after    REDUCE(WHERE(i + k < 9, LOAD(a, i + k), 0) * LOAD(b, k), k)

    A product outside the gate may then be a zero of either sign, which a sum does not show. Zero
    times infinity is not zero: so the gate stays where the other factor is the same in all terms,
    or where it is one of a term that nothing else shows.
    """
    choice, *loops = reduce.src
    if reduce.arg is not Ops.ADD or choice.op is not Ops.WHERE or not is_const(choice.src[2], 0):
        return None
    condition, value, _ = choice.src
    if value.op is not Ops.MUL or not _is_of_indices(condition):
        return None
    for factor, other in (value.src, value.src[::-1]):
        if other.ranges.isdisjoint(loops):
            continue
        # Where each condition moves without `other`, that factor counts inside the gate too.
        if all(conjunct.ranges - other.ranges for conjunct in conjuncts(condition)):
            if not _is_zero(factor.substitute(_closed(condition, factor))):
                if not factor.dtype.is_float:
                    # For integers, the rule `where-times` is the reverse of this.
                    return None
                factor = condition.where(factor, 0.0)
            return reduce.replace(src=(factor * other, *loops))
    return None


def _closed(condition: UOp, value: UOp) -> dict[UOp, UOp]:
    """Values of the loads below `value` outside of `condition`, for the loads that the condition
    closes.
    """
    return {
        load: load.other
        for load in loads_of(value)
        if load.is_gated and _covers(load.gate, condition)
    }


def _is_zero(value: UOp) -> bool:
    return is_const(simplify(value), 0)


def _is_of_indices(condition: UOp) -> bool:
    return all(node.op is not Ops.LOAD for node in condition.toposort())


def _covers(gate: UOp, condition: UOp) -> bool:
    """Whether `gate` implies `condition`."""
    wanted = set(conjuncts(condition)).difference(conjuncts(gate))
    return not wanted or {_said(conjunct) for conjunct in wanted} <= {*map(_said, conjuncts(gate))}


def _said(conjunct: UOp) -> Any:
    """The canonical form of a comparison of indices: that a sum is at most 0."""
    compared = _comparison(conjunct)
    if compared is None:
        return conjunct
    test, negated = compared
    left, right = test.src[::-1] if negated else test.src
    found = _difference(left, right)
    if found is None:
        return conjunct
    return frozenset(item for item in found[0].items() if item[1]), found[1] + (not negated)


def _comparison(conjunct: UOp) -> tuple[UOp, bool] | None:
    """The comparison of indices in a conjunct, and whether the conjunct negates it."""
    negated = conjunct.op is Ops.XOR and is_const(conjunct.src[1], 1)
    test = conjunct.src[0] if negated else conjunct
    is_of_indices = test.op is Ops.CMPLT and test.src[0].dtype is dtypes.index
    return (test, negated) if is_of_indices else None


def _difference(left: UOp, right: UOp) -> tuple[dict[UOp, int], int] | None:
    """The terms of `left - right`, and the constant."""
    ours, theirs = terms_of(left), terms_of(right)
    if ours is None or theirs is None:
        return None
    terms, constant = difference_of(ours, theirs)
    return dict(terms), constant


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
    """An index that became an integer in two steps, each without loss, is cast once."""
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
    indices = {
        side: side.src[0]
        for side in (x, y)
        if side.op is Ops.CAST and side.src[0].dtype is dtypes.index
    }
    if not any(_fits(index, side.dtype) for side, index in indices.items()):
        return None
    operands = tuple(indices.get(side) or side.cast(dtypes.index) for side in (x, y))
    return UOp(node.op, dtypes.bool, operands)


@COLLAPSE.rule(
    "where-times",
    UPat(Ops.MUL, dtype=_INTEGERS, src=(UPat(Ops.WHERE, name="choice"), UPat(name="factor"))),
)
def where_times(choice: UOp, factor: UOp) -> UOp | None:
    """An integer times a choice of 0 is a choice of 0."""
    condition, yes, no = choice.src
    return condition.where(yes * factor, no) if is_const(no, 0) else None


@COLLAPSE.rule("empty-reduce", UPat(Ops.REDUCE, name="reduce"))
def empty_reduce(reduce: UOp) -> UOp | None:
    """A reduction over nothing is the value; a range that became a constant has one value."""
    loops = tuple(each for each in reduce.src[1:] if each.op is Ops.RANGE)
    if not loops:
        return reduce.src[0]
    return reduce.replace(src=(reduce.src[0], *loops)) if len(loops) + 1 < len(reduce.src) else None


@COLLAPSE.rule(
    "limit-after-reduction",
    UPat(
        Ops.REDUCE,
        arg=Ops.MAX,
        src=(UPat(Ops.MAX, src=(UPat(name="x"), UPat(Ops.CONST, name="c"))),),
        allow_any_len=True,
        name="reduce",
    ),
)
def limit_after_reduction(reduce: UOp, x: UOp, c: UOp) -> UOp | None:
    """The largest of limited values is the limited largest value.

    before   REDUCE(MAX(x, 0), r)
    after    MAX(REDUCE(x, r), 0)
    """
    loops = reduce.src[1:]
    if any(loop.op is not Ops.RANGE or loop.extent.vmin < 1 for loop in loops):
        return None
    return reduce.replace(src=(x, *loops)).maximum(c)


@COLLAPSE.rule("sum-to-count", UPat(Ops.REDUCE, arg=Ops.ADD, name="reduce"))
def sum_to_count(reduce: UOp) -> UOp | None:
    """A sum over a range on which the value does not depend, or depends by a choice only, has a
    closed form.

    before   REDUCE(WHERE(i + r < 14, 0, x), r)
    after    x * count, with count the values of r for which x is chosen
    """
    value, *loops = reduce.src
    for loop in loops:
        if loop.op is not Ops.RANGE:
            continue
        found = _without(value, loop)
        if found is None:
            continue
        rest = tuple(other for other in loops if other is not loop)
        return UOp(Ops.REDUCE, reduce.dtype, (found, *rest), Ops.ADD) if rest else found
    return None


def _without(value: UOp, loop: UOp) -> UOp | None:
    """The sum of `value` over `loop`, without the loop."""
    extent = loop.extent
    if loop not in value.ranges:
        return value * extent.cast(value.dtype)
    value = _as_choice(value, loop, {})
    if value.op is not Ops.WHERE:
        return None
    condition, yes, no = value.src
    if is_const(yes, 0) and not is_const(no, 0):
        condition, yes, no = condition.logical_not(), no, yes
    if not is_const(no, 0):
        return None
    bound = [conjunct for conjunct in conjuncts(condition) if loop in conjunct.ranges]
    free = [conjunct for conjunct in conjuncts(condition) if loop not in conjunct.ranges]
    picked = _picked(bound, loop)
    if picked is not None:
        inside = (picked < 0).logical_not() & (picked < extent)
        # Their loads are valid inside only.
        others = [
            _gated(inside, conjunct.substitute({loop: picked}), _reductions_without(conjunct, loop))
            for conjunct in bound
            if not _is_pick(conjunct, loop)
        ]
        chosen = yes.substitute({loop: picked})
        return _gated(_all([inside, *free, *others]), chosen, _reductions_without(yes, loop))
    if loop in yes.ranges:
        return None
    least, most = UOp.const(dtypes.index, 0), extent
    for conjunct in bound:
        limit = _limit(conjunct, loop)
        if limit is None:
            return None
        low, high = limit
        least = least if low is None else least.maximum(low)
        most = most if high is None else most.minimum(high)
    total = yes * (most - least).maximum(0).cast(yes.dtype)
    return _all(free).where(total, no) if free else total


def _as_choice(value: UOp, loop: UOp, known: dict[UOp, UOp]) -> UOp:
    """`value` as a choice between a value and 0 that depends on `loop`, if it is one; `known`
    caches the answers.

    before   CAST(CAST(i == r, int), float) * x
    after    WHERE(i == r, x, 0)
    """
    if value not in known:
        known[value] = _choice_of(value, loop, known)
    return known[value]


def _choice_of(value: UOp, loop: UOp, known: dict[UOp, UOp]) -> UOp:
    if value.op is Ops.CAST:
        test = below_casts(value)
        if test.dtype is dtypes.bool and loop in test.ranges:
            return test.where(UOp.const(value.dtype, 1), UOp.const(value.dtype, 0))
        inner = _as_choice(value.src[0], loop, known)
        if inner.op is Ops.WHERE and is_const(inner.src[2], 0) and loop in inner.src[0].ranges:
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
        # A product with one-hot rows picks: rows of the matrix that are not chosen are not read, so
        # an infinity in them gives no NaN.
        if is_const(no, 0) and is_const(yes, 1) and _picked(conjuncts(test), loop) is not None:
            return test.where(other, UOp.const(value.dtype, 0))
    return value


def _reductions_without(value: UOp, loop: UOp) -> list[UOp]:
    """The reductions in `value` that are the same in each iteration of `loop`."""
    nodes = value.toposort()
    return [node for node in nodes if node.op is Ops.REDUCE and loop not in node.ranges]


def _gated(condition: UOp, value: UOp, whole: Sequence[UOp] = ()) -> UOp:
    """`value` where `condition` holds, else zero. Its loads get the gate, except loads of the
    condition itself and of the reductions `whole`, so that each reduction is one in both: gated,
    it would be another one of the same loops, computed anew for each value of the condition.
    """
    mapping: dict[UOp, UOp] = {}
    ungated = {load for each in (condition, *whole) for load in loads_of(each)}
    for node in loads_of(value):
        if node not in ungated and condition not in node.toposort():
            gate = condition & node.gate if node.is_gated else condition
            mapping[node] = node.replace(src=(*node.src[:2], UOp.const(node.dtype, 0), gate))
    return condition.where(value.substitute(mapping), UOp.const(value.dtype, 0))


def _all(conditions: Sequence[UOp]) -> UOp:
    return functools.reduce(operator.and_, conditions)


def _linear(left: UOp, right: UOp, loop: UOp) -> tuple[int, UOp] | None:
    """`left - right` as scale * loop + rest."""
    found = _difference(left, right)
    if found is None:
        return None
    terms, constant = found
    scale = terms.pop(loop, 0)
    if scale == 0 or any(loop in factor.ranges for factor in terms):
        return None
    return scale, from_terms(terms.items(), constant, left)


def _is_pick(conjunct: UOp, loop: UOp) -> bool:
    return conjunct.op is Ops.CMPEQ and _solution(conjunct, loop) is not None


def _solution(conjunct: UOp, loop: UOp) -> UOp | None:
    if conjunct.src[0].dtype is not dtypes.index:
        return None
    found = _linear(conjunct.src[0], conjunct.src[1], loop)
    if found is None or abs(found[0]) != 1:
        return None
    return found[1] * -found[0]


def _picked(bound: list[UOp], loop: UOp) -> UOp | None:
    """The one value of the range for which the conditions can hold."""
    for conjunct in bound:
        if conjunct.op is Ops.CMPEQ and (found := _solution(conjunct, loop)) is not None:
            return found
    return None


def _limit(conjunct: UOp, loop: UOp) -> tuple[UOp | None, UOp | None] | None:
    """(at least, below) for the range, from one comparison."""
    compared = _comparison(conjunct)
    if compared is None:
        return None
    test, negated = compared
    found = _linear(test.src[0], test.src[1], loop)
    if found is None:
        return None
    scale, rest = found
    # scale * r + rest < 0, or its negation
    edge = (-rest + (scale - 1)) // scale if scale > 0 else rest // -scale + 1
    return (None, edge) if (scale > 0) != negated else (edge, None)


_RULES = COLLAPSE + SIMPLIFY + SYMBOLIC_RANGES + PatternMatcher("choices", [
    Rule("same-where",  g.where(UPat.var("x"), UPat.var("x")), UPat.var("x")),
])  # fmt: skip


def collapse(ast: UOp) -> UOp:
    """`ast` with every reduction that has a closed form replaced by it, and simplified."""
    return graph_rewrite(ast, _RULES, name="schedule.collapse")
