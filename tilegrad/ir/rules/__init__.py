"""Equations that several stages use: `simplify` applies them all, `simplify_under` knows that a condition holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilegrad.base.dtype import dtypes
from tilegrad.ir.matcher import PatternMatcher
from tilegrad.ir.op import Ops
from tilegrad.ir.rewrite import graph_rewrite, replace_and_rewrite
from tilegrad.ir.rules.division import COMPARISONS, DIVISION
from tilegrad.ir.rules.folding import BOOLEANS, FOLDING, IDENTITIES
from tilegrad.ir.rules.sums import (
    SUMS,
    conjuncts,
    difference_of,
    from_terms,
    shared_terms,
    terms_of,
    without_negation,
)
from tilegrad.ir.uop import UOp

__all__ = [
    "BOOLEANS", "COMPARISONS", "DIVISION", "FOLDING", "IDENTITIES", "SIMPLIFY", "SUMS", "conjuncts",
    "difference_of", "distance_between", "from_terms", "moved_by", "shared_terms", "simplify",
    "simplify_under", "terms_of",
]  # fmt: skip

SIMPLIFY = PatternMatcher(
    "simplify",
    (FOLDING + IDENTITIES + BOOLEANS + SUMS + DIVISION + COMPARISONS).rules,
    is_cached=True,
)


def simplify(node: UOp, mapping: Mapping[UOp, UOp] | None = None) -> UOp:
    """`node` with the same value in a simpler form; first each key of `mapping` is replaced by its
    value.
    """
    if mapping:
        return replace_and_rewrite(node, mapping, SIMPLIFY, name="simplify")
    return graph_rewrite(node, SIMPLIFY, name="simplify")


def moved_by(index: UOp, distance: int) -> UOp:
    """`simplify(index + distance)` of an index that is in its simplest form: a constant stands on
    the right of a sum, and no rule needs to be tried for that.
    """
    if not distance:
        return index
    if index.op is Ops.CONST:
        return UOp.const(dtypes.index, index.arg + distance)
    if index.op is Ops.ADD and index.src[1].op is Ops.CONST:
        index, distance = index.src[0], distance + index.src[1].arg
        if not distance:
            return index
    moved = UOp(Ops.ADD, dtypes.index, (index, UOp.const(dtypes.index, distance)))
    moved.simple = True
    return moved


def distance_between(first: UOp, other: UOp) -> int | None:
    """`other - first`, two index expressions, where it is constant."""
    ours, theirs = terms_of(first), terms_of(other)
    if ours is not None and theirs is not None and ours[0] == theirs[0]:
        return theirs[1] - ours[1]
    apart = simplify(other - first)
    return int(apart.arg) if apart.op is Ops.CONST else None


def limits_of(condition: UOp) -> dict[UOp, tuple[int | None, int | None]]:
    """The bounds of expressions that follow from `condition`: {expression: (at least, at most)}."""
    found: dict[UOp, tuple[int | None, int | None]] = {}
    for conjunct in conjuncts(condition):
        test, negated = without_negation(conjunct)
        if test.op is not Ops.CMPLT or test.src[0].dtype is not dtypes.index:
            continue
        left, right = test.src
        if right.op is Ops.CONST:
            expression, low, high = left, None, right.arg - 1
            if negated:
                low, high = right.arg, None
        elif left.op is Ops.CONST:
            expression, low, high = right, left.arg + 1, None
            if negated:
                low, high = None, left.arg
        else:
            continue
        if (
            expression.op is Ops.MUL
            and expression.src[1].op is Ops.CONST
            and expression.src[1].arg == -1
        ):
            expression = expression.src[0]
            low, high = (None if high is None else -high), (None if low is None else -low)
        old_low, old_high = found.get(expression, (None, None))
        low = old_low if low is None else low if old_low is None else max(low, old_low)
        high = old_high if high is None else high if old_high is None else min(high, old_high)
        found[expression] = (low, high)
    return found


def simplify_under(node: UOp, condition: UOp, *, final: bool = False) -> UOp:
    """`node` in a simpler form, with the same value wherever `condition` holds.

    An expression that the condition bounds is replaced by a variable with those bounds, and
    restored after simplifying. For a sum, a second way solves it for one of its terms, which then
    vanishes; the way that leaves fewer divisions is taken.
    """
    node = simplify(node)
    bounded: list[tuple[UOp, int, int]] = []
    for expression, (low, high) in limits_of(condition).items():
        low = expression.vmin if low is None else max(low, expression.vmin)
        high = expression.vmax if high is None else min(high, expression.vmax)
        if expression.op is not Ops.CONST and low <= high and (low, high) != expression.bounds:
            bounded.append((expression, low, high))
    if not bounded:
        return node
    # A load happens whether or not the condition holds: its own index and gate stay as they are.
    loads = [inner for inner in node.toposort() if inner.op is Ops.LOAD]
    if any(not load.dtype.is_int for load in loads):
        return node
    loaded = {
        UOp.variable(f"load{number}", int(load.dtype.min), int(load.dtype.max), load.dtype): load
        for number, load in enumerate(reversed(loads))
    }
    for stand_in, load in loaded.items():
        node = node.substitute({load: stand_in})
    best = _rewritten(node, bounded, _isolate)
    if final and _divisions(best):
        best = min(best, _rewritten(node, bounded, _eliminate), key=_divisions)
    for stand_in, load in loaded.items():
        best = best.substitute({stand_in: load})
    return best


def _divisions(node: UOp) -> int:
    return sum(inner.op in (Ops.FLOORDIV, Ops.FLOORMOD) for inner in node.toposort())


def _rewritten(
    node: UOp, bounded: list[tuple[UOp, int, int]], replace: Callable[[UOp, UOp, UOp], UOp]
) -> UOp:
    """`node` simplified with a variable for every bounded expression, all at once: the bound of one
    may matter only with that of another.
    """
    back: dict[UOp, UOp] = {}
    around: dict[UOp, UOp] = {}
    if any(low == high for _, low, high in bounded):
        # The loops around the node stay, whatever their extents are where the condition holds.
        loops = [loop for loop in node.ranges if loop.src[0].op is not Ops.CONST]
        for number, loop in enumerate(sorted(loops, key=lambda loop: loop.arg[0])):
            around[loop] = UOp.variable(f"loop{number}", int(loop.vmin), int(loop.vmax))
        node = node.substitute(around)
        back = {stand_in: loop for loop, stand_in in around.items()}
    for number, (expression, low, high) in enumerate(bounded):
        is_pinned = low == high
        stand_in = UOp.variable(f"under{number}", low, high)
        value = UOp.const(dtypes.index, low) if is_pinned else stand_in
        node = replace(node, expression.substitute(around), value)
        if not is_pinned:
            back[stand_in] = expression
    return simplify(simplify(node).substitute(back))


def _eliminate(node: UOp, expression: UOp, value: UOp) -> UOp:
    """`node` with the last term of the sum `expression` whose factor is 1 replaced by the other
    terms.
    """
    found = terms_of(expression)
    solvable = [factor for factor, scale in found[0].items() if abs(scale) == 1] if found else []
    if found is None or not solvable:
        return node
    factor = solvable[-1]
    scale = found[0][factor]
    rest = [(other, -inner * scale) for other, inner in found[0].items() if other is not factor]
    return node.substitute({factor: from_terms([*rest, (value, scale)], -found[1] * scale, value)})


def _isolate(node: UOp, expression: UOp, stand_in: UOp) -> UOp:
    """`node` with `expression` replaced, also within a longer sum."""
    ours = terms_of(expression)
    if ours is None or len(ours[0]) < 2:
        return node.substitute({expression: stand_in})
    mapping: dict[UOp, UOp] = {}
    for total in node.toposort():
        if total.op is not Ops.ADD or total.dtype is not dtypes.index:
            continue
        found = terms_of(total)
        if found is None:
            continue
        rest = dict(found[0])
        first = next(iter(ours[0]))
        scale, remainder = divmod(rest.get(first, 0), ours[0][first])
        if scale == 0 or remainder or any(rest.get(f, 0) != s * scale for f, s in ours[0].items()):
            continue
        for factor in ours[0]:
            del rest[factor]
        mapping[total] = from_terms(
            [*rest.items(), (stand_in, scale)], found[1] - ours[1] * scale, total
        )
    return node.substitute(mapping)
