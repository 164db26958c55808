"""The gamma distribution and those that are made of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy

from tilegrad.nn.distributions.distribution import Distribution, normal, together, uniform
from tilegrad.tensor.tensor import Tensor

__all__ = ["Beta", "Chi2", "Dirichlet", "Gamma", "InverseGamma", "StudentT", "log_beta"]

# At most one of twenty proposals below is refused, so all of these are in less than one of 6 x 10^7
# draws.
_PROPOSALS = 6
# The smallest draw that a gradient is computed at.
_TINY = 1e-30
# Places of the quadrature of Gauss and Legendre.
_NODES = 64

_Draw = Callable[[Tensor, tuple[Any, ...]], Tensor]


def log_beta(first: Tensor, second: Tensor) -> Tensor:
    """The logarithm of the beta function."""
    return first.lgamma() + second.lgamma() - (first + second).lgamma()


def _standard_gamma(concentration: Tensor, shape: tuple[Any, ...]) -> Tensor:
    """Draws of rate 1: for each one of some proposals that is accepted (Marsaglia and Tsang, "A
    simple method for generating gamma variables", 2000).
    """
    wide = concentration.detach().expand(*shape)
    is_small = wide < 1
    d = is_small.where(wide + 1, wide) - 1 / 3
    c = (9 * d).rsqrt()
    made = d
    # As memory: one kernel that draws all of them would be very long.
    normals = normal((_PROPOSALS, *shape), wide).contiguous()
    chances = uniform((_PROPOSALS, *shape), wide).clip(2**-25).log().contiguous()
    for x, chance in zip(normals.unbind(0), chances.unbind(0)):
        v = (1 + c * x) ** 3
        is_inside = v > 0
        v = is_inside.where(v, 1)
        bound = 0.5 * x.square() + d * (1 - v + v.log())
        is_taken = is_inside & (chance < bound)
        made = is_taken.where(d * v, made)
    # Below 1: of one more, times a power of a uniform draw.
    lift = uniform(shape, wide).clip(2**-25) ** (1 / wide)
    return is_small.where(made * lift, made)


def _standard_gamma_path(concentration: Tensor, shape: tuple[Any, ...]) -> Tensor:
    """Draws of rate 1 with the gradient of the concentration: a draw x moves with a so that P(a, x)
    stays as it is (Figurnov, Mohamed and Mnih, Implicit Reparameterization Gradients, 2018).
    """
    wide = concentration.expand(*shape)
    a = wide.detach()
    x = _standard_gamma(a, shape).clip(min=_TINY).detach()
    slope = a._wide_single(lambda a: _quantile_slope(a, x.cast(a.dtype)))
    return x + (wide - a) * slope.detach()


def _quantile_slope(a: Tensor, x: Tensor) -> Tensor:
    """The derivative of x by a where P(a, x) is fixed: that of P by a, over the density, negated.

    It is an integral of the density times log(t) - digamma(a), from 0 to x where x is below a, and
    from x on above; with t = x e^(+-s) the density falls as e^-h(s), h(s) = x (e^(+-s) - 1) -+ a s.
    """
    is_above = x > a
    side = is_above.where(1.0, -1.0).cast(a.dtype)
    root = x.sqrt()
    # h is at least 30 at the end: by its square term, or by its largest one.
    above = (x < 5).where((60 / x).log1p(), 8.8 / root)
    below = (x > 1e4).where(9.5 / root, (38 + x) / a)
    end = is_above.where(above, below)
    nodes, weights = numpy.polynomial.legendre.leggauss(_NODES)
    node, weight = (Tensor(each, device=a.device).cast(a.dtype) for each in (nodes, weights))
    s = (end * 0.5 * side).unsqueeze(-1) * (node + 1)
    fall = x.unsqueeze(-1) * s.expm1() - a.unsqueeze(-1) * s
    apart = (x.log() - a.digamma()).unsqueeze(-1) + s
    return side * x * end * 0.5 * ((-fall).exp() * apart * weight).sum(-1)


class Gamma(Distribution):
    """Gamma distribution: density rate^a x^(a-1) exp(-rate x) / gamma(a), a the `concentration`.

    Args:
        concentration: the shape parameter, positive.
        rate: 1 / scale, positive.

    Shape: parameters broadcast to the batch, events are numbers; float.

    >>> nn.distributions.Gamma(3.0, 2.0).mean.item()
    1.5
    """

    def __init__(self, concentration: Any, rate: Any):
        self.concentration, self.rate = together(concentration, rate)
        super().__init__(self.rate.shape)

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        """The likeliest value."""
        return (self.concentration - 1).relu() / self.rate

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        return self.concentration / self.rate.square()

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        standard = _standard_gamma(self.concentration, self._shape(sample_shape))
        return (standard / self.rate.detach()).detach()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return _standard_gamma_path(self.concentration, self._shape(sample_shape)) / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        a = self.concentration
        return a * self.rate.log() + (a - 1) * value.log() - self.rate * value - a.lgamma()

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1 - a) * a.digamma()

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of at most `value`."""
        return self.concentration.igamma(self.rate * value)


class Chi2(Gamma):
    """Chi-squared distribution: the sum of `df` squares of standard normal values.

    Args:
        df: degrees of freedom, positive.

    Shape: the batch has the shape of the parameter, events are numbers; float.

    >>> nn.distributions.Chi2(3.0).mean.item()
    3.0
    """

    def __init__(self, df: Any):
        (self.df,) = together(df)
        super().__init__(0.5 * self.df, 0.5)


class InverseGamma(Distribution):
    """Inverse gamma distribution: that of 1 / x where x has the gamma distribution.

    Args:
        concentration: the shape parameter, positive.
        rate: 1 / scale of x, positive.

    Shape: parameters broadcast to the batch, events are numbers; float.

    >>> nn.distributions.InverseGamma(3.0, 2.0).mean.item()
    1.0
    """

    def __init__(self, concentration: Any, rate: Any):
        self.base = Gamma(concentration, rate)
        self.concentration, self.rate = self.base.concentration, self.base.rate
        super().__init__(self.rate.shape)

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        a = self.concentration
        return (a > 1).where(self.rate / (a > 1).where(a - 1, 1), math.inf)

    @property
    def mode(self) -> Tensor:
        """The likeliest value."""
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        a = self.concentration
        above = (a > 2).where(a, 3)
        finite = self.rate.square() / ((above - 1).square() * (above - 2))
        return (a > 2).where(finite, math.inf)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.base.sample(sample_shape).reciprocal()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.base.rsample(sample_shape).reciprocal()

    def log_prob(self, value: Tensor) -> Tensor:
        return self.base.log_prob(value.reciprocal()) - 2 * value.log()

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + self.rate.log() + a.lgamma() - (1 + a) * a.digamma()

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of at most `value`."""
        return self.concentration.igammac(self.rate / value)


class Beta(Distribution):
    """Beta distribution: density x^(a-1) (1-x)^(b-1) / beta(a, b).

    Args:
        concentration1: a, positive.
        concentration0: b, positive.

    Shape: parameters broadcast to the batch, events are numbers; float.

    >>> nn.distributions.Beta(1.0, 3.0).mean.item()
    0.25
    """

    def __init__(self, concentration1: Any, concentration0: Any):
        self.concentration1, self.concentration0 = together(concentration1, concentration0)
        super().__init__(self.concentration1.shape)

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Tensor:
        """The likeliest value; NaN where there is more than one."""
        a, b = self.concentration1, self.concentration0
        # Below 1 the density is infinite at an end, whatever the other one is.
        first, second = (a - 1).relu(), (b - 1).relu()
        ends = (a < b).where(0.0, (a > b).where(1.0, math.nan))
        is_inside = first + second > 0
        alone = ((a < 1) & (b < 1)).where(math.nan, ends)
        return is_inside.where(first / is_inside.where(first + second, 1.0), alone)

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total.square() * (total + 1))

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._drawn(_standard_gamma, sample_shape).detach()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._drawn(_standard_gamma_path, sample_shape)

    def _drawn(self, gamma: _Draw, sample_shape: Sequence[int]) -> Tensor:
        shape = self._shape(sample_shape)
        first, second = gamma(self.concentration1, shape), gamma(self.concentration0, shape)
        return first / (first + second)

    def log_prob(self, value: Tensor) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return (a - 1) * value.log() + (b - 1) * (-value).log1p() - log_beta(a, b)

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return (
            log_beta(a, b)
            - (a - 1) * a.digamma()
            - (b - 1) * b.digamma()
            + (a + b - 2) * (a + b).digamma()
        )


class Dirichlet(Distribution):
    """Dirichlet distribution of shares that add up to 1: density proportional to the product of
    x_i^(a_i - 1).

    Args:
        concentration: a, (*batch, n), positive.

    Shape: batch (*batch), events (n,), float.

    >>> nn.distributions.Dirichlet(Tensor([1.0, 3.0])).mean.tolist()
    [0.25, 0.75]
    """

    def __init__(self, concentration: Tensor):
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:])

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        return self.concentration / self.concentration.sum(-1, keepdim=True)

    @property
    def mode(self) -> Tensor:
        """The likeliest shares; NaN where no concentration is above 1."""
        above = (self.concentration - 1).relu()
        return above / above.sum(-1, keepdim=True)

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        total = self.concentration.sum(-1, keepdim=True)
        return self.mean * (1 - self.mean) / (total + 1)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._drawn(_standard_gamma, sample_shape).detach()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._drawn(_standard_gamma_path, sample_shape)

    def _drawn(self, gamma: _Draw, sample_shape: Sequence[int]) -> Tensor:
        found = gamma(self.concentration, self._shape(sample_shape))
        return found / found.sum(-1, keepdim=True)

    def log_prob(self, value: Tensor) -> Tensor:
        a = self.concentration
        return ((a - 1) * value.log() - a.lgamma()).sum(-1) + a.sum(-1).lgamma()

    def entropy(self) -> Tensor:
        a = self.concentration
        total = a.sum(-1)
        return (
            a.lgamma().sum(-1)
            - total.lgamma()
            + (total - a.shape[-1]) * total.digamma()
            - ((a - 1) * a.digamma()).sum(-1)
        )


class StudentT(Distribution):
    """Student's t distribution.

    Args:
        df: degrees of freedom, positive.
        loc: the middle.
        scale: the scale, positive.

    Shape: parameters broadcast to the batch, events are numbers; float.

    >>> nn.distributions.StudentT(4.0).variance.item()
    2.0
    """

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0):
        self.df, self.loc, self.scale = together(df, loc, scale)
        super().__init__(self.df.shape)

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        return (self.df > 1).where(self.loc, math.nan)

    @property
    def mode(self) -> Tensor:
        """The likeliest value."""
        return self.loc

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        above = (self.df > 2).where(self.df, 3)
        finite = self.scale.square() * above / (above - 2)
        return (self.df > 2).where(
            finite, (self.df > 1).where(self.df.full_like(math.inf), math.nan)
        )

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._drawn(_standard_gamma, sample_shape).detach()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._drawn(_standard_gamma_path, sample_shape)

    def _drawn(self, gamma: _Draw, sample_shape: Sequence[int]) -> Tensor:
        shape = self._shape(sample_shape)
        half = self.df / 2
        spread = (gamma(half, shape) / half).rsqrt()
        return self.loc + self.scale * normal(shape, self.loc) * spread

    def log_prob(self, value: Tensor) -> Tensor:
        square = ((value - self.loc) / self.scale).square()
        return -0.5 * (self.df + 1) * (square / self.df).log1p() - self._log_norm()

    def entropy(self) -> Tensor:
        half, more = 0.5 * self.df, 0.5 * (self.df + 1)
        rise = more.digamma() - half.digamma()
        return more * rise + self._log_norm()

    def _log_norm(self) -> Tensor:
        half = 0.5 * self.df
        return (
            self.scale.log()
            + 0.5 * (self.df * math.pi).log()
            + half.lgamma()
            - (half + 0.5).lgamma()
        )
