"""Tensors over several devices: how they get there, and what each device has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from tilegrad.base.errors import ShapeError
from tilegrad.device.disk import is_file
from tilegrad.engine.realize import realize as engine
from tilegrad.ir.op import Ops
from tilegrad.ir.placement import Group, Placement, even_ranges
from tilegrad.tensor.handle.core import compute, describe
from tilegrad.tensor.handle.device import canonical
from tilegrad.tensor.handle.size_arguments import as_axis, show_shape
from tilegrad.tensor.results.realized import Realized

__all__ = ["SeveralDevices"]


class SeveralDevices(Realized):
    """Sharding."""

    __slots__ = ()

    def shard(self, devices: Sequence[str], axis: int | None = None) -> Self:
        """Spread over several devices: each has a range of an axis, or all.

        Args:
            devices: names of the devices, each once; `X:0` is `X`.
            axis: the axis that is split, a negative one counts from the last; without one each
                device has the whole value.

        Returns a tensor of this shape and dtype, whose `device` is the tuple of devices. Sizes that
        do not divide give the first devices one element more.

        Raises IndexBoundsError for an axis that is out of range, ShapeError for one with fewer
        elements than there are devices or of a symbolic size, DeviceError for an unknown device, or
        one that stands there twice.

        >>> Tensor([1, 2, 3, 4]).shard(("CPU", "CPU:1"), axis=0).sharding.bounds
        ((0, 2), (2, 4))
        """
        group: Any = canonical((devices,) if isinstance(devices, str) else tuple(devices))
        number = None if axis is None else as_axis("shard", axis, self.ndim)
        if not isinstance(group, Group):
            return self.to(group)
        placement = Placement(group)
        if number is not None:
            size = self._length(number)
            if size < len(group):
                raise ShapeError(
                    f"shard: axis {number} has {size} elements for {len(group)} devices",
                    tensor=describe(self.uop),
                    rule="each device has one at least",
                    remedy="split another axis, or none: axis=None",
                )
            placement = Placement(group, number, even_ranges(size, len(group)))
        source = self.to(group[0]) if is_file(self.device) else self
        node = compute(Ops.SHARD, self.dtype, (source.uop,), placement)
        return self._again(node, canonical(group), self._variables)

    def shard_(self, devices: Sequence[str], axis: int | None = None) -> Self:
        """As `shard`, of this tensor itself.

        Args:
            devices: names of the devices, each once.
            axis: the axis that is split; without one each device has the whole value.

        Returns this tensor, of the same shape and dtype.

        Raises the same errors.

        >>> Tensor([1, 2, 3, 4]).shard_(("CPU", "CPU:1")).device
        ('CPU', 'CPU:1')
        """
        return self._become(self.shard(devices, axis))

    def shard_like(self, other: Self) -> Self:
        """Spread as another tensor is, or move to its device.

        Args:
            other: the tensor; if an axis of it is split, of this shape.

        Returns a tensor of this shape and dtype.

        Raises ShapeError where the shapes differ and an axis is split.

        >>> x = Tensor([1, 2, 3]).shard(("CPU", "CPU:1"), axis=0)
        >>> Tensor([4, 5, 6]).shard_like(x).sharding == x.sharding
        True
        """
        placement = other.sharding
        if placement is None or placement.axis is None:
            return self.to(other.device) if placement is None else self.shard(other.device)
        if self.shape != other.shape:
            raise ShapeError(
                f"shard_like: {show_shape(self.shape)} is split as {show_shape(other.shape)} is",
                tensor=describe(self.uop),
                rule="both have one shape",
            )
        node = compute(Ops.SHARD, self.dtype, (self.uop,), placement)
        return self._again(node, canonical(placement.devices), self._variables)

    @property
    def sharding(self) -> Placement | None:
        """Where the elements of a tensor of several devices are: `devices`, the `axis` that is
        split or None, and `bounds`, the range of it that each device has; None for one of a single
        device. The shape and the dtype are those of the whole value.

        Returns a `Placement` or None.

        >>> Tensor([1, 2]).shard(("CPU", "CPU:1"), axis=0).sharding.axis
        0
        """
        group: Any = self.device
        if not isinstance(group, Group):
            return None
        return engine.placement_of(self.uop) or Placement(group)

    def shards(self) -> list[Self]:
        """The shards of a tensor of several devices, without empty ones; for a single device, the
        tensor itself.

        Returns a list of tensors of this dtype, of a single device each.

        >>> [x.tolist() for x in Tensor([1, 2, 3]).shard(("CPU", "CPU:1"), axis=0).shards()]
        [[1, 2], [3]]
        """
        placement = self.sharding
        if placement is None:
            return [self]
        found = []
        for number, name in enumerate(placement.devices):
            if placement.has(number):
                own = self
                if placement.axis is not None:
                    start, end = placement.bounds[number]
                    own = self.narrow(placement.axis, start, end - start)
                found.append(own.to(name))
        return found
