"""Comparisons of two operands, which give bool; NaN equals nothing and is in no order."""

from __future__ import annotations

from typing import Self

from tilegrad.base.dtype import dtypes
from tilegrad.base.origin import composed
from tilegrad.ir.op import Ops
from tilegrad.tensor.calls.templates import elementwise, templated
from tilegrad.tensor.elementwise.bits import Bits
from tilegrad.tensor.handle.core import Core, Operand

__all__ = ["Comparison"]


class Comparison(Bits):
    """Methods and operators of comparison."""

    __slots__ = ()

    @elementwise
    def eq(self, other: Operand) -> Self:
        """Compare: true where the two are equal; NaN equals nothing.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a bool tensor of the broadcast shape.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([1, 2]).eq(Tensor([1, 3])).tolist()
        [True, False]
        """
        return self._compared("eq", Ops.CMPEQ, other)

    @elementwise
    def ne(self, other: Operand) -> Self:
        """Compare: true where the two differ; NaN differs from all.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a bool tensor of the broadcast shape.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([1, 2]).ne(Tensor([1, 3])).tolist()
        [False, True]
        """
        return self._compared("ne", Ops.CMPNE, other)

    @elementwise
    def lt(self, other: Operand) -> Self:
        """Compare: true where self < other; false for NaN.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a bool tensor of the broadcast shape.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([1, 2]).lt(2).tolist()
        [True, False]
        """
        return self._compared("lt", Ops.CMPLT, other)

    @elementwise
    def gt(self, other: Operand) -> Self:
        """Compare: true where self > other; false for NaN.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a bool tensor of the broadcast shape.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([1, 2]).gt(1).tolist()
        [False, True]
        """
        return self._compared("gt", Ops.CMPLT, other, swap=True)

    @elementwise
    def le(self, other: Operand) -> Self:
        """Compare: true where self <= other; false for NaN.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a bool tensor of the broadcast shape.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([1, 2]).le(1).tolist()
        [True, False]
        """
        return self._at_most("le", other)

    @elementwise
    def ge(self, other: Operand) -> Self:
        """Compare: true where self >= other; false for NaN.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a bool tensor of the broadcast shape.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([1, 2]).ge(2).tolist()
        [False, True]
        """
        return self._at_most("ge", other, swap=True)

    def _compared(self, name: str, op: Ops, other: Operand, *, swap: bool = False) -> Self:
        x = self
        if isinstance(other, int) and not isinstance(other, bool) and x.dtype.is_int:
            if not x.dtype.min <= other <= x.dtype.max:
                # Wrapping the number would change the answer.
                x = x.cast(dtypes.int64 if -(1 << 63) <= other < 1 << 63 else dtypes.float64)
                other = float(other) if x.dtype.is_float else other
        return x._binary(name, op, other, swap=swap)

    @composed
    def _at_most(self, name: str, other: Operand, *, swap: bool = False) -> Self:
        other = self._operand(name, other) if not isinstance(other, int) else other
        if (
            self.dtype.is_float
            or isinstance(other, float)
            or (isinstance(other, Core) and other.dtype.is_float)
        ):
            # Not "not greater": that would be true of NaN.
            return self._compared(name, Ops.CMPLT, other, swap=swap) | self._compared(
                name, Ops.CMPEQ, other
            )
        return self._compared(name, Ops.CMPLT, other, swap=not swap).logical_not()

    @templated
    def logical_not(self) -> Self:
        """Invert the truth value: true where the value is zero.

        Returns a bool tensor of this shape.

        >>> Tensor([0, 2]).logical_not().tolist()
        [True, False]
        """
        return self.cast(dtypes.bool)._unary(Ops.XOR, True)

    @elementwise
    def __lt__(self, other: Operand) -> Self:
        return self.lt(other)

    @elementwise
    def __gt__(self, other: Operand) -> Self:
        return self.gt(other)

    @elementwise
    def __le__(self, other: Operand) -> Self:
        return self.le(other)

    @elementwise
    def __ge__(self, other: Operand) -> Self:
        return self.ge(other)

    @elementwise
    def __eq__(self, other: Operand) -> Self:  # type: ignore[override]
        return self.eq(other)

    @elementwise
    def __ne__(self, other: Operand) -> Self:  # type: ignore[override]
        return self.ne(other)

    def __hash__(self) -> int:
        return object.__hash__(self)
