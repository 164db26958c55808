"""Shapes and parts of tensors under PyTorch's names, by the methods of movement and indexing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any, Self

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import ShapeError
from tilegrad.base.origin import composed
from tilegrad.tensor.composed.statistics import Statistics
from tilegrad.tensor.handle.aliases import valued
from tilegrad.tensor.handle.core import as_dtype, broadcast_shape, describe
from tilegrad.tensor.handle.sizes import as_axis, as_int, flat_arguments, here, show_shape

__all__ = ["Layouts"]


class Layouts(Statistics):
    """Turning, cutting, picking and joining under PyTorch's names."""

    __slots__ = ()

    # axes

    def t(self) -> Self:
        """Transpose a matrix; a vector or a number stays as it is.

        Returns a view of shape (n, m) for shape (m, n), in this dtype.

        Raises ShapeError for more than two axes.

        >>> Tensor([[1, 2]]).t().tolist()
        [[1], [2]]
        """
        if self.ndim > 2:
            raise ShapeError(
                f"t: a matrix is needed, not {show_shape(self.shape)}",
                tensor=describe(self.uop),
                line=here(),
                remedy="transpose(-1, -2)",
            )
        return self.transpose(0, 1) if self.ndim == 2 else self

    @property
    def mT(self) -> Self:
        """Exchange the last two axes.

        Returns a view of shape (..., n, m) for shape (..., m, n), in this dtype.

        >>> Tensor([[1, 2]]).mT.tolist()
        [[1], [2]]
        """
        return self.transpose(-1, -2)

    swapaxes = Statistics.transpose
    swapdims = Statistics.transpose
    moveaxis = Statistics.movedim
    broadcast_to = Statistics.expand
    nelement = Statistics.numel
    ndimension = Statistics.dim

    def tile(self, *counts: Any, dims: Any = None) -> Self:
        """Repeat the whole tensor along each axis, as `repeat`.

        Args:
            counts: how often, for each axis, one by one or as one tuple; fewer are those of the
                last axes.
            dims: the same by keyword.

        Returns a tensor of this dtype; the sizes are multiplied.

        Raises ShapeError for a negative count.

        >>> Tensor([[1], [2]]).tile(2).tolist()
        [[1, 1], [2, 2]]
        """
        given = flat_arguments(counts if dims is None else (dims,))
        return self.repeat(*[1] * (self.ndim - len(given)), *given)

    def repeat_interleave(self, repeats: Any, dim: int | None = None) -> Self:
        """Repeat each element, next to each other, along an axis.

        Args:
            repeats: how often; or how often each, as a list or a tensor, whose values are waited
                for.
            dim: the axis, or None for the flat tensor.

        Returns a tensor of this dtype.

        Raises IndexBoundsError for an axis that is out of range, ShapeError for another number of
        counts than elements along it.

        >>> Tensor([1, 2]).repeat_interleave(2).tolist()
        [1, 1, 2, 2]
        >>> Tensor([1, 2]).repeat_interleave(Tensor([2, 1])).tolist()
        [1, 1, 2]
        """
        if not isinstance(repeats, (list, tuple, Statistics)):
            return super().repeat_interleave(repeats, dim)
        x = self.flatten() if dim is None else self
        axis = as_axis("repeat_interleave", 0 if dim is None else dim, x.ndim)
        size = x.shape[axis]
        counts = [int(n) for n in (Statistics.flatten(repeats).tolist()
                                   if isinstance(repeats, Statistics) else repeats)]  # fmt: skip
        if len(counts) == 1:
            return super().repeat_interleave(counts[0], dim)
        if len(counts) != size:
            raise ShapeError(
                f"repeat_interleave: {len(counts)} counts for {size} elements along axis {axis}",
                line=here(),
            )
        index = [at for at, count in enumerate(counts) for _ in range(count)]
        picked = type(self)(index, dtype=dtypes.int32, device=self.device)
        return x.index_select(axis, picked)

    def ravel(self) -> Self:
        """Flatten all axes into one.

        Returns a tensor of shape (numel,) in this dtype.

        >>> Tensor([[1, 2]]).ravel().tolist()
        [1, 2]
        """
        return self.flatten()

    def view_as(self, other: Self) -> Self:
        """Reshape to the shape of `other`.

        Args:
            other: a tensor with as many elements; only its shape is used.

        Returns a tensor of the shape of `other` in this dtype.

        Raises ShapeError if the number of elements differs.

        >>> Tensor([1, 2]).view_as(Tensor([[0, 0]])).tolist()
        [[1, 2]]
        """
        return self.reshape(other.shape)

    def reshape_as(self, other: Self) -> Self:
        """Reshape to the shape of `other`.

        Args:
            other: a tensor with as many elements; only its shape is used.

        Returns a tensor of the shape of `other` in this dtype.

        Raises ShapeError if the number of elements differs.

        >>> Tensor([1, 2]).reshape_as(Tensor([[0, 0]])).tolist()
        [[1, 2]]
        """
        return self.reshape(other.shape)

    def type_as(self, other: Self) -> Self:
        """Cast to the dtype of `other`.

        Args:
            other: a tensor; only its dtype is used.

        Returns a tensor of this shape in the dtype of `other`.

        >>> Tensor([1]).type_as(Tensor([0.5])).tolist()
        [1.0]
        """
        return self.cast(other.dtype)

    def fliplr(self) -> Self:
        """Reverse the columns, axis 1.

        Returns a tensor of this shape and dtype.

        Raises IndexBoundsError for less than two axes.

        >>> Tensor([[1, 2]]).fliplr().tolist()
        [[2, 1]]
        """
        return self.flip(1)

    def flipud(self) -> Self:
        """Reverse the rows, axis 0.

        Returns a tensor of this shape and dtype.

        Raises IndexBoundsError for no axes.

        >>> Tensor([[1], [2]]).flipud().tolist()
        [[2], [1]]
        """
        return self.flip(0)

    @composed
    def rot90(self, k: int = 1, dims: Sequence[int] = (0, 1)) -> Self:
        """Rotate by right angles in the plane of two axes, from the first to the second.

        Args:
            k: number of right angles.
            dims: the two axes.

        Returns a tensor of this dtype; the sizes of the two axes are exchanged for odd `k`.

        Raises IndexBoundsError for an axis that is out of range, ShapeError unless there are two.

        >>> Tensor([[1, 2], [3, 4]]).rot90().tolist()
        [[2, 4], [1, 3]]
        """
        axes = [as_axis("rot90", axis, self.ndim) for axis in dims]
        if len(set(axes)) != 2 or len(axes) != 2:
            raise ShapeError(f"rot90: a plane has two axes, not {tuple(dims)}", line=here())
        first, second = axes
        if k % 4 == 0:
            return self._copy_of(self)
        if k % 4 == 2:
            return self.flip(first, second)
        if k % 4 == 1:
            return self.flip(second).transpose(first, second)
        return self.transpose(first, second).flip(second)

    @composed
    def diag_embed(self, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Self:
        """Put the last axis on the diagonals of new matrices of zeros.

        Args:
            offset: number of diagonals above the main one.
            dim1: axis of the rows in the result.
            dim2: axis of the columns in the result.

        Returns a tensor of this dtype and shape (..., n + |offset|, n + |offset|) for shape (...,
        n).

        Raises ShapeError if the two axes are one.

        >>> Tensor([1, 2]).diag_embed().tolist()
        [[1, 0], [0, 2]]
        """
        before, after = max(-offset, 0), max(offset, 0)
        size = self._length(-1) + before + after
        number = self._iota(size)
        is_there = (number.reshape(1, size) - number.reshape(size, 1)).eq(offset)
        rows = self.pad((before, after)).unsqueeze(-1)
        made = is_there.where(rows, rows.const_like(0))
        return made.movedim((-2, -1), (dim1, dim2))

    def diagflat(self, offset: int = 0) -> Self:
        """Put all elements on the diagonal of a matrix of zeros.

        Args:
            offset: number of diagonals above the main one.

        Returns a matrix of this dtype with numel + |offset| rows and columns.

        >>> Tensor([[1], [2]]).diagflat().tolist()
        [[1, 0], [0, 2]]
        """
        return self.flatten().diag_embed(offset)

    # parts

    def select(self, dim: int, index: int) -> Self:
        """Take the slice at `index` along an axis, without that axis.

        Args:
            dim: the axis; a negative one counts from the last.
            index: position along it; a negative one counts from the end.

        Returns a view in this dtype with one axis less.

        Raises IndexBoundsError for an axis or an index that is out of range.

        >>> Tensor([[1, 2], [3, 4]]).select(1, 0).tolist()
        [1, 3]
        """
        axis = as_axis("select", dim, self.ndim)
        return self[(*[slice(None)] * axis, index)]

    def tensor_split(
        self, indices_or_sections: int | Sequence[int], dim: int = 0
    ) -> tuple[Self, ...]:
        """Split along an axis into slices of nearly equal size, or at given positions.

        Args:
            indices_or_sections: a number of slices, the first ones larger by one; or the positions
                where to cut.
            dim: the axis; a negative one counts from the last.

        Returns a tuple of tensors of this dtype.

        Raises ShapeError for less than one slice, IndexBoundsError for an axis that is out of
        range.

        >>> [each.shape[0] for each in Tensor.zeros(7).tensor_split(3)]
        [3, 2, 2]
        """
        axis = as_axis("tensor_split", dim, self.ndim)
        size = self._length(axis)
        if isinstance(indices_or_sections, Iterable):
            given = [as_int("tensor_split", "a position", cut) for cut in indices_or_sections]
            cuts = [0, *(min(cut + size * (cut < 0), size) for cut in given), size]
            return tuple(
                self.narrow(axis, start, max(end - start, 0))
                for start, end in itertools.pairwise(cuts)
            )
        count = as_int("tensor_split", "indices_or_sections", indices_or_sections)
        if count < 1:
            raise ShapeError(f"tensor_split: {count} pieces", line=here(), allowed="1 or more")
        return self.split([size // count + (at < size % count) for at in range(count)], axis)

    def hsplit(self, indices_or_sections: int | Sequence[int]) -> tuple[Self, ...]:
        """Split the columns (axis 1; a vector along axis 0) as `tensor_split` does.

        Args:
            indices_or_sections: a number of slices, or the positions where to cut.

        Returns a tuple of tensors of this dtype.

        Raises ShapeError for less than one slice, IndexBoundsError for a number without axes.

        >>> [each.tolist() for each in Tensor([1, 2, 3]).hsplit(2)]
        [[1, 2], [3]]
        """
        return self.tensor_split(indices_or_sections, 1 if self.ndim > 1 else 0)

    def vsplit(self, indices_or_sections: int | Sequence[int]) -> tuple[Self, ...]:
        """Split the rows (axis 0) as `tensor_split` does.

        Args:
            indices_or_sections: a number of slices, or the positions where to cut.

        Returns a tuple of tensors of this dtype.

        Raises ShapeError for less than one slice, IndexBoundsError for no axes.

        >>> [each.tolist() for each in Tensor([[1], [2]]).vsplit(2)]
        [[[1]], [[2]]]
        """
        return self.tensor_split(indices_or_sections, 0)

    def dsplit(self, indices_or_sections: int | Sequence[int]) -> tuple[Self, ...]:
        """Split the third axis as `tensor_split` does.

        Args:
            indices_or_sections: a number of slices, or the positions where to cut.

        Returns a tuple of tensors of this dtype.

        Raises ShapeError for less than one slice, IndexBoundsError for less than three axes.

        >>> [each.shape for each in Tensor.zeros(1, 1, 5).dsplit([2])]
        [(1, 1, 2), (1, 1, 3)]
        """
        return self.tensor_split(indices_or_sections, 2)

    @composed
    def take_along_dim(self, indices: Self, dim: int | None = None) -> Self:
        """Take elements by index along an axis, as `gather`, with indices that broadcast beside it.

        Args:
            indices: integers with as many axes as this tensor.
            dim: the axis, or None for the flat tensor.

        Returns a tensor of this dtype, of the broadcast shape with the size of `indices` along
        `dim`.

        Raises DTypeError unless `indices` is integer, ShapeError unless the other sizes broadcast,
        IndexBoundsError for an axis that is out of range.

        >>> x = Tensor([[3, 1], [2, 5]])
        >>> x.take_along_dim(x.argsort(1), 1).tolist()
        [[1, 3], [2, 5]]
        """
        if dim is None:
            return self.flatten().gather(0, indices.flatten())
        axis = as_axis("take_along_dim", dim, self.ndim)
        shape = [
            max(mine, theirs) if number != axis else theirs
            for number, (mine, theirs) in enumerate(zip(self._sizes, indices._sizes))
        ]
        whole = [n if number != axis else self._length(axis) for number, n in enumerate(shape)]
        return self.expand(whole).gather(axis, indices.expand(shape))

    def argwhere(self) -> Self:
        """As `nonzero`.

        Returns int32 indices of shape (count, ndim); the count is computed now.

        >>> Tensor([0, 7]).argwhere().tolist()
        [[1]]
        """
        found: Self = self.nonzero()
        return found

    def msort(self) -> Self:
        """Sort along the first axis, the smallest first.

        Returns a tensor of this shape and dtype.

        >>> Tensor([3, 1, 2]).msort().tolist()
        [1, 2, 3]
        """
        return self.sort(0).values

    # parts written, as a new tensor

    def _index_of_axis(
        self, name: str, dim: int, index: Self, shape: Sequence[int]
    ) -> tuple[int, Self]:
        """The axis, and the vector `index` along it as one index for each element of `shape`."""
        axis = as_axis(name, dim, self.ndim)
        if index.ndim > 1 or len(shape) != self.ndim or index.numel() != shape[axis]:
            raise ShapeError(
                f"{name}: an index of {show_shape(index.shape)} along axis {axis} does not go with "
                f"a source of {show_shape(tuple(shape))}",
                tensor=describe(self.uop),
                line=here(),
                rule="an index for each slice of the source",
            )
        sides = [shape[axis] if number == axis else 1 for number in range(self.ndim)]
        return axis, index.reshape(sides).expand(tuple(shape))

    @valued
    @composed
    def index_add(self, dim: int, index: Self, source: Self, *, alpha: float = 1) -> Self:
        """Add slices of `alpha * source` at the positions `index` along an axis; a position that
        occurs twice takes both.

        Args:
            dim: the axis; a negative one counts from the last.
            index: vector of integers.
            source: slices to add, one for each index, in this tensor's other sizes.
            alpha: factor of `source`.

        Returns a tensor of this shape and dtype.

        Raises ShapeError unless there is one index for each slice, DTypeError unless `index` is
        integer, IndexBoundsError for an axis that is out of range.

        >>> Tensor([1, 2, 3]).index_add(0, Tensor([0, 0]), Tensor([10, 5])).tolist()
        [16, 2, 3]
        """
        axis, positions = self._index_of_axis("index_add", dim, index, source._sizes)
        source = source if alpha == 1 else source * alpha
        if not axis:
            return self.scatter_add(0, positions, source)
        # Whole rows, as neighbours of a row are added together.
        rows = source.transpose(0, axis).contiguous()
        return self.transpose(0, axis).index_add(0, index, rows).transpose(0, axis)

    @composed
    def index_copy(self, dim: int, index: Self, source: Self) -> Self:
        """Put the slices of `source` at the positions `index` along an axis.

        Args:
            dim: the axis; a negative one counts from the last.
            index: vector of integers.
            source: slices to write, one for each index.

        Returns a tensor of this shape and dtype.

        Raises ShapeError unless there is one index for each slice, DTypeError unless `index` is
        integer, IndexBoundsError for an axis that is out of range.

        >>> Tensor([1, 2, 3]).index_copy(0, Tensor([2]), Tensor([9])).tolist()
        [1, 2, 9]
        """
        axis, positions = self._index_of_axis("index_copy", dim, index, source._sizes)
        return self.scatter(axis, positions, source)

    @composed
    def index_fill(self, dim: int, index: Self, value: Any) -> Self:
        """Put `value` into the slices at `index` along an axis.

        Args:
            dim: the axis; a negative one counts from the last.
            index: vector of integers.
            value: a number, or a tensor without axes.

        Returns a tensor of this shape and dtype.

        Raises DTypeError unless `index` is integer, ShapeError unless it is a vector,
        IndexBoundsError for an axis that is out of range.

        >>> Tensor([1, 2, 3]).index_fill(0, Tensor([0, 2]), 9).tolist()
        [9, 2, 9]
        """
        axis = as_axis("index_fill", dim, self.ndim)
        shape: list[Any] = list(self._sizes)
        shape[axis] = index.numel()
        axis, positions = self._index_of_axis("index_fill", dim, index, shape)
        return self.scatter(axis, positions, value)

    @composed
    def select_scatter(self, src: Self, dim: int, index: int) -> Self:
        """Put `src` as the slice at `index` along an axis.

        Args:
            src: this tensor's shape without the axis.
            dim: the axis; a negative one counts from the last.
            index: position along it.

        Returns a tensor of this shape and dtype.

        Raises IndexBoundsError for an axis or an index that is out of range, ShapeError if `src`
        has another shape.

        >>> Tensor([[1, 2], [3, 4]]).select_scatter(Tensor([8, 9]), 1, 0).tolist()
        [[8, 2], [9, 4]]
        """
        axis = as_axis("select_scatter", dim, self.ndim)
        start = self.select(axis, index) is not None and index % self._length(axis)
        return self.slice_scatter(src.unsqueeze(axis), axis, start, start + 1)

    @composed
    def slice_scatter(
        self, src: Self, dim: int = 0, start: int | None = None, end: int | None = None,
        step: int = 1,
    ) -> Self:  # fmt: skip
        """Put `src` at the positions start:end:step along an axis.

        Args:
            src: this tensor's shape, with the number of positions along the axis.
            dim: the axis; a negative one counts from the last.
            start: first position, by default 0.
            end: end, not included, by default the size.
            step: difference of neighbours.

        Returns a tensor of this shape and dtype.

        Raises IndexBoundsError for an axis that is out of range, ShapeError if `src` has another
        shape.

        >>> Tensor([1, 2, 3]).slice_scatter(Tensor([8, 9]), 0, 1).tolist()
        [1, 8, 9]
        """
        axis = as_axis("slice_scatter", dim, self.ndim)
        positions = range(self._length(axis))[start:end:step]
        index = type(self)(list(positions), device=self.device, dtype=dtypes.int32)
        return self.index_copy(axis, index, src)

    # devices

    def cpu(self) -> Self:
        """Move to the CPU.

        Returns a tensor of this shape and dtype.

        >>> Tensor([1]).cpu().device
        'CPU'
        """
        return self.to("CPU")

    def cuda(self, device: int | str | None = None) -> Self:
        """Move to an Nvidia GPU: the first one, the one of a number, or the device of a name.

        Args:
            device: None, a number or a name.

        Returns a tensor of this shape and dtype.

        Raises DeviceError if there is none.

        >>> Tensor([1]).cuda("CPU").device
        'CPU'
        """
        number = f"CUDA:{device}" if isinstance(device, int) and device else "CUDA"
        return self.to(device if isinstance(device, str) else number)

    @property
    def is_cuda(self) -> bool:
        """Whether this is on an Nvidia GPU.

        Returns a bool.

        >>> Tensor([1]).cpu().is_cuda
        False
        """
        return self.device.startswith("CUDA")

    @property
    def is_cpu(self) -> bool:
        """Whether this is on the CPU.

        Returns a bool.

        >>> Tensor([1]).cpu().is_cpu
        True
        """
        return self.device.startswith("CPU")

    @property
    def is_leaf(self) -> bool:
        """Whether this was made, not computed: `backward` adds to `grad` of leaves that require a
        gradient.

        Returns a bool.

        >>> x = Tensor([1.0], requires_grad=True)
        >>> x.is_leaf, (x * 2).is_leaf
        (True, False)
        """
        return self._is_leaf

    def byte(self) -> Self:
        """Cast to uint8, toward zero; negative and large values wrap around.

        Returns a uint8 tensor of this shape.

        >>> Tensor([1.5]).byte().dtype.name
        'uint8'
        """
        return self.cast(dtypes.uint8)

    def char(self) -> Self:
        """Cast to int8, toward zero; large values wrap around.

        Returns an int8 tensor of this shape.

        >>> Tensor([1.5]).char().dtype.name
        'int8'
        """
        return self.cast(dtypes.int8)

    # new tensors

    def new_zeros(self, *shape: Any, dtype: DType | str | None = None) -> Self:
        """New tensor of zeros on this device.

        Args:
            shape: the sizes, one by one or as one tuple.
            dtype: dtype of the result, by default that of this tensor.

        Returns a tensor of `shape`.

        Raises ShapeError for a negative size, DTypeError for a name that is no dtype.

        >>> Tensor([1]).new_zeros(2).tolist()
        [0, 0]
        """
        return type(self).zeros(*shape, dtype=dtype or self.dtype, device=self.device)

    def new_ones(self, *shape: Any, dtype: DType | str | None = None) -> Self:
        """New tensor of ones on this device.

        Args:
            shape: the sizes, one by one or as one tuple.
            dtype: dtype of the result, by default that of this tensor.

        Returns a tensor of `shape`.

        Raises ShapeError for a negative size, DTypeError for a name that is no dtype.

        >>> Tensor([1]).new_ones(2).tolist()
        [1, 1]
        """
        return type(self).ones(*shape, dtype=dtype or self.dtype, device=self.device)

    def new_empty(self, *shape: Any, dtype: DType | str | None = None) -> Self:
        """New tensor on this device whose values are not set.

        Args:
            shape: the sizes, one by one or as one tuple.
            dtype: dtype of the result, by default that of this tensor.

        Returns a tensor of `shape`.

        Raises ShapeError for a negative size, DTypeError for a name that is no dtype.

        >>> Tensor([1]).new_empty(2).shape
        (2,)
        """
        return type(self).empty(*shape, dtype=dtype or self.dtype, device=self.device)

    def new_full(self, shape: Any, fill_value: Any, dtype: DType | str | None = None) -> Self:
        """New tensor on this device with `fill_value` in every element.

        Args:
            shape: the sizes, one by one or as one tuple.
            fill_value: a number.
            dtype: dtype of the result, by default that of this tensor.

        Returns a tensor of `shape`.

        Raises ShapeError for a negative size, DTypeError for a name that is no dtype.

        >>> Tensor([1]).new_full((2,), 5).tolist()
        [5, 5]
        """
        return type(self).full(shape, fill_value, dtype=dtype or self.dtype, device=self.device)

    def new_tensor(self, data: Any, dtype: DType | str | None = None) -> Self:
        """New tensor on this device from `data`.

        Args:
            data: what `Tensor` takes.
            dtype: dtype of the result, by default that of this tensor.

        Returns a tensor of the shape of `data`.

        Raises ShapeError for a ragged list, DTypeError for what is no number.

        >>> Tensor([1.0]).new_tensor([2]).tolist()
        [2.0]
        """
        return type(self)(data, dtype=dtype or self.dtype, device=self.device)

    @classmethod
    def logspace(
        cls, start: float, stop: float, steps: int, base: float = 10.0, **options: Any
    ) -> Self:
        """Powers of `base` whose exponents are evenly spaced from `start` to `stop`, both included.

        Args:
            start: first exponent.
            stop: last exponent.
            steps: number of values.
            base: the base.
            options: `device`, `dtype` and `requires_grad`, as of `Tensor.full`.

        Returns a vector of shape (steps,) in the default float (float32).

        Raises ShapeError if `steps` is negative, DTypeError for a dtype that is no float.

        >>> Tensor.logspace(0, 2, 3).round().tolist()
        [1.0, 10.0, 100.0]
        """
        wanted = as_dtype(options.pop("dtype", None) or dtypes.default_float)
        wants_gradient = options.pop("requires_grad", None)
        powers: Self = cls.linspace(start, stop, steps, dtype=wanted, **options)
        if wanted.is_float:
            # A power is off by as much as its exponent, which is as large as the power is long.
            wide = powers._widest_float()
            powers = cls.linspace(start, stop, steps, dtype=wide, **options)
        return (powers * math.log2(base)).exp2().cast(wanted)._wanting(wants_gradient)

    @classmethod
    def tril_indices(cls, row: int, col: int, offset: int = 0) -> Self:
        """Indices of the lower triangle of a matrix, row by row.

        Args:
            row: number of rows.
            col: number of columns.
            offset: number of diagonals above the main one that count too.

        Returns int32 rows and columns, of shape (2, n).

        Raises ShapeError for a negative size.

        >>> Tensor.tril_indices(2, 2).tolist()
        [[0, 1, 1], [0, 0, 1]]
        """
        pairs = [(r, c) for r in range(row) for c in range(min(col, r + offset + 1))]
        return cls._columns_of(pairs)

    @classmethod
    def triu_indices(cls, row: int, col: int, offset: int = 0) -> Self:
        """Indices of the upper triangle of a matrix, row by row.

        Args:
            row: number of rows.
            col: number of columns.
            offset: number of diagonals above the main one that do not count.

        Returns int32 rows and columns, of shape (2, n).

        Raises ShapeError for a negative size.

        >>> Tensor.triu_indices(2, 2).tolist()
        [[0, 0, 1], [0, 1, 1]]
        """
        pairs = [(r, c) for r in range(row) for c in range(max(0, r + offset), col)]
        return cls._columns_of(pairs)

    @classmethod
    def _columns_of(cls, pairs: Sequence[tuple[int, int]]) -> Self:
        kind: Any = cls
        made: Self = kind([list(each) for each in zip(*pairs)] or [[], []], dtype=dtypes.int32)
        return made

    # joined

    @staticmethod
    def _each(tensors: Any) -> list[Any]:
        return list(tensors[0]) if len(tensors) == 1 and type(tensors[0]) in (list, tuple) else [
            *tensors
        ]  # fmt: skip

    @classmethod
    def hstack(cls, *tensors: Any) -> Self:
        """Join side by side: along axis 1, vectors along axis 0.

        Args:
            tensors: one by one or as a list, of equal other sizes.

        Returns one tensor, in the dtype to which all promote.

        Raises ShapeError if the other sizes differ.

        >>> Tensor.hstack([Tensor([1]), Tensor([2, 3])]).tolist()
        [1, 2, 3]
        """
        arrays = [each if each.ndim else each.reshape(1) for each in cls._each(tensors)]
        joined: Self = arrays[0].cat(*arrays[1:], dim=0 if arrays[0].ndim == 1 else 1)
        return joined

    @classmethod
    def vstack(cls, *tensors: Any) -> Self:
        """Join one below the other: along axis 0; a vector (n,) counts as a row (1, n).

        Args:
            tensors: one by one or as a list, of equal other sizes.

        Returns one tensor, in the dtype to which all promote.

        Raises ShapeError if the other sizes differ.

        >>> Tensor.vstack([Tensor([1, 2]), Tensor([3, 4])]).tolist()
        [[1, 2], [3, 4]]
        """
        arrays = [p if p.ndim > 1 else p.reshape(1, -1) for p in cls._each(tensors)]
        joined: Self = arrays[0].cat(*arrays[1:], dim=0)
        return joined

    @classmethod
    def block_diag(cls, *tensors: Any) -> Self:
        """Block diagonal matrix: the matrices along the diagonal, zeros elsewhere.

        Args:
            tensors: matrices; vectors count as rows, numbers as (1, 1).

        Returns a matrix with the sum of the rows and the sum of the columns, in the dtype to which
        all promote.

        Raises ShapeError for more than two axes.

        >>> Tensor.block_diag(Tensor([[1]]), Tensor([[2, 3]])).tolist()
        [[1, 0, 0], [0, 2, 3]]
        """
        arrays = [p if p.ndim > 1 else p.reshape(1, -1) for p in cls._each(tensors)]
        width, before = sum(each._sizes[1] for each in arrays), 0
        rows = []
        for each in arrays:
            after = width - before - each._sizes[1]
            rows.append(each.pad(((0, 0), (before, after))))
            before += each._sizes[1]
        joined: Self = rows[0].cat(*rows[1:], dim=0)
        return joined

    @classmethod
    def cartesian_prod(cls, *tensors: Self) -> Self:
        """All ways to choose one element of each vector, a row for each.

        Args:
            tensors: vectors.

        Returns a tensor of shape (product of the sizes, number of vectors), in the dtype to which
        all promote; of one vector the vector.

        Raises ShapeError for what is no vector.

        >>> Tensor.cartesian_prod(Tensor([1, 2]), Tensor([3])).tolist()
        [[1, 3], [2, 3]]
        """
        if len(tensors) == 1:
            return tensors[0]
        grids: Any = tensors[0].meshgrid(*tensors[1:], indexing="ij")
        flat = [grid.flatten() for grid in grids]
        joined: Self = flat[0].stack(*flat[1:], dim=1)
        return joined

    @classmethod
    def broadcast_tensors(cls, *tensors: Self) -> tuple[Self, ...]:
        """Expand all tensors to the shape to which they broadcast.

        Args:
            tensors: any number of tensors.

        Returns a tuple of views of one shape, each in its own dtype.

        Raises ShapeError if there is none.

        >>> [each.shape for each in Tensor.broadcast_tensors(Tensor([[1], [2]]), Tensor([3, 4]))]
        [(2, 2), (2, 2)]
        """
        shape = broadcast_shape("broadcast_tensors", tensors)
        return tuple(tensor.expand(shape) for tensor in tensors)
