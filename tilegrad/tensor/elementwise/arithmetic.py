"""Arithmetic: sums, products, quotients and remainders, one op or a few for each pair of elements.

Operands meet as operand_meeting.py says; true division gives floats. NaN is kept wherever NumPy
keeps it, so that a diverging computation is seen.
"""

from __future__ import annotations

from typing import Any, Self

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import DTypeError
from tilegrad.base.origin import composed
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.calls.templates import elementwise, templated
from tilegrad.tensor.elementwise.comparison import Comparison
from tilegrad.tensor.handle.core import Operand, cast_node, compute

__all__ = ["Arithmetic"]


class Arithmetic(Comparison):
    """Arithmetic methods and Python's operators."""

    __slots__ = ()

    # sums and products

    @elementwise
    def add(self, other: Operand, *, alpha: Any = 1) -> Self:
        """Add `other`, times `alpha`: self + alpha * other.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.
            alpha: factor of `other`, a number.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([1, 2]).add(10).tolist()
        [11, 12]
        """
        if alpha != 1:
            return self._wide_with(lambda x, y: x + x._times_alpha("add", y, alpha), other)
        return self._binary("add", Ops.ADD, other)

    @elementwise
    def sub(self, other: Operand, *, alpha: Any = 1) -> Self:
        """Subtract `other`, times `alpha`: self - alpha * other.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.
            alpha: factor of `other`, a number.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote; two bools
        give int32.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([1, 2]).sub(10).tolist()
        [-9, -8]
        """
        if alpha != 1:
            return self._wide_with(lambda x, y: x - x._times_alpha("sub", y, alpha), other)
        return self._subtract(other)

    def _times_alpha(self, name: str, other: Operand, alpha: Any) -> Operand:
        scaled: Any = self._operand(name, other)
        if scaled.dtype is dtypes.bool and isinstance(alpha, int) and not self.dtype.is_float:
            # The dtype is that of the operands, whatever the factor's.
            if self.dtype is dtypes.bool:
                return scaled & bool(alpha)
            scaled = scaled.cast(self.dtype)
        return scaled * alpha

    def _subtract(self, other: Operand, *, swap: bool = False) -> Self:
        if self._would_round(other):
            return self._wide_with(lambda x: x._subtract(other, swap=swap))
        left, right, others = self._sides("sub", other)
        if left.dtype is dtypes.bool:
            left, right = cast_node(left, dtypes.default_int), cast_node(right, dtypes.default_int)
        if swap:
            left, right = right, left
        if right.op is Ops.CONST:
            right = UOp.const(right.dtype, -right.arg)
        else:
            right = compute(Ops.MUL, right.dtype, (right, UOp.const(right.dtype, -1)))
        return self._joined(compute(Ops.ADD, left.dtype, (left, right)), *others)

    @elementwise
    def mul(self, other: Operand) -> Self:
        """Multiply by `other`.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([1, 2]).mul(10).tolist()
        [10, 20]
        """
        return self._binary("mul", Ops.MUL, other)

    @templated
    def neg(self) -> Self:
        """Negate: -self. Unsigned integers wrap around, a bool is inverted.

        Returns a tensor of this shape and dtype.

        >>> Tensor([1, -2]).neg().tolist()
        [-1, 2]
        """
        return self.logical_not() if self.dtype is dtypes.bool else self._unary(Ops.MUL, -1)

    # quotients and remainders

    @templated
    def div(self, other: Operand, rounding_mode: str | None = None) -> Self:
        """Divide by `other`, as floats or rounded to a whole quotient.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.
            rounding_mode: None for the quotient itself, "trunc" to round it toward zero, "floor" to
                round it down.

        Returns a tensor of the broadcast shape: without rounding in the promoted dtype, or the
        default float (float32) if that is no float; with rounding in the promoted dtype.

        Raises DTypeError for another `rounding_mode`, ShapeError unless the shapes broadcast.

        >>> Tensor([7, -7]).div(2, rounding_mode="trunc").tolist()
        [3, -3]
        """
        if rounding_mode == "floor":
            return self._floor_divide(other)
        if rounding_mode == "trunc":
            return self._divide_toward_zero(other)
        if rounding_mode is not None:
            raise DTypeError(
                f"div: unknown rounding_mode {rounding_mode!r}", allowed="None, 'trunc', 'floor'"
            )
        return self._true_divide(other)

    def _true_divide(self, other: Operand, *, swap: bool = False) -> Self:
        x = self
        if not self.dtype.is_float:
            # Beside floats integers take their dtype, beside others the default float.
            is_beside = not isinstance(other, (int, float)) and other.dtype.is_float
            x = self.cast(other.dtype) if is_beside else self._floating()
        return x._binary("div", Ops.FDIV, other, swap=swap)

    @composed
    def _divide_toward_zero(self, other: Operand) -> Self:
        if self._would_round(other):
            return self._wide_with(lambda x: x._divide_toward_zero(other))
        left, right = self._pair("div", other)
        if left.dtype.is_float:
            return left._true_divide(right).trunc()
        quotient = left // right
        is_rounded_down = (quotient < 0) & (quotient * right).ne(left)
        return quotient + is_rounded_down.cast(quotient.dtype)

    @templated
    def trunc(self) -> Self:
        """Round toward zero.

        Returns a tensor of this shape and dtype.

        >>> Tensor([1.7, -1.7]).trunc().tolist()
        [1.0, -1.0]
        """
        return self._unary(Ops.TRUNC) if self.dtype.is_float else self

    @templated
    def floor(self) -> Self:
        """Round down, toward minus infinity.

        Returns a tensor of this shape and dtype.

        >>> Tensor([1.2, -1.2]).floor().tolist()
        [1.0, -2.0]
        """
        if not self.dtype.is_float:
            return self._copy_of(self)
        whole = self.trunc()
        return whole - (self < whole).cast(self.dtype)

    @composed
    def _floor_divide(self, other: Operand, *, swap: bool = False) -> Self:
        if self._would_round(other):
            return self._wide_with(lambda x: x._floor_divide(other, swap=swap))
        left, right = self._pair("floordiv", other, swap=swap)
        if left.dtype.is_float:
            # A step: its derivative is 0 wherever it has one.
            sides: list[Any] = [left, right]
            whole: Self = sides[0]._whole_quotient(sides[1]).trunc()
            return whole
        return left._binary("floordiv", Ops.FLOORDIV, right)

    @composed
    def _floor_modulo(self, other: Operand, *, swap: bool = False) -> Self:
        if self._would_round(other):
            return self._wide_with(lambda x: x._floor_modulo(other, swap=swap))
        left, right = self._pair("mod", other, swap=swap)
        if left.dtype.is_float:
            rest: Any = left._binary("mod", Ops.FMOD, right)
            is_below: Any = right < 0
            # A remainder of 0 has the divisor's sign, too, and the derivatives of the others.
            zero = is_below.where(rest.const_like(-0.0), 0.0) - (rest.detach() - rest)
            found: Self = rest.eq(0).where(zero, (rest < 0).ne(is_below).where(rest + right, rest))
            return found
        return left._binary("mod", Ops.FLOORMOD, right)

    def _whole_quotient(self, right: Self) -> Self:
        """The float quotient rounded down, by way of the exact remainder: a rounded quotient may
        reach the next whole number.
        """
        sides: list[Any] = [self, right]
        left, divisor = (side._wide() for side in sides)
        rest = left._binary("floordiv", Ops.FMOD, divisor)
        quotient = left._true_divide(divisor)
        nearest = (left - rest)._true_divide(divisor)
        is_below = rest.ne(0) & (rest < 0).ne(divisor < 0)
        whole = (nearest - is_below.cast(nearest.dtype)).round()
        # From here on every float is whole, and the quotient is rounded but once.
        limit = 2.0**53 if quotient.dtype is dtypes.float64 else 2.0**24
        whole = ((quotient < limit) & (quotient > -limit)).where(whole, quotient)
        # An infinite number has no remainder, and no quotient.
        whole = (rest.ne(rest) & divisor.ne(0)).where(rest, whole)
        # A zero has the quotient's sign; by zero there is no remainder.
        whole = whole.eq(0).where(quotient * 0.0, whole)
        found: Self = divisor.eq(0).where(quotient, whole).cast(self.dtype)
        return found

    def _pair(self, name: str, other: Operand, *, swap: bool = False) -> tuple[Self, Self]:
        """This tensor and `other` as tensors of one dtype, not bool; exchanged if asked."""
        other = self._operand(name, other)
        left, right = self._meet(name, other)
        if left.dtype is dtypes.bool:
            left, right = left.cast(dtypes.default_int), right.cast(dtypes.default_int)
        pair = self._joined(left, other), self._joined(right, other)
        return (pair[1], pair[0]) if swap else pair

    @templated
    def mod(self, other: Operand) -> Self:
        """Remainder of floor division, exact, with the sign of `other`. It is NaN for an infinite
        number and for a divisor of zero; with integers a divisor of zero gives 0.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote; two bools
        give int32.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([7, -7]).mod(3).tolist()
        [1, 2]
        """
        return self._floor_modulo(other)

    def fmod(self, other: Operand) -> Self:
        """Remainder of division rounded toward zero, exact, with the sign of this tensor. It is NaN
        for an infinite number and for a divisor of zero.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote; two bools
        give int32.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([7, -7]).fmod(3).tolist()
        [1, -1]
        """
        if self._would_round(other):
            return self._wide_with(lambda x: x.fmod(other))
        left, right = self._pair("fmod", other)
        if left.dtype.is_float:
            return left._binary("fmod", Ops.FMOD, right)
        return left - left._divide_toward_zero(right) * right

    @templated
    def floor_divide(self, other: Operand) -> Self:
        """Divide and round down: self // other. With integers a divisor of zero gives 0.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote; two bools
        give int32.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([7, -7]).floor_divide(2).tolist()
        [3, -4]
        """
        return self._floor_divide(other)

    # Python's operators

    @elementwise
    def __add__(self, other: Operand) -> Self:
        return self._binary("add", Ops.ADD, other)

    @elementwise
    def __radd__(self, other: Operand) -> Self:
        return self._binary("add", Ops.ADD, other, swap=True)

    @elementwise
    def __sub__(self, other: Operand) -> Self:
        return self.sub(other)

    @elementwise
    def __rsub__(self, other: Operand) -> Self:
        return self._subtract(other, swap=True)

    @elementwise
    def __mul__(self, other: Operand) -> Self:
        return self._binary("mul", Ops.MUL, other)

    @elementwise
    def __rmul__(self, other: Operand) -> Self:
        return self._binary("mul", Ops.MUL, other, swap=True)

    @elementwise
    def __truediv__(self, other: Operand) -> Self:
        return self._true_divide(other)

    @elementwise
    def __rtruediv__(self, other: Operand) -> Self:
        return self._true_divide(other, swap=True)

    @templated
    def __floordiv__(self, other: Operand) -> Self:
        return self._floor_divide(other)

    def __rfloordiv__(self, other: Operand) -> Self:
        return self._floor_divide(other, swap=True)

    @templated
    def __mod__(self, other: Operand) -> Self:
        return self._floor_modulo(other)

    def __rmod__(self, other: Operand) -> Self:
        return self._floor_modulo(other, swap=True)

    @templated
    def __neg__(self) -> Self:
        return self.neg()

    def __pos__(self) -> Self:
        return self
