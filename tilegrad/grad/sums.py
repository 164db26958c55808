"""Sums as the backward pass makes them: wide, and one where several could stand in a row.

The gradient of a convolution by its input is a sum over channels, moved, then a sum over the
places of the kernel along one axis, moved, and again along the next. Computed one after another,
the first sums would go through memory, many times as large as the input. They are one sum over all
those axes: movement neither adds nor repeats an element, so it may as well come before the sum.

    before   SUM(move(SUM(x, a)), b)
    after    SUM(move'(x), a and b)      move' leaves the axes a, now the last ones, where they are
"""

from __future__ import annotations

from tilegrad.base.dtype import DType, sum_dtype
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, prod

__all__ = ["sum_axes"]

# Movement that repeats no element.
_MOVES = frozenset({Ops.RESHAPE, Ops.PERMUTE, Ops.PAD, Ops.SHRINK, Ops.FLIP})
# The zeros that a PAD adds are summed too: while they make the work no more than this many times
# larger, one sum is better than two.
_MOST_GROWTH = 4


def sum_axes(x: UOp, axes: tuple[int, ...]) -> UOp:
    """The sum over `axes`, which keep size 1; half and bfloat16 are summed in float32.

    Terms that were narrowed just before are taken as they were: to round each would waste the wide
    sum.
    """
    if not axes:
        return x
    wide = sum_dtype(x.dtype)
    base, moves = _unmoved(x, wide)
    if base.op is Ops.REDUCE_AXIS and base.arg[0] is Ops.ADD and _is_worth(base, x):
        total = _one_sum(base, moves, axes)
    else:
        terms = base if not moves and base.dtype is wide else x.cast(wide)
        total = UOp(Ops.REDUCE_AXIS, wide, (terms,), (Ops.ADD, axes))
    return total.cast(x.dtype)


def _unmoved(x: UOp, wide: DType) -> tuple[UOp, list[UOp]]:
    """What `x` moves, if that is of dtype `wide`, and the movement ops, innermost first."""
    moves: list[UOp] = []
    base = x
    while base.op in _MOVES or (base.op is Ops.CAST and base.src[0].dtype is wide):
        if base.op in _MOVES:
            moves.append(base)
        base = base.src[0]
    return (base, moves[::-1]) if base.dtype is wide else (x, [])


def _is_worth(base: UOp, moved: UOp) -> bool:
    before, after = prod(base.shape), prod(moved.shape)
    return (
        not isinstance(before, UOp)
        and not isinstance(after, UOp)
        and after <= _MOST_GROWTH * before
    )


def _one_sum(base: UOp, moves: list[UOp], axes: tuple[int, ...]) -> UOp:
    """The sum over `axes` of the sum `base` after `moves`."""
    x, inner = base.src[0], base.arg[1]
    order = tuple(axis for axis in range(len(x.shape)) if axis not in inner)
    sizes = tuple(x.shape[axis] for axis in inner)
    x = UOp(Ops.PERMUTE, x.dtype, (x,), (*order, *inner))
    x = UOp(Ops.RESHAPE, x.dtype, (x,), (*base.shape, *sizes))
    for move in moves:
        x = UOp(move.op, x.dtype, (x,), (*move.arg, *_unchanged(move, sizes)))
    shape = x.shape[: len(x.shape) - len(sizes)]
    last = range(len(shape), len(x.shape))
    total = UOp(Ops.REDUCE_AXIS, x.dtype, (x,), (Ops.ADD, (*axes, *last)))
    return UOp(
        Ops.RESHAPE,
        x.dtype,
        (total,),
        tuple(1 if axis in axes else size for axis, size in enumerate(shape)),
    )


def _unchanged(move: UOp, sizes: tuple[int, ...]) -> tuple[object, ...]:
    """What the argument of `move` needs more, to leave axes of `sizes` at the end as they are."""
    if move.op is Ops.RESHAPE:
        return sizes
    if move.op is Ops.PERMUTE:
        return tuple(range(len(move.shape), len(move.shape) + len(sizes)))
    if move.op is Ops.PAD:
        return tuple((0, 0) for _ in sizes)
    if move.op is Ops.SHRINK:
        return tuple((0, size) for size in sizes)
    return tuple(False for _ in sizes)
