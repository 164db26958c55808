"""The sizes of a graph as polynomials of unknowns, and the check of other graphs against them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field

from tilegrad.ir import polynomial as poly
from tilegrad.ir.polynomial import Polynomial
from tilegrad.ir.size_patterns import Sizes

__all__ = ["Explained", "Shape"]

Shape = list[Polynomial]


@dataclass
class Explained:
    """The sizes of a graph as polynomials of unknowns.

    Attributes:
        sizes: the formula of each size of the graph; None for the offset of a slice of memory that
            may be anywhere (`ir.slices`), and for a number that is a variable of the launches.
        shapes: the shape of each node.
        low, high: the bounds of the unknowns.
        defined: for each unknown, a size that is this unknown.
        paddings: of slices whose sources are padded, by how much along each axis.
    """

    sizes: list[Polynomial | None]
    shapes: list[Shape]
    low: list[int]
    high: list[int]
    defined: list[int]
    paddings: dict[int, list[int]]
    _same: list[tuple[int, int]] = field(default_factory=list)
    _others: list[tuple[Polynomial, list[int]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        positions: dict[tuple[tuple[tuple[int, ...], int], ...], list[int]] = {}
        for position, size in enumerate(self.sizes):
            if size is not None and poly.is_constant(size):
                self._same.append((position, size.get((), 0)))
            elif size is not None:
                positions.setdefault(tuple(sorted(size.items())), []).append(position)
        self._others = [(dict(size), several) for size, several in positions.items()]

    def values(self, sizes: Sizes) -> list[int] | None:
        """The unknowns of a graph with these sizes; None if they do not explain these."""
        values = [sizes[position] for position in self.defined]
        for value, low, high in zip(values, self.low, self.high):
            if not low <= value <= high:
                return None
        return values if self.is_explained(sizes, values) else None

    def beyond(self, sizes: Sizes) -> int:
        """1 if a graph with these sizes is this one, but for unknowns that are larger than planned,
        -1 for smaller ones, 0 if it is another.
        """
        values = [sizes[position] for position in self.defined]
        if not self.is_explained(sizes, values):
            return 0
        return -1 if any(map(operator.lt, values, self.low)) else 1

    def is_explained(self, sizes: Sizes, values: Sequence[int]) -> bool:
        """Whether a graph with these sizes is this one, where its unknowns are `values`."""
        for position, size in self._same:
            if sizes[position] != size:
                return False
        for what, positions in self._others:
            expected = poly.evaluate(what, values)
            for position in positions:
                if sizes[position] != expected:
                    return False
        return True
