"""Places in what is sorted, and counts: `searchsorted`, `bucketize`, `bincount`, `histogram`.

A search halves what is left of a row once for each bit of its length, all values at a time, and
reads only the elements that it compares with. Values and rows are compared by the keys that sorting
uses, so that NaN stands where sorting puts it, after all numbers.
"""

from __future__ import annotations

import math
from typing import Any, Self

from tilegrad.base.dtype import AddressSpace, dtypes
from tilegrad.base.dtype_promotion import promote
from tilegrad.base.errors import DTypeError, IndexBoundsError, ShapeError, check_choice
from tilegrad.base.origin import composed
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.sizes import highest
from tilegrad.ir.uop import UOp
from tilegrad.tensor.calls.counted import counts_of
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.handle.core import Core, check_devices, describe
from tilegrad.tensor.handle.size_arguments import as_int, index_dtype, show_shape
from tilegrad.tensor.ordering.select import Selecting
from tilegrad.tensor.results.kernel_families import KernelFamily

__all__ = ["Counting"]

# Rows up to this long are compared with as a whole.
_SHORT_ROW = 16


class Counting(Selecting):
    """Searching and counting methods; what they give has no gradient, but for weights."""

    __slots__ = ()

    @templated
    @composed
    def searchsorted(self, values: Any, right: bool = False, side: str | None = None) -> Self:
        """Where to insert `values` into this tensor, sorted along its last axis, so that it stays
        sorted.

        A sorted vector serves values of any shape; one of more axes has a row for each row of
        values.

        Args:
            values: a number or a tensor.
            right: insert after equal elements, not before them.
            side: "right" or "left", the same in other words.

        Returns int32 positions in the shape of `values`.

        Raises ShapeError if the leading axes differ or this tensor has none, DTypeError for another
        `side`.

        >>> Tensor([1, 3, 3, 5]).searchsorted(Tensor([3, 6])).tolist()
        [1, 4]
        >>> Tensor([1, 3, 3, 5]).searchsorted(3, right=True).item()
        3
        """
        check_choice("searchsorted", "side", side, (None, "left", "right"), DTypeError)
        given = values if isinstance(values, Core) else self._operand("searchsorted", values)
        wanted: Self = self._of(given.uop, given.device, given._variables)
        check_devices("searchsorted", [self, wanted])
        if not self.ndim or (self.ndim > 1 and wanted.shape[:-1] != self.shape[:-1]):
            raise ShapeError(
                f"searchsorted: rows of {show_shape(self.shape)} do not go with values of "
                f"{show_shape(wanted.shape)}",
                left=describe(self.uop),
                right=describe(wanted.uop),
                rule="a vector, or leading axes of the same sizes",
            )
        size = self._sizes[-1]
        if not wanted._has_elements() or not size:
            return wanted.zeros_like(dtype=dtypes.int32)
        dtype = promote(self.dtype, wanted.dtype)
        rows = self.detach().cast(dtype)._order_keys(descending=False).contiguous()
        keys = wanted.detach().cast(dtype)._order_keys(descending=False).contiguous()
        rows = rows.reshape(-1, size)
        keys = keys.reshape(rows.shape[0], -1)
        found = rows._insertion_positions(keys, is_right=right or side == "right")
        return found.reshape(wanted.shape)

    def _insertion_positions(self, keys: Self, *, is_right: bool) -> Self:
        """For each of `keys` (rows, count), how many of its row of these sorted keys come before
        it.
        """
        rows, size = self._sizes
        if size <= _SHORT_ROW:
            mine, other = self.reshape(rows, 1, size), keys.unsqueeze(2)
            before = (mine <= other) if is_right else (mine < other)
            return before.sum(2, dtype=dtypes.int32)
        kinds = index_dtype((size + 1,)), self.dtype, keys.dtype
        family = KernelFamily("search", _search, _search_shapes, kinds, (("is_right", is_right),))
        return self._by_family(family, (rows, size, keys._sizes[1]), [self, keys])

    def bucketize(self, boundaries: Any, right: bool = False) -> Self:
        """The bucket between sorted `boundaries` in which each element lies: the number of
        boundaries that are smaller.

        Args:
            boundaries: sorted vector.
            right: count boundaries that are not larger.

        Returns an int32 tensor of this shape.

        Raises ShapeError unless `boundaries` is a vector, DTypeError for operands without an order.

        >>> Tensor([0.5, 1.0, 7.0]).bucketize(Tensor([1.0, 2.0])).tolist()
        [0, 0, 2]
        """
        edges = self._as_edges("bucketize", boundaries)
        return edges.searchsorted(self, right)

    def _as_edges(self, name: str, boundaries: Any) -> Self:
        if not isinstance(boundaries, Core):
            boundaries = type(self)(boundaries, device=self.device)
        edges: Self = self._of(boundaries.uop, boundaries.device, boundaries._variables)
        if edges.ndim != 1:
            raise ShapeError(
                f"{name}: boundaries are a vector, not {show_shape(edges.shape)}",
                boundaries=describe(edges.uop),
            )
        return edges

    @composed
    def bincount(
        self, weights: Self | None = None, minlength: int = 0, size: int | None = None
    ) -> Self:
        """Count how often each of 0, 1, 2, ... occurs in this tensor of integers.

        Without `size` the largest element is computed now.

        Args:
            weights: numbers of this shape that are summed instead of ones.
            minlength: least number of counts.
            size: number of counts; larger elements are left out, and nothing is computed yet.

        Returns a vector of max(largest + 1, minlength) or `size` counts, int32, or the dtype of
        `weights`.

        Raises DTypeError unless this tensor is integer; IndexBoundsError for a negative element,
        if it is computed; ShapeError unless `weights` has its shape.

        >>> Tensor([1, 3, 1]).bincount().tolist()
        [0, 2, 0, 1]
        """
        self._integers("bincount", but_bool=True)
        if weights is not None and weights.shape != self.shape:
            raise ShapeError(
                f"bincount: weights {show_shape(weights.shape)} of values {show_shape(self.shape)}"
            )
        if size is None and weights is None:
            counted: Self | None = counts_of(
                self, max(as_int("bincount", "minlength", minlength), 0)
            )
            if counted is not None:
                return counted
        if size is None:
            size = max(as_int("bincount", "minlength", minlength), self._largest_of_counts())
        return self._counts(weights, size)

    @templated
    @composed
    def _counts(self, weights: Self | None, size: int) -> Self:
        """How often each integer below `size` occurs, or the sums of their `weights`."""
        flat = self.flatten()
        dtype = index_dtype(flat.shape) if weights is None else weights.dtype
        counts = flat._like(self._zero_of(dtype)).expand(size)
        if not size or not flat._has_elements():
            return counts
        if weights is None:
            added = flat.zeros_like(dtype=dtype) + 1
        else:
            added = weights.flatten()
        position = flat
        if flat.dtype.itemsize < 4 or flat.dtype.kind == "uint":
            wide = dtypes.int64 if flat.dtype.itemsize >= 4 else dtypes.int32
            position = flat.cast(wide)
        position = ((position >= 0) & (position < size)).where(position, -1)
        return counts._added_at(position, added)

    def _largest_of_counts(self) -> int:
        if not self._has_elements():
            return 0
        least, most = self.min().item(), self.max().item()
        if least < 0:
            raise IndexBoundsError(
                f"bincount: an element is {least}",
                tensor=describe(self.uop),
                rule="elements are 0 or larger",
            )
        return int(most) + 1

    def _zero_of(self, dtype: Any) -> Any:
        return self._operand("bincount", 0).cast(dtype).uop

    @composed
    def histogram(
        self,
        bins: Any = 10,
        range: tuple[float, float] | None = None,
        weights: Self | None = None,
        density: bool = False,
    ) -> tuple[Self, Self]:
        """Count how many elements lie in each of `bins` intervals.

        Intervals hold their lower edge, the last one both. NaN and what lies outside is not
        counted.

        Args:
            bins: number of equal intervals, or a vector of sorted edges.
            range: (lowest, highest) edge, by default the least and the largest element.
            weights: numbers of this shape that are summed instead of ones.
            density: divide by the total and the widths, so that the integral is 1.

        Returns (counts, edges) of shapes (n,) and (n + 1,): counts int32, sums of `weights` in
        their dtype, densities float.

        Raises ShapeError for less than one interval, no axis of edges, or weights of another shape;
        DTypeError for a range that is empty or not finite.

        >>> counts, edges = Tensor([1.0, 2.0, 1.5, 4.0]).histogram(3)
        >>> counts.tolist(), edges.tolist()
        ([2, 1, 1], [1.0, 2.0, 3.0, 4.0])
        """
        if weights is not None and weights.shape != self.shape:
            raise ShapeError(
                f"histogram: weights {show_shape(weights.shape)} of values {show_shape(self.shape)}"
            )
        x = self.detach().flatten()
        if isinstance(bins, int):
            edges = x._equal_edges(bins, range)
        else:
            edges = self._as_edges("histogram", bins)
        count = edges._sizes[0] - 1
        if count < 1:
            raise ShapeError(f"histogram: {count} intervals", rule="at least one")
        if not x.dtype.is_float:
            x = x.cast(edges.dtype)
        position = edges.searchsorted(x, right=True) - 1
        last = edges._slice(0, count, count + 1)
        position = x.eq(last).where(count - 1, position)
        position = (position < count).where(position, -1)
        counts = position.bincount(None if weights is None else weights.flatten(), size=count)
        if density:
            widths = edges._slice(0, 1, count + 1) - edges._slice(0, 0, count)
            counts = counts / (counts.sum() * widths)
        return counts, edges

    def _equal_edges(self, bins: int, limits: tuple[float, float] | None) -> Self:
        """The edges of `bins` intervals of one width."""
        if bins < 1:
            raise ShapeError(f"histogram: {bins} intervals", rule="at least one")
        x = self._floating()
        if limits is None and not x._has_elements():
            limits = (0.0, 1.0)
        if limits is not None:
            low, high = float(limits[0]), float(limits[1])
            if not (math.isfinite(low) and math.isfinite(high) and low <= high):
                raise DTypeError(
                    f"histogram: no intervals from {low} to {high}",
                    rule="a finite range, the lower end first",
                )
            if low == high:
                low, high = low - 0.5, high + 0.5
            first, last = x._operand("histogram", low), x._operand("histogram", high)
        else:
            first, last = x.min(), x.max()
            is_point = first.eq(last)
            first, last = is_point.where(first - 0.5, first), is_point.where(last + 0.5, last)
        wide = x._wide().dtype
        position = self._iota(bins + 1).cast(wide)
        first, last = first.cast(wide), last.cast(wide)
        inner = first + position * ((last - first) / bins)
        return position.eq(bins).where(last, inner).cast(x.dtype)


