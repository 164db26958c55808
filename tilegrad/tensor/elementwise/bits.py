"""Bits of integers, combined and shifted; of bools the same is logic."""

from __future__ import annotations

from typing import Self

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import DTypeError, UnsupportedDTypeError
from tilegrad.ir.op import Ops
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.elementwise.operand_meeting import Operands
from tilegrad.tensor.handle.core import Core, Operand, describe

__all__ = ["Bits"]


class Bits(Operands):
    """Methods and operators of bits."""

    __slots__ = ()

    def bitwise_not(self) -> Self:
        """Invert all bits; a bool is negated.

        Returns a tensor of this shape and dtype.

        Raises DTypeError for floats.

        >>> Tensor([0, 5]).bitwise_not().tolist()
        [-1, -6]
        """
        self._integers("bitwise_not")
        return self._unary(Ops.XOR, True if self.dtype is dtypes.bool else -1)

    @templated
    def bitwise_and(self, other: Operand) -> Self:
        """Combine bits by and: self & other.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote.

        Raises DTypeError unless both are integers or bools, ShapeError unless the shapes broadcast,
        DeviceError for tensors of two devices.

        >>> Tensor([6]).bitwise_and(3).tolist()
        [2]
        """
        return self._bits("bitwise_and", Ops.AND, other)

    @templated
    def bitwise_or(self, other: Operand) -> Self:
        """Combine bits by or: self | other.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote.

        Raises DTypeError unless both are integers or bools, ShapeError unless the shapes broadcast,
        DeviceError for tensors of two devices.

        >>> Tensor([6]).bitwise_or(3).tolist()
        [7]
        """
        return self._bits("bitwise_or", Ops.OR, other)

    @templated
    def bitwise_xor(self, other: Operand) -> Self:
        """Combine bits by exclusive or: self ^ other.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote.

        Raises DTypeError unless both are integers or bools, ShapeError unless the shapes broadcast,
        DeviceError for tensors of two devices.

        >>> Tensor([6]).bitwise_xor(3).tolist()
        [5]
        """
        return self._bits("bitwise_xor", Ops.XOR, other)

    def _bits(self, name: str, op: Ops, other: Operand) -> Self:
        self._integers(name)
        if isinstance(other, float) or (isinstance(other, Core) and other.dtype.is_float):
            raise UnsupportedDTypeError(
                f"{name}: integers are needed, not "
                + (other.dtype.name if isinstance(other, Core) else repr(other)),
                left=describe(self.uop),
                right=describe(other.uop) if isinstance(other, Core) else repr(other),
                remedy="cast it: .cast(dtypes.int32)",
            )
        return self._binary(name, op, other)

    @templated
    def lshift(self, other: Operand) -> Self:
        """Shift bits left: self * 2**other, wrapped around. The result is 0 where `other` is the
        width in bits or more, or negative.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote.

        Raises DTypeError for floats, for two bools, and for a number that is negative; ShapeError
        unless the shapes broadcast.

        >>> Tensor([1, 3]).lshift(2).tolist()
        [4, 12]
        """
        return self._shifted("lshift", Ops.SHL, other)

    @templated
    def rshift(self, other: Operand) -> Self:
        """Shift bits right: self // 2**other. The result is 0 or -1, by the sign, where `other` is
        the width in bits or more, or negative.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote.

        Raises DTypeError for floats, for two bools, and for a number that is negative; ShapeError
        unless the shapes broadcast.

        >>> Tensor([8, -8]).rshift(2).tolist()
        [2, -2]
        """
        return self._shifted("rshift", Ops.SHR, other)

    def _shifted(self, name: str, op: Ops, other: Operand, *, swap: bool = False) -> Self:
        is_tensor = isinstance(other, Core)
        is_bool = isinstance(other, bool) or (is_tensor and other.dtype is dtypes.bool)
        self._integers(name, but_bool=is_bool)
        if is_tensor and other.dtype.is_float:
            raise UnsupportedDTypeError(
                f"{name}: integers are needed, not {other.dtype.name}",
                left=describe(self.uop),
                right=describe(other.uop),
                remedy="cast it: .cast(dtypes.int32)",
            )
        if isinstance(other, int) and not swap:
            if other < 0:
                raise DTypeError(
                    f"{name}: a shift by {other} bits",
                    tensor=describe(self.uop),
                    rule="amounts are not negative",
                    remedy=f"{'x >> ' if op is Ops.SHL else 'x << '}{-other}",
                )
            # All amounts from the width on do the same, and this one fits the dtype. A bool is
            # shifted as an integer.
            other = min(other, 64 if self.dtype is dtypes.bool else self.dtype.bits)
        return self._binary(name, op, other, swap=swap)

    @templated
    def __invert__(self) -> Self:
        return self.bitwise_not()

    @templated
    def __and__(self, other: Operand) -> Self:
        return self.bitwise_and(other)

    def __rand__(self, other: Operand) -> Self:
        return self.bitwise_and(other)

    @templated
    def __or__(self, other: Operand) -> Self:
        return self.bitwise_or(other)

    def __ror__(self, other: Operand) -> Self:
        return self.bitwise_or(other)

    @templated
    def __xor__(self, other: Operand) -> Self:
        return self.bitwise_xor(other)

    def __rxor__(self, other: Operand) -> Self:
        return self.bitwise_xor(other)

    def __lshift__(self, other: Operand) -> Self:
        return self.lshift(other)

    def __rlshift__(self, other: Operand) -> Self:
        return self._shifted("lshift", Ops.SHL, other, swap=True)

    def __rshift__(self, other: Operand) -> Self:
        return self.rshift(other)

    def __rrshift__(self, other: Operand) -> Self:
        return self._shifted("rshift", Ops.SHR, other, swap=True)
