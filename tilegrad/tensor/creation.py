"""New tensors: filled, counted, and shaped like others.

A filled tensor is a constant that is stretched: it takes no memory until something is written to
it.
"""

from __future__ import annotations

import math
from typing import Any, Self

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import DTypeError, ShapeError
from tilegrad.base.origin import composed
from tilegrad.ir.uop import UOp, sint
from tilegrad.tensor import memory
from tilegrad.tensor.checked import checked
from tilegrad.tensor.core import as_dtype
from tilegrad.tensor.device import canonical
from tilegrad.tensor.scan import Scan
from tilegrad.tensor.sizes import (
    as_int,
    as_number,
    as_size,
    as_sizes,
    ceil_divide,
    flat_arguments,
    here,
    is_zero,
)
from tilegrad.tensor.templates import templated

__all__ = ["Creation"]

DTypeLike = DType | str | None


class Creation(Scan):
    """Creation methods. All take `device`, `dtype` and `requires_grad`; sizes are spelled out or
    are one tuple.
    """

    __slots__ = ()

    def _wanting(self, requires_grad: bool | None) -> Self:
        """This new tensor as a leaf, whose gradient is kept if `requires_grad`."""
        self._is_leaf = True
        if requires_grad is not None:
            self.requires_grad = requires_grad
        return self

    @classmethod
    def empty(
        cls,
        *shape: Any,
        device: str | None = None,
        dtype: DTypeLike = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """Memory of `shape` with whatever values it holds; nothing is computed.

        >>> Tensor.empty(2, 3).shape
        (2, 3)
        """
        sizes, variables = as_sizes("empty", flat_arguments(shape))
        kind, name = as_dtype(dtype or dtypes.default_float), canonical(device)
        if any(is_zero(size) for size in sizes):
            return cls.full(sizes, 0, device=name, dtype=kind, requires_grad=requires_grad)
        return cls._of(memory.empty(name, kind, sizes), name, variables)._wanting(requires_grad)

    @classmethod
    def invalids(
        cls,
        *shape: Any,
        device: str | None = None,
        dtype: DTypeLike = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """As `empty`: elements whose values nobody is to rely on.

        >>> Tensor.invalids(2, 3).shape
        (2, 3)
        """
        return cls.empty(*shape, device=device, dtype=dtype, requires_grad=requires_grad)

    @classmethod
    def full(
        cls,
        shape: Any,
        fill_value: Any,
        device: str | None = None,
        dtype: DTypeLike = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """`fill_value` in every element; without `dtype`, in the default dtype of its kind.

        >>> Tensor.full((2,), 7).tolist()
        [7, 7]
        """
        sizes, variables = as_sizes("full", shape if isinstance(shape, (tuple, list)) else (shape,))
        value = cls(fill_value, device=canonical(device), dtype=dtype)
        return value.expand(sizes)._holding(variables)._apart()._wanting(requires_grad)

    @classmethod
    def zeros(
        cls,
        *shape: Any,
        device: str | None = None,
        dtype: DTypeLike = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """Zeros, float32 by default.

        >>> Tensor.zeros(2).tolist()
        [0.0, 0.0]
        """
        return cls.full(
            flat_arguments(shape), 0, device, dtype or dtypes.default_float, requires_grad
        )

    @classmethod
    def ones(
        cls,
        *shape: Any,
        device: str | None = None,
        dtype: DTypeLike = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """Ones, float32 by default.

        >>> Tensor.ones(2).tolist()
        [1.0, 1.0]
        """
        return cls.full(
            flat_arguments(shape), 1, device, dtype or dtypes.default_float, requires_grad
        )

    def full_like(
        self,
        fill_value: Any,
        device: str | None = None,
        dtype: DTypeLike = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """`fill_value` in the shape, dtype and device of this tensor.

        >>> Tensor([1, 2]).full_like(3).tolist()
        [3, 3]
        """
        filled = type(self).full(
            self.shape, fill_value, device or self.device, dtype or self.dtype, requires_grad
        )
        return filled._holding(self._variables)._apart()

    def zeros_like(
        self, device: str | None = None, dtype: DTypeLike = None, requires_grad: bool | None = None
    ) -> Self:
        """Zeros in the shape, dtype and device of this tensor.

        >>> Tensor([5, 6]).zeros_like().tolist()
        [0, 0]
        """
        return self.full_like(0, device, dtype, requires_grad)

    def ones_like(
        self, device: str | None = None, dtype: DTypeLike = None, requires_grad: bool | None = None
    ) -> Self:
        """Ones in the shape, dtype and device of this tensor.

        >>> Tensor([5, 6]).ones_like().tolist()
        [1, 1]
        """
        return self.full_like(1, device, dtype, requires_grad)

    def empty_like(
        self, device: str | None = None, dtype: DTypeLike = None, requires_grad: bool | None = None
    ) -> Self:
        """Memory in the shape, dtype and device of this tensor.

        >>> Tensor([1, 2]).empty_like().dtype
        dtypes.int
        """
        return type(self).empty(
            self.shape,
            device=device or self.device,
            dtype=dtype or self.dtype,
            requires_grad=requires_grad,
        )

    @classmethod
    @composed
    def arange(
        cls,
        start: Any,
        stop: Any = None,
        step: Any = 1,
        device: str | None = None,
        dtype: DTypeLike = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """start, start + step, ... before `stop`; `arange(n)` counts from 0.

        int32 if all three are integers, else the default float. Element i is start + i * step, a
        formula in the kernel, in float64 where the device has it.

        Raises ShapeError if `step` is 0.

        >>> Tensor.arange(2, 8, 2).tolist()
        [2, 4, 6]
        """
        if stop is None:
            start, stop = 0, start
        if isinstance(start, UOp) or isinstance(stop, UOp):
            low, first = as_size("arange", start)
            high, second = as_size("arange", stop)
            step = as_int("arange", "a step beside a Variable", step)
            count: sint = ceil_divide(high - low, step)
            base = cls._of(UOp.const(dtypes.int32, 0), device)._holding({**first, **second})
            places: Self = base._places(count) * step + (
                low if isinstance(low, int) else base._size_number(low)
            )
            return places.cast(as_dtype(dtype or dtypes.default_int))._wanting(requires_grad)
        step = as_number("arange", "step", step)
        if step == 0:
            raise ShapeError(
                f"arange: step is 0 from {start} to {stop}",
                line=here(),
                rule="a step above 0 counts up, one below 0 down",
            )
        length = max(0, math.ceil((stop - start) / step))
        is_whole = all(isinstance(value, int) for value in (start, stop, step))
        wanted = (
            as_dtype(dtype)
            if dtype is not None
            else (_integer_for(start, stop) if is_whole else dtypes.default_float)
        )
        if not length:
            return cls.full((0,), 0, device, wanted, requires_grad)
        places = cls._of(UOp.const(dtypes.int32, 0), device)._places(length)
        # Whole numbers are counted as such, others in the widest float, and rounded once.
        counting = _integer_for(start, stop) if is_whole else places._widest_float()
        places = places.cast(counting)
        places = places if step == 1 else places * step
        return (places if start == 0 else places + start).cast(wanted)._wanting(requires_grad)

    @classmethod
    @composed
    def linspace(
        cls,
        start: float,
        stop: float,
        steps: int,
        device: str | None = None,
        dtype: DTypeLike = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """`steps` values from `start` to `stop`, both included, equally far apart.

        Raises ShapeError if `steps` is negative.

        >>> Tensor.linspace(0, 1, 5).tolist()
        [0.0, 0.25, 0.5, 0.75, 1.0]
        """
        start, stop = as_number("linspace", "start", start), as_number("linspace", "stop", stop)
        ((count,), _) = as_sizes("linspace", (as_int("linspace", "steps", steps),))
        wanted = as_dtype(dtype or dtypes.default_float)
        if not isinstance(count, int) or count < 2:
            return cls.full((count,), start, device, wanted, requires_grad)
        places = cls._of(UOp.const(dtypes.int32, 0), device)._places(count)
        places = places.cast(places._widest_float())
        step = (stop - start) / (count - 1)
        # Each half is counted from its own end, so that both ends are exact.
        values = (places * 2 < count).where(
            places * step + start, (places * -1 + (count - 1)) * -step + stop
        )
        return values.cast(wanted)._wanting(requires_grad)

    @classmethod
    def eye(
        cls,
        n: int,
        m: int | None = None,
        device: str | None = None,
        dtype: DTypeLike = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """Ones on the diagonal of an n x m matrix (n x n by default), else zeros.

        >>> Tensor.eye(2).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
        """
        rows, columns = as_int("eye", "n", n), as_int("eye", "m", n if m is None else m)
        as_sizes("eye", (rows, columns))
        size = min(rows, columns)
        square = cls.full((size,), 1, device, dtype or dtypes.default_float).diag()
        return square.pad(((0, rows - size), (0, columns - size)))._wanting(requires_grad)

    def meshgrid(self, *others: Self, indexing: str = "ij") -> tuple[Self, ...]:
        """This vector and `others`, each stretched over the grid that all span; "xy" exchanges the
        first two axes. Called on the class it takes them one by one or as one list.

        Raises DTypeError for another `indexing`.

        >>> [part.tolist() for part in Tensor([1, 2]).meshgrid(Tensor([3, 4]))]
        [[[1, 1], [2, 2]], [[3, 4], [3, 4]]]
        """
        if indexing not in ("ij", "xy"):
            raise DTypeError(
                f"meshgrid: unknown indexing {indexing!r}", allowed="'ij', 'xy'", line=here()
            )
        tensors = self if isinstance(self, (list, tuple)) else (self, *others)
        order = list(range(len(tensors)))
        if indexing == "xy" and len(tensors) > 1:
            order[:2] = [1, 0]
        flat = [tensor.flatten() for tensor in tensors]
        shape = [flat[place].shape[0] for place in order]
        found = []
        for place, tensor in enumerate(flat):
            axis = order.index(place)
            found.append(
                tensor.reshape(
                    [tensor.shape[0] if at == axis else 1 for at in range(len(shape))]
                ).expand(shape)
            )
        return tuple(found)

    @templated
    @composed
    def tril(self, diagonal: int = 0) -> Self:
        """The last two axes with zeros above the diagonal (or the one `diagonal` places to its
        right).

        >>> Tensor([[1, 2], [3, 4]]).tril().tolist()
        [[1, 0], [3, 4]]
        """
        return self._below(diagonal).where(self, False)

    @templated
    @composed
    def triu(self, diagonal: int = 0) -> Self:
        """The last two axes with zeros below the diagonal (or the one `diagonal` places to its
        right).

        >>> Tensor([[1, 2], [3, 4]]).triu().tolist()
        [[1, 2], [0, 4]]
        """
        return self._below(diagonal - 1).where(False, self)

    def _below(self, diagonal: int) -> Self:
        """Where the column is at most `diagonal` right of the row."""
        if self.ndim < 2:
            raise ShapeError("tril: two axes are needed", shape=self.shape, line=here())
        rows, columns = self.shape[-2:]
        return self._places(columns).reshape(1, columns) - diagonal <= self._places(rows).reshape(
            rows, 1
        )

    @composed
    def one_hot(self, num_classes: int) -> Self:
        """For each integer a row of `num_classes` zeros with a 1 at its place, as int32; none
        outside the range.

        >>> Tensor([0, 2]).one_hot(3).tolist()
        [[1, 0, 0], [0, 0, 1]]
        """
        self._integers("one_hot")
        classes: Self = checked("one_hot", self, num_classes, wraps=False)
        return classes.unsqueeze(-1).eq(self._places(num_classes)).cast(dtypes.int32)


def _integer_for(*values: Any) -> DType:
    """int32, or int64 if the values do not fit."""
    return dtypes.int32 if all(-(1 << 31) <= value < 1 << 31 for value in values) else dtypes.int64
