"""Distributions of numbers between 0 and 1, and of shares that add up to 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilegrad.nn.distributions.distribution import Distribution, one_of, together, uniform
from tilegrad.nn.distributions.gamma import log_beta
from tilegrad.nn.distributions.normal import Normal
from tilegrad.nn.distributions.transforms import StickBreakingTransform
from tilegrad.tensor.composed.bernoulli import OVER_FACTORIALS
from tilegrad.tensor.tensor import Tensor

__all__ = ["ContinuousBernoulli", "Kumaraswamy", "LogisticNormal"]

_EULER = 0.5772156649015329


class Kumaraswamy(Distribution):
    """Kumaraswamy distribution: density a b x^(a-1) (1 - x^a)^(b-1).

    Args:
        concentration1: a, positive.
        concentration0: b, positive.

    Shape: parameters broadcast to the batch, events are numbers; float.

    >>> nn.distributions.Kumaraswamy(1.0, 3.0).mean.item()
    0.25
    """

    def __init__(self, concentration1: Any, concentration0: Any):
        self.concentration1, self.concentration0 = together(concentration1, concentration0)
        super().__init__(self.concentration1.shape)

    def _moment(self, order: int) -> Tensor:
        b = self.concentration0
        return b * log_beta(1 + order / self.concentration1, b).exp()

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        """The likeliest value; NaN where a or b is below 1."""
        a, b = self.concentration1, self.concentration0
        is_inside = (a >= 1) & (b >= 1) & (a * b > 1)
        top, total = is_inside.where(a, 2.0), is_inside.where(a * b, 2.0)
        return is_inside.where(((top - 1) / (total - 1)) ** (1 / top), math.nan)

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        return self._moment(2) - self._moment(1).square()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        share = uniform(self._shape(sample_shape), self.concentration1)
        return self.icdf(share.clip(2**-24, 1 - 2**-24))

    def log_prob(self, value: Tensor) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return a.log() + b.log() + (a - 1) * value.log() + (b - 1) * (-(value**a)).log1p()

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        harmonic = (b + 1).digamma() + _EULER
        return (1 - 1 / b) + (1 - 1 / a) * harmonic - a.log() - b.log()

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of at most `value`."""
        return -((-(value**self.concentration1)).log1p() * self.concentration0).expm1()

    def icdf(self, share: Tensor) -> Tensor:
        """The value that is not exceeded with probability `share`."""
        above = ((-share).log1p() / self.concentration0).expm1()
        return (-above) ** (1 / self.concentration1)


class ContinuousBernoulli(Distribution):
    """Continuous Bernoulli distribution: density proportional to p^x (1-p)^(1-x) between 0 and 1.

    With the logit L of p the density is L e^(L x) / (e^L - 1); the rest follows from it.

    Args:
        probs: p.
        logits: log(p / (1 - p)), instead.
        lims: without effect: PyTorch's range of p in which it uses a series.

    Shape: the batch has the shape of the parameter, events are numbers; float.

    Raises ConfigError unless one of the two is given.

    >>> nn.distributions.ContinuousBernoulli(0.5).mean.item()
    0.5
    """

    def __init__(self, probs: Any = None, logits: Any = None, lims: tuple[float, float] = (0, 0)):
        one_of("ContinuousBernoulli", probs, logits)
        if logits is None:
            (self.probs,) = together(probs)
            tiny = 2**-24 if self.probs.dtype.itemsize < 8 else 2**-53
            inside = self.probs.clip(tiny, 1 - tiny)
            self.logits = inside.log() - (-inside).log1p()
        else:
            (self.logits,) = together(logits)
            self.probs = self.logits.sigmoid()
        super().__init__(self.logits.shape)

    def _by_size(self) -> tuple[Tensor, Tensor, Tensor]:
        """Whether the logit is below 1 in size, so that the series are used; the logit where it is,
        and where it is not.
        """
        is_small = self.logits.abs() < 1
        return is_small, is_small.where(self.logits, 0.0), is_small.where(2.0, self.logits)

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        is_small, small, large = self._by_size()
        series = 0.5 + small * small.square()._powers(OVER_FACTORIALS)
        return is_small.where(series, -1 / (-large).expm1() - 1 / large)

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        is_small, small, large = self._by_size()
        terms = [(2 * n - 1) * number for n, number in enumerate(OVER_FACTORIALS, 1)]
        size = large.abs()
        spread = (-size).exp() / (-size).expm1().square()
        return is_small.where(small.square()._powers(terms), 1 / large.square() - spread)

    def _log_norm(self) -> Tensor:
        """log(L / (e^L - 1))."""
        is_small, small, large = self._by_size()
        terms = [number / (2 * n) for n, number in enumerate(OVER_FACTORIALS, 1)]
        square = small.square()
        series = -0.5 * small - square * square._powers(terms)
        size = large.abs()
        plain = size.log() - (-(-size).expm1()).log() - large.relu()
        return is_small.where(series, plain)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.icdf(uniform(self._shape(sample_shape), self.logits))

    def log_prob(self, value: Tensor) -> Tensor:
        return self.logits * value + self._log_norm()

    def entropy(self) -> Tensor:
        return -(self.logits * self.mean + self._log_norm())

    def _falling(self) -> tuple[Tensor, Tensor, Tensor]:
        """Whether the logit is positive, whether it is 0, and minus its size: what rises is 1 minus
        what falls as much.
        """
        is_flat = self.logits.eq(0)
        return self.logits > 0, is_flat, is_flat.where(-1.0, -self.logits.abs())

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of at most `value`."""
        is_rising, is_flat, fall = self._falling()
        inside = value.clip(0, 1)
        mirrored = is_rising.where(1 - inside, inside)
        share = (fall * mirrored).expm1() / fall.expm1()
        return is_flat.where(inside, is_rising.where(1 - share, share))

    def icdf(self, share: Tensor) -> Tensor:
        """The value that is not exceeded with probability `share`."""
        is_rising, is_flat, fall = self._falling()
        mirrored = (is_rising.where(1 - share, share) * fall.expm1()).log1p() / fall
        return is_flat.where(share, is_rising.where(1 - mirrored, mirrored))


class LogisticNormal(Distribution):
    """Distribution of the shares that breaking a stick makes of a vector of normal numbers.

    Args:
        loc: the means, (*batch, n).
        scale: the standard deviations, positive, (*batch, n).

    Shape: batch (*batch), events (n + 1,), float.

    >>> d = nn.distributions.LogisticNormal(Tensor.zeros(2), Tensor.ones(2))
    >>> d.event_shape, round(d.sample().sum().item(), 4)
    ((3,), 1.0)
    """

    def __init__(self, loc: Any, scale: Any):
        self.base_dist = Normal(loc, scale)
        self.transform = StickBreakingTransform()
        shape = self.base_dist.batch_shape
        super().__init__(shape[:-1], (shape[-1] + 1,))

    @property
    def loc(self) -> Tensor:
        """The means of the normal numbers."""
        return self.base_dist.loc

    @property
    def scale(self) -> Tensor:
        """The standard deviations of the normal numbers."""
        return self.base_dist.scale

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.transform(self.base_dist.rsample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        x = self.transform.inv(value)
        volume = self.transform.log_abs_det_jacobian(x, value)
        return self.base_dist.log_prob(x).sum(-1) - volume
