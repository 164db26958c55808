"""Distributions of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilegrad.nn.distributions.distribution import Distribution, LocationScale, together, uniform
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "Cauchy", "Exponential", "Gumbel", "HalfCauchy", "Laplace", "Pareto", "Uniform", "Weibull",
]  # fmt: skip


class Laplace(LocationScale):
    """Laplace distribution: density exp(-|x - loc| / scale) / (2 * scale).

    Args:
        loc: the mean.
        scale: the mean distance from `loc`, positive.

    Shape: parameters broadcast to the batch, events are numbers; float.

    >>> round(nn.distributions.Laplace(0.0, 1.0).log_prob(Tensor(1.0)).item(), 4)
    -1.6931
    """

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        return 2 * self.scale.square()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        # In (-1, 1]: log1p of -1 is nowhere.
        u = 1 - 2 * uniform(self._shape(sample_shape), self.loc)
        return self.loc - self.scale * u.sign() * (-u.abs()).clip(-1 + 2**-24).log1p()

    def log_prob(self, value: Tensor) -> Tensor:
        return -self._standard(value).abs() - (2 * self.scale).log()

    def entropy(self) -> Tensor:
        return (2 * self.scale).log() + 1

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of at most `value`."""
        x = self._standard(value)
        return 0.5 - 0.5 * x.detach().sign() * (-x.abs()).expm1()

    def icdf(self, share: Tensor) -> Tensor:
        """The value that is not exceeded with probability `share`."""
        apart = share - 0.5
        size = (-2 * apart.abs()).log1p()
        return self.loc - self.scale * apart.detach().sign() * size


class Uniform(Distribution):
    """Uniform distribution: density 1 / (high - low) from `low` up to `high`.

    Args:
        low: least value.
        high: end, not included.

    Shape: parameters broadcast to the batch, events are numbers; float.

    >>> nn.distributions.Uniform(0.0, 4.0).log_prob(Tensor([1.0, 9.0])).exp().tolist()
    [0.25, 0.0]
    """

    def __init__(self, low: Any, high: Any):
        self.low, self.high = together(low, high)
        super().__init__(self.low.shape)

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        return (self.low + self.high) / 2

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        return (self.high - self.low).square() / 12

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        u = uniform(self._shape(sample_shape), self.low)
        return self.low + (self.high - self.low) * u

    def log_prob(self, value: Tensor) -> Tensor:
        is_inside = (value >= self.low) & (value < self.high)
        return is_inside.where(-(self.high - self.low).log(), -math.inf)

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of at most `value`."""
        return ((value - self.low) / (self.high - self.low)).clip(0, 1)

    def icdf(self, share: Tensor) -> Tensor:
        """The value that is not exceeded with probability `share`."""
        return self.low + (self.high - self.low) * share


class Exponential(Distribution):
    """Exponential distribution: density rate * exp(-rate * x) for x of at least 0.

    Args:
        rate: 1 / mean, positive.

    Shape: the batch has the shape of the parameter, events are numbers; float.

    >>> nn.distributions.Exponential(2.0).mean.item()
    0.5
    """

    def __init__(self, rate: Any):
        (self.rate,) = together(rate)
        super().__init__(self.rate.shape)

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        return self.rate.reciprocal()

    @property
    def mode(self) -> Tensor:
        """The likeliest value, 0."""
        return self.rate.zeros_like()

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        return self.rate.square().reciprocal()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return -(-uniform(self._shape(sample_shape), self.rate)).log1p() / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        return self.rate.log() - self.rate * value

    def entropy(self) -> Tensor:
        return 1 - self.rate.log()

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of at most `value`."""
        return -(-self.rate * value).expm1()

    def icdf(self, share: Tensor) -> Tensor:
        """The value that is not exceeded with probability `share`."""
        return -(-share).log1p() / self.rate


class Cauchy(LocationScale):
    """Cauchy distribution: density 1 / (pi * scale * (1 + ((x - loc) / scale)^2)); it has neither a
    mean nor a variance.

    Args:
        loc: the median.
        scale: half the width at half the height, positive.

    Shape: parameters broadcast to the batch, events are numbers; float.

    >>> round(nn.distributions.Cauchy(0.0, 1.0).log_prob(Tensor(0.0)).item(), 4)
    -1.1447
    """

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        return self.loc.full_like(math.nan)

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        return self.loc.full_like(math.inf)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        angle = uniform(self._shape(sample_shape), self.loc) - 0.5
        return self.loc + self.scale * (math.pi * angle).tan()

    def log_prob(self, value: Tensor) -> Tensor:
        return -self._standard(value).square().log1p() - self.scale.log() - math.log(math.pi)

    def entropy(self) -> Tensor:
        return self.scale.log() + math.log(4 * math.pi)

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of at most `value`."""
        return self._standard(value).atan() / math.pi + 0.5

    def icdf(self, share: Tensor) -> Tensor:
        """The value that is not exceeded with probability `share`."""
        return self.loc + self.scale * (math.pi * (share - 0.5)).tan()


class HalfCauchy(Distribution):
    """Distribution of |x| where x is of a Cauchy distribution around 0; it has neither a mean nor a
    variance.

    Args:
        scale: the median, positive.

    Shape: the batch has the shape of the parameter, events are numbers; float.

    >>> round(nn.distributions.HalfCauchy(1.0).cdf(Tensor(1.0)).item(), 4)
    0.5
    """

    def __init__(self, scale: Any):
        self._whole = Cauchy(0.0, scale)
        self.scale: Tensor = self._whole.scale
        super().__init__(self.scale.shape)

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        return self.scale.full_like(math.inf)

    @property
    def mode(self) -> Tensor:
        """The likeliest value, 0."""
        return self.scale.zeros_like()

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        return self.scale.full_like(math.inf)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._whole.rsample(sample_shape).abs()

    def log_prob(self, value: Tensor) -> Tensor:
        return (value >= 0).where(self._whole.log_prob(value) + math.log(2), -math.inf)

    def entropy(self) -> Tensor:
        return self._whole.entropy() - math.log(2)

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of at most `value`."""
        return (2 * self._whole.cdf(value) - 1).relu()

    def icdf(self, share: Tensor) -> Tensor:
        """The value that is not exceeded with probability `share`."""
        return self._whole.icdf((share + 1) / 2)


