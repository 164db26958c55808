"""Counterexamples: values of the variables for which a property of integer expressions is false.

Where `ir.proof` proves nothing, a search among a few hundred points tells a wrong expression from
one that is only too hard to prove.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tilegrad.base.dtype import dtypes
from tilegrad.base.flat_code import FlatCode, row_of
from tilegrad.ir.op import Ops
from tilegrad.ir.proof import is_arithmetic, keeps_value, may_wrap
from tilegrad.ir.text import render
from tilegrad.ir.uop import UOp, toposort

__all__ = ["find_collision", "find_outside"]

# A search tries every point of a grid up to this size, else this many of them.
_POINTS = 512
_LEAVES = (Ops.RANGE, Ops.SPECIAL, Ops.DEFINE_VAR)
_WRAPPING = (Ops.ADD, Ops.SUB, Ops.MUL, Ops.SHL)


def _is_opaque(node: UOp) -> bool:
    return not is_arithmetic(node) and node.op is not Ops.CONST


def _variables(nodes: Sequence[UOp]) -> list[UOp] | None:
    """The variables of scalar integer expressions; None if these are more than integer
    arithmetic.
    """
    found: list[UOp] = []
    for node in toposort(nodes, stop=_is_opaque):
        if node.dtype.lanes > 1 or node.dtype.kind not in ("int", "uint", "index", "bool"):
            return None
        if node.op is Ops.CAST and not keeps_value(node):
            return None
        if node.op in _WRAPPING and may_wrap(node):
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
    code = FlatCode(**_GLOBALS)
    for node in nodes:
        if uses[node] > 1 and node.src and node not in known:
            name = f"n{len(code.lines)}"
            code.lines.append(f"{name} = {render(node, known)}")
            known[node] = name
    code.lines.append(f"return {row_of([render(each, known) for each in expressions])}")
    try:
        return code.function(f"function({', '.join(names.values())})", "bounds")  # type: ignore[no-any-return]
    except (SyntaxError, MemoryError, RecursionError):
        return None


def _points(variables: Sequence[UOp], wanted: tuple[int, ...]) -> Iterable[tuple[int, ...]]:
    """Values of the variables: all if they are few, else corners and a fixed random sample."""
    spans = tuple([node.bounds for node in variables])
    if math.prod(high - low + 1 for low, high in spans) <= _POINTS:
        return itertools.product(*(range(low, high + 1) for low, high in spans))
    return _sample(spans, wanted)


@functools.lru_cache(maxsize=64)
def _sample(
    spans: tuple[tuple[int, int], ...], wanted: tuple[int, ...]
) -> tuple[tuple[int, ...], ...]:
    """Corners of the box that the `spans` bound, and random points in it, many of them with
    `wanted` values. Equal spans give equal points.
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


class _Expressions:
    """Integer expressions as a function of their `variables`, and of those of `others`."""

    def __init__(self, function: Callable[..., Any], variables: Sequence[UOp]):
        self._function, self.variables = function, variables
        tests = [
            node.alu(Ops.CMPLT, node.src[0].cast(node.dtype))
            for node in variables
            if node.op is Ops.RANGE and node.src[0].op is not Ops.CONST
        ]
        self._test = _compiled(tests, _names(variables)) if tests else None

    @staticmethod
    def of(expressions: Sequence[UOp], others: Iterable[UOp] = ()) -> _Expressions | None:
        """None if they are more than integer arithmetic, or no plain text says it."""
        variables = _variables([*expressions, *others])
        function = None if variables is None else _compiled(expressions, _names(variables))
        if variables is None or function is None:
            return None
        return _Expressions(function, variables)

    def values_at(self, point: Sequence[int]) -> Any:
        """Their values; None where one is undefined: a division by zero, a negative shift."""
        try:
            return self._function(*point)
        except (ArithmeticError, ValueError):
            return None

    def admits(self, point: Sequence[int]) -> bool:
        """Whether every range lies below its extent, where that is not a constant."""
        return self._test is None or all(self._test(*point))


def find_outside(accesses: Sequence[tuple[UOp, UOp | None]], size: int) -> tuple[UOp, str] | None:
    """An index of a pair of index and gate that is not below `size` where its gate holds, and the
    values of the variables there, as text.

    None if a search found none; then there may be some, or not.
    """
    gates = [*dict.fromkeys(gate for _, gate in accesses if gate is not None)]
    found = _Expressions.of([*[index for index, _ in accesses], *gates])
    if found is None:
        return None
    count = len(accesses)
    gate_of = [None if gate is None else count + gates.index(gate) for _, gate in accesses]
    for point in _points(found.variables, (-1, 0, size - 1, size)):
        value = found.values_at(point)
        if value is None:
            continue
        positions = value[:count]
        if 0 <= min(positions) and max(positions) < size:
            continue
        for (index, _), position, gate in zip(accesses, positions, gate_of, strict=True):
            is_outside = not 0 <= position < size and (gate is None or value[gate])
            if is_outside and found.admits(point):
                return index, _said(found.variables, point)
    return None


def find_collision(
    index: UOp, gate: UOp | None, axes: Collection[UOp], width: int = 1, *, at_once: bool = False
) -> str | None:
    """Two points that differ on `axes`, not on variables, and with `at_once` on nothing else, both
    admitted by `gate`, that share one of the `width` positions from `index` on, as text.

    None if a search found none.
    """
    found = _Expressions.of([index] if gate is None else [index, gate], axes)
    if found is None or any(node.op not in _LEAVES for node in found.variables):
        return None
    variables = found.variables
    seen: dict[tuple[int, ...], tuple[int, ...]] = {}
    chosen = [number for number, node in enumerate(variables) if node in axes]
    # A variable has one value in a launch.
    fixed = {
        number
        for number, node in enumerate(variables)
        if node not in axes and (at_once or node.op is Ops.DEFINE_VAR)
    }
    for point in _grid(variables, chosen):
        value = found.values_at(point)
        if value is None or not all(value[1:]) or not found.admits(point):
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
