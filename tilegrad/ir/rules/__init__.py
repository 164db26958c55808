"""Equations that several stages use: `simplify` applies them all, `simplify_under` knows that a condition holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilegrad.base.dtype import dtypes
from tilegrad.ir.matcher import PatternMatcher
from tilegrad.ir.op import Ops
from tilegrad.ir.rewrite import graph_rewrite, replace_and_rewrite
from tilegrad.ir.rules.division import COMPARISONS, DIVISION
from tilegrad.ir.rules.folding import BOOLEANS, FOLDING, IDENTITIES
from tilegrad.ir.rules.sums import SUMS
from tilegrad.ir.rules.terms import conjuncts, from_terms, terms_of
from tilegrad.ir.uop import UOp

__all__ = [
    "BOOLEANS", "COMPARISONS", "DIVISION", "FOLDING", "IDENTITIES", "SIMPLIFY", "SUMS", "conjuncts", "from_terms",
    "simplify", "simplify_under", "terms_of",
]  # fmt: skip

SIMPLIFY = PatternMatcher(
    "simplify",
    (FOLDING + IDENTITIES + BOOLEANS + SUMS + DIVISION + COMPARISONS).rules,
    is_kept=True,
)


def simplify(node: UOp, mapping: Mapping[UOp, UOp] | None = None) -> UOp:
    """`node` with the same value, written more simply; first each key of `mapping` becomes its
    value.
    """
    if mapping:
        return replace_and_rewrite(node, mapping, SIMPLIFY, name="simplify")
    return graph_rewrite(node, SIMPLIFY, name="simplify")


def limits_of(condition: UOp) -> dict[UOp, tuple[int | None, int | None]]:
    """What the parts of `condition` say of an expression: {expression: (at least, at most)}."""
    found: dict[UOp, tuple[int | None, int | None]] = {}
    for part in conjuncts(condition):
        negated = part.op is Ops.XOR and part.src[1].op is Ops.CONST and part.src[1].arg is True
        test = part.src[0] if negated else part
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
    """`node` written more simply, with the same value wherever `condition` holds.

    An expression that the condition bounds is replaced by a variable with those bounds, and put
    back once the whole is simplified. Where it is a sum, a second way solves it for one of its
    terms, which then vanishes from the whole; the way that leaves fewer divisions is taken.
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
    # What is loaded is loaded whether or not the condition holds: its own index and gate stay.
    loads = [part for part in node.toposort() if part.op is Ops.LOAD]
    if any(not load.dtype.is_int for load in loads):
        return node
    kept = {
        UOp.variable(f"load{number}", int(load.dtype.min), int(load.dtype.max), load.dtype): load
        for number, load in enumerate(reversed(loads))
    }
    for stand_in, load in kept.items():
        node = node.substitute({load: stand_in})
    best = _rewritten(node, bounded, _isolate)
    if final and _divisions(best):
        best = min(best, _rewritten(node, bounded, _eliminate), key=_divisions)
    for stand_in, load in kept.items():
        best = best.substitute({stand_in: load})
    return best


def _divisions(node: UOp) -> int:
    return sum(part.op in (Ops.FLOORDIV, Ops.FLOORMOD) for part in node.toposort())


def _rewritten(
    node: UOp, bounded: list[tuple[UOp, int, int]], replace: Callable[[UOp, UOp, UOp], UOp]
) -> UOp:
    """`node` simplified with every bounded expression as a variable, all at once: that one is small
    may matter only where another is.
    """
    back: dict[UOp, UOp] = {}
    for number, (expression, low, high) in enumerate(bounded):
        is_pinned = low == high
        stand_in = UOp.variable(f"under{number}", low, high)
        value = UOp.const(dtypes.index, low) if is_pinned else stand_in
        node = replace(node, expression, value)
        if not is_pinned:
            back[stand_in] = expression
    return simplify(simplify(node).substitute(back))


def _eliminate(node: UOp, expression: UOp, value: UOp) -> UOp:
    """`node` with the last term of the sum `expression` whose factor is 1 said by the others."""
    found = terms_of(expression)
    solvable = [factor for factor, scale in found[0].items() if abs(scale) == 1] if found else []
    if found is None or not solvable:
        return node
    factor = solvable[-1]
    scale = found[0][factor]
    rest = [(other, -inner * scale) for other, inner in found[0].items() if other is not factor]
    return node.substitute({factor: from_terms([*rest, (value, scale)], -found[1] * scale, value)})


def _isolate(node: UOp, expression: UOp, stand_in: UOp) -> UOp:
    """`node` with `expression` replaced, also where it is a part of a longer sum."""
    ours = terms_of(expression)
    if ours is None or len(ours[0]) < 2:
        return node.substitute({expression: stand_in})
    mapping: dict[UOp, UOp] = {}
    for part in node.toposort():
        if part.op is not Ops.ADD or part.dtype is not dtypes.index:
            continue
        found = terms_of(part)
        if found is None:
            continue
        rest = dict(found[0])
        first = next(iter(ours[0]))
        scale, remainder = divmod(rest.get(first, 0), ours[0][first])
        if scale == 0 or remainder or any(rest.get(f, 0) != s * scale for f, s in ours[0].items()):
            continue
        for factor in ours[0]:
            del rest[factor]
        mapping[part] = from_terms(
            [*rest.items(), (stand_in, scale)], found[1] - ours[1] * scale, part
        )
    return node.substitute(mapping)
