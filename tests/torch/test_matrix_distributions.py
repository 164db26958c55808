"""Distributions of matrices and transforms of several numbers, beside PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as ours

theirs = pytest.importorskip("torch")
RNG = np.random.default_rng(2)
BOTH = (theirs, ours)


def both(function: Callable[[Any], Any]) -> None:
    expected, found = (np.asarray(function(torch).detach().numpy()) for torch in BOTH)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


SCALE = np.array([[1.0, 0.0, 0.0], [0.3, 0.8, 0.0], [-0.2, 0.5, 1.2]])
VALUE = np.cov(RNG.normal(size=(3, 9))) * 4


@pytest.mark.parametrize("name", ["mean", "mode", "variance", "log_prob", "entropy"])
def test_wishart(name: str) -> None:
    def of(torch: Any) -> Any:
        d = torch.distributions.Wishart(
            torch.tensor([5.5, 7.0]).double(), scale_tril=torch.tensor(SCALE)
        )
        if name == "log_prob":
            return d.log_prob(torch.tensor(VALUE))
        return d.entropy() if name == "entropy" else getattr(d, name)

    both(of)


def test_draws_of_wishart_have_its_moments() -> None:
    ours.manual_seed(4)
    d = ours.distributions.Wishart(
        ours.tensor(6.0), covariance_matrix=ours.tensor(SCALE @ SCALE.T).float()
    )
    drawn = d.sample((20000,))
    np.testing.assert_allclose(drawn.mean(0).numpy(), d.mean.numpy(), atol=0.15)
    np.testing.assert_allclose(drawn.var(0).numpy(), d.variance.numpy(), rtol=0.1)


@pytest.mark.parametrize("concentration", [0.6, 1.0, 3.5])
def test_lkj_cholesky(concentration: float) -> None:
    factor = np.linalg.cholesky(np.array([[1, 0.3, 0.1], [0.3, 1, -0.2], [0.1, -0.2, 1.0]]))
    both(
        lambda torch: torch.distributions.LKJCholesky(3, concentration).log_prob(
            torch.tensor(factor).float()
        )
    )
    ours.manual_seed(3)
    drawn = ours.distributions.LKJCholesky(3, concentration).sample((20000,))
    correlations = (drawn @ drawn.mT).numpy()
    np.testing.assert_allclose(correlations[:, range(3), range(3)], 1, atol=1e-5)
    # A correlation is 2 * beta - 1 with both parameters concentration + (3 - 2) / 2.
    both_parameters = concentration + 0.5
    spread = 4 * 0.25 / (2 * both_parameters + 1)
    np.testing.assert_allclose(correlations[:, 1, 0].var(), spread, rtol=0.05)


TRANSFORMS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "abs": (lambda D: D.transforms.AbsTransform(), RNG.normal(size=4)),
    "softmax": (lambda D: D.transforms.SoftmaxTransform(), RNG.normal(size=4)),
    "lower": (lambda D: D.transforms.LowerCholeskyTransform(), RNG.normal(size=(3, 3))),
    "definite": (lambda D: D.transforms.PositiveDefiniteTransform(), RNG.normal(size=(3, 3))),
    "correlations": (lambda D: D.transforms.CorrCholeskyTransform(), RNG.normal(size=(2, 6)) / 2),
    "reshape": (lambda D: D.transforms.ReshapeTransform((4,), (2, 2)), RNG.normal(size=(3, 4))),
    "independent": (
        lambda D: D.transforms.IndependentTransform(D.transforms.ExpTransform(), 1),
        RNG.normal(size=(3, 4)),
    ),
    "cat": (
        lambda D: D.transforms.CatTransform(
            [D.transforms.ExpTransform(), D.transforms.TanhTransform()], 0, [1, 2]
        ),
        RNG.normal(size=3),
    ),
    "stack": (
        lambda D: D.transforms.StackTransform(
            [D.transforms.ExpTransform(), D.transforms.AffineTransform(0.0, 3.0)], 1
        ),
        RNG.normal(size=(2, 2)),
    ),
    "cdf": (
        lambda D: D.transforms.CumulativeDistributionTransform(D.Normal(0.0, 1.0)),
        RNG.normal(size=3),
    ),
    "inverse": (lambda D: D.transforms.ExpTransform().inv, RNG.uniform(1, 2, 3)),
    "inverse of inverse": (lambda D: D.transforms.SigmoidTransform().inv.inv, RNG.normal(size=3)),
    "composed": (
        lambda D: D.transforms.ComposeTransform(
            [D.transforms.AffineTransform(0.0, 2.0), D.transforms.StickBreakingTransform()]
        ),
        RNG.normal(size=(2, 3)),
    ),
}
_NOT_VOLUMES = ("abs", "softmax", "lower", "definite")


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name: str) -> None:
    make, array = TRANSFORMS[name]
    array = array.astype(np.float32)
    both(lambda torch: make(torch.distributions)(torch.tensor(array)))
    if name not in ("abs", "softmax"):

        def undone(torch: Any) -> Any:
            t = make(torch.distributions)
            return t.inv(t(torch.tensor(array)))

        both(undone)
    if name not in _NOT_VOLUMES:

        def slopes(torch: Any) -> Any:
            t, x = make(torch.distributions), torch.tensor(array)
            return t.log_abs_det_jacobian(x, t(x))

        both(slopes)


VECTORS: dict[str, Callable[[Any], Any]] = {
    "a transform of vectors": lambda D: D.transforms.StickBreakingTransform(),
    "numbers as an event": lambda D: D.transforms.IndependentTransform(
        D.transforms.ExpTransform(), 1
    ),
    "a transform of numbers": lambda D: D.transforms.ExpTransform(),
    "two": lambda D: [
        D.transforms.AffineTransform(0.5, 2.0),
        D.transforms.StickBreakingTransform(),
    ],
}


@pytest.mark.parametrize("name", VECTORS)
@pytest.mark.parametrize("is_event", [True, False])
def test_densities_of_transformed_vectors(name: str, is_event: bool) -> None:
    """A transform of vectors has one volume for each, which was added up over the batch."""
    x = RNG.normal(size=(5, 3)).astype(np.float32)

    def density(torch: Any) -> Any:
        D = torch.distributions
        base = D.Normal(torch.zeros(3), torch.ones(3))
        d = D.TransformedDistribution(
            D.Independent(base, 1) if is_event else base, VECTORS[name](D)
        )
        y = torch.tensor(x)
        for t in d.transforms:
            y = t(y)
        density.shapes = tuple(d.batch_shape), tuple(d.event_shape)  # type: ignore[attr-defined]
        return d.log_prob(y)

    found = []
    for torch in BOTH:
        found.append((density(torch).numpy(), density.shapes))  # type: ignore[attr-defined]
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-4, atol=1e-4)
    assert found[1][1] == found[0][1]


def test_constraints_name_their_transforms() -> None:
    for name in ("positive", "unit_interval", "real", "simplex", "corr_cholesky"):
        x = RNG.normal(size=(3, 3)).astype(np.float32)
        for registry in ("biject_to", "transform_to"):

            def moved(torch: Any, name: str = name, registry: str = registry, x: Any = x) -> Any:
                D = torch.distributions
                return getattr(D, registry)(getattr(D.constraints, name))(torch.tensor(x))

            both(moved)
    both(
        lambda t: t.distributions.biject_to(t.distributions.constraints.interval(-1.0, 3.0))(
            t.tensor(0.3)
        )
    )
    both(
        lambda t: t.distributions.biject_to(t.distributions.constraints.less_than(2.0))(
            t.tensor(0.3)
        )
    )
    with pytest.raises(NotImplementedError, match="Cannot transform"):
        ours.distributions.biject_to(ours.distributions.constraints.boolean)


def test_a_number_beside_a_tensor_takes_its_dtype() -> None:
    p = ours.tensor([1.0, 2.0], dtype=ours.float64)
    assert ours.distributions.Normal(p, 1.5).variance.dtype is ours.float64
    assert ours.distributions.Gumbel(p, 2.0).variance.dtype is ours.float64
