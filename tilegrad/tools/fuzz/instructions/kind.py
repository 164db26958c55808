"""Instructions, and the values that they take and make."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["EPSILON", "FLOATS", "Instruction", "Value", "array_module", "magnitude"]

FLOATS = ("float32", "float64")
EPSILON = 6e-8
_ALL = ("float32", "int8", "uint8", "int16", "int32", "uint32", "int64", "bool")


def array_module() -> Any:
    """NumPy, which is not needed to list the instructions."""
    import numpy

    return numpy


@dataclass
class Value:
    """A value of a program.

    Attributes:
        array: what it is in NumPy: float64 for floats, else of its own dtype. Views are views.
        dtype: its dtype in tilegrad.
        error: how far from `array` a right float32 result may be; 0: it has to be equal.
        is_wild: it may hold NaN, infinities and numbers of any size, each rounded to float32.
        is_symbolic: its first axis has the size of a bound Variable.
        is_repeated: elements of it share memory, so that it cannot be written to.
        is_zero_loose: the sign of its zeros hangs on an order that nothing fixes.
    """

    array: Any
    dtype: str
    error: float = 0.0
    is_wild: bool = False
    is_symbolic: bool = False
    is_repeated: bool = False
    is_zero_loose: bool = False

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS


def magnitude(value: Any) -> float:
    """The largest absolute value."""
    import numpy as np

    array = value.array if isinstance(value, Value) else np.asarray(value)
    return float(np.abs(array.astype("f8")).max()) if array.size else 0.0


def _any_drawn(chance: random.Random, given: Sequence[Value]) -> tuple[Any, ...] | None:
    return ()


def _sum_of_errors(given: Sequence[Value], out: Any, *params: Any) -> float:
    return sum([value.error for value in given])


Draw = Callable[[random.Random, Sequence[Value]], "tuple[Any, ...] | None"]


@dataclass(frozen=True)
class Instruction:
    """One kind of step.

    Attributes:
        line: an expression, formatted with the operands' names `a`, `b` and the parameters `p`.
        meaning: the same in NumPy, of arrays and parameters.
        draw: parameters for operands; None where these do not suit.
        takes: the dtypes of the operands, which are all of one dtype, but for `mixed` ones.
        gives: the dtype of the result, None for that of the first operand.
        error: a bound of the error that the operands' errors make; by default their sum.
        rounding: what rounding adds, in units of float32's epsilon times the largest value.
        is_exact: float32 has the result exactly where sums of quarters and the like are.
        needs_exact: a rounded operand might make another result: comparisons, floor, casts.
        sees_zero: the sign of a zero of the last operand shows in the result.
        has_loose_zero: the sign of a zero result is not fixed: it is a sum, or one of equal zeros.
        is_wild_safe: defined for NaN, infinities and huge numbers, with one rounding at most.
        any_size: it suits a first axis of symbolic size.
        is_view: the result is an alias of the first operand.
        is_write: it changes the first operand's memory, and gives that operand.
        statement: a line that runs before `line`: what a write does.
        fresh: dtype and shape of inputs made for this step, from its parameters.
        torch: the expression for PyTorch; None where it has none; "" if it is the same.
    """

    name: str
    arity: int
    line: str
    meaning: Callable[..., Any]
    draw: Draw = _any_drawn
    takes: tuple[str, ...] = _ALL
    gives: str | None = None
    error: Callable[..., float] = _sum_of_errors
    rounding: float = 4.0
    is_exact: bool = True
    needs_exact: bool = False
    sees_zero: bool = False
    has_loose_zero: bool = False
    is_wild_safe: bool = False
    any_size: bool = False
    mixed: bool = False
    is_view: bool = False
    is_write: bool = False
    statement: str = ""
    fresh: Callable[..., Any] | None = None
    torch: str | None = ""
