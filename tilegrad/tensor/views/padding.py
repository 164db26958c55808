"""Padding: with a number, with what is at the edge, or mirrored; and to a given shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import DTypeError, ShapeError, UnsupportedError, article, check_choice
from tilegrad.base.origin import composed
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, sint
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.handle.core import cast_node, compute, describe, number_dtype
from tilegrad.tensor.handle.size_arguments import (
    NO_VARIABLES,
    Variables,
    as_int,
    as_size,
    flat_arguments,
    is_zero,
    merge,
    show_shape,
    simple,
)
from tilegrad.tensor.views.joining import Joining
from tilegrad.tensor.views.movement_methods import filled

__all__ = ["Padding"]

_MODES = ("constant", "reflect", "replicate", "circular")


Bounds = tuple[sint, sint]


class Padding(Joining):
    """Padding, and shapes that padding or slicing leads to."""

    __slots__ = ()

    @templated
    def pad(self, padding: Sequence[Any], mode: str = "constant", value: float = 0.0) -> Self:
        """Add elements around, or cut them off.

        Args:
            padding: flat and counted from the last axis, (left, right, top, bottom, ...), or a
                pair, or None, for each axis from the first; negative amounts cut off.
            mode: "constant", "reflect", "replicate" or "circular".
            value: fills the padding of "constant".

        Returns a tensor of this dtype, larger by the amounts.

        Raises ShapeError if the amounts fit neither signature, or a reflected or circular padding
        is wider than its axis; DTypeError for another mode.

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
        elif value != 0 or (dtype.is_float and math.copysign(1.0, value) < 0):
            number_dtype("pad", dtype, value)
            border_node = UOp.const(dtype, value)
        else:
            return inner._like(padded)._holding(variables)
        inside = UOp(Ops.PAD, dtypes.bool, (filled(True, dtypes.bool, inner.shape),), added)
        padded = compute(Ops.WHERE, dtype, (inside, padded, border_node))
        return inner._like(padded)._holding(variables)

    def pad_to(self, *shape: Any, value: float = 0.0) -> Self:
        """Add elements after the end of each axis, up to given sizes.

        Args:
            shape: the new sizes; None keeps a size.
            value: fills the padding.

        Returns a tensor of the new shape in this dtype.

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
                )
        return self.pad(
            [(0, simple(new - size)) for size, new in zip(self.shape, wanted)], value=value
        )

    def shrink_to(self, *shape: Any) -> Self:
        """Keep the first elements of each axis, up to given sizes.

        Args:
            shape: the new sizes; None keeps a size.

        Returns a view of the new shape in this dtype.

        Raises ShapeError for another number of sizes, or one that is larger.

        >>> Tensor([[1, 2, 3], [4, 5, 6]]).shrink_to(None, 2).tolist()
        [[1, 2], [4, 5]]
        """
        return self.shrink([(0, size) for size in self._to_shape("shrink_to", shape)])

    def _to_shape(self, name: str, shape: Sequence[Any]) -> tuple[Any, ...]:
        """`shape`, with this tensor's sizes for None."""
        wanted = flat_arguments(shape)
        if len(wanted) != self.ndim:
            raise ShapeError(f"{name}: {len(wanted)} sizes for {self.ndim} axes")
        return tuple(size if new is None else new for size, new in zip(self.shape, wanted))

    def _amounts(self, padding: Sequence[Any]) -> tuple[list[Bounds], Variables]:
        """(before, after) for each axis, and the values of the variables in them."""
        if isinstance(padding, int):
            padding = (padding, padding) * self.ndim
        if not isinstance(padding, (tuple, list)):
            raise DTypeError(
                f"pad: cannot use {article(type(padding).__name__)} as amounts",
                rule="an integer, two for each axis from the last axis on, or a pair for each axis",
            )
        if any(pair is None or isinstance(pair, (tuple, list)) for pair in padding):
            pairs = [pair or (0, 0) for pair in padding]
            if len(pairs) != self.ndim:
                raise ShapeError(
                    f"pad: {len(pairs)} pairs for {self.ndim} axes", padding=tuple(padding)
                )
        else:
            if len(padding) % 2 or len(padding) > 2 * self.ndim:
                raise ShapeError(
                    f"pad: {len(padding)} amounts for {self.ndim} axes",
                    padding=tuple(padding),
                    rule="two for each axis, from the last axis on",
                )
            pairs = [(padding[at], padding[at + 1]) for at in range(0, len(padding), 2)]
            pairs = [(0, 0)] * (self.ndim - len(pairs)) + pairs[::-1]
        variables = NO_VARIABLES
        for amount in (amount for pair in pairs for amount in pair if isinstance(amount, UOp)):
            variables = merge(variables, as_size("pad", amount)[1])
        return [(_amount(before), _amount(after)) for before, after in pairs], variables

    @composed
    def _pad_with_itself(self, amounts: list[Bounds], mode: str) -> Self:
        """A border taken from the tensor itself."""
        check_choice("pad", "mode", mode, _MODES, UnsupportedError)
        x = self
        for axis, (before, after) in enumerate(amounts):
            size = x._length(axis)
            low, high = as_int("pad", "an amount", before), as_int("pad", "an amount", after)
            cut = (max(-low, 0), size - max(-high, 0))
            # The values that wrap around are those that stay; a mirror or an end is that of the
            # whole axis.
            if mode == "circular":
                x = x._slice(axis, *cut)
                cut = (0, x._length(axis))
            low, high, size = max(low, 0), max(high, 0), x._length(axis)
            most = {"reflect": size - 1, "circular": size, "replicate": math.inf if size else 0}[
                mode
            ]
            if not low and not high:
                x = x._slice(axis, *cut)
                continue
            if max(low, high) > most:
                raise ShapeError(
                    f"pad: a {mode} border of {max(low, high)} needs a longer axis than {size}"
                )
            joined = [x]
            if mode == "circular":
                joined = [x._slice(axis, size - low, size), x, x._slice(axis, 0, high)]
            elif mode == "reflect":
                joined = [
                    x._slice(axis, 1, low + 1).flip(axis),
                    x,
                    x._slice(axis, size - 1 - high, size - 1).flip(axis),
                ]
            else:
                wide = list(x.shape)
                first, last = x._slice(axis, 0, 1), x._slice(axis, size - 1, size)
                joined = [
                    first.expand(*wide[:axis], low, *wide[axis + 1 :]),
                    x,
                    last.expand(*wide[:axis], high, *wide[axis + 1 :]),
                ]
            joined = [each for each in joined if not is_zero(each.shape[axis])]
            x = joined[0].cat(*joined[1:], dim=axis)._slice(axis, cut[0], cut[1] + low + high)
        return x


def _amount(value: Any) -> sint:
    return as_size("pad", value)[0] if isinstance(value, UOp) else as_int("pad", "an amount", value)


def _cut(amount: sint) -> int:
    return max(-amount, 0) if isinstance(amount, int) else 0


def _added(amount: sint) -> sint:
    return max(amount, 0) if isinstance(amount, int) else amount
