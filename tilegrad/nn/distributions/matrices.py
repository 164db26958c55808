"""Distributions of matrices: covariances, and factors of correlations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilegrad.base.errors import ConfigError, OptionError
from tilegrad.nn.distributions.distribution import Distribution, normal
from tilegrad.nn.distributions.gamma import Beta, Chi2
from tilegrad.nn.distributions.normal import Correlated, cholesky_of
from tilegrad.tensor.tensor import Tensor

__all__ = ["LKJCholesky", "Wishart"]


class Wishart(Correlated):
    """Wishart distribution: of sums of outer products x x.T, of `df` normal vectors x with mean 0
    and a covariance L @ L.T.

    Args:
        df: degrees of freedom, above the size less one.
        covariance_matrix: the covariance, (*batch, n, n).
        precision_matrix: its inverse, instead.
        scale_tril: L, instead.

    Shape: the batch has the shape of the parameters, events are (n, n); float.

    Raises OptionError unless one of the three is given.

    >>> nn.distributions.Wishart(3.0, Tensor.eye(2)).mean.tolist()
    [[3.0, 0.0], [0.0, 3.0]]
    """

    def __init__(
        self,
        df: Any,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
    ):
        scale_tril = cholesky_of(
            "Wishart", covariance_matrix, precision_matrix, scale_tril, OptionError
        )
        degrees = df if isinstance(df, Tensor) else scale_tril[..., 0, 0].full_like(df)
        size = scale_tril._sizes[-1]
        batch = Tensor.broadcast_shapes(degrees._sizes, scale_tril._sizes[:-2])
        self.df, self.scale_tril = degrees.expand(*batch), scale_tril.expand(*batch, size, size)
        super().__init__(batch, (size, size))

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        return self._degrees() * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        """The likeliest matrix; NaN where `df` is too small for one."""
        factor = self._degrees() - self._size() - 1
        return (factor > 0).where(factor, math.nan) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        covariance = self.covariance_matrix
        diagonal = covariance.diagonal(0, -2, -1)
        products = diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2)
        return self._degrees() * (covariance.square() + products)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        # Bartlett 1933: roots of chi-squared numbers on the diagonal, normal ones below.
        size = self._size()
        steps = Tensor.arange(size, dtype=self.df.dtype, device=self.df.device)
        roots = Chi2(self.df.unsqueeze(-1) - steps).rsample(sample_shape).sqrt()
        noise = normal(self._shape(sample_shape), self.scale_tril)
        factor = self.scale_tril @ (noise.tril(-1) + roots.diag_embed())
        return factor @ factor.transpose(-2, -1)

    def log_prob(self, value: Tensor) -> Tensor:
        size, half = self._size(), self.df / 2
        shape = (*Tensor.broadcast_shapes(value.shape[:-2], self.batch_shape), size, size)
        ratio = value.expand(*shape).cholesky_solve(self.scale_tril.expand(*shape))
        trace = ratio.diagonal(0, -2, -1).sum(-1)
        likelihood = (half - (size + 1) / 2) * value.logdet() - trace / 2
        scale = half * (size * math.log(2)) + self.df * self._log_diagonal()
        return likelihood - scale - half.mvlgamma(size)

    def entropy(self) -> Tensor:
        size, half = self._size(), self.df / 2
        steps = Tensor.arange(size, dtype=self.df.dtype, device=self.df.device) / 2
        slopes = (half.unsqueeze(-1) - steps).digamma().sum(-1)
        volume = (size + 1) * (self._log_diagonal() + size / 2 * math.log(2))
        rest = half.mvlgamma(size) - (half - (size + 1) / 2) * slopes
        return volume + rest + half * size

    def _degrees(self) -> Tensor:
        return self.df.unsqueeze(-1).unsqueeze(-1)

    def _size(self) -> int:
        return self.scale_tril._sizes[-1]

    def _log_diagonal(self) -> Tensor:
        return self.scale_tril.diagonal(0, -2, -1).log().sum(-1)


class LKJCholesky(Distribution):
    """Distribution of the lower Cholesky factors of correlation matrices, whose density is in
    proportion to det ** (concentration - 1) (Lewandowski, Kurowicka and Joe 2009).

    Args:
        dim: rows of the matrices, at least 2.
        concentration: positive; 1 is uniform over correlation matrices.

    Shape: the batch has the shape of `concentration`, events are (dim, dim); float.

    Raises ConfigError for fewer rows.

    >>> nn.distributions.LKJCholesky(3, 2.0).sample().square().sum(-1).round(decimals=4).tolist()
    [1.0, 1.0, 1.0]
    """

    def __init__(self, dim: int, concentration: Any = 1.0):
        if dim < 2:
            raise ConfigError(f"LKJCholesky: dim is {dim}", rule="at least 2")
        self.dim = dim
        self.concentration = (
            concentration if isinstance(concentration, Tensor) else Tensor(float(concentration))
        )
        super().__init__(self.concentration.shape, (dim, dim))

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        # A row of the factor is a point of a ball: a direction, and a distance whose square is a
        # beta number.
        like = self.concentration.unsqueeze(-1)
        steps = Tensor.arange(self.dim - 1, dtype=like.dtype, device=like.device)
        squares = Beta(steps / 2 + 0.5, like + (self.dim - 2) / 2 - steps / 2).sample(sample_shape)
        noise = normal(self._shape(sample_shape), self.concentration).tril(-1)[..., 1:, :]
        directions = noise / noise.square().sum(-1, keepdim=True).sqrt()
        rows = squares.unsqueeze(-1).sqrt() * directions
        lower = Tensor.cat(rows[..., :1, :] * 0, rows, dim=-2)
        rest = (1 - lower.square().sum(-1)).clip(1e-30, 1.0).sqrt()
        return (lower + rest.diag_embed()).detach()

    def log_prob(self, value: Tensor) -> Tensor:
        concentration, size = self.concentration, self.dim
        steps = Tensor.arange(2, size + 1, dtype=value.dtype, device=value.device)
        powers = (concentration.unsqueeze(-1) - 1) * 2 + size - steps
        whole = (powers * value.diagonal(0, -2, -1)[..., 1:].log()).sum(-1)
        alpha = concentration + (size - 1) / 2
        constant = (size - 1) / 2 * math.log(math.pi)
        return whole - ((alpha - 0.5).mvlgamma(size - 1) - alpha.lgamma() * (size - 1) + constant)
