"""Reductions and scans: what they mean in NumPy, and how far n roundings in any order may lead."""

from __future__ import annotations

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
    roundoff,
    sample,
    tensor,
    zero_padded,
)
from tilegrad import Tensor
from tilegrad.base.dtype import DType, dtypes

__all__ = ["FOLDS", "LAYOUTS", "fold_cases"]

Axes = int | tuple[int, ...] | None
# (values, axes) -> what the error of a result is measured in, if that is more than the result.
Size = Callable[[Any, Axes], Any]
# (roundoff, terms, exact result, values, axes) -> absolute error
Bound = Callable[[float, int, Any, Any, Axes], Any]
NUMBERS = (*INTEGERS, *FLOATS)


def itself(x: Any) -> Any:
    return x


@dataclass(frozen=True)
class Layout:
    """What is folded, along which axes."""

    name: str
    shape: tuple[int, ...]
    axes: Axes
    ours: Callable[[Any], Any] = itself
    theirs: Callable[[Any], Any] = itself
    keepdim: bool = False


def padded(x: Any) -> Any:
    return zero_padded(x, ((0, 0), (2, 3)))


LAYOUTS = (
    Layout("last", (37, 65), 1),
    Layout("first", (37, 65), 0),
    Layout("all", (37, 65), None),
    Layout("middle", (5, 33, 6), 1),
    Layout("outer", (5, 33, 6), (0, 2)),
    Layout("long", (1030,), 0),
    Layout("keepdim", (7, 19), 1, keepdim=True),
    Layout("scalar", (), None),
    Layout("one", (3, 1), 1),
    Layout("empty", (0, 3), 0),
    Layout("permuted", (6, 5, 20), 1, lambda x: x.permute(2, 0, 1), lambda x: x.transpose(2, 0, 1)),
    Layout("strided", (9, 40), 1, lambda x: x[::2, 1::3], lambda x: x[::2, 1::3]),
    Layout("flipped", (4, 18), 1, lambda x: x.flip(1), lambda x: x[:, ::-1]),
    Layout("expanded", (4, 1), 0, lambda x: x.expand(4, 9), lambda x: np.repeat(x, 9, 1)),
    Layout("padded", (4, 9), 1, lambda x: x.pad((2, 3)), padded),
)
SPECIAL = Layout("special", (0, 0), 1)
# Integers and bools, of which the fold is float32.
WIDENED = Layout("widened", (3, 4), 1)


@dataclass(frozen=True)
class Fold:
    """A reduction or scan.

    Attributes:
        ours, theirs: the op on a tensor or an array, along axes.
        dtypes: those it is defined for.
        result: the dtype of its result.
        bound: the error allowed, beside half a unit of a half type's last place.
        magnitude: what an error is measured in, where that is more than the result.
        single: whether it takes one axis only.
        scans: whether its result has the shape of its argument.
        empty: whether it is defined for no elements at all.
        special: whether it is for values that are not finite.
        half_ulp: what is allowed of a half type's last place; more than a half if it rounds twice.
        low, high: what random floats lie between.
    """

    name: str
    ours: Callable[..., Tensor]
    theirs: Callable[[Any, Axes], Any]
    dtypes: tuple[DType, ...] = FLOATS
    result: Callable[[DType], DType] = itself
    bound: Bound | None = None
    magnitude: Size | None = None
    single: bool = False
    scans: bool = False
    empty: bool = True
    special: bool = False
    half_ulp: float = 0.51
    low: float = -3.0
    high: float = 3.0


def summed(dtype: DType) -> DType:
    """Sums and products of bool and integers are int64."""
    return dtype if dtype.is_float else dtypes.int64


def truth(dtype: DType) -> DType:
    return dtypes.bool


def position(dtype: DType) -> DType:
    return dtypes.int32


def of_sum(u: float, n: int, y: Any, x: Any, axes: Axes) -> Any:
    return n * u * np.abs(x).sum(axis=axes)


def of_mean(u: float, n: int, y: Any, x: Any, axes: Axes) -> Any:
    return (n + 2) * u * np.abs(x).mean(axis=axes)


def of_result(steps: int) -> Bound:
    """A relative error of n + `steps` roundings."""
    return lambda u, n, y, x, axes: (n + steps) * u * np.abs(y)


