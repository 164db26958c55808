"""Reductions in two stages, for targets with blocks of lanes: as many blocks as keep the device
busy reduce a slice each, and a second kernel reduces their results.

before   REDUCE_AXIS(x, axes)                             x: (16777216,)
after    REDUCE_AXIS(REDUCE_AXIS(RESHAPE(x), ...), 0)     RESHAPE(x): (1024, 16384)

A block is one result of a row, or a few dozen of columns. So a reduction is split where its results
are few beside what is reduced. There are no atomics: the order of the terms is fixed, and equal
inputs have equal results.
"""

from __future__ import annotations

from tilegrad.ir.movement import pad_with_identity, reduce_axes, reshape
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, prod
from tilegrad.schedule.cost import WORTH_A_KERNEL

__all__ = ["over_blocks"]

# Tuning, worth shown by `bench/gpu.py`, reductions.
# Lanes that serve one result without a split: a block for a row, a few lanes for a column.
_LANES_OF_A_ROW, _LANES_OF_A_COLUMN = 1024, 8
# With this many lanes at work, a device is busy enough for one kernel.
_BUSY_LANES = 1 << 15
# Elements that a block reduces at least. A block of columns is a warp: 32 columns, and an eighth of
# the lanes, so there are more of them.
_LEAST_OF_A_BLOCK, _COLUMNS_OF_A_BLOCK, _MORE_BLOCKS = 4096, 32, 4
# What the length of a slice is a multiple of, where slices are padded.
_WHOLE = 1024
# Fewer slices do not pay for a second kernel.
_FEWEST = 4


def over_blocks(node: UOp, blocks: int) -> UOp | None:
    """The reduction `node` in two stages; None where one stage is enough."""
    if node.op is not Ops.REDUCE_AXIS or node.src[0].is_constant:
        return None
    (x,), (function, axes) = node.src, node.arg[:2]
    shape = x.shape
    if not all(isinstance(size, int) for size in shape) or function.definition.identity is None:
        return None
    count, results = int(prod(shape)), int(prod(node.shape))
    if count < WORTH_A_KERNEL or _is_product(x, axes):
        return None
    is_row = len(shape) - 1 in axes or all(size == 1 for size in shape[max(axes) + 1 :])
    lanes = results * (_LANES_OF_A_ROW if is_row else _LANES_OF_A_COLUMN)
    if lanes >= _BUSY_LANES:
        return None
    made = results if is_row else -(-results // _COLUMNS_OF_A_BLOCK)
    wanted = blocks if is_row else _MORE_BLOCKS * blocks
    most = min(wanted // max(made, 1), count // made // _LEAST_OF_A_BLOCK)
    return _two_stages(node, x, most) if most >= _FEWEST else None


def _is_product(value: UOp, axes: tuple[int, ...]) -> bool:
    """Whether the terms are products of two operands that each serve several results: tiles of
    results (optimize) use an element again and again.
    """
    while value.op is Ops.CAST:
        (value,) = value.src
    return value.op is Ops.MUL and all(_is_repeated(source, axes) for source in value.src)


def _is_repeated(value: UOp, axes: tuple[int, ...]) -> bool:
    """Whether `value` repeats along an axis that is not reduced."""
    while value.op in (Ops.CAST, Ops.PERMUTE):
        if value.op is Ops.PERMUTE:
            axes = tuple(value.arg[axis] for axis in axes)
        (value,) = value.src
    if value.op is not Ops.EXPAND:
        return False
    (source,) = value.src
    pairs = enumerate(zip(source.shape, value.shape, strict=True))
    return any(old != new and axis not in axes for axis, (old, new) in pairs)


def _two_stages(node: UOp, x: UOp, most: int) -> UOp:
    """Slices of the longest axis that is reduced, the outermost of equals."""
    function, axes = node.arg[:2]
    axis = max(axes, key=lambda axis: (x.shape[axis], -axis))
    if len(axes) == len(x.shape) and x.shape[axis] < most * 2:
        x = reshape(x, (int(prod(x.shape)),))
        axis, axes = 0, (0,)
    size = x.shape[axis]
    slices = _slices(size, min(most, size))
    length = -(-size // slices)
    if slices * length != size and length > _WHOLE:
        # Equal steps for each lane of a block.
        length = -(-length // _WHOLE) * _WHOLE
        slices = -(-size // length)
    x = pad_with_identity(x, axis, (0, slices * length - size), function)
    sliced = reshape(x, (*x.shape[:axis], slices, length, *x.shape[axis + 1 :]))
    first = reduce_axes(sliced, function, tuple(each + (each >= axis) for each in axes))
    return reshape(reduce_axes(first, function, (axis,)), node.shape)


def _slices(size: int, most: int) -> int:
    """A divisor of `size` near `most`, so that slices are equal, else `most`."""
    near = [count for count in range(most // 2, min(2 * most, size) + 1) if count > 1]
    return min(
        (count for count in near if size % count == 0),
        key=lambda count: max(count / most, most / count),
        default=most,
    )
