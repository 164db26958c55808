"""The element that a largest value is taken from, where several are equal.

A value by `amax` or `max()` shares its derivative among them. One of an axis, or of a pooling, has
it from a single element, which a second reduction finds: the position, counted from the end, is
largest for the first. The derivative then compares positions alone, and need not read the elements
again.
"""

from __future__ import annotations

import functools
from typing import Any

from tilegrad.base.dtype import DType, dtypes
from tilegrad.ir.args import Ties
from tilegrad.ir.movement import expand, fill, reduce_axes, reshape, shrink
from tilegrad.ir.op import Ops
from tilegrad.ir.sizes import as_value
from tilegrad.ir.uop import UOp, prod

__all__ = ["is_alone", "shares", "taken_from"]


def is_alone(y: UOp) -> bool:
    """Whether a value of the reduction `y` has its derivative from a single element."""
    return len(y.arg) == 3 and y.arg[2] is not Ties.EVEN


def shares(y: UOp) -> tuple[UOp, UOp]:
    """Whether an element of its source shares the derivative of the reduction `y`, and how many do:
    of a NaN all that are NaN, or by `amax` none.
    """
    (x,), axes = y.src, y.axes
    is_largest = x.eq(expand(y, x.shape))
    if len(y.arg) == 3:
        is_largest = is_largest | x.ne(x)
    # They are counted as integers: 70,000 overflow half.
    count = UOp(Ops.REDUCE_AXIS, dtypes.int32, (is_largest.cast(dtypes.int32),), (Ops.ADD, axes))
    return is_largest, count


def taken_from(y: UOp) -> UOp:
    """Whether an element of its source is the one that a value of the reduction `y` is."""
    (x,), (function, axes, ties) = y.src, y.arg
    is_one, is_nan = x.eq(expand(y, x.shape)), x.ne(x)
    size = prod(x.shape[axis] for axis in axes)
    kind = _index_dtype(size)
    count, position = as_value(size, kind), _positions(x.shape, axes, kind)
    from_end = expand(count - position, x.shape)
    if ties is Ties.POOL:
        # A NaN comes before all elements, and a later one before an earlier.
        after = expand(position + (count + 1), x.shape)
        rank = is_nan.where(after, _without_padding(x, is_one).where(from_end, 0))
        best = reduce_axes(rank, function, axes)
        chosen = (count < best).where(best - (count + 1), count - best)
    else:
        best = reduce_axes((is_one | is_nan).where(from_end, 0), function, axes)
        chosen = count - best
    return expand(position, x.shape).eq(expand(chosen, x.shape))


def _index_dtype(count: Any) -> DType:
    most = count.vmax if isinstance(count, UOp) else count
    return dtypes.int32 if 2 * most + 1 < 1 << 31 else dtypes.int64


def _positions(shape: tuple[Any, ...], axes: tuple[int, ...], kind: DType) -> UOp:
    """The position of an element among those of `axes`, in row-major order, where others are 1."""
    counted = _counted(prod(shape[axis] for axis in axes), kind)
    return reshape(counted, tuple(n if axis in axes else 1 for axis, n in enumerate(shape)))


@functools.lru_cache(maxsize=256)
def _counted(size: Any, kind: DType) -> UOp:
    """0, 1, ... up to `size`, as sums of ones that the scheduler knows the closed form of.

    before   rows of `size` - 1 zeros and `size` ones
    after    read as rows that are longer by one, each has one more of the ones in front
    """
    around = UOp(Ops.PAD, kind, (fill((size,), 1, kind),), ((size - 1, 0),))
    length = size * 2 - 1
    rows = expand(reshape(around, (1, length)), (size + 1, length))
    flat = shrink(reshape(rows, ((size + 1) * length,)), [(0, size * (length + 1))])
    longer = reshape(flat, (size, length + 1))
    return reduce_axes(shrink(longer, [(0, size), (0, size)]), Ops.ADD, (1,)) - 1


def _without_padding(x: UOp, is_one: UOp) -> UOp:
    """`is_one` without the elements of `x` that a pooling padded with a constant.

    before   x = moved(WHERE(inside, tensor, -inf))
    after    is_one & moved(inside)
    """
    moves, base = [], x
    while base.op.is_movement and base.op is not Ops.PAD:
        moves.append(base)
        base = base.src[0]
    if base.op is not Ops.WHERE or base.src[2].op is not Ops.CONST:
        return is_one
    inside = base.src[0]
    if inside.shape != base.shape:
        inside = expand(
            reshape(inside, (1,) * (len(base.shape) - len(inside.shape)) + inside.shape), base.shape
        )
    for move in reversed(moves):
        inside = UOp(move.op, dtypes.bool, (inside,), move.arg)
    return is_one & inside
