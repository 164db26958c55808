"""Choosing elements by their values: `nonzero`, `masked_select`, `unique`.

How many there are only the values tell. With `size` the caller says how many to give, and nothing
is computed until the result is needed: what is missing is filled up, what is too much is left out.
Without it the number is computed at once, and no capture can hold that.
"""

from __future__ import annotations

import math
from typing import Any, Self

from tilegrad.base.dtype import dtypes
from tilegrad.base.origin import composed
from tilegrad.ir.uop import UOp
from tilegrad.tensor.calls.counted import distinct_values
from tilegrad.tensor.calls.masks import mask_values, true_columns
from tilegrad.tensor.calls.uploads import uploaded
from tilegrad.tensor.handle.broadcasting import broadcast_shape
from tilegrad.tensor.handle.size_arguments import as_sizes, index_dtype
from tilegrad.tensor.ordering.scatter import Scatter

__all__ = ["Selecting"]


class Selecting(Scatter):
    """Selecting methods."""

    __slots__ = ()

    @composed
    def nonzero(
        self, size: int | None = None, fill_value: int = 0, *, as_tuple: bool = False
    ) -> Any:
        """Indices of all elements that are not zero, in row-major order.

        Args:
            size: number of rows; without it they are counted now.
            fill_value: fills the rows beyond the count.
            as_tuple: give the columns apart, a tensor for each axis.

        Returns int32 indices of shape (count, ndim), or a tuple of ndim vectors.

        Raises ShapeError for a negative or symbolic size.

        >>> Tensor([[0, 5], [7, 0]]).nonzero().tolist()
        [[0, 1], [1, 0]]
        >>> Tensor([0, 5, 0]).nonzero(size=2, fill_value=-1).tolist()
        [[1], [-1]]
        """
        if as_tuple:
            found = (self if self.ndim else self.reshape(1)).nonzero(size, fill_value)
            return tuple(found.unbind(1))
        test = self.cast(dtypes.bool).flatten()
        if size is None:
            positions, is_filled = test._true_now(), None
        else:
            rows_wanted = as_sizes("nonzero", (size,))[0][0]
            assert isinstance(rows_wanted, int)
            positions, is_filled = test._true_positions(rows_wanted)
        count = positions._sizes[0]
        if not self.ndim or not count or not self._has_elements():
            fill = 0 if size is None else fill_value
            return (
                type(self)
                .full((count, self.ndim), fill, device=self.device, dtype=dtypes.int32)
                ._holding(self._variables)
            )
        columns = self._columns(positions)
        rows = columns[0].stack(*columns[1:], dim=1)
        if is_filled is None:
            return rows
        return is_filled.reshape(count, 1).where(rows, fill_value).contiguous()

    def _true_columns(self) -> list[Self]:
        """For each axis, where along it the elements are that are not zero; computed now."""
        columns = true_columns(self)
        if columns is not None:
            return columns
        return self._columns(self.cast(dtypes.bool).flatten()._true_now())

    def _columns(self, positions: Self) -> list[Self]:
        """Places in row-major order as places along each axis."""
        sizes = self._sizes
        if len(sizes) == 1:
            return [positions]
        return [
            positions // max(math.prod(sizes[axis + 1 :]), 1) % max(extent, 1)
            for axis, extent in enumerate(sizes)
        ]

    @composed
    def masked_select(self, mask: Self, size: int | None = None, fill_value: Any = 0) -> Self:
        """Elements where `mask` is true, in row-major order.

        Args:
            mask: a bool tensor whose shape broadcasts with this one; where it has more axes, this
                tensor is stretched.
            size: number of elements; without it they are counted now.
            fill_value: fills the elements beyond the count.

        Returns a vector of this dtype.

        Raises ShapeError unless the shapes broadcast.

        >>> x = Tensor([5, 1, 7])
        >>> x.masked_select(x > 2).tolist()
        [5, 7]
        >>> x.masked_select(x > 2, size=4, fill_value=-1).tolist()
        [5, 7, -1, -1]
        """
        shape = broadcast_shape("masked_select", (self, mask))
        test = mask.cast(dtypes.bool).expand(shape).flatten()
        flat = self.expand(shape).flatten()
        if size is None:
            return flat[test]
        count = as_sizes("masked_select", (size,))[0][0]
        assert isinstance(count, int)
        if not count or not flat._has_elements():
            return self._like(UOp.const(self.dtype, fill_value)).expand(count)._apart()
        positions, is_filled = test._true_positions(count)
        if self.dtype is dtypes.bool:
            fill_value = bool(fill_value)
        return is_filled.where(flat._rows(positions), fill_value)

    def _true_now(self) -> Self:
        """The places where this mask of one axis is true, computed now: on the host, or by kernels
        for as many as there may be. Another number of them compiles nothing anew.
        """
        values = mask_values(self)
        if values is not None:
            found = values.nonzero()[0].astype("int32")
            known = uploaded(self, found, dtypes.int32) if found.size else self._iota(0)
            if known is not None:
                return known
        number = self._sizes[0]
        positions, count = self._true_positions(number)[0].contiguous(), self.sum()
        positions.realize(count)
        return positions[: int(count.item())]

    def _true_positions(self, count: int) -> tuple[Self, Self]:
        """The first `count` places where this mask of one axis is true, and how many of them there
        are: for each, whether it is one.
        """
        number = self._sizes[0]
        if not number:
            nowhere = self._iota(count) * 0
            return nowhere, nowhere.ne(0)
        # Each place is added at its rank; the others go outside.
        rank = self.where(self.cumsum(0, dtype=index_dtype((number,))) - 1, -1)
        rank = (rank < count).where(rank, -1)
        zeros = self._iota(count) * 0
        return zeros._added_at(rank, self._iota(number)), self._iota(count) < self.sum()

    @composed
    def unique(
        self,
        sorted: bool = True,
        return_inverse: bool = False,
        return_counts: bool = False,
        size: int | None = None,
        fill_value: Any = 0,
    ) -> Any:
        """Different values in ascending order; NaN counts as one value, the last. No gradient
        flows.

        Args:
            sorted: accepted for other libraries' sake; the values are always in order.
            return_inverse: also give the position of each element's value among them.
            return_counts: also give how often each occurs.
            size: number of values; without it they are counted now.
            fill_value: fills the values beyond the count, whose counts are 0.

        Returns a vector of this dtype; with options a tuple of it, int32 positions of this shape
        and int32 counts.

        Raises ShapeError for a negative or symbolic size.

        >>> values, counts = Tensor([3, 1, 3]).unique(return_counts=True)
        >>> values.tolist(), counts.tolist()
        ([1, 3], [1, 2])
        """
        found = distinct_values(self) if size is None else None
        if found is not None:
            distinct, inverse, often = found
            more = [inverse] * return_inverse + [often] * return_counts
            return (distinct, *more) if more else distinct
        flat = self.detach().flatten()
        number = flat._sizes[0]
        if not number:
            count = 0 if size is None else size
            values = flat._like(UOp.const(self.dtype, fill_value)).expand(count)
            none = self._iota(count) * 0
            extra = [self.cast(dtypes.int32)] * return_inverse + [none] * return_counts
            return (values, *extra) if extra else values
        ordered, order = flat.sort()
        before = ordered.roll(1, 0)
        is_first = ordered.ne(before) & (ordered.isnan() & before.isnan()).logical_not()
        is_first = is_first | self._iota(number).eq(0)
        group = is_first.cumsum(0, dtype=index_dtype((number,))) - 1
        values = ordered.masked_select(is_first, size, fill_value)
        made = [values]
        if return_inverse:
            made.append(self._iota(number)._sent_to(order, group).reshape(self.shape))
        if return_counts:
            ones = self._iota(number) * 0 + 1
            zeros = self._iota(values._sizes[0]) * 0
            made.append(zeros._added_at(group, ones) if values._sizes[0] else zeros)
        return tuple(made) if len(made) > 1 else values

    def _sent_to(self, positions: Self, values: Self) -> Self:
        """`values`, each at its one of `positions`, which name every element of this vector
        once.
        """
        return (self * 0)._added_at(positions, values)
