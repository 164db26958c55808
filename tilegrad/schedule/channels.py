"""Operands of convolutions with their channels innermost, for matrix units of 16-bit floats.

A block copies its operands to shared memory in vectors of 16 bytes. An image that a filter window
slides over has no such vectors along its rows, as each position of the window moves them by one
element, and the weights of neighbouring channels are a window apart. With channels innermost both
have vectors along the sum. So the operand is stored once more, in this order: by the kernel that
computes it, where that is its only reader, else by a kernel that transposes.

before   REDUCE_AXIS(x_windows * w, (channel, row, column))
after    the same of PERMUTE(CONTIGUOUS(PERMUTE(x))) and PERMUTE(CONTIGUOUS(PERMUTE(w)))
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from tilegrad.base.dtype import DType
from tilegrad.ir.movement import permute
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, prod
from tilegrad.schedule.cost import WORTH_A_KERNEL, elements

__all__ = ["channels_innermost"]

# Tuning, worth shown by `bench/gpu.py`, convolutions.
# Products that each stored element must serve: the model of docs/gpu.md has both ways take as long
# at about 300 on an A100.
_USES = 256
# Elements of a vector of 16 bytes.
_VECTOR = 8


def channels_innermost(
    node: UOp, packed: Callable[[UOp], Collection[DType]] = lambda node: ()
) -> UOp | None:
    """The sum of products `node` of operands in an order that gives vectors along the sum; None
    where they have vectors already, or where storing them once more does not pay. `packed` gives
    the dtypes that the matrix units of a node's device multiply.
    """
    if node.op is not Ops.REDUCE_AXIS or node.arg[0] is not Ops.ADD:
        return None
    value, axes = node.src[0], node.arg[1]
    if sum(value.shape[axis] != 1 for axis in axes) < 2 or not all(
        isinstance(size, int) for size in value.shape
    ):
        return None
    uses = int(prod(value.shape))
    if uses < _USES * WORTH_A_KERNEL or not (dtypes := packed(node)):
        return None
    above = _views(value)
    product = above[-1].memory
    if product.op is not Ops.MUL:
        return None
    operands = [[*above, *_views(source, above[-1].axes)] for source in product.src]
    channels = [axis for axis in axes if axis in above[-1].axes and not value.shape[axis] % _VECTOR]
    for channel in sorted(channels, key=lambda axis: -value.shape[axis]):
        views = [_lowest(operand, channel) for operand in operands]
        if any(view.memory.dtype not in dtypes for view in views):
            continue
        is_stored = [view.has_vectors(axes, channel) for view in views]
        if all(is_stored) or any(
            not found and uses < _USES * elements(view.memory)
            for found, view in zip(is_stored, views, strict=True)
        ):
            continue
        sources = [
            source if found else _rebuilt(operand[len(above) :], view, _innermost(channel, view))
            for source, found, operand, view in zip(
                product.src, is_stored, operands, views, strict=True
            )
        ]
        fresh = product.replace(src=tuple(sources))
        return node.replace(src=(_rebuilt(above, above[-1], fresh),))
    return None


class _View(NamedTuple):
    """A node below movement ops, and the axes of it that axes of the product run along, each whole
    and in order.
    """

    memory: UOp
    axes: Mapping[int, int]

    def has_vectors(self, reduced: Collection[int], channel: int) -> bool:
        """Whether neighbours in memory are neighbours along the channels or along a result."""
        last = len(self.memory.shape) - 1
        along = [axis for axis, at in self.axes.items() if at == last]
        return any(axis == channel or axis not in reduced for axis in along) and (
            self.memory.shape[last] % _VECTOR == 0
        )


def _views(value: UOp, axes: Mapping[int, int] | None = None) -> list[_View]:
    """`value` and what is below it as long as that moves or casts values, the lowest last; `axes`
    are those of `value`, all of them by default.
    """
    if axes is None:
        axes = {axis: axis for axis, size in enumerate(value.shape) if size != 1}
    views = [_View(value, axes)]
    while value.op.is_movement or (value.op is Ops.CAST and value.dtype.is_float):
        found = {axis: axis_below(value, at) for axis, at in views[-1].axes.items()}
        value = value.src[0]
        views.append(_View(value, {axis: at for axis, at in found.items() if at is not None}))
    return views


def _lowest(views: Sequence[_View], channel: int) -> _View:
    """The lowest view that has an axis for `channel`."""
    return next(view for view in reversed(views) if channel in view.axes)


def _innermost(channel: int, view: _View) -> UOp:
    """The same values of memory that is stored with the channels innermost."""
    memory, at = view.memory, view.axes[channel]
    order = [*(axis for axis in range(len(memory.shape)) if axis != at), at]
    stored = UOp(Ops.CONTIGUOUS, memory.dtype, (permute(memory, order),))
    return permute(stored, [order.index(axis) for axis in range(len(order))])


def _rebuilt(views: Sequence[_View], changed: _View, value: UOp) -> UOp:
    """The first of `views`, with `value` in place of `changed`."""
    for above in reversed(views[: views.index(changed)]):
        value = above.memory.replace(src=(value, *above.memory.src[1:]))
    return value


def axis_below(node: UOp, axis: int) -> int | None:
    """The axis of the source of a movement op or cast that `axis` is, whole and in order; None for none."""
    source, size = node.src[0], node.shape[axis]
    if node.op is Ops.CAST:
        return axis
    if node.op is Ops.PERMUTE:
        return int(node.arg[axis])
    if node.op is Ops.RESHAPE:
        before = prod(node.shape[:axis])
        for at, other in enumerate(source.shape):
            if other == size and prod(source.shape[:at]) == before:
                return at
        return None
    if node.op is Ops.FLIP and node.arg[axis]:
        return None
    return axis if source.shape[axis] == size else None
