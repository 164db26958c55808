"""Divergences of distributions of two kinds, beside PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilegrad.torch as ours

theirs = pytest.importorskip("torch")

MADE: dict[str, list[tuple[float, ...]]] = {
    "Bernoulli": [(0.3,), (0.8,)],
    "Beta": [(2.0, 3.0), (0.7, 1.5)],
    "Binomial": [(5, 0.3), (5, 0.6)],
    "Cauchy": [(0.0, 1.0), (0.5, 2.0)],
    "ContinuousBernoulli": [(0.3,), (0.9,)],
    "Exponential": [(1.3,), (0.4,)],
    "Gamma": [(2.0, 1.5), (0.8, 0.3)],
    "Gumbel": [(0.1, 0.9), (-1.0, 1.4)],
    "Laplace": [(0.2, 1.1), (1.0, 0.4)],
    "Normal": [(0.0, 1.0), (-0.7, 1.6)],
    "Pareto": [(1.0, 3.0), (1.5, 2.5)],
    "Poisson": [(2.0,), (0.7,)],
    "Uniform": [(0.2, 0.8), (0.0, 1.0), (-0.5, 2.0), (2.0, 3.0)],
}


def _known() -> list[tuple[str, str]]:
    found = []
    for first in MADE:
        for second in MADE:
            try:
                p, q = (_single(theirs, name, 0) for name in (first, second))
                theirs.distributions.kl_divergence(p, q)
            except NotImplementedError:
                continue
            found.append((first, second))
    return found


def _single(torch: Any, name: str, at: int) -> Any:
    given = MADE[name][at]
    if name == "Binomial":
        return torch.distributions.Binomial(given[0], torch.tensor(given[1]))
    return getattr(torch.distributions, name)(*[torch.tensor(each) for each in given])


@pytest.mark.parametrize(("first", "second"), _known())
def test_a_divergence_is_that_of_pytorch(first: str, second: str) -> None:
    for at in range(len(MADE[first])):
        for other in range(len(MADE[second])):
            laws = {first: MADE[first][at], second: MADE[second][other]}
            if "ContinuousBernoulli" in laws and laws.get("Uniform") == (0.0, 1.0):
                # PyTorch says infinity, and integrates nothing that is infinite.
                continue
            found = [
                float(
                    torch.distributions.kl_divergence(
                        _single(torch, first, at), _single(torch, second, other)
                    )
                )
                for torch in (theirs, ours)
            ]
            np.testing.assert_allclose(found[1], found[0], rtol=1e-4, atol=1e-5)


def test_a_divergence_from_all_of_0_to_1_is_minus_an_entropy() -> None:
    law = ours.distributions.ContinuousBernoulli(ours.tensor(0.3))
    flat = ours.distributions.Uniform(ours.tensor(0.0), ours.tensor(1.0))
    entropy = theirs.distributions.ContinuousBernoulli(theirs.tensor(0.3)).entropy()
    found = ours.distributions.kl_divergence(law, flat)
    assert float(found) == pytest.approx(-float(entropy), rel=1e-3)
    x = np.linspace(0, 1, 100001)
    density = 0.3**x * 0.7 ** (1 - x)
    mean = -np.log(density / np.trapezoid(density, x)).mean()
    found = ours.distributions.kl_divergence(flat, law)
    assert float(found) == pytest.approx(mean, rel=1e-3)


def test_a_divergence_has_a_gradient() -> None:
    found = []
    for torch in (theirs, ours):
        rate = torch.tensor([0.5, 2.0], requires_grad=True)
        law, other = torch.distributions.Exponential(rate), torch.distributions.Gumbel(0.3, 1.2)
        torch.distributions.kl_divergence(law, other).sum().backward()
        found.append(rate.grad.numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4)


@pytest.mark.parametrize("torch", [theirs, ours], ids=["PyTorch", "tilegrad"])
def test_what_is_lognormal_is_not_normal(torch: Any) -> None:
    laws = torch.distributions
    for pair in (
        (laws.LogNormal(0.0, 1.0), laws.Normal(0.0, 1.0)),
        (laws.Normal(0.0, 1.0), laws.LogNormal(0.0, 1.0)),
        (laws.LogNormal(0.0, 1.0), laws.Gamma(1.0, 1.0)),
    ):
        with pytest.raises(NotImplementedError):
            laws.kl_divergence(*pair)
    same = laws.kl_divergence(laws.LogNormal(0.0, 1.0), laws.LogNormal(1.0, 1.0))
    assert float(same) == pytest.approx(0.5)


@pytest.mark.parametrize("torch", [theirs, ours], ids=["PyTorch", "tilegrad"])
def test_means_of_states_are_loaded(torch: Any) -> None:
    layer = torch.nn.BatchNorm1d(2)
    state = layer.state_dict()
    mean = {
        name: torch.stack([each.float(), each.float() + 3]).mean(0) for name, each in state.items()
    }
    layer.load_state_dict(mean)
    assert layer.num_batches_tracked.dtype == torch.int64
    assert (layer.num_batches_tracked.item(), layer.running_mean.tolist()) == (1, [1.5, 1.5])
    assert "torch.return_types.frexp" in repr(torch.frexp(torch.tensor(10.0)))
