"""Normal distributions, of numbers, of their exponentials and magnitudes, and of vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilegrad.base.errors import ConfigError
from tilegrad.nn.distributions.distribution import (
    HALF_LOG_TAU,
    Distribution,
    LocationScale,
    normal,
    together,
)
from tilegrad.tensor.tensor import Tensor

__all__ = ["HalfNormal", "LogNormal", "MultivariateNormal", "Normal"]


class Normal(LocationScale):
    """Normal distribution: density exp(-((x - loc) / scale)^2 / 2) / (scale sqrt(2 pi)).

    Args:
        loc: the mean.
        scale: the standard deviation, positive.

    Shape: parameters broadcast to the batch, events are numbers; float.

    >>> d = nn.distributions.Normal(0.0, 2.0)
    >>> round(d.log_prob(Tensor(2.0)).item(), 4), d.sample((3,)).shape
    (-2.1121, (3,))
    """

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        return self.scale.square()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.loc + self.scale * normal(self._shape(sample_shape), self.loc)

    def log_prob(self, value: Tensor) -> Tensor:
        return -0.5 * self._standard(value).square() - self.scale.log() - HALF_LOG_TAU

    def entropy(self) -> Tensor:
        return self.scale.log() + (0.5 + HALF_LOG_TAU)

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of at most `value`."""
        return 0.5 * (1 + (self._standard(value) / math.sqrt(2)).erf())

    def icdf(self, share: Tensor) -> Tensor:
        """The value that is not exceeded with probability `share`."""
        return self.loc + self.scale * (2 * share - 1).erfinv() * math.sqrt(2)


class LogNormal(Normal):
    """Distribution of exp(x) where x is normal.

    Args:
        loc: mean of x.
        scale: standard deviation of x, positive.

    Shape: parameters broadcast to the batch, events are numbers; float.

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


def cholesky_of(
    name: str,
    covariance_matrix: Tensor | None,
    precision_matrix: Tensor | None,
    scale_tril: Tensor | None,
    error: type[ConfigError] = ConfigError,
) -> Tensor:
    """The lower triangle L of a covariance L @ L.T that is given in one of three ways.

    Raises `error` unless one of the three is given.
    """
    given = [each for each in (covariance_matrix, precision_matrix, scale_tril) if each is not None]
    if len(given) != 1:
        raise error(
            f"{name}: {len(given)} of covariance_matrix, precision_matrix and scale_tril are given",
            remedy="pass one of them",
        )
    if scale_tril is not None:
        return scale_tril
    return (given[0] if precision_matrix is None else precision_matrix.inv()).cholesky()


class Correlated(Distribution):
    """A distribution whose covariance is L @ L.T, with L as `scale_tril`."""

    scale_tril: Tensor

    @property
    def covariance_matrix(self) -> Tensor:
        """L @ L.T."""
        return self.scale_tril @ self.scale_tril.transpose(-2, -1)

    @property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        identity = Tensor.eye(self.scale_tril._sizes[-1], dtype=self.scale_tril.dtype)
        identity = identity.to(self.scale_tril.device).expand_as(self.scale_tril)
        inverse = self.scale_tril.solve_triangular(identity, upper=False)
        return inverse.transpose(-2, -1) @ inverse


class MultivariateNormal(Correlated):
    """Normal distribution of vectors with mean `loc` and covariance L @ L.T.

    Args:
        loc: the mean, (*batch, n).
        covariance_matrix: the covariance, (*batch, n, n).
        precision_matrix: its inverse, instead.
        scale_tril: L, instead.

    Shape: batch (*batch), events (n,), float.

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
        scale_tril = cholesky_of(
            "MultivariateNormal", covariance_matrix, precision_matrix, scale_tril
        )
        size = loc._sizes[-1]
        batch = Tensor.broadcast_shapes(loc._sizes[:-1], scale_tril._sizes[:-2])
        self.loc, self.scale_tril = loc.expand(*batch, size), scale_tril.expand(*batch, size, size)
        super().__init__(batch, (size,))

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        return self.loc

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        return self.scale_tril.square().sum(-1)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        noise = normal(self._shape(sample_shape), self.loc)
        return self.loc + (self.scale_tril @ noise.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        apart = (value - self.loc).unsqueeze(-1)
        factor = self.scale_tril.expand(*apart.shape[:-2], *self.scale_tril.shape[-2:])
        white = factor.solve_triangular(apart, upper=False).squeeze(-1)
        return -0.5 * white.square().sum(-1) - self._half_log_det() - self._size() * HALF_LOG_TAU

    def entropy(self) -> Tensor:
        return self._half_log_det() + self._size() * (0.5 + HALF_LOG_TAU)

    def _size(self) -> int:
        return self.loc._sizes[-1]

    def _half_log_det(self) -> Tensor:
        return self.scale_tril.diagonal(0, -2, -1).log().sum(-1)


class HalfNormal(Distribution):
    """Distribution of |x| where x is normal with mean 0.

    Args:
        scale: standard deviation of x, positive.

    Shape: the batch has the shape of the parameter, events are numbers; float.

    >>> round(nn.distributions.HalfNormal(1.0).mean.item(), 4)
    0.7979
    """

    def __init__(self, scale: Any):
        (self.scale,) = together(scale)
        super().__init__(self.scale.shape)

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def mode(self) -> Tensor:
        """The likeliest value, 0."""
        return self.scale.zeros_like()

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        return self.scale.square() * (1 - 2 / math.pi)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return (self.scale * normal(self._shape(sample_shape), self.scale)).abs()

    def log_prob(self, value: Tensor) -> Tensor:
        density = (
            -0.5 * (value / self.scale).square() - self.scale.log() + (math.log(2) - HALF_LOG_TAU)
        )
        return (value >= 0).where(density, -math.inf)

    def entropy(self) -> Tensor:
        return self.scale.log() + (0.5 + HALF_LOG_TAU - math.log(2))

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of at most `value`."""
        return (value / (self.scale * math.sqrt(2))).erf().relu()

    def icdf(self, share: Tensor) -> Tensor:
        """The value that is not exceeded with probability `share`."""
        return self.scale * share.erfinv() * math.sqrt(2)
