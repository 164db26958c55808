"""Sizes of shapes, strides and masks: integers, or index nodes where a `Variable` takes part.

A size has a canonical form (`tidy`), so that equal sizes compare equal: an integer wherever it is
one, else a sum of products in a fixed order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilegrad.base.dtype import DType, dtypes
from tilegrad.ir.op import Ops
from tilegrad.ir.rules import simplify
from tilegrad.ir.text import render
from tilegrad.ir.uop import UOp, prod, sint

__all__ = [
    "Sizes", "as_node", "as_value", "divide", "highest", "is_less", "is_one", "is_zero", "larger",
    "lowest", "number_at", "of_products", "products", "row_major", "shape_text", "size_text",
    "smaller", "tidy", "tidy_all",
]  # fmt: skip

Sizes = tuple[sint, ...]


def tidy(value: Any) -> Any:
    """A size in canonical form: an integer wherever it is one, else a sum of ordered products."""
    if isinstance(value, int):
        return value
    value = simplify(value)
    if value.op is Ops.CONST:
        return value.arg
    return value if value.op is Ops.DEFINE_VAR else of_products(products(value))


def products(value: Any) -> dict[tuple[UOp, ...], int]:
    """A size as {factors: coefficient}."""
    if isinstance(value, int):
        return {(): value}
    if value.op is Ops.CONST:
        return {(): value.arg}
    if value.op not in (Ops.ADD, Ops.MUL):
        return {(value,): 1}
    left, right = products(value.src[0]), products(value.src[1])
    if value.op is Ops.ADD:
        return {factors: left.get(factors, 0) + right.get(factors, 0) for factors in left | right}
    found: dict[tuple[UOp, ...], int] = {}
    for ours, scale in left.items():
        for theirs, other in right.items():
            factors = tuple(sorted(ours + theirs, key=_name))
            found[factors] = found.get(factors, 0) + scale * other
    return found


def _name(factor: UOp) -> tuple[str, bytes]:
    """The sort key of factors: their text, and where that is equal, their digest."""
    return render(factor), factor.key


def of_products(products: Mapping[tuple[UOp, ...], int]) -> Any:
    """The size of {factors: coefficient} in canonical form; factors are in the order of names."""
    total: UOp | None = None
    for factors in sorted(products, key=lambda factors: (-len(factors), *map(_name, factors))):
        scale = products[factors]
        if not factors or scale == 0:
            continue
        term = prod(factors) * scale if scale != 1 else prod(factors)
        total = term if total is None else total + term
    constant = products.get((), 0)
    return constant if total is None else total + constant if constant else total


def tidy_all(values: Sequence[Any]) -> tuple[Any, ...]:
    """Each size in canonical form."""
    return tuple([value if value.__class__ is int else tidy(value) for value in values])


def lowest(value: Any) -> int:
    """The smallest value of a size."""
    return value if isinstance(value, int) else int(value.vmin)


def highest(value: Any) -> int:
    """The largest value of a size."""
    return value if isinstance(value, int) else int(value.vmax)


def number_at(size: Any, values: Mapping[UOp, int]) -> int:
    """A size as a number, where its variables have `values`."""
    if isinstance(size, int):
        return size
    numbers = {variable: UOp.const(variable.dtype, value) for variable, value in values.items()}
    return int(simplify(size.substitute(numbers)).arg)


def is_less(left: Any, right: Any) -> bool:
    """Whether `left` < `right` for all values of the variables in them."""
    return highest(tidy(left - right)) < 0


def larger(left: Any, right: Any) -> Any:
    """The larger of two sizes; a node where that depends on the variables."""
    difference = tidy(left - right)
    if lowest(difference) >= 0:
        return left
    if highest(difference) <= 0:
        return right
    return tidy(as_node(left).maximum(right))


def smaller(left: Any, right: Any) -> Any:
    """The smaller of two sizes; a node where that depends on the variables."""
    return tidy(-1 * larger(-1 * left, -1 * right))


def as_value(size: Any, dtype: DType) -> UOp:
    """A size as a number of the graph."""
    return UOp(Ops.CAST, dtype, (size,)) if isinstance(size, UOp) else UOp.const(dtype, size)


def is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1


def is_zero(size: Any) -> bool:
    return isinstance(size, int) and size == 0


def as_node(value: Any) -> UOp:
    """A size as an index node, for arithmetic with others."""
    return UOp.const(dtypes.index, value)


def divide(total: Any, divisor: Any) -> Any:
    """total / divisor where that is exact, else None."""
    if isinstance(total, int) and isinstance(divisor, int):
        return total // divisor if divisor and total % divisor == 0 else None
    if total is divisor:
        return 1
    ours, theirs = products(total), products(divisor)
    leading, by = next(iter(theirs.items()))
    quotient: dict[tuple[UOp, ...], int] = {}
    for factors, scale in ours.items():
        rest = list(factors)
        if by == 0 or scale % by or any(leading.count(f) > rest.count(f) for f in leading):
            if len(theirs) == 1:
                return None
            continue
        for factor in leading:
            rest.remove(factor)
        quotient[tuple(rest)] = scale // by
    found = of_products(quotient)
    # With several terms the quotient is a guess from the leading one.
    return found if len(theirs) == 1 or tidy(as_node(found) * divisor) is total else None


def row_major(shape: Sizes) -> Sizes:
    """The strides of elements in order, the last axis fastest."""
    strides: list[Any] = []
    stride: Any = 1
    for size in reversed(shape):
        strides.append(stride)
        stride = tidy(stride * size)
    return tuple(reversed(strides))


def size_text(size: Any) -> str:
    return str(size) if isinstance(size, int) else render(size)


def shape_text(shape: Sequence[Any]) -> str:
    inside = ", ".join(size_text(size) for size in shape)
    return f"({inside},)" if len(shape) == 1 else f"({inside})"
