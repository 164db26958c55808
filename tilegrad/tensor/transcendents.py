"""Tails of the normal distribution, Bessel functions of an imaginary argument, and zeta.

Each table is a fit on Chebyshev points, as those of approximation.py are, of a function that varies
slowly, in an argument scaled to -1..1; beside it stands what it is of. Float32 is computed in
float64 where the device has it. tests/conformance measures the errors against SciPy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

from tilegrad.base.errors import DTypeError
from tilegrad.base.origin import composed
from tilegrad.tensor.core import describe
from tilegrad.tensor.sizes import here
from tilegrad.tensor.special import Special

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
# e^-x I0(x) and e^-x I1(x) / x on 0..8 in x/4 - 1; times the root of x beyond, in 16/x - 1.
_I0E_TO_8 = (
    0.20700192122398714, -0.11300432688621229, 0.09451562853997765, -0.08904344135986489,
    0.08734341617320397, -0.08496338094766834, 0.07927522596662484, -0.06954119510543742,
    0.056777031241511, -0.04298595417576688, 0.03017791811518904, -0.019682627280246563,
    0.011960047081526943, -0.00679250585976684, 0.0036172319985866975, -0.0018116053399722931,
    0.0008560642129245566, -0.00038342194722040373, 0.00016282488058658534,
    -6.484339178831323e-05, 2.4711787996278544e-05, -9.82736348338941e-06,
    3.622488702285944e-06, -7.702604099072251e-07, 1.6187024006215271e-07,
    -2.1178791376724283e-07, 8.956205308564981e-08, 2.6341780319308792e-09,
    -4.214684851089407e-09,
)  # fmt: skip
_I0E_BEYOND = (
    0.4021765094450084, 0.003360551983668117, 0.00013621607437527404, 1.1143033771624974e-05,
    1.4838482322448335e-06, 2.9736027784369734e-07, 8.871171566288508e-08,
    3.9321791184168676e-08, 2.1633481935737626e-08, 7.575431718355542e-09,
    -7.1544567703490566e-09, -1.346860443607568e-08, -4.176053784089877e-09,
    7.645248147205844e-09, 4.997979241292285e-09, -3.5575561271452266e-09,
    -2.7591765446497206e-09, 1.458876655072766e-09, 8.869449786956717e-10,
    -4.456510240361086e-10, -1.3003681593174405e-10, 6.932724410208708e-11,
)  # fmt: skip
_I1E_TO_8 = (
    0.04468770987560905, -0.061124338029671085, 0.06805759990950985, -0.06848260620522031,
    0.06376740371322198, -0.055280039247809894, 0.04467457262768131, -0.03367135518818246,
    0.023686016863954912, -0.01557131228914116, 0.009583962920542463, -0.00553455022687101,
    0.0030057584675469364, -0.001538942725649697, 0.0007445257415688954,
    -0.00034099430477020523, 0.00014839040048402594, -6.176191661224248e-05,
    2.4282458136105542e-05, -8.69773597858588e-06, 3.2415289362242902e-06,
    -1.5212427010751032e-06, 4.1320375153375736e-07, 9.959765400183044e-08,
    2.1534405411034963e-08, -8.459827385673019e-08, 6.5854450798271985e-09,
    9.944022070539069e-09,
)  # fmt: skip
_I1E_BEYOND = (
    0.38939845902587233, -0.009749577193235619, -0.0002192357638210521, -1.5038547209797978e-05,
    -1.834910672271674e-06, -3.4838532649389676e-07, -1.0000408894677219e-07,
    -4.313228280095292e-08, -2.344764899007763e-08, -8.406610525238659e-09,
    7.098053033737614e-09, 1.3947393898925498e-08, 4.841570841487644e-09,
    -7.416021035448784e-09, -5.5762487798582394e-09, 3.0430263204674333e-09,
    3.1171481981486523e-09, -1.019112096075358e-09, -1.0315482332073064e-09,
    2.43063375773505e-10, 1.5717605249118816e-10, -2.9325810121105486e-11,
)  # fmt: skip
# B(2j) / (2j)!, of Bernoulli's numbers from B2 on.
_BERNOULLI = tuple(
    b / math.factorial(2 * j)
    for j, b in enumerate(
        (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510), start=1
    )
)
# Terms of zeta that are added one by one before the rest is estimated.
_TERMS = 10


class Transcendents(Special):
    """More special functions under PyTorch's names."""

    __slots__ = ()

    # the normal distribution

    def _scaled_tail(self) -> Self:
        """exp(x^2) erfc(x) for x >= 0."""
        is_far = self > 1e15
        x = is_far.where(1e15, self)
        place = (x - 3.75) / (x + 3.75)
        near = place._powers(_ERFCX) / (x + 1.875)
        return is_far.where(is_far.where(self, 1.0).reciprocal() / math.sqrt(math.pi), near)

    @composed
    def erfcx(self) -> Self:
        """exp(self^2) * erfc(self), which falls as 1 / self where erfc is 0 already.

        >>> Tensor([0.0, 1000.0]).erfcx().tolist()
        [1.0, 0.0005641892785206437]
        """

        def function(x: Self) -> Self:
            is_negative = x < 0
            tail = is_negative.where(-x, x)._scaled_tail()
            power = is_negative.where(x, 0.0).square().exp()
            return x.isnan().where(x, is_negative.where(power * 2 - tail, tail))

        return self._wide_single(function)

    @composed
    def ndtr(self) -> Self:
        """The share of the standard normal distribution below self.

        >>> Tensor([0.0, -40.0]).ndtr().tolist()
        [0.5, 0.0]
        """
        return self._wide_single(lambda x: (x * -math.sqrt(0.5)).erfc() * 0.5)

    @composed
    def log_ndtr(self) -> Self:
        """log(ndtr(self)), also where ndtr is 0.

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

    @composed
    def entr(self) -> Self:
        """-self * log(self): 0 at 0, -inf below.

        >>> Tensor([0.0, -1.0]).entr().tolist()
        [0.0, -inf]
        """

        def function(x: Self) -> Self:
            is_positive = x > 0
            inside = -x * is_positive.where(x, 1.0).log()
            # Of 0 the root, which is 0 and rises without limit, too.
            is_zero = x.eq(0)
            at_zero = is_zero.where(x, 1.0).sqrt()
            return (x < 0).where(-math.inf, is_zero.where(at_zero, inside))

        return self._floating()._in_float(function)

    @composed
    def xlog1py(self, other: Any) -> Self:
        """self * log(1 + other), and 0 where self is 0, unless `other` is NaN.

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

    def _bessel(self, low: Sequence[float], high: Sequence[float], is_odd: bool) -> Self:
        """e^-x times the function of x, from 0 on."""
        size = self
        is_low = size <= 8
        near, far = is_low.where(size, 0.0), is_low.where(8.0, size)
        below = (near * 0.25 - 1)._powers(low)
        below = below * near if is_odd else below
        above = (far.reciprocal() * 16 - 1)._powers(high) * far.rsqrt()
        return is_low.where(below, above)

    @composed
    def i0e(self) -> Self:
        """exp(-|self|) * i0(self).

        >>> Tensor([0.0]).i0e().tolist()
        [1.0]
        """
        return self._wide_single(lambda x: x.abs()._bessel(_I0E_TO_8, _I0E_BEYOND, False))

    @composed
    def i0(self) -> Self:
        """The modified Bessel function of the first kind, of order 0.

        >>> Tensor([0.0]).i0().tolist()
        [1.0]
        """

        def function(x: Self) -> Self:
            # Not `abs`: there is no kink at 0.
            size = (x < 0).where(-x, x)
            return size._bessel(_I0E_TO_8, _I0E_BEYOND, False) * size.exp()

        return self._wide_single(function)

    @composed
    def i1e(self) -> Self:
        """exp(-|self|) * i1(self).

        >>> Tensor([0.0]).i1e().tolist()
        [0.0]
        """

        def function(x: Self) -> Self:
            is_negative = x < 0
            size = is_negative.where(-x, x)._bessel(_I1E_TO_8, _I1E_BEYOND, True)
            return is_negative.where(-size, size)

        return self._wide_single(function)

    @composed
    def i1(self) -> Self:
        """The modified Bessel function of the first kind, of order 1.

        >>> Tensor([0.0]).i1().tolist()
        [0.0]
        """

        def function(x: Self) -> Self:
            is_negative = x < 0
            size = is_negative.where(-x, x)
            value = size._bessel(_I1E_TO_8, _I1E_BEYOND, True) * size.exp()
            return is_negative.where(-value, value)

        return self._wide_single(function)

    # zeta and the derivatives of digamma

    @composed
    def zeta(self, other: Any) -> Self:
        """Hurwitz's zeta function: the sum of (other + k)^-self over k = 0, 1, ... It is inf for
        self = 1, and NaN below, or for `other` that is not positive.

        By the formula of Euler and Maclaurin (NIST DLMF 25.11.5).

        >>> round(Tensor([2.0]).zeta(1.0).item(), 5)
        1.64493
        """
        left, right = self._same_dtype("zeta", other)

        def function(s: Self) -> Self:
            q = right.cast(s.dtype)
            is_good = (s > 1) & (q > 0)
            s, q = is_good.where(s, 2.0), is_good.where(q, 1.0)
            last = q + _TERMS
            *terms, power = (
                (part.log2() * -s).exp2() for part in (*(q + k for k in range(_TERMS)), last)
            )
            total = terms[0]
            for term in terms[1:]:
                total = total + term
            total = total + power * last / (s - 1) + power * 0.5
            factor = s * power / last
            for j, number in enumerate(_BERNOULLI, start=1):
                total = total + factor * number
                factor = factor * (s + (2 * j - 1)) * (s + 2 * j) / last.square()
            return is_good.where(total, math.nan)

        made = left._wide_single(function)
        return left.eq(1).where(math.inf, made)

    @composed
    def polygamma(self, n: int) -> Self:
        """The derivative of order `n` of `digamma`, for positive numbers if n is not 0.

        Raises DTypeError unless `n` is an integer, 0 or more.

        >>> round(Tensor([1.0]).polygamma(1).item(), 5)
        1.64493
        """
        if not isinstance(n, int) or n < 0:
            raise DTypeError(
                f"polygamma: the order is {n!r}, not an integer from 0 on",
                tensor=describe(self.uop),
                line=here(),
            )
        if n == 0:
            return self.digamma()
        x = self._floating()
        scale = float((-1) ** (n + 1) * math.factorial(n))
        return x._wide_single(lambda y: y.const_like(n + 1.0).zeta(y) * scale)

    @composed
    def mvlgamma(self, p: int) -> Self:
        """The logarithm of the gamma function of `p` dimensions, for numbers above (p - 1) / 2.

        Raises DTypeError unless `p` is an integer, 1 or more.

        >>> round(Tensor([3.0]).mvlgamma(2).item(), 4)
        1.5502
        """
        if not isinstance(p, int) or p < 1:
            raise DTypeError(
                f"mvlgamma: {p!r} dimensions, not an integer from 1 on",
                tensor=describe(self.uop),
                line=here(),
            )
        x = self._floating()
        total = x.lgamma()
        for place in range(1, p):
            total = total + (x - place / 2).lgamma()
        return total + p * (p - 1) / 4 * math.log(math.pi)

    # PyTorch's other names

    expit = Special.sigmoid
    psi = Special.digamma
    gammaln = Special.lgamma
    multigammaln = mvlgamma
    modified_bessel_i0 = i0
    modified_bessel_i1 = i1
