"""Probability distributions: draws, densities, entropies and divergences.

Names, arguments and formulas are those of `torch.distributions`. Parameters are tensors, or
numbers, which broadcast; the shape of one draw is that of a batch of independent distributions,
`batch_shape`, and then that of one event, `event_shape`. Nothing is computed until a value is asked
for, so parameters are not checked: a scale that is not positive gives what its formula gives.

    policy = nn.distributions.Categorical(logits=model(state))
    action = policy.sample()
    loss = -(policy.log_prob(action) * advantage).mean()
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tilegrad.base.errors import ConfigError, ShapeError
from tilegrad.tensor.sizes import here, show_shape
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "Bernoulli", "Categorical", "Distribution", "Exponential", "Independent", "Laplace",
    "LogNormal", "MultivariateNormal", "Normal", "Uniform", "kl_divergence",
]  # fmt: skip

_HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)


class Distribution:
    """What distributions share. A subclass gives `rsample`, or `sample` where draws have no
    gradient, and `log_prob`.

    >>> class Fixed(nn.distributions.Distribution):
    ...     def rsample(self, sample_shape=()):
    ...         return Tensor.ones(self._shape(sample_shape))
    >>> Fixed((3,)).sample((2,)).shape
    (2, 3)
    """

    def __init__(self, batch_shape: Sequence[Any], event_shape: Sequence[Any] = ()):
        self.batch_shape, self.event_shape = tuple(batch_shape), tuple(event_shape)

    mean: Tensor
    variance: Tensor

    @property
    def stddev(self) -> Tensor:
        """The root of the variance."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws of shape (*sample_shape, *batch_shape, *event_shape), through which no gradient
        flows.
        """
        return self.rsample(sample_shape).detach()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws as by `sample`, with the gradient of the parameters.

        Raises ConfigError where a draw has none.
        """
        raise ConfigError(
            f"{type(self).__name__}.rsample: a draw has no gradient", fix="sample()", line=here()
        )

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density, or the probability, of each event in `value`."""
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """The mean of -log_prob."""
        raise NotImplementedError

    def _shape(self, sample_shape: Sequence[int]) -> tuple[Any, ...]:
        return (*sample_shape, *self.batch_shape, *self.event_shape)

    def __repr__(self) -> str:
        shapes = f"batch_shape={show_shape(self.batch_shape)}"
        if self.event_shape:
            shapes += f", event_shape={show_shape(self.event_shape)}"
        return f"{type(self).__name__}({shapes})"


def _together(*given: Any) -> list[Tensor]:
    """Parameters as tensors of one shape."""
    tensors = [each for each in given if isinstance(each, Tensor)]
    made = [
        each
        if isinstance(each, Tensor)
        else tensors[0].full_like(each)
        if tensors
        else Tensor(float(each))
        for each in given
    ]
    return list(Tensor.broadcast_tensors(*made))


class _LocationScale(Distribution):
    """`loc` plus `scale` times a standard draw."""

    def __init__(self, loc: Any, scale: Any):
        self.loc, self.scale = _together(loc, scale)
        super().__init__(self.loc.shape)

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        return self.loc

    @property
    def mode(self) -> Tensor:
        """The likeliest value."""
        return self.loc

    def _standard(self, value: Any) -> Tensor:
        standard: Tensor = (value - self.loc) / self.scale
        return standard


class Normal(_LocationScale):
    """The normal distribution of mean `loc` and standard deviation `scale`.

    >>> d = nn.distributions.Normal(0.0, 2.0)
    >>> round(d.log_prob(Tensor(2.0)).item(), 4), d.sample((3,)).shape
    (-2.1121, (3,))
    """

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        return self.scale.square()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.loc + self.scale * _normal(self._shape(sample_shape), self.loc)

    def log_prob(self, value: Tensor) -> Tensor:
        return -0.5 * self._standard(value).square() - self.scale.log() - _HALF_LOG_TAU

    def entropy(self) -> Tensor:
        return self.scale.log() + (0.5 + _HALF_LOG_TAU)

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of at most `value`."""
        return 0.5 * (1 + (self._standard(value) / math.sqrt(2)).erf())

    def icdf(self, share: Tensor) -> Tensor:
        """The value that is not exceeded with probability `share`."""
        return self.loc + self.scale * (2 * share - 1).erfinv() * math.sqrt(2)


