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
