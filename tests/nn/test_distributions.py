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
    "Cauchy": (
        D.Cauchy(Tensor(LOC), Tensor(SCALE)),
        scipy.stats.cauchy(LOC, SCALE),
        LOC - 0.5,
    ),
    "Gumbel": (
        D.Gumbel(Tensor(LOC), Tensor(SCALE)),
        scipy.stats.gumbel_r(LOC, SCALE),
        LOC + 0.5,
    ),
    "Weibull": (
        D.Weibull(Tensor(SCALE), Tensor(1 + SCALE)),
        scipy.stats.weibull_min(1 + SCALE, scale=SCALE),
        SCALE * 0.7,
    ),
    "Pareto": (
        D.Pareto(Tensor(SCALE), Tensor(4 + SCALE)),
        scipy.stats.pareto(4 + SCALE, scale=SCALE),
        SCALE * 1.2,
    ),
    "HalfNormal": (
        D.HalfNormal(Tensor(SCALE)),
        scipy.stats.halfnorm(scale=SCALE),
        SCALE * 1.2,
    ),
    "FisherSnedecor": (
        D.FisherSnedecor(Tensor(1 + SCALE), Tensor(9 + SCALE)),
        scipy.stats.f(1 + SCALE, 9 + SCALE),
        SCALE * 0.6,
    ),
    "NegativeBinomial": (
        D.NegativeBinomial(Tensor(SCALE), logits=Tensor(LOC)),
        scipy.stats.nbinom(SCALE, scipy.special.expit(-LOC)),
        np.floor(2 * SCALE),
    ),
    "Gamma": (
        D.Gamma(Tensor(SCALE), Tensor(2 * SCALE)),
        scipy.stats.gamma(SCALE, scale=1 / (2 * SCALE)),
        SCALE * 0.3,
    ),
    "Chi2": (D.Chi2(Tensor(SCALE)), scipy.stats.chi2(SCALE), SCALE + 0.5),
    "InverseGamma": (
        D.InverseGamma(Tensor(4 + SCALE), Tensor(SCALE)),
        scipy.stats.invgamma(4 + SCALE, scale=SCALE),
        SCALE * 0.3,
    ),
    "Beta": (
        D.Beta(Tensor(SCALE), Tensor(SCALE + 1)),
        scipy.stats.beta(SCALE, SCALE + 1),
        scipy.special.expit(LOC),
    ),
    "StudentT": (
        D.StudentT(Tensor(3 + SCALE), Tensor(LOC), Tensor(SCALE)),
        scipy.stats.t(3 + SCALE, LOC, SCALE),
        LOC + 0.8,
    ),
    "Geometric": (
        D.Geometric(Tensor(scipy.special.expit(LOC))),
        scipy.stats.geom(scipy.special.expit(LOC), loc=-1),
        np.floor(SCALE),
    ),
    "Poisson": (D.Poisson(Tensor(SCALE)), scipy.stats.poisson(SCALE), np.floor(2 * SCALE)),
    "Binomial": (
        D.Binomial(5, logits=Tensor(LOC)),
        scipy.stats.binom(5, scipy.special.expit(LOC)),
        np.clip(np.floor(SCALE), 0, 5),
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
    density = getattr(theirs, "logpmf" if hasattr(theirs.dist, "pmf") else "logpdf")
    found = ours.log_prob(Tensor(value)).numpy()
    np.testing.assert_allclose(found, density(value), rtol=1e-9, atol=1e-12)
    if name not in ("Poisson", "NegativeBinomial", "FisherSnedecor"):
        np.testing.assert_allclose(ours.entropy().numpy(), theirs.entropy(), rtol=1e-9)
    np.testing.assert_allclose(ours.mean.numpy(), theirs.mean(), rtol=1e-9)
    # There is no variance of a Cauchy distribution; PyTorch calls it infinite.
    spread = np.inf if name == "Cauchy" else theirs.std()
    np.testing.assert_allclose(ours.stddev.numpy(), np.broadcast_to(spread, (3, 2)), rtol=1e-9)
    if hasattr(ours, "cdf"):
        np.testing.assert_allclose(ours.cdf(Tensor(value)).numpy(), theirs.cdf(value), rtol=1e-6)
    if hasattr(ours, "icdf"):
        shares = np.array([[0.01, 0.3], [0.5, 0.7], [0.9, 0.999]])
        np.testing.assert_allclose(ours.icdf(Tensor(shares)).numpy(), theirs.ppf(shares), rtol=1e-6)
    Tensor.manual_seed(3)
    drawn = ours.sample((4000,)).numpy()
    assert drawn.shape == (4000, 3, 2)
    if name not in ("LogNormal", "Cauchy"):
        error = (drawn.mean(0) - theirs.mean()) / theirs.std()
        assert np.abs(error).max() < 4 / np.sqrt(4000)


@pytest.mark.parametrize(
    ("law", "expected"),
    [
        (D.Beta(Tensor([2.0, 0.5, 1.0, 3.0, 0.7]), Tensor([3.0, 1.5, 2.0, 0.5, 1.0])),
         [1 / 3, 0, 0, 1, 0]),
        (D.Beta(Tensor([0.5, 1.0]), Tensor([0.7, 1.0])), [np.nan, np.nan]),
        (D.Dirichlet(Tensor([[2.0, 3.0, 1.5], [0.5, 2.0, 0.7]])),
         [[1 / 3.5, 2 / 3.5, 0.5 / 3.5], [0, 1, 0]]),
        (D.Exponential(Tensor(SCALE)), np.zeros((3, 2))),
        (D.FisherSnedecor(Tensor([1.0, 2.0, 5.0]), Tensor([2.0, 9.0, 3.0])), [0, 0, 0.36]),
        (D.Geometric(Tensor([0.3, 0.9])), [0, 0]),
        (D.InverseGamma(Tensor([1.0, 3.0]), Tensor([2.0, 1.0])), [1, 0.25]),
        (D.NegativeBinomial(Tensor([0.5, 3.3, 8.0]), logits=Tensor([1.0, 0.3, 2.0])), [0, 3, 51]),
        (D.Pareto(Tensor(SCALE), Tensor(SCALE)), SCALE),
        (D.StudentT(Tensor(SCALE), Tensor(LOC)), LOC),
        (D.Weibull(Tensor([1.0, 2.0, 0.7]), Tensor([2.0, 1.5, 0.8])),
         [0.5**0.5, 2 * 3 ** (-2 / 3), 0]),
    ],
    ids=lambda each: type(each).__name__,
)  # fmt: skip
def test_what_is_likeliest(law: Any, expected: Any) -> None:
    np.testing.assert_allclose(law.mode.numpy(), expected, rtol=1e-6)


def test_draws_of_gamma_have_its_distribution() -> None:
    """The share of draws below each tenth of the distribution, below and above 1."""
    for concentration in (0.2, 1.0, 7.0):
        Tensor.manual_seed(11)
        drawn = D.Gamma(concentration, 2.0).sample((20000,)).numpy()
        tenths = scipy.stats.gamma(concentration, scale=0.5).ppf(np.arange(1, 10) / 10)
        found = (drawn[:, None] < tenths).mean(0)
        assert np.abs(found - np.arange(1, 10) / 10).max() < 4 * 0.5 / np.sqrt(20000)


def test_shares() -> None:
    ours, theirs = D.Dirichlet(Tensor(SCALE[0])), scipy.stats.dirichlet(SCALE[0])
    value = np.array([0.3, 0.7])
    assert ours.log_prob(Tensor(value)).item() == pytest.approx(theirs.logpdf(value), rel=1e-9)
    assert ours.entropy().item() == pytest.approx(float(theirs.entropy()), rel=1e-9)
    np.testing.assert_allclose(ours.mean.numpy(), theirs.mean(), rtol=1e-9)
    np.testing.assert_allclose(ours.variance.numpy(), theirs.var(), rtol=1e-9)
    Tensor.manual_seed(2)
    drawn = ours.sample((4000,)).numpy()
    np.testing.assert_allclose(drawn.sum(-1), 1, rtol=1e-12)
    error = np.abs(drawn.mean(0) - theirs.mean()) / np.sqrt(theirs.var())
    assert error.max() < 4 / np.sqrt(4000)


def test_counts_of_classes() -> None:
    """Also of a class with the probability 0, which never occurs."""
    counts = np.array([[3.0, 1, 0, 6], [2, 5, 3, 0], [0, 0, 0, 10]])
    ours = D.Multinomial(10, probs=Tensor(SHARES))
    theirs = [scipy.stats.multinomial(10, row) for row in SHARES]
    expected = [each.logpmf(row) for each, row in zip(theirs, counts)]
    np.testing.assert_allclose(ours.log_prob(Tensor(counts)).numpy(), expected, rtol=1e-9)
    np.testing.assert_allclose(ours.mean.numpy(), 10 * SHARES, rtol=1e-9)
    np.testing.assert_allclose(ours.variance.numpy(), 10 * SHARES * (1 - SHARES), rtol=1e-9)
    drawn = ours.sample((50,)).numpy()
    assert drawn.shape == (50, 3, 4) and (drawn.sum(-1) == 10).all()
    expected = [each.entropy() for each in theirs]
    np.testing.assert_allclose(ours.entropy().numpy(), expected, rtol=1e-9)
    assert D.Multinomial(1, probs=Tensor(SHARES)).entropy().shape == (3,)
    sure = D.Multinomial(2, logits=Tensor([0.0, -np.inf]))
    assert sure.log_prob(Tensor([2.0, 0.0])).item() == 0


def test_half_of_a_cauchy_distribution() -> None:
    ours, theirs = D.HalfCauchy(Tensor(SCALE)), scipy.stats.halfcauchy(scale=SCALE)
    x = np.abs(LOC)
    np.testing.assert_allclose(ours.log_prob(Tensor(x)).numpy(), theirs.logpdf(x), rtol=1e-9)
    np.testing.assert_allclose(ours.cdf(Tensor(x)).numpy(), theirs.cdf(x), rtol=1e-6)
    np.testing.assert_allclose(ours.icdf(ours.cdf(Tensor(x))).numpy(), x, rtol=1e-6)
    np.testing.assert_allclose(ours.entropy().numpy(), theirs.entropy(), rtol=1e-6)
    assert (ours.log_prob(Tensor(-x)).numpy() == -np.inf).all()


def test_rows_of_classes() -> None:
    ours = D.OneHotCategorical(probs=Tensor(SHARES))
    rows = np.eye(4)[[2, 0, 1]]
    expected = np.log(SHARES[[0, 1, 2], [2, 0, 1]])
    np.testing.assert_allclose(ours.log_prob(Tensor(rows)).numpy(), expected, rtol=1e-9)
    drawn = ours.sample((50,)).numpy()
    assert drawn.shape == (50, 3, 4) and (drawn.sum(-1) == 1).all()
    logits = Tensor(np.log(SHARES[0]), requires_grad=True)
    row = D.OneHotCategoricalStraightThrough(logits=logits).rsample()
    assert row.numpy().max() == pytest.approx(1.0)
    (found,) = row[1].gradient(logits)
    expected = SHARES[0][1] * (np.eye(4)[1] - SHARES[0])
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)


