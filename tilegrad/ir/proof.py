"""Proofs about integer expressions: their bounds under a condition, and that different lanes access
different elements.

A proof uses intervals over sums of terms. Where it fails, `ir.counterexample` searches for values
of the variables for which the expression is wrong.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilegrad.ir.bounds import bounds_of
from tilegrad.ir.op import Ops
from tilegrad.ir.rules.sums import conjuncts, difference_of, without_negation
from tilegrad.ir.uop import UOp, toposort

__all__ = [
    "are_apart", "bounds_under", "is_arithmetic", "keeps_value", "lane_of", "linear", "may_wrap",
]  # fmt: skip

Terms = dict[UOp, int]
Interval = tuple[Any, Any]

# For one extent.
_MOST_FACTS = 16


def linear(node: UOp) -> tuple[Terms, int]:
    """`node` as ({factor: coefficient}, constant), before or after `lower.decompose`."""
    terms: Terms = {}
    constant = 0
    stack = [(node, 1)]
    while stack:
        term, scale = stack.pop()
        op, src = term.op, term.src
        if op is Ops.CONST:
            constant += term.arg * scale
        elif may_wrap(term):
            terms[term] = terms.get(term, 0) + scale
        elif op is Ops.ADD:
            stack += [(src[1], scale), (src[0], scale)]
        elif op is Ops.SUB:
            stack += [(src[1], -scale), (src[0], scale)]
        elif op is Ops.NEG:
            stack.append((src[0], -scale))
        elif op is Ops.MUL and src[1].op is Ops.CONST:
            stack.append((src[0], scale * src[1].arg))
        elif op is Ops.SHL and src[1].op is Ops.CONST and 0 <= src[1].arg < term.dtype.bits:
            stack.append((src[0], scale << src[1].arg))
        elif op is Ops.MULACC and src[1].op is Ops.CONST:
            stack += [(src[2], scale), (src[0], scale * src[1].arg)]
        elif op is Ops.CAST and keeps_value(term):
            stack.append((src[0], scale))
        else:
            terms[term] = terms.get(term, 0) + scale
    return {factor: scale for factor, scale in terms.items() if scale}, constant


def may_wrap(node: UOp) -> bool:
    """Whether a fixed-width integer may wrap around, so that the laws of sums may not hold."""
    return node.dtype.kind != "index" and node.bounds == (node.dtype.min, node.dtype.max)


def keeps_value(cast: UOp) -> bool:
    """Whether an integer cast changes no value that its source can take."""
    inner = cast.src[0]
    if not (inner.dtype.is_int and cast.dtype.is_int):
        return False
    low, high = inner.bounds
    return bool(cast.dtype.kind == "index" or (low >= cast.dtype.min and high <= cast.dtype.max))


# bounds under a condition


@dataclass
class _Fact:
    """A sum of terms lies between `low` and `high`; None is unbounded."""

    terms: Terms
    low: int | None
    high: int | None


def _facts(condition: UOp) -> list[_Fact] | None:
    """The comparisons in a conjunction, one fact per sum; None if it never holds."""
    found: dict[frozenset[tuple[UOp, int]], _Fact] = {}
    for conjunct in conjuncts(condition):
        if conjunct.op is Ops.CONST and not conjunct.arg:
            return None
        test, negated = without_negation(conjunct)
        if test.op not in (Ops.CMPLT, Ops.CMPEQ) or not test.src[0].dtype.is_int:
            continue
        if test.op is Ops.CMPEQ and negated:
            continue
        left, right = linear(test.src[0]), linear(test.src[1])
        terms, constant = difference_of(left, right)
        terms = {factor: scale for factor, scale in terms.items() if scale}
        limit = -constant
        # The sum is below the limit, at least the limit, or equal to it.
        low, high = (limit, None) if negated else (None, limit - 1)
        if test.op is Ops.CMPEQ:
            low, high = limit, limit
        if not terms:
            if (low is not None and low > 0) or (high is not None and high < 0):
                return None
            continue
        if next(iter(terms.values())) < 0:
            terms = {factor: -scale for factor, scale in terms.items()}
            low, high = (None if high is None else -high), (None if low is None else -low)
        fact = found.setdefault(frozenset(terms.items()), _Fact(terms, None, None))
        fact.low = low if fact.low is None else fact.low if low is None else max(low, fact.low)
        fact.high = (
            high if fact.high is None else fact.high if high is None else min(high, fact.high)
        )
        if fact.low is not None and fact.high is not None and fact.low > fact.high:
            return None
    return list(found.values())


@functools.lru_cache(maxsize=256)
def _extent_facts(loop: UOp) -> tuple[_Fact, ...]:
    """That a range lies below its extent, as facts about sums: a value below a minimum is below
    each of its operands, which are written `-max(a, b)`.
    """
    terms, constant = linear(loop.extent)
    found: dict[frozenset[tuple[UOp, int]], _Fact] = {}
    stack = [({loop: 1, **{factor: -scale for factor, scale in terms.items()}}, constant - 1)]
    while stack and len(found) < _MOST_FACTS:
        terms, high = stack.pop()
        key = frozenset(terms.items())
        if key in found:
            continue
        found[key] = _Fact(terms, None, high)
        for factor, scale in terms.items():
            for bound in factor.src if factor.op is Ops.MAX and scale > 0 else ():
                inner, constant = linear(bound)
                rest = Counter(terms)
                rest.pop(factor)
                rest.update({other: scale * by for other, by in inner.items()})
                others = {other: by for other, by in rest.items() if by}
                stack.append((others, high - scale * constant))
    return tuple(found.values())


class _Narrowed:
    """A node as `bounds_of` sees it, with sources narrowed by the condition."""

    __slots__ = ("arg", "bounds", "dtype", "op", "src", "vmax", "vmin")

    def __init__(self, node: UOp, src: tuple[UOp | _Narrowed, ...]):
        self.op, self.dtype, self.arg, self.src = node.op, node.dtype, node.arg, src

    def set(self, interval: Interval) -> None:
        self.bounds = interval
        self.vmin, self.vmax = interval


def bounds_under(node: UOp, condition: UOp | None = None) -> Interval:
    """(smallest, largest) value of the integer `node` where `condition` holds; (1, 0) if it never
    does.

    The proof uses comparisons of sums in a conjunction: `0 <= i + k - 1` and `i + k < n` bound `i +
    k` anywhere, also within a longer sum. So do extents that are no constants: a loop that begins
    at `start` runs over `i < n - start`. Each branch of a WHERE is bounded under its own condition.
    """
    if node.op is not Ops.WHERE:
        return _bounds_under(node, condition)
    choice, *branches = node.src
    found = []
    for chosen, branch in zip((choice, choice.logical_not()), branches, strict=True):
        interval = _bounds_under(branch, chosen if condition is None else condition & chosen)
        if interval[0] <= interval[1]:
            found.append(interval)
    lows, highs = zip(*found, strict=True) if found else ((1,), (0,))
    return _meet(node.bounds, (min(lows), max(highs)))


def _bounds_under(node: UOp, condition: UOp | None) -> Interval:
    if condition is None and all(loop.extent.op is Ops.CONST for loop in node.ranges):
        return node.bounds
    # Accesses side by side differ by a constant: one proof is for all of them.
    base, more = node, 0
    while base.op is Ops.ADD and base.src[1].op is Ops.CONST and not may_wrap(base):
        base, more = base.src[0], more + base.src[1].arg
    low, high = _narrowed_bounds(base, condition)
    return (low, high) if low > high else _meet(node.bounds, (low + more, high + more))


@functools.lru_cache(maxsize=256)
def _narrowed_bounds(node: UOp, condition: UOp | None) -> Interval:
    nodes = toposort([node], stop=lambda inner: not is_arithmetic(inner))
    loops = [inner for inner in nodes if inner.op is Ops.RANGE]
    known_facts = _sorted_facts(
        condition, tuple([loop for loop in loops if loop.src[0].op is not Ops.CONST])
    )
    if known_facts is None:
        return (1, 0)
    facts, limits = known_facts
    if not facts:
        return node.bounds
    known: dict[UOp, Interval] = {}
    # A node whose bounds are narrower, or the node itself.
    narrowed: dict[UOp, UOp | _Narrowed] = {}
    for inner in nodes:
        own = interval = inner.bounds
        src: tuple[UOp | _Narrowed, ...] = ()
        if is_arithmetic(inner):
            src = tuple([narrowed[source] for source in inner.src])
            if src != inner.src:
                interval = _meet(interval, bounds_of(_Narrowed(inner, src)))
        if inner in limits:
            interval = _meet(interval, limits[inner])
        if inner.op in _SUMS and inner.dtype.is_int:
            interval = _meet(interval, _sum_bounds(inner, facts, known))
        if interval[0] > interval[1]:
            return (1, 0)
        known[inner] = interval
        if interval == own:
            narrowed[inner] = inner
        else:
            seen = narrowed[inner] = _Narrowed(inner, src)
            seen.set(interval)
    return known[node]


@functools.lru_cache(maxsize=256)
def _sorted_facts(
    condition: UOp | None, loops: tuple[UOp, ...]
) -> tuple[list[_Fact], dict[UOp, Interval]] | None:
    """Facts known where `condition` holds, inside of `loops` whose extents are no constants, and
    the bounds that follow for single factors; None if the condition never holds.
    """
    facts = [] if condition is None else _facts(condition)
    if facts is None:
        return None
    for loop in loops:
        facts += _extent_facts(loop)
    # The longest first: it gives the best bounds.
    facts.sort(key=lambda fact: -len(fact.terms))
    return facts, _limits(facts)


_SUMS = (Ops.ADD, Ops.SUB, Ops.MULACC)


def is_arithmetic(node: UOp) -> bool:
    return node.op.is_alu or node.op is Ops.CAST


def _meet(a: Interval, b: Interval) -> Interval:
    return max(a[0], b[0]), min(a[1], b[1])


def _limits(facts: Sequence[_Fact]) -> dict[UOp, Interval]:
    """The bounds of each single factor that follow from the facts, whatever the others are."""
    found: dict[UOp, Interval] = {}
    for fact in facts:
        for factor, scale in fact.terms.items():
            rest = {other: by for other, by in fact.terms.items() if other is not factor}
            least, most = _spread(rest, {other: other.bounds for other in rest})
            low = -math.inf if fact.low is None else fact.low - most
            high = math.inf if fact.high is None else fact.high - least
            if scale < 0:
                low, high = -high, -low
            step = abs(scale)
            bounds = (
                low if low == -math.inf else -(-low // step),
                high if high == math.inf else high // step,
            )
            found[factor] = _meet(found.get(factor, factor.bounds), bounds)
    return found


def _spread(terms: Terms, known: Mapping[UOp, Interval]) -> Interval:
    """The interval of a sum of terms."""
    low = high = 0
    for factor, scale in terms.items():
        a, b = known[factor]
        low += scale * (a if scale > 0 else b)
        high += scale * (b if scale > 0 else a)
    return low, high


def _sum_bounds(node: UOp, facts: Sequence[_Fact], known: Mapping[UOp, Interval]) -> Interval:
    """The interval of a sum, with the known facts in place of the terms they are about, longest
    first.
    """
    terms, constant = linear(node)
    if any(factor not in known for factor in terms):
        return node.bounds
    low = high = constant
    for fact in facts:
        first, by = next(iter(fact.terms.items()))
        scale, remainder = divmod(terms.get(first, 0), by)
        if scale == 0 or remainder:
            continue
        if any(terms.get(factor, 0) != scale * inner for factor, inner in fact.terms.items()):
            continue
        if any(factor not in known for factor in fact.terms):
            continue
        least, most = _spread(fact.terms, known)
        least = least if fact.low is None else max(least, fact.low)
        most = most if fact.high is None else min(most, fact.high)
        low += scale * (least if scale > 0 else most)
        high += scale * (most if scale > 0 else least)
        terms = {factor: inner for factor, inner in terms.items() if factor not in fact.terms}
    rest = _spread(terms, known)
    return low + rest[0], high + rest[1]


def lane_of(node: UOp, lane: int) -> UOp:
    """Lane number `lane` of a vector expression, pushed down to its leaves."""
    made: dict[UOp, UOp] = {}
    stack = [node]
    while stack:
        inner = stack[-1]
        is_inner = inner.dtype.lanes > 1 and (inner.op.is_alu or inner.op is Ops.CAST)
        missing = [source for source in inner.src if is_inner and source not in made]
        if missing:
            stack += missing
            continue
        stack.pop()
        if is_inner:
            src = tuple(made[source] for source in inner.src)
            made[inner] = UOp(inner.op, inner.dtype.scalar, src, inner.arg)
        else:
            made[inner] = inner if inner.dtype.lanes == 1 else inner.gep(lane)
    return made[node]


# positions of lanes


def are_apart(index: UOp, axes: Collection[UOp], width: int = 1, *, at_once: bool = False) -> bool:
    """Whether it is proved that points that differ on `axes`, and with `at_once` on nothing else,
    never share one of the `width` positions from `index` on.

    The terms must be like the digits of a number: each stride is larger than the sum of the smaller
    ones at their maximum.
    """
    terms, _ = linear(index)
    if any(axis not in terms for axis in axes):
        return False
    if at_once:
        moved = [factor for factor in terms if any(axis in factor.ranges for axis in axes)]
        terms = {factor: terms[factor] for factor in moved}
    reach = width - 1
    has_axis = False
    for factor, scale in sorted(terms.items(), key=lambda item: abs(item[1])):
        is_axis = factor in axes
        if (is_axis or has_axis) and abs(scale) <= reach:
            return False
        has_axis = has_axis or is_axis
        low, high = factor.bounds
        reach += abs(scale) * (high - low)
    return True
