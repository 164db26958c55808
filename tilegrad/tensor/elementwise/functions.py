"""Functions of each element: exponentials, logarithms, roots, powers, trigonometry, erf.

The machine has exp, exp2, log2, sin, cos and sqrt; the rest is composed. Half, bfloat16 and
integers are computed in float32, and half types get their own dtype back. Every composition keeps
its value and its derivative finite where the function's are: an exponent is limited before it can
overflow, and a branch that is not chosen has a harmless argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Self

from tilegrad.base.dtype import dtypes
from tilegrad.base.origin import composed
from tilegrad.device.registry import Device
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.elementwise.approximation import (
    ATAN,
    ERF_TO_1,
    ERFC_ROOT,
    ERFC_SCALED,
    EXPM1,
    TANH,
    Fit,
)
from tilegrad.tensor.elementwise.elementwise import Elementwise
from tilegrad.tensor.elementwise.power import power, product
from tilegrad.tensor.handle.core import Operand, compute

__all__ = ["Functions"]

LN2 = math.log(2.0)
# erf(x) / x - 1 in x * x, below 1/2 (NIST DLMF 7.6.1).
_ERF_SERIES = [
    2 / math.sqrt(math.pi) * (-1) ** k / (math.factorial(k) * (2 * k + 1)) - (k == 0)
    for k in range(14)
]
# atan(x) / x - 1 in x * x, below tan(pi/8).
_ATAN_SERIES = [0.0, *((-1) ** k / (2 * k + 1) for k in range(1, 22))]
# Integer exponents up to this are written out as multiplications.
_MOST_MULTIPLICATIONS = 64


class Functions(Elementwise):
    """Functions of one element, and `pow`."""

    __slots__ = ()

    @composed
    def _in_float(self, function: Callable[[Self], Self]) -> Self:
        """`function` computed in at least float32; half types keep their dtype, and integers give
        the default float dtype.
        """
        own = self.dtype
        return function(self._wide()).cast(own if own.is_float else dtypes.default_float)

    # exponentials and logarithms

    @templated
    def exp2(self) -> Self:
        """2 to the power of each value.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([3.0]).exp2().tolist()
        [8.0]
        """
        return self._in_float(lambda x: x._unary(Ops.EXP2))

    @templated
    def exp(self) -> Self:
        """Exponential function: e to the power of each value.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([0.0]).exp().tolist()
        [1.0]
        """
        return self._in_float(lambda x: x._unary(Ops.EXP))

    @templated
    def expm1(self) -> Self:
        """exp(self) - 1, accurate near 0.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([0.0]).expm1().tolist()
        [0.0]
        """

        def near(x: Self) -> Self:
            if x.dtype is dtypes.float64:
                return x * x._powers(_inverse_factorials(18))
            return x._times_plus(x._powers(EXPM1), 1.0) * x

        return self._in_float(lambda x: x._near_zero(0.5, near, lambda y: y.exp() - 1))

    @templated
    def log2(self) -> Self:
        """Logarithm to base 2; -inf at 0, NaN below.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([8.0]).log2().tolist()
        [3.0]
        """
        return self._in_float(lambda x: x._unary(Ops.LOG2))

    @templated
    def log(self) -> Self:
        """Natural logarithm; -inf at 0, NaN below.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([1.0]).log().tolist()
        [0.0]
        """
        return self._in_float(lambda x: x._unary(Ops.LOG2) * LN2)

    @templated
    def log10(self) -> Self:
        """Logarithm to base 10; -inf at 0, NaN below.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([100.0]).log10().tolist()
        [2.0]
        """
        return self._in_float(lambda x: x._unary(Ops.LOG2) * math.log10(2.0))

    @templated
    def log1p(self) -> Self:
        """log(1 + self), accurate near 0; NaN below -1.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([0.0]).log1p().tolist()
        [0.0]
        """

        def function(x: Self) -> Self:
            # What rounding took from 1 + x comes back, to first order.
            u = x + 1
            lost = ((x - (u - 1)) / u).detach()
            # -0.0 stays so, and the second derivative at 0 is -1.
            is_zero = x.eq(0)
            zero = is_zero.where(x, 0.0)
            return is_zero.where(zero * (1 - zero * 0.5), u.log() + lost.isfinite().where(lost, 0))

        return self._in_float(function)

    @templated
    def logaddexp(self, other: Operand) -> Self:
        """log(exp(self) + exp(other)), without overflow.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote, or the
        default float (float32) if that is no float.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([1000.0]).logaddexp(0.0).tolist()
        [1000.0]
        """
        left, right = self._same_dtype("logaddexp", other)
        left, right = left._floating(), right._floating()
        dtype = left.dtype
        left, right = left._wide(), right._wide()
        is_left = left >= right
        largest, smallest = is_left.where(left, right), is_left.where(right, left)
        # Of equal infinities the distance would be NaN.
        is_endless = left.eq(right) & left.isinf()
        distance = is_endless.where(0.0, smallest - largest)
        return (largest + distance.exp().log1p()).cast(dtype)

    # roots and powers

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
        is_wide = is_single and Device[self.device].target.supports(dtypes.float64)

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

    # trigonometry

    @templated
    def sin(self) -> Self:
        """Sine of an angle in radians.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([0.0]).sin().tolist()
        [0.0]
        """
        return self._in_float(lambda x: x._unary(Ops.SIN))

    @templated
    def cos(self) -> Self:
        """Cosine of an angle in radians.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([0.0]).cos().tolist()
        [1.0]
        """
        return self._in_float(lambda x: x._unary(Ops.COS))

    @templated
    def tan(self) -> Self:
        """Tangent of an angle in radians.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([0.0]).tan().tolist()
        [0.0]
        """
        return self._in_float(lambda x: x.sin() / x.cos())

    @templated
    def asin(self) -> Self:
        """Arc sine in radians, -pi/2 to pi/2; NaN outside -1..1.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([0.0]).asin().tolist()
        [0.0]
        """

        def function(x: Self) -> Self:
            is_end, end = x._end_of_unit()
            y = is_end.where(0.0, x)
            angle = (y / ((1 - y) * (1 + y)).sqrt()).atan()
            return is_end.where(x.detach().sign() * (math.pi / 2 - end), angle)

        return self._in_float(function)

    def _end_of_unit(self) -> tuple[Self, Self]:
        """Where this is 1 or -1; and there sqrt(1 - |self|): 0, with an infinite derivative."""
        size = self.abs()
        is_end = size.eq(1)
        return is_end, is_end.where(1 - size, 1.0).sqrt()

    @templated
    def acos(self) -> Self:
        """Arc cosine in radians, 0 to pi; NaN outside -1..1.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([1.0]).acos().tolist()
        [0.0]
        """

        def function(x: Self) -> Self:
            is_end, end = x._end_of_unit()
            y = is_end.where(0.0, x)
            angle = ((1 - y) / (1 + y)).sqrt().atan() * 2
            return is_end.where((x > 0).where(end, math.pi - end), angle)

        return self._in_float(function)

    @templated
    def atan(self) -> Self:
        """Arc tangent in radians, -pi/2 to pi/2.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([0.0]).atan().tolist()
        [0.0]
        """

        def function(x: Self) -> Self:
            if x.dtype is dtypes.float64:
                return x._atan_in_eighths()
            is_large = (x > 1) | (x < -1)
            small = is_large.where(is_large.where(x, 1).reciprocal(), x)
            angle = small * small.square()._fitted(ATAN)
            return is_large.where(x.detach().sign() * (math.pi / 2) - angle, angle)

        return self._in_float(function)

    def _atan_in_eighths(self) -> Self:
        """The arc tangent of float64: of what is left beside 0, pi/4 or pi/2, at most pi/8."""
        is_negative = self < 0
        size = is_negative.where(-self, self)
        is_far, is_near = size > 1 + math.sqrt(2), size < math.sqrt(2) - 1
        is_middle = ~(is_far | is_near)
        middle = is_middle.where(size, 1)
        left = is_far.where(is_far.where(-size, -1).reciprocal(), (middle - 1) / (middle + 1))
        left = is_near.where(size, left)
        angle = left._times_plus(left.square()._powers(_ATAN_SERIES), left)
        # pi/2 is a little more than its nearest number.
        offset, rest = (
            self._operand("atan", math.pi / 2),
            self._operand("atan", 6.123233995736766e-17),
        )
        whole = is_near.where(0.0, is_far.where(offset, offset * 0.5))
        rest = is_near.where(0.0, is_far.where(rest, rest * 0.5))
        angle = whole + (angle + rest)
        # -0.0 stays so.
        return self.eq(0).where(self, is_negative.where(-angle, angle))

    @templated
    def sinh(self) -> Self:
        """Hyperbolic sine.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([0.0]).sinh().tolist()
        [0.0]
        """
        series = _inverse_factorials(19)[::2]
        return self._in_float(
            lambda x: x._near_zero(
                1.0,
                lambda y: y * y.square()._powers(series),
                lambda y: y._half_power() - (-y)._half_power(),
            )
        )

    @templated
    def cosh(self) -> Self:
        """Hyperbolic cosine.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([0.0]).cosh().tolist()
        [1.0]
        """
        return self._in_float(lambda x: x._half_power() + (-x)._half_power())

    def _half_power(self) -> Self:
        """exp(self) / 2, without overflow where that is finite: as exp(self - 1) * e / 2, where
        taking 1 away loses nothing.
        """
        is_large = self > 8
        power = (self - is_large.where(1.0, 0.0)).exp()
        return is_large.where(power * (math.e / 2), power * 0.5)

    @templated
    def tanh(self) -> Self:
        """Hyperbolic tangent.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([0.0, 100.0]).tanh().tolist()
        [0.0, 1.0]
        """

        def beyond(x: Self) -> Self:
            # 1 - 2 / (exp(2 |x|) + 1), by a power that cannot overflow.
            is_negative = x < 0
            power = (is_negative.where(x, -x) * 2).exp()
            size = 1 - power * 2 / (power + 1)
            return is_negative.where(-size, size)

        def function(x: Self) -> Self:
            is_double = x.dtype is dtypes.float64
            limit = 0.75 if is_double else 0.625
            is_small = (x < limit) & (x > -limit)
            small = is_small.where(x, 0)
            square = small.square()
            rest = square._powers(TANH.double if is_double else TANH.single)
            return is_small.where(square._times_plus(rest, 1.0) * small, beyond(x))

        return self._in_float(function)

    def asinh(self) -> Self:
        """Inverse of the hyperbolic sine.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([0.0]).asinh().tolist()
        [0.0]
        """

        def below(x: Self) -> Self:
            return (x + x.square() / ((x.square() + 1).sqrt() + 1)).log1p()

        def function(x: Self) -> Self:
            # Not `abs`: its derivative at 0 is 0.
            is_negative = x < 0
            size = is_negative.where(-x, x)._log_of_twice_beyond(below)
            # -0.0 stays so.
            return x.eq(0).where(x, is_negative.where(-size, size))

        return self._in_float(function)

    def acosh(self) -> Self:
        """Inverse of the hyperbolic cosine, accurate near 1; NaN below 1.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([1.0]).acosh().tolist()
        [0.0]
        """

        def below(x: Self) -> Self:
            above = x - 1
            return (above + above.sqrt() * (above + 2).sqrt()).log1p()

        return self._in_float(lambda x: x._log_of_twice_beyond(below))

    def _log_of_twice_beyond(self, function: Callable[[Self], Self]) -> Self:
        """`function`, and log(2 * self) where that is nearer than rounding and a square could
        overflow; neither sees an argument it is not chosen for.
        """
        is_large = self > 2.0**28
        return is_large.where(
            is_large.where(self, 1).log() + LN2, function(is_large.where(1, self))
        )

    def atanh(self) -> Self:
        """Inverse of the hyperbolic tangent; NaN outside -1..1.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([0.0]).atanh().tolist()
        [0.0]
        """

        def function(x: Self) -> Self:
            is_negative = x < 0
            size = is_negative.where(-x, x)
            # At the end the logarithm of 0, whose derivative is infinite.
            is_end = size.eq(1)
            inside = is_end.where(0.0, size)
            end = is_end.where(1 - size, 1.0).log() * -0.5
            result = is_end.where(end, (inside * 2 / (1 - inside)).log1p() * 0.5)
            return is_negative.where(-result, result)

        return self._in_float(function)

    @templated
    def erf(self) -> Self:
        """Error function: 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to each value.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([0.0, 9.0]).erf().tolist()
        [0.0, 1.0]
        """

        def tail_in_single(size: Self) -> Self:
            root = (size > 4).where(4, size)._powers(ERFC_ROOT).reciprocal()
            return root.square().square().square()

        def function(x: Self) -> Self:
            is_negative, is_double = x < 0, x.dtype is dtypes.float64
            size = is_negative.where(-x, x)
            is_small = size < (0.5 if is_double else 1)
            inner = is_small.where(x, 0)
            square = inner.square()
            if is_double:
                near = inner._times_plus(square._powers(_ERF_SERIES), inner)
                far = 1 - is_small.where(1, size)._erfc_tail()
            else:
                near = inner._times_plus(square._powers(ERF_TO_1), inner)
                far = 1 - tail_in_single(size)
            return is_small.where(near, is_negative.where(-far, far))

        return self._in_float(function)

    def _erfc_tail(self) -> Self:
        """1 - erf(self) for 1/2 and above, as exact far out as near."""
        x = (self > 30).where(30, self)
        fraction: Self = (1 - (x + 3.75).reciprocal() * 8.5)._powers(ERFC_SCALED) / (x * 2 + 1)
        # What rounding takes from the square matters: it is an exponent.
        _, rest = product(x.detach(), x.detach())
        power: Self = (-x.square()).exp() * (1 - rest)
        return power * fraction

    def _fitted(self, fit: Fit) -> Self:
        """The polynomial of the fit for this dtype."""
        scale = 2 / (fit.high - fit.low)
        scaled = self * scale - (fit.high + fit.low) / (fit.high - fit.low)
        return scaled._powers(fit.double if self.dtype is dtypes.float64 else fit.single)

    def _powers(self, coefficients: Sequence[float]) -> Self:
        """c0 + c1 * self + c2 * self^2 + ..., by Horner's scheme."""
        wanted = (
            coefficients
            if self.dtype is dtypes.float64
            else [c for c in coefficients if abs(c) > 1e-9 or c == coefficients[0]]
        )
        total = self._like(UOp.const(self.dtype, wanted[-1]))
        for coefficient in wanted[-2::-1]:
            total = total._times_plus(self, coefficient)
        return total

    def _times_plus(self, factor: Self, addend: Self | float) -> Self:
        """self * factor + addend, of one dtype, rounded once where the target can. What a user
        writes as a product and a sum is rounded twice everywhere.
        """
        dtype = self.dtype
        operands = (self, addend) if isinstance(addend, Functions) else (self,)
        last = addend.uop if isinstance(addend, Functions) else UOp.const(dtype, addend)
        node = compute(Ops.MULACC, dtype, (self.uop, factor.uop, last))
        return factor._joined(node, *operands)

    def _near_zero(
        self, limit: float, series: Callable[[Self], Self], otherwise: Callable[[Self], Self]
    ) -> Self:
        """`series` where |self| < limit, else `otherwise`; neither sees an argument it is not
        chosen for.
        """
        is_small = (self < limit) & (self > -limit)
        return is_small.where(
            series(is_small.where(self, 0)), otherwise(is_small.where(limit, self))
        )


def _inverse_factorials(end: int) -> list[float]:
    """1/1!, 1/2!, ..., up to that of `end` - 1."""
    return [1 / math.factorial(n) for n in range(1, end)]