@pytest.mark.nightly
def test_relaxed_draws_have_their_density() -> None:
    """The mean of one density over another, over draws of this one, is 1."""
    for kind, given in (
        (D.RelaxedBernoulli, {"probs": Tensor(0.3).double()}),
        (D.RelaxedOneHotCategorical, {"probs": Tensor(SHARES[0])}),
    ):
        Tensor.manual_seed(4)
        one, other = kind(0.9, **given), kind(0.8, **given)
        drawn = one.sample((20000,))
        ratio = (other.log_prob(drawn) - one.log_prob(drawn)).exp().numpy()
        assert np.abs(ratio.mean() - 1) < 5 * ratio.std() / np.sqrt(20000)


def test_a_mixture() -> None:
    parts = D.Normal(Tensor(LOC[0]), Tensor(SCALE[0]))
    ours = D.MixtureSameFamily(D.Categorical(probs=Tensor([0.25, 0.75]).double()), parts)
    x = np.linspace(-2, 2, 7)
    each = scipy.stats.norm(LOC[0], SCALE[0])
    expected = each.pdf(x[:, None]) @ [0.25, 0.75]
    np.testing.assert_allclose(ours.log_prob(Tensor(x)).exp().numpy(), expected, rtol=1e-9)
    mean = LOC[0] @ [0.25, 0.75]
    variance = (SCALE[0] ** 2 + LOC[0] ** 2) @ [0.25, 0.75] - mean**2
    assert ours.mean.item() == pytest.approx(mean)
    assert ours.variance.item() == pytest.approx(variance)
    Tensor.manual_seed(1)
    drawn = ours.sample((4000,)).numpy()
    assert abs(drawn.mean() - mean) < 4 * np.sqrt(variance / 4000)
    below = each.cdf(0.5) @ [0.25, 0.75]
    assert ours.cdf(Tensor(0.5).double()).item() == pytest.approx(below, rel=1e-6)
    with pytest.raises(ShapeError, match="2 classes"):
        D.MixtureSameFamily(D.Categorical(probs=Tensor([0.5, 0.5])), D.Normal(0.0, 1.0))


