"""A reduction of a value per device by a ring.

With n devices, every device could get the n - 1 values of the others: n * (n - 1) times the bytes
of one. In a ring the value is cut into n slices. Slice k starts at device k + 1 and goes round,
each device adding its own; then its sum goes round. That is 2 * (n - 1) times the bytes of one
value.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.ir.movement import shaped, shrink
from tilegrad.ir.op import Ops
from tilegrad.ir.placement import Range, even_ranges
from tilegrad.ir.uop import UOp, prod
from tilegrad.schedule.shard_slices import joined

__all__ = ["ring_reduce"]


def ring_reduce(values: Sequence[UOp], devices: Sequence[str], function: Ops) -> list[UOp]:
    """On each device the reduction of the values, one per device and of one shape, which has as
    many elements as there are devices, or more.
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
