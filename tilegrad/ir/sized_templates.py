"""Templates for all sizes, from a few templates of one method, recorded at other sizes.

The steps are the same, and the numbers in arguments and shapes are polynomials of the sizes that
change; so are constants, or one over them (a mean). A template whose steps differ from one size to
another, such as one that is chosen by a threshold, is none of these.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from operator import mul
from typing import Any

from tilegrad.ir.args import KernelArg, LoopArg
from tilegrad.ir.graph_templates import Step, Template
from tilegrad.ir.op import Ops
from tilegrad.ir.polynomial import Polynomial, evaluate
from tilegrad.ir.size_patterns import Sizes
from tilegrad.ir.uop import UOp, toposort

__all__ = [
    "Formula",
    "SizedTemplate",
    "fitted",
    "fitted_share",
    "have_same_steps",
    "made",
    "sized_template",
]


class _SizePolynomial:
    """A number that is a polynomial of the sizes."""

    __slots__ = ("polynomial",)

    def __init__(self, polynomial: Polynomial):
        self.polynomial = polynomial


class _Several:
    """A tuple with entries that are no constants."""

    __slots__ = ("each",)

    def __init__(self, each: tuple[Any, ...]):
        self.each = each


class _Share:
    """One over a polynomial of the sizes."""

    __slots__ = ("polynomial",)

    def __init__(self, polynomial: Polynomial):
        self.polynomial = polynomial


class _SizedLoop:
    """A loop whose number of steps is a polynomial of the sizes."""

    __slots__ = ("arg", "polynomial")

    def __init__(self, arg: LoopArg, polynomial: Polynomial):
        self.arg, self.polynomial = arg, polynomial


class _SizedKernel:
    """A kernel of a family, whose sizes are formulas."""

    __slots__ = ("arg", "sizes")

    def __init__(self, arg: KernelArg, sizes: Formula):
        self.arg, self.sizes = arg, sizes


# An argument as a function of the sizes: one of these classes, or the argument itself where it does
# not change.
Formula = Any


def made(formula: Formula, sizes: Sizes) -> Any:
    """The argument at certain sizes."""
    kind = formula.__class__
    if kind is _SizePolynomial:
        return evaluate(formula.polynomial, sizes)
    if kind is _Several:
        return tuple([made(each, sizes) for each in formula.each])
    if kind is _SizedLoop:
        return replace(formula.arg, length=evaluate(formula.polynomial, sizes))
    if kind is _SizedKernel:
        return formula.arg.at(made(formula.sizes, sizes))
    if kind is _Share:
        return 1 / evaluate(formula.polynomial, sizes)
    return formula


def fitted(seen: Sequence[Any], examples: Sequence[Sizes]) -> Formula | None:
    """The argument as a function of the sizes, if it was `seen` so at the `examples`; None if it is
    no polynomial. An argument that is None is no size.
    """
    first = seen[0]
    if all(each == first and each.__class__ is first.__class__ for each in seen):
        return first
    if all(each.__class__ is int for each in seen):
        found = _polynomial(seen, examples)
        return None if found is None else _SizePolynomial(found)
    if all(each.__class__ is tuple and len(each) == len(first) for each in seen):
        several = [fitted(column, examples) for column in zip(*seen)]
        is_whole = all(
            each is not None or column[0] is None for each, column in zip(several, zip(*seen))
        )
        return _Several(tuple(several)) if is_whole else None
    if all(each.__class__ is LoopArg for each in seen):
        is_same = all(replace(each, length=first.length) == first for each in seen)
        found = _polynomial([each.length for each in seen], examples) if is_same else None
        return None if found is None else _SizedLoop(first, found)
    if all(each.__class__ is KernelArg for each in seen):
        return _fitted_kernel(seen, examples)
    return None


def _fitted_kernel(seen: Sequence[KernelArg], examples: Sequence[Sizes]) -> Formula | None:
    """A kernel that is the same at all sizes, or one of a family. Its gradient is a function that
    each call makes anew.
    """
    first = seen[0]
    if all(each.is_same_kernel(first) for each in seen):
        return first
    if first.family is None or any(each.family != first.family for each in seen):
        return None
    sizes = fitted([each.sizes for each in seen], examples)
    return None if sizes is None else _SizedKernel(first, sizes)


def fitted_share(seen: Sequence[Any], examples: Sequence[Sizes]) -> Formula | None:
    """As `fitted`, of a float constant."""
    if any(each.__class__ is not float or not each or not math.isfinite(each) for each in seen):
        return None
    for numbers, kind in (
        ([round(each) for each in seen], _SizePolynomial),
        ([round(1 / each) for each in seen], _Share),
    ):
        found = _polynomial(numbers, examples) if all(numbers) else None
        if found is not None:
            return kind(found)
    return None


def _polynomial(seen: Sequence[int], examples: Sequence[Sizes]) -> Polynomial | None:
    """The polynomial with integer coefficients through the examples; None if there is none of a low
    degree.
    """
    known = _interpolation(tuple(examples))
    if known is None:
        return None
    factors, matrix, denominator = known
    found: dict[tuple[int, ...], int] = {}
    for each, row in zip(factors, matrix, strict=True):
        value, rest = divmod(sum(map(mul, row, seen)), denominator)
        if rest:
            return None
        if value:
            found[each] = value
    is_right = all(evaluate(found, sizes) == value for sizes, value in zip(examples, seen))
    return found if is_right else None


@lru_cache(maxsize=256)
def _interpolation(
    examples: tuple[Sizes, ...],
) -> tuple[list[tuple[int, ...]], list[list[int]], int] | None:
    """The products of sizes that a polynomial is of, and the matrix and the denominator which give
    its coefficients from its values at the examples, by Gauss-Jordan elimination on integers; None
    if the examples do not determine them.
    """
    count = len(examples[0])
    factors: list[tuple[int, ...]] = [(), *[(number,) for number in range(count)]]
    if count == 1:
        factors.append((0, 0))
    elif count == 2:
        factors.append((0, 1))
    rows = [
        [evaluate({each: 1}, sizes) for each in factors]
        + [int(at == other) for other in range(len(examples))]
        for at, sizes in enumerate(examples)
    ]
    for column in range(len(factors)):
        pivot = next((at for at in range(column, len(rows)) if rows[at][column]), None)
        if pivot is None:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        by = rows[column][column]
        for at, row in enumerate(rows):
            if at != column and (times := row[column]):
                left = [a * by - times * b for a, b in zip(row, rows[column])]
                shared = math.gcd(*left) or 1
                rows[at] = [value // shared for value in left]
    pivots = [row[at] for at, row in enumerate(rows[: len(factors)])]
    denominator = math.lcm(*pivots)
    matrix = [
        [value * (denominator // pivot) for value in row[len(factors) :]]
        for row, pivot in zip(rows, pivots)
    ]
    return factors, matrix, denominator


# A node of a constant graph: op, dtype, the positions of its sources, and its argument.
_Node = tuple[Ops, Any, tuple[int, ...], Formula]


class SizedTemplate:
    """A template whose numbers are formulas of the sizes."""

    __slots__ = ("_constants", "_first", "_steps")

    def __init__(
        self, first: Template, constants: list[list[_Node]], steps: list[tuple[Formula, Formula]]
    ):
        self._first, self._constants, self._steps = first, constants, steps

    def at(self, sizes: Sizes) -> Template:
        """The template at certain sizes."""
        return _TemplateAt(self, sizes, self._first)

    def shape_of(self, slot: int, sizes: Sizes) -> tuple[Any, ...] | None:
        """The shape of a result at certain sizes; None for an input."""
        step = slot - self._first.count - len(self._constants)
        return made(self._steps[step][1], sizes) if step >= 0 else None

    def dtype_of(self, slot: int) -> Any:
        """The dtype of a result, which is that at any sizes."""
        return self._first.dtype_of(slot)

    def flowing(self, slot: int) -> tuple[int, ...]:
        """The inputs that a gradient of the node in a slot may reach, at any sizes."""
        return self._first.flowing(slot)

    def steps_at(self, sizes: Sizes) -> list[Step]:
        """The steps at certain sizes."""
        return [
            (step[0], step[1], made(arg, sizes), *step[3:6], made(shape, sizes), step[7])
            for step, (arg, shape) in zip(self._first.steps, self._steps)
        ]

    def constants_at(self, sizes: Sizes) -> list[UOp]:
        """The constants at certain sizes."""
        return [_constant(each, sizes) for each in self._constants]


class _TemplateAt(Template):
    """A `SizedTemplate` at certain sizes. Calls that run as a known segment never look at its steps
    and constants, so these are made when somebody does.
    """

    __slots__ = ("_sized", "_sizes")

    def __init__(self, sized: SizedTemplate, sizes: Sizes, first: Template):
        self._sized, self._sizes = sized, sizes
        self.size, self.results = first.size, first.results
        self.count, self.is_view, self.work = first.count, first.is_view, first.work
        self.evaluators, self.join = {}, first.join

    def __getattr__(self, name: str) -> Any:
        # Called for a slot that has no value yet.
        if name == "steps":
            self.steps = self._sized.steps_at(self._sizes)
            return self.steps
        if name == "constants":
            self.constants = self._sized.constants_at(self._sizes)
            return self.constants
        raise AttributeError(name)

    def dtype_of(self, slot: int) -> Any:
        return self._sized.dtype_of(slot)

    def flowing(self, slot: int) -> tuple[int, ...]:
        return self._sized.flowing(slot)

    def shape_of(self, slot: int) -> tuple[Any, ...] | None:
        return self._sized.shape_of(slot, self._sizes)


def _constant(nodes: list[_Node], sizes: Sizes) -> UOp:
    found: list[UOp] = []
    for op, dtype, sources, formula in nodes:
        arg = made(formula, sizes)
        if op is Ops.CONST:
            found.append(UOp.const(dtype, arg))
        else:
            found.append(UOp(op, dtype, tuple([found[source] for source in sources]), arg))
    return found[-1]


def sized_template(
    templates: Sequence[Template], examples: Sequence[Sizes]
) -> SizedTemplate | None:
    """The template that is each of `templates` at its example; None if there is none."""
    first = templates[0]
    if not all(have_same_steps(first, other) for other in templates[1:]):
        return None
    constants: list[list[_Node]] = []
    for several in zip(*[each.constants for each in templates]):
        found = _constant_graph(several, examples)
        if found is None:
            return None
        constants.append(found)
    steps: list[tuple[Formula, Formula]] = []
    for same in zip(*[each.steps for each in templates]):
        one = same[0]
        arg = fitted([step[2] for step in same], examples)
        shape = fitted([step[6] for step in same], examples)
        if (arg is None and one[2] is not None) or shape is None:
            return None
        steps.append((arg, shape))
    return SizedTemplate(first, constants, steps)


def have_same_steps(one: Template, other: Template) -> bool:
    """Whether two templates differ in arguments, shapes and constants only."""
    if (one.count, one.results, one.size, one.is_view, len(one.constants)) != (
        other.count, other.results, other.size, other.is_view, len(other.constants)
    ):  # fmt: skip
        return False
    slots = range(one.count + len(one.constants) + one.size)
    for mine, theirs in zip(one.steps, other.steps, strict=True):
        if mine[:2] != theirs[:2] or mine[4:6] != theirs[4:6] or mine[7] != theirs[7]:
            return False
        if mine[3](slots) != theirs[3](slots):
            return False
    return True


def _constant_graph(several: Sequence[UOp], examples: Sequence[Sizes]) -> list[_Node] | None:
    """The nodes of a constant graph, sources first, at all sizes."""
    orders = [[*toposort([each])] for each in several]
    if any(len(order) != len(orders[0]) for order in orders):
        return None
    positions = [{node: position for position, node in enumerate(order)} for order in orders]
    found: list[_Node] = []
    for nodes in zip(*orders):
        one = nodes[0]
        sources = [tuple([at[each] for each in node.src]) for at, node in zip(positions, nodes)]
        if any(
            node.op is not one.op or node.dtype is not one.dtype or below != sources[0]
            for node, below in zip(nodes, sources)
        ):
            return None
        args = [node.arg for node in nodes]
        formula = fitted(args, examples)
        if formula is None and one.arg is not None:
            formula = fitted_share(args, examples) if one.op is Ops.CONST else None
            if formula is None or any(
                UOp.const(one.dtype, made(formula, sizes)) is not node
                for sizes, node in zip(examples, nodes)
            ):
                return None
        found.append((one.op, one.dtype, sources[0], formula))
    return found
