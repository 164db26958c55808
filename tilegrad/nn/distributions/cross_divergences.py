"""Divergences of distributions of two kinds: minus the entropy of the first, and minus the mean of
the second's log density over draws of the first, which follows from moments of the first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilegrad.nn.distributions.bounded import ContinuousBernoulli
from tilegrad.nn.distributions.continuous import (
    Cauchy,
    Exponential,
    Gumbel,
    Laplace,
    Pareto,
    Uniform,
)
from tilegrad.nn.distributions.discrete import Bernoulli, Binomial, Poisson
from tilegrad.nn.distributions.distribution import Distribution
from tilegrad.nn.distributions.gamma import Beta, Gamma, log_beta
from tilegrad.nn.distributions.normal import Normal
from tilegrad.tensor.tensor import Tensor

__all__ = ["CROSS_DIVERGENCES"]

Formula = Callable[[Any, Any], Tensor]

_EULER = 0.57721566490153286


def _infinite(p: Distribution, q: Distribution) -> Tensor:
    """Where the first has draws that the second cannot have."""
    shape = Tensor.broadcast_shapes(p.batch_shape, q.batch_shape)
    like: Any = next(each for each in vars(p).values() if isinstance(each, Tensor))
    return Tensor.full(shape, math.inf, dtype=like.dtype, device=like.device)


def _where(is_inside: Tensor, found: Tensor) -> Tensor:
    return is_inside.where(found, math.inf)


# Divergences that hold for the second distribution, from moments of the first.


def _to_normal(p: Any, q: Normal) -> Tensor:
    square = (p.variance + (p.mean - q.loc).square()) / q.scale.square()
    found: Tensor = 0.5 * (square + math.log(2 * math.pi)) + q.scale.log() - p.entropy()
    return found


def _to_exponential(p: Any, q: Exponential) -> Tensor:
    found: Tensor = q.rate * p.mean - q.rate.log() - p.entropy()
    return found


def _to_gamma(p: Any, q: Gamma) -> Tensor:
    a, rate = q.concentration, q.rate
    mean = (a - 1) * _mean_log(p) - rate * p.mean
    found: Tensor = a.lgamma() - a * rate.log() - mean - p.entropy()
    return found


def _to_gumbel(p: Any, q: Gumbel) -> Tensor:
    # The mean of exp(-x / scale), an exponent that is moved to where the second is.
    falls = (q.loc / q.scale).exp() * _mean_falling(p, 1 / q.scale)
    found: Tensor = q.scale.log() + (p.mean - q.loc) / q.scale + falls - p.entropy()
    return found


def _to_continuous_bernoulli(p: Any, q: ContinuousBernoulli) -> Tensor:
    # Its log density is a straight line.
    found: Tensor = -q.log_prob(p.mean) - p.entropy()
    return found


def _mean_log(p: Any) -> Tensor:
    """The mean of log x over draws of a positive distribution."""
    found: Tensor
    if isinstance(p, Beta):
        a, b = p.concentration1, p.concentration0
        found = a.digamma() - (a + b).digamma()
    elif isinstance(p, Gamma):
        found = p.concentration.digamma() - p.rate.log()
    elif isinstance(p, Exponential):
        found = -_EULER - p.rate.log()
    elif isinstance(p, Pareto):
        found = p.scale.log() + 1 / p.alpha
    else:
        found = (_x_log_x(p.high) - _x_log_x(p.low)) / (p.high - p.low) - 1
    return found


def _x_log_x(x: Tensor) -> Tensor:
    is_positive = x > 0
    return is_positive.where(x * is_positive.where(x, 1.0).log(), 0.0)


def _mean_falling(p: Any, rate: Tensor) -> Tensor:
    """The mean of exp(-rate * x) over draws."""
    found: Tensor
    if isinstance(p, Exponential):
        found = p.rate / (p.rate + rate)
    elif isinstance(p, Gamma):
        found = (p.rate / (p.rate + rate)) ** p.concentration
    elif isinstance(p, Gumbel):
        found = (-p.loc * rate + (1 + p.scale * rate).lgamma()).exp()
    elif isinstance(p, Normal):
        found = (-p.loc * rate + (p.scale * rate).square() / 2).exp()
    else:
        found = ((-p.low * rate).exp() - (-p.high * rate).exp()) / (rate * (p.high - p.low))
    return found


# Single pairs.


def _bernoulli_poisson(p: Bernoulli, q: Poisson) -> Tensor:
    return q.rate - p.probs * q.rate.log() - p.entropy()


def _binomials(p: Binomial, q: Binomial) -> Tensor:
    each = p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    return _where(p.total_count == q.total_count, p.total_count * each)


def _cauchys(p: Cauchy, q: Cauchy) -> Tensor:
    both = (p.scale + q.scale).square() + (p.loc - q.loc).square()
    return (both / (4 * p.scale * q.scale)).log()


def _beta_uniform(p: Beta, q: Uniform) -> Tensor:
    return _where((q.low <= 0) & (q.high >= 1), (q.high - q.low).log() - p.entropy())


def _normal_laplace(p: Normal, q: Laplace) -> Tensor:
    apart = p.loc - q.loc
    ratio = apart / (p.scale * math.sqrt(2))
    size = p.scale * math.sqrt(2 / math.pi) * (-ratio.square()).exp() + apart * ratio.erf()
    return (2 * q.scale).log() + size / q.scale - p.entropy()


def _paretos(p: Pareto, q: Pareto) -> Tensor:
    mean = q.alpha.log() + q.alpha * q.scale.log() - (q.alpha + 1) * _mean_log(p)
    return _where(p.scale >= q.scale, -mean - p.entropy())


def _uniform_pareto(p: Uniform, q: Pareto) -> Tensor:
    mean = q.alpha.log() + q.alpha * q.scale.log() - (q.alpha + 1) * _mean_log(p)
    return _where(p.low >= q.scale, -mean - p.entropy())


def _uniform_beta(p: Uniform, q: Beta) -> Tensor:
    a, b = q.concentration1, q.concentration0
    mirrored = Uniform(1 - p.high, 1 - p.low)
    found = log_beta(a, b) - (a - 1) * _mean_log(p) - (b - 1) * _mean_log(mirrored)
    return _where((p.low >= 0) & (p.high <= 1), found - p.entropy())


def _uniform_continuous_bernoulli(p: Uniform, q: ContinuousBernoulli) -> Tensor:
    return _where((p.low >= 0) & (p.high <= 1), _to_continuous_bernoulli(p, q))


def _uniform_exponential(p: Uniform, q: Exponential) -> Tensor:
    return _where(p.low >= 0, _to_exponential(p, q))


def _uniform_gamma(p: Uniform, q: Gamma) -> Tensor:
    return _where(p.low >= 0, _to_gamma(p, q))


_BOUNDED = (Beta, ContinuousBernoulli)
_UNBOUNDED = (Exponential, Gamma, Gumbel, Laplace, Normal, Pareto)
_SIGNED = (Gumbel, Laplace, Normal)

CROSS_DIVERGENCES: dict[tuple[type[Any], type[Any]], Formula] = {
    **{(kind, Normal): _to_normal for kind in (*_BOUNDED, *_UNBOUNDED, Uniform)},
    **{(kind, Exponential): _to_exponential for kind in (*_BOUNDED, Gamma, Pareto)},
    **{(kind, Gamma): _to_gamma for kind in (Beta, Exponential, Pareto)},
    **{(kind, Gumbel): _to_gumbel for kind in (Exponential, Gamma, Gumbel, Normal, Uniform)},
    **{(kind, ContinuousBernoulli): _to_continuous_bernoulli for kind in _BOUNDED},
    **{(kind, other): _infinite for kind in _UNBOUNDED for other in (*_BOUNDED, Pareto, Uniform)},
    **{(kind, other): _infinite for kind in _SIGNED for other in (Exponential, Gamma)},
    **{(kind, Pareto): _infinite for kind in _BOUNDED},
    **{(kind, Uniform): _beta_uniform for kind in _BOUNDED},
    **{(Poisson, kind): _infinite for kind in (Bernoulli, Binomial)},
    (Bernoulli, Poisson): _bernoulli_poisson,
    (Binomial, Binomial): _binomials,
    (Cauchy, Cauchy): _cauchys,
    (Normal, Laplace): _normal_laplace,
    (Pareto, Pareto): _paretos,
    (Uniform, Beta): _uniform_beta,
    (Uniform, ContinuousBernoulli): _uniform_continuous_bernoulli,
    (Uniform, Exponential): _uniform_exponential,
    (Uniform, Gamma): _uniform_gamma,
    (Uniform, Pareto): _uniform_pareto,
}  # fmt: skip
del CROSS_DIVERGENCES[Normal, Normal]
