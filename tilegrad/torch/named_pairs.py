"""Named results: what `max(dim)`, `sort`, `topk` and the like give, to be unpacked or asked by
name.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = [
    "CountsAndEdges", "LowestAndHighest", "MantissaAndExponent", "ValuesAndIndices", "pair_of",
    "wide_pair",
]  # fmt: skip


class ValuesAndIndices(NamedTuple):
    """Values, and where they stand along the axis."""

    values: Any
    indices: Any

    def __repr__(self) -> str:
        name = getattr(type(self), "_method", "pair")
        return f"torch.return_types.{name}(\nvalues={self.values!r},\nindices={self.indices!r})"


class LowestAndHighest(NamedTuple):
    """The smallest and the largest values."""

    min: Any
    max: Any

    def __repr__(self) -> str:
        return f"torch.return_types.aminmax(\nmin={self.min!r},\nmax={self.max!r})"


class CountsAndEdges(NamedTuple):
    """How many values lie in each bin, and where the bins end."""

    hist: Any
    bin_edges: Any

    def __repr__(self) -> str:
        return f"torch.return_types.histogram(\nhist={self.hist!r},\nbin_edges={self.bin_edges!r})"


class MantissaAndExponent(NamedTuple):
    """Numbers as a mantissa times a power of 2."""

    mantissa: Any
    exponent: Any

    def __repr__(self) -> str:
        text = f"mantissa={self.mantissa!r},\nexponent={self.exponent!r}"
        return f"torch.return_types.frexp(\n{text})"


_kinds: dict[str, type[ValuesAndIndices]] = {}


def pair_of(name: str, values: Any, indices: Any) -> ValuesAndIndices:
    """The result of the method `name`."""
    kind = _kinds.get(name)
    if kind is None:
        space = {"__slots__": (), "_method": name, "__module__": __name__}
        kind = _kinds.setdefault(name, type("ValuesAndIndices", (ValuesAndIndices,), space))
    return kind(values, indices)


def wide_pair(name: str, found: Any) -> ValuesAndIndices:
    """The result of the method `name` from a pair of values and indices: the indices in int64."""
    values, indices = found
    return pair_of(name, values, indices.long())
