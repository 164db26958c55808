"""Affine coupling layers with exact log-determinants."""

import math

import numpy as np
import torch
import torch.nn as nn

rng = np.random.default_rng(40)


class Coupling(nn.Module):
    def __init__(self, mask):
        super().__init__()
        self.register_buffer("mask", mask)
        self.s = nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(), nn.Linear(8, 2), nn.Tanh())
        self.t = nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(), nn.Linear(8, 2))

    def forward(self, x):
        held = x * self.mask
        s, t = self.s(held) * (1 - self.mask), self.t(held) * (1 - self.mask)
        return held + (1 - self.mask) * (x * torch.exp(s) + t), s.sum(dim=1)

    def inverse(self, z):
        held = z * self.mask
        s, t = self.s(held) * (1 - self.mask), self.t(held) * (1 - self.mask)
        return held + (1 - self.mask) * ((z - t) * torch.exp(-s))


masks = [torch.tensor([float(i % 2), float((i + 1) % 2)]) for i in range(4)]
flow = nn.ModuleList([Coupling(m) for m in masks])
with torch.no_grad():
    for p in flow.parameters():
        p.copy_(torch.from_numpy(rng.normal(0, 0.3, tuple(p.shape))))
angle = rng.uniform(0, np.pi, 64)
data = np.stack([np.cos(angle), np.sin(angle)], 1) + rng.normal(0, 0.05, (64, 2))
x = torch.tensor(data, dtype=torch.float32)
optimizer = torch.optim.Adam(flow.parameters(), lr=5e-3)
for step in range(5):
    z, log_det = x, x.new_zeros(x.shape[0])
    for layer in flow:
        z, d = layer(z)
        log_det = log_det + d
    log_prob = -0.5 * z.pow(2).sum(1) - math.log(2 * math.pi) + log_det
    loss = -log_prob.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step} {loss.item():.5f}")
with torch.no_grad():
    z = x
    for layer in flow:
        z, _ = layer(z)
    for layer in reversed(flow):
        z = layer.inverse(z)
print(f"{(z - x).abs().max().item() < 1e-4}")
