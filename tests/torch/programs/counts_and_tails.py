"""Distributions of counts and of heavy tails: densities, moments and a fit by gradients."""

import torch
import torch.distributions as D

counts = torch.tensor([[3.0, 1.0, 6.0], [2.0, 5.0, 3.0]])
logits = torch.zeros(3, requires_grad=True)
optimizer = torch.optim.SGD([logits], lr=0.02)
for step in range(6):
    loss = -D.Multinomial(10, logits=logits).log_prob(counts).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step} {loss.item():.5f}")
m = D.Multinomial(10, probs=torch.tensor([0.2, 0.3, 0.5]))
print(m.mean, m.variance, m.event_shape, m.batch_shape, m.total_count)
draws = m.sample((200,))
print(draws.shape, bool((draws.sum(-1) == 10).all()))
print(bool((draws.mean(0) - m.mean).abs().max() < 1))
cases = [
    (D.HalfCauchy(torch.tensor([1.0, 2.0])), torch.tensor([0.5, 3.0])),
    (D.FisherSnedecor(torch.tensor([3.0]), torch.tensor([6.0])), torch.tensor([1.5])),
    (D.NegativeBinomial(torch.tensor([5.0]), probs=torch.tensor([0.3])), torch.tensor([2.0])),
]
for dist, value in cases:
    print(type(dist).__name__, dist.log_prob(value), dist.sample().shape, dist.event_shape)
    print("   ", dist.mean, dist.variance)
print(D.HalfCauchy(2.0).cdf(torch.tensor([1.0, 2.0])), D.HalfCauchy(2.0).icdf(torch.tensor(0.25)))
print(D.HalfCauchy(2.0).entropy())
probs = torch.tensor(0.4, requires_grad=True)
(-D.NegativeBinomial(3.0, probs=probs).log_prob(torch.tensor([0.0, 2.0, 5.0])).sum()).backward()
print(probs.grad)
