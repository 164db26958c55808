"""Images of another size: `interpolate`, `grid_sample`, `max_unpool2d`.

An output element is a weighted sum of a few elements of the input. `interpolate` goes axis by axis,
as positions in the input are known beforehand; `grid_sample` reads them from a tensor.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Self, TypeVar

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import (
    ConfigError,
    DTypeError,
    ShapeError,
    UnsupportedDTypeError,
    UnsupportedError,
    check_choice,
)
from tilegrad.base.origin import composed
from tilegrad.tensor.calls.number_tables import number_table
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.composed.grid_positions import GridAxis, GridPositions
from tilegrad.tensor.composed.resampling_filters import (
    FilterWindow,
    Steps,
    antialiasing_filter,
    filter_window,
    scales_of,
)
from tilegrad.tensor.handle.aliases import valued
from tilegrad.tensor.handle.core import Core, check_devices, describe
from tilegrad.tensor.handle.size_arguments import as_int, index_dtype, show_shape

__all__ = ["Resampling"]

# Other names of the modes, which say the number of axes too.
_MODES = {
    "linear": "linear", "bilinear": "linear", "trilinear": "linear", "nearest": "nearest",
    "nearest-exact": "nearest-exact", "bicubic": "cubic", "cubic": "cubic", "area": "area",
}  # fmt: skip
Resampled = TypeVar("Resampled", bound="Resampling")

_GRID_MODES = ("bilinear", "trilinear", "linear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")
# PyTorch 2.13 on x86 takes the four corners at once of a new image up to this height plus width.
# The order in which it adds them, found by trial, depends on whether channels fill a vector.
_LARGEST_BY_CORNERS, _VECTOR_BYTES = 128, 32
_IN_VECTORS, _ALONE = (2, 3, 1, 0), (1, 0, 2, 3)


class Resampling(GridPositions):
    """Resampling methods."""

    __slots__ = ()

    @templated
    @valued
    @composed
    def interpolate(
        self,
        size: int | Sequence[int] | None = None,
        mode: str = "linear",
        align_corners: bool = False,
        scale_factor: float | Sequence[float] | None = None,
        antialias: bool = False,
    ) -> Self:
        """Resample the last axes to other sizes.

        Elements are small areas side by side, or with `align_corners` points. Integers are computed
        as floats and rounded, halves to the even one.

        Args:
            size: the new sizes; one number is for all but the first two axes.
            mode: "linear" (also "bilinear", "trilinear"), "nearest", "nearest-exact", "cubic" (also
                "bicubic"; Keys 1981 with a = -0.75) or "area", the mean of the elements that an
                output element covers.
            align_corners: the first and last points keep their positions ("linear" and "cubic"
                only).
            scale_factor: factor of the sizes, rounded down, instead of `size`.
            antialias: where an axis shrinks, weigh all elements that a new one covers ("linear"
                and "cubic" only).

        Returns a tensor of this dtype with the new sizes.

        Raises UnsupportedDTypeError for another mode, ConfigError for `align_corners` or
        `antialias` with one that has none; ShapeError unless there are as many sizes as axes to
        resample, all positive.

        >>> Tensor([[[0.0, 2.0]]]).interpolate(4).tolist()
        [[[0.0, 0.5, 1.5, 2.0]]]
        >>> Tensor([[[0.0, 2.0]]]).interpolate((3,), "linear", align_corners=True).tolist()
        [[[0.0, 1.0, 2.0]]]
        """
        kind = _kind_of(mode, is_aligned=align_corners, is_smooth=antialias)
        sizes, ratios = self._output_sizes(size, scale_factor)
        first = self.ndim - len(sizes)
        if not self._has_elements():
            if 0 in self._sizes[first:]:
                raise ShapeError(
                    f"interpolate: there is nothing to resample in {show_shape(self.shape)}"
                )
            return self.reshape(0).reshape(*self.shape[:first], *sizes)
        x = self if kind.startswith("nearest") else self._wide()
        x = x._resampled(
            kind, sizes, ratios, self.dtype, is_aligned=align_corners, is_smooth=antialias
        )
        if not self.dtype.is_float and x.dtype.is_float:
            x = x.round()
        made = x.cast(self.dtype)
        return made if made is not self else self._copy_of(self)

    def _output_sizes(self, size: Any, scale: Any) -> tuple[list[int], list[float]]:
        """The new sizes of the last axes, and the old ones for one of each new one."""
        if (size is None) == (scale is None):
            raise ShapeError("interpolate: pass either size or scale_factor")
        given = size if scale is None else scale
        each = list(given) if isinstance(given, (tuple, list)) else [given] * max(self.ndim - 2, 1)
        if not 0 < len(each) <= self.ndim:
            raise ShapeError(
                f"interpolate: {len(each)} sizes for {show_shape(self.shape)}",
                tensor=describe(self.uop),
            )
        old = self._sizes[self.ndim - len(each) :]
        if scale is None:
            sizes = [as_int("interpolate", "a size", new) for new in each]
            ratios = [was / new if new else 0.0 for was, new in zip(old, sizes)]
        else:
            sizes = [math.floor(was * factor) for was, factor in zip(old, each)]
            ratios = [1 / factor if factor else 0.0 for factor in each]
        if min(sizes) < 1:
            raise ShapeError(f"interpolate: a size is {min(sizes)}", rule="sizes are positive")
        return sizes, ratios

    def _resampled(
        self,
        kind: str,
        sizes: Sequence[int],
        ratios: Sequence[float],
        dtype: DType,
        *,
        is_aligned: bool,
        is_smooth: bool,
    ) -> Self:
        """The last axes in other sizes; weights are those of an image of `dtype`."""
        first = self.ndim - len(sizes)
        is_by_corners = kind == "linear" and not is_smooth and _is_small_image(self, sizes)
        is_narrow = dtype.is_float and not is_by_corners and not is_smooth
        computed = self.dtype if self.dtype is dtypes.float64 else dtypes.float32
        steps = Steps(computed, dtype if is_narrow else computed)
        scales = scales_of(kind, self._sizes[first:], sizes, ratios, is_at_once=is_by_corners)
        filter_of = antialiasing_filter if is_smooth else filter_window
        windows = [
            (axis, filter_of(kind, self._sizes[axis], new, scale, steps, is_aligned=is_aligned))
            for axis, (new, scale) in enumerate(zip(sizes, scales), first)
            if scale is not None
        ]
        if windows and is_by_corners:
            return self._in_corners(windows)
        x = self
        # The last axis first, as PyTorch adds the neighbours of a position.
        for axis, window in reversed(windows):
            x = x._filtered(axis, window, is_in_order=is_smooth or kind == "area")
        return x

    def _filtered(self, axis: int, window: FilterWindow, *, is_in_order: bool) -> Self:
        """Axis `axis` replaced: each new element is the sum of picked ones times weights."""
        terms = self._terms([(axis, window)])
        return _weighted_sum(terms, [*range(len(window))] if is_in_order else _ALONE)

    def _in_corners(self, windows: Sequence[tuple[int, FilterWindow]]) -> Self:
        """The axes replaced at once: each new element is the sum of the elements at the corners
        around it, times the products of the axes' weights.
        """
        terms = self._terms(windows)
        channels = self._sizes[1]
        whole = channels - channels % (_VECTOR_BYTES // self.dtype.itemsize)
        sums = [
            _weighted_sum([(x._slice(1, start, end), weights) for x, weights in terms], order)
            for start, end, order in ((0, whole, _IN_VECTORS), (whole, channels, _ALONE))
            if start < end
        ]
        return sums[0] if len(sums) == 1 else type(self).cat(*sums, dim=1)

    @templated
    def _times_onto(self, factor: Self, total: Self) -> Self:
        """self * factor + total, rounded once where the target can."""
        return self._times_plus(factor.expand(self.shape), total)

    def _terms(self, windows: Sequence[tuple[int, FilterWindow]]) -> list[tuple[Self, Self | None]]:
        """Terms of the sum for a new element: for each corner of the windows the elements there,
        and the products of their weights unless all are 1.
        """
        terms: list[tuple[Self, Self | None]] = [(self, None)]
        for axis, window in windows:
            factors = [
                None if all(each == 1 for each in weights) else self._axis_values(axis, weights)
                for _, weights in window
            ]
            terms = [
                (x._elements_at(axis, positions), _product(product, weights))
                for x, product in terms
                for (positions, _), weights in zip(window, factors)
            ]
        return terms

    def _axis_values(self, axis: int, values: Sequence[float]) -> Self:
        """Numbers that lie along an axis of this tensor."""
        shape = [-1 if number == axis else 1 for number in range(self.ndim)]
        return number_table(self, values, self.dtype).reshape(shape)

    def _elements_at(self, axis: int, at: Sequence[int]) -> Self:
        """The elements at positions of an axis; for -1 zero, as 0 times infinity would be NaN."""
        found = self.index_select(axis, number_table(self, [max(x, 0) for x in at], dtypes.int32))
        return (
            found if min(at, default=0) >= 0 else (self._axis_values(axis, at) >= 0).where(found, 0)
        )

    @templated
    @valued
    @composed
    def grid_sample(
        self,
        grid: Self,
        mode: str = "bilinear",
        padding_mode: str = "zeros",
        align_corners: bool = False,
    ) -> Self:
        """Sample an image (N, C, H, W) at the coordinates of `grid` (Jaderberg et al. 2015,
        arXiv:1506.02025).

        Coordinates run from -1, the left and upper edge, to 1. A coordinate that is NaN lies
        outside: between zeros "bilinear" gives NaN, else it is the first element's.

        Args:
            grid: float x and y, (N, Ho, Wo, 2); for (N, C, D, H, W) x, y and z, (N, Do, Ho, Wo, 3).
            mode: "bilinear", "nearest", or of images "bicubic" (Keys 1981, with slope -0.75).
            padding_mode: values outside: "zeros", the nearest element of the "border", or the
                "reflection" of the inside.
            align_corners: the edges are the middles of the outermost elements.

        Returns a float tensor of shape (N, C, Ho, Wo) or (N, C, Do, Ho, Wo).

        Raises ConfigError for another mode or padding, DTypeError for a grid that is no float,
        ShapeError for other shapes.

        >>> x = Tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
        >>> x.grid_sample(Tensor([[[[0.0, 0.0], [-0.5, -0.5]]]])).tolist()
        [[[[2.5, 1.0]]]]
        """
        depth = self.ndim - 2
        _check_grid(self, grid, mode, padding_mode)
        count, channels, *sizes = self._sizes
        outer = grid._sizes[1:-1]
        if not self._has_elements() or not grid._has_elements():
            return self.zeros_like().reshape(-1)._slice(0, 0, 0).reshape(count, channels, *outer)
        # The last coordinate is that of the first axis.
        wide = grid._wide()
        described = [
            GridAxis(size, padding_mode, align_corners, is_volume=depth == 3) for size in sizes
        ]
        axes = [
            wide._slice(grid.ndim - 1, depth - 1 - number, depth - number)
            .reshape(count, -1)
            ._neighbours(mode, axis)
            for number, axis in enumerate(described)
        ]
        rows = self.permute(0, *range(2, self.ndim), 1).reshape(-1, channels)._wide()
        batch = self._iota(count).reshape(count, 1) * math.prod(sizes)
        first = batch.expand(axes[0][0][0].shape)
        terms = [rows._sampled(first, corner, sizes) for corner in itertools.product(*axes)]
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return total.transpose(1, 2).reshape(count, channels, *outer).cast(self.dtype)

    def _sampled(
        self, first: Self, corner: Sequence[tuple[Self, Self | None]], sizes: Sequence[Any]
    ) -> Self:
        """The rows, one an element, at a `corner` (on each axis a position, and its weight unless
        that is 1), times their weights, zero outside.

        Row `first` is where the image of `sizes` begins.
        """
        index = first
        inside: Self | None = None
        factor: Self | None = None
        for axis, (at, weight) in enumerate(corner):
            if weight is not None:
                factor = weight if factor is None else factor * weight
            is_in = (at >= 0) & (at <= sizes[axis] - 1)
            inside = is_in if inside is None else inside & is_in
            step = math.prod(sizes[axis + 1 :])
            index = index + is_in.where(at.detach(), 0).cast(index_dtype(self.shape)) * step
        assert inside is not None
        found = self._rows(inside.where(index, -1))
        return found if factor is None else found * factor.unsqueeze(-1).cast(found.dtype)

    @templated
    @composed
    def max_unpool2d(
        self,
        indices: Self,
        kernel_size: Any = (2, 2),
        stride: Any = None,
        dilation: Any = 1,
        padding: Any = 0,
        output_size: Sequence[int] | None = None,
    ) -> Self:
        """Put the values of a `max_pool2d` where they came from, and zeros elsewhere.

        Args:
            indices: int32 positions of this shape, as `return_indices` gives them.
            kernel_size: size of the window.
            stride: step between windows, by default `kernel_size`.
            dilation: as of `max_pool2d`.
            padding: as of `max_pool2d`.
            output_size: shape of the result, whose last axes count; by default the size that the
                windows cover.

        Returns a tensor of this dtype with the sizes before pooling.

        Raises ShapeError unless `indices` has this tensor's shape.

        >>> x = Tensor([[[[1.0, 5.0], [2.0, 3.0]]]])
        >>> values, positions = x.max_pool2d(2, return_indices=True)
        >>> values.max_unpool2d(positions, 2).tolist()
        [[[[0.0, 5.0], [0.0, 0.0]]]]
        """
        if indices.shape != self.shape:
            raise ShapeError(
                f"max_unpool2d: {show_shape(indices.shape)} indices for {show_shape(self.shape)}",
                rule="an index for each element, as max_pool2d(return_indices=True) gives",
            )
        count = len(kernel_size) if isinstance(kernel_size, (tuple, list)) else 2
        lead, old = self.shape[: self.ndim - count], self._sizes[self.ndim - count :]
        if output_size is not None:
            sizes = [as_int("max_unpool2d", "a size", each) for each in output_size][-count:]
        else:
            sizes = _sizes_before_pooling(old, kernel_size, stride, padding, dilation)
        flat = self.reshape(*lead, math.prod(old))
        positions = indices.reshape(*lead, math.prod(old))
        empty = type(self).zeros(*lead, math.prod(sizes), device=self.device, dtype=self.dtype)
        return empty.scatter(-1, positions, flat).reshape(*lead, *sizes)


def _is_small_image(x: Core, sizes: Sequence[int]) -> bool:
    return x.ndim == 4 and len(sizes) == 2 and sum(sizes) <= _LARGEST_BY_CORNERS


def _product(x: Resampled | None, y: Resampled | None) -> Resampled | None:
    return y if x is None else x if y is None else x * y


def _weighted_sum(
    terms: Sequence[tuple[Resampled, Resampled | None]], order: Sequence[int]
) -> Resampled:
    """The sum of elements times weights, in this order: each product but the first is added with
    one rounding.
    """
    (first, weights), *rest = (terms[number] for number in order if number < len(terms))
    total = first if weights is None else first * weights
    for elements, weights in rest:
        total = total + elements if weights is None else elements._times_onto(weights, total)
    return total


def _kind_of(mode: str, *, is_aligned: bool, is_smooth: bool) -> str:
    """The kind of filter that a mode of `interpolate` stands for.

    Raises UnsupportedDTypeError for an unknown mode, ConfigError for an option that it has not.
    """
    check_choice("interpolate", "mode", mode, _MODES, UnsupportedDTypeError)
    kind = _MODES[mode]
    if is_aligned and kind not in ("linear", "cubic"):
        raise ConfigError(f"interpolate: mode {mode!r} has no corners to align")
    if is_smooth and kind not in ("linear", "cubic"):
        raise ConfigError(f"interpolate: mode {mode!r} has no antialias")
    return kind


def _sizes_before_pooling(
    sizes: Sequence[int], kernel_size: Any, stride: Any, padding: Any, dilation: Any
) -> list[int]:
    """The sizes that filter windows cover, one position of them for each element of `sizes`."""

    def by_axis(given: Any) -> list[Any]:
        return list(given) if isinstance(given, (tuple, list)) else [given] * len(sizes)

    padded = by_axis(padding)
    if len(padded) != len(sizes):
        # Padding before and after each axis, the last axis first.
        padded = [(padded[2 * at] + padded[2 * at + 1]) / 2 for at in reversed(range(len(sizes)))]
    strides = by_axis(kernel_size if stride is None else stride)
    by_axes = zip(sizes, by_axis(kernel_size), strides, padded, by_axis(dilation))
    return [
        int((size - 1) * step - 2 * around + apart * (kernel - 1) + 1)
        for size, kernel, step, around, apart in by_axes
    ]


def _check_grid(image: Core, grid: Core, mode: str, padding_mode: str) -> None:
    """Raise unless `grid` holds positions in `image`."""
    check_choice("grid_sample", "mode", mode, _GRID_MODES)
    check_choice("grid_sample", "padding_mode", padding_mode, _PADDINGS)
    check_devices("grid_sample", [image, grid])
    if not grid.dtype.is_float:
        raise DTypeError(f"grid_sample: places are floats, not {grid.dtype.name}")
    depth = image.ndim - 2
    if mode == "bicubic" and depth == 3:
        raise UnsupportedError(
            "grid_sample: 'bicubic' is for images, not for volumes", use="mode='bilinear'"
        )
    fits = depth in (2, 3) and grid.ndim == image.ndim and grid._sizes[-1] == depth
    if not fits or grid._sizes[0] != image._sizes[0] or 0 in image._sizes[2:]:
        raise ShapeError(
            f"grid_sample: places {show_shape(grid.shape)} do not fit {show_shape(image.shape)}",
            input=describe(image.uop),
            grid=describe(grid.uop),
            rule="(N, Ho, Wo, 2) in (N, C, H, W), or (N, Do, Ho, Wo, 3) in (N, C, D, H, W)",
        )
