"""Distributions of counts that are made of others: of classes in several draws, and of successes
before failures; and the ratio of variances.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilegrad.nn.distributions.discrete import Binomial, Categorical, Poisson
from tilegrad.nn.distributions.distribution import Distribution, one_of, together
from tilegrad.nn.distributions.gamma import Gamma, log_beta
from tilegrad.tensor.tensor import Tensor

__all__ = ["FisherSnedecor", "Multinomial", "NegativeBinomial"]


class Multinomial(Distribution):
    """Multinomial distribution: how often each class occurs in `total_count` draws.

    Args:
        total_count: number of draws.
        probs: probabilities along the last axis, (*batch, classes); they are divided by their sum.
        logits: logarithms of probabilities, instead.

    Shape: batch (*batch), events of shape (classes,), float.

    Raises ConfigError unless one of the two is given.

    >>> d = nn.distributions.Multinomial(2, probs=Tensor([0.25, 0.75]))
    >>> round(d.log_prob(Tensor([1.0, 1.0])).exp().item(), 4), d.mean.tolist()
    (0.375, [0.5, 1.5])
    """

    def __init__(self, total_count: int = 1, probs: Any = None, logits: Any = None):
        self.total_count = total_count
        self._classes = Categorical(probs, logits)
        self.probs: Tensor = self._classes.probs
        self.logits: Tensor = self._classes.logits
        super().__init__(self._classes.batch_shape, self.probs.shape[-1:])

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        drawn = self._classes.sample((self.total_count, *sample_shape))
        return drawn.one_hot(self.probs._sizes[-1]).sum(0).cast(self.probs.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        ways = (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1)
        # A class that never occurs may have the probability 0.
        terms = value.eq(0).where(0.0, value * self.logits)
        return ways + terms.sum(-1)

    def entropy(self) -> Tensor:
        n, probs = self.total_count, self.probs
        # Each class by itself is drawn so often with a binomial chance.
        count = Tensor.arange(2, n + 1, dtype=probs.dtype, device=probs.device)
        count = count.reshape(max(n - 1, 0), *(1 for _ in probs.shape))
        chances = Binomial(n, probs=probs).log_prob(count).exp()
        ways = (chances * (count + 1).lgamma()).sum((0, -1))
        return n * self._classes.entropy() - math.lgamma(n + 1) + ways


class NegativeBinomial(Distribution):
    """Negative binomial distribution: the number of successes before `total_count` failures.

    Args:
        total_count: number of failures, positive.
        probs: probability of success, at least 0 and below 1.
        logits: the logarithms of the odds, instead of `probs`.

    Shape: parameters broadcast to the batch, events are float numbers.

    Raises ConfigError unless one of the two is given.

    >>> nn.distributions.NegativeBinomial(3.0, probs=0.5).mean.item()
    3.0
    """

    def __init__(self, total_count: Any, probs: Any = None, logits: Any = None):
        one_of("NegativeBinomial", probs, logits)
        self.total_count, given = together(total_count, logits if probs is None else probs)
        self.logits: Tensor = given if probs is None else given.logit()
        self.probs: Tensor = given.sigmoid() if probs is None else given
        super().__init__(given.shape)

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> Tensor:
        """The likeliest count."""
        return ((self.total_count - 1) * self.logits.exp()).floor().relu()

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        return self.mean / (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        # A Poisson distribution whose rate is drawn of a gamma distribution.
        rate = Gamma(self.total_count, (-self.logits).exp()).sample(sample_shape)
        return Poisson(rate).sample()

    def log_prob(self, value: Tensor) -> Tensor:
        count = self.total_count
        chance = count * (-self.logits).logsigmoid() + value * self.logits.logsigmoid()
        ways = (count + value).lgamma() - (value + 1).lgamma() - count.lgamma()
        return chance + ways


class FisherSnedecor(Distribution):
    """F distribution: the ratio of two chi-squared numbers, each over its degrees of freedom.

    Args:
        df1: degrees of freedom of the numerator, positive.
        df2: degrees of freedom of the denominator, positive.

    Shape: parameters broadcast to the batch, events are numbers; float.

    >>> nn.distributions.FisherSnedecor(2.0, 4.0).mean.item()
    2.0
    """

    def __init__(self, df1: Any, df2: Any):
        self.df1, self.df2 = together(df1, df2)
        self._above, self._below = (Gamma(df / 2, df / 2) for df in (self.df1, self.df2))
        super().__init__(self.df1.shape)

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        many = (self.df2 > 2).where(self.df2, 3)
        return (self.df2 > 2).where(many / (many - 2), math.nan)

    @property
    def mode(self) -> Tensor:
        """The likeliest value."""
        rise = (1 - 2 / self.df1).relu()
        return rise * self.df2 / (self.df2 + 2)

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        one, two = self.df1, (self.df2 > 4).where(self.df2, 5)
        finite = 2 * two.square() * (one + two - 2) / (one * (two - 2).square() * (two - 4))
        return (self.df2 > 4).where(finite, math.nan)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._above.sample(sample_shape) / self._below.sample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._above.rsample(sample_shape) / self._below.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        half, other, ratio = self.df1 / 2, self.df2 / 2, self.df1 / self.df2
        density = half * ratio.log() + (half - 1) * value.log()
        return density - (half + other) * (ratio * value).log1p() - log_beta(half, other)
