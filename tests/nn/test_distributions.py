"""Distributions against SciPy's, and draws against their moments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special
import scipy.stats

from tilegrad import Tensor, nn
from tilegrad.base.errors import ConfigError, ShapeError

D = nn.distributions
rng = np.random.default_rng(0)
LOC, SCALE = rng.normal(size=(3, 2)), np.exp(rng.normal(size=(3, 2)))
SHARES = scipy.special.softmax(rng.normal(size=(3, 4)), -1)
FACTOR = np.tril(rng.normal(size=(2, 2))) + 2 * np.eye(2)

# Ours, SciPy's, and values; where SciPy has no batch, a list of its distributions.
CASES: dict[str, tuple[Any, Any, Any]] = {
    "Normal": (D.Normal(Tensor(LOC), Tensor(SCALE)), scipy.stats.norm(LOC, SCALE), LOC + 0.5),
    "LogNormal": (
        D.LogNormal(Tensor(LOC), Tensor(SCALE)),
        scipy.stats.lognorm(SCALE, scale=np.exp(LOC)),
        SCALE,
    ),
    "Laplace": (
        D.Laplace(Tensor(LOC), Tensor(SCALE)),
        scipy.stats.laplace(LOC, SCALE),
        LOC - 0.5,
    ),
    "Uniform": (
        D.Uniform(Tensor(LOC), Tensor(LOC + SCALE)),
        scipy.stats.uniform(LOC, SCALE),
        LOC + 0.3 * SCALE,
    ),
    "Exponential": (
        D.Exponential(Tensor(SCALE)),
        scipy.stats.expon(scale=1 / SCALE),
        np.abs(LOC),
    ),
    "Bernoulli": (
        D.Bernoulli(logits=Tensor(LOC)),
        scipy.stats.bernoulli(scipy.special.expit(LOC)),
        (LOC > 0) * 1.0,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_densities_and_moments(name: str) -> None:
    ours, theirs, value = CASES[name]
    density = theirs.logpmf if name == "Bernoulli" else theirs.logpdf
    np.testing.assert_allclose(ours.log_prob(Tensor(value)).numpy(), density(value), rtol=1e-9)
    np.testing.assert_allclose(ours.entropy().numpy(), theirs.entropy(), rtol=1e-9)
    np.testing.assert_allclose(ours.mean.numpy(), theirs.mean(), rtol=1e-9)
    np.testing.assert_allclose(ours.stddev.numpy(), theirs.std(), rtol=1e-9)
    if hasattr(ours, "cdf"):
        np.testing.assert_allclose(ours.cdf(Tensor(value)).numpy(), theirs.cdf(value), rtol=1e-6)
    Tensor.manual_seed(3)
    drawn = ours.sample((4000,)).numpy()
    assert drawn.shape == (4000, 3, 2)
    if name != "LogNormal":
        error = (drawn.mean(0) - theirs.mean()) / theirs.std()
        assert np.abs(error).max() < 4 / np.sqrt(4000)


def test_classes() -> None:
    ours = D.Categorical(probs=Tensor(3 * SHARES))
    places = np.array([[0, 3, 2], [1, 1, 1]])
    expected = np.log(np.take_along_axis(SHARES[None], places[..., None], -1)[..., 0])
    np.testing.assert_allclose(ours.log_prob(Tensor(places)).numpy(), expected, rtol=1e-9)
    np.testing.assert_allclose(ours.entropy().numpy(), scipy.stats.entropy(SHARES, axis=-1))
    logits = D.Categorical(logits=Tensor(np.log(SHARES) + 7))
    np.testing.assert_allclose(logits.probs.numpy(), SHARES)
    Tensor.manual_seed(5)
    drawn = ours.sample((4000,)).numpy()
    found = np.stack([(drawn == place).mean(0) for place in range(4)], -1)
    assert drawn.shape == (4000, 3) and np.abs(found - SHARES).max() < 4 * 0.5 / np.sqrt(4000)


def test_vectors() -> None:
    covariance = FACTOR @ FACTOR.T
    theirs = [scipy.stats.multivariate_normal(loc, covariance) for loc in LOC]
    for given in (
        {"covariance_matrix": covariance},
        {"precision_matrix": np.linalg.inv(covariance)},
        {"scale_tril": FACTOR},
    ):
        ours = D.MultivariateNormal(Tensor(LOC), **{k: Tensor(v) for k, v in given.items()})
        expected = [each.logpdf(np.ones(2)) for each in theirs]
        np.testing.assert_allclose(ours.log_prob(Tensor(np.ones(2))).numpy(), expected, rtol=1e-9)
        np.testing.assert_allclose(ours.entropy().numpy(), [each.entropy() for each in theirs])
    drawn = ours.rsample((2, 5))
    assert drawn.shape == (2, 5, 3, 2) and ours.sample().shape == (3, 2)


def test_divergences() -> None:
    """Of numbers, by the means over 20000 quantiles; of classes and vectors, by their formulas."""
    share = (np.arange(20000) + 0.5) / 20000
    stats: Any = scipy.stats
    for (p, first), (q, second) in (
        ((D.Normal(0.5, 2.0), stats.norm(0.5, 2.0)), (D.Normal(1.0, 1.5), stats.norm(1.0, 1.5))),
        (
            (D.Laplace(0.5, 2.0), stats.laplace(0.5, 2)),
            (D.Laplace(1.0, 1.5), stats.laplace(1, 1.5)),
        ),
        ((D.Exponential(2.0), stats.expon(scale=0.5)), (D.Exponential(1.0), stats.expon())),
        ((D.Uniform(0.0, 1.0), stats.uniform(0, 1)), (D.Uniform(-1.0, 3.0), stats.uniform(-1, 4))),
    ):
        x = first.ppf(share)
        expected = (first.logpdf(x) - second.logpdf(x)).mean()
        assert D.kl_divergence(p, q).item() == pytest.approx(expected, rel=2e-3)
    one, two = D.Categorical(probs=Tensor(SHARES[0])), D.Categorical(probs=Tensor(SHARES[1]))
    expected = (SHARES[0] * np.log(SHARES[0] / SHARES[1])).sum()
    assert D.kl_divergence(one, two).item() == pytest.approx(expected)
    expected = 0.25 * np.log(0.25 / 0.5) + 0.75 * np.log(0.75 / 0.5)
    assert D.kl_divergence(D.Bernoulli(0.25), D.Bernoulli(0.5)).item() == pytest.approx(expected)
    wide = D.MultivariateNormal(Tensor(LOC), scale_tril=Tensor(FACTOR))
    plain = D.MultivariateNormal(Tensor.zeros(2).double(), Tensor(np.eye(2)))
    squares = (FACTOR**2).sum() + (LOC**2).sum(-1)
    expected = (squares - 2) / 2 - np.log(np.diag(FACTOR)).sum()
    np.testing.assert_allclose(D.kl_divergence(wide, plain).numpy(), expected, rtol=1e-6)
    apart = [D.Independent(D.Normal(Tensor(LOC), scale), 1) for scale in (1.0, 2.0)]
    expected = 2 * (np.log(2) + 0.125 - 0.5)
    np.testing.assert_allclose(D.kl_divergence(*apart).numpy(), [expected] * 3, rtol=1e-6)


def test_gradients_go_through_draws() -> None:
    scale = Tensor([1.0, 2.0], requires_grad=True)
    (found,) = D.Normal(3.0, scale).rsample((5,)).sum().gradient(scale)
    assert found.shape == (2,) and np.abs(found.numpy()).min() > 0
    assert D.Normal(3.0, scale).sample().gradient(scale, gradient=Tensor.ones(2)) == [None]


def test_what_is_refused() -> None:
    with pytest.raises(ConfigError, match="Bernoulli: both of probs and logits given"):
        D.Bernoulli(probs=0.5, logits=0.0)
    with pytest.raises(ShapeError, match="Categorical: a number has no axis of classes"):
        D.Categorical(probs=0.5)
    with pytest.raises(ConfigError, match=r"Categorical\.rsample: a draw has no gradient"):
        D.Categorical(probs=Tensor([1.0])).rsample()
    with pytest.raises(ConfigError, match="no formula for Normal and Laplace"):
        D.kl_divergence(D.Normal(0.0, 1.0), D.Laplace(0.0, 1.0))
    with pytest.raises(ConfigError, match="2 of covariance_matrix, precision_matrix and"):
        D.MultivariateNormal(Tensor([0.0]), Tensor([[1.0]]), Tensor([[1.0]]))
