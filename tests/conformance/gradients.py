"""Gradients of the ops of the other tables, against differences of what they are compared with.

For each case the weighted sum of the result is differentiated along a random direction: by us in
the case's dtype, and by central differences of the reference in float64.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from tests.conformance.case import Case
from tests.conformance.composed import COMPOSED, values_of
from tests.conformance.elementwise import ELEMENTWISE
from tests.conformance.folds import FOLDS, LAYOUTS
from tests.conformance.moves import MOVES
from tests.conformance.named import NAMED
from tests.conformance.products import PRODUCTS
from tests.conformance.values import sample, tensor
from tilegrad import Tensor
from tilegrad.base.dtype import DType, dtypes

__all__ = ["gradient_cases"]

KINDS = (dtypes.float32, dtypes.float64)
# Ops whose result is a whole number, or a choice among equals, have no slope to compare; that of a
# remainder and of what a copied sign does is a convention.
FLAT = (
    "sign", "trunc", "floor", "ceil", "round", "floordiv", "div-trunc", "mod", "fmod", "copysign",
    "any", "all", "argmax", "argmin", "frac", "heaviside", "nan_to_num", "isposinf", "signbit",
)  # fmt: skip
# Where a random step between two values would cross a kink.
SMOOTH = {"relu6": (0.5, 5.5), "hardtanh": (-0.9, 0.9), "clip": (-2.9, -0.1), "sqrt": (0.3, 3)}


def slope(
    theirs: Callable[..., Any], values: Sequence[Any], steps: Sequence[Any], weight: Any, h: float
) -> Any:
    """The derivative along `steps`, by four points."""

    def at(factor: float) -> Any:
        moved = [v if s is None else v + factor * s for v, s in zip(values, steps)]
        return np.sum(np.asarray(theirs(*moved), np.float64) * weight)

    return (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)


def compare(
    ours: Callable[..., Tensor],
    theirs: Callable[..., Any],
    arrays: Sequence[Any],
    dtype: DType,
    fixed: int = 0,
) -> None:
    """The first `fixed` arguments are conditions, through which nothing flows."""
    generator = np.random.default_rng(zlib.crc32(str([array.shape for array in arrays]).encode()))
    leaves = [tensor(array, dtypes.bool if place < fixed else dtype)
              for place, array in enumerate(arrays)]  # fmt: skip
    values = [array if place < fixed else array.astype(np.float64)
              for place, array in enumerate(arrays)]  # fmt: skip
    steps = [None if place < fixed else generator.standard_normal(array.shape)
             for place, array in enumerate(arrays)]  # fmt: skip
    found = ours(*leaves)
    weight = generator.standard_normal(found.shape)
    total = (found * Tensor(weight).cast(found.dtype)).sum()
    gradients = total.gradient(*leaves[fixed:])
    parts = [gradient.numpy().astype(np.float64) * step
             for gradient, step in zip(gradients, steps[fixed:], strict=True)]  # fmt: skip
    mine = sum(float(part.sum()) for part in parts)
    with np.errstate(all="ignore"):
        exact = slope(theirs, values, steps, weight, 1e-6)
    size = sum(float(np.abs(part).sum()) for part in parts) + 1
    bound = (3e-5 if dtype is dtypes.float32 else 1e-8) * size
    assert abs(mine - exact) <= bound, f"slope {mine!r}, expected {exact!r} within {bound:.2g}"


def gradient_cases() -> Iterator[Case]:
    for number, (name, pattern, check) in enumerate(checks()):
        for place, dtype in enumerate(KINDS):
            often = number % 8 == 0 and (number // 8 + place) % 2 == 0
            yield Case("gradients", name, pattern, dtype, partial(check, dtype), often,
                       is_loose=True)  # fmt: skip


Check = Callable[[DType], None]


def checks() -> Iterator[tuple[str, str, Check]]:
    for op in ELEMENTWISE:
        result = op.result(*[dtypes.float64] * op.arity)
        if op.name in FLAT or dtypes.float64 not in op.dtypes or not result.is_float:
            continue
        for pattern, shapes in (("same", ((9,),)), ("broadcast", ((3, 1), (4,), (2, 1, 1)))):
            if op.arity == 1 and pattern == "broadcast":
                continue
            yield op.name, pattern, partial(elementwise, op, shapes)
    for fold in FOLDS:
        if fold.name in FLAT:
            continue
        for layout in LAYOUTS:
            whole = isinstance(layout.axes, tuple) or layout.axes is None
            fits = not (fold.single and whole) and not (fold.scans and layout.keepdim)
            small = int(np.prod(layout.shape)) < 200 and np.prod(layout.shape)
            if (
                fits
                and small
                and not (fold.name in ("var", "std") and layout.name in ("one", "scalar"))
            ):
                yield fold.name, layout.name, partial(folded, fold, layout)
    for product in PRODUCTS:
        if product.terms and np.prod(product.shapes[0]) < 1200:
            yield product.name, product.pattern, partial(multiplied, product)
    for move in MOVES:
        # There sums are of whole numbers; and what is empty has no slope.
        if move.name != "scatter_add" and move.pattern != "empty":
            yield move.name, move.pattern, partial(moved, move)
    for made in [*COMPOSED, *NAMED]:
        has_slope = made.slopes and made.shapes and made.result is None
        if has_slope and dtypes.float64 in made.dtypes:
            yield made.name, made.pattern, partial(composed, made)


def elementwise(op: Any, shapes: Any, dtype: DType) -> None:
    low, high = SMOOTH.get(op.name, (op.low, op.high))
    if op.low == 0:
        low = 0.3
    fixed = 1 if op.first is not None else 0
    arrays = [
        sample(shapes[place % len(shapes)], dtypes.bool if place < fixed else dtype,
               ("slope", op.name, place), low, high)
        for place in range(op.arity)
    ]  # fmt: skip
    if op.name == "clip":
        arrays[0] = np.asarray(arrays[0] + np.where(arrays[0] > -1.5, 3, -3)).astype(dtype.name)
    compare(op.ours, op.theirs, arrays, dtype, fixed)


def folded(fold: Any, layout: Any, dtype: DType) -> None:
    options = {"keepdim": True} if layout.keepdim else {}

    def ours(x: Tensor) -> Tensor:
        found: Tensor = fold.ours(layout.ours(x), layout.axes, **options)
        return found

    def theirs(x: Any) -> Any:
        found = fold.theirs(layout.theirs(x), layout.axes)
        return np.expand_dims(found, layout.axes) if layout.keepdim else found

    array = sample(layout.shape, dtype, ("slope", fold.name), fold.low, fold.high)
    compare(ours, theirs, [np.asarray(array)], dtype)


def multiplied(product: Any, dtype: DType) -> None:
    turn = product.turn or (lambda x: x)
    arrays = [sample(shape, dtype, ("slope", at)) for at, shape in enumerate(product.shapes)]
    compare(lambda x, *rest: product.ours(turn(x), *rest),
            lambda x, *rest: product.theirs(turn(x), *rest), arrays, dtype)  # fmt: skip


def moved(move: Any, dtype: DType) -> None:
    arrays = [np.asarray(sample(shape, dtype, ("slope", at)))
              for at, shape in enumerate(move.shapes)]  # fmt: skip
    compare(move.ours, move.theirs, arrays, dtype)


def composed(made: Any, dtype: DType) -> None:
    compare(made.ours, made.theirs, values_of(made, dtype), dtype)
