"""Scans: where they are stored, and those of few long rows in slices, which threads or lanes
share.

before   PREFIX_AXIS(x, n)
after    RESHAPE(EXPAND(what comes before each slice) + PREFIX_AXIS(RESHAPE(x, (8, n/8)), 1))

The prefix before each slice is a scan of the slices' reductions, so x is read twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from tilegrad.ir.movement import expand, pad_with_identity, reduce_axes, reshape, shrink
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, prod, toposort
from tilegrad.schedule.cost import SLICES, WORTH_A_KERNEL
from tilegrad.schedule.items import Reason
from tilegrad.schedule.over_blocks import slices_near

__all__ = ["in_slices", "stored_scans"]

# Tuning, worth shown by `bench/gpu.py`, scans.
# On targets with blocks of lanes, which have no vectors for a row: the lanes that are busy, and the
# least elements of a lane.
_LANES = 1 << 12
_OF_A_LANE = 16
# The fewest elements of a slice that a warp shares, and the divisor of its length.
_OF_A_WARP, _WHOLE = 1024, 128


def stored_scans(
    nodes: Sequence[UOp], users: Mapping[UOp, Sequence[UOp]], stored: Mapping[UOp, Reason]
) -> tuple[dict[UOp, Reason], dict[UOp, UOp]]:
    """Values that store scans, beside those in `stored`; and for each that is the reshape of one,
    the scan below.

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
    """Whether `user` only stores `value`."""
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


def in_slices(prefix: UOp, *, has_lanes: bool, warps: int = 0) -> UOp | None:
    """The scan `prefix` in slices; None where it has enough rows to run at once. `warps` is the
    number that keeps a target busy whose lanes share a scan (optimize.opts.shared_scan), else 0.
    """
    if prefix.op is not Ops.PREFIX_AXIS:
        return None
    (x,), (function, axis) = prefix.src, prefix.arg
    if x.is_constant or not _has_numbers(x.shape):
        return None
    if warps and x.dtype.itemsize == 4 and all(size == 1 for size in x.shape[axis + 1 :]):
        rows = int(prod(x.shape)) // max(x.shape[axis], 1)
        count = min(warps // max(rows, 1), x.shape[axis] // _OF_A_WARP)
        if count > 1:
            length = -(-x.shape[axis] // count)
            count = -(-x.shape[axis] // (-(-length // _WHOLE) * _WHOLE))
    else:
        # A device whose lanes share scans is kept busy by eight times as many.
        lanes = (_LANES << 3 if warps else _LANES) if has_lanes else 0
        count = _count(x.shape, axis, lanes)
        warps = 0
    if count < 2:
        return None
    return _joined(x, function, axis, count, has_lanes=has_lanes, warps=warps)


def _count(shape: tuple[Any, ...], axis: int, lanes: int) -> int:
    """The number of slices of each row, on a target with `lanes` that keep it busy, or none."""
    size, rows = shape[axis], int(prod(shape)) // max(shape[axis], 1)
    if lanes:
        if min(_LANES // max(rows, 1), size // _OF_A_LANE) < 2:
            return 1
        return slices_near(size, int(min(lanes // max(rows, 1), size // _OF_A_LANE)))
    is_long = rows < SLICES and size * rows >= WORTH_A_KERNEL and size % SLICES == 0
    return SLICES if is_long else 1


def _joined(x: UOp, function: Ops, axis: int, count: int, *, has_lanes: bool, warps: int) -> UOp:
    """The prefixes of the slices, each with the prefix before it."""
    shape, size = x.shape, x.shape[axis]
    length = -(-size // count)
    if warps:
        length = -(-length // _WHOLE) * _WHOLE
    x = pad_with_identity(x, axis, (0, count * length - size), function)
    slices = reshape(x, (*shape[:axis], count, length, *shape[axis + 1 :]))
    whole = reduce_axes(slices, function, (axis + 1,))
    totals = reshape(whole, (*shape[:axis], count, *shape[axis + 1 :]))
    running = UOp(Ops.PREFIX_AXIS, x.dtype, (totals,), (function, axis))
    running = in_slices(running, has_lanes=has_lanes, warps=warps) or running
    before = shrink(running, [(0, n - (each == axis)) for each, n in enumerate(totals.shape)])
    before = reshape(pad_with_identity(before, axis, (1, 0), function), whole.shape)
    inside = UOp(Ops.PREFIX_AXIS, x.dtype, (slices,), (function, axis + 1))
    flat = reshape(expand(before, slices.shape).alu(function, inside), x.shape)
    return flat if size == count * length else shrink(flat, [(0, size) for size in shape])
