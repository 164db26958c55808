"""Elementwise ops on arguments of every shape and layout.

Every op runs with each of its dtypes on an array that no tile of registers divides and that starts
with the special values. Half of the layouts run with every op too, with one of its dtypes in turn;
all of them with all dtypes at night. Then functions of one argument run on all values of the half
types and on a dense sample of float32, too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.conformance.case import Case
from tests.conformance.elementwise import ELEMENTWISE, Elementwise
from tests.conformance.values import (
    EVERY,
    INTEGERS,
    check,
    exact,
    extremes,
    quantize,
    roundoff,
    sample,
    tensor,
    wild,
)
from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import DTypeError

__all__ = ["elementwise_cases"]

Shape = tuple[int, ...]
View = Callable[[Any], Any]


def itself(x: Any) -> Any:
    return x


@dataclass(frozen=True)
class Pattern:
    """Shapes of the arguments in memory, in turn, and how they are looked at, as tensors and as
    arrays.
    """

    name: str
    shapes: tuple[Shape, ...]
    ours: View = itself
    theirs: View = itself


SPECIAL = Pattern("special", ())
WIDENED = Pattern("widened", ((9,),))
DENSE = Pattern("dense", ())
TAIL = Pattern("tail", ((37, 65),))
WILD = Pattern("wild", ((19, 53),))
LAYOUTS = (
    Pattern("scalar", ((),)),
    Pattern("one", ((1,), (1, 1))),
    Pattern("empty", ((0, 3),)),
    Pattern("broadcast", ((5, 1, 7), (3, 1), (7,))),
    Pattern("permuted", ((6, 5, 4),), lambda x: x.permute(2, 0, 1), lambda x: x.transpose(2, 0, 1)),
    Pattern("strided", ((9, 14),), lambda x: x[::2, 1::3], lambda x: x[::2, 1::3]),
    Pattern("flipped", ((3, 18),), lambda x: x.flip(1), lambda x: x[:, ::-1]),
    Pattern("expanded", ((4, 1),), lambda x: x.expand(4, 33), lambda x: np.repeat(x, 33, 1)),
    Pattern("row", ((1, 131),)),
    Pattern("window", ((9, 20),), lambda x: x[1:8, 3:19], lambda x: x[1:8, 3:19]),
)  # fmt: skip


def kinds_of(op: Elementwise, dtype: DType) -> list[DType]:
    return [op.first if place == 0 and op.first else dtype for place in range(op.arity)]


def special_values(op: Elementwise, dtype: DType) -> list[np.ndarray]:
    """All combinations of special values; of every second one where there are three arguments."""

    def of(place: int, kind: DType) -> np.ndarray:
        values = extremes(kind)
        if place == 1 and op.second is not None:
            low, high = op.second(dtype)
            values = (low, low + 1, high - 1, high)
        if op.arity == 3 and len(values) > 2:
            values = values[::2]
        return quantize(np.array(values, np.float64 if kind.is_float else object), kind)

    columns = [of(place, kind) for place, kind in enumerate(kinds_of(op, dtype))]
    return [grid.ravel() for grid in np.meshgrid(*columns, indexing="ij")]


def random_values(op: Elementwise, dtype: DType, shapes: tuple[Shape, ...]) -> list[np.ndarray]:
    def of(place: int, kind: DType) -> np.ndarray:
        shape = shapes[place % len(shapes)]
        if place == 1 and op.second is not None:
            low, high = op.second(dtype)
            return np.random.default_rng(7).integers(low, high + 1, shape).astype(dtype.name)
        return sample(shape, kind, (op.name, place), op.low, op.high)

    return [np.asarray(of(place, kind)) for place, kind in enumerate(kinds_of(op, dtype))]


def wild_values(op: Elementwise, dtype: DType) -> list[np.ndarray]:
    """Floats of every size; those of a later argument are often near multiples of the first."""
    found: list[np.ndarray] = []
    for place, kind in enumerate(kinds_of(op, dtype)):
        if kind is not dtype:
            found.append(sample(WILD.shapes[0], kind, (op.name, place)))
        else:
            beside = [array for array in found if array.dtype.kind == "f"]
            found.append(wild(WILD.shapes[0], dtype, (op.name, place), *beside))
    return found


@functools.cache
def dense_values(dtype: DType) -> np.ndarray:
    """All values of a half type; of float32 every 40,009th, and many of the usual size."""
    if dtype.itemsize < 4:
        bits = np.arange(1 << 16, dtype=np.uint32)
        if dtype is dtypes.float16:
            return bits.astype(np.uint16).view(np.float16)
        return (bits << 16).view(np.float32)
    generator = np.random.default_rng(11)
    words = np.arange(0, 1 << 32, 40_009, dtype=np.uint64).astype(np.uint32).view(np.float32)
    usual = [generator.uniform(-span, span, 60_000) for span in (100, 8, 1.1)]
    with np.errstate(invalid="ignore"):
        return np.concatenate([words, *usual]).astype(np.float32)


def run(op: Elementwise, pattern: Pattern, dtype: DType) -> None:
    """Compute the op, and compare."""
    kinds = kinds_of(op, dtype)
    if pattern is DENSE:
        arrays = [dense_values(dtype)]
    elif pattern is SPECIAL:
        arrays = special_values(op, dtype)
    elif pattern is WILD:
        arrays = wild_values(op, dtype)
    else:
        arrays = random_values(op, dtype, pattern.shapes)
    if pattern is TAIL:
        special = special_values(op, dtype)
        for array, column in zip(arrays, special, strict=True):
            array.flat[: column.size] = column
    leaves = [tensor(array, kind) for array, kind in zip(arrays, kinds, strict=True)]
    found = op.ours(*[pattern.ours(leaf) for leaf in leaves])
    result = op.result(*kinds)
    if pattern is WIDENED:
        result = dtypes.float32
    assert found.dtype is result, f"{found.dtype}, expected {result}"
    values = [pattern.theirs(exact(array, kind)) for array, kind in zip(arrays, kinds, strict=True)]
    if pattern is WIDENED:
        values = [value.astype(np.float32).astype(np.float64) for value in values]
    ours: Any = found.numpy()
    error: Any = 0.0
    with np.errstate(all="ignore"):
        expected = np.asarray(op.theirs(*values))
        kept: Any = True if op.keep is None else op.keep(*values)
        if op.error is not None:
            unit = roundoff(dtype if dtype is dtypes.float64 else dtypes.float32)
            reals = [np.asarray(value, np.float64) for value in values]
            error = op.error(unit, expected, *reals)
    ulp = op.ulp
    if result is dtypes.float64 and op.double_ulp is not None:
        ulp = op.double_ulp
    elif result.is_float and result.itemsize < 4 and op.ulp:
        ulp = op.half_ulp
    size: Any = 0.0
    if op.magnitude is not None and result.is_float:
        with np.errstate(all="ignore"):
            size = np.broadcast_to(op.magnitude(*values), expected.shape)
    kept = np.broadcast_to(np.asarray(kept), expected.shape).astype(np.bool_)
    error = np.broadcast_to(error, expected.shape)[kept]
    assert ours.shape == expected.shape, f"shape {ours.shape}, expected {expected.shape}"
    size = np.broadcast_to(size, expected.shape)[kept]
    check(ours[kept], expected[kept], result, ulp=ulp, error=error, signed_zeros=op.signed_zeros,
          magnitude=size)  # fmt: skip


def refuse(op: Elementwise, dtype: DType) -> None:
    """The dtype is refused with both a reason and what to do."""
    arguments = [tensor(quantize(np.ones(2), dtype), dtype) for _ in range(op.arity)]
    with pytest.raises(DTypeError, match=f"{dtype.name}|{dtype}"):
        op.ours(*arguments)


WHOLE = (dtypes.bool, *INTEGERS)


def elementwise_cases() -> Iterator[Case]:
    for number, op in enumerate(ELEMENTWISE):
        for place, dtype in enumerate(op.dtypes):
            often = dtype is dtypes.float32 or (number + place) % 3 == 0
            check_it = partial(run, op, TAIL, dtype)
            yield Case(op.group, op.name, TAIL.name, dtype, check_it, often=often)
            if dtype.is_float:
                turns = dtype is dtypes.float32 or dtype is op.dtypes[number % len(op.dtypes)]
                check_it = partial(run, op, WILD, dtype)
                yield Case(op.group, op.name, WILD.name, dtype, check_it, often=turns)
            check_it = partial(run, op, SPECIAL, dtype)
            yield Case(op.group, op.name, SPECIAL.name, dtype, check_it, often=False, small=True)
            for turn, pattern in enumerate(LAYOUTS):
                turns = op.dtypes[(number + turn) % len(op.dtypes)] is dtype
                often = turns and (number + turn) % 2 == 0
                check_it = partial(run, op, pattern, dtype)
                yield Case(
                    op.group, op.name, pattern.name, dtype, check_it, often=often, small=True
                )
        if op.group == "bits":
            for dtype in [dtype for dtype in EVERY if dtype not in op.dtypes]:
                check_it = partial(refuse, op, dtype)
                yield Case(op.group, op.name, "refused", dtype, check_it, small=False)
        if op.widens:
            for turn, dtype in enumerate(WHOLE):
                often = turn == number % len(WHOLE)
                check_it = partial(run, op, WIDENED, dtype)
                yield Case(op.group, op.name, WIDENED.name, dtype, check_it, often, small=True)
        if op.is_dense:
            for dtype in (dtypes.float32, dtypes.float16, dtypes.bfloat16):
                check_it = partial(run, op, DENSE, dtype)
                yield Case(op.group, op.name, DENSE.name, dtype, check_it, often=False)