class Gumbel(LocationScale):
    """Gumbel distribution, that of the largest of many values: P(X <= x) = exp(-exp(-(x - loc) /
    scale)).

    Args:
        loc: the mode.
        scale: the scale, positive.

    Shape: parameters broadcast to the batch, events are numbers; float.

    >>> round(nn.distributions.Gumbel(0.0, 1.0).mean.item(), 4)
    0.5772
    """

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        return self.loc + self.scale * _EULER

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        return self.scale.square() * (math.pi**2 / 6)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        # Never 0, whose logarithm is nowhere.
        u = uniform(self._shape(sample_shape), self.loc).clip(2**-25)
        return self.loc - self.scale * (-u.log()).log()

    def log_prob(self, value: Tensor) -> Tensor:
        x = self._standard(value)
        return -x - (-x).exp() - self.scale.log()

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + _EULER)

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of at most `value`."""
        return (-(-self._standard(value)).exp()).exp()

    def icdf(self, share: Tensor) -> Tensor:
        """The value that is not exceeded with probability `share`."""
        return self.loc - self.scale * (-share.log()).log()


class Weibull(Distribution):
    """Weibull distribution: P(X > x) = exp(-(x / scale)^concentration).

    Args:
        scale: the scale, positive.
        concentration: the exponent, positive.

    Shape: parameters broadcast to the batch, events are numbers; float.

    >>> nn.distributions.Weibull(2.0, 1.0).mean.item()
    2.0
    """

    def __init__(self, scale: Any, concentration: Any):
        self.scale, self.concentration = together(scale, concentration)
        super().__init__(self.scale.shape)

    def _moment(self, power: int) -> Tensor:
        return (1 + power / self.concentration).lgamma().exp() * self.scale**power

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        """The likeliest value."""
        # Where the density falls throughout, a share of 0.
        share = (1 - 1 / self.concentration).relu()
        return self.scale * share ** (1 / self.concentration)

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        return self._moment(2) - self._moment(1).square()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        standard = -(-uniform(self._shape(sample_shape), self.scale)).log1p()
        return self.scale * standard ** (1 / self.concentration)

    def log_prob(self, value: Tensor) -> Tensor:
        x, k = value / self.scale, self.concentration
        return (k / self.scale).log() + (k - 1) * x.log() - x**k

    def entropy(self) -> Tensor:
        k = self.concentration
        return _EULER * (1 - 1 / k) + (self.scale / k).log() + 1

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of at most `value`."""
        return -(-((value / self.scale) ** self.concentration)).expm1()

    def icdf(self, share: Tensor) -> Tensor:
        """The value that is not exceeded with probability `share`."""
        return self.scale * (-(-share).log1p()) ** (1 / self.concentration)


class Pareto(Distribution):
    """Pareto distribution: P(X > x) = (scale / x)^alpha for x of at least `scale`.

    Args:
        scale: least value, positive.
        alpha: the exponent, positive.

    Shape: parameters broadcast to the batch, events are numbers; float.

    >>> nn.distributions.Pareto(1.0, 3.0).mean.item()
    1.5
    """

    def __init__(self, scale: Any, alpha: Any):
        self.scale, self.alpha = together(scale, alpha)
        super().__init__(self.scale.shape)

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        above = self.alpha.clip(1.0)
        return (self.alpha > 1).where(above * self.scale / (above - 1), math.inf)

    @property
    def mode(self) -> Tensor:
        """The likeliest value, the least one."""
        return self.scale

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        above = self.alpha.clip(2.0)
        finite = self.scale.square() * above / ((above - 1).square() * (above - 2))
        return (self.alpha > 2).where(finite, math.inf)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        standard = -(-uniform(self._shape(sample_shape), self.scale)).log1p()
        return self.scale * (standard / self.alpha).exp()

    def log_prob(self, value: Tensor) -> Tensor:
        density = self.alpha.log() + self.alpha * self.scale.log() - (self.alpha + 1) * value.log()
        return (value >= self.scale).where(density, -math.inf)

    def entropy(self) -> Tensor:
        return (self.scale / self.alpha).log() + 1 / self.alpha + 1

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of at most `value`."""
        return 1 - (self.scale / value.maximum(self.scale)) ** self.alpha

    def icdf(self, share: Tensor) -> Tensor:
        """The value that is not exceeded with probability `share`."""
        return self.scale * (-(-share).log1p() / self.alpha).exp()


# Euler's constant.
_EULER = 0.57721566490153286
