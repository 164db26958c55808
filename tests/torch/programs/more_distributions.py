"""Distributions beside each other: densities, moments, divergences, transforms, mixtures."""

import torch
from torch import distributions as D
from torch.distributions import (
    Bernoulli,
    Beta,
    Categorical,
    Dirichlet,
    Exponential,
    Gamma,
    Geometric,
    HalfNormal,
    Independent,
    Laplace,
    LogNormal,
    MixtureSameFamily,
    MultivariateNormal,
    Normal,
    OneHotCategorical,
    Poisson,
    StudentT,
    TransformedDistribution,
    Uniform,
    kl_divergence,
)
from torch.distributions.transforms import AffineTransform, SigmoidTransform, TanhTransform

a = torch.tensor([0.5, -1.0], requires_grad=True)
s = torch.tensor([1.0, 2.0])
n = Normal(a, s)
print(
    n.log_prob(torch.tensor(0.3)).tolist(),
    n.entropy().tolist(),
    n.cdf(torch.tensor(0.1)).tolist(),
    n.icdf(torch.tensor(0.7)).tolist(),
)
print(kl_divergence(n, Normal(0.0, 1.0)).sum().item())
kl_divergence(n, Normal(0.0, 1.0)).sum().backward()
print(a.grad.tolist())
c = Categorical(logits=torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 1.0]]))
print(
    c.probs.tolist(),
    c.entropy().tolist(),
    c.log_prob(torch.tensor([2, 0])).tolist(),
    c.sample((4,)).shape,
)
print(
    Bernoulli(torch.tensor([0.3])).log_prob(torch.tensor([1.0])).item(),
    Beta(2.0, 3.0).log_prob(torch.tensor(0.4)).item(),
    Gamma(2.0, 3.0).entropy().item(),
    Dirichlet(torch.tensor([1.0, 2.0, 3.0])).log_prob(torch.tensor([0.2, 0.3, 0.5])).item(),
)
mv = MultivariateNormal(torch.zeros(2), torch.tensor([[2.0, 0.5], [0.5, 1.0]]))
print(mv.log_prob(torch.tensor([0.3, -0.4])).item(), mv.entropy().item(), mv.rsample((3,)).shape)
ind = Independent(Normal(torch.zeros(3), torch.ones(3)), 1)
print(ind.event_shape, ind.batch_shape, ind.log_prob(torch.ones(3)).item())
td = TransformedDistribution(
    Normal(torch.zeros(1), 1.0), [AffineTransform(1.0, 2.0), SigmoidTransform()]
)
print(td.log_prob(torch.tensor([0.3])).item())
sq = TransformedDistribution(Normal(0.0, 1.0), [TanhTransform(cache_size=1)])
print(sq.log_prob(torch.tensor(0.5)).item())
gm = MixtureSameFamily(
    Categorical(torch.tensor([0.3, 0.7])),
    Normal(torch.tensor([0.0, 2.0]), torch.tensor([1.0, 0.5])),
)
print(gm.log_prob(torch.tensor([0.1, 1.9])).tolist(), gm.mean.item(), gm.variance.item())
for d in (Poisson(3.0), Geometric(0.3)):
    print(d.log_prob(torch.tensor(2.0)).item(), d.mean.item(), d.variance.item())
for d in (
    Uniform(0.0, 2.0),
    Laplace(0.0, 1.0),
    StudentT(3.0),
    LogNormal(0.0, 0.5),
    Exponential(2.0),
    HalfNormal(1.0),
):
    print(
        type(d).__name__,
        d.log_prob(torch.tensor(0.7)).item(),
        d.mean.item(),
        d.entropy().item() if type(d).__name__ != "x" else 0,
    )
print(
    OneHotCategorical(torch.tensor([0.2, 0.8])).log_prob(torch.tensor([0.0, 1.0])).item(),
    repr(Normal(0.0, 1.0)),
    n,
)
try:
    Normal(0.0, -1.0)
except ValueError:
    print("ValueError")
print(
    D.kl_divergence(
        Categorical(torch.tensor([0.2, 0.8])), Categorical(torch.tensor([0.5, 0.5]))
    ).item(),
    D.kl_divergence(Beta(1.0, 2.0), Beta(2.0, 2.0)).item(),
    D.kl_divergence(Gamma(1.0, 2.0), Gamma(2.0, 2.0)).item(),
)
