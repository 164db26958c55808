"""Movement, joining, indexing, casts and creation: the result is exact in every dtype."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tests.conformance.case import Case
from tests.conformance.values import (
    EVERY,
    FLOATS,
    INTEGERS,
    check,
    exact,
    extremes,
    quantize,
    sample,
    tensor,
    wild,
)
from tilegrad import Tensor
from tilegrad.base.dtype import DType, dtypes

__all__ = ["MOVES", "cast_cases", "creation_cases", "move_cases"]

ROWS = np.array([2, 0, -1, 5, 2])
TABLE = np.array([[0, 3, 2, 1, 0], [5, 5, 0, 1, 2]])
PICKS = np.random.default_rng(3).integers(0, 9, (4, 14))


@dataclass(frozen=True)
class Move:
    """An op that only moves elements of one or two arguments."""

    name: str
    pattern: str
    shapes: tuple[tuple[int, ...], ...]
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    dtypes: tuple[DType, ...] = EVERY


def move(
    name: str,
    pattern: str,
    shape: tuple[int, ...],
    ours: Callable[..., Any],
    theirs: Callable[..., Any] | None = None,
    *others: tuple[int, ...],
    dtypes: tuple[DType, ...] = EVERY,
) -> Move:
    return Move(name, pattern, (shape, *others), ours, theirs or ours, dtypes)


def border(mode: str) -> Callable[[Any], Any]:
    return lambda x: np.pad(x, ((1, 2), (3, 4)), mode=mode)  # type: ignore[call-overload]


def chain(x: Any) -> Any:
    """Windows of a padded, flipped and transposed matrix."""
    y = np.pad(x, ((1, 2), (0, 3)))[::-1].T
    return y[1:, ::2].reshape(5, -1)[:, 1:9:3]


def our_chain(x: Tensor) -> Tensor:
    return x.pad(((1, 2), (0, 3))).flip(0).T[1:, ::2].reshape(5, -1)[:, 1:9:3]


def written(x: Any, y: Any, key: Any) -> Any:
    """A copy of `x` with `y` at `key`; NumPy's arrays are assigned to as tensors are."""
    result = x.clone() if isinstance(x, Tensor) else x.copy()
    result[key] = y
    return result


def put_added(x: Any, y: Any) -> Any:
    result = x.copy()
    np.add.at(result, (PICKS, np.arange(14)), y)
    return result


def zeros(x: Any, *shape: int) -> Any:
    return np.full(shape, 0, x.dtype)


def whole(x: Any) -> Any:
    """Whole numbers, which sums keep exactly."""
    return x.round() if isinstance(x, Tensor) or x.dtype.kind == "f" else x


