"""A coupling flow on two moons by maximum likelihood."""

import math

import numpy as np
import torch
import torch.nn as nn
from torch import optim


def init(model, seed=0):
    rng = np.random.RandomState(seed)
    with torch.no_grad():
        for p in model.parameters():
            bound = 1 / max(1, p.shape[-1] if p.dim() > 1 else p.numel()) ** 0.5
            p.copy_(torch.from_numpy(rng.uniform(-bound, bound, tuple(p.shape)).astype(np.float32)))
    return model


def grad_norm(model):
    return sum(p.grad.norm().item() ** 2 for p in model.parameters() if p.grad is not None) ** 0.5


class Coupling(nn.Module):
    def __init__(self, flip):
        super().__init__()
        self.flip = flip
        self.net = nn.Sequential(nn.Linear(1, 16), nn.LeakyReLU(0.1), nn.Linear(16, 2))

    def forward(self, x):
        a, b = x.chunk(2, dim=1)
        if self.flip:
            a, b = b, a
        s, t = self.net(a).chunk(2, dim=1)
        s = torch.tanh(s)
        b = b * s.exp() + t
        return torch.cat((b, a) if self.flip else (a, b), dim=1), s.squeeze(1)

    def inverse(self, y):
        a, b = y.chunk(2, dim=1)
        if self.flip:
            a, b = b, a
        s, t = self.net(a).chunk(2, dim=1)
        b = (b - t) * torch.exp(-torch.tanh(s))
        return torch.cat((b, a) if self.flip else (a, b), dim=1)


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Coupling(i % 2 == 1) for i in range(4)])
        self.register_buffer("loc", torch.zeros(2))
        self.register_buffer("cov", torch.eye(2))

    @property
    def base(self):
        return torch.distributions.MultivariateNormal(self.loc, self.cov)

    def log_prob(self, x):
        total = x.new_zeros(len(x))
        for layer in self.layers:
            x, s = layer(x)
            total += s
        return self.base.log_prob(x) + total, x


angle = torch.linspace(0, math.pi, 40)
moon = torch.stack((angle.cos(), angle.sin()), 1)
data = torch.cat((moon, torch.tensor([1.0, 0.5]) - moon))
flow = init(Flow())
optimizer = optim.Adam(flow.parameters(), lr=5e-3)
scheduler = optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.95)
for step in range(10):
    optimizer.zero_grad()
    ll, z = flow.log_prob(data)
    loss = -ll.mean()
    loss.backward()
    optimizer.step()
    scheduler.step()
    print(step, f"{loss.item():.5f} {grad_norm(flow):.5f}")
x = z.detach()
for layer in reversed(flow.layers):
    x = layer.inverse(x)
print((x - data).abs().max().item() < 0.2, sorted(flow.state_dict())[:3])
