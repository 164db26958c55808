"""Sizes and axes as users write them, made uniform and checked.

A size is an integer, or an index node where a `Variable` takes part. Bound values leave the node
here: the graph holds variables only, and the tensor keeps their values beside it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import DTypeError, IndexBoundsError, ShapeError
from tilegrad.base.origin import call_site, user_line
from tilegrad.ir.op import Ops
from tilegrad.ir.rules import simplify
from tilegrad.ir.sizes import is_one, is_zero
from tilegrad.ir.uop import UOp, sint

__all__ = [
    "NO_VARIABLES", "Variables", "are_plain", "as_axes", "as_axis", "as_int", "as_number",
    "as_size", "as_sizes",
    "ceil_divide", "divide",
    "flat_arguments", "here", "index_dtype", "is_of_number", "is_one", "is_zero", "merge",
    "multiply", "same",
    "same_shape", "show_shape", "show_size", "simple", "sum_of",
]  # fmt: skip

Variables = Mapping[UOp, int]
NO_VARIABLES: Variables = {}


def here() -> str:
    """The user's line of this moment, for an error."""
    return user_line((call_site(),))


def index_dtype(sizes: Sequence[Any]) -> DType:
    """The dtype of positions and counts among `sizes` elements: int32, or int64 if some do not
    fit.
    """
    most = math.prod(size if isinstance(size, int) else size.vmax for size in sizes)
    return dtypes.int32 if most < 1 << 31 else dtypes.int64


def simple(size: Any) -> sint:
    """A size in its simplest form: an integer if it has one value only."""
    if isinstance(size, int):
        return size
    node: UOp = simplify(size)
    return int(node.vmin) if node.vmin == node.vmax else node


def merge(first: Variables, second: Variables) -> Variables:
    """The values of both.

    Raises ShapeError if a variable has two values.
    """
    if not second or first is second:
        return first
    if not first:
        return second
    for variable, value in second.items():
        if first.get(variable, value) != value:
            raise ShapeError(
                f"variable {variable.name!r} has two values in one graph: "
                f"{first[variable]} and {value}"
            )
    return {**first, **second}


def as_int(name: str, what: str, value: Any) -> int:
    """`value` as an integer; anything with `__index__` is one, a bool is not."""
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    kind = "a Variable" if isinstance(value, UOp) else repr(value)
    raise DTypeError(f"{name}: {what} must be an integer, not {kind}")


def as_number(name: str, what: str, value: Any) -> float:
    """`value`, which shapes the graph and so must be a number of Python's, or one that becomes one.

    Raises DTypeError for a symbolic integer or anything else.
    """
    if type(value) is int or type(value) is float:
        return value
    if hasattr(value, "__index__"):
        return operator.index(value)
    if not isinstance(value, UOp) and hasattr(value, "__float__"):
        return float(value)
    kind = "a Variable" if isinstance(value, UOp) else repr(value)
    raise DTypeError(f"{name}: {what} must be a number, not {kind}")


def as_size(name: str, value: Any) -> tuple[sint, Variables]:
    """A size, and the values of the variables in it."""
    if type(value) is int:
        return value, NO_VARIABLES
    if isinstance(value, UOp):
        if not value.dtype.is_int:
            raise DTypeError(f"{name}: a size must be an integer, not {value.dtype!r}")
        free, found = value.unbound()
        return simple(free if free.dtype is dtypes.index else free.cast(dtypes.index)), found
    return as_int(name, "a size", value), NO_VARIABLES


def are_plain(sizes: Iterable[Any]) -> bool:
    """Whether all sizes are integers from 0 on, as they nearly always are: then plain arithmetic
    will do.
    """
    for size in sizes:
        if type(size) is not int or size < 0:
            break
    else:
        return True
    return False


def flat_arguments(args: Sequence[Any]) -> Sequence[Any]:
    """`f(2, 3)` and `f((2, 3))` are one."""
    return tuple(args[0]) if len(args) == 1 and isinstance(args[0], (tuple, list)) else args


def as_sizes(name: str, args: Iterable[Any], least: int = 0) -> tuple[tuple[sint, ...], Variables]:
    """Sizes of at least `least`, and the values of the variables in them."""
    variables = NO_VARIABLES
    sizes: list[sint] = []
    for value in args:
        size, found = as_size(name, value)
        if (size if isinstance(size, int) else size.vmax) < least:
            raise ShapeError(f"{name}: size {size} is negative", sizes=show_shape(tuple(args)))
        variables = merge(variables, found)
        sizes.append(size)
    return tuple(sizes), variables


