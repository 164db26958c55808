"""Shapes and parts of tensors under PyTorch's names, by the methods of movement and indexing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Self

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import ShapeError
from tilegrad.base.origin import composed
from tilegrad.tensor.core import as_dtype, broadcast_shape, describe
from tilegrad.tensor.sizes import as_axis, here, show_shape
from tilegrad.tensor.statistics import Statistics

__all__ = ["Layouts"]


class Layouts(Statistics):
    """Turning, cutting, picking and joining under PyTorch's names."""

    __slots__ = ()

    # axes

    def t(self) -> Self:
        """A matrix with its axes exchanged; a vector or a number as it is.

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
        """The last two axes exchanged.

        >>> Tensor([[1, 2]]).mT.tolist()
        [[1], [2]]
        """
        return self.transpose(-1, -2)

    swapaxes = Statistics.transpose
    swapdims = Statistics.transpose
    moveaxis = Statistics.movedim
    broadcast_to = Statistics.expand
    tile = Statistics.repeat
    nelement = Statistics.numel
    ndimension = Statistics.dim

    def ravel(self) -> Self:
        """One axis of all elements.

        >>> Tensor([[1, 2]]).ravel().tolist()
        [1, 2]
        """
        return self.flatten()

    def view_as(self, other: Self) -> Self:
        """Reshaped as `other`.

        >>> Tensor([1, 2]).view_as(Tensor([[0, 0]])).tolist()
        [[1, 2]]
        """
        return self.reshape(other.shape)

    def reshape_as(self, other: Self) -> Self:
        """Reshaped as `other`.

        >>> Tensor([1, 2]).reshape_as(Tensor([[0, 0]])).tolist()
        [[1, 2]]
        """
        return self.reshape(other.shape)

    def type_as(self, other: Self) -> Self:
        """Cast to the dtype of `other`.

        >>> Tensor([1]).type_as(Tensor([0.5])).tolist()
        [1.0]
        """
        return self.cast(other.dtype)

    def fliplr(self) -> Self:
        """The columns in reverse.

        >>> Tensor([[1, 2]]).fliplr().tolist()
        [[2, 1]]
        """
        return self.flip(1)

    def flipud(self) -> Self:
        """The rows in reverse.

        >>> Tensor([[1], [2]]).flipud().tolist()
        [[2], [1]]
        """
        return self.flip(0)

    @composed
    def rot90(self, k: int = 1, dims: Sequence[int] = (0, 1)) -> Self:
        """Turned `k` times by a right angle, from the first of two axes to the second.

        >>> Tensor([[1, 2], [3, 4]]).rot90().tolist()
        [[2, 4], [1, 3]]
        """
        first, second = (as_axis("rot90", axis, self.ndim) for axis in dims)
        if k % 4 == 0:
            return self._copy_of(self)
        if k % 4 == 2:
            return self.flip(first, second)
        if k % 4 == 1:
            return self.flip(second).transpose(first, second)
        return self.transpose(first, second).flip(second)

    @composed
    def diag_embed(self, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Self:
        """Matrices with the last axis on their diagonals, `offset` to the right, over the axes
        `dim1` and `dim2` of the result.

        >>> Tensor([1, 2]).diag_embed().tolist()
        [[1, 0], [0, 2]]
        """
        before, after = max(-offset, 0), max(offset, 0)
        size = self._length(-1) + before + after
        place = self._places(size)
        is_there = (place.reshape(1, size) - place.reshape(size, 1)).eq(offset)
        rows = self.pad((before, after)).unsqueeze(-1)
        made = is_there.where(rows, rows.const_like(0))
        return made.movedim((-2, -1), (dim1, dim2))

    def diagflat(self, offset: int = 0) -> Self:
        """A matrix with all elements on its diagonal, `offset` to the right.

        >>> Tensor([[1], [2]]).diagflat().tolist()
        [[1, 0], [0, 2]]
        """
        return self.flatten().diag_embed(offset)

    # parts

    def select(self, dim: int, index: int) -> Self:
        """The slice at `index` along `dim`, without that axis.

        Raises IndexBoundsError if there is none.

        >>> Tensor([[1, 2], [3, 4]]).select(1, 0).tolist()
        [1, 3]
        """
        axis = as_axis("select", dim, self.ndim)
        return self[(*[slice(None)] * axis, index)]

    def tensor_split(
        self, indices_or_sections: int | Sequence[int], dim: int = 0
    ) -> tuple[Self, ...]:
        """Pieces along `dim`: so many of nearly equal size, the first ones larger by one; or cut at
        the places listed.

        Raises ShapeError for less than one piece.

        >>> [part.shape[0] for part in Tensor.zeros(7).tensor_split(3)]
        [3, 2, 2]
        """
        axis = as_axis("tensor_split", dim, self.ndim)
        size = self._length(axis)
        if isinstance(indices_or_sections, int):
            count = indices_or_sections
            if count < 1:
                raise ShapeError(f"tensor_split: {count} pieces", line=here(), allowed="1 or more")
            sizes = [size // count + (place < size % count) for place in range(count)]
        else:
            cuts = [0, *(min(cut + size * (cut < 0), size) for cut in indices_or_sections), size]
            return tuple(
                self.narrow(axis, start, max(end - start, 0))
                for start, end in itertools.pairwise(cuts)
            )
        return self.split(sizes, axis)

    def hsplit(self, indices_or_sections: int | Sequence[int]) -> tuple[Self, ...]:
        """`tensor_split` of the columns, or of a vector.

        >>> [part.tolist() for part in Tensor([1, 2, 3]).hsplit(2)]
        [[1, 2], [3]]
        """
        return self.tensor_split(indices_or_sections, 1 if self.ndim > 1 else 0)

    def vsplit(self, indices_or_sections: int | Sequence[int]) -> tuple[Self, ...]:
        """`tensor_split` of the rows.

        >>> [part.tolist() for part in Tensor([[1], [2]]).vsplit(2)]
        [[[1]], [[2]]]
        """
        return self.tensor_split(indices_or_sections, 0)

    def dsplit(self, indices_or_sections: int | Sequence[int]) -> tuple[Self, ...]:
        """`tensor_split` of the third axis.

        >>> [part.shape for part in Tensor.zeros(1, 1, 5).dsplit([2])]
        [(1, 1, 2), (1, 1, 3)]
        """
        return self.tensor_split(indices_or_sections, 2)

    @composed
    def take_along_dim(self, indices: Self, dim: int | None = None) -> Self:
        """`gather` along `dim`, with indices that broadcast beside it; of the flat tensor if it is
        None.

        >>> x = Tensor([[3, 1], [2, 5]])
        >>> x.take_along_dim(x.argsort(1), 1).tolist()
        [[1, 3], [2, 5]]
        """
        if dim is None:
            return self.flatten().gather(0, indices.flatten())
        axis = as_axis("take_along_dim", dim, self.ndim)
        shape = [
            max(mine, theirs) if place != axis else theirs
            for place, (mine, theirs) in enumerate(zip(self._sizes, indices._sizes))
        ]
        whole = [n if place != axis else self._length(axis) for place, n in enumerate(shape)]
        return self.expand(whole).gather(axis, indices.expand(shape))

    def argwhere(self) -> Self:
        """As `nonzero`.

        >>> Tensor([0, 7]).argwhere().tolist()
        [[1]]
        """
        found: Self = self.nonzero()
        return found

    def msort(self) -> Self:
        """The values in order along the first axis.

        >>> Tensor([3, 1, 2]).msort().tolist()
        [1, 2, 3]
        """
        return self.sort(0).values

    # parts written, as a new tensor

    def _along(self, name: str, dim: int, index: Self, shape: Sequence[int]) -> tuple[int, Self]:
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
        sides = [shape[axis] if place == axis else 1 for place in range(self.ndim)]
        return axis, index.reshape(sides).expand(tuple(shape))

    @composed
    def index_add(self, dim: int, index: Self, source: Self, *, alpha: float = 1) -> Self:
        """This tensor with the slices of `alpha * source` added at the places `index` along `dim`.

        Raises ShapeError unless there is one index for each slice.

        >>> Tensor([1, 2, 3]).index_add(0, Tensor([0, 0]), Tensor([10, 5])).tolist()
        [16, 2, 3]
        """
        axis, places = self._along("index_add", dim, index, source._sizes)
        source = source if alpha == 1 else source * alpha
        if not axis:
            return self.scatter_add(0, places, source)
        # Whole rows, as neighbours of a row are added together.
        rows = source.transpose(0, axis).contiguous()
        return self.transpose(0, axis).index_add(0, index, rows).transpose(0, axis)

    @composed
    def index_copy(self, dim: int, index: Self, source: Self) -> Self:
        """This tensor with the slices of `source` at the places `index` along `dim`.

        Raises as `index_add`.

        >>> Tensor([1, 2, 3]).index_copy(0, Tensor([2]), Tensor([9])).tolist()
        [1, 2, 9]
        """
        axis, places = self._along("index_copy", dim, index, source._sizes)
        return self.scatter(axis, places, source)

    @composed
    def index_fill(self, dim: int, index: Self, value: Any) -> Self:
        """This tensor with `value` in the slices at `index` along `dim`.

        >>> Tensor([1, 2, 3]).index_fill(0, Tensor([0, 2]), 9).tolist()
        [9, 2, 9]
        """
        axis = as_axis("index_fill", dim, self.ndim)
        shape: list[Any] = list(self._sizes)
        shape[axis] = index.numel()
        axis, places = self._along("index_fill", dim, index, shape)
        return self.scatter(axis, places, value)

    @composed
    def select_scatter(self, src: Self, dim: int, index: int) -> Self:
        """This tensor with `src` as its slice at `index` along `dim`.

        Raises IndexBoundsError if there is none.

        >>> Tensor([[1, 2], [3, 4]]).select_scatter(Tensor([8, 9]), 1, 0).tolist()
        [[8, 2], [9, 4]]
        """
        axis = as_axis("select_scatter", dim, self.ndim)
        place = self.select(axis, index) is not None and index % self._length(axis)
        return self.slice_scatter(src.unsqueeze(axis), axis, place, place + 1)

    @composed
    def slice_scatter(
        self, src: Self, dim: int = 0, start: int | None = None, end: int | None = None,
        step: int = 1,
    ) -> Self:  # fmt: skip
        """This tensor with `src` in the places start:end:step along `dim`.

        >>> Tensor([1, 2, 3]).slice_scatter(Tensor([8, 9]), 0, 1).tolist()
        [1, 8, 9]
        """
        axis = as_axis("slice_scatter", dim, self.ndim)
        places = range(self._length(axis))[start:end:step]
        index = type(self)(list(places), device=self.device, dtype=dtypes.int32)
        return self.index_copy(axis, index, src)

    # devices

    def cpu(self) -> Self:
        """On the CPU.

        >>> Tensor([1]).cpu().device
        'CPU'
        """
        return self.to("CPU")

    def cuda(self, device: int | str | None = None) -> Self:
        """On an Nvidia GPU: the first, the one of this number, or the device of this name.

        Raises DeviceError if there is none.

        >>> Tensor([1]).cuda("CPU").device
        'CPU'
        """
        number = f"CUDA:{device}" if isinstance(device, int) and device else "CUDA"
        return self.to(device if isinstance(device, str) else number)

    @property
    def is_cuda(self) -> bool:
        """Whether this is on an Nvidia GPU.

        >>> Tensor([1]).cpu().is_cuda
        False
        """
        return self.device.startswith("CUDA")

    @property
    def is_cpu(self) -> bool:
        """Whether this is on the CPU.

        >>> Tensor([1]).cpu().is_cpu
        True
        """
        return self.device.startswith("CPU")

    @property
    def is_leaf(self) -> bool:
        """Whether `backward` adds to `grad` of this tensor if it requires a gradient: it was made,
        not computed.

        >>> x = Tensor([1.0], requires_grad=True)
        >>> x.is_leaf, (x * 2).is_leaf
        (True, False)
        """
        return self._is_leaf

    def byte(self) -> Self:
        """Cast to uint8.

        >>> Tensor([1.5]).byte().dtype.name
        'uint8'
        """
        return self.cast(dtypes.uint8)

    def char(self) -> Self:
        """Cast to int8.

        >>> Tensor([1.5]).char().dtype.name
        'int8'
        """
        return self.cast(dtypes.int8)

    # new tensors

    def new_zeros(self, *shape: Any, dtype: DType | str | None = None) -> Self:
        """Zeros of this dtype on this device.

        >>> Tensor([1]).new_zeros(2).tolist()
        [0, 0]
        """
        return type(self).zeros(*shape, dtype=dtype or self.dtype, device=self.device)

    def new_ones(self, *shape: Any, dtype: DType | str | None = None) -> Self:
        """Ones of this dtype on this device.

        >>> Tensor([1]).new_ones(2).tolist()
        [1, 1]
        """
        return type(self).ones(*shape, dtype=dtype or self.dtype, device=self.device)

    def new_empty(self, *shape: Any, dtype: DType | str | None = None) -> Self:
        """Memory of this dtype on this device, with any values.

        >>> Tensor([1]).new_empty(2).shape
        (2,)
        """
        return type(self).empty(*shape, dtype=dtype or self.dtype, device=self.device)

    def new_full(self, shape: Any, fill_value: Any, dtype: DType | str | None = None) -> Self:
        """`fill_value` everywhere, in this dtype on this device.

        >>> Tensor([1]).new_full((2,), 5).tolist()
        [5, 5]
        """
        return type(self).full(shape, fill_value, dtype=dtype or self.dtype, device=self.device)

    def new_tensor(self, data: Any, dtype: DType | str | None = None) -> Self:
        """`data` in this dtype on this device.

        >>> Tensor([1.0]).new_tensor([2]).tolist()
        [2.0]
        """
        return type(self)(data, dtype=dtype or self.dtype, device=self.device)

    @classmethod
    def logspace(
        cls, start: float, stop: float, steps: int, base: float = 10.0, **options: Any
    ) -> Self:
        """`base` to the powers of `linspace`.

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
        """The rows and the columns, as int32 of shape (2, n), of the lower triangle of a matrix.

        >>> Tensor.tril_indices(2, 2).tolist()
        [[0, 1, 1], [0, 0, 1]]
        """
        pairs = [(r, c) for r in range(row) for c in range(min(col, r + offset + 1))]
        return cls._columns_of(pairs)

    @classmethod
    def triu_indices(cls, row: int, col: int, offset: int = 0) -> Self:
        """The same of the upper triangle.

        >>> Tensor.triu_indices(2, 2).tolist()
        [[0, 0, 1], [0, 1, 1]]
        """
        pairs = [(r, c) for r in range(row) for c in range(max(0, r + offset), col)]
        return cls._columns_of(pairs)

    @classmethod
    def _columns_of(cls, pairs: Sequence[tuple[int, int]]) -> Self:
        kind: Any = cls
        made: Self = kind([list(part) for part in zip(*pairs)] or [[], []], dtype=dtypes.int32)
        return made

    # joined

    @staticmethod
    def _each(tensors: Any) -> list[Any]:
        return list(tensors[0]) if len(tensors) == 1 and type(tensors[0]) in (list, tuple) else [
            *tensors
        ]  # fmt: skip

    @classmethod
    def hstack(cls, *tensors: Any) -> Self:
        """Side by side: along axis 1, vectors along axis 0. Given one by one or as a list.

        >>> Tensor.hstack([Tensor([1]), Tensor([2, 3])]).tolist()
        [1, 2, 3]
        """
        parts = [part if part.ndim else part.reshape(1) for part in cls._each(tensors)]
        joined: Self = parts[0].cat(*parts[1:], dim=0 if parts[0].ndim == 1 else 1)
        return joined

    @classmethod
    def vstack(cls, *tensors: Any) -> Self:
        """One below the other: along axis 0, vectors as rows. Given one by one or as a list.

        >>> Tensor.vstack([Tensor([1, 2]), Tensor([3, 4])]).tolist()
        [[1, 2], [3, 4]]
        """
        parts = [p if p.ndim > 1 else p.reshape(1, -1) for p in cls._each(tensors)]
        joined: Self = parts[0].cat(*parts[1:], dim=0)
        return joined

    @classmethod
    def block_diag(cls, *tensors: Any) -> Self:
        """A matrix with these matrices along its diagonal and zeros elsewhere.

        >>> Tensor.block_diag(Tensor([[1]]), Tensor([[2, 3]])).tolist()
        [[1, 0, 0], [0, 2, 3]]
        """
        parts = [p if p.ndim > 1 else p.reshape(1, -1) for p in cls._each(tensors)]
        width, before = sum(part._sizes[1] for part in parts), 0
        rows = []
        for part in parts:
            after = width - before - part._sizes[1]
            rows.append(part.pad(((0, 0), (before, after))))
            before += part._sizes[1]
        joined: Self = rows[0].cat(*rows[1:], dim=0)
        return joined

    @classmethod
    def cartesian_prod(cls, *tensors: Self) -> Self:
        """All ways to choose one element of each vector, a row for each.

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
        """All of them in the shape to which they broadcast.

        Raises ShapeError if there is none.

        >>> [part.shape for part in Tensor.broadcast_tensors(Tensor([[1], [2]]), Tensor([3, 4]))]
        [(2, 2), (2, 2)]
        """
        shape = broadcast_shape("broadcast_tensors", [tensor.uop for tensor in tensors])
        return tuple(tensor.expand(shape) for tensor in tensors)