def of_logarithm(u: float, n: int, y: Any, x: Any, axes: Axes) -> Any:
    return u * (n + 20 + 4 * np.abs(y))


def of_prefix(u: float, n: int, y: Any, x: Any, axes: Axes) -> Any:
    return n * u * np.cumsum(np.abs(x), axis=axes)  # type: ignore[arg-type]


def total(x: Any, axes: Axes) -> Any:
    return np.abs(x).sum(axis=axes)


def average(x: Any, axes: Axes) -> Any:
    return np.abs(x).mean(axis=axes)


def prefix(x: Any, axes: Axes) -> Any:
    return np.cumsum(np.abs(x), axis=axes)  # type: ignore[arg-type]


def one(x: Any, axes: Axes) -> Any:
    return 1.0


def exponentials(x: Any, axes: Axes) -> Any:
    return np.exp(x - x.max(axis=axes, keepdims=True))


def softmax(x: Any, axes: Axes) -> Any:
    found = exponentials(x, axes)
    return found / found.sum(axis=axes, keepdims=True)


def logsumexp(x: Any, axes: Axes) -> Any:
    total = np.log(exponentials(x, axes).sum(axis=axes, keepdims=True))
    return (total + x.max(axis=axes, keepdims=True)).squeeze(axis=axes)


def norm(x: Any, axes: Axes) -> Any:
    return np.sqrt((x * x).sum(axis=axes))


def method(name: str, **options: Any) -> Callable[..., Tensor]:
    def call(x: Tensor, axes: Axes, **more: Any) -> Tensor:
        found: Any = getattr(x, name)(axis=axes, **options, **more)
        made: Tensor = found[0] if isinstance(found, tuple) else found
        return made

    return call


def ufunc(function: Any) -> Callable[[Any, Axes], Any]:
    return lambda x, axes: function(x, axis=axes)


def folds() -> list[Fold]:
    whole: dict[str, Any] = {"single": True, "scans": True}
    found = [
        Fold("sum", method("sum"), ufunc(np.sum), EVERY, summed, of_sum, total, special=True),
        Fold("prod", method("prod"), ufunc(np.prod), EVERY, summed, of_result(0), low=0.9,
             high=1.1),
        Fold("max", method("max"), ufunc(np.max), EVERY, empty=False, special=True),
        Fold("min", method("min"), ufunc(np.min), EVERY, empty=False, special=True),
        Fold("any", method("any"), lambda x, axes: (x != 0).any(axis=axes), EVERY, truth,
             special=True),
        Fold("all", method("all"), lambda x, axes: (x != 0).all(axis=axes), EVERY, truth,
             special=True),
        Fold("mean", method("mean"), ufunc(np.mean), bound=of_mean, magnitude=average,
             empty=False),
        Fold("var", method("var", correction=0), ufunc(np.var), bound=of_result(10), empty=False),
        Fold("std", method("std", correction=0), ufunc(np.std), bound=of_result(12), empty=False,
             half_ulp=1.1),
        Fold("norm", method("norm"), norm, bound=of_result(4)),
        Fold("logsumexp", method("logsumexp"), logsumexp, bound=of_logarithm, magnitude=one,
             empty=False),
        Fold("argmax", method("argmax"), ufunc(np.argmax), EVERY, position, single=True,
             empty=False, special=True),
        Fold("argmin", method("argmin"), ufunc(np.argmin), EVERY, position, single=True,
             empty=False, special=True),
        Fold("softmax", method("softmax"), softmax, bound=of_result(50), empty=False, **whole),
        Fold("softmin", method("softmin"), lambda x, axes: softmax(-x, axes), bound=of_result(50),
             empty=False, **whole),
        Fold("log_softmax", method("log_softmax"), lambda x, axes: np.log(softmax(x, axes)),
             bound=of_logarithm, magnitude=one, empty=False, **whole),
        Fold("cumsum", method("cumsum"), ufunc(np.cumsum), EVERY, summed, of_prefix, prefix,
             **whole),
        Fold("cumprod", method("cumprod"), ufunc(np.cumprod), EVERY, summed, of_result(0),
             low=0.9, high=1.1, **whole),
        Fold("cummax", method("cummax"), ufunc(np.maximum.accumulate), EVERY, **whole),
        Fold("cummin", method("cummin"), ufunc(np.minimum.accumulate), EVERY, **whole),
        Fold("logcumsumexp", method("logcumsumexp"), ufunc(np.logaddexp.accumulate),
             bound=of_logarithm, magnitude=one, **whole),
    ]  # fmt: skip
    return found