@pytest.mark.parametrize(
    ("transform", "forward"),
    [
        (D.AffineTransform(1.0, -2.0), lambda x: 1 - 2 * x),
        (D.ExpTransform(), np.exp),
        (D.SigmoidTransform(), scipy.special.expit),
        (D.TanhTransform(), np.tanh),
        (D.SoftplusTransform(), lambda x: np.log1p(np.exp(x))),
        (D.PowerTransform(3.0), lambda x: x**3),
        (D.ComposeTransform([D.ExpTransform(), D.AffineTransform(0.0, 3.0)]),
         lambda x: 3 * np.exp(x)),
    ],
    ids=lambda each: type(each).__name__,
)  # fmt: skip
def test_transforms_and_what_they_make_of_draws(transform: Any, forward: Any) -> None:
    x = np.array([0.3, 0.9, 1.7])
    y = transform(Tensor(x))
    np.testing.assert_allclose(y.numpy(), forward(x), rtol=1e-9)
    np.testing.assert_allclose(transform.inv(y).numpy(), x, rtol=1e-6)
    slope = np.log(np.abs((forward(x + 1e-6) - forward(x - 1e-6)) / 2e-6))
    found = transform.log_abs_det_jacobian(Tensor(x), y).numpy()
    np.testing.assert_allclose(found, slope, rtol=1e-6, atol=1e-8)
    made = D.TransformedDistribution(D.Normal(Tensor(0.5).double(), 1.0), [transform])
    expected = scipy.stats.norm(0.5, 1).logpdf(x) - slope
    np.testing.assert_allclose(made.log_prob(y).numpy(), expected, rtol=1e-6, atol=1e-8)
    assert made.rsample((4,)).shape == (4,)


