"""Special functions: angles, the normal distribution, gamma, and logarithms with exceptions.

Where a function has no closed form the source of its approximation stands beside it. Functions in
which float32 would lose digits to cancellation are computed in float64 where the device has it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self

from tilegrad.base.dtype import dtypes
from tilegrad.base.origin import composed
from tilegrad.device.registry import Device
from tilegrad.tensor.calls.templates import elementwise, templated
from tilegrad.tensor.composed.bernoulli import DIGAMMA, STIRLING, STIRLING_FROM
from tilegrad.tensor.composed.pointwise import Pointwise
from tilegrad.tensor.handle.size_arguments import as_number

__all__ = ["Special"]

# M. Giles, Approximating the erfinv function, GPU Computing Gems Jade, 2011, table 5: polynomials
# in w - 2.5 for w = -log(1 - x^2) below 5, and in sqrt(w) - 3 beyond, from the constant on.
_ERFINV_INNER = (
    1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087, -4.39150654e-06,
    -3.5233877e-06, 3.43273939e-07, 2.81022636e-08,
)  # fmt: skip
_ERFINV_OUTER = (
    2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773, -0.00367342844,
    0.00134934322, 0.000100950558, -0.000200214257,
)  # fmt: skip
# log(gamma(2 + z)) / z, from the constant on: 1 - Euler's constant, and (zeta(k) - 1) / k with
# alternating signs (NIST DLMF 5.7.3).
_LGAMMA_AT_2 = (
    0.42278433509846713,
    0.3224670334241132, -0.0673523010531981, 0.020580808427784546, -0.007385551028673986,
    0.0028905103307415234, -0.001192753911703261, 0.0005096695247430425,
    -0.00022315475845357939, 9.945751278180853e-05, -4.492623673813314e-05,
    2.050721277567069e-05, -9.439488275268397e-06, 4.374866789907488e-06,
    -2.039215753801366e-06, 9.55141213040742e-07, -4.492469198764566e-07,
    2.1207184805554665e-07, -1.0043224823968099e-07, 4.7698101693639804e-08,
    -2.2711094608943164e-08, 1.0838659214896955e-08, -5.183475041970047e-09,
    2.4836745438024785e-09, -1.1921401405860912e-09, 5.731367241678862e-10,
    -2.7595228851242334e-10, 1.330476437424449e-10, -6.4229645638381e-11,
)  # fmt: skip
# sin(pi x) / (pi x) in x^2.
_SINC = tuple((-1) ** k * math.pi ** (2 * k) / math.factorial(2 * k + 1) for k in range(9))
# Where digamma is 0, as the nearest number and what that lacks; and digamma over the distance from
# there (its derivatives there over the factorials).
_DIGAMMA_ROOT = (1.4616321449683622, 9.549995429965697e-17)
_DIGAMMA_AT_ROOT = (
    0.9676722454476212, -0.4427631689835921, 0.258499760955651, -0.16394270544240652,
    0.10782405069126237, -0.07219956125645471, 0.04880428816414311, -0.03316112647484736,
    0.022597648232218104, -0.01542476590494896, 0.010538791616612175, -0.007204534386356869,
    0.004926781395729853, -0.003369801655439328, 0.002305126326734928, -0.0015769367714301972,
    0.0010788252019162967, -0.0007380709389960052, 0.000504953265834602, -0.0003454680251063077,
    0.00023635601564027053, -0.00016170622091974803, 0.0001106337276874741,
    -7.569179582195066e-05, 5.178575795222081e-05, -3.5430070947659604e-05,
)  # fmt: skip


class Special(Pointwise):
    """Special functions under PyTorch's names."""

    __slots__ = ()

    # angles

    @elementwise
    @composed
    def atan2(self, other: Any) -> Self:
        """Angle of the point (other, self) in radians, -pi..pi, in its quadrant.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote, or the
        default float (float32) if that is no float.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([1.0, -1.0]).atan2(Tensor([-1.0, -1.0])).tolist()
        [2.356194496154785, -2.356194496154785]
        """
        y, x = self._same_dtype("atan2", other)

        def function(y: Self) -> Self:
            z = x.cast(y.dtype)
            # Not `abs`: its derivative at 0 is 0.
            size, other = y.signbit().where(-y, y), z.signbit().where(-z, z)
            # The quotient of the smaller by the larger is at most 1.
            is_steep = size > other
            larger = is_steep.where(size, other)
            smaller = is_steep.where(other, size)
            is_origin = larger.eq(0)
            both = smaller.isinf()
            ratio = is_origin.where(0.0, smaller) / is_origin.where(1.0, larger)
            ratio = both.where(1.0, ratio)
            angle = ratio.atan()
            angle = is_steep.where(math.pi / 2 - angle, angle)
            angle = z.signbit().where(math.pi - angle, angle)
            angle = y.signbit().where(-angle, angle)
            return (y.isnan() | z.isnan()).where(math.nan, angle)

        return y._floating()._in_float(function)

    @elementwise
    @composed
    def hypot(self, other: Any) -> Self:
        """Length of the hypotenuse: sqrt(self^2 + other^2), without overflow.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote, or the
        default float (float32) if that is no float.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([3.0]).hypot(4.0).tolist()
        [5.0]
        """
        left, right = self._same_dtype("hypot", other)

        def function(x: Self) -> Self:
            y = right.cast(x.dtype)
            a, b = (x < 0).where(-x, x), (y < 0).where(-y, y)
            # One of two equal sides is the larger: halves of both have no second derivative.
            is_first = (a >= b) | a.isnan()
            larger, smaller = is_first.where(a, b), is_first.where(b, a)
            is_plain = (larger > 0) & larger.isfinite()
            ratio = is_plain.where(smaller, 0.0) / is_plain.where(larger, 1.0)
            # The derivative is 0 where both are 0, and NaN where one is.
            is_nan = larger.ne(larger)
            other_side = is_nan.where(is_nan.where(larger, 0.0).square(), larger.detach().abs())
            found = is_plain.where(larger * (ratio.square() + 1).sqrt(), other_side)
            # An infinite side is longer than any other: NaN stands for some number.
            return (a.isinf() | b.isinf()).where(math.inf, found)

        return left._floating()._in_float(function)

    def deg2rad(self) -> Self:
        """Convert degrees to radians.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([0.0]).deg2rad().tolist()
        [0.0]
        """
        return self._in_float(lambda x: x * (math.pi / 180))

    def rad2deg(self) -> Self:
        """Convert radians to degrees.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([0.0]).rad2deg().tolist()
        [0.0]
        """
        return self._in_float(lambda x: x * (180 / math.pi))

    @templated
    @composed
    def sinc(self) -> Self:
        """Normalised sinc: sin(pi x) / (pi x), and 1 at 0.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([0.0, 0.5]).double().sinc().tolist()
        [1.0, 0.6366197723675814]
        """

        def function(x: Self) -> Self:
            # The sine is taken of the distance to an integer, which is exact: pi times x is
            # rounded, and so would be all of the sine near a zero.
            whole = x.round()
            sign = 1 - 2 * (whole - 2 * (whole / 2).floor())
            sine = ((x - whole) * math.pi).sin() * sign
            # Near 0 the derivative of the quotient is a difference of nearly equal numbers.
            is_near = (x < 0.25) & (x > -0.25)
            near = is_near.where(x, 0.0).square()._powers(_SINC)
            return is_near.where(near, sine / (is_near.where(1.0, x) * math.pi))

        return self._floating()._in_float(function)

    # the normal distribution

    @templated
    @composed
    def erfc(self) -> Self:
        """Complementary error function: 1 - erf(self), accurate where that is nearly 0.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> f"{Tensor(10.0).double().erfc().item():.6e}"
        '2.088488e-45'
        """

        def function(x: Self) -> Self:
            size = x.abs()
            is_small = size <= 0.5
            tail = is_small.where(0.5, size)._erfc_tail()
            outside = (x < 0).where(2 - tail, tail)
            return is_small.where(1 - is_small.where(x, 0.0).erf(), outside)

        return self._wide_single(function)

    @templated
    @composed
    def erfinv(self) -> Self:
        """Inverse of `erf` on -1..1; infinite at the ends, NaN outside.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([0.0, 1.0]).erfinv().tolist()
        [0.0, inf]
        """

        # The polynomials give what float32 holds, but for three units in the last place.
        steps = 4 if self.dtype is dtypes.float64 else 1

        def function(x: Self) -> Self:
            is_inside = x.abs() < 1
            inside = is_inside.where(x, 0.0)
            w = -((1 - inside) * (1 + inside)).log()
            is_near = w < 5
            inner = (is_near.where(w, 2.5) - 2.5)._powers(_ERFINV_INNER)
            outer = (is_near.where(9.0, w).sqrt() - 3)._powers(_ERFINV_OUTER)
            guess = is_near.where(inner, outer) * inside
            for _ in range(steps if x.dtype is dtypes.float64 else 0):
                slope = (guess.square()).exp() * (math.sqrt(math.pi) / 2)
                # The compared value is small: the value itself, or the logarithm of its distance to
                # 1 or -1, which is nearly a parabola: Newton's steps lead there from afar.
                tail = guess.abs().erfc()
                lacking = tail * ((1 - inside.abs()) / tail).log()
                outside = (inside < 0).where(-lacking, lacking)
                rest = (inside.abs() < 0.5).where(guess.erf() - inside, outside)
                guess = guess - rest * slope
            # At an end the logarithm of 0, whose derivative is infinite.
            size = (x < 0).where(-x, x)
            is_end = size.eq(1)
            end = is_end.where(1 - size, 1.0).log()
            # Elsewhere there is neither a value nor a derivative.
            nothing = (is_inside | is_end).where(1.0, x) * math.nan
            edge = is_end.where((x < 0).where(end, -end), nothing)
            return is_inside.where(guess, edge)

        return self._wide_single(function)

    def _wide_single(self, function: Callable[[Self], Self]) -> Self:
        """`function` of floats in float64, if the device has it."""
        x = self._floating()
        if x.dtype is not dtypes.float64 and Device.target(x.device).supports(dtypes.float64):
            return function(x.double()).cast(x.dtype)
        return x._in_float(function)

    # the gamma function

    @templated
    @composed
    def lgamma(self) -> Self:
        """Logarithm of the magnitude of the gamma function: log(|gamma(self)|); inf at 0 and the
        negative integers.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> round(Tensor([5.0]).lgamma().exp().item(), 3)
        24.0
        """

        def above(x: Self) -> Self:
            is_small = x < STIRLING_FROM
            shifted = is_small.where(x, 2.0)
            product = x.const_like(1.0)
            for _ in range(STIRLING_FROM - 2):
                steps = shifted > 2.5
                shifted = steps.where(shifted - 1, shifted)
                product = steps.where(product * shifted, product)
            # Below 3/2 around 1: gamma(1 + z) = gamma(2 + z) / (1 + z).
            is_below = shifted < 1.5
            z = shifted - is_below.where(1.0, 2.0)
            near = z * z._powers(_LGAMMA_AT_2) - is_below.where(z, 0.0).log1p()
            far = is_small.where(float(STIRLING_FROM), x)
            inverse = far.reciprocal()
            series = inverse * inverse.square()._powers(STIRLING)
            value = (far - 0.5) * far.log() - far + 0.5 * math.log(2 * math.pi)
            return is_small.where(near + product.log(), value + series)

        def usual(x: Self) -> Self:
            is_low = x < 0.5
            right = above(is_low.where(1 - x, x))
            # Only the distance of a large angle to the next integer counts.
            angle = is_low.where(x - x.round(), 0.5)
            reflected = math.log(math.pi) - (angle * math.pi).sin().abs().log() - right
            return is_low.where(reflected, right)

        def function(x: Self) -> Self:
            # Beside 0 nothing but the pole counts: gamma(x) is 1 / x.
            size = x.signbit().where(-x, x)
            is_tiny = size < (2.0**-50 if x.dtype is dtypes.float64 else 2.0**-24)
            near_zero = -is_tiny.where(size, 1.0).log()
            distance = x - x.round()
            is_pole = (x < 0) & distance.eq(0) & ~is_tiny
            # The derivative is infinite at infinity, and NaN at a pole, which has two sides.
            pole = is_pole.where(distance, 1.0).square().log() * -0.5
            is_infinite = x.isinf()
            far = is_infinite.where(x, 1.0).square()
            found = usual((is_tiny | is_pole | is_infinite).where(1.5, x))
            return is_infinite.where(far, is_pole.where(pole, is_tiny.where(near_zero, found)))

        return self._wide_single(function)

    @templated
    @composed
    def digamma(self) -> Self:
        """Derivative of `lgamma`; NaN at the negative integers, -inf at 0, inf at -0.0.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> round(Tensor([1.0]).digamma().item(), 5)
        -0.57722
        """

        def above(x: Self) -> Self:
            total, shifted = x.const_like(0.0), x
            for _ in range(STIRLING_FROM):
                steps = shifted < STIRLING_FROM
                total = steps.where(total - steps.where(shifted, 1.0).reciprocal(), total)
                shifted = steps.where(shifted + 1, shifted)
            inverse = shifted.square().reciprocal()
            series = inverse * inverse._powers(DIGAMMA)
            wide = total + shifted.log() - shifted.reciprocal() * 0.5 - series
            root, rest = _DIGAMMA_ROOT
            distance = x - root
            is_near = distance.abs() < 0.3
            distance = is_near.where(distance, 0.0) - rest
            return is_near.where(distance * distance._powers(_DIGAMMA_AT_ROOT), wide)

        def function(x: Self) -> Self:
            is_infinite = x.eq(math.inf)
            return is_infinite.where(x.log(), finite(is_infinite.where(1.5, x)))

        def finite(x: Self) -> Self:
            is_low = x < 0.5
            right = above(is_low.where(1 - x, x))
            distance = x - x.round()
            angle = (is_low & distance.ne(0)).where(distance, 0.25) * math.pi
            reflected = right - (angle.cos() / angle.sin()) * math.pi
            is_zero = x.eq(0)
            pole = is_zero.where(-is_zero.where(x, 1.0).reciprocal(), math.nan)
            return is_low.where(distance.eq(0).where(pole, reflected), right)

        return self._wide_single(function)

    # limits and exceptions

    @templated
    @composed
    def logit(self, eps: float | None = None) -> Self:
        """Inverse of `sigmoid`: log(self / (1 - self)).

        Args:
            eps: limit the values to eps..1 - eps first.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([0.5, 1.0]).logit().tolist()
        [0.0, inf]
        """

        least = None if eps is None else as_number("logit", "eps", eps)

        def function(x: Self) -> Self:
            inside = x if least is None else x.clip(least, 1 - least)
            # At the ends one logarithm alone: infinity times 0 would be their derivative.
            is_low, is_high = inside.eq(0), inside.eq(1)
            middle = (is_low | is_high).where(0.5, inside)
            low, high = is_low.where(inside, 1.0).log(), is_high.where(1 - inside, 1.0).log()
            # Around 1/2 the quotient is nearly 1: what it is beyond 1 is exact but for one step.
            is_near = (middle > 0.25) & (middle < 0.75)
            near = is_near.where(middle, 0.5)
            near = ((near * 2 - 1) / (1 - near)).log1p()
            far = is_near.where(0.25, middle)
            inner = is_near.where(near, (far / (1 - far)).log())
            return is_low.where(low, is_high.where(-high, inner))

        return self._floating()._in_float(function)

    @elementwise
    @composed
    def xlogy(self, other: Any) -> Self:
        """self * log(other), and 0 where self is 0, unless `other` is NaN.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote, or the
        default float (float32) if that is no float.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([0.0, 2.0]).xlogy(Tensor([0.0, 1.0])).tolist()
        [0.0, 0.0]
        """
        left, right = self._same_dtype("xlogy", other)
        left, right = left._floating(), right._floating()
        dtype = left.dtype
        left, right = left._wide(), right._wide()
        # Elsewhere 0 times a logarithm is 0, and its gradient the logarithm.
        is_zero = left.eq(0) & ((right <= 0) | right.eq(math.inf))
        return is_zero.where(0.0, left * is_zero.where(1.0, right).log()).cast(dtype)

    def logaddexp2(self, other: Any) -> Self:
        """log2(2^self + 2^other), without overflow.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote, or the
        default float (float32) if that is no float.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([1.0]).double().logaddexp2(Tensor([1.0]).double()).tolist()
        [2.0]
        """
        left, right = self._same_dtype("logaddexp2", other)
        left, right = left._floating(), right._floating()
        ln2 = math.log(2.0)
        sum_of_powers = (left._wide() * ln2).logaddexp(right._wide() * ln2)
        return (sum_of_powers * (1 / ln2)).cast(left.dtype)

    arctan2 = atan2
