"""Variational inference with relaxed and transformed laws: Gumbel-softmax choices, low-rank
posteriors, stick-breaking weights, own divergences; densities and gradients, no draws.
"""

import numpy as np
import torch
import torch.distributions as D
import torch.distributions.transforms as T
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import constraints, kl_divergence
from torch.distributions.kl import register_kl

rng = np.random.RandomState(0)
tensor = lambda *s: torch.from_numpy(rng.randn(*s).astype(np.float32))


def report(name, value, *leaves):
    grads = torch.autograd.grad(value.sum(), leaves, retain_graph=True)
    print(
        name,
        tuple(value.shape),
        f"{value.sum().item():.4f}",
        [f"{g.sum().item():.4f}" for g in grads],
    )


logits, probs = (
    tensor(3, 4).requires_grad_(),
    torch.rand(3).mul(0).add(torch.tensor([0.2, 0.5, 0.7])).requires_grad_(),
)
loc, scale = tensor(3).requires_grad_(), torch.tensor([0.5, 1.0, 2.0], requires_grad=True)
simplex = F.softmax(tensor(3, 4), -1)
report(
    "concrete",
    D.RelaxedOneHotCategorical(torch.tensor(0.7), logits=logits).log_prob(simplex),
    logits,
)
report(
    "binary",
    D.RelaxedBernoulli(torch.tensor([0.5]), probs=probs).log_prob(torch.tensor([0.3, 0.6, 0.9])),
    probs,
)
report("binomial", D.Binomial(10, probs=probs).log_prob(torch.tensor([1.0, 5.0, 10.0])), probs)
report("negative", D.NegativeBinomial(3.0, logits=loc).log_prob(torch.tensor([0.0, 2.0, 7.0])), loc)
report("logistic normal", D.LogisticNormal(loc, scale).log_prob(simplex[0]), loc, scale)
factor = tensor(3, 2).requires_grad_()
low = D.LowRankMultivariateNormal(loc, factor, scale**2)
report("low rank", low.log_prob(tensor(5, 3)), loc, factor, scale)
report("low entropy", low.entropy(), factor, scale)
full = D.MultivariateNormal(torch.zeros(3), scale_tril=torch.eye(3) * 1.5)
report("kl low full", kl_divergence(low, full), loc, factor, scale)
report("kl full low", kl_divergence(full, low), loc, factor)
report("pareto", D.Pareto(scale, scale + 1).log_prob(torch.tensor([2.5, 2.5, 3.5])), scale)
report(
    "kumaraswamy", D.Kumaraswamy(scale, scale + 1).log_prob(torch.tensor([0.2, 0.5, 0.9])), scale
)
report("half cauchy", D.HalfCauchy(scale).log_prob(torch.tensor([0.2, 0.5, 4.0])), scale)
report("von mises", D.VonMises(loc, scale).log_prob(torch.tensor([0.2, -0.5, 3.0])), loc, scale)
report(
    "student",
    D.StudentT(scale + 2, loc, scale).log_prob(torch.tensor([0.2, -0.5, 4.0])),
    loc,
    scale,
)
report("gumbel", D.Gumbel(loc, scale).log_prob(tensor(3)), loc, scale)
report("weibull", D.Weibull(scale, scale + 0.5).log_prob(torch.tensor([0.2, 0.5, 4.0])), scale)
report(
    "inverse gamma", D.InverseGamma(scale + 1, scale).log_prob(torch.tensor([0.2, 0.5, 4.0])), scale
)
report(
    "fisher", D.FisherSnedecor(scale + 1, scale + 2).log_prob(torch.tensor([0.2, 0.5, 4.0])), scale
)
report(
    "dirichlet",
    D.Dirichlet(scale.expand(2, 3)).log_prob(torch.tensor([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])),
    scale,
)
mixture = D.MixtureSameFamily(
    D.Categorical(logits=logits[0, :3]),
    D.Independent(D.Normal(loc[:, None].expand(3, 2), scale[:, None]), 1),
)
report("mixture", mixture.log_prob(tensor(4, 2)), logits, loc, scale)
print(
    mixture.mean.tolist() == mixture.mean.tolist(),
    mixture.event_shape,
    mixture.batch_shape,
    D.Binomial(5, probs.detach()),
)
straight = D.OneHotCategoricalStraightThrough(logits=logits)
drawn = straight.rsample()
print(
    "straight",
    drawn.shape,
    bool(((drawn.detach().round() - drawn.detach()).abs() < 1e-6).all()),
    drawn.requires_grad,
)