FOLDS = folds()


def special_rows(dtype: DType) -> np.ndarray:
    """Each special value beside each other, and beside ordinary ones."""
    values = extremes(dtype)
    rows = [[a, 1, b, 0] for a in values for b in values]
    return quantize(np.array(rows, np.float64 if dtype.is_float else object), dtype)


def run(fold: Fold, layout: Layout, dtype: DType) -> None:
    """Compute the fold, and compare."""
    if layout is SPECIAL:
        array = special_rows(dtype)
    else:
        array = sample(layout.shape, dtype, fold.name, fold.low, fold.high)
    array = np.asarray(array)
    if layout is WIDENED and dtype is not dtypes.bool:
        array = abs(array % 9)
    options = {"keepdim": True} if layout.keepdim else {}
    found = fold.ours(layout.ours(tensor(array, dtype)), layout.axes, **options)
    result = dtypes.float32 if layout is WIDENED else fold.result(dtype)
    assert found.dtype is result, f"{found.dtype}, expected {result}"
    values = layout.theirs(exact(array, dtype))
    if layout is WIDENED:
        values = values.astype(np.float64)
    elif dtype is dtypes.bool:
        values = values.astype(object) * 1 if fold.result is summed else values
    error: Any = 0.0
    size: Any = 0.0
    with np.errstate(all="ignore"):
        expected = np.asarray(fold.theirs(values, layout.axes))
        if fold.bound is not None and result.is_float:
            unit = roundoff(dtypes.float64 if dtype is dtypes.float64 else dtypes.float32)
            axes = tuple(range(values.ndim)) if layout.axes is None else layout.axes
            terms = int(np.prod([values.shape[axis] for axis in np.atleast_1d(axes).astype(int)]))
            error = np.nan_to_num(fold.bound(unit, terms, expected, values, layout.axes))
        if fold.magnitude is not None and result.is_float:
            size = np.broadcast_to(fold.magnitude(values, layout.axes), expected.shape)
    if layout.keepdim:
        expected = np.expand_dims(expected, layout.axes or 0)
        error = np.expand_dims(error, layout.axes or 0) if np.ndim(error) else error
        size = np.expand_dims(size, layout.axes or 0) if np.ndim(size) else size
    is_half = result.is_float and result.itemsize < 4
    ulp = fold.half_ulp if is_half and fold.bound is not None else 0.0
    check(found.numpy(), expected, result, ulp=ulp, error=error, magnitude=size)


def fold_cases() -> Iterator[Case]:
    for number, fold in enumerate(FOLDS):
        fitting = [
            layout
            for layout in LAYOUTS
            if not (fold.single and (isinstance(layout.axes, tuple) or layout.axes is None))
            and not (fold.scans and layout.keepdim)
            and (fold.empty or 0 not in layout.shape)
        ]
        for dtype in fold.dtypes:
            for turn, layout in enumerate(fitting):
                turns = fold.dtypes[(number + turn) % len(fold.dtypes)] is dtype
                often = turns or (layout.name == "last" and dtype is dtypes.float32)
                small = int(np.prod(layout.shape)) < 100
                check_it = partial(run, fold, layout, dtype)
                yield Case(
                    "reductions", fold.name, layout.name, dtype, check_it, often=often, small=small
                )
            if fold.special:
                check_it = partial(run, fold, SPECIAL, dtype)
                yield Case(
                    "reductions", fold.name, "special", dtype, check_it, small=not dtype.is_float
                )
        if fold.dtypes is FLOATS:
            for place, dtype in enumerate((dtypes.bool, *INTEGERS)):
                check_it = partial(run, fold, WIDENED, dtype)
                often = place == number % 9
                yield Case(
                    "reductions", fold.name, WIDENED.name, dtype, check_it, often, small=True
                )