def test_a_transform_with_a_cache_undoes_what_it_made() -> None:
    tanh = D.TanhTransform(cache_size=1)
    x = Tensor([30.0])
    assert tanh.inv(tanh(x)).tolist() == [30.0]


@pytest.mark.parametrize(
    ("p", "q", "theirs"),
    [
        (D.Gamma(2.0, 3.0), D.Gamma(3.0, 1.5),
         (scipy.stats.gamma(2, scale=1 / 3), scipy.stats.gamma(3, scale=1 / 1.5))),
        (D.Beta(2.0, 3.0), D.Beta(1.5, 1.5), (scipy.stats.beta(2, 3), scipy.stats.beta(1.5, 1.5))),
        (D.InverseGamma(2.0, 3.0), D.InverseGamma(3.0, 1.5),
         (scipy.stats.invgamma(2, scale=3), scipy.stats.invgamma(3, scale=1.5))),
        (D.HalfCauchy(1.0), D.HalfCauchy(2.0),
         (scipy.stats.halfcauchy(scale=1), scipy.stats.halfcauchy(scale=2))),
        (D.HalfNormal(1.0), D.HalfNormal(2.0),
         (scipy.stats.halfnorm(scale=1), scipy.stats.halfnorm(scale=2))),
    ],
)  # fmt: skip
def test_divergences_of_further_numbers(p: Any, q: Any, theirs: Any) -> None:
    x = theirs[0].ppf((np.arange(20000) + 0.5) / 20000)
    expected = (theirs[0].logpdf(x) - theirs[1].logpdf(x)).mean()
    assert D.kl_divergence(p, q).item() == pytest.approx(expected, rel=2e-3)


def test_divergences_of_counts_and_shares() -> None:
    n = np.arange(200)
    p, q = scipy.stats.poisson(2.0), scipy.stats.poisson(3.0)
    expected = (p.pmf(n) * (p.logpmf(n) - q.logpmf(n))).sum()
    found = D.kl_divergence(D.Poisson(2.0), D.Poisson(3.0)).item()
    assert found == pytest.approx(expected, rel=1e-5)
    p, q = scipy.stats.geom(0.4, loc=-1), scipy.stats.geom(0.3, loc=-1)
    expected = (p.pmf(n) * (p.logpmf(n) - q.logpmf(n))).sum()
    found = D.kl_divergence(D.Geometric(0.4), D.Geometric(0.3)).item()
    assert found == pytest.approx(expected, rel=1e-5)
    # Of two shares the distributions are beta distributions.
    one = D.kl_divergence(D.Dirichlet(Tensor([2.0, 3.0])), D.Dirichlet(Tensor([1.5, 1.5])))
    assert one.item() == pytest.approx(D.kl_divergence(D.Beta(2.0, 3.0), D.Beta(1.5, 1.5)).item())


