"""Trigonometric and hyperbolic functions, and their inverses."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Self

from tilegrad.base.dtype import dtypes
from tilegrad.ir.op import Ops
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.elementwise.approximation import ATAN
from tilegrad.tensor.elementwise.exponentials import LN2, inverse_factorials
from tilegrad.tensor.elementwise.powers import Powers

__all__ = ["Trigonometry"]
# atan(x) / x - 1 in x * x, below tan(pi/8).
_ATAN_SERIES = [0.0, *((-1) ** k / (2 * k + 1) for k in range(1, 22))]


class Trigonometry(Powers):
    """Functions of angles, and hyperbolic ones."""

    __slots__ = ()

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
        """The arc tangent of float64: of the distance to 0, pi/4 or pi/2, at most pi/8."""
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
        series = inverse_factorials(19)[::2]
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
        return self._in_float(lambda x: x._unary(Ops.TANH))

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
