"""New tensors filled with one number, or with none, and those shaped like others.

A filled tensor is a constant that is stretched: it takes no memory until something is written to
it.
"""

from __future__ import annotations

from typing import Any, Self

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.recent import Bounded
from tilegrad.device.registry import Device
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.handle.core import as_dtype
from tilegrad.tensor.handle.device import canonical
from tilegrad.tensor.handle.size_arguments import are_plain, as_sizes, flat_arguments, is_zero
from tilegrad.tensor.reductions.scan import Scan
from tilegrad.tensor.storage import memory
from tilegrad.tensor.storage.host_memory import dtype_of_numbers

__all__ = ["DTypeLike", "Filled"]

DTypeLike = DType | str | None


# By number and its class, dtype and sizes: loops make the same tables of zeros again and again.
_nodes: Bounded[tuple[Any, ...], UOp] = Bounded(128)
_NUMBERS = frozenset({bool, int, float})
# Smaller numbers fit all float dtypes of 32 bits and more.
_PLAIN = 1e30


def _stretched(node: UOp, sizes: tuple[Any, ...]) -> UOp:
    """The constant `node` in a shape, as `expand` makes it, without the views on the way."""
    ones = (1,) * len(sizes)
    node = UOp(Ops.RESHAPE, node.dtype, (node,), ones)
    return UOp(Ops.EXPAND, node.dtype, (node,), sizes) if sizes != ones else node


def _plain_node(value: Any, sizes: tuple[Any, ...], dtype: DTypeLike) -> UOp | None:
    """A filled tensor's node, of a number that its dtype holds; None where that is to be found out,
    or it has no elements.
    """
    kind = value.__class__
    if kind not in _NUMBERS or not sizes or not are_plain(sizes) or 0 in sizes:
        return None
    if kind is float and (not -_PLAIN < value < _PLAIN or str(value) == "-0.0"):
        return None
    wanted = as_dtype(dtype) if dtype is not None else dtype_of_numbers([value])
    key = kind, value, wanted, sizes
    found = _nodes.get(key)
    if found is not None:
        return found
    if wanted.is_int:
        is_fit = kind is not float and wanted.min <= value <= wanted.max
    else:
        is_fit = wanted is dtypes.bool or (wanted.itemsize >= 4 and -_PLAIN < value < _PLAIN)
    return _nodes.put(key, _stretched(UOp.const(wanted, value), sizes)) if is_fit else None


