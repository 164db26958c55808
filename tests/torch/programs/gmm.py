"""A mixture of Gaussians fitted by gradient descent on the log-likelihood, then by EM."""

import math

import numpy as np
import torch

rng = np.random.default_rng(18)
data = np.concatenate([rng.normal(-2, 0.5, (40, 2)), rng.normal(1.5, 0.8, (60, 2))])
x = torch.tensor(data, dtype=torch.float32)
logits = torch.zeros(2, requires_grad=True)
means = torch.tensor([[-1.0, 0.0], [1.0, 0.5]], requires_grad=True)
log_std = torch.zeros(2, 2, requires_grad=True)


def log_likelihood(x):
    z = (x[:, None, :] - means) / log_std.exp()
    log_prob = (-0.5 * z**2 - log_std - 0.5 * math.log(2 * math.pi)).sum(-1)
    return torch.logsumexp(log_prob + torch.log_softmax(logits, 0), dim=1)


optimizer = torch.optim.Adam([logits, means, log_std], lr=0.1)
for step in range(20):
    optimizer.zero_grad()
    loss = -log_likelihood(x).mean()
    loss.backward()
    optimizer.step()
    if step % 5 == 0:
        print(f"{step} {loss.item():.5f}")
print(means.detach().numpy().round(2).tolist(), torch.softmax(logits, 0).tolist())

mu, sigma, pi = torch.tensor([[-1.0, 0.0], [1.0, 0.5]]), torch.ones(2, 2), torch.ones(2) / 2
for _ in range(5):
    log_r = torch.distributions.Normal(mu, sigma).log_prob(x.unsqueeze(1)).sum(-1) + pi.log()
    r = (log_r - log_r.logsumexp(1, keepdim=True)).exp()
    n = r.sum(0)
    mu = (r.t() @ x) / n.unsqueeze(1)
    sigma = ((r.unsqueeze(-1) * (x.unsqueeze(1) - mu) ** 2).sum(0) / n.unsqueeze(1)).sqrt()
    pi = n / n.sum()
print(mu.flatten().tolist(), pi.tolist(), sigma.mean().item())
