"""Tails of the normal distribution, Bessel functions of an imaginary argument, and zeta.

Each table is a fit on Chebyshev points, as those of elementwise/approximation.py are, of a function
that varies slowly, in an argument scaled to -1..1; beside it stands what it is of. Float32 is
computed in float64 where the device has it. tests/conformance measures the errors against SciPy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import DTypeError
from tilegrad.base.origin import composed
from tilegrad.tensor.calls.templates import elementwise, templated
from tilegrad.tensor.composed.bernoulli import OVER_FACTORIALS
from tilegrad.tensor.composed.special_functions import Special
from tilegrad.tensor.elementwise.double_word import product
from tilegrad.tensor.handle.core import describe

__all__ = ["Transcendents"]

# erfcx(x) (x + 15/8) on 0..inf, in (x - 15/4) / (x + 15/4) (Schonfelder, Chebyshev Expansions for
# the Error and Related Functions, 1978, has that argument).
_ERFCX = (
    0.8189421821720917, -0.4460754550989898, 0.3125537997531175, -0.18377298709991213,
    0.08667896397292751, -0.029201038635879854, 0.003850233669827026, 0.0028777847451390394,
    -0.0023942164622056967, 0.0008427010562218624, -6.277930662564523e-05,
    -7.921312954270232e-05, 3.0751976444369836e-05, 2.6822011117135658e-06,
    -4.692069889401718e-06, 4.324983009420532e-07, 6.219239586363394e-07,
    -1.416898381736828e-07, -8.375039780270234e-08, 3.294266003604182e-08,
    1.0816593543616165e-08, -6.879732156831973e-09, -9.219623111758076e-10,
    8.643396667273196e-10,
)  # fmt: skip
# I0(x) and 2 I1(x) / x as series in x^2 / 4, used on 0..8 (NIST DLMF 10.25.2): all terms are
# positive, so that nothing cancels.
_I0_SERIES = tuple(1 / math.factorial(k) ** 2 for k in range(28))
_I1_SERIES = tuple(1 / (math.factorial(k) * math.factorial(k + 1)) for k in range(28))
# e^-x I0(x) and e^-x I1(x) times the root of x beyond 8: coefficients of Chebyshev's polynomials
# of 16/x - 1.
_I0E_BEYOND = (
    0.4022452055070544, 0.0033691164782556943, 6.889758346916825e-05, 2.8913705208347567e-06,
    2.0489185894690638e-07, 2.266668990498178e-08, 3.3962320257083865e-09, 4.94060238822497e-10,
    1.1889147107846439e-11, -3.1499165279632416e-11, -1.3215811840447713e-11,
    -1.7941785315068062e-12, 7.180124451383666e-13, 3.8527783827421426e-13,
    1.54008621752141e-14, -4.150569347287222e-14, -9.554846698828307e-15,
    3.8116806693526224e-15, 1.7725601330565263e-15, -3.425485619677219e-16,
    -2.8276239805165836e-16, 3.461222867697461e-17, 4.46562142029676e-17,
    -4.830504485944178e-18, -7.23318048787476e-18, 9.921475412173676e-19,
)  # fmt: skip
_I1E_BEYOND = (
    0.38928811750914005, -0.009761097491361469, -0.00011058893876262371, -3.882564808877691e-06,
    -2.512236237870209e-07, -2.6314688468895196e-08, -3.835380385964237e-09,
    -5.589743462196584e-10, -1.8974958123505413e-11, 3.2526035830154884e-11,
    1.4125807436613782e-11, 2.0356285441470896e-12, -7.198551776245908e-13,
    -4.0835511110921974e-13, -2.1015418427726643e-14, 4.272440016711951e-14,
    1.0420276984128802e-14, -3.8144030724370075e-15, -1.8803547755107825e-15,
    3.3082023109209285e-16, 2.96262899764595e-16, -3.209525921993424e-17,
    -4.650305368489358e-17, 4.414348323071704e-18, 7.517296310842111e-18,
    -9.314178867326863e-19,
)  # fmt: skip
# I0(x) and I1(x) are infinite from here on.
_HUGE_SINGLE, _HUGE_DOUBLE = 93.0, 720.0
# Terms of zeta that are added one by one before the rest is estimated.
_TERMS = 10


def _cotangent_derivative(order: int) -> list[float]:
    """Coefficients of the polynomial in cot(x) that is this derivative of cot(x): those of even
    powers for an odd order, of odd powers for an even one; the others are 0. The first derivative
    is -1 - cot^2.
    """
    found = [0, 1]
    for _ in range(order):
        inner = [k * each for k, each in enumerate(found)][1:]
        found = [-low - high for low, high in zip([*inner, 0, 0], [0, 0, *inner], strict=True)]
    return [float(each) for each in found[(order + 1) % 2 :: 2]]


class Transcendents(Special):
    """More special functions under PyTorch's names."""

    __slots__ = ()

    # the normal distribution

    def _scaled_tail(self) -> Self:
        """exp(x^2) erfc(x) for x >= 0."""
        is_far = self > 1e3
        x = is_far.where(1e3, self)
        mapped = (x - 3.75) / (x + 3.75)
        near = mapped._powers(_ERFCX) / (x + 1.875)
        # 1 - 1 / (2 x^2) + 3 / (4 x^4) - ... over the root of pi times x (NIST DLMF 7.12.1).
        inverse = is_far.where(self, 1e3).reciprocal()
        square = inverse.square()
        far = (1 - square * (0.5 - square * 0.75)) * inverse * (1 / math.sqrt(math.pi))
        return is_far.where(far, near)

    @templated
    @composed
    def erfcx(self) -> Self:
        """Scaled complementary error function: exp(self^2) * erfc(self), which falls as 1 / self
        where erfc is 0 already.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([0.0, 1000.0]).erfcx().tolist()
        [1.0, 0.0005641892785206437]
        """

        def function(x: Self) -> Self:
            is_negative = x < 0
            tail = is_negative.where(-x, x)._scaled_tail()
            negative = is_negative.where(x, 0.0)
            # The rounding error of the square matters: it is an exponent.
            near = (negative < -30).where(-30.0, negative).detach()
            power = negative.square().exp() * (product(near, near)[1] + 1)
            return x.isnan().where(x, is_negative.where(power * 2 - tail, tail))

        return self._wide_single(function)

    @templated
    @composed
    def ndtr(self) -> Self:
        """Standard normal distribution function: the probability of a value below this one.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([0.0, -40.0]).ndtr().tolist()
        [0.5, 0.0]
        """

        def function(x: Self) -> Self:
            is_low = x < -1
            low, high = is_low.where(x, -1.0), is_low.where(0.0, x)
            # The rounding error of the square matters: it is an exponent.
            far = (low < -40).where(-40.0, low)
            _, rest = product(far.detach(), far.detach())
            power = (far.square() * -0.5).exp() * (1 - rest * 0.5)
            below = (low * -math.sqrt(0.5))._scaled_tail() * power * 0.5
            return is_low.where(below, (high * -math.sqrt(0.5)).erfc() * 0.5)

        return self._wide_single(function)

    @templated
    @composed
    def log_ndtr(self) -> Self:
        """Logarithm of `ndtr`, also where that is 0.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> round(Tensor([-40.0]).log_ndtr().item(), 3)
        -804.608
        """

        def function(x: Self) -> Self:
            is_low = x < -1
            low, high = is_low.where(x, -1.0), is_low.where(0.0, x)
            tail = (low * -math.sqrt(0.5))._scaled_tail()
            below = (tail * 0.5).log() - low.square() * 0.5
            above = ((high * math.sqrt(0.5)).erfc() * -0.5).log1p()
            return is_low.where(below, above)

        return self._wide_single(function)

    # entropies

    @templated
    @composed
    def entr(self) -> Self:
        """Entropy term: -self * log(self); 0 at 0, -inf below.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([0.0, -1.0]).entr().tolist()
        [0.0, -inf]
        """

        def function(x: Self) -> Self:
            is_positive = x > 0
            inside = -x * is_positive.where(x, 1.0).log()
            # The root of 0 is 0 and rises without limit, too.
            is_zero = x.eq(0)
            at_zero = is_zero.where(x, 1.0).sqrt()
            return (x < 0).where(-math.inf, is_zero.where(at_zero, inside))

        return self._floating()._in_float(function)

    @elementwise
    @composed
    def xlog1py(self, other: Any) -> Self:
        """self * log(1 + other), and 0 where self is 0, unless `other` is NaN.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote, or the
        default float (float32) if that is no float.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> Tensor([0.0, 2.0]).xlog1py(Tensor([-1.0, 0.0])).tolist()
        [0.0, 0.0]
        """
        left, right = self._same_dtype("xlog1py", other)
        left, right = left._floating(), right._floating()
        dtype = left.dtype
        left, right = left._wide(), right._wide()
        is_zero = left.eq(0) & ((right <= -1) | right.eq(math.inf))
        return is_zero.where(0.0, left * is_zero.where(1.0, right).log1p()).cast(dtype)

    # Bessel functions

    def _bessel(self, order: int, *, is_scaled: bool) -> Self:
        """The function of order 0 or 1 of x, from 0 on; e^-x times that if `is_scaled`."""
        series, beyond = ((_I0_SERIES, _I0E_BEYOND), (_I1_SERIES, _I1E_BEYOND))[order]
        is_low = self <= 8
        near, far = is_low.where(self, 0.0), is_low.where(8.0, self)
        below = (near.square() * 0.25)._powers(series)
        below = below * (near * 0.5) if order else below
        above = (far.reciprocal() * 16 - 1)._chebyshev(beyond) * far.rsqrt()
        if is_scaled:
            return is_low.where(below * (-near).exp(), above)
        # In two steps: the power alone overflows before the product does.
        is_double = self.dtype is dtypes.float64
        is_huge = self > (_HUGE_DOUBLE if is_double else _HUGE_SINGLE)
        half = (is_huge.where(8.0, far) * 0.5).exp()
        huge = is_huge.where(self, 0.0).exp()
        return is_low.where(below, is_huge.where(huge, above * half * half))

    def _chebyshev(self, coefficients: Sequence[float]) -> Self:
        """The sum of coefficients times Chebyshev's polynomials, by Clenshaw's recurrence."""
        ahead, after = self.const_like(0.0), self.const_like(0.0)
        double = self * 2
        for coefficient in reversed(coefficients[1:]):
            ahead, after = double * ahead - after + coefficient, ahead
        return self * ahead - after + coefficients[0]

    @templated
    @composed
    def i0e(self) -> Self:
        """Exponentially scaled Bessel function: exp(-|self|) * i0(self).

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([0.0]).i0e().tolist()
        [1.0]
        """
        return self._wide_single(lambda x: x.abs()._bessel(0, is_scaled=True))

    @templated
    @composed
    def i0(self) -> Self:
        """Modified Bessel function of the first kind, of order 0.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([0.0]).i0().tolist()
        [1.0]
        """

        def function(x: Self) -> Self:
            # Not `abs`: there is no kink at 0.
            return (x < 0).where(-x, x)._bessel(0, is_scaled=False)

        return self._wide_single(function)

    @templated
    @composed
    def i1e(self) -> Self:
        """Exponentially scaled Bessel function: exp(-|self|) * i1(self).

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([0.0]).i1e().tolist()
        [0.0]
        """

        def function(x: Self) -> Self:
            is_negative = x < 0
            size = is_negative.where(-x, x)._bessel(1, is_scaled=True)
            return is_negative.where(-size, size)

        return self._wide_single(function)

    @templated
    @composed
    def i1(self) -> Self:
        """Modified Bessel function of the first kind, of order 1.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        >>> Tensor([0.0]).i1().tolist()
        [0.0]
        """

        def function(x: Self) -> Self:
            is_negative = x < 0
            value = is_negative.where(-x, x)._bessel(1, is_scaled=False)
            return is_negative.where(-value, value)

        return self._wide_single(function)

    # zeta and the derivatives of digamma

    @elementwise
    @composed
    def zeta(self, other: Any) -> Self:
        """Hurwitz's zeta function: the sum of (other + k)^-self over k = 0, 1, ... It is inf for
        self = 1, and NaN below; inf for `other` that is 0 or a negative integer. For the others
        below 0 it is NaN unless `self` is an integer.

        By the formula of Euler and Maclaurin (NIST DLMF 25.11.5).

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote, or the
        default float (float32) if that is no float.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> round(Tensor([2.0]).zeta(1.0).item(), 5)
        1.64493
        """
        left, right = self._same_dtype("zeta", other)

        def function(s: Self) -> Self:
            q = right.cast(s.dtype)
            is_exact = left.dtype is dtypes.float64
            found = s._sum_of_powers(q.maximum(0.0), is_exact=is_exact)
            # The terms from the integer above q on, and those below it, which are powers of
            # negative numbers.
            is_below = (q < 0) & s.eq(s.trunc()) & s.isfinite()
            to_next = is_below.where(q.trunc() - q, 0.5)
            nearer = s._sum_of_powers(to_next, is_exact=is_exact)
            further = s._sum_of_powers(is_below.where(1 - q, 1.0), is_exact=is_exact)
            is_even = s.eq((s * 0.5).trunc() * 2)
            between = is_even.where(nearer - further, further - nearer)
            below = s._sum_of_powers(1 - to_next, is_exact=is_exact) + between
            return (q < 0).where(is_below.where(below, math.nan), found)

        made = left._wide_single(function)
        # A term of the sum is infinite where `other` is 0 or a negative integer.
        is_pole = (left > 1) & (right <= 0) & right.eq(right.trunc())
        return (left.eq(1) | is_pole).where(math.inf, made)

    def _sum_of_powers(self, q: Self, *, is_exact: bool) -> Self:
        """The sum of (q + k)^-s for a q that is not below 0, and NaN for s up to 1."""
        is_far = (self > 1) & (q.eq(math.inf) | (self.eq(math.inf) & (q > 1)))
        is_steep, is_one = self.eq(math.inf) & (q <= 1), q.eq(1)
        is_good = (self > 1) & (q > 0) & ~is_far & ~is_steep
        s, q = is_good.where(self, 2.0), is_good.where(q, 1.0)
        last = q + _TERMS

        def to_power(base: Self) -> Self:
            # The logarithm of large numbers would lose digits of a large power.
            return base._float_power(-s) if is_exact else (base.log2() * -s).exp2()

        terms = [to_power(q + k) for k in range(_TERMS)]
        power = to_power(last)
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        total = total + power * last / (s - 1) + power * 0.5
        factor = s * power / last
        for j, number in enumerate(OVER_FACTORIALS, start=1):
            total = total + factor * number
            factor = factor * (s + (2 * j - 1)) * (s + 2 * j) / last.square()
        found = is_good.where(total, is_far.where(0.0, math.nan))
        # The first term alone counts to an infinite power.
        return is_steep.where(is_one.where(1.0, math.inf), found)

    @templated
    @composed
    def polygamma(self, n: int) -> Self:
        """Derivative of order `n` of `digamma`. At 0 and the negative integers it is inf for an odd
        `n`, and -inf for an even one that is not 0.

        Args:
            n: the order.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        Raises DTypeError unless `n` is an integer, 0 or more.

        >>> round(Tensor([1.0]).polygamma(1).item(), 5)
        1.64493
        """
        if not isinstance(n, int) or n < 0:
            raise DTypeError(
                f"polygamma: the order is {n!r}, not an integer from 0 on",
                tensor=describe(self.uop),
            )
        if n == 0:
            return self.digamma()
        x = self._floating()
        scale = float((-1) ** (n + 1) * math.factorial(n))

        def function(x: Self) -> Self:
            is_low = x <= 0
            mirrored = is_low.where(1 - x, x)
            order = mirrored.const_like(n + 1.0)
            is_exact = x.dtype is dtypes.float64
            above = order._sum_of_powers(mirrored, is_exact=is_exact) * scale
            # With psi the function: psi(x) = (-1)^n psi(1 - x) - pi * (order n of cot(pi x)).
            distance = x - x.round()
            angle = (is_low & distance.ne(0)).where(distance, 0.25) * math.pi
            cotangent = angle.cos() / angle.sin()
            slope = cotangent.square()._powers(_cotangent_derivative(n)) * math.pi ** (n + 1)
            slope = slope if n % 2 else slope * cotangent
            reflected = above * (-1.0) ** n - slope
            pole = distance.eq(0).where(math.copysign(math.inf, scale), reflected)
            return is_low.where(pole, above)

        return x._wide_single(function)

    @templated
    @composed
    def mvlgamma(self, p: int) -> Self:
        """Logarithm of the multivariate gamma function of `p` dimensions, for numbers above (p - 1)
        / 2.

        Args:
            p: number of dimensions.

        Returns a tensor of this shape; floats keep their dtype, bool and integers give the default
        float (float32).

        Raises DTypeError unless `p` is an integer, 1 or more.

        >>> round(Tensor([3.0]).mvlgamma(2).item(), 4)
        1.5502
        """
        if not isinstance(p, int) or p < 1:
            raise DTypeError(
                f"mvlgamma: {p!r} dimensions, not an integer from 1 on", tensor=describe(self.uop)
            )
        x = self._floating()
        total = x.lgamma()
        for number in range(1, p):
            total = total + (x - number / 2).lgamma()
        return total + p * (p - 1) / 4 * math.log(math.pi)

    # PyTorch's other names

    expit = Special.sigmoid
    psi = Special.digamma
    gammaln = Special.lgamma
    multigammaln = mvlgamma
    modified_bessel_i0 = i0
    modified_bessel_i1 = i1