chain = T.ComposeTransform(
    [T.AffineTransform(1.0, 2.0), T.SigmoidTransform(), T.PowerTransform(torch.tensor(2.0))]
)
x = tensor(4).requires_grad_()
y = chain(x)
report("chain", chain.log_abs_det_jacobian(x, y), x)
print("inverse", torch.allclose(chain.inv(y), x, atol=1e-4), chain.bijective)
sticks = T.StickBreakingTransform()
weights = sticks(x)
report("sticks", sticks.log_abs_det_jacobian(x, weights), x)
print(
    "weights",
    f"{weights.sum():.5f}",
    torch.allclose(sticks.inv(weights), x, atol=1e-3),
    sticks.domain,
    sticks.codomain,
)
for transform in (
    T.SoftplusTransform(),
    T.TanhTransform(cache_size=1),
    T.ExpTransform(),
    T.IndependentTransform(T.ExpTransform(), 1),
    T.ReshapeTransform((4,), (2, 2)),
    T.AbsTransform(),
    T.SoftmaxTransform(),
):
    out = transform(x)
    jacobian = transform.log_abs_det_jacobian(x, out).sum().item() if transform.bijective else None
    print(
        type(transform).__name__,
        tuple(out.shape),
        f"{out.sum().item():.4f}",
        jacobian if jacobian is None else f"{jacobian:.4f}",
    )
flow = D.TransformedDistribution(
    D.Normal(torch.zeros(4), 1.0), [T.TanhTransform(), T.AffineTransform(loc=0.5, scale=0.5)]
)
report("squashed", flow.log_prob(torch.sigmoid(x)), x)
print("cdf", [f"{v:.4f}" for v in flow.cdf(torch.tensor(0.3)).tolist()])
print(
    "biject",
    D.transform_to(constraints.lower_cholesky)(tensor(2, 2)).triu(1).abs().sum().item(),
    D.transform_to(constraints.interval(-1, 2))(torch.zeros(1)).item(),
)


class Spike(D.Distribution):
    arg_constraints = {"p": constraints.unit_interval, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = False

    def __init__(self, p, rate, validate_args=None):
        self.p, self.rate = D.utils.broadcast_all(p, rate)
        super().__init__(self.p.size(), validate_args=validate_args)

    @property
    def mean(self):
        return self.p / self.rate

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        slab = self.p.log() + D.Exponential(self.rate).log_prob(value)
        return torch.where(value == 0, torch.log1p(-self.p), slab)


@register_kl(Spike, Spike)
def _kl_spike(a, b):
    return kl_divergence(D.Bernoulli(a.p), D.Bernoulli(b.p)) + a.p * kl_divergence(
        D.Exponential(a.rate), D.Exponential(b.rate)
    )


spike = Spike(probs, scale)
report("spike", spike.log_prob(torch.tensor([0.0, 1.0, 2.0])), probs, scale)
report("spike kl", kl_divergence(spike, Spike(torch.tensor(0.5), torch.tensor(1.0))), probs, scale)
print(spike.mean.tolist() == (probs / scale).tolist(), tuple(spike.batch_shape))
for wrong in (
    lambda: spike.log_prob(torch.tensor(-1.0)),
    lambda: spike.rsample(),
    lambda: kl_divergence(spike, D.Normal(0.0, 1.0)),
    lambda: D.Normal(0.0, -1.0),
):
    try:
        wrong()
        print("nothing")
    except (ValueError, NotImplementedError):
        print("refused")


class DiscreteVAE(nn.Module):
    """Choices by Gumbel-softmax from given uniform numbers, a temperature that falls."""

    def __init__(self, groups=3, kinds=4):
        super().__init__()
        self.groups, self.kinds = groups, kinds
        self.encoder, self.decoder = nn.Linear(8, groups * kinds), nn.Linear(groups * kinds, 8)

    def forward(self, x, uniform, temperature, hard=False):
        logits = self.encoder(x).view(-1, self.groups, self.kinds)
        noise = -torch.log(-torch.log(uniform))
        soft = ((logits + noise) / temperature).softmax(-1)
        if hard:
            index = soft.max(-1, keepdim=True)[1]
            one = torch.zeros_like(logits, memory_format=torch.legacy_contiguous_format).scatter_(
                -1, index, 1.0
            )
            soft = one - soft.detach() + soft
        q = D.Categorical(logits=logits)
        p = D.Categorical(probs=torch.full_like(logits, 1.0 / self.kinds))
        return self.decoder(soft.flatten(1)), D.kl.kl_divergence(q, p).sum(-1)


model = DiscreteVAE()
for p in model.parameters():
    p.data.copy_(tensor(*p.shape) * 0.5)
images = torch.from_numpy(rng.rand(10, 8).astype(np.float32)).bernoulli().mul(0) + (
    tensor(10, 8) > 0
)
optimizer = torch.optim.NAdam(model.parameters(), lr=0.05)
for step in range(6):
    uniform = torch.from_numpy(rng.uniform(0.01, 0.99, (10, 3, 4)).astype(np.float32))
    out, kl = model(images, uniform, max(0.5, np.exp(-0.1 * step)), hard=step % 2 == 1)
    bernoulli = D.Independent(D.Bernoulli(logits=out), 1)
    loss = -(bernoulli.log_prob(images) - 0.5 * kl).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(
        f"elbo {step} {-loss.item():.5f} {kl.mean().item():.5f} {model.encoder.weight.grad.norm().item():.5f}"
    )
