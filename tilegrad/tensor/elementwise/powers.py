"""Roots and powers.

A small whole exponent becomes multiplications; other powers of floats go by way of the logarithm,
in float64 where the device has it, else with pairs of numbers (double_word.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self

from tilegrad.base.dtype import dtypes
from tilegrad.base.origin import composed
from tilegrad.device.registry import Device
from tilegrad.ir.op import Ops
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.elementwise.double_word import power
from tilegrad.tensor.elementwise.exponentials import Functions
from tilegrad.tensor.handle.core import Operand

__all__ = ["Powers"]

# Integer exponents up to this are multiplications.
_MOST_MULTIPLICATIONS = 64


class Powers(Functions):
    """Roots, and powers with numbers or tensors as exponents."""

    __slots__ = ()

    @templated
    def sqrt(self) -> Self:
        """Square root; NaN below 0.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([4.0, 9.0]).sqrt().tolist()
        [2.0, 3.0]
        """
        return self._in_float(lambda x: x._unary(Ops.SQRT))

    def _root_of_sum(self) -> Self:
        """The square root of a sum of magnitudes. Its derivative at 0, where all of them are 0, is
        0: the chain rule would give infinity times 0.
        """
        is_zero = self.eq(0)
        return is_zero.where(0.0, is_zero.where(1.0, self).sqrt())

    def _power_of_sum(self, exponent: float) -> Self:
        """As `_root_of_sum`, of another power above 0."""
        is_zero = self.eq(0)
        return is_zero.where(0.0, is_zero.where(1.0, self).pow(exponent))

    @templated
    def rsqrt(self) -> Self:
        """Inverse of the square root: 1 / sqrt(self); inf at 0, NaN below.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([4.0]).rsqrt().tolist()
        [0.5]
        """
        return self._in_float(lambda x: x._unary(Ops.SQRT).reciprocal())

    @templated
    @composed
    def pow(self, exponent: Operand) -> Self:
        """Power: self ** exponent. A negative base has a power for whole exponents only, else the
        result is NaN.

        Integers stay integers and wrap around, but for a negative number as exponent. A small whole
        number as exponent becomes multiplications, a half a square root.

        Args:
            exponent: a number, or a tensor that broadcasts with this one.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote; two bools
        give int32.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([2, 3]).pow(3).tolist()
        [8, 27]
        """
        if isinstance(exponent, (int, float)):
            return self._power_of_number(exponent)
        other = self._operand("pow", exponent)
        base, power = self._same_dtype("pow", other)
        if base.dtype is dtypes.bool:
            base, power = base.int(), power.int()
        return base._float_power(power) if base.dtype.is_float else base._integer_power(power)

    def _power_of_number(self, exponent: int | float) -> Self:
        if self.dtype.is_float and self.dtype.itemsize < 4 and exponent not in (0, 1, 2):
            # Several roundings become one, and the exponent is not rounded.
            return self._wide_with(lambda wide: wide._power_of_number(exponent))
        x = self
        if x.dtype.is_int or x.dtype is dtypes.bool:
            if isinstance(exponent, float) or exponent < 0:
                x = x._floating()
            elif x.dtype is dtypes.bool:
                x = x.cast(x._operand("pow", 1).dtype)
        if float(exponent).is_integer() and abs(exponent) <= _MOST_MULTIPLICATIONS:
            if exponent < -1:
                # The derivative at 0 is infinite: infinity times 0 by that of the product.
                is_zero = x.eq(0)
                pole = is_zero.where(x, 1.0).reciprocal()._multiplied(-int(exponent))
                product = is_zero.where(1.0, x)._multiplied(-int(exponent))
                return is_zero.where(pole, product.reciprocal())
            result = x._multiplied(abs(int(exponent)))
            return result.reciprocal() if exponent < 0 else self._copy_of(result)
        roots: dict[float, Callable[[], Self]] = {
            0.5: x.sqrt,
            -0.5: x.rsqrt,
        }
        if exponent in roots:
            return roots[exponent]()
        return (
            x._float_power(x._same_dtype("pow", exponent)[1])
            if x.dtype.is_float
            else x._multiplied(int(exponent))
        )

    def _multiplied(self, exponent: int) -> Self:
        """self ** exponent by squaring."""
        if exponent == 0:
            one = self._like(self._operand("pow", 1).uop).expand(self.shape)._apart()
            # Its gradient is 0, and not missing.
            return self._free_number(False).where(self, one) if self._requires_grad else one
        result: Self | None = None
        square = self
        while exponent:
            if exponent & 1:
                result = square if result is None else result * square
            exponent >>= 1
            if exponent:
                square = square * square
        assert result is not None
        return result

    def _float_power(self, exponent: Self) -> Self:
        """By logarithm: in float64 where self is float32 and the device has that, else with twice
        the digits.
        """
        is_single = self.dtype is dtypes.float32 and exponent.dtype is dtypes.float32
        is_wide = is_single and Device.target(self.device).supports(dtypes.float64)

        def function(x: Self) -> Self:
            y = exponent.cast(x.dtype)
            is_zero = x.eq(0)
            size = is_zero.where(1, x.abs())
            if is_wide:
                magnitude = (y.double() * size.double().log2()).exp2().cast(x.dtype)
            else:
                magnitude = power(size, y)
            is_whole, is_odd = y.trunc().eq(y), (y * 0.5).trunc().ne(y * 0.5)
            is_odd = is_whole & is_odd
            # Odd powers of -0.0 keep its sign.
            zero = is_odd.where(is_zero.where(x, 0.0), 0.0).detach()
            pole = (is_zero & (y < 0)).where(x, 1.0).reciprocal()
            pole = ((pole < 0) & ~is_odd).where(-pole, pole)
            # The derivative at 0 is 1 for the power 1, infinite below that, 0 above.
            zero = y.eq(1).where(x, zero)
            is_steep = is_zero & (y > 0) & (y < 1)
            root = is_steep.where(x, 1.0).sqrt()
            # The derivative of the root, and the value 0.0 of a power of -0.0 too.
            zero = is_steep.where(root - root.detach(), zero)
            at_zero = (y > 0).where(zero, y.eq(0).where(1.0, (y < 0).where(pole, math.nan)))
            # Where there is no power its derivatives are NaN as well.
            has_none = (x < 0) & ~is_whole & ~x.isinf()
            none = has_none.where(x, 0.0) * has_none.where(y, 0.0) * math.nan
            signed = ((x < 0) & is_odd).where(-magnitude, has_none.where(none, magnitude))
            # One to any power, and anything to the power of zero, NaN too; -1 to an infinite one.
            is_one = x.eq(1) | (x.eq(-1) & y.isinf())
            has_no_logarithm = (is_one & ~y.isfinite()) | (y.eq(0) & ~x.isfinite())
            return is_zero.where(at_zero, has_no_logarithm.where(1.0, signed))

        return self._in_float(function)

    def _integer_power(self, exponent: Self) -> Self:
        """By squaring, one step for each bit that an exponent can have."""
        result = (exponent & 1).ne(0).where(self, 1)
        square = self
        for bit in range(1, exponent.dtype.bits - (exponent.dtype.kind == "int")):
            square = square * square
            result = ((exponent >> bit) & 1).ne(0).where(result * square, result)
        if exponent.dtype.kind == "uint":
            return result
        # 1 / self rounded toward zero: only 1 and -1 have a reciprocal that is not 0.
        sign = (exponent & 1).ne(0).where(-1, 1).cast(self.dtype)
        flipped = self.eq(-1).where(sign, self.eq(1).cast(self.dtype))
        return (exponent < 0).where(flipped, result)

    @templated
    def __pow__(self, exponent: Operand) -> Self:
        return self.pow(exponent)

    def __rpow__(self, base: Operand) -> Self:
        other: Any = self._operand("pow", base)
        if isinstance(base, (int, float)) and base == 2 and self.dtype.is_float:
            return self.exp2()
        power: Self = other.pow(self)
        return power
