"""Divergences of two distributions of a kind: the mean of log p - log q over draws of p."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

from tilegrad.nn.distributions.bounded import LogisticNormal
from tilegrad.nn.distributions.continuous import Exponential, HalfCauchy, Laplace, Uniform
from tilegrad.nn.distributions.cross_divergences import CROSS_DIVERGENCES
from tilegrad.nn.distributions.discrete import (
    Bernoulli,
    Categorical,
    Geometric,
    OneHotCategorical,
    Poisson,
)
from tilegrad.nn.distributions.distribution import (
    Distribution,
    Independent,
    NoFormulaError,
    over_last,
)
from tilegrad.nn.distributions.gamma import Beta, Dirichlet, Gamma, InverseGamma, log_beta
from tilegrad.nn.distributions.low_rank import LowRankMultivariateNormal
from tilegrad.nn.distributions.matrices import Wishart
from tilegrad.nn.distributions.normal import HalfNormal, LogNormal, MultivariateNormal, Normal
from tilegrad.nn.distributions.transforms import TransformedDistribution
from tilegrad.tensor.tensor import Tensor

__all__ = ["DIVERGENCES", "kl_divergence", "register_kl"]

_Gaussian = MultivariateNormal | LowRankMultivariateNormal


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


def _kl_multivariate(p: _Gaussian, q: _Gaussian) -> Tensor:
    size = p._size()
    both = Tensor.broadcast_shapes(p.batch_shape, q.batch_shape)
    own = q.scale_tril.expand(*both, size, size)
    factor = own.solve_triangular(p.scale_tril.expand(*both, size, size), upper=False)
    apart = (q.loc - p.loc).expand(*both, size).unsqueeze(-1)
    white = own.solve_triangular(apart, upper=False)
    square = factor.square().sum((-2, -1)) + white.square().sum((-2, -1))
    return q._half_log_det() - p._half_log_det() + 0.5 * (square - size)


def _kl_gamma(p: Gamma, q: Gamma) -> Tensor:
    a, b = p.concentration, q.concentration
    ratio = q.rate / p.rate
    return (a - b) * a.digamma() - a.lgamma() + b.lgamma() - b * ratio.log() + a * (ratio - 1)


def _kl_beta(p: Beta, q: Beta) -> Tensor:
    a, b, c, d = p.concentration1, p.concentration0, q.concentration1, q.concentration0
    rises = (a - c) * a.digamma() + (b - d) * b.digamma() + (c + d - a - b) * (a + b).digamma()
    return log_beta(c, d) - log_beta(a, b) + rises


def _kl_dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    rises = (a - b) * (a.digamma() - total.digamma().unsqueeze(-1))
    return total.lgamma() - b.sum(-1).lgamma() + (b.lgamma() - a.lgamma() + rises).sum(-1)


def _kl_poisson(p: Poisson, q: Poisson) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


def _kl_geometric(p: Geometric, q: Geometric) -> Tensor:
    return -p.entropy() - (-q.probs).log1p() * p.mean - q.probs.log()


def _kl_half_normal(p: HalfNormal, q: HalfNormal) -> Tensor:
    ratio = (p.scale / q.scale).square()
    return 0.5 * (ratio - 1 - ratio.log())


def _kl_one_hot(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    return _kl_categorical(p._classes, q._classes)


def _kl_inverse_gamma(p: InverseGamma, q: InverseGamma) -> Tensor:
    return _kl_gamma(p.base, q.base)


def _kl_half_cauchy(p: HalfCauchy, q: HalfCauchy) -> Tensor:
    # Both are even around 0, so that halves differ as the whole ones do.
    return kl_divergence(p._whole, q._whole)


def _kl_logistic_normal(p: LogisticNormal, q: LogisticNormal) -> Tensor:
    return _kl_normal(p.base_dist, q.base_dist).sum(-1)


def _kl_wishart(p: Wishart, q: Wishart) -> Tensor:
    size, one, other = p._size(), p.df / 2, q.df / 2
    factor = q.scale_tril.solve_triangular(p.scale_tril, upper=False)
    trace = factor.square().sum((-2, -1))
    steps = Tensor.arange(size, dtype=p.df.dtype, device=p.df.device) / 2
    slopes = (one.unsqueeze(-1) - steps).digamma().sum(-1)
    scales = q.df * (q._log_diagonal() - p._log_diagonal()) + one * (trace - size)
    return scales + other.mvlgamma(size) - one.mvlgamma(size) + (one - other) * slopes


def _kl_transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.event_shape != q.event_shape or p.transforms != q.transforms:
        raise NoFormulaError(
            "kl_divergence: there is no formula for distributions of different transforms"
        )
    apart = kl_divergence(p.base_dist, q.base_dist)
    return over_last(apart, len(p.event_shape) - len(p.base_dist.event_shape))


DIVERGENCES: dict[type[Distribution], Callable[[Any, Any], Tensor]] = {
    Bernoulli: _kl_bernoulli,
    Beta: _kl_beta,
    Categorical: _kl_categorical,
    Dirichlet: _kl_dirichlet,
    Exponential: _kl_exponential,
    Gamma: _kl_gamma,
    Geometric: _kl_geometric,
    HalfCauchy: _kl_half_cauchy,
    HalfNormal: _kl_half_normal,
    InverseGamma: _kl_inverse_gamma,
    Laplace: _kl_laplace,
    LogNormal: _kl_normal,
    LogisticNormal: _kl_logistic_normal,
    MultivariateNormal: _kl_multivariate,
    Normal: _kl_normal,
    OneHotCategorical: _kl_one_hot,
    Poisson: _kl_poisson,
    TransformedDistribution: _kl_transformed,
    Uniform: _kl_uniform,
    Wishart: _kl_wishart,
}


def register_kl(
    type_p: type[Distribution], type_q: type[Distribution]
) -> Callable[[Callable[[Any, Any], Tensor]], Callable[[Any, Any], Tensor]]:
    """Decorator: register a function as the divergence of two kinds of distributions.

    Args:
        type_p: class of the first.
        type_q: class of the second.

    Returns the decorator; the function takes (p, q) and gives a tensor of the shape of the batch.

    >>> D = nn.distributions
    >>> class Arrival(D.Uniform):
    ...     "When a customer comes."
    >>> @D.register_kl(Arrival, D.Exponential)
    ... def between(p, q):
    ...     return q.rate * p.mean - q.rate.log() - (p.high - p.low).log()
    >>> D.kl_divergence(Arrival(0.0, 1.0), D.Exponential(1.0)).item()
    0.5
    """

    def register(function: Callable[[Any, Any], Tensor]) -> Callable[[Any, Any], Tensor]:
        _REGISTERED[type_p, type_q] = function
        return function

    return register


_Formulas = dict[tuple[type[Any], type[Any]], Callable[[Any, Any], Tensor]]
_REGISTERED: _Formulas = {}
# Divergences between two classes; a factored covariance has a Cholesky factor like any other.
_BETWEEN: _Formulas = {
    (LowRankMultivariateNormal, LowRankMultivariateNormal): _kl_multivariate,
    (LowRankMultivariateNormal, MultivariateNormal): _kl_multivariate,
    (MultivariateNormal, LowRankMultivariateNormal): _kl_multivariate,
    **CROSS_DIVERGENCES,
}


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """Kullback-Leibler divergence: the mean of log p - log q over draws of p.

    Args:
        p: a distribution.
        q: a distribution of a registered pair of classes.

    Returns a float tensor of the shape of the batch.

    Raises NoFormulaError for classes that have no formula.

    >>> Normal = nn.distributions.Normal
    >>> nn.distributions.kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0)).item()
    0.5
    """
    if isinstance(p, Independent) and isinstance(q, Independent) and p.count == q.count:
        return over_last(kl_divergence(p.base, q.base), p.count)
    found = _formula_of(type(p), type(q))
    if found is None:
        raise NoFormulaError(
            f"kl_divergence: there is no formula for {type(p).__name__} and {type(q).__name__}",
            known=", ".join(kind.__name__ for kind in DIVERGENCES),
            remedy="average p.log_prob(x) - q.log_prob(x) over x = p.rsample((n,))",
        )
    return found(p, q)


def _formula_of(first: type[Any], second: type[Any]) -> Callable[[Any, Any], Tensor] | None:
    """The formula of two classes, or of the nearest classes that they are kinds of."""
    # A lognormal distribution is normal in the class only.
    is_apart = issubclass(first, LogNormal) is not issubclass(second, LogNormal)
    for registered in (_REGISTERED,) if is_apart else (_REGISTERED, _BETWEEN):
        for pair in itertools.product(first.__mro__, second.__mro__):
            if pair in registered:
                return registered[pair]
    for kind in () if is_apart else first.__mro__:
        if kind in DIVERGENCES and issubclass(second, kind):
            return DIVERGENCES[kind]
    return None
