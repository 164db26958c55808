"""Results that are several tensors, with the names that PyTorch gives them."""

from __future__ import annotations

import weakref
from typing import Any, Generic, NamedTuple, TypeVar

__all__ = ["Extremes", "Ranked", "ValuesAlone"]


T = TypeVar("T")


class Ranked(NamedTuple, Generic[T]):
    """Values and the positions, as int32, where they stand along the axis they were picked from."""

    values: T
    indices: T


class Extremes(NamedTuple, Generic[T]):
    """The smallest and the largest values."""

    min: T
    max: T


class ValuesAlone:
    """Which call gave the values of a tensor that is a pair in PyTorch: `max` or `min` over `axis`
    of `source`, a node, or a call whose node is not made. The source may be much larger than the
    values, so it is kept alive only from when the tensor is used as a pair until its indices are
    known.
    """

    __slots__ = ("alive", "axis", "indices", "keepdim", "name", "source")

    def __init__(self, name: str, axis: int, keepdim: bool, source: Any):
        self.name, self.axis, self.keepdim = name, axis, keepdim
        self.source = weakref.ref(source)
        self.alive: Any = None
        self.indices: Any = None

    @property
    def call(self) -> str:
        return f"{self.name}({self.axis})"