class LogNormal(Normal):
    """The distribution of exp(x), where x is normal of mean `loc` and deviation `scale`.

    >>> round(nn.distributions.LogNormal(0.0, 1.0).mean.item(), 4)
    1.6487
    """

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        return (self.loc + self.scale.square() / 2).exp()

    @property
    def mode(self) -> Tensor:
        return (self.loc - self.scale.square()).exp()

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        square = self.scale.square()
        return square.expm1() * (2 * self.loc + square).exp()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return super().rsample(sample_shape).exp()

    def log_prob(self, value: Tensor) -> Tensor:
        logarithm = value.log()
        return super().log_prob(logarithm) - logarithm

    def entropy(self) -> Tensor:
        return super().entropy() + self.loc

    def cdf(self, value: Tensor) -> Tensor:
        return super().cdf(value.log())

    def icdf(self, share: Tensor) -> Tensor:
        return super().icdf(share).exp()


class Laplace(_LocationScale):
    """The distribution of density exp(-|x - loc| / scale) / (2 * scale).

    >>> round(nn.distributions.Laplace(0.0, 1.0).log_prob(Tensor(1.0)).item(), 4)
    -1.6931
    """

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        return 2 * self.scale.square()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        # In (-1, 1]: log1p of -1 is nowhere.
        u = 1 - 2 * _uniform(self._shape(sample_shape), self.loc)
        return self.loc - self.scale * u.sign() * (-u.abs()).clip(-1 + 2**-24).log1p()

    def log_prob(self, value: Tensor) -> Tensor:
        return -self._standard(value).abs() - (2 * self.scale).log()

    def entropy(self) -> Tensor:
        return (2 * self.scale).log() + 1

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of at most `value`."""
        x = self._standard(value)
        return 0.5 - 0.5 * x.sign() * (-x.abs()).expm1()


class Uniform(Distribution):
    """Every value from `low` up to `high`, alike.

    >>> nn.distributions.Uniform(0.0, 4.0).log_prob(Tensor([1.0, 9.0])).exp().tolist()
    [0.25, 0.0]
    """

    def __init__(self, low: Any, high: Any):
        self.low, self.high = _together(low, high)
        super().__init__(self.low.shape)

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        return (self.low + self.high) / 2

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        return (self.high - self.low).square() / 12

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        u = _uniform(self._shape(sample_shape), self.low)
        return self.low + (self.high - self.low) * u

    def log_prob(self, value: Tensor) -> Tensor:
        is_inside = (value >= self.low) & (value < self.high)
        return is_inside.where(-(self.high - self.low).log(), -math.inf)

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of at most `value`."""
        return ((value - self.low) / (self.high - self.low)).clip(0, 1)


