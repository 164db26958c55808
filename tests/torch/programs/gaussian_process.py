"""Gaussian process regression: a marginal likelihood through a Cholesky factor."""

import math

import numpy as np
import torch

rng = np.random.default_rng(46)
x = torch.from_numpy(np.sort(rng.uniform(-3, 3, 20))).double().unsqueeze(1)
y = torch.sin(x).squeeze() + 0.1 * torch.from_numpy(rng.normal(size=20))
log_length = torch.zeros((), dtype=torch.float64, requires_grad=True)
log_scale = torch.zeros((), dtype=torch.float64, requires_grad=True)
log_noise = torch.tensor(-2.0, dtype=torch.float64, requires_grad=True)


def kernel(a, b):
    return (2 * log_scale).exp() * torch.exp(
        -0.5 * torch.cdist(a, b).pow(2) / log_length.exp() ** 2
    )


def negative_log_likelihood():
    K = kernel(x, x) + (2 * log_noise).exp() * torch.eye(20, dtype=torch.float64)
    L = torch.linalg.cholesky(K)
    alpha = torch.cholesky_solve(y.unsqueeze(1), L).squeeze(1)
    return 0.5 * y @ alpha + L.diagonal().log().sum() + 10 * math.log(2 * math.pi)


optimizer = torch.optim.Adam([log_length, log_scale, log_noise], lr=0.1)
for step in range(6):
    optimizer.zero_grad()
    loss = negative_log_likelihood()
    loss.backward()
    optimizer.step()
    print(f"{step} {loss.item():.6f} {log_length.grad.item():.5f}")
with torch.no_grad():
    grid = torch.linspace(-2, 2, 3, dtype=torch.float64).unsqueeze(1)
    K = kernel(x, x) + (2 * log_noise).exp() * torch.eye(20, dtype=torch.float64)
    mean = kernel(grid, x) @ torch.linalg.solve(K, y)
    var = (
        kernel(grid, grid).diag() - (kernel(grid, x) @ torch.linalg.inv(K) @ kernel(x, grid)).diag()
    )
print(mean.tolist(), var.tolist())