MOVES = [
    move("reshape", "merge", (6, 5, 4), lambda x: x.reshape(30, 4)),
    move("reshape", "split-of-permuted", (6, 20), lambda x: x.T.reshape(4, 30)),
    move("permute", "three", (6, 5, 9), lambda x: x.permute(2, 0, 1),
         lambda x: x.transpose(2, 0, 1)),
    move("permute", "tail", (37, 65), lambda x: x.T),
    move("flip", "last", (4, 33), lambda x: x.flip(1), lambda x: x[:, ::-1]),
    move("flip", "both", (4, 33), lambda x: x.flip(0, 1), lambda x: x[::-1, ::-1]),
    move("expand", "row", (1, 33), lambda x: x.expand(5, 33), lambda x: np.repeat(x, 5, 0)),
    move("shrink", "window", (9, 40), lambda x: x.shrink(((1, 8), (3, 36))),
         lambda x: x[1:8, 3:36]),
    move("pad", "zeros", (5, 19), lambda x: x.pad(((1, 2), (3, 4))), border("constant")),
    move("pad", "value", (5, 19), lambda x: x.pad((3, 4, 1, 2), value=1),
         lambda x: np.pad(x, ((1, 2), (3, 4)), constant_values=1)),
    move("pad", "reflect", (5, 19), lambda x: x.pad((3, 4, 1, 2), mode="reflect"),
         border("reflect")),
    move("pad", "replicate", (5, 19), lambda x: x.pad((3, 4, 1, 2), mode="replicate"),
         border("edge")),
    move("pad", "circular", (5, 19), lambda x: x.pad((3, 4, 1, 2), mode="circular"),
         border("wrap")),
    move("pad", "cut", (5, 19), lambda x: x.pad((-3, 4)),
         lambda x: np.pad(x[:, 3:], ((0, 0), (0, 4)))),
    move("slice", "steps", (9, 40), lambda x: x[1::2, ::-3]),
    move("slice", "numbers", (9, 4, 7), lambda x: x[3, ..., -2]),
    move("slice", "new-axes", (9, 7), lambda x: x[None, 2:, None, ::2]),
    move("slice", "empty", (9, 7), lambda x: x[4:4]),
    move("chain", "views", (6, 7), our_chain, chain),
    move("cat", "first", (3, 7), lambda x, y: x.cat(y), lambda x, y: np.concatenate((x, y)),
         (5, 7)),
    move("cat", "last", (4, 33), lambda x, y: x.cat(y, dim=1),
         lambda x, y: np.concatenate((x, y), 1), (4, 6)),
    move("stack", "middle", (4, 9), lambda x, y: x.stack(y, dim=1),
         lambda x, y: np.stack((x, y), 1), (4, 9)),
    move("split", "uneven", (5, 20), lambda x: x.split([3, 11, 6], dim=1)[1],
         lambda x: x[:, 3:14]),
    move("chunk", "last", (5, 20), lambda x: x.chunk(3, dim=1)[2], lambda x: x[:, 14:]),
    move("repeat", "both", (3, 5), lambda x: x.repeat(2, 3), lambda x: np.tile(x, (2, 3))),
    move("repeat_interleave", "last", (3, 5), lambda x: x.repeat_interleave(4, 1),
         lambda x: np.repeat(x, 4, 1)),
    move("roll", "last", (3, 17), lambda x: x.roll(5, 1), lambda x: np.roll(x, 5, 1)),
    move("diag", "vector", (9,), lambda x: x.diag(), np.diag),
    move("diagonal", "offset", (7, 9), lambda x: x.diagonal(1), lambda x: np.diagonal(x, 1)),
    move("tril", "offset", (7, 9), lambda x: x.tril(1), lambda x: np.tril(x, 1)),
    move("triu", "offset", (7, 9), lambda x: x.triu(-1), lambda x: np.triu(x, -1)),
    move("unfold", "overlap", (3, 20), lambda x: x.unfold(1, 5, 3),
         lambda x: np.lib.stride_tricks.sliding_window_view(x, 5, axis=1)[:, ::3]),
    move("index", "rows", (6, 9), lambda x: x[Tensor(ROWS)], lambda x: x[ROWS]),
    move("index", "columns", (4, 6), lambda x: x[:, Tensor(ROWS)], lambda x: x[:, ROWS]),
    move("index", "table", (6, 9), lambda x: x[Tensor(TABLE)], lambda x: x[TABLE]),
    move("index", "two", (6, 9), lambda x: x[Tensor(ROWS), Tensor(ROWS + 1)],
         lambda x: x[ROWS, ROWS + 1]),
    move("index_select", "last", (4, 6), lambda x: x.index_select(1, Tensor(TABLE[1])),
         lambda x: x[:, TABLE[1]]),
    move("take", "flat", (4, 6), lambda x: x.take(Tensor(TABLE)), lambda x: x.ravel()[TABLE]),
    move("gather", "first", (9, 14), lambda x: x.gather(0, Tensor(PICKS)),
         lambda x: np.take_along_axis(x, PICKS, 0)),
    move("scatter_add", "whole", (9, 14),
         lambda x, y: whole(x).scatter_add(0, Tensor(PICKS), whole(y)),
         lambda x, y: put_added(whole(x), whole(y)), (4, 14)),
    move("setitem", "window", (6, 9), partial(written, key=(slice(1, 5), slice(2, 8, 3))), None,
         (4, 2)),
    move("masked_select", "half", (5, 9),
         lambda x: x.masked_select(Tensor(np.arange(45).reshape(5, 9) % 3 == 0), 15),
         lambda x: x[np.arange(45).reshape(5, 9) % 3 == 0]),
    move("flipud", "matrix", (4, 9), lambda x: x.flipud(), np.flipud),
    move("fliplr", "matrix", (4, 9), lambda x: x.fliplr(), np.fliplr),
    move("rot90", "matrix", (4, 9), lambda x: x.rot90(), np.rot90),
    move("hstack", "two", (3, 4), lambda x, y: Tensor.hstack((x, y)),
         lambda x, y: np.hstack((x, y)), (3, 2)),
    move("vstack", "two", (3, 4), lambda x, y: Tensor.vstack((x, y)),
         lambda x, y: np.vstack((x, y)), (2, 4)),
    move("swapaxes", "outer", (3, 4, 5), lambda x: x.swapaxes(0, 2), lambda x: x.swapaxes(0, 2)),
    move("movedim", "first", (3, 4, 5), lambda x: x.movedim(0, 2), lambda x: np.moveaxis(x, 0, 2)),
    move("squeeze", "all", (1, 7, 1), lambda x: x.squeeze(), np.squeeze),
    move("unsqueeze", "middle", (5, 7), lambda x: x.unsqueeze(1), lambda x: x[:, None]),
    move("flatten", "last", (3, 4, 5), lambda x: x.flatten(1), lambda x: x.reshape(3, 20)),
    move("unflatten", "last", (3, 20), lambda x: x.unflatten(1, (4, 5)),
         lambda x: x.reshape(3, 4, 5)),
    move("narrow", "middle", (5, 19), lambda x: x.narrow(1, 3, 9), lambda x: x[:, 3:12]),
    move("unbind", "second", (4, 9), lambda x: x.unbind()[1], lambda x: x[1]),
    move("tensor_split", "uneven", (4, 9), lambda x: x.tensor_split(4, dim=1)[2],
         lambda x: np.array_split(x, 4, axis=1)[2]),
    move("take_along_dim", "rows", (9, 14), lambda x: x.take_along_dim(Tensor(PICKS), 0),
         lambda x: np.take_along_axis(x, PICKS, 0)),
    move("select", "column", (5, 9), lambda x: x.select(1, -2), lambda x: x[:, -2]),
    move("pad_to", "larger", (3, 5), lambda x: x.pad_to(4, 8),
         lambda x: np.pad(x, ((0, 1), (0, 3)))),
    move("shrink_to", "smaller", (5, 9), lambda x: x.shrink_to(3, 4), lambda x: x[:3, :4]),
    move("rearrange", "groups", (6, 20), lambda x: x.rearrange("a (b c) -> b (a c)", c=4),
         lambda x: x.reshape(6, 5, 4).transpose(1, 0, 2).reshape(5, 24)),
    move("expand_as", "row", (1, 9), lambda x: x.expand_as(Tensor.zeros(4, 9)),
         lambda x: np.repeat(x, 4, 0)),
    move("meshgrid", "second", (4,), lambda x: x.meshgrid(Tensor.zeros(3, dtype=x.dtype))[0],
         lambda x: np.repeat(x[:, None], 3, 1)),
    move("diag_embed", "rows", (3, 4), lambda x: x.diag_embed(),
         lambda x: np.stack([np.diag(row) for row in x]), dtypes=(*INTEGERS, *FLOATS)),
    move("block_diag", "two", (2, 3), lambda x, y: Tensor.block_diag(x, y),
         lambda x, y: np.block([[x, zeros(x, 2, 2)], [zeros(x, 3, 3), y]]), (3, 2)),
    move("contiguous", "permuted", (5, 9), lambda x: x.T.contiguous(), lambda x: x.T),
]  # fmt: skip