def as_axis(name: str, axis: Any, ndim: int) -> int:
    """An axis counted from the front; negative ones count from the back.

    Raises IndexBoundsError if there is no such axis.
    """
    number = axis if type(axis) is int else as_int(name, "an axis", axis)
    if not -ndim <= number < ndim:
        allowed = f"{-ndim} to {ndim - 1}" if ndim else "none, it has no axes"
        raise IndexBoundsError(
            f"{name}: axis {number} is out of range for {ndim} axes", allowed=allowed
        )
    return number + ndim if number < 0 else number


def is_of_number(axis: Any, ndim: int) -> bool:
    """Whether `axis` is 0 or -1 of a tensor without axes: one number counts as a row of one where
    an axis is reduced, scanned or sorted.
    """
    return not ndim and type(axis) is int and -1 <= axis <= 0


def as_axes(name: str, axes: Any, ndim: int) -> tuple[int, ...]:
    """Axes counted from the front, in order; None means all of them. Axis 0 and -1 of one number
    are none.
    """
    if axes is None:
        return tuple(range(ndim))
    if is_of_number(axes, ndim):
        return ()
    if type(axes) is int:
        return (as_axis(name, axes, ndim),)
    given = axes if isinstance(axes, (tuple, list)) else (axes,)
    if len(given) == 1 and is_of_number(given[0], ndim):
        return ()
    found = [as_axis(name, axis, ndim) for axis in given]
    if len(set(found)) != len(found):
        raise ShapeError(f"{name}: an axis is named twice: {tuple(axes)}")
    return tuple(sorted(found))


def same(first: sint, second: sint) -> bool:
    """Whether two sizes are equal whatever the variables; nodes are interned, so equal ones are
    identical.
    """
    if type(first) is int is type(second):
        return first == second
    if isinstance(first, UOp) or isinstance(second, UOp):
        return first is second or simple(first) == simple(second)
    return first == second


def same_shape(first: tuple[Any, ...], second: tuple[Any, ...]) -> bool:
    if first == second or len(first) != len(second):
        return first == second
    return all(map(same, first, second))


def multiply(sizes: Iterable[sint]) -> sint:
    """The product of sizes."""
    sizes = tuple(sizes)
    if are_plain(sizes):
        return math.prod(sizes)
    total: Any = 1
    for size in sizes:
        total = size if is_one(total) else total * size
    return simple(total)


def sum_of(sizes: Iterable[sint]) -> sint:
    """The sum of sizes."""
    total: Any = 0
    for size in sizes:
        total = size if is_zero(total) else total + size
    return simple(total)


def _factors(sizes: Iterable[sint]) -> list[sint]:
    """Factors of a product of sizes: numbers, and nodes that are no products."""
    found: list[sint] = []
    stack = list(sizes)[::-1]
    while stack:
        size = stack.pop()
        if isinstance(size, UOp) and size.op is Ops.MUL:
            stack += size.src[::-1]
        else:
            found.append(simple(size))
    return found


def divide(total: Iterable[sint], divisors: Iterable[sint]) -> sint | None:
    """The product of `total` over that of `divisors`, or None unless it is whole for every value of
    the variables.
    """
    left, right = _factors(total), []
    for factor in _factors(divisors):
        if isinstance(factor, UOp) and any(factor is other for other in left):
            left.remove(factor)
        else:
            right.append(factor)
    return _quotient(multiply(left), multiply(right))


def _quotient(total: sint, divisor: sint) -> sint | None:
    if isinstance(total, int) and isinstance(divisor, int):
        return total // divisor if divisor and total % divisor == 0 else None
    whole = simple(total) if isinstance(total, int) else total
    remainder = simple(whole % divisor)
    return simple(whole // divisor) if is_zero(remainder) else None


def ceil_divide(total: sint, divisor: sint) -> sint:
    return simple((total + (divisor - 1)) // divisor)


def show_shape(shape: Iterable[Any]) -> str:
    """A shape as users read it: symbolic sizes by their variables' names."""
    sizes = [show_size(simple(size) if isinstance(size, UOp) else size) for size in shape]
    return f"({sizes[0]},)" if len(sizes) == 1 else f"({', '.join(sizes)})"


_SIGNS = {"ADD": "+", "MUL": "*", "FLOORDIV": "//", "FLOORMOD": "%"}


def show_size(size: Any) -> str:
    if not isinstance(size, UOp):
        return str(size)
    if size.op.name == "DEFINE_VAR":
        return str(size.name)
    if size.op is Ops.CONST:
        return str(size.arg)
    if size.op.name in _SIGNS:
        return f"({f' {_SIGNS[size.op.name]} '.join(show_size(each) for each in size.src)})"
    return show_size(size.src[0]) if size.src else "?"