def _search_shapes(rows: Any, size: Any, count: Any) -> tuple[tuple[Any, ...], ...]:
    return (rows, count), (rows, size), (rows, count)


def _search(
    made: UOp, table: UOp, keys: UOp, rows: Any, size: Any, count: Any, *, is_right: bool
) -> UOp:
    """for each key of each row:  before[0] = 0
    for step, width of the powers of two, downward:
        is_before = row[before[step] + width - 1] comes before key
        before[step + 1] = before[step] + width * is_before
    made[key] = before[last]
    """
    row, column = UOp.range(rows, 0), UOp.range(count, 1)
    number = row * count + column
    key = keys.load(number)
    zero, one = UOp.const(dtypes.index, 0), UOp.const(dtypes.int32, 1)
    bits = highest(size).bit_length()
    before = UOp(
        Ops.DEFINE_LOCAL, dtypes.int32.ptr(bits + 1, AddressSpace.SCRATCH), (row, column), 0
    )
    started = before.after(before.store(zero, one - 1))
    step = UOp.range(bits, 2, Axis.REDUCE)
    passed = started.load(step)
    width = one << (bits - 1 - step).cast(dtypes.int32)
    position = (passed + width - 1).cast(dtypes.index)
    inside = (position < 0).logical_not() & (position < size)
    there = table.load(row * size + position, UOp.const(key.dtype, 0), inside)
    is_before = (key < there).logical_not() if is_right else there < key
    further = (inside & is_before).where(passed + width, passed)
    found = started.after(started.store(step + 1, further).end(step))
    return UOp.sink(made.store(number, found.load(zero + bits)))