def run_move(case: Move, dtype: DType) -> None:
    """Move the elements, and compare."""
    arrays = [sample(shape, dtype, (case.name, at)) for at, shape in enumerate(case.shapes)]
    found = case.ours(*[tensor(array, dtype) for array in arrays])
    expected = case.theirs(*[exact(array, dtype) for array in arrays])
    assert found.dtype is dtype, f"{found.dtype}, expected {dtype}"
    check(found.numpy(), expected, dtype, signed_zeros=True)


def move_cases() -> Iterator[Case]:
    for number, case in enumerate(MOVES):
        for place, dtype in enumerate(case.dtypes):
            # An eighth of the dtypes each time: over the table, every dtype meets every kind of op.
            often = (place + number) % 5 == 0 or dtype is dtypes.float32
            check_it = partial(run_move, case, dtype)
            small = all(np.prod(shape) <= 80 for shape in case.shapes)
            yield Case(
                "movement", case.name, case.pattern, dtype, check_it, often=often, small=small
            )


def cast_values(source: DType, target: DType) -> np.ndarray:
    """Special values, random ones, floats of every size, and those around an integer's limits."""
    values = quantize(np.array(extremes(source), np.float64 if source.is_float else object), source)
    array = np.concatenate([values, sample((90,), source, target, -40.0, 40.0)])
    if not source.is_float:
        return array
    limits = [float(target.min), float(target.max), 2.0**31, 2.0**32, 2.0**63, 2.0**64]
    near = [limit * (1 + step * 2.0**-12) + by for limit in limits if abs(limit) < math.inf
            for step in (-1, 0, 1) for by in (-1.5, -0.5, 0.0, 0.5, 1.5)]  # fmt: skip
    edges = quantize(np.array([*near, *[-value for value in near]]), source)
    return np.concatenate([array, edges, wild((64,), source, target)])


