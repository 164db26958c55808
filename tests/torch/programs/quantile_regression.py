"""Quantiles by the pinball loss, and other robust losses."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.default_rng(27)
x = torch.tensor(rng.uniform(0, 1, (80, 1)), dtype=torch.float32)
y = 2 * x + torch.tensor(rng.exponential(0.3, (80, 1)), dtype=torch.float32)
quantiles = torch.tensor([0.1, 0.5, 0.9])
model = nn.Linear(1, 3)
nn.init.zeros_(model.weight)
nn.init.zeros_(model.bias)
optimizer = torch.optim.Adamax(model.parameters(), lr=0.1)


def pinball(prediction, target):
    error = target - prediction
    return torch.maximum(quantiles * error, (quantiles - 1) * error).mean()


for step in range(16):
    optimizer.zero_grad()
    loss = pinball(model(x), y)
    loss.backward()
    optimizer.step()
    if step % 5 == 0:
        print(f"{step} {loss.item():.5f}")
below = (y <= model(x)).float().mean(dim=0)
print(below.tolist())
p = model(x)[:, 1:2].detach()
print(f"{F.huber_loss(p, y, delta=0.3).item():.5f} {F.smooth_l1_loss(p, y, beta=0.5).item():.5f}")
print(f"{F.l1_loss(p, y).item():.5f} {torch.quantile(y, quantiles).tolist()}")
print(f"{y.median().item():.5f} {y.std().item():.5f} {y.var(unbiased=False).item():.5f}")
