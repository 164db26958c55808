"""Running folds: where they are stored, and those of few long rows in parts, which threads or lanes
share.

before   PREFIX_AXIS(x, n)
after    RESHAPE(EXPAND(what comes before each part) + PREFIX_AXIS(RESHAPE(x, (8, n/8)), 1))

What comes before each part is a running fold of the parts' folds, so x is read twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, prod, toposort
from tilegrad.schedule.reason import Reason

__all__ = ["in_parts", "running_folds"]

# The parts of all rows for processors, from so many elements on: a fixed number, so that the result
# does not depend on the machine.
_PARTS = 8
_WORTH_SPLITTING = 1 << 18
# For targets with blocks of lanes, which have no vectors for a row: so many lanes are busy, and a
# lane has so many elements at least.
_LANES = 1 << 12
_OF_A_LANE = 16


def running_folds(
    nodes: Sequence[UOp], users: Mapping[UOp, Sequence[UOp]], stored: Mapping[UOp, Reason]
) -> tuple[dict[UOp, Reason], dict[UOp, UOp]]:
    """The values that store running folds, beside those that are `stored` anyway; and for each that
    is the reshape of one, what it is a reshape of.

    Each element follows from the one before it, so they are computed in order, in a kernel of their
    shape, at the end of the elementwise work on them.
    """
    found: dict[UOp, Reason] = {}
    shaped: dict[UOp, UOp] = {}
    for node in nodes:
        if node.op is not Ops.PREFIX_AXIS:
            continue
        top = node
        while top not in stored and len(users[top]) == 1:
            (user,) = users[top]
            if user.op is Ops.RESHAPE and user in stored and _has_numbers(user.shape + top.shape):
                shaped[user] = top
            elif not (_is_end(user, top) or _is_beside(user, top, {*stored, *found})):
                break
            top = user
        if top not in stored:
            found[top] = Reason.RUNNING
    return found, shaped


def _has_numbers(sizes: tuple[Any, ...]) -> bool:
    return all(isinstance(size, int) for size in sizes)


def _is_end(user: UOp, value: UOp) -> bool:
    """Whether `user` is nothing but where `value` is stored."""
    if user.op is Ops.ASSIGN:
        return user.src[1] is value
    return user.op is Ops.CONTIGUOUS and user.arg is None


def _is_beside(user: UOp, value: UOp, stored: Set[UOp]) -> bool:
    """Whether `user` is elementwise work on `value`, in which no other order is asked for."""
    if not (user.op.is_alu or user.op in (Ops.CAST, Ops.DETACH)) or user.shape != value.shape:
        return False
    others = [source for source in user.src if source is not value]
    below = toposort(others, stop=lambda node: node in stored)
    return all(node in stored or node.op is not Ops.PREFIX_AXIS for node in below)


def in_parts(prefix: UOp, x: UOp, *, has_lanes: bool) -> UOp | None:
    """The running fold `prefix`, of `x`, in parts; None where its rows are enough to do at once."""
    function, axis = prefix.arg
    if x.is_constant or not _has_numbers(x.shape):
        return None
    count = _count(x.shape, axis, has_lanes=has_lanes)
    return None if count < 2 else _joined(x, function, axis, count, has_lanes=has_lanes)


def _count(shape: tuple[Any, ...], axis: int, *, has_lanes: bool) -> int:
    """How many parts each row has."""
    size, rows = shape[axis], int(prod(shape)) // max(shape[axis], 1)
    if has_lanes:
        return int(min(_LANES // max(rows, 1), size // _OF_A_LANE))
    is_long = rows < _PARTS and size * rows >= _WORTH_SPLITTING and size % _PARTS == 0
    return _PARTS if is_long else 1


def _joined(x: UOp, function: Ops, axis: int, count: int, *, has_lanes: bool) -> UOp:
    """The prefixes of the parts, each with what comes before it."""
    shape, size = x.shape, x.shape[axis]
    length = -(-size // count)
    x = _filled(x, axis, (0, count * length - size), function)
    parts = _reshape(x, (*shape[:axis], count, length, *shape[axis + 1 :]))
    whole = UOp(Ops.REDUCE_AXIS, x.dtype, (parts,), (function, (axis + 1,)))
    totals = _reshape(whole, (*shape[:axis], count, *shape[axis + 1 :]))
    running = UOp(Ops.PREFIX_AXIS, x.dtype, (totals,), (function, axis))
    running = in_parts(running, totals, has_lanes=has_lanes) or running
    kept = tuple((0, size - (place == axis)) for place, size in enumerate(totals.shape))
    before = UOp(Ops.SHRINK, x.dtype, (running,), kept)
    before = _reshape(_filled(before, axis, (1, 0), function), whole.shape)
    inside = UOp(Ops.PREFIX_AXIS, x.dtype, (parts,), (function, axis + 1))
    joined = UOp(Ops.EXPAND, x.dtype, (before,), parts.shape).alu(function, inside)
    flat = _reshape(joined, x.shape)
    if size == count * length:
        return flat
    return UOp(Ops.SHRINK, x.dtype, (flat,), tuple((0, size) for size in shape))


def _reshape(x: UOp, shape: tuple[Any, ...]) -> UOp:
    return UOp(Ops.RESHAPE, x.dtype, (x,), shape)


def _filled(x: UOp, axis: int, around: tuple[int, int], function: Ops) -> UOp:
    """`x` with elements around it along an axis that change no fold."""
    if around == (0, 0):
        return x
    sizes = tuple(around if place == axis else (0, 0) for place in range(len(x.shape)))
    padded = UOp(Ops.PAD, x.dtype, (x,), sizes)
    assert function.definition.identity is not None
    identity = function.definition.identity(x.dtype)
    if identity == 0:
        return padded
    one = _reshape(UOp.const(dtypes.bool, True), (1,) * len(x.shape))
    inside = UOp(Ops.PAD, dtypes.bool, (UOp(Ops.EXPAND, dtypes.bool, (one,), x.shape),), sizes)
    return inside.where(padded, UOp.const(x.dtype, identity))