class Exponential(Distribution):
    """The distribution of density rate * exp(-rate * x), for x of at least 0.

    >>> nn.distributions.Exponential(2.0).mean.item()
    0.5
    """

    def __init__(self, rate: Any):
        (self.rate,) = _together(rate)
        super().__init__(self.rate.shape)

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        return self.rate.reciprocal()

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        return self.rate.square().reciprocal()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return -(-_uniform(self._shape(sample_shape), self.rate)).log1p() / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        return self.rate.log() - self.rate * value

    def entropy(self) -> Tensor:
        return 1 - self.rate.log()

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of at most `value`."""
        return -(-self.rate * value).expm1()


def _one_of(name: str, probs: Any, logits: Any) -> None:
    if (probs is None) == (logits is None):
        raise ConfigError(
            f"{name}: {'neither' if probs is None else 'both'} of probs and logits given",
            fix="pass one of them",
            line=here(),
        )


class Bernoulli(Distribution):
    """1 with probability `probs`, or the sigmoid of `logits`, else 0; draws are floats.

    >>> nn.distributions.Bernoulli(probs=0.25).log_prob(Tensor([1.0])).exp().tolist()
    [0.25]
    """

    def __init__(self, probs: Any = None, logits: Any = None):
        _one_of("Bernoulli", probs, logits)
        (given,) = _together(logits if probs is None else probs)
        self.logits = given if probs is None else given.logit(1e-7)
        self.probs = given.sigmoid() if probs is None else given
        super().__init__(given.shape)

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        return self.probs

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        is_one = _uniform(self._shape(sample_shape), self.probs) < self.probs
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
    """The classes 0, 1, ... with probabilities `probs`, or the softmax of `logits`, along the last
    axis; draws are int32.

    Raises ShapeError for a number, which has no axis of classes.

    >>> d = nn.distributions.Categorical(probs=Tensor([1.0, 3.0]))
    >>> d.probs.tolist(), d.log_prob(Tensor([1])).exp().tolist()
    ([0.25, 0.75], [0.75])
    """

    def __init__(self, probs: Any = None, logits: Any = None):
        _one_of("Categorical", probs, logits)
        (given,) = _together(logits if probs is None else probs)
        if not given.ndim:
            raise ShapeError("Categorical: a number has no axis of classes", line=here())
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
        noise = -(-_uniform(shape, self.logits).log()).log()
        return (self.logits.detach() + noise).argmax(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        places, logits = Tensor.broadcast_tensors(value.unsqueeze(-1), self.logits)
        return logits.gather(-1, places[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        return -(self.probs * self.logits.maximum(self.logits.dtype.min)).sum(-1)


class MultivariateNormal(Distribution):
    """The normal distribution of mean `loc`, (*batch, n), and covariance L @ L.T, (*batch, n, n):
    given as `covariance_matrix`, as its inverse `precision_matrix`, or as `scale_tril`, L.

    Raises ConfigError unless one of the three is given.

    >>> d = nn.distributions.MultivariateNormal(Tensor.zeros(2), Tensor.eye(2))
    >>> round(d.log_prob(Tensor([0.0, 0.0])).item(), 4)
    -1.8379
    """

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
    ):
        given = [
            each for each in (covariance_matrix, precision_matrix, scale_tril) if each is not None
        ]
        if len(given) != 1:
            raise ConfigError(
                f"MultivariateNormal: {len(given)} of covariance_matrix, precision_matrix and "
                "scale_tril are given",
                fix="pass one of them",
                line=here(),
            )
        if scale_tril is None:
            scale_tril = (
                given[0] if precision_matrix is None else precision_matrix.inv()
            ).cholesky()
        size = loc._sizes[-1]
        batch = Tensor.broadcast_shapes(loc._sizes[:-1], scale_tril._sizes[:-2])
        self.loc, self.scale_tril = loc.expand(*batch, size), scale_tril.expand(*batch, size, size)
        super().__init__(batch, (size,))

    @property
    def covariance_matrix(self) -> Tensor:
        """L @ L.T."""
        return self.scale_tril @ self.scale_tril.transpose(-2, -1)

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        return self.loc

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        return self.scale_tril.square().sum(-1)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        noise = _normal(self._shape(sample_shape), self.loc)
        return self.loc + (self.scale_tril @ noise.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        apart = (value - self.loc).unsqueeze(-1)
        factor = self.scale_tril.expand(*apart.shape[:-2], *self.scale_tril.shape[-2:])
        white = factor.solve_triangular(apart, upper=False).squeeze(-1)
        return -0.5 * white.square().sum(-1) - self._half_log_det() - self._size() * _HALF_LOG_TAU

    def entropy(self) -> Tensor:
        return self._half_log_det() + self._size() * (0.5 + _HALF_LOG_TAU)

    def _size(self) -> int:
        return self.loc._sizes[-1]

    def _half_log_det(self) -> Tensor:
        return self.scale_tril.diagonal(0, -2, -1).log().sum(-1)


class Independent(Distribution):
    """`base`, whose last `reinterpreted_batch_ndims` axes of the batch are one event.

    >>> d = nn.distributions.Independent(nn.distributions.Normal(Tensor.zeros(4, 3), 1.0), 1)
    >>> d.batch_shape, d.event_shape, d.log_prob(Tensor.zeros(4, 3)).shape
    ((4,), (3,), (4,))
    """

    def __init__(self, base: Distribution, reinterpreted_batch_ndims: int):
        count = reinterpreted_batch_ndims
        if not 0 <= count <= len(base.batch_shape):
            raise ConfigError(
                f"Independent: {count} axes of the batch {show_shape(base.batch_shape)}",
                line=here(),
            )
        self.base, self.count = base, count
        cut = len(base.batch_shape) - count
        super().__init__(base.batch_shape[:cut], base.batch_shape[cut:] + base.event_shape)

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        return self.base.mean

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        return self.base.variance

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.base.sample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.base.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return _over_last(self.base.log_prob(value), self.count)

    def entropy(self) -> Tensor:
        return _over_last(self.base.entropy(), self.count)


def _over_last(x: Tensor, count: int) -> Tensor:
    return x.sum(tuple(range(-count, 0))) if count else x


def _normal(shape: Sequence[Any], like: Tensor) -> Tensor:
    return Tensor.randn(*shape, dtype=like.dtype, device=like.device)


def _uniform(shape: Sequence[Any], like: Tensor) -> Tensor:
    return Tensor.rand(*shape, dtype=like.dtype, device=like.device)


def _kl_normal(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale).square()
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).square() - 1 - ratio.log())


def _kl_laplace(p: Laplace, q: Laplace) -> Tensor:
    apart = (p.loc - q.loc).abs()
    return (
        (q.scale / p.scale).log()
        + apart / q.scale
        + p.scale / q.scale * (-apart / p.scale).exp()
        - 1
    )


def _kl_uniform(p: Uniform, q: Uniform) -> Tensor:
    is_inside = (q.low <= p.low) & (p.high <= q.high)
    return is_inside.where(((q.high - q.low) / (p.high - p.low)).log(), math.inf)


def _kl_exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - 1 - ratio.log()


def _kl_bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    positive = p.logits.logsigmoid() - q.logits.logsigmoid()
    negative = (-p.logits).logsigmoid() - (-q.logits).logsigmoid()
    return p.probs * positive + (1 - p.probs) * negative


def _kl_categorical(p: Categorical, q: Categorical) -> Tensor:
    return p.probs.eq(0).where(0.0, p.probs * (p.logits - q.logits)).sum(-1)


def _kl_multivariate(p: MultivariateNormal, q: MultivariateNormal) -> Tensor:
    size = p._size()
    both = Tensor.broadcast_shapes(p.batch_shape, q.batch_shape)
    own = q.scale_tril.expand(*both, size, size)
    factor = own.solve_triangular(p.scale_tril.expand(*both, size, size), upper=False)
    apart = (q.loc - p.loc).expand(*both, size).unsqueeze(-1)
    white = own.solve_triangular(apart, upper=False)
    square = factor.square().sum((-2, -1)) + white.square().sum((-2, -1))
    return q._half_log_det() - p._half_log_det() + 0.5 * (square - size)


_DIVERGENCES: dict[type[Distribution], Callable[[Any, Any], Tensor]] = {
    Bernoulli: _kl_bernoulli,
    Categorical: _kl_categorical,
    Exponential: _kl_exponential,
    Laplace: _kl_laplace,
    LogNormal: _kl_normal,
    MultivariateNormal: _kl_multivariate,
    Normal: _kl_normal,
    Uniform: _kl_uniform,
}


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The mean of log p - log q over draws of p, for each distribution of the batch.

    Raises ConfigError for distributions of two kinds.

    >>> Normal = nn.distributions.Normal
    >>> nn.distributions.kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0)).item()
    0.5
    """
    if isinstance(p, Independent) and isinstance(q, Independent) and p.count == q.count:
        return _over_last(kl_divergence(p.base, q.base), p.count)
    if type(p) is not type(q) or type(p) not in _DIVERGENCES:
        raise ConfigError(
            f"kl_divergence: there is no formula for {type(p).__name__} and {type(q).__name__}",
            known=", ".join(kind.__name__ for kind in _DIVERGENCES),
            fix="average p.log_prob(x) - q.log_prob(x) over x = p.rsample((n,))",
            line=here(),
        )
    return _DIVERGENCES[type(p)](p, q)
