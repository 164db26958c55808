"""Proofs about integer expressions: their bounds under a condition, and that different lanes access
different elements.

A proof uses intervals over sums of terms. Where it fails, a search for a counterexample tells a
wrong expression from one that is only too hard to prove: `find_outside` and `find_collision` return
values of the variables for which it is wrong, or None.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilegrad.base.dtype import dtypes
from tilegrad.ir.bounds import bounds_of
from tilegrad.ir.op import Ops
from tilegrad.ir.rules.terms import conjuncts
from tilegrad.ir.text import render
from tilegrad.ir.uop import UOp, toposort

__all__ = ["are_apart", "bounds_under", "find_collision", "find_outside", "lane_of", "linear"]

Terms = dict[UOp, int]
Interval = tuple[Any, Any]

# A search tries every point of a grid up to this size, else this many of them.
_POINTS = 512
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
        elif _may_wrap(term):
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
        elif op is Ops.CAST and _keeps_value(term):
            stack.append((src[0], scale))
        else:
            terms[term] = terms.get(term, 0) + scale
    return {factor: scale for factor, scale in terms.items() if scale}, constant


def _may_wrap(node: UOp) -> bool:
    """Whether a fixed-width integer may wrap around, so that the laws of sums may not hold."""
    return node.dtype.kind != "index" and node.bounds == (node.dtype.min, node.dtype.max)


def _keeps_value(cast: UOp) -> bool:
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
        negated = (
            conjunct.op is Ops.XOR
            and conjunct.src[1].op is Ops.CONST
            and conjunct.src[1].arg is True
        )
        test = conjunct.src[0] if negated else conjunct
        if test.op not in (Ops.CMPLT, Ops.CMPEQ) or not test.src[0].dtype.is_int:
            continue
        if test.op is Ops.CMPEQ and negated:
            continue
        left, right = linear(test.src[0]), linear(test.src[1])
        terms = dict(left[0])
        for factor, scale in right[0].items():
            terms[factor] = terms.get(factor, 0) - scale
        terms = {factor: scale for factor, scale in terms.items() if scale}
        limit = right[1] - left[1]
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

    def __init__(self, node: UOp, src: tuple[_Narrowed, ...]):
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
    facts = [] if condition is None else _facts(condition)
    if facts is None:
        return (1, 0)
    nodes = toposort([node], stop=lambda inner: not _is_arithmetic(inner))
    for inner in nodes:
        if inner.op is Ops.RANGE and inner.src[0].op is not Ops.CONST:
            facts += _extent_facts(inner)
    if not facts:
        return node.bounds
    # The longest first: it gives the best bounds.
    facts.sort(key=lambda fact: -len(fact.terms))
    known: dict[UOp, Interval] = {}
    narrowed: dict[UOp, _Narrowed] = {}
    limits = _limits(facts)
    for inner in nodes:
        interval = inner.bounds
        is_inner = _is_arithmetic(inner)
        seen = _Narrowed(
            inner, tuple([narrowed[source] for source in inner.src]) if is_inner else ()
        )
        if is_inner and any(known[source] != source.bounds for source in inner.src):
            interval = _meet(interval, bounds_of(seen))
        if inner in limits:
            interval = _meet(interval, limits[inner])
        if inner.op in _SUMS and inner.dtype.is_int:
            interval = _meet(interval, _sum_bounds(inner, facts, known))
        if interval[0] > interval[1]:
            return (1, 0)
        seen.set(interval)
        narrowed[inner], known[inner] = seen, interval
    return known[node]


_SUMS = (Ops.ADD, Ops.SUB, Ops.MULACC)


def _is_arithmetic(node: UOp) -> bool:
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


# counterexamples

_LEAVES = (Ops.RANGE, Ops.SPECIAL, Ops.DEFINE_VAR)
_WRAPPING = (Ops.ADD, Ops.SUB, Ops.MUL, Ops.SHL)


def _is_opaque(node: UOp) -> bool:
    return not _is_arithmetic(node) and node.op is not Ops.CONST


def _variables(nodes: Sequence[UOp]) -> list[UOp] | None:
    """The variables of scalar integer expressions; None if these are more than integer
    arithmetic.
    """
    found: list[UOp] = []
    for node in toposort(nodes, stop=_is_opaque):
        if node.dtype.lanes > 1 or node.dtype.kind not in ("int", "uint", "index", "bool"):
            return None
        if node.op is Ops.CAST and not _keeps_value(node):
            return None
        if node.op in _WRAPPING and _may_wrap(node):
            return None
        if not _is_opaque(node):
            continue
        # The extent of a loop may have variables: they come first.
        inner = _variables(node.src) if node.op is Ops.RANGE else []
        if inner is None or node.dtype.kind == "bool":
            return None
        found += [other for other in (*inner, node) if other not in found]
    return found


def _names(variables: Sequence[UOp]) -> dict[UOp, str]:
    return {node: f"v{number}" for number, node in enumerate(variables)}


_GLOBALS: dict[str, Any] = {
    "__builtins__": {},
    "max": max,
    "idiv": Ops.IDIV.evaluate,
    "imod": Ops.MOD.evaluate,
    # The casts here do not change the value.
    **{dtype.alias: int for dtype in (*dtypes.signed, *dtypes.unsigned, dtypes.index)},
}


def _compiled(expressions: Sequence[UOp], names: Mapping[UOp, str]) -> Callable[..., Any] | None:
    """A Python function of the variables; None if an op has no plain text."""
    known = dict(names)
    nodes = toposort(expressions, stop=_is_opaque)
    uses = Counter(source for node in nodes for source in node.src)
    lines: list[str] = []
    for node in nodes:
        if uses[node] > 1 and node.src and node not in known:
            lines.append(f"    n{len(lines)} = {render(node, known)}")
            known[node] = f"n{len(lines) - 1}"
    result = ", ".join(render(expression, known) for expression in expressions)
    head = f"def function({', '.join(names.values())}):"
    scope = dict(_GLOBALS)
    try:
        exec("\n".join([head, *lines, f"    return ({result},)"]), scope)
    except (SyntaxError, MemoryError, RecursionError):
        return None
    return scope["function"]  # type: ignore[no-any-return]


def _points(variables: Sequence[UOp], wanted: tuple[int, ...] = ()) -> Iterable[tuple[int, ...]]:
    """Values of the variables: all if they are few, else corners and a fixed random sample."""
    spans = tuple([node.bounds for node in variables])
    if math.prod(high - low + 1 for low, high in spans) <= _POINTS:
        return itertools.product(*(range(low, high + 1) for low, high in spans))
    return _sample(spans, wanted)


@functools.lru_cache(maxsize=64)
def _sample(
    spans: tuple[tuple[int, int], ...], wanted: tuple[int, ...]
) -> tuple[tuple[int, ...], ...]:
    """Corners of what the `spans` bound and random points in it, many of them of `wanted` values:
    the same ones for equal spans.
    """
    rng = random.Random(len(spans))
    corners = itertools.islice(itertools.product(*spans), _POINTS // 4)
    telling = [
        (low, high, *[value for value in wanted if low <= value <= high]) for low, high in spans
    ]
    columns = []
    for most, (low, high) in zip(telling, spans, strict=True):
        width, draw = high - low + 1, rng.random
        between = [low + int(draw() * width) for _ in range(_POINTS)]
        columns.append(
            [
                value if is_telling else other
                for is_telling, value, other in zip(
                    rng.choices((True, False), k=_POINTS), rng.choices(most, k=_POINTS), between
                )
            ]
        )
    return (*corners, *zip(*columns))


def _admissible(variables: Sequence[UOp], names: Mapping[UOp, str]) -> Callable[..., bool]:
    """Whether every range lies below its extent, where that is not a constant."""
    tests = [
        node.alu(Ops.CMPLT, node.src[0].cast(node.dtype))
        for node in variables
        if node.op is Ops.RANGE and node.src[0].op is not Ops.CONST
    ]
    test = _compiled(tests, names) if tests else None
    return (lambda *point: True) if test is None else (lambda *point: all(test(*point)))


def _value_at(function: Callable[..., Any], *point: int) -> Any:
    """The value at a point; None where it is undefined: a division by zero, a negative shift."""
    try:
        return function(*point)
    except (ArithmeticError, ValueError):
        return None


def find_outside(accesses: Sequence[tuple[UOp, UOp | None]], size: int) -> tuple[UOp, str] | None:
    """Of pairs of index and gate, an index that is not below `size` where its gate holds, and the
    values of the variables there, as text.

    None if a search found none; then there may be some, or not.
    """
    gates = [*dict.fromkeys(gate for _, gate in accesses if gate is not None)]
    expressions = [*[index for index, _ in accesses], *gates]
    variables = _variables(expressions)
    if variables is None:
        return None
    names = _names(variables)
    function = _compiled(expressions, names)
    if function is None:
        return None
    is_admissible = _admissible(variables, names)
    count = len(accesses)
    gate_of = [None if gate is None else count + gates.index(gate) for _, gate in accesses]
    for point in _points(variables, (-1, 0, size - 1, size)):
        value = _value_at(function, *point)
        if value is None:
            continue
        positions = value[:count]
        if 0 <= min(positions) and max(positions) < size:
            continue
        for (index, _), position, gate in zip(accesses, positions, gate_of, strict=True):
            is_outside = not 0 <= position < size and (gate is None or value[gate])
            if is_outside and is_admissible(*point):
                return index, _said(variables, point)
    return None


def find_collision(
    index: UOp, gate: UOp | None, axes: Collection[UOp], width: int = 1, *, at_once: bool = False
) -> str | None:
    """Two points that differ on `axes`, not on variables, and with `at_once` on nothing else, both
    admitted by `gate`, that share one of the `width` positions from `index` on, as text.

    None if a search found none.
    """
    expressions = [index] if gate is None else [index, gate]
    variables = _variables([*expressions, *axes])
    if variables is None or any(node.op not in _LEAVES for node in variables):
        return None
    names = _names(variables)
    function = _compiled(expressions, names)
    if function is None:
        return None
    is_admissible = _admissible(variables, names)
    seen: dict[tuple[int, ...], tuple[int, ...]] = {}
    chosen = [number for number, node in enumerate(variables) if node in axes]
    # A variable has one value in a launch.
    fixed = {
        number
        for number, node in enumerate(variables)
        if node not in axes and (at_once or node.op is Ops.DEFINE_VAR)
    }
    for point in _grid(variables, chosen):
        value = _value_at(function, *point)
        if value is None or not all(value[1:]) or not is_admissible(*point):
            continue
        others = [at for number, at in enumerate(point) if number in fixed]
        for position in range(value[0], value[0] + width):
            other = seen.setdefault((position, *others), point)
            if any(other[number] != point[number] for number in chosen):
                return f"{_said(variables, other)} and {_said(variables, point)}"
    return None


def _grid(variables: Sequence[UOp], chosen: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Points in order; where they are too many, the given axes vary and the others are fixed."""
    spans = [range(node.vmin, node.vmax + 1) for node in variables]
    if math.prod(len(span) for span in spans) > _POINTS:
        spans = [s if number in chosen else s[:1] for number, s in enumerate(spans)]
    while math.prod(len(span) for span in spans) > _POINTS:
        longest = max(range(len(spans)), key=lambda number: len(spans[number]))
        spans[longest] = spans[longest][: len(spans[longest]) // 2]
    return itertools.product(*spans)


def _said(variables: Sequence[UOp], point: Sequence[int]) -> str:
    return (
        ", ".join(f"{render(node)} = {value}" for node, value in zip(variables, point)) or "always"
    )
