"""Distributions of truth values, classes and counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilegrad.base.errors import ShapeError
from tilegrad.nn.distributions.distribution import Distribution, chance, one_of, together, uniform
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "Bernoulli", "Binomial", "Categorical", "Geometric", "OneHotCategorical",
    "OneHotCategoricalStraightThrough", "Poisson", "RelaxedBernoulli", "RelaxedOneHotCategorical",
]  # fmt: skip


class Bernoulli(Distribution):
    """Bernoulli distribution: 1 with probability `probs`, else 0.

    Args:
        probs: probabilities, of the shape of the batch.
        logits: the logarithms of the odds, instead of `probs`.

    Shape: the batch has the shape of the parameter, events are float numbers.

    Raises ConfigError unless one of the two is given.

    >>> nn.distributions.Bernoulli(probs=0.25).log_prob(Tensor([1.0])).exp().tolist()
    [0.25]
    """

    def __init__(self, probs: Any = None, logits: Any = None):
        self.probs, self.logits = chance("Bernoulli", probs, logits)
        super().__init__(self.probs.shape)

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        return self.probs

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        is_one = uniform(self._shape(sample_shape), self.probs) < self.probs
        return is_one.cast(self.probs.dtype).detach()

    def log_prob(self, value: Tensor) -> Tensor:
        value = value.cast(self.logits.dtype)
        return value * self.logits.logsigmoid() + (1 - value) * (-self.logits).logsigmoid()

    def entropy(self) -> Tensor:
        return (
            -(self.probs * self.logits.logsigmoid())
            - (1 - self.probs) * (-self.logits).logsigmoid()
        )


class Categorical(Distribution):
    """Categorical distribution over the classes 0, 1, ...

    Args:
        probs: probabilities along the last axis, (*batch, classes); they are divided by their sum.
        logits: logarithms of probabilities, instead.

    Shape: batch (*batch), events are int32 numbers.

    Raises ShapeError for a number, which has no axis of classes; ConfigError unless one of the two
    is given.

    >>> d = nn.distributions.Categorical(probs=Tensor([1.0, 3.0]))
    >>> d.probs.tolist(), d.log_prob(Tensor([1])).exp().tolist()
    ([0.25, 0.75], [0.75])
    """

    def __init__(self, probs: Any = None, logits: Any = None):
        one_of("Categorical", probs, logits)
        (given,) = together(logits if probs is None else probs)
        if not given.ndim:
            raise ShapeError("Categorical: a number has no axis of classes")
        shares = given if logits is None else given.softmax(-1)
        self.probs = shares / shares.sum(-1, keepdim=True) if logits is None else shares
        self.logits = (
            self.probs.clip(1e-7, 1 - 1e-7).log() if logits is None else given.log_softmax(-1)
        )
        super().__init__(given.shape[:-1])

    @property
    def mode(self) -> Tensor:
        """The likeliest class."""
        return self.probs.argmax(-1)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        # The largest of logits with noise of Gumbel's distribution.
        shape = (*sample_shape, *self.logits.shape)
        noise = -(-uniform(shape, self.logits).log()).log()
        return (self.logits.detach() + noise).argmax(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        classes, logits = Tensor.broadcast_tensors(value.unsqueeze(-1), self.logits)
        return logits.gather(-1, classes[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        return -(self.probs * self.logits.maximum(self.logits.dtype.min)).sum(-1)


class OneHotCategorical(Distribution):
    """`Categorical` whose draws are one-hot rows.

    Shape: batch (*batch), events (classes,), float.

    Args:
        probs: probabilities along the last axis, (*batch, classes).
        logits: logarithms of probabilities, instead.

    Shape: batch (*batch), events of shape (classes,), float.

    >>> d = nn.distributions.OneHotCategorical(probs=Tensor([1.0, 3.0]))
    >>> round(d.log_prob(Tensor([0.0, 1.0])).exp().item(), 4)
    0.75
    """

    def __init__(self, probs: Any = None, logits: Any = None):
        self._classes = Categorical(probs, logits)
        self.probs: Tensor = self._classes.probs
        self.logits: Tensor = self._classes.logits
        super().__init__(self._classes.batch_shape, self.probs.shape[-1:])

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        return self.probs

    @property
    def mode(self) -> Tensor:
        """The likeliest row."""
        return self._row(self._classes.mode)

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        return self.probs * (1 - self.probs)

    def _row(self, index: Tensor) -> Tensor:
        return index.one_hot(self.probs.shape[-1]).cast(self.probs.dtype)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._row(self._classes.sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        return self._classes.log_prob(value.argmax(-1))

    def entropy(self) -> Tensor:
        return self._classes.entropy()


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """`OneHotCategorical` whose draws have the gradient of the probabilities (Bengio et al. 2013,
    arXiv:1308.3432).

    Args:
        probs: probabilities along the last axis, (*batch, classes).
        logits: logarithms of probabilities, instead.

    Shape: batch (*batch), events (classes,), float.

    >>> d = nn.distributions.OneHotCategoricalStraightThrough(probs=Tensor([0.0, 1.0]))
    >>> d.rsample((2,)).tolist()
    [[0.0, 1.0], [0.0, 1.0]]
    """

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


class Geometric(Distribution):
    """Geometric distribution: the number of failures before the first success.

    Args:
        probs: probability of success.
        logits: the logarithms of the odds, instead of `probs`.

    Shape: the batch has the shape of the parameter, events are float numbers.

    Raises ConfigError unless one of the two is given.

    >>> nn.distributions.Geometric(0.25).mean.item()
    3.0
    """

    def __init__(self, probs: Any = None, logits: Any = None):
        self.probs, self.logits = chance("Geometric", probs, logits)
        super().__init__(self.probs.shape)

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        return self.probs.reciprocal() - 1

    @property
    def mode(self) -> Tensor:
        """The likeliest count, 0."""
        return self.probs.zeros_like()

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        return (self.probs.reciprocal() - 1) / self.probs

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        u = uniform(self._shape(sample_shape), self.probs).clip(2**-25)
        return (u.log() / (-self.probs).log1p()).floor().detach()

    def log_prob(self, value: Tensor) -> Tensor:
        return value * (-self.probs).log1p() + self.probs.log()

    def entropy(self) -> Tensor:
        p = self.probs
        return -((1 - p) * (-p).log1p() + p * p.log()) / p


class Poisson(Distribution):
    """Poisson distribution: the number of events where `rate` are expected.

    Args:
        rate: the mean.

    Shape: the batch has the shape of the parameter, events are float numbers.

    >>> round(nn.distributions.Poisson(2.0).log_prob(Tensor(0.0)).item(), 4)
    -2.0
    """

    def __init__(self, rate: Any):
        (self.rate,) = together(rate)
        super().__init__(self.rate.shape)

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        return self.rate

    variance = mean

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.rate.detach().expand(*self._shape(sample_shape)).contiguous().poisson()

    def log_prob(self, value: Tensor) -> Tensor:
        return value.xlogy(self.rate) - self.rate - (value + 1).lgamma()


class Binomial(Distribution):
    """Binomial distribution: the number of successes in `total_count` trials.

    Args:
        total_count: number of trials, an int or a tensor; draws from a tensor look at its largest.
        probs: probability of success.
        logits: the logarithms of the odds, instead of `probs`.

    Shape: the batch has the shape of the parameters, events are float numbers.

    >>> nn.distributions.Binomial(4, 0.25).mean.item()
    1.0
    """

    def __init__(self, total_count: Any = 1, probs: Any = None, logits: Any = None):
        one_of("Binomial", probs, logits)
        if isinstance(total_count, Tensor):
            (given,) = together(logits if probs is None else probs)
            total_count, given = together(total_count.cast(given.dtype), given)
            probs, logits = (None, given) if probs is None else (given, None)
        self.total_count = total_count
        self._one = Bernoulli(probs, logits)
        self.probs: Tensor = self._one.probs
        self.logits: Tensor = self._one.logits
        super().__init__(self.probs.shape)

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        mean: Tensor = self.total_count * self.probs
        return mean

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        return self.mean * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        if not isinstance(self.total_count, Tensor):
            return self._one.sample((self.total_count, *sample_shape)).sum(0)
        most = int(self.total_count.max().item())
        drawn = self._one.sample((most, *sample_shape))
        trial = Tensor.arange(most, device=drawn.device).reshape(
            most, *(1 for _ in drawn.shape[1:])
        )
        return (trial < self.total_count).where(drawn, 0.0).sum(0).detach()

    def log_prob(self, value: Tensor) -> Tensor:
        n = self.total_count
        all_ways = (n + 1).lgamma() if isinstance(n, Tensor) else math.lgamma(n + 1)
        ways = all_ways - (value + 1).lgamma() - (n - value + 1).lgamma()
        log_ones = value * self.logits.logsigmoid()
        found: Tensor = ways + log_ones + (n - value) * (-self.logits).logsigmoid()
        return found

    def entropy(self) -> Tensor:
        n = self.total_count
        most = int(n.max().item()) if isinstance(n, Tensor) else n
        count = Tensor.arange(most + 1, dtype=self.probs.dtype, device=self.probs.device)
        count = count.reshape(most + 1, *(1 for _ in self.batch_shape))
        is_possible = count <= n
        chances = self.log_prob(is_possible.where(count, 0.0))
        found: Tensor = is_possible.where(-chances.exp() * chances, 0.0).sum(0)
        return found


def _log(temperature: Any) -> Any:
    return temperature.log() if isinstance(temperature, Tensor) else math.log(temperature)


class RelaxedBernoulli(Distribution):
    """Smooth `Bernoulli`: the sigmoid of logits with logistic noise, divided by a temperature;
    draws have a gradient (Maddison et al., "The Concrete Distribution", 2016).

    Args:
        temperature: the lower, the nearer to 0 and 1.
        probs: probabilities, of the shape of the batch.
        logits: the logarithms of the odds, instead of `probs`.

    Shape: the batch has the shape of the parameters, events are float numbers.

    >>> d = nn.distributions.RelaxedBernoulli(0.5, probs=0.5)
    >>> d.rsample((3,)).shape
    (3,)
    """

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None):
        self.temperature: Any = temperature
        self._one = Bernoulli(probs, logits)
        self.probs: Tensor = self._one.probs
        self.logits: Tensor = self._one.logits
        super().__init__(self.probs.shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        u = uniform(self._shape(sample_shape), self.logits).clip(2**-24, 1 - 2**-24)
        found: Tensor = ((self.logits + u.log() - (-u).log1p()) / self.temperature).sigmoid()
        return found

    def log_prob(self, value: Tensor) -> Tensor:
        t = self.temperature
        x = value.logit(1e-7)
        apart = self.logits - t * x
        jacobian = value.log() + (-value).log1p()
        found: Tensor = apart + _log(t) - 2 * apart.softplus() - jacobian
        return found


class RelaxedOneHotCategorical(Distribution):
    """Smooth `OneHotCategorical`: the softmax of logits with Gumbel's noise, divided by a
    temperature; draws have a gradient (Maddison et al. 2016).

    Args:
        temperature: the lower, the nearer to 0 and 1.
        probs: probabilities along the last axis, (*batch, classes).
        logits: logarithms of probabilities, instead.

    Shape: batch (*batch), events (classes,), float.

    >>> d = nn.distributions.RelaxedOneHotCategorical(0.5, probs=Tensor([0.25, 0.75]))
    >>> d.rsample((4,)).shape
    (4, 2)
    """

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None):
        self.temperature: Any = temperature
        self._classes = Categorical(probs, logits)
        self.probs: Tensor = self._classes.probs
        self.logits: Tensor = self._classes.logits
        super().__init__(self._classes.batch_shape, self.probs.shape[-1:])

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        u = uniform(self._shape(sample_shape), self.logits).clip(2**-24, 1 - 2**-24)
        found: Tensor = ((self.logits - (-u.log()).log()) / self.temperature).softmax(-1)
        return found

    def log_prob(self, value: Tensor) -> Tensor:
        t, size = self.temperature, self.probs.shape[-1]
        score = self.logits - t * value.log()
        norm = math.lgamma(size) + (size - 1) * _log(t)
        share = (score - score.logsumexp(-1, keepdim=True)).sum(-1)
        found: Tensor = share + norm - value.log().sum(-1)
        return found
