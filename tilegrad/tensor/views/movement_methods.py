"""The same elements under another index: reshape, permute, expand, pad, shrink, flip, and what is
made of them.

They move no data. Each becomes index arithmetic in the kernel that reads the result; a method that
changes nothing gives the tensor itself. Joining (`cat`, `stack`) pads its parts to the whole and
chooses between them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeVar, cast

from tilegrad.base.config import gradients
from tilegrad.base.dtype import DType
from tilegrad.base.errors import ShapeError
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, sint
from tilegrad.tensor.calls.casts import Casts
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.handle.aliases import can_view, extended, shared
from tilegrad.tensor.handle.core import describe
from tilegrad.tensor.handle.size_arguments import (
    are_plain,
    as_axes,
    as_axis,
    as_sizes,
    divide,
    flat_arguments,
    is_of_number,
    is_one,
    merge,
    multiply,
    same,
    same_shape,
    show_shape,
    show_size,
)  # fmt: skip

__all__ = ["Movement", "filled"]

Bounds = tuple[sint, sint]
Made = TypeVar("Made")


def filled(value: Any, dtype: DType, shape: tuple[sint, ...]) -> UOp:
    """`value` in every element of `shape`."""
    node = UOp.const(dtype, value)
    if not shape:
        return node
    return UOp(Ops.EXPAND, dtype, (UOp(Ops.RESHAPE, dtype, (node,), (1,) * len(shape)),), shape)


class Movement(Casts):
    """Movement methods; shapes given as arguments may be spelled out or be one tuple."""

    __slots__ = ()

    def _moved(self, op: Ops, arg: Any) -> Self:
        """A view: an alias of this tensor, which sees what is written to it."""
        if self._requires_grad and not gradients.get():
            detached: Any = self
            return cast("Self", detached.detach()._moved(op, arg))
        node = self.uop
        moved = self._like(UOp(op, node.dtype, (node,), arg))
        moved._is_shared = self._is_shared
        storage, path = self._alias or shared(self)
        moved._alias = storage, path + 1 if path.__class__ is int else extended(path, op, arg)
        return moved

    def _reshaped(self, sizes: tuple[sint, ...]) -> Self:
        """A view in another shape, or a copy where strides cannot say it."""
        if self._alias is None or can_view(self, sizes):
            return self._moved(Ops.RESHAPE, sizes)
        return self._like(UOp(Ops.RESHAPE, self.uop.dtype, (self.uop,), sizes))

    def _with_ones(self, sizes: tuple[sint, ...]) -> Self:
        """A view with other axes of one element, which strides can always say."""
        if sizes == self.shape:
            return self
        return self._moved(Ops.RESHAPE, sizes) if are_plain(sizes) else self.reshape(sizes)

    def _as_view(self, made: Self) -> Self:
        """`made`, which is movement ops on this tensor by whatever methods, as a view of it."""
        node, moves = made.uop, []
        while node is not self.uop:
            if not node.op.is_movement and node.op not in (Ops.CONTIGUOUS, Ops.DETACH):
                # No elements: nothing of this tensor is in it.
                return made
            moves.append((node.op, node.arg))
            node = node.src[0]
        if moves:
            storage, path = self._alias or shared(self)
            for op, arg in reversed(moves):
                path = extended(path, op, arg)
            made._alias = storage, path
            made._is_shared = self._is_shared
        return made

    def _apart(self) -> Self:
        """The same value as a copy: this tensor, if it is no view of anything and nothing is a view
        of it.
        """
        if self._alias is None:
            return self
        return self._again(self.uop, self.device, self._variables)

    def _copy_of(self, made: Self) -> Self:
        """`made`, which movement ops made of this tensor, as a copy."""
        if made is not self:
            return made._apart()
        return self._again(self.uop, self.device, self._variables)

    def _holding(self, variables: Any) -> Self:
        """This tensor, knowing the values of `variables` too."""
        if not variables:
            return self
        made = self._of(
            self.uop, self.device, merge(self._variables, variables), self._requires_grad
        )
        storage, path = self._alias or shared(self)
        made._alias, made._is_shared = (storage, path), self._is_shared
        return made

    # shape

    @templated
    def reshape(self, *sizes: Any, shape: Any = None) -> Self:
        """Give the same elements, in the same row-major order, another shape.

        Args:
            sizes: the new sizes, one by one or as one tuple; one may be -1 and is inferred, None is
                the size that this tensor has there.
            shape: the same by keyword.

        Returns a tensor of the new shape in this dtype: a view where strides can describe it.

        Raises ShapeError if the number of elements differs.

        >>> Tensor([1, 2, 3, 4]).reshape(2, -1).tolist()
        [[1, 2], [3, 4]]
        """
        wanted, old = flat_arguments(sizes if shape is None else (shape,)), self.shape
        if are_plain(wanted) and are_plain(old) and math.prod(wanted) == math.prod(old):
            return self if tuple(wanted) == old else self._reshaped(tuple(wanted))
        if None in wanted:
            ours = dict(enumerate(self.shape))
            wanted = tuple(ours.get(axis) if n is None else n for axis, n in enumerate(wanted))
        unknown = [axis for axis, size in enumerate(wanted) if isinstance(size, int) and size == -1]
        if len(unknown) > 1:
            raise ShapeError(f"reshape: more than one size is -1: {show_shape(wanted)}")
        new, variables = as_sizes(
            "reshape", [1 if axis in unknown else size for axis, size in enumerate(wanted)]
        )
        total = multiply(self.shape)
        if unknown:
            rest = divide(self.shape, new)
            if rest is None:
                raise self._cannot_reshape(wanted)
            new = (*new[: unknown[0]], rest, *new[unknown[0] + 1 :])
        elif not same(multiply(new), total):
            raise self._cannot_reshape(wanted)
        found = self if same_shape(new, self.shape) else self._reshaped(new)
        return found._holding(variables)

    def _cannot_reshape(self, wanted: Sequence[Any]) -> ShapeError:
        known = [size for size in wanted if not (isinstance(size, int) and size == -1)]
        return ShapeError(
            f"reshape: {show_shape(self.shape)} has {show_size(multiply(self.shape))} elements, "
            f"{show_shape(wanted)} has "
            f"{'a multiple of ' if len(known) < len(wanted) else ''}{show_size(multiply(known))}",
            tensor=describe(self.uop),
            rule="the number of elements stays the same",
        )

    @templated
    def view(self, *sizes: Any, shape: Any = None) -> Self:
        """As `reshape`.

        Args:
            sizes: the new sizes, one by one or as one tuple; one may be -1.
            shape: the same by keyword.

        Returns a tensor of the new shape in this dtype.

        Raises ShapeError if the number of elements differs.

        >>> Tensor([1, 2, 3, 4]).view(2, 2).tolist()
        [[1, 2], [3, 4]]
        """
        return self.reshape(*sizes, shape=shape)

    @templated
    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """Join axes `start_dim` to `end_dim` into one; a tensor without axes gets one.

        Args:
            start_dim: first axis that is joined.
            end_dim: last axis that is joined.

        Returns a tensor of this dtype; the joined axis has the product of the sizes.

        Raises IndexBoundsError for an axis that is out of range, ShapeError if `end_dim` comes
        before `start_dim`.

        >>> Tensor([[1, 2], [3, 4]]).flatten().tolist()
        [1, 2, 3, 4]
        """
        if not self.ndim:
            return self.reshape(1)
        first, last = (
            as_axis("flatten", start_dim, self.ndim),
            as_axis("flatten", end_dim, self.ndim),
        )
        if first > last:
            raise ShapeError(f"flatten: start_dim {start_dim} comes after end_dim {end_dim}")
        if first == last:
            return self
        shape = self.shape
        return self.reshape(*shape[:first], multiply(shape[first : last + 1]), *shape[last + 1 :])

    @templated
    def unflatten(self, dim: int, sizes: Sequence[sint]) -> Self:
        """Split an axis into several.

        Args:
            dim: the axis; a negative one counts from the last.
            sizes: sizes of the new axes; one may be -1.

        Returns a tensor of this dtype with `sizes` in the position of the axis.

        Raises ShapeError if their product is not the size, IndexBoundsError for an axis that is out
        of range.

        >>> Tensor([1, 2, 3, 4]).unflatten(0, (2, 2)).tolist()
        [[1, 2], [3, 4]]
        """
        axis = as_axis("unflatten", dim, self.ndim)
        return self.reshape(*self.shape[:axis], *sizes, *self.shape[axis + 1 :])

    @templated
    def squeeze(self, dim: int | tuple[int, ...] | None = None) -> Self:
        """Remove axes of size 1.

        Args:
            dim: an axis, several, or None for all of size 1; an axis of another size stays.

        Returns a view in this dtype.

        Raises IndexBoundsError for an axis that is out of range.

        >>> Tensor.zeros(1, 3, 1).squeeze().shape
        (3,)
        """
        axes = as_axes("squeeze", dim, self.ndim)
        return self.reshape(
            tuple(
                size for axis, size in enumerate(self.shape) if axis not in axes or not is_one(size)
            )
        )

    @templated
    def unsqueeze(self, dim: int) -> Self:
        """Insert an axis of size 1.

        Args:
            dim: its position in the result, -ndim - 1 to ndim.

        Returns a view in this dtype with one axis more.

        Raises IndexBoundsError for a position that is out of range.

        >>> Tensor([1, 2]).unsqueeze(1).tolist()
        [[1], [2]]
        """
        axis = as_axis("unsqueeze", dim, self.ndim + 1)
        return self.reshape(*self.shape[:axis], 1, *self.shape[axis:])

    @templated
    def permute(self, *axes: Any, order: Any = None, dims: Any = None) -> Self:
        """Reorder the axes: axis i of the result is axis `order[i]` of this tensor.

        Args:
            axes: all axes, one by one or as one tuple.
            order: the same by keyword.
            dims: the same by keyword.

        Returns a view in this dtype with the sizes in the new order.

        Raises ShapeError unless each axis is named once, IndexBoundsError for one that is out of
        range.

        >>> Tensor.zeros(2, 3, 4).permute(2, 0, 1).shape
        (4, 2, 3)
        """
        named = dims if order is None else order
        wanted, ndim = flat_arguments(axes if named is None else (named,)), self.ndim
        order = tuple([as_axis("permute", axis, ndim) for axis in wanted])
        in_order = tuple(range(ndim))
        if tuple(sorted(order)) != in_order:
            raise ShapeError(
                f"permute: {tuple(wanted)} does not name each of {self.ndim} axes once",
                tensor=describe(self.uop),
            )
        return self if order == in_order else self._moved(Ops.PERMUTE, order)

    @templated
    def transpose(self, dim0: int = 1, dim1: int = 0) -> Self:
        """Exchange two axes.

        Args:
            dim0: one axis.
            dim1: the other.

        Returns a view in this dtype with the two sizes exchanged.

        Raises IndexBoundsError for an axis that is out of range.

        >>> Tensor([[1, 2], [3, 4]]).transpose(0, 1).tolist()
        [[1, 3], [2, 4]]
        """
        ndim = self.ndim
        if is_of_number(dim0, ndim) and is_of_number(dim1, ndim):
            return self
        first, second = as_axis("transpose", dim0, ndim), as_axis("transpose", dim1, ndim)
        order = list(range(ndim))
        order[first], order[second] = second, first
        return self.permute(order)

    @property
    @templated
    def T(self) -> Self:
        """Reverse the order of the axes.

        Returns a view in this dtype: shape (n, m) for shape (m, n).

        >>> Tensor([[1, 2], [3, 4]]).T.tolist()
        [[1, 3], [2, 4]]
        """
        return self.permute(tuple(reversed(range(self.ndim))))

    def _as_row(self, call: Callable[[Self], Made]) -> Made:
        """The result of `call` for this number as the one element of a row, as numbers again."""
        made: Any = call(self.reshape(1))
        numbers: Any = (
            type(made)(*[each.reshape(()) for each in made])
            if isinstance(made, tuple)
            else made.reshape(())
        )
        return cast("Made", numbers)

    def movedim(self, source: int | Sequence[int], destination: int | Sequence[int]) -> Self:
        """Move axes to other positions; the others keep their order.

        Args:
            source: an axis, or several.
            destination: their positions in the result.

        Returns a view in this dtype.

        Raises ShapeError for an axis that is named twice, or another number of positions than axes;
        IndexBoundsError for one that is out of range.

        >>> Tensor.zeros(2, 3, 4).movedim(0, 2).shape
        (3, 4, 2)
        """
        if is_of_number(source, self.ndim) and is_of_number(destination, self.ndim):
            return self
        axes, positions = (
            [as_axis("movedim", axis, self.ndim) for axis in ([given] if isinstance(given, int)
             else given)] for given in (source, destination)
        )  # fmt: skip
        if len(set(axes)) != len(set(positions)) or len(axes) != len(set(axes)):
            raise ShapeError(
                f"movedim: axes {tuple(axes)} to positions {tuple(positions)}",
                tensor=describe(self.uop),
                rule="as many different positions as axes",
            )
        order = [other for other in range(self.ndim) if other not in axes]
        for position, axis in sorted(zip(positions, axes)):
            order.insert(position, axis)
        return self.permute(order)

    @templated
    def expand(self, *wanted_sizes: Any, shape: Any = None) -> Self:
        """Repeat axes of size 1 up to given sizes, without a copy.

        Args:
            wanted_sizes: the new sizes, one by one or as one tuple; -1 or None keeps a size, new
                axes stand in front.
            shape: the same by keyword.

        Returns a view of the new shape in this dtype.

        Raises ShapeError if a size that is not 1 would change.

        >>> Tensor([1, 2]).broadcast_to((2, 2)).tolist()
        [[1, 2], [1, 2]]
        """
        wanted = flat_arguments(wanted_sizes if shape is None else (shape,))
        old = self.shape
        if wanted == old and are_plain(wanted):
            return self
        lead = len(wanted) - len(old)
        ours = (1,) * lead + old
        sizes, variables = as_sizes(
            "expand",
            [
                was if n is None or _is_minus_one(n) else n
                for was, n in itertools.zip_longest(ours, wanted)
            ],
        )
        if lead < 0:
            raise ShapeError(
                f"expand: {show_shape(self.shape)} has more axes than {show_shape(wanted)}"
            )
        for was, size in zip(ours, sizes):
            if not is_one(was) and not same(was, size):
                raise ShapeError(
                    f"expand: {show_shape(self.shape)} does not stretch to {show_shape(wanted)}",
                    tensor=describe(self.uop),
                    rule="only sizes of 1 change",
                )
        whole = self.reshape(ours)
        return (whole if same_shape(ours, sizes) else whole._moved(Ops.EXPAND, sizes))._holding(
            variables
        )

    @templated
    def expand_as(self, other: Movement) -> Self:
        """Expand to the shape of `other`.

        Args:
            other: a tensor; only its shape is used.

        Returns a view of the shape of `other` in this dtype.

        Raises ShapeError if a size that is not 1 would change.

        >>> Tensor([[1], [2]]).expand_as(Tensor.zeros(2, 2)).tolist()
        [[1, 1], [2, 2]]
        """
        return self.expand(other.shape)

    @templated
    def flip(self, *axes: Any, dims: Any = None, axis: Any = None) -> Self:
        """Reverse the order of the elements along axes: a copy, as in PyTorch; `x[::-1]` is a view.

        Args:
            axes: the axes, one by one or as one tuple.
            dims: the same by keyword.
            axis: the same by keyword.

        Returns a tensor of this shape and dtype.

        Raises IndexBoundsError for an axis that is out of range, ShapeError for one that is named
        twice, DTypeError for one that is no integer.

        >>> Tensor([[1, 2], [3, 4]]).flip(1).tolist()
        [[2, 1], [4, 3]]
        """
        named = dims if axis is None else axis
        wanted = tuple(flat_arguments(axes if named is None else (named,)))
        flipped = as_axes("flip", wanted, self.ndim)
        flags = tuple(
            number in flipped and not is_one(size) for number, size in enumerate(self.shape)
        )
        if not any(flags):
            return self._copy_of(self)
        return self._like(UOp(Ops.FLIP, self.uop.dtype, (self.uop,), flags))


def _is_minus_one(size: Any) -> bool:
    return isinstance(size, int) and size == -1
