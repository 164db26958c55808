"""Borders, and several tensors as one: pad, cat, stack, split, repeat, roll, diagonals.

Joined parts are padded to the whole, and each element chooses its part: what is written is the
result itself, once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self, TypeVar, overload

from tilegrad.base.dtype import dtypes, promote
from tilegrad.base.errors import DTypeError, ShapeError
from tilegrad.base.origin import composed
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, sint
from tilegrad.tensor.core import cast_node, check_devices, check_tensors, compute, describe
from tilegrad.tensor.memory import bound
from tilegrad.tensor.movement import Movement, filled
from tilegrad.tensor.sizes import (
    NO_VARIABLES,
    Variables,
    as_axis,
    as_int,
    as_size,
    as_sizes,
    ceil_divide,
    flat_arguments,
    here,
    is_zero,
    merge,
    multiply,
    same,
    same_shape,
    show_shape,
    show_size,
    simple,
    sum_of,
)
from tilegrad.tensor.templates import templated

__all__ = ["Joining"]

Joined = TypeVar("Joined")
Bounds = tuple[sint, sint]

# Parts that one kernel joins at most, and parts of a group where there are more.
_MOST_AT_ONCE = 32
_GROUP = 16


class Joining(Movement):
    """Borders, joins, pieces, repetition and diagonals."""

    __slots__ = ()

    def pad(self, padding: Sequence[Any], mode: str = "constant", value: float = 0.0) -> Self:
        """A border around.

        `padding` is flat and counts from the last axis, (left, right, top, bottom, ...), or has a
        pair, or None, for each axis from the first. Negative amounts cut off. `mode` is "constant"
        (filled with `value`), "reflect", "replicate" or "circular".

        Raises ShapeError if the amounts fit neither form, or a reflected or circular border is
        wider than its axis.

        >>> Tensor([[1, 2]]).pad((1, 0)).tolist()
        [[0, 1, 2]]
        """
        amounts, variables = self._amounts(padding)
        if mode != "constant":
            return self._pad_with_itself(amounts, mode)
        cut = [
            (_cut(before), simple(size - _cut(after)))
            for (before, after), size in zip(amounts, self.shape)
        ]
        inner = self.shrink(cut)
        added = tuple((_added(before), _added(after)) for before, after in amounts)
        if all(is_zero(before) and is_zero(after) for before, after in added):
            return self._copy_of(inner._holding(variables))
        whole = tuple(
            simple(size + before + after) for size, (before, after) in zip(inner.shape, added)
        )
        dtype = self.dtype
        if inner.uop.is_constant and any(is_zero(size) for size in inner.shape):
            return inner._like(filled(value, dtype, whole))._holding(variables)
        padded = UOp(Ops.PAD, dtype, (inner.uop,), added)
        if isinstance(value, UOp):
            border = inner._operand("pad", value)
            variables = merge(variables, border._variables)
            border_node = cast_node(border.uop, dtype)
        elif value != 0:
            border_node = UOp.const(dtype, value)
        else:
            return inner._like(padded)._holding(variables)
        inside = UOp(Ops.PAD, dtypes.bool, (filled(True, dtypes.bool, inner.shape),), added)
        padded = compute(Ops.WHERE, dtype, (inside, padded, border_node))
        return inner._like(padded)._holding(variables)

    def pad_to(self, *shape: Any, value: float = 0.0) -> Self:
        """With `value` after the end of each axis, up to `shape`; None keeps a size.

        Raises ShapeError for another number of sizes, or one that is smaller.

        >>> Tensor([[1, 2]]).pad_to(2, 3).tolist()
        [[1, 2, 0], [0, 0, 0]]
        """
        wanted = self._to_shape("pad_to", shape)
        for size, new in zip(self.shape, wanted):
            if isinstance(size, int) and isinstance(new, int) and new < size:
                raise ShapeError(
                    f"pad_to: {show_shape(wanted)} is smaller than {show_shape(self.shape)}",
                    tensor=describe(self.uop),
                    line=here(),
                )
        return self.pad(
            [(0, simple(new - size)) for size, new in zip(self.shape, wanted)], value=value
        )

    def shrink_to(self, *shape: Any) -> Self:
        """The first elements of each axis, `shape` of them; None keeps a size.

        Raises ShapeError for another number of sizes, or one that is larger.

        >>> Tensor([[1, 2, 3], [4, 5, 6]]).shrink_to(None, 2).tolist()
        [[1, 2], [4, 5]]
        """
        return self.shrink([(0, size) for size in self._to_shape("shrink_to", shape)])

    def _to_shape(self, name: str, shape: Sequence[Any]) -> tuple[Any, ...]:
        """`shape`, with this tensor's sizes for None."""
        wanted = flat_arguments(shape)
        if len(wanted) != self.ndim:
            raise ShapeError(f"{name}: {len(wanted)} sizes for {self.ndim} axes", line=here())
        return tuple(size if new is None else new for size, new in zip(self.shape, wanted))

    def _amounts(self, padding: Sequence[Any]) -> tuple[list[Bounds], Variables]:
        """(before, after) for each axis, and the values of the variables in them."""
        if isinstance(padding, int):
            padding = (padding, padding) * self.ndim
        if not isinstance(padding, (tuple, list)):
            raise DTypeError(
                f"pad: cannot use a {type(padding).__name__} as amounts",
                rule="an integer, two for each axis from the last axis on, or a pair for each axis",
                line=here(),
            )
        if any(part is None or isinstance(part, (tuple, list)) for part in padding):
            pairs = [part or (0, 0) for part in padding]
            if len(pairs) != self.ndim:
                raise ShapeError(
                    f"pad: {len(pairs)} pairs for {self.ndim} axes",
                    padding=tuple(padding),
                    line=here(),
                )
        else:
            if len(padding) % 2 or len(padding) > 2 * self.ndim:
                raise ShapeError(
                    f"pad: {len(padding)} amounts for {self.ndim} axes",
                    padding=tuple(padding),
                    line=here(),
                    rule="two for each axis, from the last axis on",
                )
            pairs = [(padding[place], padding[place + 1]) for place in range(0, len(padding), 2)]
            pairs = [(0, 0)] * (self.ndim - len(pairs)) + pairs[::-1]
        variables = NO_VARIABLES
        for amount in (amount for pair in pairs for amount in pair if isinstance(amount, UOp)):
            variables = merge(variables, as_size("pad", amount)[1])
        return [(_amount(before), _amount(after)) for before, after in pairs], variables

    @composed
    def _pad_with_itself(self, amounts: list[Bounds], mode: str) -> Self:
        """A border taken from the tensor itself."""
        if mode not in ("reflect", "replicate", "circular"):
            raise ShapeError(
                f"pad: unknown mode {mode!r}",
                allowed="constant, reflect, replicate, circular",
                line=here(),
            )
        x = self
        for axis, (before, after) in enumerate(amounts):
            size = x._length(axis)
            low, high = as_int("pad", "an amount", before), as_int("pad", "an amount", after)
            x = x._window(axis, max(-low, 0), size - max(-high, 0))
            low, high, size = max(low, 0), max(high, 0), x._length(axis)
            most = {"reflect": size - 1, "circular": size, "replicate": math.inf if size else 0}[
                mode
            ]
            if not low and not high:
                continue
            if max(low, high) > most:
                raise ShapeError(
                    f"pad: a {mode} border of {max(low, high)} needs a longer axis than {size}",
                    line=here(),
                )
            parts = [x]
            if mode == "circular":
                parts = [x._window(axis, size - low, size), x, x._window(axis, 0, high)]
            elif mode == "reflect":
                parts = [
                    x._window(axis, 1, low + 1).flip(axis),
                    x,
                    x._window(axis, size - 1 - high, size - 1).flip(axis),
                ]
            else:
                wide = list(x.shape)
                first, last = x._window(axis, 0, 1), x._window(axis, size - 1, size)
                parts = [
                    first.expand(*wide[:axis], low, *wide[axis + 1 :]),
                    x,
                    last.expand(*wide[:axis], high, *wide[axis + 1 :]),
                ]
            parts = [part for part in parts if not is_zero(part.shape[axis])]
            x = parts[0].cat(*parts[1:], dim=axis)
        return x

    # several tensors, one tensor

    @overload
    def cat(self, *others: Self, dim: int = 0) -> Self: ...

    @overload
    def cat(self: Joining | Sequence[Joined], rest: int = 0, /, *, dim: int = 0) -> Joined: ...

    @templated
    @composed
    def cat(self, *others: Any, dim: int = 0) -> Any:
        """This tensor and `others` one after the other along axis `dim`, in the dtype in which they
        meet. Called on the class it also takes one list of them, and `dim` after it.

        Raises ShapeError if their other sizes differ.

        >>> Tensor([1, 2]).cat(Tensor([3])).tolist()
        [1, 2, 3]
        >>> Tensor.cat([Tensor([[1]]), Tensor([[2]])], dim=1).tolist()
        [[1, 2]]
        """
        if isinstance(self, (list, tuple)):
            return _joined_list("cat", Joining.cat, self, others, dim)
        check_tensors("cat", self, *others, are_several=True)
        axis = as_axis("cat", dim, self.ndim)
        for number, other in enumerate(others, 2):
            fits = other.ndim == self.ndim and all(
                place == axis or same(a, b)
                for place, (a, b) in enumerate(zip(self.shape, other.shape))
            )
            if not fits:
                raise ShapeError(
                    f"cat: shapes differ beside axis {axis}: {show_shape(self.shape)} and "
                    f"{show_shape(other.shape)}",
                    left=describe(self.uop),
                    right=f"{describe(other.uop)}  argument {number}",
                    line=here(),
                    rule=f"all sizes are equal but that of axis {axis}, dim= chooses another",
                )
        # An empty part adds nothing, but its dtype counts.
        parts = _of_one_dtype([self, *others])
        full: list[Self] = [part for part in parts if not is_zero(part.shape[axis])] or parts[:1]
        while len(full) > _MOST_AT_ONCE:
            # An element of a kernel asks for each part whether it is there; groups of equal shapes
            # are one kernel, made once.
            groups: list[Any] = [
                _joined(full[at : at + _GROUP], axis) for at in range(0, len(full), _GROUP)
            ]
            full = [group.contiguous() for group in groups]
        whole: Self = _joined(full, axis)
        return whole if len(full) > 1 else whole._copy_of(whole)

    def _followed_by(self, other: Self, axis: int) -> Self:
        check_devices("cat", [self, other])
        ours, theirs, ndim = self.shape[axis], other.shape[axis], self.ndim

        def along(size: sint, rest: sint | None = None) -> tuple[sint, ...]:
            return tuple(
                size if place == axis else (1 if rest is None else self.shape[place])
                for place in range(ndim)
            )

        def around(before: sint, after: sint) -> tuple[Bounds, ...]:
            return tuple((before, after) if place == axis else (0, 0) for place in range(ndim))

        shape = tuple(
            simple(ours + theirs) if place == axis else size
            for place, size in enumerate(self.shape)
        )
        inside = UOp(
            Ops.PAD, dtypes.bool, (filled(True, dtypes.bool, along(ours)),), around(0, theirs)
        )
        if not same_shape(inside.shape, shape):
            inside = UOp(Ops.EXPAND, dtypes.bool, (inside,), shape)
        first = UOp(Ops.PAD, self.dtype, (self.uop,), around(0, theirs))
        second = UOp(Ops.PAD, other.dtype, (other.uop,), around(ours, 0))
        return self._joined(compute(Ops.WHERE, self.dtype, (inside, first, second)), other)

    @overload
    def stack(self, *others: Self, dim: int = 0) -> Self: ...

    @overload
    def stack(self: Joining | Sequence[Joined], rest: int = 0, /, *, dim: int = 0) -> Joined: ...

    @templated
    def stack(self, *others: Any, dim: int = 0) -> Any:
        """This tensor and `others`, of one shape, along a new axis `dim`. Called on the class it
        also takes one list of them, and `dim` after it.

        Raises ShapeError if shapes differ.

        >>> Tensor.stack([Tensor([1, 2]), Tensor([3, 4])], dim=1).tolist()
        [[1, 3], [2, 4]]
        """
        if isinstance(self, (list, tuple)):
            return _joined_list("stack", Joining.stack, self, others, dim)
        check_tensors("stack", self, *others, are_several=True)
        for other in others:
            if not same_shape(self.shape, other.shape):
                raise ShapeError(
                    f"stack: shapes differ: {show_shape(self.shape)} and {show_shape(other.shape)}",
                    left=describe(self.uop),
                    right=describe(other.uop),
                    line=here(),
                    rule="all have one shape; cat joins along an axis that is there",
                )
        axis = as_axis("stack", dim, self.ndim + 1)
        return self.unsqueeze(axis).cat(*[other.unsqueeze(axis) for other in others], dim=axis)

    def split(self, sizes: sint | Sequence[sint], dim: int = 0) -> tuple[Self, ...]:
        """Pieces along axis `dim`: of one size (the last may be smaller), or of the sizes listed.
        Of a symbolic size there are as many as the bound values say.

        Raises ShapeError if listed sizes do not add up to the axis.

        >>> [part.tolist() for part in Tensor([1, 2, 3]).split([1, 2])]
        [[1], [2, 3]]
        """
        axis = as_axis("split", dim, self.ndim)
        size = self.shape[axis]
        if not isinstance(sizes, (list, tuple)):
            given, variables = as_size("split", sizes)
            return self._holding(variables)._split_by(axis, given)
        lengths, variables = as_sizes("split", sizes)
        if not same(total := sum_of(lengths), size):
            raise ShapeError(
                f"split: {show_shape(lengths)} does not add up to the size {show_size(size)} of "
                f"axis {axis}: {show_size(total)}",
                line=here(),
            )
        starts = [sum_of(lengths[:count]) for count in range(len(lengths))]
        x = self._holding(variables)
        return tuple(
            x._window(axis, start, simple(start + length)) for start, length in zip(starts, lengths)
        )

    def _split_by(self, axis: int, piece: sint) -> tuple[Self, ...]:
        """Pieces of one size, of which the last may be smaller. How many there are, the bound
        values of variables say.
        """
        size = self.shape[axis]
        length, whole = [bound(each, self._variables) for each in (piece, size)]
        if length <= 0:
            raise ShapeError(
                f"split: pieces of {length} elements of {show_shape(self.shape)}",
                tensor=describe(self.uop),
                line=here(),
                rule="one element or more, or a list of sizes",
            )
        count = max(-(-whole // length), 1)
        ends = [simple(piece * number) for number in range(count)]
        return tuple(self._window(axis, start, end) for start, end in zip(ends, [*ends[1:], size]))

    def chunk(self, chunks: int, dim: int = 0) -> tuple[Self, ...]:
        """At most `chunks` pieces of equal size along axis `dim`; the last may be smaller.

        >>> [part.tolist() for part in Tensor([1, 2, 3]).chunk(2)]
        [[1, 2], [3]]
        """
        axis = as_axis("chunk", dim, self.ndim)
        if chunks <= 0:
            raise ShapeError(
                f"chunk: {chunks} pieces of {show_shape(self.shape)}",
                tensor=describe(self.uop),
                line=here(),
                rule="one piece or more",
            )
        piece = ceil_divide(self.shape[axis], chunks)
        return self._split_by(axis, 1 if is_zero(piece) else piece)

    def unbind(self, dim: int = 0) -> tuple[Self, ...]:
        """The slices along axis `dim`, without it.

        >>> [row.tolist() for row in Tensor([[1, 2], [3, 4]]).unbind()]
        [[1, 2], [3, 4]]
        """
        axis = as_axis("unbind", dim, self.ndim)
        rest = (*self.shape[:axis], *self.shape[axis + 1 :])
        return tuple(
            self._window(axis, at, at + 1).reshape(rest) for at in range(self._length(axis))
        )

    # repetition

    def repeat(self, *counts: Any, repeats: Any = None) -> Self:
        """The whole tensor `repeats[i]` times along axis i; new axes may stand in front.

        >>> Tensor([1, 2]).repeat(2, 2).tolist()
        [[1, 2, 1, 2], [1, 2, 1, 2]]
        """
        given = flat_arguments(counts if repeats is None else (repeats,))
        times, variables = as_sizes("repeat", given)
        lead = len(times) - self.ndim
        if lead < 0:
            raise ShapeError(f"repeat: {len(times)} counts for {self.ndim} axes", line=here())
        ours = (1,) * lead + self.shape
        split = [part for size in ours for part in (1, size)]
        wide = [part for count, size in zip(times, ours) for part in (count, size)]
        whole = [multiply(pair) for pair in zip(times, ours)]
        made = self.reshape(split).expand(wide).reshape(whole)._holding(variables)
        return self._copy_of(made)

    def repeat_interleave(self, repeats: int, dim: int | None = None) -> Self:
        """Each element `repeats` times in a row along axis `dim`, or along the flat tensor.

        >>> Tensor([1, 2]).repeat_interleave(2).tolist()
        [1, 1, 2, 2]
        """
        x = self.flatten() if dim is None else self
        axis = as_axis("repeat_interleave", 0 if dim is None else dim, x.ndim)
        before, size, after = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
        wide = x.reshape(*before, size, 1, *after).expand(*before, size, repeats, *after)
        return self._copy_of(wide.reshape(*before, multiply((size, repeats)), *after))

    def roll(self, shifts: sint | Sequence[sint], dims: int | Sequence[int] | None = None) -> Self:
        """Elements moved `shifts` places along `dims`, or along the flat tensor; what leaves at the
        end enters in front.

        >>> Tensor([1, 2, 3]).roll(1, 0).tolist()
        [3, 1, 2]
        """
        if dims is None:
            return self.flatten().roll(shifts, 0).reshape(self.shape)
        given: Any = shifts if isinstance(shifts, (list, tuple)) else [shifts]
        steps: list[sint] = []
        variables = NO_VARIABLES
        for step in given:
            number, found = (
                as_size("roll", step)
                if isinstance(step, UOp)
                else (as_int("roll", "a shift", step), NO_VARIABLES)
            )
            steps.append(number)
            variables = merge(variables, found)
        axes = [
            as_axis("roll", dim, self.ndim) for dim in ([dims] if isinstance(dims, int) else dims)
        ]
        if len(steps) != len(axes):
            raise ShapeError(f"roll: {len(steps)} shifts for {len(axes)} axes", line=here())
        x = self._holding(variables)
        for step, axis in zip(steps, axes):
            size: Any = x.shape[axis]
            if isinstance(step, UOp) or isinstance(size, UOp):
                cut = simple(size - simple(step % size))
                x = x._window(axis, cut, size)._followed_by(x._window(axis, 0, cut), axis)
            elif size and step % size:
                cut = size - step % size
                if axis == x.ndim - 1:
                    # Neighbours of each part are neighbours in a vector.
                    x = x._window(axis, cut, size)._followed_by(x._window(axis, 0, cut), axis)
                else:
                    twice = x.repeat([2 if place == axis else 1 for place in range(x.ndim)])
                    x = twice._window(axis, cut, size + cut)
        return self._copy_of(x)

    # diagonals

    def diag(self, diagonal: int = 0) -> Self:
        """A matrix with this vector on its diagonal, or the diagonal of this matrix; the one that
        is `diagonal` to the right.

        Raises ShapeError for more than two axes.

        >>> Tensor([1, 2]).diag().tolist()
        [[1, 0], [0, 2]]
        >>> Tensor([[1, 2], [3, 4]]).diag(1).tolist()
        [2]
        """
        if self.ndim == 2:
            return self._copy_of(self.diagonal(diagonal))
        if self.ndim != 1:
            raise ShapeError(
                f"diag: a vector or a matrix is needed, not {show_shape(self.shape)}", line=here()
            )
        if diagonal:
            extra = abs(diagonal)
            return self.pad(((extra, 0),)).diag().roll(-extra, 0 if diagonal > 0 else 1)
        (size,) = self.shape
        rows = self.reshape(size, 1).pad(((0, 0), (0, size)))
        return rows.flatten()._window(0, 0, multiply((size, size))).reshape(size, size)

    def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Self:
        """The elements whose index along `dim2` is `offset` more than that along `dim1`, as a new
        last axis.

        >>> Tensor([[1, 2], [3, 4]]).diagonal().tolist()
        [1, 4]
        """
        offset = as_int("diagonal", "an offset", offset)
        rows, columns = as_axis("diagonal", dim1, self.ndim), as_axis("diagonal", dim2, self.ndim)
        if rows == columns:
            raise ShapeError(f"diagonal: dim1 and dim2 are both axis {rows}", line=here())
        rest = [axis for axis in range(self.ndim) if axis not in (rows, columns)]
        x = self.permute(*rest, rows, columns)
        first, second = x.ndim - 2, x.ndim - 1
        height, width = x._length(first), x._length(second)
        x = (
            x._window(second, min(offset, width), width)
            if offset > 0
            else x._window(first, min(-offset, height), height)
        )
        length = min(x._length(first), x._length(second))
        x = x._window(first, 0, length)._window(second, 0, length)
        lead = x.shape[:first]
        # Rows one longer than the matrix is wide: the diagonal is then a column.
        flat = x.reshape(*lead, length * length).pad((0, length))
        column = flat.reshape(*lead, length, length + 1)._window(second, 0, 1)
        return self._as_view(column.reshape(*lead, length))


def _joined(parts: list[Any], axis: int) -> Any:
    """Parts one after the other, as a tree of pairs."""
    while len(parts) > 1:
        parts = [
            parts[at]._followed_by(parts[at + 1], axis) if at + 1 < len(parts) else parts[at]
            for at in range(0, len(parts), 2)
        ]
    return parts[0]


def _of_one_dtype(parts: list[Any]) -> list[Any]:
    dtype = parts[0].dtype
    for part in parts[1:]:
        dtype = promote(dtype, part.dtype)
    return [part.cast(dtype) for part in parts]


def _amount(value: Any) -> sint:
    return as_size("pad", value)[0] if isinstance(value, UOp) else as_int("pad", "an amount", value)


def _cut(amount: sint) -> int:
    return max(-amount, 0) if isinstance(amount, int) else 0


def _added(amount: sint) -> sint:
    return max(amount, 0) if isinstance(amount, int) else amount


def _joined_list(name: str, join: Any, tensors: Any, rest: tuple[Any, ...], dim: int) -> Any:
    """`join` of a list of tensors, behind which `dim` may stand."""
    check_tensors(name, *tensors)
    if not tensors:
        raise ShapeError(f"{name}: there is no tensor in the list", line=here())
    return join(*tensors, dim=rest[0] if rest else dim)
