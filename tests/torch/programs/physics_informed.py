"""A physics-informed network: derivatives of the network with respect to its input."""

import numpy as np
import torch
import torch.nn as nn

rng = np.random.default_rng(48)
net = nn.Sequential(nn.Linear(1, 10), nn.Tanh(), nn.Linear(10, 10), nn.Tanh(), nn.Linear(10, 1))
with torch.no_grad():
    for p in net.parameters():
        p.copy_(torch.from_numpy(rng.normal(0, 0.5, tuple(p.shape))))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
t0 = torch.zeros(1, 1, requires_grad=True)
t = torch.linspace(0, 1, 12).view(-1, 1).requires_grad_(True)
mu, k = 4.0, 20.0
for step in range(4):
    optimizer.zero_grad()
    u0 = net(t0)
    du0 = torch.autograd.grad(u0, t0, torch.ones_like(u0), create_graph=True)[0]
    boundary = (u0 - 1).pow(2).squeeze() + 0.1 * du0.pow(2).squeeze()
    u = net(t)
    du = torch.autograd.grad(u, t, torch.ones_like(u), create_graph=True)[0]
    d2u = torch.autograd.grad(du, t, torch.ones_like(du), create_graph=True)[0]
    physics = torch.mean((d2u + mu * du + k * u) ** 2)
    loss = boundary + 1e-3 * physics
    loss.backward()
    optimizer.step()
    print(f"{step} {loss.item():.5f} {physics.item():.4f}")
