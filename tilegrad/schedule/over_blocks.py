"""Reductions in two stages, for targets with blocks of lanes: as many blocks as keep the device
busy reduce a slice each, and a second kernel reduces their results.

before   REDUCE_AXIS(x, axes)                             x: (16777216,)
after    REDUCE_AXIS(REDUCE_AXIS(RESHAPE(x), ...), 0)     RESHAPE(x): (1024, 16384)

A block is one result of a row, or a few dozen of columns. So a reduction is split where its results
are few beside its inputs. There are no atomics: the order of the terms is fixed, and equal inputs
have equal results.

A product of matrices has a block for each tile of its results. Where these are fewer than the
device has multiprocessors, and the sum is long, each tile has several blocks:

before   REDUCE_AXIS(a * b, k)                            a * b: (128, 128, 65536)
after    REDUCE_AXIS(REDUCE_AXIS(RESHAPE(a * b), k), 0)   the sums of slices: (32, 128, 128)
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from tilegrad.base.dtype import DType
from tilegrad.ir.movement import pad_with_identity, permute, reduce_axes, reshape
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import below, below_casts
from tilegrad.ir.uop import UOp, prod
from tilegrad.schedule.cost import WORTH_A_KERNEL
from tilegrad.schedule.views import contiguous_axis
from tilegrad.target import SHARED_ROWS

__all__ = ["over_blocks", "slices_near"]

# Tuning, worth shown by `bench/gpu.py`, reductions.
# Lanes that serve one result without a split: a block for a row; a few for a column, or more where
# each has as many terms as the fewest lanes (optimize.generators.heuristic_rows).
_LANES_OF_A_ROW, _LANES_OF_A_COLUMN = 1024, (8, 16, 32, 64)
# With this many lanes at work, a device is busy enough for one kernel.
_BUSY_LANES = 1 << 15
# Elements that a block reduces at least. A block of columns is a warp: 32 columns, and an eighth of
# the lanes, so there are more of them.
_LEAST_OF_A_BLOCK, _COLUMNS_OF_A_BLOCK, _MORE_BLOCKS = 4096, 32, 4
# The divisor of the length of a slice, where slices are padded.
_WHOLE = 1024
# Fewer slices do not pay for a second kernel.
_FEWEST = 4
# Results of a block of a product along each side, and the terms of a sum that are worth one: a tile
# of 32 terms waits some 500 cycles for memory, and a launch takes as long as eight of them.
_TILE, _TERMS_OF_A_BLOCK = 64, 512


def over_blocks(
    node: UOp, blocks: int, multiprocessors: int, of_units: Collection[DType]
) -> UOp | None:
    """The reduction `node` in two stages; None where one stage is enough. Products of values of the
    dtypes `of_units` run on matrix units.
    """
    if node.op is not Ops.REDUCE_AXIS or node.src[0].is_constant:
        return None
    (x,), (function, axes) = node.src, node.arg[:2]
    shape = x.shape
    if not all(isinstance(size, int) for size in shape) or function.definition.identity is None:
        return None
    count, results = int(prod(shape)), int(prod(node.shape))
    if count < WORTH_A_KERNEL:
        return None
    if (product := _product(x, axes)) is not None:
        return _split_product(node, product, multiprocessors, of_units)
    is_row = contiguous_axis(x) in axes
    lanes = results * (_LANES_OF_A_ROW if is_row else _lanes_of_a_column(x, axes))
    if lanes >= _BUSY_LANES:
        return None
    made = results if is_row else -(-results // _COLUMNS_OF_A_BLOCK)
    wanted = blocks if is_row else _MORE_BLOCKS * blocks
    most = min(wanted // max(made, 1), count // made // _LEAST_OF_A_BLOCK)
    return _two_stages(node, x, most, is_row=is_row) if most >= _FEWEST else None


def _lanes_of_a_column(value: UOp, axes: tuple[int, ...]) -> int:
    """The most lanes that can share a column in equal parts."""
    depth = int(max(value.shape[axis] for axis in axes))
    least, *more = _LANES_OF_A_COLUMN
    if _itemsize(value) < 4:
        # They read an element at a time, so twice as many blocks ask for as many bytes.
        return least // 2
    fits = [lanes for lanes in more if depth % (lanes * least) == 0]
    return max(fits, default=least)


def _itemsize(value: UOp) -> int:
    """Bytes of an element before it is cast."""
    return below_casts(value).dtype.itemsize


def _factor_dtype(value: UOp) -> DType:
    """The dtype of the factors of a product before they are cast."""
    return below(value, (Ops.CAST, Ops.PERMUTE, Ops.MUL)).dtype


class _ProductAxes(NamedTuple):
    """Results of a sum of products: those along axes of the left factor alone, of the right one
    alone, and of both.
    """

    rows: int
    columns: int
    both: int


def _product(value: UOp, axes: tuple[int, ...]) -> _ProductAxes | None:
    """The axes of `value` if it is a sum of products of operands that each serve several results:
    tiles of results (optimize) then use an element again and again.
    """
    while value.op in (Ops.CAST, Ops.PERMUTE):
        if value.op is Ops.PERMUTE:
            axes = tuple(value.arg[axis] for axis in axes)
        (value,) = value.src
    if value.op is not Ops.MUL:
        return None
    left, right = (_repeated(source, axes) for source in value.src)
    if not left or not right:
        return None
    shape = value.shape
    others = [axis for axis in range(len(shape)) if axis not in (*axes, *left, *right)]
    rows, columns, both = (
        int(prod(shape[axis] for axis in each)) for each in (right - left, left - right, others)
    )
    return _ProductAxes(rows, columns, both)


def _repeated(value: UOp, axes: tuple[int, ...]) -> set[int]:
    """The axes that are not reduced, and along which `value` repeats."""
    names = list(range(len(value.shape)))
    while value.op in (Ops.CAST, Ops.PERMUTE):
        if value.op is Ops.PERMUTE:
            names = [names[value.arg.index(axis)] for axis in range(len(names))]
        (value,) = value.src
    if value.op is not Ops.EXPAND:
        return set()
    (source,) = value.src
    pairs = enumerate(zip(source.shape, value.shape, strict=True))
    return {names[axis] for axis, (old, new) in pairs if old != new}.difference(axes)


def _split_product(
    node: UOp, product: _ProductAxes, multiprocessors: int, of_units: Collection[DType]
) -> UOp | None:
    """A product of matrices with few tiles of results, with a slice of its sum for each block:
    partial results are stored one slice after the other, so that tiles are stored as before.
    """
    (x,), (function, axes) = node.src, node.arg[:2]
    shape = x.shape
    sides = product.rows, product.columns
    least = _TILE // 4
    if _factor_dtype(x) in of_units:
        # A unit's tile may be padding for the most.
        least = 1 + (SHARED_ROWS if contiguous_axis(x) in axes else 1)
    if node.dtype.itemsize < 4 or function is not Ops.ADD or min(sides) < least:
        return None
    tiles = product.both * int(prod(-(-side // _TILE) for side in sides))
    terms = int(prod(shape[axis] for axis in axes))
    most = min(-(-multiprocessors // tiles), terms // _TERMS_OF_A_BLOCK)
    if most < 2:
        return None
    # The longest axis is the one that tiles of operands follow.
    longest = max(axes, key=lambda axis: (shape[axis], axis))
    others = [axis for axis in axes if axis != longest and shape[axis] >= most]
    axis = max(others, key=lambda axis: shape[axis], default=longest)
    slices = slices_near(shape[axis], min(most, shape[axis]))
    length = -(-shape[axis] // slices)
    x = pad_with_identity(x, axis, (0, slices * length - shape[axis]), function)
    return _of_slices(node, x, axis, slices, axes, is_outermost=True)


def _two_stages(node: UOp, x: UOp, most: int, *, is_row: bool) -> UOp:
    """Slices of the longest axis that is reduced, the outermost of equals."""
    function, axes = node.arg[:2]
    axis = max(axes, key=lambda axis: (x.shape[axis], -axis))
    if len(axes) == len(x.shape) and x.shape[axis] < most * 2:
        x = reshape(x, (int(prod(x.shape)),))
        axis, axes = 0, (0,)
    size = x.shape[axis]
    slices = slices_near(size, min(most, size))
    length = -(-size // slices)
    if slices * length != size and length > _WHOLE:
        # Equal steps for each lane of a block.
        length = -(-length // _WHOLE) * _WHOLE
        slices = -(-size // length)
    x = pad_with_identity(x, axis, (0, slices * length - size), function)
    return _of_slices(node, x, axis, slices, axes, is_outermost=not is_row)


def _of_slices(
    node: UOp, x: UOp, axis: int, slices: int, axes: tuple[int, ...], *, is_outermost: bool
) -> UOp:
    """Reduction of an axis in two steps: of each of its `slices`, then of their results. With
    `is_outermost` the results of one slice are stored together, so that neighbours in memory are
    neighbours in the result of the whole reduction.
    """
    function, length = node.combine, x.shape[axis] // slices
    x = reshape(x, (*x.shape[:axis], slices, length, *x.shape[axis + 1 :]))
    inner = tuple(each + (each >= axis) for each in axes)
    if is_outermost:
        x = permute(x, (axis, *(each for each in range(len(x.shape)) if each != axis)))
        inner, axis = tuple(each + 1 for each in axes), 0
    first = reduce_axes(x, function, inner)
    return reshape(reduce_axes(first, function, (axis,)), node.shape)


def slices_near(size: int, most: int) -> int:
    """A divisor of `size` near `most`, so that slices are equal, else `most`."""
    near = [count for count in range(most // 2, min(2 * most, size) + 1) if count > 1]
    return min(
        (count for count in near if size % count == 0),
        key=lambda count: max(count / most, most / count),
        default=most,
    )
