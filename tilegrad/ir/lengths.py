"""Lengths: sizes that are variables of a launch although the user wrote numbers.

A graph that comes with one size after the other is planned once, with *lengths* for these sizes:
variables whose values the engine finds in each graph. A `Variable` of the user has memory for its
largest value, as one tensor is used at many values. A length has memory for its value in the
launch: a tensor that such a run computes has the memory that a run planned for numbers gives it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tilegrad.ir.op import Ops
from tilegrad.ir.sizes import products
from tilegrad.ir.uop import UOp, prod, sint

__all__ = [
    "Terms", "extent_of", "is_length", "length_name", "length_variable", "memory_shape",
    "terms_of", "text_of", "value_of",
]  # fmt: skip

_PREFIX = "_length"
_NAME = re.compile(rf"{_PREFIX}\d+")

Terms = tuple[tuple[int, tuple[str, ...]], ...]
"""A size as a sum of products: for each product a factor, and the names of variables."""


def length_name(number: int) -> str:
    """The name of length number `number`."""
    return f"{_PREFIX}{number}"


def length_variable(number: int, low: int, high: int) -> UOp:
    """Length number `number`, from `low` to `high`."""
    return UOp.variable(length_name(number), low, high)


def is_length(size: Any) -> bool:
    """Whether a size depends on a length."""
    return isinstance(size, UOp) and any(
        node.op is Ops.DEFINE_VAR and _NAME.fullmatch(node.name) for node in size.toposort()
    )


def memory_shape(shape: Sequence[Any]) -> tuple[sint, ...]:
    """Sizes as memory has them: a length its value, a Variable its maximum."""
    return tuple([
        size if isinstance(size, int) or is_length(size) else int(size.vmax) for size in shape
    ])  # fmt: skip


def extent_of(shape: Sequence[Any]) -> UOp | None:
    """The number of elements of memory of this shape, if it is a launch variable; None for a
    number.
    """
    sizes = memory_shape(shape)
    if all(isinstance(size, int) for size in sizes):
        return None
    extent: UOp = prod(sizes)
    return extent


def terms_of(size: sint) -> Terms:
    """A size made of sums and products only, in a form that is evaluated without its node."""
    return tuple([
        (scale, tuple([factor.name for factor in factors]))
        for factors, scale in products(size).items()
    ])  # fmt: skip


def value_of(terms: Terms, values: Mapping[str, int]) -> int:
    """The value of a size for the values of its variables."""
    total = 0
    for scale, names in terms:
        for name in names:
            scale *= values[name]
        total += scale
    return total


def text_of(terms: Terms, values: str) -> str:
    """`value_of` as an expression in Python, of a mapping called `values`."""
    products = [
        "*".join([str(scale), *[f"{values}[{name!r}]" for name in names]]) for scale, names in terms
    ]
    return " + ".join(products) or "0"
