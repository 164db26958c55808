"""What distributions tell of themselves: batches made larger, supports, all values, modes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import tilegrad.torch as torch
from tilegrad.torch import distributions as D

t = torch.tensor
LAWS: list[tuple[Any, Any]] = [
    (lambda: D.Normal(t([0.0, 1.0]), 2.0), t([0.5, 0.5])),
    (lambda: D.Categorical(t([0.2, 0.3, 0.5])), t(1)),
    (lambda: D.Multinomial(3, t([0.2, 0.8])), t([1.0, 2.0])),
    (lambda: D.Dirichlet(t([1.0, 2.0])), t([0.4, 0.6])),
    (lambda: D.MultivariateNormal(torch.zeros(2), scale_tril=torch.eye(2)), t([0.5, 1.0])),
    (lambda: D.LowRankMultivariateNormal(torch.zeros(2), torch.ones(2, 1), torch.ones(2)),
     t([0.5, 1.0])),
    (lambda: D.Independent(D.Normal(torch.zeros(3), torch.ones(3)), 1), t([0.1, 0.2, 0.3])),
    (lambda: D.MixtureSameFamily(D.Categorical(t([0.5, 0.5])), D.Normal(t([0.0, 1.0]), 1.0)),
     t(0.3)),
    (lambda: D.TransformedDistribution(D.Normal(t(0.0), t(1.0)), [D.ExpTransform()]), t(0.3)),
    (lambda: D.RelaxedOneHotCategorical(t(0.5), t([0.3, 0.7])), t([0.4, 0.6])),
    (lambda: D.Binomial(4, t([0.2, 0.6])), t([1.0, 2.0])),
    (lambda: D.StudentT(t(3.0)), t(0.3)),
]  # fmt: skip


@pytest.mark.parametrize(("make", "value"), LAWS)
def test_an_expanded_law_is_the_law_of_each_element(make: Any, value: Any) -> None:
    law = make()
    shape = (3, 2)
    wide = law.expand(torch.Size(shape))
    assert tuple(wide.batch_shape) == shape and wide.event_shape == law.event_shape
    assert type(wide) is type(law)
    assert wide.sample((4,)).shape == (4, *shape, *law.event_shape)
    expected = law.log_prob(value).expand(shape)
    events = value.shape[value.ndim - len(law.event_shape) :]
    found = wide.log_prob(value.expand(*shape, *events))
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5)


def test_supports_and_parameters() -> None:
    law = D.Beta(t(2.0), t(3.0))
    assert law.support.check(t([0.5, 1.5])).tolist() == [True, False]
    assert sorted(law.arg_constraints) == ["concentration0", "concentration1"]
    assert D.Categorical(t([0.5, 0.5])).support.check(t([0, 2])).tolist() == [True, False]
    independent = D.Independent(D.Normal(torch.zeros(2), torch.ones(2)), 1)
    assert independent.support.event_dim == 1
    assert independent.base_dist.mean.tolist() == [0.0, 0.0]


def test_few_values_are_enumerated() -> None:
    assert D.Bernoulli(t([0.5, 0.5])).enumerate_support().tolist() == [[0.0, 0.0], [1.0, 1.0]]
    assert D.Categorical(t([0.2, 0.3, 0.5])).enumerate_support().tolist() == [0, 1, 2]
    assert D.Binomial(2, t(0.5)).enumerate_support().tolist() == [0.0, 1.0, 2.0]
    one_hot = D.OneHotCategorical(t([[0.2, 0.8]])).enumerate_support()
    assert one_hot.tolist() == [[[1.0, 0.0]], [[0.0, 1.0]]]
    with pytest.raises(NotImplementedError, match="enumerated"):
        D.Normal(0.0, 1.0).enumerate_support()


def test_modes() -> None:
    assert D.Poisson(t([2.5])).mode.tolist() == [2.0]
    assert D.Binomial(4, t([0.3, 1.0])).mode.tolist() == [1.0, 4.0]
    assert D.Bernoulli(t([0.3, 0.6])).mode.tolist() == [0.0, 1.0]
    np.testing.assert_allclose(D.Beta(t(3.0), t(2.0)).mode.item(), 2 / 3, rtol=1e-6)


def test_trials_of_several_numbers() -> None:
    law = D.Binomial(t([3.0, 5.0]), t([0.2, 0.4]))
    expected = stats.binom.logpmf([1, 5], [3, 5], [0.2, 0.4])
    np.testing.assert_allclose(law.log_prob(t([1.0, 5.0])).numpy(), expected, rtol=1e-5)
    torch.manual_seed(0)
    drawn = torch.binomial(torch.full((20_000,), 10.0), torch.full((20_000,), 0.3)).numpy()
    assert abs(drawn.mean() - 3) < 0.05 and abs(drawn.var() - 2.1) < 0.1
    assert set(drawn.tolist()) <= set(range(11))


def test_a_count_of_failures_is_any_number() -> None:
    law = D.NegativeBinomial(t(2.5), t(0.3))
    expected = stats.nbinom.logpmf(2, 2.5, 0.7)
    np.testing.assert_allclose(law.log_prob(t(2.0)).item(), expected, rtol=1e-5)


C, X = D.constraints, D.transforms


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (
            lambda: X.IndependentTransform(X.ExpTransform(), 1),
            "IndependentTransform(ExpTransform(), 1)",
        ),
        (
            lambda: X.ComposeTransform([X.ExpTransform(), X.AffineTransform(0, 2)]).inv,
            "ComposeTransform(\n    _InverseTransform(AffineTransform()),\n"
            "    _InverseTransform(ExpTransform())\n)",
        ),
        (
            lambda: D.biject_to(C.positive),
            "ComposeTransform(\n    ExpTransform(),\n    AffineTransform()\n)",
        ),
        (
            lambda: D.transform_to(C.real_vector),
            "IndependentTransform(ComposeTransform(\n    \n), 1)",
        ),
        (lambda: D.biject_to(C.stack([C.real, C.positive])), "StackTransform()"),
        (lambda: C.multinomial(3), "Multinomial()"),
        (lambda: C.independent(C.dependent, 1), "IndependentConstraint(Dependent(), 1)"),
        (lambda: C.positive_semidefinite, "PositiveSemidefinite()"),
        (
            lambda: D.TransformedDistribution(D.Normal(0.0, 1.0), [X.ExpTransform()]).support,
            "GreaterThan(lower_bound=0.0)",
        ),
        (lambda: D.Uniform.support, "DependentProperty()"),
        (
            lambda: D.Uniform(0.0, 1.0).arg_constraints,
            "{'low': LessThan(upper_bound=1.0), 'high': GreaterThan(lower_bound=0.0)}",
        ),
        (lambda: D.LKJCholesky(3, 0.5).support, "CorrCholesky()"),
        (
            lambda: X.IndependentTransform(X.ExpTransform(), 1).domain,
            "IndependentConstraint(Real(), 1)",
        ),
        (
            lambda: X.ComposeTransform([X.ExpTransform(), X.StickBreakingTransform()]).domain,
            "IndependentConstraint(Real(), 1)",
        ),
        (lambda: X.ReshapeTransform((2, 3), (6,)).domain, "IndependentConstraint(Real(), 2)"),
        (lambda: X.CatTransform([X.ExpTransform(), X.TanhTransform()]).codomain, "Cat()"),
        (
            lambda: D.Gamma(torch.tensor([1.0]), torch.tensor([2.0])),
            "Gamma(concentration: tensor([1.]), rate: tensor([2.]))",
        ),
    ],
)  # fmt: skip
def test_transforms_and_sets_print_as_in_pytorch(made: Any, text: str) -> None:
    assert repr(made()) == text


def test_transforms_that_fall_turn_probabilities_around() -> None:
    """1 - 2 z of a normal z is normal, with mean 1 and deviation 2."""
    base = D.Normal(torch.zeros(3), 1.0)
    values = torch.tensor([-1.0, 0.5, 4.0])
    for scale in (-2.0, torch.tensor([-2.0, -2.0, -2.0])):
        found = D.TransformedDistribution(base, [X.AffineTransform(1.0, scale)])
        np.testing.assert_allclose(found.cdf(values), stats.norm.cdf(values, 1, 2), rtol=1e-5)
        shares = torch.tensor([0.1, 0.5, 0.8])
        np.testing.assert_allclose(found.icdf(shares), stats.norm.ppf(shares, 1, 2), rtol=1e-5)
    assert X.AffineTransform(0.0, -1.0).sign == X.AffineTransform(0.0, -1.0).inv.sign == -1
    falling = X.ComposeTransform([X.AffineTransform(0.0, -1.0), X.ExpTransform()])
    assert falling.sign == X.IndependentTransform(falling, 1).sign == -1


def test_transforms_are_equal_where_their_arguments_are() -> None:
    assert X.ExpTransform() == X.ExpTransform() != X.TanhTransform()
    assert X.AffineTransform(0, 1) == X.AffineTransform(0, 1) != X.AffineTransform(0, 2)
    one = X.AffineTransform(torch.zeros(2), 1)
    assert one == X.AffineTransform(torch.zeros(2), 1) != X.AffineTransform(torch.ones(2), 1)


def test_sets_of_slices_and_matrices() -> None:
    x = torch.tensor([-1.0, 1.0])
    assert C.cat([C.positive, C.real], 0, [1, 1]).check(x).tolist() == [False, True]
    rows = torch.tensor([[-1.0], [1.0]])
    assert C.stack([C.positive, C.real], 0).check(rows).tolist() == [[False], [True]]
    assert C.boolean.is_discrete and not C.real.is_discrete
    assert bool(C.positive_semidefinite.check(torch.zeros(2, 2)))
    assert not bool(C.positive_definite.check(torch.zeros(2, 2)))
    assert not bool(C.symmetric.check(torch.tensor([[1.0, 2.0], [0.0, 1.0]])))
    assert not bool(C.square.check(torch.ones(2, 3)))
    with pytest.raises(ValueError, match="dependent"):
        C.dependent.check(x)


def test_a_mapping_to_slices_of_an_axis() -> None:
    to = D.biject_to(C.cat([C.real, C.positive], 0, [1, 2]))
    made = to(torch.tensor([-1.0, 0.0, 1.0]))
    np.testing.assert_allclose(made, [-1.0, 1.0, np.e], rtol=1e-6)
    np.testing.assert_allclose(to.inv(made), [-1.0, 0.0, 1.0], atol=1e-6)
