"""Methods close to the nodes of the graph: one op by its name, constants, sums of many, and what is
said about gradients.
"""

from __future__ import annotations

import functools
from typing import Any, Self

from tilegrad.base.dtype import DType
from tilegrad.base.errors import DTypeError, ShapeError
from tilegrad.base.origin import composed
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.composed.random_draws import Distributions
from tilegrad.tensor.handle.core import Core

__all__ = ["Nodes"]


class Nodes(Distributions):
    """Methods that other libraries' graphs know under these names."""

    __slots__ = ()

    def alu(self, op: Ops, *others: Any) -> Self:
        """Apply the elementwise op `op` to this tensor and `others`.

        Args:
            op: a member of `Ops`.
            others: numbers, or tensors whose shapes broadcast with this one.

        Returns a tensor of the broadcast shape, in the dtype that the op gives.

        Raises DTypeError for an op that is not elementwise, ShapeError for another number of
        operands than it takes.

        >>> from tilegrad.ir import Ops
        >>> Tensor([1, 5]).alu(Ops.MAX, Tensor([3, 3])).tolist()
        [3, 5]
        """
        definition = getattr(op, "definition", None)
        if definition is None or not op.is_alu:
            raise DTypeError(f"alu: {op} is no elementwise op")
        if op is Ops.MULACC and len(others) == 2:
            total: Self = self * others[0] + others[1]
            return total
        if definition.arity != 1 + len(others):
            raise ShapeError(
                f"alu: {op.name} takes {definition.arity} operands, {1 + len(others)} are given"
            )
        if op is Ops.WHERE:
            return self.where(*others)
        if not others:
            return self._unary(op)
        return self._binary("alu", op, others[0])

    def ufix(self, value: Any) -> Self:
        """Make `value` an operand of this tensor.

        Args:
            value: a tensor, which stays as it is, or a number.

        Returns a tensor: a number becomes a constant of shape () in this dtype where that can hold
        it.

        Raises DTypeError for what is neither a number nor a tensor.

        >>> Tensor([1.0]).ufix(2).dtype
        dtypes.float
        """
        return value if isinstance(value, Core) else self._operand("ufix", value)  # type: ignore[return-value]

    @composed
    def usum(self, *others: Any) -> Self:
        """Add this tensor and all `others`.

        Args:
            others: numbers, or tensors whose shapes broadcast.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([1, 2]).usum(10, Tensor([5, 5])).tolist()
        [16, 17]
        """
        return functools.reduce(lambda total, other: total + other, others, self)

    @composed
    def uprod(self, *others: Any) -> Self:
        """Multiply this tensor and all `others`.

        Args:
            others: numbers, or tensors whose shapes broadcast.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([1, 2]).uprod(10, Tensor([5, 5])).tolist()
        [50, 100]
        """
        return functools.reduce(lambda total, other: total * other, others, self)

    @classmethod
    def const(
        cls,
        dtype: DType | str,
        value: Any,
        device: str | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> Self:
        """Constant tensor, which takes no memory.

        Args:
            dtype: dtype of the result or its name.
            value: a number.
            device: name of the device, by default `Device.DEFAULT`.
            shape: the sizes, or None for no axes.

        Returns a tensor of `shape`.

        Raises DTypeError for a name that is no dtype, DeviceError for an unknown device.

        >>> Tensor.const("int32", 3, shape=(2,)).tolist()
        [3, 3]
        """
        return cls.full(() if shape is None else shape, value, device=device, dtype=dtype)

    def const_like(self, value: Any, dtype: DType | str | None = None) -> Self:
        """Constant `value` in the shape and on the device of this tensor.

        Args:
            value: a number.
            dtype: dtype of the result, by default that of this tensor.

        Returns a tensor of this shape.

        Raises DTypeError for a name that is no dtype.

        >>> Tensor([1.0, 2.0]).const_like(7).tolist()
        [7.0, 7.0]
        """
        return self.full_like(value, dtype=dtype)

    def contiguous_backward(self) -> Self:
        """Store the gradient of this tensor in memory before it goes on: a boundary between kernels
        of the backward pass.

        Returns a tensor of this shape and dtype.

        >>> Tensor([1.0]).contiguous_backward().tolist()
        [1.0]
        """
        none = (False,) * self.ndim
        return self._like(UOp(Ops.FLIP, self.dtype, (self.uop,), none))

    @property
    def is_param(self) -> bool:
        """Whether this tensor is a parameter: it requires a gradient and an optimizer is to change
        it.

        Returns a bool.

        >>> Tensor([1.0], requires_grad=True).is_param
        True
        """
        return bool(self.requires_grad)

    def is_param_(self, wanted: bool = True) -> Self:
        """Make this tensor a parameter, or no longer one.

        Args:
            wanted: whether it is to be one.

        Returns this tensor.

        Raises DTypeError for a dtype that has no derivative.

        >>> Tensor([1.0]).is_param_().is_param
        True
        """
        self.requires_grad = wanted
        return self

    def image_dot(self, weight: Self, dtype: DType | str | None = None) -> Self:
        """As `matmul`: memory is not kept in images here.

        Args:
            weight: (..., k, m).
            dtype: dtype of the sum and of the result.

        Returns a tensor of shape (..., n, m).

        Raises ShapeError if the inner sizes differ.

        >>> Tensor([[1.0, 2.0]]).image_dot(Tensor([[3.0], [4.0]])).tolist()
        [[11.0]]
        """
        product: Self = self.matmul(weight)
        return product if dtype is None else product.cast(dtype)

    def image_conv2d(self, weight: Self, *args: Any, **kwargs: Any) -> Self:
        """As `conv2d`: memory is not kept in images here.

        Args:
            weight: (outputs, channels / groups, *kernel).
            args: further arguments of `conv2d`.
            kwargs: the same by keyword.

        Returns (batch, outputs, *out).

        Raises ShapeError if channels, groups or kernel do not fit.

        >>> Tensor.ones(1, 1, 2, 2).image_conv2d(Tensor.ones(1, 1, 2, 2)).tolist()
        [[[[4.0]]]]
        """
        return self.conv2d(weight, *args, **kwargs)