class Filled(Scan):
    """Filled tensors. All take `device`, `dtype` and `requires_grad`; sizes are spelled out or are
    one tuple.
    """

    __slots__ = ()

    def _wanting(self, requires_grad: bool | None) -> Self:
        """This new tensor as a leaf, whose gradient is kept if `requires_grad`."""
        self._is_leaf = True
        if requires_grad is not None:
            self.requires_grad = requires_grad
        return self

    @classmethod
    def empty(
        cls,
        *shape: Any,
        device: str | None = None,
        dtype: DTypeLike = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """New tensor whose values are not set.

        Args:
            shape: the sizes, one by one or as one tuple.
            device: name of the device, by default `Device.DEFAULT`.
            dtype: dtype of the result or its name, by default the default float (float32).
            requires_grad: whether `backward` adds up a gradient for it.

        Returns a tensor of `shape`.

        Raises ShapeError for a negative size, DTypeError for a name that is no dtype, DeviceError
        for an unknown device.

        >>> Tensor.empty(2, 3).shape
        (2, 3)
        """
        sizes, variables = as_sizes("empty", flat_arguments(shape))
        kind, name = as_dtype(dtype or dtypes.default_float), canonical(device)
        if any(is_zero(size) for size in sizes):
            return cls.full(sizes, 0, device=name, dtype=kind, requires_grad=requires_grad)
        return cls._of(memory.empty(name, kind, sizes), name, variables)._wanting(requires_grad)

    @classmethod
    def invalids(
        cls,
        *shape: Any,
        device: str | None = None,
        dtype: DTypeLike = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """As `empty`: the values are not to be relied on.

        Args:
            shape: the sizes, one by one or as one tuple.
            device: name of the device, by default `Device.DEFAULT`.
            dtype: dtype of the result or its name, by default the default float (float32).
            requires_grad: whether `backward` adds up a gradient for it.

        Returns a tensor of `shape`.

        Raises ShapeError for a negative size, DTypeError for a name that is no dtype, DeviceError
        for an unknown device.

        >>> Tensor.invalids(2, 3).shape
        (2, 3)
        """
        return cls.empty(*shape, device=device, dtype=dtype, requires_grad=requires_grad)

    @classmethod
    def full(
        cls,
        shape: Any,
        fill_value: Any,
        device: str | None = None,
        dtype: DTypeLike = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """New tensor with `fill_value` in every element.

        Args:
            shape: the sizes, one by one or as one tuple.
            fill_value: a number.
            device: name of the device, by default `Device.DEFAULT`.
            dtype: dtype of the result or its name; by default bool, int32 or the default float, by
                the kind of `fill_value`.
            requires_grad: whether `backward` adds up a gradient for it.

        Returns a tensor of `shape`.

        Raises ShapeError for a negative size, DTypeError for a name that is no dtype, DeviceError
        for an unknown device.

        >>> Tensor.full((2,), 7).tolist()
        [7, 7]
        """
        sizes, variables = as_sizes("full", shape if isinstance(shape, (tuple, list)) else (shape,))
        name = canonical(device)
        known = _plain_node(fill_value, sizes, dtype) if Device.at_hand(name) else None
        if known is not None:
            return cls._of(known, name)._wanting(requires_grad)
        value = cls(fill_value, device=name, dtype=dtype)
        node = value.uop
        if node.op is Ops.CONST and sizes and are_plain(sizes):
            node = _stretched(node, sizes)
            return cls._of(node, value.device, value._variables)._wanting(requires_grad)
        return value.expand(sizes)._holding(variables)._apart()._wanting(requires_grad)

    @classmethod
    def zeros(
        cls,
        *shape: Any,
        device: str | None = None,
        dtype: DTypeLike = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """New tensor of zeros.

        Args:
            shape: the sizes, one by one or as one tuple.
            device: name of the device, by default `Device.DEFAULT`.
            dtype: dtype of the result or its name, by default the default float (float32).
            requires_grad: whether `backward` adds up a gradient for it.

        Returns a tensor of `shape`.

        Raises ShapeError for a negative size, DTypeError for a name that is no dtype, DeviceError
        for an unknown device.

        >>> Tensor.zeros(2).tolist()
        [0.0, 0.0]
        """
        return cls.full(
            flat_arguments(shape), 0, device, dtype or dtypes.default_float, requires_grad
        )

    @classmethod
    def ones(
        cls,
        *shape: Any,
        device: str | None = None,
        dtype: DTypeLike = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """New tensor of ones.

        Args:
            shape: the sizes, one by one or as one tuple.
            device: name of the device, by default `Device.DEFAULT`.
            dtype: dtype of the result or its name, by default the default float (float32).
            requires_grad: whether `backward` adds up a gradient for it.

        Returns a tensor of `shape`.

        Raises ShapeError for a negative size, DTypeError for a name that is no dtype, DeviceError
        for an unknown device.

        >>> Tensor.ones(2).tolist()
        [1.0, 1.0]
        """
        return cls.full(
            flat_arguments(shape), 1, device, dtype or dtypes.default_float, requires_grad
        )

    def full_like(
        self,
        fill_value: Any,
        device: str | None = None,
        dtype: DTypeLike = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """New tensor of this shape with `fill_value` in every element.

        Args:
            fill_value: a number.
            device: name of the device, by default that of this tensor.
            dtype: dtype of the result, by default that of this tensor.
            requires_grad: whether `backward` adds up a gradient for it.

        Returns a tensor of this shape.

        Raises DTypeError for a name that is no dtype, DeviceError for an unknown device.

        >>> Tensor([1, 2]).full_like(3).tolist()
        [3, 3]
        """
        filled = type(self).full(
            self.shape, fill_value, device or self.device, dtype or self.dtype, requires_grad
        )
        return filled._holding(self._variables)._apart()

    def zeros_like(
        self, device: str | None = None, dtype: DTypeLike = None, requires_grad: bool | None = None
    ) -> Self:
        """New tensor of zeros in this shape.

        Args:
            device: name of the device, by default that of this tensor.
            dtype: dtype of the result, by default that of this tensor.
            requires_grad: whether `backward` adds up a gradient for it.

        Returns a tensor of this shape.

        Raises DTypeError for a name that is no dtype, DeviceError for an unknown device.

        >>> Tensor([5, 6]).zeros_like().tolist()
        [0, 0]
        """
        return self.full_like(0, device, dtype, requires_grad)

    def ones_like(
        self, device: str | None = None, dtype: DTypeLike = None, requires_grad: bool | None = None
    ) -> Self:
        """New tensor of ones in this shape.

        Args:
            device: name of the device, by default that of this tensor.
            dtype: dtype of the result, by default that of this tensor.
            requires_grad: whether `backward` adds up a gradient for it.

        Returns a tensor of this shape.

        Raises DTypeError for a name that is no dtype, DeviceError for an unknown device.

        >>> Tensor([5, 6]).ones_like().tolist()
        [1, 1]
        """
        return self.full_like(1, device, dtype, requires_grad)

    def empty_like(
        self, device: str | None = None, dtype: DTypeLike = None, requires_grad: bool | None = None
    ) -> Self:
        """New tensor of this shape whose values are not set.

        Args:
            device: name of the device, by default that of this tensor.
            dtype: dtype of the result, by default that of this tensor.
            requires_grad: whether `backward` adds up a gradient for it.

        Returns a tensor of this shape.

        Raises DTypeError for a name that is no dtype, DeviceError for an unknown device.

        >>> Tensor([1, 2]).empty_like().dtype
        dtypes.int
        """
        return type(self).empty(
            self.shape,
            device=device or self.device,
            dtype=dtype or self.dtype,
            requires_grad=requires_grad,
        )
