"""Elements that integer tensors name along one axis, and sums at such positions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

from tilegrad.base.config import config
from tilegrad.base.dtype import dtypes
from tilegrad.base.dtype_promotion import sum_dtype
from tilegrad.base.errors import DTypeError, ShapeError
from tilegrad.base.origin import composed
from tilegrad.ir.op import Ops
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.handle.aliases import valued
from tilegrad.tensor.handle.core import Core, compute, describe
from tilegrad.tensor.handle.device import canonical
from tilegrad.tensor.handle.size_arguments import as_axis, index_dtype, is_of_number, show_shape
from tilegrad.tensor.handle.waiting import Call
from tilegrad.tensor.indexing.index import Indexing
from tilegrad.tensor.storage.checked import checked

__all__ = ["Gathering"]


def _is_of_rows(index: Any) -> bool:
    """Whether an index was expanded from one with axes of one element behind the first."""
    call: Call | None = index._call
    below: Sequence[Any] | None = None
    if call is None:
        node = index.uop
        below = node.src[0].shape if node.op is Ops.EXPAND else None
    elif call.inputs is not None:
        moves, _ = call.template.moves(call.slot, 1)
        below = call.away(1).shape if moves and moves[0][0] is Ops.EXPAND else None
    return below is not None and tuple(below) == (index.shape[0], *[1] * (index.ndim - 1))


class Gathering(Indexing):
    """Picking along an axis."""

    __slots__ = ()

    @composed
    def gather(self, dim: int, index: Self) -> Self:
        """Take elements by index along an axis: for each element of `index` the element of this
        tensor with that index along `dim` and its other indices.

        Args:
            dim: the axis; a negative one counts from the last.
            index: integers with as many axes as this tensor, no longer beside `dim` unless there
                are none.

        Returns a tensor of this dtype in the shape of `index`.

        Raises ShapeError for an `index` of another number of axes or a larger one, DTypeError
        unless it is integer, IndexBoundsError for an axis that is out of range.

        >>> Tensor([[1, 2], [3, 4]]).gather(1, Tensor([[1], [0]])).tolist()
        [[2], [3]]
        """
        if is_of_number(dim, self.ndim) and index.ndim < 2:
            return self.reshape(1).gather(0, index.reshape(-1)).reshape(index.shape)
        axis = self._aligned("gather", dim, index)
        if not index._has_elements():
            return self.flatten()._slice(0, 0, 0).reshape(index.shape)
        if not axis and index.ndim > 1 and index.shape[1:] == self.shape[1:]:
            rows = self._whole_rows("gather", axis, index)
            if rows is not None:
                return self._rows_at(rows)
        if not config.CHECK:
            checked("gather", index, self.shape[axis], axis)
        return self._picked_on(axis, index)

    @templated
    def _picked_on(self, axis: int, index: Self) -> Self:
        """GATHER: the elements that `index`, which fits, names along an axis."""
        return self.flatten()._rows(self._positions("gather", axis, index))

    def _aligned(self, name: str, dim: int, index: Self) -> int:
        """The axis `dim`, along which `index` fits this tensor."""
        axis = as_axis(name, dim, self.ndim)
        if index.dtype.is_float or index.dtype is dtypes.bool:
            raise DTypeError(
                f"{name}: an index must be an integer, not {index.dtype.name}",
                tensor=describe(self.uop),
                index=describe(index.uop),
                remedy="cast the index: .cast(dtypes.int32)",
            )
        is_short = not index._has_elements() or all(
            number == axis or theirs <= ours
            for number, (ours, theirs) in enumerate(zip(self._sizes, index._sizes))
        )
        fits = index.ndim == self.ndim and is_short
        if not fits:
            raise ShapeError(
                f"{name}: index {show_shape(index.shape)} does not fit "
                f"{show_shape(self.shape)} beside axis {axis}",
                left=describe(self.uop),
                right=describe(index.uop),
            )
        return axis

    def _whole_rows(self, name: str, axis: int, index: Self) -> Self | None:
        """Which rows an index names that was expanded from one for each row, so that all elements
        of a row go together.
        """
        beside = index._sizes[1:]
        if axis or not beside or beside != self._sizes[1:] or not _is_of_rows(index):
            return None
        vector: Self = checked(name, index[(slice(None), *[0] * len(beside))], self._sizes[0], 0)
        return vector

    def _positions(self, name: str, axis: int, index: Self) -> Self:
        """The flat positions in this tensor of the elements that `index` names along `axis`."""
        sizes = self._sizes
        index = checked(name, index, sizes[axis], axis)
        wide = index_dtype(sizes)
        if index.dtype.itemsize < 4 or wide is dtypes.int64:
            index = index.cast(wide)
        if index.dtype.kind == "int":
            index = (index < 0).where(index + sizes[axis], index)
        total = index * math.prod(sizes[axis + 1 :])
        for number, count in enumerate(index._sizes):
            if number != axis and count > 1:
                shape = [count if other == number else 1 for other in range(index.ndim)]
                counted = self._iota(count).cast(wide).reshape(shape)
                total = total + counted * math.prod(sizes[number + 1 :])
        return ((index >= 0) & (index < sizes[axis])).where(total, -1)

    @composed
    def scatter_add(self, dim: int, index: Self, source: Self) -> Self:
        """Add each element of `source` at the position that `index` names along an axis; a position
        that occurs twice takes both.

        Args:
            dim: the axis; a negative one counts from the last.
            index: integers with as many axes as this tensor.
            source: a tensor that is at least as large as `index` along each axis.

        Returns a tensor of this shape and dtype.

        Raises ShapeError for an `index` of another number of axes or a smaller `source`, DTypeError
        unless `index` is integer, IndexBoundsError for an axis that is out of range.

        >>> Tensor([1, 2]).scatter_add(0, Tensor([0, 0]), Tensor([10, 20])).tolist()
        [31, 2]
        """
        if is_of_number(dim, self.ndim):
            vectors = index.reshape(1), source.reshape(1)
            return self._as_row(lambda row: row.scatter_add(0, *vectors))
        axis = self._aligned("scatter_add", dim, index)
        if source.ndim != index.ndim or any(
            ours < theirs for ours, theirs in zip(source._sizes, index._sizes)
        ):
            raise ShapeError(
                f"scatter_add: source {show_shape(source.shape)} is smaller than index "
                f"{show_shape(index.shape)}"
            )
        rows = self._whole_rows("scatter_add", axis, index)
        if rows is not None:
            return self._added_to_rows(rows, source)
        if not config.CHECK:
            checked("scatter_add", index, self._sizes[axis], axis)
        return self._added_on(axis, index, source)

    @templated
    def _added_to_rows(self, rows: Self, source: Self) -> Self:
        """The first rows of `source` added to the `rows` of this tensor."""
        lengths = (rows.shape[0], *self.shape[1:])
        values = source.shrink([(0, size) for size in lengths]).cast(self.dtype)
        position, _ = self._flat_position([rows], self._sizes[:1])
        return self._added_at(position, values)

    @templated
    def _added_on(self, axis: int, index: Self, source: Self) -> Self:
        """Elements of `source` added where `index`, which fits, names them along an axis."""
        values = source.shrink([(0, size) for size in index.shape]).cast(self.dtype)
        position = self._positions("scatter_add", axis, index).flatten()
        return self.flatten()._added_at(position, values.flatten()).reshape(self.shape)

    def _added_at(self, target: Self, rows: Self) -> Self:
        """SCATTER_ADD; a row named often is a long sum, so half types are summed in float32."""
        wide = sum_dtype(self.dtype) if self.dtype.is_float else self.dtype
        base, values = self.cast(wide), rows.cast(wide)
        if base.uop.is_constant:
            # A constant is on no device; the memory that is added to must be on one.
            device = (rows if target.uop.is_constant else target).device
            stored = compute(Ops.CONTIGUOUS, wide, (base.uop,), canonical(device))
            base = self._of(stored, device, self._variables)
        node = compute(Ops.SCATTER_ADD, wide, (base.uop, target.uop, values.uop))
        return base._joined(node, target, values).cast(self.dtype)

    @valued
    def index_select(self, dim: int, index: Self) -> Self:
        """Take the slices along an axis that a vector names.

        Args:
            dim: the axis; a negative one counts from the last.
            index: vector of integers.

        Returns a tensor of this dtype with the length of `index` along the axis.

        Raises DTypeError unless `index` is integer, ShapeError unless it is a vector,
        IndexBoundsError for an axis that is out of range.

        >>> Tensor([[1, 2], [3, 4]]).index_select(1, Tensor([1])).tolist()
        [[2], [4]]
        """
        if is_of_number(dim, self.ndim):
            return self._as_row(lambda row: row.index_select(0, index.reshape(1)))
        axis = as_axis("index_select", dim, self.ndim)
        if isinstance(index, Core) and index.ndim > 1:
            raise ShapeError(
                f"index_select: the index has {index.ndim} axes",
                tensor=describe(self.uop),
                index=describe(index.uop),
                rule="a vector of integers; tensor[index] takes any shape",
            )
        if isinstance(index, Core) and not index.ndim:
            index = index.reshape(1)
        return self[(*[slice(None)] * axis, index)]

    def take(self, index: Self) -> Self:
        """Take elements by their positions in the flat tensor.

        Args:
            index: integers of any shape; negative ones count from the end.

        Returns a tensor of this dtype in the shape of `index`.

        Raises DTypeError unless `index` is integer, IndexBoundsError for bools.

        >>> Tensor([[1, 2], [3, 4]]).take(Tensor([3, 0])).tolist()
        [4, 1]
        """
        return self.flatten()[index]

    def embedding(self, index: Self) -> Self:
        """Take rows of this table (rows, width); only those rows are read.

        Args:
            index: integers of any shape.

        Returns a tensor of this dtype and shape (*index.shape, width).

        Raises DTypeError unless `index` is integer.

        >>> Tensor([[1, 2], [3, 4]]).embedding(Tensor([1, 1])).tolist()
        [[3, 4], [3, 4]]
        """
        return self[index]
