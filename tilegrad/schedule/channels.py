"""Operands of convolutions with their channels innermost, for matrix units of 16-bit floats.

A block copies its operands to shared memory in vectors of 16 bytes. An image that a filter window
slides over has no such vectors along its rows, as each position of the window moves them by one
element, and the weights of neighbouring channels are a filter apart. With channels innermost both
have vectors along the sum. So the operand is stored once more, in this order: by the kernel that
computes it, where that is its only reader, else by a kernel that transposes.

before   REDUCE_AXIS(x_windows * w, (channel, row, column))
after    the same of PERMUTE(CONTIGUOUS(PERMUTE(x))) and PERMUTE(CONTIGUOUS(PERMUTE(w)))
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from tilegrad.ir.movement import permute
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, prod
from tilegrad.schedule.cost import WORTH_A_KERNEL, elements
from tilegrad.schedule.views import AlignedView, views_below
from tilegrad.target import Target

__all__ = ["channels_innermost"]

# Tuning, worth shown by `bench/gpu.py`, convolutions.
# Products that each stored element must serve: the model of docs/gpu.md has both ways take as long
# at about 300 on an A100.
_USES = 256


def channels_innermost(node: UOp, target_of: Callable[[UOp], Target]) -> UOp | None:
    """The sum of products `node` with operands in an order that has vectors along the sum. None
    where they have vectors already, or storing them once more does not pay.
    """
    if node.op is not Ops.REDUCE_AXIS or node.combine is not Ops.ADD:
        return None
    value, axes = node.src[0], node.axes
    if sum(value.shape[axis] != 1 for axis in axes) < 2 or not all(
        isinstance(size, int) for size in value.shape
    ):
        return None
    uses = int(prod(value.shape))
    if uses < _USES * WORTH_A_KERNEL or not (dtypes := (target := target_of(node)).short_products):
        return None
    above = views_below(value)
    product = above[-1].memory
    if product.op is not Ops.MUL:
        return None
    operands = [[*above, *views_below(source, above[-1].axes)] for source in product.src]
    width = max(map(target.access_lanes, dtypes))
    channels = [axis for axis in axes if axis in above[-1].axes and not value.shape[axis] % width]
    for channel in sorted(channels, key=lambda axis: -value.shape[axis]):
        views = [_lowest(operand, channel) for operand in operands]
        if any(view.memory.dtype not in dtypes for view in views):
            continue
        if any(map(_is_repeated, operands, views)):
            continue
        is_stored = [_has_vectors(view, axes, channel, width) for view in views]
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


def _has_vectors(view: AlignedView, reduced: Collection[int], channel: int, width: int) -> bool:
    """Whether `width` neighbours in memory are neighbours along the channels or along a result."""
    is_used = any(axis == channel or axis not in reduced for axis in view.innermost)
    return is_used and view.memory.shape[-1] % width == 0


def _is_repeated(views: Sequence[AlignedView], lowest: AlignedView) -> bool:
    """Whether the lowest view that has an axis repeats elements of memory, as the rows of an image
    under a filter window: its vectors may begin at any position.
    """
    return elements(lowest.memory) > elements(views[-1].memory)


def _lowest(views: Sequence[AlignedView], channel: int) -> AlignedView:
    """The lowest view that has an axis for `channel`."""
    return next(view for view in reversed(views) if channel in view.axes)


def _innermost(channel: int, view: AlignedView) -> UOp:
    """The same values, in memory that has the channels innermost."""
    memory, at = view.memory, view.axes[channel]
    order = [*(axis for axis in range(len(memory.shape)) if axis != at), at]
    stored = UOp(Ops.CONTIGUOUS, memory.dtype, (permute(memory, order),))
    return permute(stored, [order.index(axis) for axis in range(len(order))])


def _rebuilt(views: Sequence[AlignedView], changed: AlignedView, value: UOp) -> UOp:
    """The first of `views`, with `value` in place of `changed`."""
    for above in reversed(views[: views.index(changed)]):
        value = above.memory.replace(src=(value, *above.memory.src[1:]))
    return value
