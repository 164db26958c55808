"""A physics-informed network for the heat equation, by second derivatives."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
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


torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.layers = nn.ModuleList(
            [nn.Linear(2, width), nn.Linear(width, width), nn.Linear(width, 1)]
        )
        self.kappa = nn.Parameter(torch.tensor(0.5))

    def forward(self, x, t):
        h = torch.hstack((x, t))
        for layer in self.layers[:-1]:
            h = torch.tanh(layer(h))
        return self.layers[-1](h)


def derivative(y, x):
    return torch.autograd.grad(y, x, grad_outputs=torch.ones_like(y), create_graph=True)[0]


net = init(Net())
with torch.no_grad():
    net.kappa.fill_(0.5)
grid = torch.cartesian_prod(torch.linspace(0, 1, 8), torch.linspace(0, 1, 5))
x, t = grid[:, :1].clone().requires_grad_(), grid[:, 1:].clone().requires_grad_()
x0 = torch.linspace(0, 1, 16).unsqueeze(1)
u0 = torch.sin(math.pi * x0)
data = torch.exp(-0.1 * math.pi**2 * torch.ones(16, 1) * 0.5) * u0
optimizer = optim.Adam(net.parameters(), lr=5e-3)
scheduler = optim.lr_scheduler.MultiStepLR(optimizer, milestones=[4, 7], gamma=0.3)
for epoch in range(9):
    optimizer.zero_grad()
    u = net(x, t)
    u_t, u_x = derivative(u, t), derivative(u, x)
    u_xx = derivative(u_x, x)
    residual = (u_t - net.kappa * u_xx).pow(2).mean()
    initial = F.mse_loss(net(x0, torch.zeros_like(x0)), u0)
    edge = net(torch.zeros(5, 1), torch.linspace(0, 1, 5)[:, None]).square().mean()
    seen = F.mse_loss(net(x0, torch.full_like(x0, 0.5)), data)
    loss = residual + initial + edge + seen
    loss.backward()
    optimizer.step()
    scheduler.step()
    print(
        epoch,
        f"{loss.item():.6f} {residual.item():.6f} {net.kappa.item():.5f} {net.kappa.grad.item():.6f} {scheduler.get_last_lr()[0]:.5f}",
    )
H = torch.autograd.functional.hessian(
    lambda p: net(p[:1].view(1, 1), p[1:].view(1, 1)).squeeze(), torch.tensor([0.3, 0.2])
)
print(H, torch.allclose(H, H.T, atol=1e-5))
