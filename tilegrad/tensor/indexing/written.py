"""The result of `x[...] = value` where integer tensors or masks pick the elements: the flat
positions that the keys name, and the tensor with the values reduced into it at these.

With numbers and slices alone an assignment is one to a slice of memory (writing/assignment.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, Self, TypeVar

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import ShapeError, StepError
from tilegrad.base.origin import composed
from tilegrad.ir.uop import UOp
from tilegrad.tensor.calls.masks import mask_values, ranks_of_true
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.calls.uploads import uploaded
from tilegrad.tensor.handle.core import Core, check_devices
from tilegrad.tensor.handle.size_arguments import as_int, as_size, index_dtype, is_one
from tilegrad.tensor.indexing.gather import Gathering
from tilegrad.tensor.indexing.keys import first_of_neighbours, index_outside
from tilegrad.tensor.storage.checked import checked

__all__ = ["Writing"]

T = TypeVar("T")
# Smaller numbers are floats of these kinds, rounded perhaps.
_PLAIN = 1e30
_FLOATS = (dtypes.float32, dtypes.float64)


class _Keys(NamedTuple, Generic[T]):
    """Positions that the keys of an assignment name, each a sum over axes.

    Attributes:
        first: the flat position where all that follows is 0.
        vectors: for each axis of the result what it adds, None for a new one; those of the tensors
            among the keys are at `index_axes`, where these have axes.
        indices: each tensor, with the size, step and number of the axis that it is for.
    """

    first: T
    vectors: list[T | None]
    index_axes: list[int]
    indices: list[tuple[T, int, int, int]]


class Writing(Gathering):
    """Elements that a key picks, written."""

    __slots__ = ()

    @composed
    def _written(self, key: Any, value: Any) -> Self:
        """This tensor with `value` at the places that `key` names, for keys with integer tensors or
        a mask.
        """
        new: Any = self._number_here(value)
        if new is None:
            new = self._as_tensor(value).cast(self.dtype)
        if new.__class__ is not self.__class__:
            new = self._of(new.uop, new.device, new._variables, new._requires_grad)
        check_devices("setitem", [self, new])
        if isinstance(key, Core) and key.dtype is dtypes.bool and not new.ndim:
            test: Any = key
            self._by_axis_fits(test)
            if test.ndim < self.ndim:
                test = test.reshape(*test.shape, *[1] * (self.ndim - test.ndim))
            chosen: Self = test.where(new, self)
            return chosen
        if isinstance(key, Core) and key.dtype is dtypes.bool and key.ndim:
            mask: Any = key
            self._by_axis_fits(mask)
            merged: Self | None = self._with_rows(mask, new)
            if merged is not None:
                return merged
        entries = key if key.__class__ is tuple else (key,)
        if self._are_checked(entries, "setitem"):
            return self._written_at(entries, new)
        return self._written_by(key, new)

    def _number_here(self, value: Any) -> Self | None:
        """A number that is written, in this dtype; None for anything else."""
        kind, dtype = value.__class__, self.dtype
        if kind is not float and kind is not int and kind is not bool:
            return None
        if dtype.is_int:
            is_fit = kind is not float and dtype.min <= value <= dtype.max
        else:
            is_fit = dtype in _FLOATS and -_PLAIN < value < _PLAIN
        if not is_fit:
            return None
        made = int(value) if dtype.is_int else float(value)
        return self._of(UOp.const(dtype, made), self.device)

    @templated
    def _written_at(self, key: tuple[Any, ...], new: Self) -> Self:
        """As `_written`, where integer tensors pick, beside numbers, slices, None and Ellipsis."""
        return self._written_by(key, new)

    def _written_by(self, key: Any, new: Self) -> Self:
        # Once, as masks are computed.
        positions, inside = self._positions_named(self._completed(key))
        # Axes of size 1 in front of the picked ones are no matter.
        while new.ndim > positions.ndim and is_one(new.shape[0]):
            new = new.reshape(new.shape[1:])
        values = new.expand(positions.shape).flatten()
        if not positions._has_elements():
            return self._beside_empty(values)
        target: Any = inside.where(positions, -1).flatten()
        base: Any = self.flatten()
        written: Self = base._reduced_into(target, values, None).reshape(self.shape)
        return written

    @templated
    def _merged(self, mask: Self, rows: Self, ranks: Self) -> Self:
        """This tensor with the rows of these ranks where `mask`, of its first axes, is true."""
        is_written: Any = mask.reshape(*mask.shape, *[1] * (self.ndim - mask.ndim))
        merged: Self = is_written.where(rows._rows_at(ranks), self)
        return merged

    def _with_rows(self, mask: Any, rows: Self) -> Self | None:
        """This tensor with `rows` where `mask`, of its first axes, is true, in their order: each
        element asks for the row of its rank. None for a mask that the host does not know.

        Raises ShapeError unless there are as many rows as the mask picks, or one for all.
        """
        values = mask_values(mask)
        if values is None:
            return None
        count = int(values.sum())
        tail = self.shape[mask.ndim :]
        while rows.ndim > 1 + len(tail) and is_one(rows.shape[0]):
            rows = rows.reshape(rows.shape[1:])
        if rows.shape != (count, *tail):
            rows = rows.expand((count, *tail))
        if not count:
            return self._beside_empty(rows)
        ranks = uploaded(self, ranks_of_true(values).clip(0, count - 1), dtypes.int32)
        if ranks is None:
            return None
        return self._merged(mask, rows, ranks)

    def _positions_named(self, keys: Sequence[Any]) -> tuple[Self, Self]:
        """The flat positions in this tensor of the elements that complete `keys` pick, and whether
        each lies inside: sums over axes, so that nothing is read but the indices.
        """
        named = self._keys_named(keys)
        total, indices, tensors = named.first, named.indices, named.index_axes
        check_devices("setitem", [self, *[index for index, *_ in indices]])
        first = indices[0][0]
        nodes = first._meet("setitem", *[index for index, *_ in indices[1:]], unify=False)
        shape = max((node.shape for node in nodes), key=len)
        front = first_of_neighbours(tensors)
        rest = [vector for position, vector in enumerate(named.vectors) if position not in tensors]
        ndim = len(rest) + len(shape)
        lead = (1,) * front
        inside: Any = None
        for (index, size, step, axis), node in zip(indices, nodes):
            looked = checked("setitem", index._like(node), size, axis)
            at, is_in = looked._flat_position([looked], [size])
            at = at.reshape(*lead, *node.shape, *[1] * (len(rest) - front))
            is_in = is_in.reshape(at.shape)
            total = total + at.cast(total.dtype) * step
            inside = is_in if inside is None else inside & is_in
        whole: list[Any] = [*lead, *shape, *[1] * (len(rest) - front)]
        for position, vector in enumerate(rest):
            if vector is not None:
                axis = position if position < front else position + len(shape)
                whole[axis] = vector.shape[0]
                total = total + vector.reshape([-1 if at == axis else 1 for at in range(ndim)])
        return total.expand(whole), inside.expand(whole)

    def _keys_named(self, keys: Sequence[Any]) -> _Keys[Self]:
        sizes = self._sizes
        wide = index_dtype(sizes)
        vectors: list[Self | None] = []
        index_axes: list[int] = []
        indices: list[tuple[Self, int, int, int]] = []
        total: Any = self._like(UOp.const(wide, 0))
        axis = 0
        for entry in keys:
            if entry is None:
                vectors.append(None)
                continue
            size, step = sizes[axis], math.prod(sizes[axis + 1 :])
            if isinstance(entry, slice):
                start, stop, stride = self._slice_numbers(entry, size)
                total = total + start * step
                count = len(range(start, stop, stride))
                vectors.append(self._iota(count).cast(wide) * (stride * step))
            elif isinstance(entry, Core):
                index = self._of(entry.uop, entry.device, entry._variables)
                if index.ndim:
                    index_axes.append(len(vectors))
                    vectors.append(None)
                indices.append((index, size, step, axis))
            elif isinstance(entry, UOp):
                position, variables = as_size("setitem", entry)
                total = total + self._holding(variables)._size_number(position) * step
            else:
                if not -size <= entry < size:
                    raise index_outside(self, entry, axis)
                total = total + entry % size * step
            axis += 1
        return _Keys(total, vectors, index_axes, indices)

    def _slice_numbers(self, entry: slice, size: int) -> tuple[int, int, int]:
        for bound in (entry.start, entry.stop, entry.step):
            if isinstance(bound, UOp):
                raise ShapeError(
                    "setitem: a symbolic slice beside an integer tensor",
                    rule="number bounds, or a write in two steps",
                )
            if bound is not None:
                as_int("setitem", "a slice bound", bound)
        if entry.step is not None and as_int("setitem", "a step", entry.step) == 0:
            raise StepError("setitem: slice step is 0")
        return entry.indices(size)