def test_divergences_of_what_is_made_of_others() -> None:
    normals = [D.Normal(Tensor(LOC), Tensor(SCALE)), D.Normal(Tensor(LOC - 1), Tensor(SCALE + 1))]
    plain = D.kl_divergence(*normals).numpy()

    def between(transform: Any, other: Any) -> Any:
        made = [D.TransformedDistribution(n, t) for n, t in zip(normals, (transform, other))]
        return D.kl_divergence(*made).numpy()

    for transform, other in (
        ([D.ExpTransform()], [D.ExpTransform()]),
        (D.AffineTransform(1.0, Tensor(2.0)), D.AffineTransform(1.0, Tensor(2.0))),
    ):
        np.testing.assert_allclose(between(transform, other), plain, rtol=1e-12)
    rows = [D.StickBreakingTransform(), D.StickBreakingTransform()]
    np.testing.assert_allclose(between(*rows), plain.sum(-1), rtol=1e-12)
    with pytest.raises(NotImplementedError, match="different transforms"):
        between(D.AffineTransform(1.0, 2.0), D.AffineTransform(1.0, 3.0))
    logistic = [D.LogisticNormal(each.loc, each.scale) for each in normals]
    np.testing.assert_allclose(D.kl_divergence(*logistic).numpy(), plain.sum(-1), rtol=1e-12)


def test_divergences_of_matrices() -> None:
    """Of one row a Wishart distribution is a gamma one; others are compared with draws."""
    sizes = [np.array([3.0, 4.5]), np.array([6.0, 2.5])]
    spreads = [np.array([0.5, 2.0]), np.array([1.5, 0.7])]
    ones = [D.Wishart(Tensor(n), Tensor(s[:, None, None])) for n, s in zip(sizes, spreads)]
    gammas = [D.Gamma(Tensor(n / 2), Tensor(0.5 / s)) for n, s in zip(sizes, spreads)]
    expected = D.kl_divergence(*gammas).numpy()
    np.testing.assert_allclose(D.kl_divergence(*ones).numpy(), expected, rtol=1e-9)
    one = D.Wishart(Tensor(5.0).double(), Tensor(FACTOR @ FACTOR.T))
    other = D.Wishart(Tensor(7.0).double(), Tensor(np.eye(2)))
    assert D.kl_divergence(one, one).item() == pytest.approx(0, abs=1e-12)
    Tensor.manual_seed(6)
    x = one.sample((4000,))
    apart = (one.log_prob(x) - other.log_prob(x)).numpy()
    error = abs(apart.mean() - D.kl_divergence(one, other).item())
    assert error < 4 * apart.std() / np.sqrt(4000)


@pytest.mark.parametrize("make", [D.AbsTransform, D.SoftmaxTransform, D.StickBreakingTransform])
def test_only_functions_that_rise_or_fall_have_a_sign(make: Any) -> None:
    with pytest.raises(NotImplementedError, match="does not rise or fall"):
        _ = make().sign
    made = D.TransformedDistribution(D.Normal(Tensor([0.0, 0.0]), 1.0), D.AbsTransform())
    with pytest.raises(NotImplementedError, match="AbsTransform"):
        made.cdf(Tensor(1.0))


def test_a_divergence_of_ones_own() -> None:
    class Mine(D.Normal):
        pass

    @D.register_kl(Mine, D.Laplace)
    def between(p: Any, q: Any) -> Tensor:
        return p.loc - q.loc

    assert D.kl_divergence(Mine(3.0, 1.0), D.Laplace(1.0, 1.0)).item() == 2.0


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
    with pytest.raises(ConfigError, match="no formula for Normal and Cauchy"):
        D.kl_divergence(D.Normal(0.0, 1.0), D.Cauchy(0.0, 1.0))
    with pytest.raises(ConfigError, match="2 of covariance_matrix, precision_matrix and"):
        D.MultivariateNormal(Tensor([0.0]), Tensor([[1.0]]), Tensor([[1.0]]))
