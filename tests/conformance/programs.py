"""Random programs of tensor ops, and what they come to in NumPy.

Floats carry a bound of the error that rounding may have caused so far. It is zero as long as every
step was exact, which small multiples of a power of two often are; only then may a value be
compared, or made an integer. Integers are exact always, and wrap around.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.conformance.values import quantize, roundoff, spacing
from tilegrad import Tensor
from tilegrad.base.dtype import DType, dtypes

__all__ = ["Program", "Step", "Value", "theirs"]


@dataclass(frozen=True)
class Value:
    """An array in a dtype: float64 with a bound of the error for floats, else exact."""

    array: Any
    dtype: DType
    error: Any = 0.0

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    @property
    def is_exact(self) -> bool:
        return not np.any(self.error)

    @property
    def size(self) -> float:
        """The largest magnitude, as far as it is known."""
        return float(np.max(np.abs(self.array.astype(np.float64)) + self.error, initial=0.0))


@dataclass(frozen=True)
class Step:
    """An op on earlier values, by their numbers."""

    name: str
    sources: tuple[int, ...]
    arg: Any = None


@dataclass(frozen=True)
class Program:
    """Leaves, steps, and the values of the steps."""

    leaves: tuple[Value, ...]
    steps: tuple[Step, ...]
    values: tuple[Value, ...]

    @property
    def ends(self) -> list[int]:
        """The steps that no other step takes: what the program gives."""
        used = {number - len(self.leaves) for step in self.steps for number in step.sources}
        return [number for number in range(len(self.steps)) if number not in used]

    @property
    def results(self) -> list[Value]:
        return [self.values[number] for number in self.ends]

    def __repr__(self) -> str:
        leaves = ", ".join(f"{leaf.dtype.name}{list(leaf.shape)}" for leaf in self.leaves)
        return "\n  ".join([f"Program of {leaves}:", *map(repr, self.steps)])

    def build(self, leaves: list[Tensor]) -> list[Tensor]:
        """The results as tensors; nothing runs."""
        values = list(leaves)
        for step in self.steps:
            values.append(ours(step, [values[number] for number in step.sources]))
        return [values[len(leaves) + number] for number in self.ends]


METHODS: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "maximum": lambda x, y: x.maximum(y),
    "minimum": lambda x, y: x.minimum(y),
    "less": lambda x, y: x < y,
    "equal": lambda x, y: x.eq(y),
    "floordiv": lambda x, y: x // y,
    "neg": lambda x: -x,
    "abs": lambda x: x.abs(),
    "relu": lambda x: x.relu(),
    "exp2": lambda x: x.exp2(),
    "sin": lambda x: x.sin(),
    "sqrt": lambda x: (x.abs() + 1).sqrt(),
    "fraction": lambda x: (x.abs() + 1).reciprocal(),
    "clip": lambda x: x.clip(-4, 4),
    "where": lambda c, x, y: c.where(x, y),
    "matmul": lambda x, y: x @ y,
    "cat": lambda x, y: x.cat(y),
}


def ours(step: Step, sources: list[Tensor]) -> Tensor:
    """The step on tensors."""
    found: Tensor
    if step.name in METHODS:
        found = METHODS[step.name](*sources)
    elif step.name == "slice":
        found = sources[0][step.arg]
    elif step.name in ("sum", "max", "min", "cumsum"):
        found = getattr(sources[0], step.name)(step.arg)
    else:
        found = getattr(sources[0], step.name)(step.arg)
    return found


def theirs(step: Step, sources: list[Value]) -> Value:
    """The step in NumPy, with the error it adds."""
    first = sources[0]
    if step.name in ("reshape", "permute", "expand", "slice", "pad", "flip", "cat"):
        return moved(step, sources)
    if step.name == "cast":
        return converted(first, step.arg)
    with np.errstate(all="ignore"):
        if not sources[-1].dtype.is_float:
            return Value(*integers(step, [source.array for source in sources], sources[-1].dtype))
        if step.name in ("less", "equal"):
            function = np.less if step.name == "less" else np.equal
            return Value(function(first.array, sources[1].array), dtypes.bool)
        array, error, is_exact = FLOAT_STEPS[step.name](step, sources)
        return rounded(array, error, sources[-1].dtype, is_exact)


def rounded(array: Any, error: Any, dtype: DType, is_exact: bool) -> Value:
    """The exact result as `dtype` holds it."""
    nearest = quantize(array, dtype).astype(np.float64)
    kept = is_exact & (nearest == array)
    own = np.where(kept, 0.0, 1.01 * roundoff(dtype) * np.abs(array) + spacing(0.0, dtype))
    return Value(np.asarray(array), dtype, error + own)


def moved(step: Step, sources: list[Value]) -> Value:
    def each(array: Any) -> Any:
        if step.name == "pad":
            return np.pad(array, step.arg)
        if step.name == "flip":
            return np.flip(array, step.arg)
        if step.name == "slice":
            return array[step.arg]
        if step.name == "permute":
            return array.transpose(step.arg)
        return (
            array.reshape(step.arg) if step.name == "reshape" else np.broadcast_to(array, step.arg)
        )

    first = sources[0]
    errors = [np.broadcast_to(source.error, source.shape) for source in sources]
    if step.name == "cat":
        arrays = [source.array for source in sources]
        return Value(np.concatenate(arrays), first.dtype, np.concatenate(errors))
    return Value(each(first.array), first.dtype, each(errors[0]))


def converted(x: Value, dtype: DType) -> Value:
    if dtype is dtypes.bool:
        return Value(x.array != 0, dtype)
    if not dtype.is_float:
        whole = np.trunc(x.array) if x.dtype.is_float else x.array
        return Value(quantize(whole.astype(object), dtype), dtype)
    return rounded(x.array.astype(np.float64), x.error, dtype, x.is_exact)


def integers(step: Step, arrays: list[Any], dtype: DType) -> tuple[Any, DType]:
    """Integers and bools; sums are int64."""
    x = arrays[0]
    if step.name in ("sum", "cumsum"):
        function = np.sum if step.name == "sum" else np.cumsum
        return function(x, axis=step.arg, dtype=np.int64), dtypes.int64
    if step.name in ("max", "min"):
        return (np.max if step.name == "max" else np.min)(x, axis=step.arg), dtype
    if step.name in ("less", "equal"):
        return (np.less if step.name == "less" else np.equal)(x, arrays[1]), dtypes.bool
    functions: dict[str, Callable[..., Any]] = {
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "maximum": np.maximum,
        "minimum": np.minimum, "floordiv": np.floor_divide, "neg": np.negative, "abs": np.abs,
        "relu": lambda x: np.maximum(x, x.dtype.type(0)), "where": np.where,
        "matmul": np.matmul,
    }  # fmt: skip
    if dtype is dtypes.bool:
        functions |= {"add": np.logical_or, "mul": np.logical_and, "neg": np.logical_not}
    return np.asarray(functions[step.name](*arrays)), dtype


# Steps of floats: (array, error it brings along, whether nothing was rounded on the way).
Found = tuple[Any, Any, bool]


def of_sources(combine: Callable[..., Any], spread: Callable[..., Any]) -> Callable[..., Found]:
    def apply(step: Step, sources: list[Value]) -> Found:
        arrays = [source.array for source in sources]
        errors = [source.error for source in sources]
        is_exact = all(source.is_exact for source in sources)
        return combine(*arrays), spread(*arrays, *errors), is_exact

    return apply


def function(apply: Callable[[Any], Any], slope: Callable[[Any], Any]) -> Callable[..., Found]:
    """A function computed to three units in float32 at least, and its steepest slope nearby."""

    def run(step: Step, sources: list[Value]) -> Found:
        (x,) = sources
        y = apply(x.array)
        unit = roundoff(dtypes.float64 if x.dtype is dtypes.float64 else dtypes.float32)
        # Half types round the argument's steps as well.
        steps = 2 * roundoff(x.dtype) if step.name in ("sqrt", "fraction") else 0.0
        reach = np.abs(x.array) + x.error
        return y, slope(reach) * x.error * 1.01 + (8 * unit + steps) * np.abs(y) + unit * 2, False

    return run


def summed(step: Step, sources: list[Value]) -> Found:
    (x,) = sources
    scan = step.name == "cumsum"
    wide = roundoff(dtypes.float64 if x.dtype is dtypes.float64 else dtypes.float32)
    array = np.cumsum(x.array, axis=step.arg) if scan else np.sum(x.array, axis=step.arg)
    sizes = np.abs(x.array) + x.error
    total = np.cumsum(sizes, axis=step.arg) if scan else np.sum(sizes, axis=step.arg)
    errors = np.broadcast_to(x.error, x.shape)
    brought = np.cumsum(errors, axis=step.arg) if scan else np.sum(errors, axis=step.arg)
    if x.is_exact and is_coarse(x.array) and np.max(total, initial=0.0) < 2.0**16:
        return array, brought, True
    count = x.shape[step.arg]
    return array, brought + count * wide * total, False


def is_coarse(array: Any) -> bool:
    """Whether all are multiples of 1/64, so that sums below 2**17 are exact in float32."""
    return bool(np.all(array * 64 == np.rint(array * 64)))


def multiplied(step: Step, sources: list[Value]) -> Found:
    x, y = sources
    array = x.array @ y.array
    big_x, big_y = np.abs(x.array) + x.error, np.abs(y.array) + y.error
    total = big_x @ big_y
    brought = total - np.abs(x.array) @ np.abs(y.array)
    products = x.is_exact and y.is_exact and is_coarse(x.array * 8) and is_coarse(y.array * 8)
    if products and x.dtype.itemsize >= 4 and x.size * y.size * x.shape[1] < 2.0**12:
        return array, brought, True
    wide = roundoff(dtypes.float64 if x.dtype is dtypes.float64 else dtypes.float32)
    least = spacing(0.0, x.dtype)
    return (
        array,
        brought + (x.shape[1] * wide + roundoff(x.dtype)) * total + x.shape[1] * least,
        False,
    )


FLOAT_STEPS: dict[str, Callable[[Step, list[Value]], Found]] = {
    "add": of_sources(np.add, lambda x, y, e, f: e + f),
    "sub": of_sources(np.subtract, lambda x, y, e, f: e + f),
    "mul": of_sources(np.multiply, lambda x, y, e, f: np.abs(x) * f + np.abs(y) * e + e * f),
    "maximum": of_sources(np.maximum, lambda x, y, e, f: np.maximum(e, f)),
    "minimum": of_sources(np.minimum, lambda x, y, e, f: np.maximum(e, f)),
    "neg": of_sources(np.negative, lambda x, e: e),
    "abs": of_sources(np.abs, lambda x, e: e),
    "relu": of_sources(lambda x: np.maximum(x, 0), lambda x, e: e),
    "clip": of_sources(lambda x: np.clip(x, -4, 4), lambda x, e: e),
    "where": of_sources(np.where, lambda c, x, y, a, e, f: np.where(c, e, f)),
    "exp2": function(np.exp2, lambda reach: np.exp2(reach)),
    "sin": function(np.sin, lambda reach: 1.0),
    "sqrt": function(lambda x: np.sqrt(np.abs(x) + 1), lambda reach: 0.5),
    "fraction": function(lambda x: 1 / (np.abs(x) + 1), lambda reach: 1.0),
    "sum": summed,
    "cumsum": summed,
    "max": lambda step, sources: extreme(np.max, step, sources[0]),
    "min": lambda step, sources: extreme(np.min, step, sources[0]),
    "matmul": multiplied,
}


def extreme(function: Callable[..., Any], step: Step, x: Value) -> Found:
    errors = np.broadcast_to(x.error, x.shape)
    return function(x.array, axis=step.arg), np.max(errors, axis=step.arg), x.is_exact
