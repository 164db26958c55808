"""Programs drawn at random: a few leaves, and steps that each take values made before."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.conformance.programs import Program, Step, Value, theirs
from tilegrad.base.dtype import DType, dtypes

__all__ = ["programs"]

SIZES = (1, 2, 3, 4, 5, 7, 9, 17)
MOST_ELEMENTS = 700
LEAVES = (
    dtypes.float32, dtypes.float32, dtypes.float32, dtypes.int32, dtypes.int8, dtypes.uint8,
    dtypes.float16, dtypes.float64, dtypes.bool,
)  # fmt: skip
CASTS = (
    dtypes.float32, dtypes.float16, dtypes.bfloat16, dtypes.float64, dtypes.int32, dtypes.int16,
    dtypes.uint8, dtypes.int64, dtypes.bool,
)  # fmt: skip


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Programs of up to nine steps."""
    generator = np.random.default_rng(draw(st.integers(0, 2**20)))
    pair = [draw(st.sampled_from(SIZES)) for _ in range(3)]
    dtype = draw(st.sampled_from(LEAVES))
    # Shapes that meet: in a matrix product, or by broadcasting.
    shapes = [(pair[0], pair[1]), draw(st.sampled_from([(pair[1], pair[2]), (pair[0], 1),
                                                        (pair[1],), ()]))]  # fmt: skip
    leaves = [leaf(generator, shape, dtype) for shape in shapes]
    leaves.append(leaf(generator, (pair[0], pair[1]), draw(st.sampled_from(LEAVES))))
    values, steps = list(leaves), []
    for _ in range(draw(st.integers(1, 9))):
        # Mostly a step on what was made last, at times on a leaf.
        at = draw(st.sampled_from([len(values) - 1] * 4 + [0, 2]))
        found = list(candidates(values, at))
        kind = draw(st.sampled_from(sorted({step.name for step in found})))
        step = draw(st.sampled_from([step for step in found if step.name == kind]))
        steps.append(step)
        values.append(theirs(step, [values[number] for number in step.sources]))
    return Program(tuple(leaves), tuple(steps), tuple(values[len(leaves) :]))


def leaf(generator: Any, shape: tuple[int, ...], dtype: DType) -> Value:
    """Multiples of a half between -4 and 4, or integers of all sizes."""
    if dtype.is_float:
        return Value(generator.integers(-8, 9, shape) / 2.0, dtype)
    if dtype is dtypes.bool:
        return Value(generator.integers(0, 2, shape).astype(np.bool_), dtype)
    if generator.integers(2):
        low, high = int(dtype.min), int(dtype.max)
        return Value(generator.integers(low, high, shape, dtype.name, endpoint=True), dtype)
    return Value(generator.integers(0, 9, shape).astype(dtype.name), dtype)


def candidates(values: list[Value], at: int) -> Iterator[Step]:
    """Steps that fit value number `at`, alone or with another."""
    x = values[at]
    yield from movements(x, at)
    yield from folds(x, at)
    yield from elementwise(x, at)
    for other, y in enumerate(values):
        if y.dtype is x.dtype:
            yield from pairs(x, y, at, other)
            for place, condition in enumerate(values):
                if condition.dtype is dtypes.bool and fits(condition, x, y):
                    yield Step("where", (place, at, other))


def is_tame(x: Value) -> bool:
    """Whether sums and products of it stay far from overflow."""
    return not x.dtype.is_float or x.size < (40 if x.dtype is dtypes.float16 else 1000)


def movements(x: Value, at: int) -> Iterator[Step]:
    count, ndim = x.array.size, x.array.ndim
    yield Step("reshape", (at,), (1, count))
    if count % 2 == 0:
        yield Step("reshape", (at,), (2, count // 2))
        yield Step("reshape", (at,), (count // 2, 2))
    if ndim >= 2:
        yield Step("permute", (at,), tuple(reversed(range(ndim))))
        yield Step("slice", (at,), (slice(None, None, 2), slice(1, None)))
    for axis, size in enumerate(x.shape):
        yield Step("flip", (at,), axis)
        if size == 1 and count <= MOST_ELEMENTS // 6:
            yield Step("expand", (at,), (*x.shape[:axis], 6, *x.shape[axis + 1 :]))
        if size > 2:
            lead = (slice(None),) * axis
            yield Step("slice", (at,), (*lead, slice(1, size)))
            yield Step("slice", (at,), (*lead, slice(None, None, -2)))
    if ndim == 2 and count <= MOST_ELEMENTS // 4:
        yield Step("pad", (at,), ((1, 0), (2, 3)))


def folds(x: Value, at: int) -> Iterator[Step]:
    for axis, size in enumerate(x.shape):
        if size:
            yield Step("max", (at,), axis)
            if x.dtype is not dtypes.bool:
                yield Step("min", (at,), axis)
        if is_tame(x):
            yield Step("sum", (at,), axis)
            yield Step("cumsum", (at,), axis)


def elementwise(x: Value, at: int) -> Iterator[Step]:
    names = ["neg", "relu"]
    if x.dtype.is_float:
        names += ["abs", "clip"]
        names += ["sin", "sqrt", "fraction"] if is_tame(x) else []
        names += ["exp2"] if x.size <= 5 else []
    elif x.dtype is not dtypes.bool:
        names += ["abs"]
    for name in names if x.dtype is not dtypes.bool else ["neg"]:
        yield Step(name, (at,))
    for dtype in CASTS:
        narrow = dtype in (dtypes.float16, dtypes.bfloat16)
        if dtype is x.dtype or (narrow and x.size > 30000):
            continue
        is_whole = dtype.is_int and x.dtype.is_float
        is_inside = not is_whole or (x.size < dtype.max and (dtype.min < 0 or np.all(x.array >= 0)))
        if dtype.is_float or not x.dtype.is_float or (x.is_exact and is_inside):
            yield Step("cast", (at,), dtype)


def pairs(x: Value, y: Value, at: int, other: int) -> Iterator[Step]:
    tame = is_tame(x) and is_tame(y)
    if fits(x, y):
        names = ["maximum", "add", "mul"] if tame else ["maximum"]
        if x.dtype is not dtypes.bool:
            names += ["minimum", "sub"] if tame else ["minimum"]
        if x.is_exact and y.is_exact:
            names += ["less", "equal"]
        if x.dtype.is_int:
            names += ["floordiv"]
        for name in names:
            yield Step(name, (at, other))
            yield Step(name, (other, at))
    if x.array.ndim == y.array.ndim == 2 and tame and x.dtype is not dtypes.bool:
        if x.shape[1] == y.shape[0] and x.shape[0] * y.shape[1] <= MOST_ELEMENTS:
            yield Step("matmul", (at, other))
        if x.shape[1] == y.shape[1] and x.shape[0] + y.shape[0] <= 40:
            yield Step("cat", (at, other))


def fits(*values: Value) -> bool:
    """Whether the shapes broadcast to something small."""
    try:
        shape = np.broadcast_shapes(*[value.shape for value in values])
    except ValueError:
        return False
    return math.prod(shape) <= MOST_ELEMENTS
