"""Normal distributions of long vectors, whose covariance is given by few columns."""

from __future__ import annotations

from collections.abc import Sequence

from tilegrad.nn.distributions.distribution import HALF_LOG_TAU, Distribution, normal
from tilegrad.tensor.tensor import Tensor

__all__ = ["LowRankMultivariateNormal"]


class LowRankMultivariateNormal(Distribution):
    """Normal distribution of vectors with covariance W @ W.T + diag(d), by matrices of the size of
    the columns alone.

    Args:
        loc: the mean, (*batch, n).
        cov_factor: W, (*batch, n, k).
        cov_diag: d, positive, (*batch, n).

    Shape: batch (*batch), events (n,), float.

    >>> loc, d = Tensor.zeros(2), Tensor.ones(2)
    >>> made = nn.distributions.LowRankMultivariateNormal(loc, Tensor([[1.0], [0.0]]), d)
    >>> made.covariance_matrix.tolist(), made.variance.tolist()
    ([[2.0, 0.0], [0.0, 1.0]], [2.0, 1.0])
    """

    def __init__(self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor):
        size, rank = cov_factor._sizes[-2:]
        batch = Tensor.broadcast_shapes(
            loc._sizes[:-1], cov_factor._sizes[:-2], cov_diag._sizes[:-1]
        )
        self.loc, self.cov_diag = loc.expand(*batch, size), cov_diag.expand(*batch, size)
        self.cov_factor = cov_factor.expand(*batch, size, rank)
        # By Woodbury's identity and Sylvester's all comes down to this matrix of k rows.
        self._scaled = self.cov_factor / self.cov_diag.unsqueeze(-1)
        inner = self.cov_factor.transpose(-2, -1) @ self._scaled
        unit = Tensor.eye(rank, dtype=inner.dtype, device=inner.device)
        self._capacitance_tril = (inner + unit).cholesky()
        super().__init__(batch, (size,))

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        return self.loc

    @property
    def mode(self) -> Tensor:
        """The likeliest value."""
        return self.loc

    @property
    def variance(self) -> Tensor:  # type: ignore[override]
        return self.cov_factor.square().sum(-1) + self.cov_diag

    @property
    def covariance_matrix(self) -> Tensor:
        """W @ W.T + diag(d)."""
        return self.cov_factor @ self.cov_factor.transpose(-2, -1) + self.cov_diag.diag_embed()

    @property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        white = self._capacitance_tril.solve_triangular(self._scaled.transpose(-2, -1), upper=False)
        return self.cov_diag.reciprocal().diag_embed() - white.transpose(-2, -1) @ white

    @property
    def scale_tril(self) -> Tensor:
        """The Cholesky factor of the covariance, lower triangular."""
        return self.covariance_matrix.cholesky()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._shape(sample_shape)
        columns = normal((*shape[:-1], self.cov_factor._sizes[-1]), self.loc)
        spread = (self.cov_factor @ columns.unsqueeze(-1)).squeeze(-1)
        return self.loc + spread + self.cov_diag.sqrt() * normal(shape, self.loc)

    def log_prob(self, value: Tensor) -> Tensor:
        apart = value - self.loc
        projected = (self._scaled.transpose(-2, -1) @ apart.unsqueeze(-1)).squeeze(-1)
        factor = self._capacitance_tril.expand(
            *projected.shape[:-1], *self._capacitance_tril.shape[-2:]
        )
        white = factor.solve_triangular(projected.unsqueeze(-1), upper=False).squeeze(-1)
        square = (apart.square() / self.cov_diag).sum(-1) - white.square().sum(-1)
        return -0.5 * square - self._half_log_det() - self._size() * HALF_LOG_TAU

    def entropy(self) -> Tensor:
        return self._half_log_det() + self._size() * (0.5 + HALF_LOG_TAU)

    def _size(self) -> int:
        return self.loc._sizes[-1]

    def _half_log_det(self) -> Tensor:
        diagonal = self._capacitance_tril.diagonal(0, -2, -1)
        return diagonal.log().sum(-1) + 0.5 * self.cov_diag.log().sum(-1)
