"""Tensors like another one, on other devices or of other dtypes, and of numbers by a rule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

from tilegrad.base.dtype import DType, dtypes
from tilegrad.tensor.composed.slicing import Slicing
from tilegrad.tensor.handle.core import as_dtype

__all__ = ["Creating"]


class Creating(Slicing):
    """Creation and conversion under PyTorch's names."""

    __slots__ = ()

    def type_as(self, other: Self) -> Self:
        """Cast to the dtype of `other`.

        Args:
            other: a tensor; only its dtype is used.

        Returns a tensor of this shape in the dtype of `other`.

        >>> Tensor([1]).type_as(Tensor([0.5])).tolist()
        [1.0]
        """
        return self.cast(other.dtype)

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