def toward_zero(value: float, target: DType) -> int:
    """The nearest integer of `target` toward zero, 0 for NaN."""
    if not math.isfinite(value):
        return 0 if value != value else int(target.max if value > 0 else target.min)
    return min(max(int(value), int(target.min)), int(target.max))


def run_cast(source: DType, target: DType) -> None:
    array = cast_values(source, target)
    values = exact(array, source)
    if target is dtypes.bool:
        expected = values != 0
    elif source.is_float and target.is_int:
        expected = np.array([toward_zero(value, target) for value in values.tolist()], object)
    else:
        expected = values.astype(np.float64) if target.is_float else values
    with np.errstate(all="ignore"):
        found = tensor(array, source).cast(target)
        assert found.dtype is target
        # An integer is rounded once, from all of its digits.
        check(found.numpy(), rounded(values, target) if target.is_float else expected, target,
              signed_zeros=source.is_float)  # fmt: skip


def rounded(values: Any, target: DType) -> Any:
    """Float64 values that round to `target` as the exact values do."""
    if values.dtype != object or target is dtypes.float64:
        return values.astype(np.float64)
    # Bits that float64 drops decide a tie: they are kept as an odd last bit.
    short = [value if abs(value) < 1 << 53 else (value >> 12 | (value & 0xFFF != 0)) << 12
             for value in values.tolist()]  # fmt: skip
    return np.array(short, np.float64)


def cast_cases() -> Iterator[Case]:
    for source in EVERY:
        for target in EVERY:
            if source is not target:
                check_it = partial(run_cast, source, target)
                yield Case("casts", "cast", f"from-{source.name}", target, check_it, small=True)


def run_creation(ours: Callable[[DType], Tensor], theirs: Any, dtype: DType) -> None:
    found = ours(dtype)
    assert found.dtype is dtype
    check(found.numpy(), theirs, dtype)


def creation_cases() -> Iterator[Case]:
    table: list[tuple[str, Callable[[DType], Tensor], Any]] = [
        ("full", lambda dtype: Tensor.full((3, 5), 3, dtype=dtype), np.full((3, 5), 3.0)),
        ("zeros", lambda dtype: Tensor.zeros(3, 5, dtype=dtype), np.zeros((3, 5))),
        ("ones", lambda dtype: Tensor.ones(3, 5, dtype=dtype), np.ones((3, 5))),
        ("eye", lambda dtype: Tensor.eye(5, dtype=dtype), np.eye(5)),
        ("arange", lambda dtype: Tensor.arange(3, 60, 7, dtype=dtype), np.arange(3.0, 60, 7)),
    ]
    for number, (name, ours, theirs) in enumerate(table):
        for place, dtype in enumerate((*INTEGERS, *FLOATS)):
            check_it = partial(run_creation, ours, theirs, dtype)
            often = (number + place) % 3 == 0
            yield Case("creation", name, "plain", dtype, check_it, often=often, small=True)
