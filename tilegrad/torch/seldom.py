"""Functions of `torch` that programs seldom name: copies of results that others give as views,
functions under older names, and those behind other functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import ConfigError
from tilegrad.torch.complexes import ones_like, tensor
from tilegrad.torch.lu_factors import unpacked
from tilegrad.torch.naming import called
from tilegrad.torch.nn import functional
from tilegrad.torch.tensor import as_ours

__all__ = [
    "CountsAndAllEdges", "TriangularSolution", "constant_pad_nd", "fill",
    "grid_sampler", "grid_sampler_2d", "grid_sampler_3d", "histogramdd", "lu_unpack",
    "slice_copy", "triangular_solve", "unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes",
]  # fmt: skip

# Methods that give views; each function NAME_copy gives copies of these.
_VIEWS = (
    "alias", "as_strided", "detach", "diagonal", "expand", "narrow", "permute", "select",
    "split", "split_with_sizes", "squeeze", "t", "transpose", "unbind", "unfold", "unsqueeze",
    "view", "view_as_complex", "view_as_real",
)  # fmt: skip
_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


class TriangularSolution(NamedTuple):
    """Result of `triangular_solve`."""

    solution: Any
    cloned_coefficient: Any


class CountsAndAllEdges(NamedTuple):
    """Result of `histogramdd`."""

    hist: Any
    bin_edges: Any


def _of_view(name: str) -> Callable[..., Any]:
    from tilegrad.torch import complex as complex_module

    def copy(input: Any, *args: Any, **options: Any) -> Any:
        if name == "alias":
            return input.clone()
        outside = getattr(complex_module, name, None)
        given = as_ours(input)
        found = outside(given) if outside is not None else getattr(given, name)(*args, **options)
        if isinstance(found, (tuple, list)):
            return [each.clone() for each in found]
        return found.clone()

    copy.__doc__ = f"A copy of what `{name}` gives as a view."
    return called(copy, f"{name}_copy")


globals().update({f"{name}_copy": _of_view(name) for name in _VIEWS})


def slice_copy(
    input: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Any:
    """A copy of a slice along an axis."""
    key = [slice(None)] * input.ndim
    key[dim] = slice(start, end, step)
    return as_ours(input)[tuple(key)].clone()


def fill(input: Any, value: Any) -> Any:
    """A tensor like another one, of one number, to which gradients flow where it is a tensor."""
    given = as_ours(input)
    everywhere = ones_like(given, dtype=dtypes.bool)
    return given.masked_fill(everywhere, value)


def constant_pad_nd(input: Any, pad: Sequence[int], value: Any = 0) -> Any:
    """With a number added around; negative amounts cut off."""
    return functional.pad(input, tuple(pad), value=value)


def unsafe_chunk(input: Any, chunks: int, dim: int = 0) -> Any:
    """As `chunk`."""
    return as_ours(input).chunk(chunks, dim)


def unsafe_split(tensor: Any, split_size: Any, dim: int = 0) -> Any:
    """As `split`."""
    return as_ours(tensor).split(split_size, dim)


def unsafe_split_with_sizes(input: Any, split_sizes: Sequence[int], dim: int = 0) -> Any:
    """As `split_with_sizes`."""
    return as_ours(input).split(list(split_sizes), dim)


def grid_sampler(
    input: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Any:
    """As `grid_sample`, with numbers for the modes: bilinear, nearest, bicubic; zeros, border,
    reflection.
    """
    for name, mode, known in (
        ("interpolation_mode", interpolation_mode, _MODES),
        ("padding_mode", padding_mode, _PADDINGS),
    ):
        if not 0 <= mode < len(known):
            raise ConfigError(f"grid_sampler: no {name} {mode}: 0 to {len(known) - 1}")
    return functional.grid_sample(
        input, grid, _MODES[interpolation_mode], _PADDINGS[padding_mode], align_corners
    )


grid_sampler_2d = grid_sampler_3d = grid_sampler


def lu_unpack(
    LU_data: Any, LU_pivots: Any, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Any, Any, Any]:
    """The permutation, the lower and the upper triangular matrix in a result of `lu_factor`; empty
    tensors for those that are not unpacked.
    """
    permutation, lower, upper = unpacked(as_ours(LU_data), as_ours(LU_pivots))
    empty = lower.new_zeros(0)
    factors = (lower, upper) if unpack_data else (empty, empty)
    return (permutation if unpack_pivots else empty, *factors)


def triangular_solve(
    b: Any, A: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> TriangularSolution:
    """The X of A X = b for a triangular A, or of A^H X = b with `transpose`; and a copy of A."""
    matrix = as_ours(A)
    given, is_upper = (matrix.mH, not upper) if transpose else (matrix, upper)
    right = as_ours(b)
    batch = numpy.broadcast_shapes(given.shape[:-2], right.shape[:-2])
    found = given.expand(*batch, *given.shape[-2:]).solve_triangular(
        right.expand(*batch, *right.shape[-2:]), upper=is_upper, unitriangular=unitriangular
    )
    return TriangularSolution(found, matrix.clone())


def histogramdd(
    input: Any, bins: Any, *, range: Any = None, weight: Any = None, density: bool = False
) -> CountsAndAllEdges:
    """How many rows fall into each box of a grid: `bins` are counts, or the edges of each axis;
    `range` holds the lowest and the highest edge of each axis, one after the other. Counted at once
    by NumPy.
    """
    points = as_ours(input).detach().reshape(-1, input.shape[-1])
    numbers = points.numpy()
    axes = numbers.shape[-1]
    counts: list[Any] = [bins] * axes if isinstance(bins, int) else list(bins)
    kind = numbers.dtype
    if hasattr(counts[0], "ndim"):
        edges = [each.detach().numpy() for each in counts]
    else:
        pairs = (
            list(zip(range[::2], range[1::2]))
            if range is not None
            else [(column.min(), column.max()) if len(column) else (0, 0) for column in numbers.T]
        )
        wide = [(low - 0.5, low + 0.5) if low == high else (low, high) for low, high in pairs]
        edges = [
            numpy.linspace(low, high, count + 1).astype(kind)
            for (low, high), count in zip(wide, counts, strict=True)
        ]
    weights = None if weight is None else as_ours(weight).detach().numpy().reshape(-1)
    found, _ = numpy.histogramdd(numbers, edges, weights=weights, density=density)
    return CountsAndAllEdges(tensor(found.astype(kind)), tuple(tensor(each) for each in edges))
