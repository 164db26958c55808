"""Named results: what `max(dim)`, `sort`, `topk` and the like give, to be unpacked or asked by
name.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["ValuesAndIndices", "wide_pair"]


class ValuesAndIndices(NamedTuple):
    """Values, and where they stand along the axis."""

    values: Any
    indices: Any


def wide_pair(found: Any) -> ValuesAndIndices:
    """A pair of values and indices with int64 indices."""
    values, indices = found
    return ValuesAndIndices(values, indices.long())
