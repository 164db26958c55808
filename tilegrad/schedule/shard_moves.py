"""Movement of values of several devices: each device moves its own part, and the split axis moves
along.

Values on their way between devices are cut, copied and joined, and reduced in a ring.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilegrad.base.dtype import as_const, dtypes
from tilegrad.ir.movement import fill, shaped, shrink
from tilegrad.ir.op import Ops
from tilegrad.ir.placement import Placement, Range, even_ranges, reshaped
from tilegrad.ir.queries import device_of
from tilegrad.ir.uop import UOp, prod

__all__ = ["copied", "cut", "joined", "moved", "present", "ring_reduce", "shrunk"]

Shards = Sequence[UOp | None]
Moved = tuple[Placement, list[UOp | None]]


def moved(node: UOp, own: Placement, shards: Shards) -> Moved | None:
    """The placement and the shards of a movement of a value that is split; None where the elements
    of a device are then no range of an axis.
    """
    return _MOVES[node.op](node, own, shards)


def _over_shards(
    node: UOp, placement: Placement, shards: Shards, arg_of: Callable[[int], Any]
) -> Moved:
    """A movement of each shard, with the argument that `arg_of` gives it."""
    found: list[UOp | None] = []
    for number, shard in enumerate(shards):
        if shard is None or not placement.has(number):
            found.append(None)
        else:
            found.append(UOp(node.op, node.dtype, (shard,), arg_of(number)))
    return placement, found


def _reshape(node: UOp, own: Placement, shards: Shards) -> Moved | None:
    assert own.axis is not None
    found = reshaped(node.src[0].shape, node.shape, own.axis, own.bounds)
    if found is None:
        return None
    placement = own.split_at(*found)
    return _over_shards(node, placement, shards, lambda at: placement.shape(node.shape, at))


def _permute(node: UOp, own: Placement, shards: Shards) -> Moved | None:
    placement = own.split_at(node.arg.index(own.axis))
    return _over_shards(node, placement, shards, lambda at: node.arg)


def _expand(node: UOp, own: Placement, shards: Shards) -> Moved | None:
    assert own.axis is not None
    if node.shape[own.axis] != node.src[0].shape[own.axis]:
        return None
    return _over_shards(node, own, shards, lambda at: own.shape(node.shape, at))


def _flip(node: UOp, own: Placement, shards: Shards) -> Moved | None:
    assert own.axis is not None
    placement = own
    if node.arg[own.axis]:
        size = node.shape[own.axis]
        bounds = [
            (size - end, size - start) if start < end else (0, 0) for start, end in own.bounds
        ]
        placement = own.split_at(own.axis, bounds)
    return _over_shards(node, placement, shards, lambda at: node.arg)


def _shrink(node: UOp, own: Placement, shards: Shards) -> Moved | None:
    assert own.axis is not None
    axis = own.axis
    low, high = node.arg[axis]
    if not (isinstance(low, int) and isinstance(high, int)):
        return None
    inside = [(max(start, low), min(end, high)) for start, end in own.bounds]
    placement = own.split_at(axis, [(start - low, end - low) for start, end in inside])

    def arg_of(number: int) -> Any:
        start, end = inside[number]
        first = own.bounds[number][0]
        return (*node.arg[:axis], (start - first, end - first), *node.arg[axis + 1 :])

    return _over_shards(node, placement, shards, arg_of)


def _pad(node: UOp, own: Placement, shards: Shards) -> Moved | None:
    assert own.axis is not None
    axis = own.axis
    before, after = node.arg[axis]
    if not (isinstance(before, int) and isinstance(after, int)):
        return None
    bounds = _padded(own.bounds, before, after)
    placement = own.split_at(axis, bounds)
    found: list[UOp | None] = []
    for number, shard in enumerate(shards):
        if not placement.has(number):
            found.append(None)
        elif shard is None:
            shape = placement.shape(node.shape, number)
            found.append(fill(shape, as_const(0, node.dtype), node.dtype))
        else:
            start, end = own.bounds[number]
            around = before + start - bounds[number][0], bounds[number][1] - before - end
            arg = (*node.arg[:axis], around, *node.arg[axis + 1 :])
            found.append(UOp(Ops.PAD, node.dtype, (shard,), arg))
    return placement, found


_MOVES: dict[Ops, Callable[[UOp, Placement, Shards], Moved | None]] = {
    Ops.RESHAPE: _reshape,
    Ops.PERMUTE: _permute,
    Ops.EXPAND: _expand,
    Ops.FLIP: _flip,
    Ops.SHRINK: _shrink,
    Ops.PAD: _pad,
}


def _padded(bounds: Sequence[Range], before: int, after: int) -> list[Range]:
    """The ranges with elements before and after them: those go to the devices at that end that have
    nothing, else to the one whose range is there.
    """
    found = [(start + before, end + before) if start < end else (0, 0) for start, end in bounds]
    having = [number for number, (start, end) in enumerate(bounds) if start < end]
    if not having:
        return [(0, before + after), *[(0, 0)] * (len(bounds) - 1)]
    first = min(having, key=lambda number: bounds[number])
    last = max(having, key=lambda number: bounds[number])
    size = found[last][1]
    if before:
        free = range(first) if first == having[0] else range(0)
        for number, (start, end) in zip(free, even_ranges(before, len(free)) if free else ()):
            found[number] = start, end
        if not free:
            found[first] = 0, found[first][1]
    if after:
        free = range(last + 1, len(bounds)) if last == having[-1] else range(0)
        for number, (start, end) in zip(free, even_ranges(after, len(free)) if free else ()):
            found[number] = size + start, size + end
        if not free:
            found[last] = found[last][0], size + after
    return found


def present(shard: UOp | None) -> UOp:
    assert shard is not None
    return shard


def copied(value: UOp, device: str) -> UOp:
    """`value` on a device: a constant is on all of them."""
    own = device_of(value)
    if own is None or own == device:
        return value
    return UOp(Ops.COPY, value.dtype, (value,), device)


def shrunk(value: UOp, axis: int, bounds: Range) -> UOp:
    if bounds == (0, value.shape[axis]):
        return value
    arg = [(0, size) for size in value.shape]
    arg[axis] = bounds
    return shrink(value, arg)


def cut(value: UOp, placement: Placement, number: int) -> UOp:
    """The slice of the whole `value` that device `number` has."""
    if placement.axis is None or not value.shape:
        return value
    return shrunk(value, placement.axis, placement.bounds[number])


def joined(slices: Sequence[tuple[Range, UOp]], axis: int, size: int) -> UOp:
    """Values at ranges of an axis as one value: each padded to all of it, and chosen from by the
    position, as zeros that are added would lose the sign of a zero.
    """
    whole: UOp | None = None
    for (start, end), each in sorted(slices, key=lambda each: each[0]):
        around = [(0, 0)] * len(each.shape)
        around[axis] = start, size - end
        padded = each
        if around[axis] != (0, 0):
            padded = UOp(Ops.PAD, each.dtype, (each,), tuple(around))
        if whole is None:
            whole = padded
            continue
        is_before = UOp(
            Ops.PAD,
            dtypes.bool,
            (fill((*whole.shape[:axis], start, *whole.shape[axis + 1 :]), True, dtypes.bool),),
            tuple((0, size - start) if at == axis else (0, 0) for at in range(len(around))),
        )
        whole = UOp(Ops.WHERE, each.dtype, (is_before, whole, padded))
    assert whole is not None
    return whole


def ring_reduce(values: Sequence[UOp], devices: Sequence[str], function: Ops) -> list[UOp]:
    """On each device the reduction of the values, one per device and of one shape, which has as
    many elements as there are devices, or more.

    With n devices, every device could get the n - 1 values of the others: n * (n - 1) times the
    bytes of one. In a ring the value is cut into n slices. Slice k starts at device k + 1 and goes
    round, each device adding its own; then its sum goes round. That is 2 * (n - 1) times the bytes
    of one value.
    """
    count, shape, dtype = len(devices), values[0].shape, values[0].dtype
    size = int(prod(shape))
    flat = [shaped(value, (size,)) for value in values]
    found: list[list[tuple[Range, UOp]]] = [[] for _ in devices]
    for owner, bounds in enumerate(even_ranges(size, count)):
        total: UOp | None = None
        for step in range(1, count + 1):
            number = (owner + step) % count
            own = shrink(flat[number], (bounds,))
            if total is None:
                total = own
            else:
                total = UOp(Ops.COPY, dtype, (total,), devices[number]).alu(function, own)
        assert total is not None
        # It has come to its owner, and goes on from device to device.
        slices = {owner: total}
        for step in range(1, count):
            number = (owner + step) % count
            before = slices[(owner + step - 1) % count]
            slices[number] = UOp(Ops.COPY, dtype, (before,), devices[number])
        for number in range(count):
            found[number].append((bounds, slices[number]))
    return [shaped(joined(slices, 0, size), shape) for slices in found]
