"""The incomplete gamma functions, P(a, x) and Q(a, x) = 1 - P(a, x).

Each of three ways has as many terms as float64 needs where it is used: the series of P where x is
below a, the continued fraction of Q above, and for a from 20 on Temme's expansion near x = a, in
which all are uniform in a. The formulas are those of NIST DLMF, chapter 8; the choice of ways is
that of Gil, Segura and Temme, Efficient and accurate algorithms for the computation and inversion
of the incomplete gamma function ratios, SIAM J. Sci. Comput. 34, 2012.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import Any, Self

from tilegrad.base.origin import composed
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.composed.bernoulli import STIRLING, STIRLING_FROM
from tilegrad.tensor.composed.transcendents import Transcendents

__all__ = ["IncompleteGamma"]

# Terms of the series and of the continued fraction: what is left out is below 1e-16 for each a and
# x that they are used for.
_TERMS = 45
# Temme's expansion is used from this a on, up to this distance.
_LEAST, _FURTHEST = 20.0, 0.75
# With w = m / (2 + m), m - log(1 + m) = m w - 2 w^3 (1/3 + w^2/5 + ...), for |m| below 1/2.
_ATANH = tuple(1 / (2 * k + 3) for k in range(13))


@functools.cache
def _temme() -> list[list[float]]:
    """The coefficients of powers of eta in c_k(eta), for k = 0, 1, ...

    By NIST DLMF 8.12.9 to 8.12.11, where 1/mu is a series in eta: mu, with eta^2 / 2 = mu -
    log(1 + mu), solves mu mu' = eta (1 + mu). Terms that do not count are left out.
    """
    inverse = _inverse_of_mu(60)
    row = inverse[1:]
    rows: list[list[float]] = []
    while True:
        scale = _LEAST ** -len(rows)
        sizes = [abs(c) * _FURTHEST**n * scale for n, c in enumerate(row)]
        counting = [n for n, size in enumerate(sizes) if size > 1e-17]
        if not counting:
            return rows
        rows.append([float(c) for c in row[: counting[-1] + 1]])
        # The pole of c'/eta is that of 1/mu, times what must cancel it.
        row = [(n + 2) * row[n + 2] - row[1] * inverse[n + 1] for n in range(len(row) - 2)]


def _inverse_of_mu(count: int) -> list[Fraction]:
    """eta / mu as a series in eta."""
    mu = [Fraction(0), Fraction(1)]
    for n in range(2, count + 2):
        known = sum((mu[i] * (n + 1 - i) * mu[n + 1 - i] for i in range(2, n)), Fraction(0))
        mu.append((mu[n - 1] - known) / (n + 1))
    inverse = [Fraction(1)]
    for n in range(1, count):
        inverse.append(-sum((mu[i + 1] * inverse[n - i] for i in range(1, n + 1)), Fraction(0)))
    return inverse


class IncompleteGamma(Transcendents):
    """The incomplete gamma functions under PyTorch's names."""

    __slots__ = ()

    @templated
    @composed
    def igamma(self, other: Any) -> Self:
        """Regularised lower incomplete gamma function P(self, other): the share of the gamma
        function's integral of t^(self - 1) e^-t that lies between 0 and `other`. NaN where one is
        negative.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote, or the
        default float (float32) if that is no float.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> round(Tensor([2.0]).igamma(1.0).item(), 5)
        0.26424
        """
        return self._incomplete("igamma", other, is_upper=False)

    @templated
    @composed
    def igammac(self, other: Any) -> Self:
        """Regularised upper incomplete gamma function Q(self, other) = 1 - P(self, other), accurate
        where that is nearly 0. NaN where one is negative.

        Args:
            other: a number, or a tensor whose shape broadcasts with this one by the rules of NumPy.

        Returns a tensor of the broadcast shape, in the dtype to which the two promote, or the
        default float (float32) if that is no float.

        Raises ShapeError unless the shapes broadcast, DTypeError for an operand that is neither a
        number nor a tensor, DeviceError for tensors of two devices.

        >>> round(Tensor([2.0]).igammac(1.0).item(), 5)
        0.73576
        """
        return self._incomplete("igammac", other, is_upper=True)

    gammainc, gammaincc = igamma, igammac

    def _incomplete(self, name: str, other: Any, *, is_upper: bool) -> Self:
        left, right = self._same_dtype(name, other)

        def function(a: Self) -> Self:
            x = right.cast(a.dtype)
            is_usual = (a > 0) & (x > 0) & (a < math.inf) & (x < math.inf)
            found = _usual(is_usual.where(a, 1.0), is_usual.where(x, 1.0), is_upper)
            # All of the integral lies below x where a is 0 or x is infinite, and none otherwise.
            is_below = a.eq(0) | x.eq(math.inf)
            is_end = (a >= 0) & (x >= 0) & ~(a.eq(0) & x.eq(0)) & ~(a.isinf() & x.isinf())
            end = is_below.where(0.0, 1.0) if is_upper else is_below.where(1.0, 0.0)
            return is_usual.where(found, is_end.where(end.cast(a.dtype), math.nan))

        return left._wide_single(function)


