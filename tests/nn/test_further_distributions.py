"""Distributions on intervals, circles and simplexes, and of low rank: beside SciPy, integrals and
PyTorch 2.13; draws beside their distribution functions; gradients of draws of gamma distributions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats

import tilegrad.torch as torch
from tilegrad import Tensor, nn

D = nn.distributions
A, B = np.array([0.5, 2.0, 3.0]), np.array([1.0, 0.7, 4.0])
PROBS = np.array([0.01, 0.3, 0.499999, 0.5, 0.6, 0.95])
KAPPA = np.array([0.01, 1.0, 50.0, 700.0])
# log_prob of PyTorch 2.13.
LOGISTIC = [-23.54117600534066, 2.4514102476657684]


def kumaraswamy(place: int) -> Callable[[float], float]:
    a, b = A[place], B[place]
    return lambda x: a * b * x ** (a - 1) * (1 - x**a) ** (b - 1)


def bernoulli(place: int) -> Callable[[float], float]:
    p = PROBS[place]
    scale = scipy.integrate.quad(lambda x: p**x * (1 - p) ** (1 - x), 0, 1, epsabs=1e-14)[0]
    return lambda x: p**x * (1 - p) ** (1 - x) / scale


@pytest.mark.parametrize(
    ("made", "density"),
    [
        (D.Kumaraswamy(Tensor(A), Tensor(B)), kumaraswamy),
        (D.ContinuousBernoulli(Tensor(PROBS)), bernoulli),
    ],
)
def test_distributions_between_0_and_1_are_those_of_their_density(
    made: Any, density: Callable[[int], Callable[[float], float]]
) -> None:
    for place in range(made.batch_shape[0]):
        f = density(place)

        def mean(of: Callable[[float], float], up: float = 1.0, f: Any = f) -> float:
            return scipy.integrate.quad(lambda x: of(x) * f(x), 0, up, epsabs=1e-11, limit=200)[0]

        first = mean(lambda x: x)
        wanted = {
            "mean": first,
            "variance": mean(lambda x, first=first: (x - first) ** 2),
            "entropy": mean(lambda x, f=f: -math.log(f(x))),
            "log_prob": math.log(f(0.3)),
            "cdf": mean(lambda x: 1.0, 0.3),
        }
        share = made.cdf(Tensor(np.array(0.3)))
        found = {
            "mean": made.mean, "variance": made.variance, "entropy": made.entropy(),
            "log_prob": made.log_prob(Tensor(np.array(0.3))), "cdf": share,
        }  # fmt: skip
        for name, value in wanted.items():
            assert found[name][place].item() == pytest.approx(value, rel=1e-7), name
        assert made.icdf(share)[place].item() == pytest.approx(0.3, rel=1e-6)


def test_modes_of_kumaraswamys_distribution() -> None:
    found = D.Kumaraswamy(Tensor(A), Tensor(B)).mode.numpy()
    np.testing.assert_allclose(found, [np.nan, np.nan, (2 / 11) ** (1 / 3)], rtol=1e-6)


def test_von_mises_is_that_of_scipy() -> None:
    loc = np.array([0.5, -1.0, 2.0, 0.0])
    made = D.VonMises(Tensor(loc), Tensor(KAPPA))
    x = np.array([0.2, 0.5, -0.9, 0.01])
    wanted = scipy.stats.vonmises(KAPPA, loc)
    np.testing.assert_allclose(made.log_prob(Tensor(x)).numpy(), wanted.logpdf(x), rtol=1e-12)
    circular = 1 - scipy.special.i1e(KAPPA) / scipy.special.i0e(KAPPA)
    np.testing.assert_allclose(made.variance.numpy(), circular, rtol=1e-11)


def test_a_covariance_of_low_rank_is_as_the_whole_one() -> None:
    rng = np.random.default_rng(1)
    loc, columns, spread = rng.normal(size=(2, 4)), rng.normal(size=(4, 2)), np.exp(A.sum() * 0.1)
    diagonal = spread * np.array([0.5, 1.0, 2.0, 0.1])
    made = D.LowRankMultivariateNormal(Tensor(loc), Tensor(columns), Tensor(diagonal))
    covariance = columns @ columns.T + np.diag(diagonal)
    x = rng.normal(size=(3, 2, 4))
    for place in range(2):
        theirs = scipy.stats.multivariate_normal(loc[place], covariance)
        np.testing.assert_allclose(
            made.log_prob(Tensor(x)).numpy()[:, place], theirs.logpdf(x[:, place]), rtol=1e-11
        )
        assert made.entropy()[place].item() == pytest.approx(theirs.entropy(), rel=1e-12)
    np.testing.assert_allclose(made.covariance_matrix[0].numpy(), covariance, rtol=1e-12)
    np.testing.assert_allclose(
        made.precision_matrix[0].numpy(), np.linalg.inv(covariance), atol=1e-11
    )
    np.testing.assert_allclose(made.variance[0].numpy(), covariance.diagonal(), rtol=1e-12)
    Tensor.manual_seed(0)
    drawn = made.sample((20000,)).numpy()[:, 0]
    np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=0.15 * covariance.max())


def test_logistic_normal_has_pytorchs_density_and_draws_shares() -> None:
    loc = np.array([[0.5, -1.0, 2.0], [0.0, 0.0, 0.0]])
    made = D.LogisticNormal(Tensor(loc), Tensor(np.array([[1.0, 0.3, 2.0], [1.0, 1.0, 1.0]])))
    found = made.log_prob(Tensor(np.array([0.2, 0.5, 0.2, 0.1]))).numpy()
    np.testing.assert_allclose(found, LOGISTIC, rtol=1e-12)
    drawn = made.sample((5,)).numpy()
    np.testing.assert_allclose(drawn.sum(-1), 1, rtol=1e-12)
    assert drawn.shape == (5, 2, 4) and (drawn > 0).all()


@pytest.mark.parametrize(
    ("made", "cdf"),
    [
        (D.Kumaraswamy(2.0, 3.0), lambda x: 1 - (1 - x**2) ** 3),
        (D.ContinuousBernoulli(0.9), lambda x: (9**x - 1) / 8),
        (D.VonMises(0.0, 0.5), scipy.stats.vonmises(0.5).cdf),
        (D.VonMises(0.0, 20.0), scipy.stats.vonmises(20.0).cdf),
        (D.Gamma(0.7, 2.0), scipy.stats.gamma(0.7, scale=0.5).cdf),
        (D.Gamma(0.7, 2.0), lambda x: D.Gamma(0.7, 2.0).cdf(Tensor(x)).numpy()),
    ],
)
def test_draws_are_distributed_as_the_formula_says(made: Any, cdf: Any) -> None:
    Tensor.manual_seed(7)
    drawn = made.sample((8000,)).numpy().astype(float)
    assert scipy.stats.kstest(drawn, cdf).pvalue > 1e-3


def test_draws_of_gamma_distributions_move_along_their_quantiles() -> None:
    Tensor.manual_seed(0)
    a = Tensor(np.array([0.1, 0.5, 3.0, 30.0, 1000.0]), requires_grad=True)
    drawn = D.Gamma(a, Tensor(np.ones(5))).rsample()
    drawn.sum().backward()
    at, share = a.numpy(), scipy.special.gammainc(a.numpy(), drawn.numpy())
    step = 1e-5 * at
    ends = [scipy.special.gammaincinv(at + side * step, share) for side in (1, -1)]
    np.testing.assert_allclose(a.grad.numpy(), (ends[0] - ends[1]) / (2 * step), rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "mean"),
    [
        (lambda a: D.Gamma(a, 2.0), lambda a: a / 2),
        (lambda a: D.Chi2(a), lambda a: a),
        (lambda a: D.Beta(a, 3.0), lambda a: a / (a + 3)),
        (lambda a: D.Dirichlet(a * Tensor([1.0, 2.0])), None),
        (lambda a: D.InverseGamma(a + 4, 2.0), lambda a: 2 / (a + 3)),
    ],
)
def test_the_mean_gradient_of_draws_is_that_of_the_mean(make: Any, mean: Any) -> None:
    Tensor.manual_seed(1)
    a = Tensor([1.5], requires_grad=True)
    weights = Tensor([1.0, -1.0]) if mean is None else 1.0
    (make(a).rsample((10000,)) * weights).mean(0).sum().backward()
    # The mean of a Dirichlet's shares does not move with their common factor.
    wanted = 0.0 if mean is None else (mean(1.5001) - mean(1.4999)) / 2e-4
    assert a.grad.item() == pytest.approx(wanted, rel=0.03, abs=0.005)


def test_draws_of_students_t_move_with_its_degrees_of_freedom() -> None:
    Tensor.manual_seed(2)
    df = Tensor([5.0], requires_grad=True)
    D.StudentT(df).rsample((20000,)).abs().mean().backward()

    def mean(df: float) -> float:
        return float(scipy.stats.t(df).expect(abs))

    assert df.grad.item() == pytest.approx((mean(5.01) - mean(4.99)) / 0.02, rel=0.25)


def test_names_of_pytorch() -> None:
    T = torch.distributions
    shares = T.Dirichlet(torch.tensor([2.0, 3.0], requires_grad=True)).rsample()
    assert shares.requires_grad and T.Gamma(2.0, 1.0).has_rsample
    assert not T.VonMises(0.0, 1.0).has_rsample
    assert T.lowrank_multivariate_normal.LowRankMultivariateNormal is T.LowRankMultivariateNormal
    with pytest.raises(ValueError, match="concentration must be positive"):
        T.VonMises(0.0, -1.0)
    with pytest.raises(NotImplementedError):
        T.VonMises(0.0, 1.0).rsample()
    with pytest.raises(NotImplementedError):
        T.Categorical(torch.ones(2)).cdf(torch.ones(1))
