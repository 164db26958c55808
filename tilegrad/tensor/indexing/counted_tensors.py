"""New tensors that are counted: ranges, grids, and matrices by the position of their elements."""

from __future__ import annotations

import math
from typing import Any, Self

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import DTypeError, ShapeError, check_choice
from tilegrad.base.origin import composed
from tilegrad.base.recent import Recent
from tilegrad.ir.uop import UOp, sint
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.handle.core import as_dtype
from tilegrad.tensor.handle.size_arguments import (
    are_plain,
    as_int,
    as_number,
    as_size,
    as_sizes,
    ceil_divide,
)
from tilegrad.tensor.indexing.filled import DTypeLike, Filled
from tilegrad.tensor.storage.checked import checked

__all__ = ["Creation"]

# By class, sizes and diagonal, the masks of triangles that came last: each layer of a network asks
# for that of its step.
_triangles: Recent[tuple[Any, ...], UOp] = Recent(lambda: 64)
# By class, sizes and dtype, the graphs of identity matrices: a loop asks for one in each step, and
# its twelve calls cost more than to compute it.
_identities: Recent[tuple[Any, ...], UOp] = Recent(lambda: 64)


class Creation(Filled):
    """Creation methods. All take `device`, `dtype` and `requires_grad`; sizes are spelled out or
    are one tuple.
    """

    __slots__ = ()

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
        """Evenly spaced values: start, start + step, ... before `stop`; `arange(n)` counts from 0.
        Element i is computed as start + i * step, in float64 where the device has it.

        Args:
            start: first value; the only argument is `stop`.
            stop: end, not included.
            step: difference of neighbours.
            device: name of the device, by default `Device.DEFAULT`.
            dtype: dtype of the result, by default int32 if all three are integers, else the default
                float (float32).
            requires_grad: whether `backward` adds up a gradient for it.

        Returns a vector of ceil((stop - start) / step) elements, none if that is negative.

        Raises ShapeError if `step` is 0, DTypeError for what is no number and for a name that is no
        dtype.

        >>> Tensor.arange(2, 8, 2).tolist()
        [2, 4, 6]
        """
        if stop is None:
            start, stop = 0, start
        if isinstance(start, UOp) or isinstance(stop, UOp):
            counted = cls._symbolic_range(start, stop, step, device)
            return counted.cast(as_dtype(dtype or dtypes.default_int))._wanting(requires_grad)
        start, stop = as_number("arange", "start", start), as_number("arange", "stop", stop)
        step = as_number("arange", "step", step)
        if step == 0:
            raise ShapeError(
                f"arange: step is 0 from {start} to {stop}",
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
        positions: Self = cls._of(UOp.const(dtypes.int32, 0), device)._iota(length)
        # Whole numbers are counted as such, others in the widest float, and rounded once.
        counting = _integer_for(start, stop) if is_whole else positions._widest_float()
        positions = positions.cast(counting)
        positions = positions if step == 1 else positions * step
        return (positions if start == 0 else positions + start).cast(wanted)._wanting(requires_grad)

    @classmethod
    def _symbolic_range(cls, start: Any, stop: Any, step: Any, device: str | None) -> Self:
        """The integers start, start + step, ... before `stop`; `start` or `stop` is symbolic."""
        low, first = as_size("arange", start)
        high, second = as_size("arange", stop)
        step = as_int("arange", "a step beside a Variable", step)
        count: sint = ceil_divide(high - low, step)
        base = cls._of(UOp.const(dtypes.int32, 0), device)._holding({**first, **second})
        first_one = low if isinstance(low, int) else base._size_number(low)
        found: Self = base._iota(count) * step + first_one
        return found

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
        """Evenly spaced values from `start` to `stop`, both included.

        Args:
            start: first value.
            stop: last value.
            steps: number of values.
            device: name of the device, by default `Device.DEFAULT`.
            dtype: dtype of the result or its name, by default the default float (float32).
            requires_grad: whether `backward` adds up a gradient for it.

        Returns a vector of shape (steps,).

        Raises ShapeError if `steps` is negative.

        >>> Tensor.linspace(0, 1, 5).tolist()
        [0.0, 0.25, 0.5, 0.75, 1.0]
        """
        start, stop = as_number("linspace", "start", start), as_number("linspace", "stop", stop)
        ((count,), _) = as_sizes("linspace", (as_int("linspace", "steps", steps),))
        wanted = as_dtype(dtype or dtypes.default_float)
        if not isinstance(count, int) or count < 2:
            return cls.full((count,), start, device, wanted, requires_grad)
        positions = cls._of(UOp.const(dtypes.int32, 0), device)._iota(count)
        positions = positions.cast(positions._widest_float())
        step = (stop - start) / (count - 1)
        # Each half is counted from its own end, so that both ends are exact.
        values = (positions * 2 < count).where(
            positions * step + start, (positions * -1 + (count - 1)) * -step + stop
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
        """Identity matrix: ones on the diagonal, zeros elsewhere.

        Args:
            n: number of rows.
            m: number of columns, by default `n`.
            device: name of the device, by default `Device.DEFAULT`.
            dtype: dtype of the result or its name, by default the default float (float32).
            requires_grad: whether `backward` adds up a gradient for it.

        Returns a tensor of shape (n, m).

        Raises ShapeError for a negative size, DTypeError for a name that is no dtype.

        >>> Tensor.eye(2).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
        """
        rows, columns = as_int("eye", "n", n), as_int("eye", "m", n if m is None else m)
        as_sizes("eye", (rows, columns))
        wanted = as_dtype(dtype or dtypes.default_float)
        key = cls, rows, columns, wanted
        known = _identities.get(key)
        if known is not None:
            return cls._of(known, device)._wanting(requires_grad)
        size = min(rows, columns)
        square = cls.full((size,), 1, device, wanted).diag()
        made = square.pad(((0, rows - size), (0, columns - size)))
        if made._call is None and made._node.is_constant:
            for node in made._node.toposort():
                # A node that all share bears no one's line.
                node.origin = ()
            _identities.put(key, made._node)
        return made._wanting(requires_grad)

    def meshgrid(self, *others: Self, indexing: str = "ij") -> tuple[Self, ...]:
        """Coordinates of a grid: this vector and `others`, each expanded over the grid that all
        span. Called on the class it takes them one by one or as one list.

        Args:
            others: vectors.
            indexing: "ij" keeps the order of the axes, "xy" exchanges the first two.

        Returns a tuple of tensors of one shape (n0, n1, ...), each in its own dtype.

        Raises DTypeError for another `indexing`.

        >>> [each.tolist() for each in Tensor([1, 2]).meshgrid(Tensor([3, 4]))]
        [[[1, 1], [2, 2]], [[3, 4], [3, 4]]]
        """
        check_choice("meshgrid", "indexing", indexing, ("ij", "xy"), DTypeError)
        tensors = self if isinstance(self, (list, tuple)) else (self, *others)
        order = list(range(len(tensors)))
        if indexing == "xy" and len(tensors) > 1:
            order[:2] = [1, 0]
        flat = [tensor.flatten() for tensor in tensors]
        shape = [flat[position].shape[0] for position in order]
        found = []
        for number, tensor in enumerate(flat):
            axis = order.index(number)
            found.append(
                tensor.reshape(
                    [tensor.shape[0] if at == axis else 1 for at in range(len(shape))]
                ).expand(shape)
            )
        return tuple(found)

    @templated
    @composed
    def tril(self, diagonal: int = 0) -> Self:
        """Lower triangle: zeros above a diagonal of the last two axes.

        Args:
            diagonal: number of diagonals above the main one that stay.

        Returns a tensor of this shape and dtype.

        Raises ShapeError for less than two axes.

        >>> Tensor([[1, 2], [3, 4]]).tril().tolist()
        [[1, 0], [3, 4]]
        """
        return self._below(diagonal).where(self, False)

    @templated
    @composed
    def triu(self, diagonal: int = 0) -> Self:
        """Upper triangle: zeros below a diagonal of the last two axes.

        Args:
            diagonal: number of diagonals above the main one that are zeroed too.

        Returns a tensor of this shape and dtype.

        Raises ShapeError for less than two axes.

        >>> Tensor([[1, 2], [3, 4]]).triu().tolist()
        [[1, 2], [0, 4]]
        """
        return self._below(diagonal - 1).where(False, self)

    def _below(self, diagonal: int) -> Self:
        """Where the column is at most `diagonal` right of the row."""
        if self.ndim < 2:
            raise ShapeError("tril: two axes are needed", shape=self.shape)
        rows, columns = self.shape[-2:]
        is_plain = are_plain((rows, columns)) and type(diagonal) is int
        key = type(self), rows, columns, diagonal
        known = _triangles.get(key) if is_plain else None
        if known is not None:
            return self._of(known, self.device)
        made = self._iota(columns).reshape(1, columns) - diagonal <= self._iota(rows).reshape(
            rows, 1
        )
        if is_plain and made._call is None and made._node.is_constant:
            _triangles.put(key, made._node)
        return made

    @composed
    def one_hot(self, num_classes: int) -> Self:
        """A vector with a single 1 for each integer, at the position that it names; all zeros for
        one outside the range.

        Args:
            num_classes: length of the vectors.

        Returns an int32 tensor of shape (*shape, num_classes).

        Raises DTypeError for floats.

        >>> Tensor([0, 2]).one_hot(3).tolist()
        [[1, 0, 0], [0, 0, 1]]
        """
        self._integers("one_hot")
        classes: Self = checked("one_hot", self, num_classes, wraps=False)
        return classes.unsqueeze(-1).eq(self._iota(num_classes)).cast(dtypes.int32)


def _integer_for(*values: Any) -> DType:
    """int32, or int64 if the values do not fit."""
    return dtypes.int32 if all(-(1 << 31) <= value < 1 << 31 for value in values) else dtypes.int64