def _usual(a: Any, x: Any, is_upper: bool) -> Any:
    """Q(a, x) or P(a, x) of positive and finite a and x."""
    far, apart = _apart(a, x)
    is_near = (a >= _LEAST) & (apart < _FURTHEST) & (apart > -_FURTHEST)
    is_above = (x >= a) & (x >= 1.5)
    factor = _factor(a, x, far)
    below = factor * _series((is_near | is_above).where(1.0, a), (is_near | is_above).where(0.5, x))
    is_fraction = is_above & ~is_near
    above = factor * _fraction(is_fraction.where(a, 1.0), is_fraction.where(x, 2.0))
    near = _near(is_near.where(a, _LEAST), is_near.where(apart, 0.0), is_upper)
    plain = is_above.where(above, 1 - below) if is_upper else is_above.where(1 - above, below)
    return is_near.where(near, plain)


def _apart(a: Any, x: Any) -> tuple[Any, Any]:
    """eta^2 / 2 = m - log(1 + m), where 1 + m = x / a, and eta, of the sign of m."""
    m = (x - a) / a
    is_small = (m < 0.5) & (m > -0.5)
    small = is_small.where(m, 0.0)
    w = small / (2 + small)
    # Over m^2, so that the root is a smooth function of m.
    inner = (1 - w.square()._powers(_ATANH) * w * 2 / (2 + small)) / (2 + small)
    wide = is_small.where(1.0, m)
    outer = wide - is_small.where(2.0, x / a).log()
    share = is_small.where(inner, outer / wide.square())
    return is_small.where(small.square() * inner, outer), m * (share * 2).sqrt()


def _factor(a: Any, x: Any, far: Any) -> Any:
    """x^a e^-x / gamma(a + 1)."""
    is_large = a >= STIRLING_FROM
    large = is_large.where(a, STIRLING_FROM)
    inverse = large.reciprocal()
    series = inverse * inverse.square()._powers(STIRLING)
    by_series = (-is_large.where(a * far, 0.0) - series).exp() / (large * (2 * math.pi)).sqrt()
    small, point = is_large.where(1.0, a), is_large.where(1.0, x)
    plain = (small * point.log() - point - (small + 1).lgamma()).exp()
    return is_large.where(by_series, plain)


def _series(a: Any, x: Any) -> Any:
    """1 + x / (a + 1) + x^2 / ((a + 1) (a + 2)) + ... (NIST DLMF 8.11.4)."""
    total = x / (a + _TERMS) + 1
    for n in range(_TERMS - 1, 0, -1):
        total = x / (a + n) * total + 1
    return total


def _fraction(a: Any, x: Any) -> Any:
    """a times the continued fraction of Q(a, x) gamma(a) / (x^a e^-x) (NIST DLMF 8.9.2)."""
    start = x - a
    below = start + (2 * _TERMS + 1)
    for n in range(_TERMS, 0, -1):
        below = start + (2 * n - 1) - (n - a) * n / below
    return a / below


def _near(a: Any, eta: Any, is_upper: bool) -> Any:
    """Q(a, x) or P(a, x) by Temme's expansion (NIST DLMF 8.12.3, 8.12.4 and 8.12.7)."""
    rest = eta * 0
    for row in reversed(_temme()):
        rest = rest / a + eta._powers(row)
    fall = (a * eta.square() * -0.5).exp()
    rest = rest * fall / (a * (2 * math.pi)).sqrt()
    is_low = eta < 0
    # Not `abs`: its derivative at 0 is 0.
    tail = (is_low.where(-eta, eta) * (a * 0.5).sqrt()).erfcx() * fall * 0.5
    if is_upper:
        return is_low.where(1 - tail, tail) + rest
    return is_low.where(tail, 1 - tail) - rest
